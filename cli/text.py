"""Text that fits a terminal: no word is broken, and a number stays with its unit."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from grd_offline.core.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|±|s|min|h|B|kB|MB|GB|TB)(?:[ .,;:)/]|$))")
_GLUE = "\0"
_GAP = 2
FILE_WIDTH = 140
"""Letters in a line of a table that is not printed to a terminal."""


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters. A word that is longer has a line of its own."""
    glued = _BEFORE_UNIT.sub(_GLUE, text)
    lines = textwrap.wrap(glued, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in lines] or [""]


def echo(text: str, err: bool = False) -> None:
    """Print a line; in a terminal that is too narrow for it, no word is broken."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(part for line in text.splitlines() for part in wrap(line, width))
    click.echo(text, err=err)


def say(text: str) -> None:
    """Print a line about the progress of a command, on stderr."""
    with suppress(OSError):  # the terminal may be gone
        echo(text, err=True)


def print_warning(text: str) -> None:
    echo(f"warning: {printable(text)}", err=True)


def print_text(console: Console, text: str, style: str = "", indent: str = "") -> None:
    """Print a paragraph; lines after the first are indented."""
    from rich.text import Text

    first, *others = wrap(printable(text), console.width - len(indent))
    for line in (first, *(f"{indent}{other}" for other in others)):
        console.print(Text(line, style=style), soft_wrap=True)


def print_facts(console: Console, facts: Mapping[str, str]) -> None:
    """Print a name and a text in each row: side by side, or below each other if it is narrow."""
    from rich.text import Text

    width = max(len(name) for name in facts) + _GAP
    is_narrow = 3 * width > console.width
    indent = " " * (_GAP if is_narrow else width)
    for name, text in facts.items():
        lines = wrap(printable(text), console.width - len(indent))
        head = Text(name, style="bold")
        if is_narrow and name:
            console.print(head, soft_wrap=True)
        elif not is_narrow:
            head.append(" " * (width - len(name)))
            console.print(head + Text(lines.pop(0)), soft_wrap=True)
        for line in lines:
            console.print(Text(f"{indent}{line}"), soft_wrap=True)


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[str]
) -> None:
    """Print a table whose columns hold words or numbers. A row with one entry is a heading."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in titles:  # Text, because names of methods are no markup
        if title in words:
            table.add_column(Text(title), overflow="fold")
        else:
            table.add_column(Text(title), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row), style="bold" if len(row) == 1 < len(titles) else None)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(table)
