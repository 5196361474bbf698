"""Pages of the command line, made from the commands themselves."""

import inspect
import re
import textwrap
from itertools import groupby
from pathlib import Path

import click

from grd_offline.cli.program import cli


def escape(text: str) -> str:
    """Plain text for Markdown; code between backticks stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    escaped = [part if i % 2 else re.sub(r"([\\*_<>\[\]#|$])", r"\\\1", part)
               for i, part in enumerate(parts)]  # fmt: skip
    return "".join(escaped)


def make_command_page(command: click.Command) -> str:
    """The page of one command: what it does, its usage, its options and examples."""
    context = click.Context(command, info_name=f"grd-offline {command.name}", max_content_width=200)
    usage = command.get_usage(context).removeprefix("Usage: ")
    about = inspect.cleandoc(command.help or "")
    lines = [f"# grd-offline {command.name}", "", escape(about), "", "```text", usage, "```", ""]
    lines += ["## Options", ""]
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None and record[1]:  # arguments are described in the text above
            lines += [f"`{record[0]}`", f": {escape(record[1])}", ""]
    return "\n".join([*lines, *make_examples(command)])


def make_examples(command: click.Command) -> list[str]:
    """The examples of a command, each block under the line that introduces it."""
    lines: list[str] = []
    text = inspect.cleandoc((command.epilog or "").replace("\b", "")).strip()
    for is_code, group in groupby(text.splitlines(), lambda line: line.startswith(" ")):
        block = textwrap.dedent("\n".join(group)).strip()
        if is_code:
            language = "sh" if block.startswith("grd-offline") else "toml"
            lines += [f"```{language}", block, "```", ""]
        elif block == "Examples:":
            lines += ["## Examples", ""]
        elif block:
            lines += [escape(block), ""]
    return lines


def write_commands(folder: Path) -> None:
    """Write a page for every command."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in sorted(cli.commands.items()):
        (folder / f"{name}.md").write_text(make_command_page(command))
