"""Commands and options: how they are declared, and how their help texts look.

The examples of a command are the end of its docstring. An option shows its default and its bounds.
Options that are settings of the library are made from the fields of its settings classes.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import click

from grd_offline.core.settings import Described, Names, Setting, describe_settings

if TYPE_CHECKING:
    Choice = click.Choice[str]
else:  # not generic in every version
    Choice = click.Choice

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_LONG = 36
"""Length of a list of names from which on the help text lists them instead."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TABLES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson")
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
    """A command whose docstring ends in examples. They are folded to the width of the terminal."""

    context_class = Context

    def __init__(self, name: str | None, *, help: str | None = None, **options: Any) -> None:
        about, mark, examples = inspect.cleandoc(help or "").partition("\b\nExamples:")
        super().__init__(name, help=about, epilog=f"{mark}{examples}", **options)

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
        text = re.sub(r" \\\n\s+", " ", self.epilog or "")
        formatter.write_paragraph()
        with formatter.indentation():
            width = formatter.width - formatter.current_indent
            lines = [part for line in text.splitlines() for part in fold_command(line, width)]
            formatter.write_text("\n".join(lines))


class CommandGroup(Command, click.Group):
    """A group of commands, with examples of its own. It shows the first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, with whole sentences."""
        found = sorted(self.commands.items())
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=1000)) for name, one in found])


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
            longer = f"{indent}    {word}"
        current = longer
    return [*lines, current]


def parse_size(value: Any) -> int:
    """A number of bytes: 500MB, 4GB."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)i?b?", str(value).lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size such as 500MB or 4GB")
    return int(float(match[1]) * _UNITS[match[2]])


class OutPath(click.Path):
    """A file or a folder to write. An empty name is refused: it would be the working folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class NameChoice(Choice):
    """One of some names, which may take a moment to find."""

    def __init__(self, known: Names) -> None:
        self._known, self.case_sensitive = known, True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return Setting(allowed=self._known).names


class NamesType(NameChoice):
    """Several of some names, separated by commas. A shell cannot complete such a list."""

    name = "names"
    shell_complete = click.ParamType.shell_complete

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:  # type: ignore[override]
        names = value if isinstance(value, tuple) else tuple(str(value).split(","))
        for name in names:
            if name not in self.choices:
                self.fail(
                    f"expected {', '.join(self.choices)}, or several with commas, got {name!r}"
                )
        return names


class Option(click.Option):
    """An option that shows its default and its bounds, and lists its names if they are many."""

    def __init__(self, *arguments: Any, bounds: str = "", **options: Any) -> None:
        super().__init__(*arguments, **{"show_default": True, **options})
        kind = self.type
        if isinstance(kind, click.IntRange | click.FloatRange):
            self.metavar = self.metavar or kind.name.split()[0].upper()
            least, above = (None, kind.min) if kind.min_open else (kind.min, None)
            bounds = Setting("", at_least=least, above=above, at_most=kind.max).describe_range()
        self.bounds = bounds

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if self.bounds:
            extra["range"] = self.bounds
        return extra

    @property
    def names(self) -> Sequence[str]:
        """The names that the option takes; empty where any text is fine."""
        return self.type.choices if isinstance(self.type, click.Choice) else ()

    def make_metavar(self, ctx: click.Context) -> str:
        listed = f"[{'|'.join(self.names)}]"
        if (len(listed) < _LONG and not isinstance(self.type, NamesType)) or not self.names:
            return super().make_metavar(ctx)
        several = "[,...]" if isinstance(self.type, NamesType) else ""
        return f"{listed if len(listed) < _LONG else 'NAME'}{several}"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not self.make_metavar(ctx).startswith("NAME") or not self.names:
            return record
        text, bracket, rest = record[1].partition("  [")
        return record[0], f"{text} Names: {', '.join(self.names)}.{bracket}{rest}"


command = functools.partial(click.command, cls=Command)
option = functools.partial(click.option, cls=Option)
path_argument = functools.partial(click.argument, type=click.Path(path_type=Path))


def options(*several: Decorator) -> Decorator:
    """Several options as one decorator, in this order."""
    return lambda command: functools.reduce(lambda one, add: add(one), reversed(several), command)


def setting_options(settings: type[Any], *names: str, **changes: dict[str, Any]) -> Decorator:
    """Options for several fields of the settings, in this order.

    `changes` are arguments of `click.option` that differ for some of them.
    """
    known = describe_settings(settings)
    return options(*(_make_option(name, known[name], changes.get(name, {})) for name in names))


def _make_option(name: str, described: Described, changes: dict[str, Any]) -> Decorator:
    """The option of one field of the settings: its type, default, description and bounds."""
    facts, kind = described.setting, described.kind
    given: dict[str, Any] = {"help": facts.text, "bounds": facts.describe_range(), "type": kind}
    if described.default not in (MISSING, None):
        given["default"] = described.default
    if kind is bool:
        given["is_flag"] = True
    elif kind == tuple[str, ...]:
        given["type"] = NamesType(facts.allowed)
    elif facts.allowed:
        given["type"] = NameChoice(facts.allowed)
    elif get_origin(kind) is Mapping:
        given |= {"type": parse_argument, "multiple": True, "default": (), "metavar": "KEY=VALUE"}
        given["callback"] = lambda context, parameter, value: dict(value)
    flag = facts.option or f"--{name.replace('_', '-')}"
    return option(flag, name, **(given | changes))


def pick_settings(settings: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the settings among a command's options."""
    return {name: options[name] for name in describe_settings(settings) if name in options}


def parse_argument(value: Any) -> tuple[str, Any]:
    """`KEY=VALUE` as a pair; the value is read as JSON where it is that, else as text."""
    if isinstance(value, tuple):
        return value
    key, equals, text = str(value).partition("=")
    if not equals or not key.isidentifier():
        raise click.BadParameter(f"expected KEY=VALUE, got {value!r}")
    try:
        return key, json.loads(text)
    except json.JSONDecodeError:
        return key, text


def is_given(name: str) -> bool:
    """Whether the command line itself has this option."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def out_option(text: str, **changes: Any) -> Decorator:
    """The option --out for commands that write a file or a folder."""
    return option("--out", **{"type": OutPath(path_type=Path), "help": text, **changes})


def file_option(text: str) -> Decorator:
    """The options -o and --out for commands that write one file."""
    kind = OutPath(path_type=Path, dir_okay=False)
    return option("-o", "--out", metavar="FILE", type=kind, help=text)


def workers_option(text: str, default: str = "the number of cores", kind: Any = int) -> Decorator:
    """The option --workers for commands that use several processes."""
    return option("--workers", type=kind, help=f"{text}  [default: {default}]")


def join_options(join: Callable[..., dict[str, Any]]) -> Decorator:
    """The command gets what `join` makes of some of its options instead of them."""
    names = inspect.signature(join).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(*arguments: Any, **options: Any) -> Any:
            joined = join(**{name: options.pop(name) for name in names})
            return command(*arguments, **options, **joined)

        return run

    return decorate


def video_options(text: str) -> Decorator:
    """--video and --env. The command gets the id of the environment to film, or None."""
    name = "Environment for --video: a Gymnasium id or a short name."
    return options(
        option("--video", is_flag=True, help=f"{text} Needs --env."),
        option("--env", "environment", help=name),
        join_options(_join_video),
    )


def _join_video(video: bool, environment: str | None) -> dict[str, Any]:
    if video != (environment is not None):
        raise click.UsageError("--video and --env go together: name the environment of the video")
    if environment is not None:
        from grd_offline.worlds.environments import resolve_environment_id

        environment = resolve_environment_id(environment)
    return {"video": environment}


def _join_columns(embed: tuple[str, ...], columns: str | None) -> dict[str, Any]:
    """The command gets the embedded columns among its columns."""
    if embed:
        from grd_offline.io.tables.columns import quote_name, split_names

        names = [name for part in embed for name in split_names(part)]
        embedded = f"embed={'+'.join(map(quote_name, names))}"
        columns = ",".join(filter(None, [columns, embedded]))
    return {"columns": columns}


table_options = options(
    option(
        "--columns",
        metavar="ROLE=NAME,...",
        help="For tables: the role of each column, for example episode=trip,return=fuel or "
        "observations=speed+load. Roles are episode, step, observations, actions, reward (one "
        "number per step), return (one number per episode), terminated, truncated, truth, "
        "categories and ignored. decimal=comma or decimal=point is about the numbers of a CSV "
        "file. You can leave out columns whose names say their role. In a name, "
        '* stands for any letters. A name with a comma or a plus is put in quotes: "load, kg".',
    ),
    option(
        "--embed",
        metavar="NAME,...",
        multiple=True,
        help="For tables: columns that hold an embedding, which is a list of numbers in each row. "
        "Each number becomes an input: NAME[0], NAME[1] and so on.",
    ),
    option(
        "--returns",
        metavar="FILE",
        help="For tables: a .csv or .parquet file with the outcome of each episode. With it, "
        "return=NAME in --columns names a column of this file.",
    ),
    join_options(_join_columns),
)
max_size_option = option(
    "--max-size",
    "max_bytes",
    type=parse_size,
    metavar="SIZE",
    help="Allow the file to unpack to this size, for example 8GB. By default, a file that claims "
    "far more than it stores is refused.",
)
reading_options = options(
    max_size_option,
    option(
        "--max-episode-steps",
        type=click.IntRange(min=1),
        help="Truncate episodes after this number of steps. This is for flat files without "
        "timeouts.",
    ),
    table_options,
)
"""Options of commands that read a dataset."""
device_option = option(
    "--device",
    type=click.Choice(("auto", "cpu", "cuda")),
    default="auto",
    help="Device that trains the networks. auto uses CUDA if it is available.",
)
