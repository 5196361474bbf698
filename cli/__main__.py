"""`python -m grd_offline.cli`, the same as `grd-offline`."""

from . import main

main()
