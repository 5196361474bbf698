"""Where things lie."""

from pathlib import Path

HELPERS = Path(__file__).parent
ROOT = HELPERS.parent.parent
