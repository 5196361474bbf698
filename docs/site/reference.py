"""Pages of the command line, made from the commands themselves."""

import inspect
import re
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
    """The examples of a command, and the text that follows them."""
    text = inspect.cleandoc((command.epilog or "").replace("\b", "")).strip()
    found = text.removeprefix("Examples:").splitlines()
    examples = [line.strip() for line in found if line.startswith(" ")]
    others = [escape(line) for line in found if not line.startswith(" ")]
    lines = ["## Examples", "", "```sh", *examples, "```", ""] if examples else []
    return [*lines, *others, ""]


def write_commands(folder: Path) -> None:
    """Write a page for every command."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in sorted(cli.commands.items()):
        (folder / f"{name}.md").write_text(make_command_page(command))
