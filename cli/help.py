"""Help texts that fit the terminal: no word is broken, and long examples go on in the next line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

import click

_TABLES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson")
_CONTINUED = " " * 4
_HYPHEN = "\u2011"
"""A hyphen at which no line ends."""


class Formatter(click.HelpFormatter):
    """Writes help texts without a break at the hyphens of names and options."""

    def write_text(self, text: str) -> None:
        """Write a paragraph of text."""
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write a list of options or commands."""
        glued = [(name, text.replace("-", _HYPHEN)) for name, text in rows]
        super().write_dl(glued, col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the whole text."""
        return super().getvalue().replace(_HYPHEN, "-")


class Context(click.Context):
    """A context whose help texts are written by `Formatter`."""

    formatter_class = Formatter


class Command(click.Command):
    """A command whose examples are folded to the width of the terminal."""

    context_class = Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a second table is refused with advice."""
        tables = [part for part in args if part.lower().endswith(_TABLES)]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message or len(tables) < 2:
                raise
            advice = "join several tables into one file first, for example with pandas.concat"
            raise click.UsageError(f"{error.message}: {advice}", ctx) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and the text that follows them."""
        if not self.epilog:
            return
        text = re.sub(r" \\\n\s+", " ", inspect.cleandoc(self.epilog))
        formatter.write_paragraph()
        with formatter.indentation():
            width = formatter.width - formatter.current_indent
            lines = [part for line in text.splitlines() for part in fold_command(line, width)]
            formatter.write_text("\n".join(lines))


class Group(Command, click.Group):
    """A group of commands, with examples of its own. It shows the first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, with whole sentences."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(limit=1000)) for name, one in found if one]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def fold_command(line: str, width: int) -> list[str]:
    """The lines of a shell command that is too long for one line. Other lines stay as they are."""
    indent = " " * (len(line) - len(line.lstrip()))
    if len(line) <= width or line.split()[:1] != ["grd-offline"]:
        return [line]
    lines, current = [], indent
    for word in re.findall(r"--\S+ (?!-)\S+|\S+", line):  # an option stays with its value
        longer = f"{current} {word}" if current.strip() else f"{current}{word}"
        if len(longer) > width - 2 and current.strip():
            lines.append(f"{current} \\")
            longer = f"{indent}{_CONTINUED}{word}"
        current = longer
    return [*lines, current]
