"""The command line: parse, call, print. Every command prints what it wrote."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake ends in one line and exit code 2."""
    try:
        from .program import run  # here, so that Ctrl-C while it is imported is as quiet as later
    except KeyboardInterrupt:
        print("grd-offline: error: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(run(arguments))
