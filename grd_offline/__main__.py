"""`python -m grd_offline`, the same as `grd-offline`."""

from grd_offline.cli import main

main()
