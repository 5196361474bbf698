"""Options that several commands share, and options that are made from settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import click

from grd_offline.core.settings import describe_settings

from .text import echo

if TYPE_CHECKING:
    Parameter = click.ParamType[Any]
else:  # not generic before click 8.5
    Parameter = click.ParamType

_LONG = 36
"""Length of a list of names from which on the help text lists them instead."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class Size(Parameter):
    """A number of bytes: 500MB, 4GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)i?b?", str(value).lower())
        if match is None:
            self.fail(f"{value!r} is not a size such as 500MB or 4GB", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


class OutPath(click.Path):
    """A file or a folder to write. An empty name is refused: it would be the working folder."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=dir_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class NamesType(Parameter):
    """Names of a fixed set, separated by commas."""

    name = "names"

    def __init__(self, known: tuple[str, ...] | Callable[[], tuple[str, ...]]) -> None:
        self._known = known

    @property
    def known(self) -> tuple[str, ...]:
        """The names, which may take a moment to find."""
        return self._known() if callable(self._known) else self._known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = value if isinstance(value, tuple) else tuple(str(value).split(","))
        for name in names:
            if name not in self.known:
                self.fail(f"expected {', '.join(self.known)}, or several with commas, got {name!r}")
        return names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        listed = f"[{'|'.join(self.known)}]"
        return f"{listed if len(listed) < _LONG else 'NAME'}[,...]"


class NameType(click.Choice):  # type: ignore[type-arg]
    """One name of a fixed set."""

    def __init__(self, known: tuple[str, ...]) -> None:
        super().__init__(known)
        self.known = known

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        listed = super().get_metavar(param, ctx)
        return listed if listed is None or len(listed) < _LONG else "NAME"


max_size_option = click.option(
    "--max-size",
    "max_bytes",
    type=Size(),
    metavar="SIZE",
    help="Allow the file to unpack to this size, for example 8GB. By default, a file that claims "
    "far more than it stores is refused.",
)


def out_option(text: str) -> Callable[..., Any]:
    """Make the option --out for commands that write a file or a folder."""
    return click.option("--out", type=OutPath(), help=text)


def file_option(text: str) -> Callable[..., Any]:
    """Make the options -o and --out for commands that write one file."""
    kind = OutPath(dir_okay=False)
    return click.option("-o", "--out", metavar="FILE", type=kind, help=text)


def workers_option(text: str, default: str = "the number of cores") -> Callable[..., Any]:
    """Make the option --workers for commands that train."""
    return click.option("--workers", type=int, help=f"{text}  [default: {default}]")


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for commands that read a dataset: of flat files, of tables, and --max-size."""
    command = click.option(
        "--max-episode-steps",
        cls=SettingOption,
        type=click.IntRange(min=1),
        metavar="INTEGER",
        bounds="at least 1",
        help="Truncate episodes after this number of steps. This is for flat files without "
        "timeouts.",
    )(table_options(command))
    return max_size_option(command)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --columns, --embed and --returns. The command gets the embedded columns among
    its columns."""

    @wraps(command)
    def join(*arguments: Any, embed: tuple[str, ...], columns: str | None, **options: Any) -> Any:
        if embed:
            from grd_offline.io.tables.columns import quote_name, split_names

            names = [name for part in embed for name in split_names(part)]
            embedded = f"embed={'+'.join(map(quote_name, names))}"
            columns = ",".join(filter(None, [columns, embedded]))
        return command(*arguments, columns=columns, **options)

    joined = click.option(
        "--returns",
        metavar="FILE",
        help="For tables: a .csv or .parquet file with the outcome of each episode. With it, "
        "return=NAME in --columns names a column of this file.",
    )(join)
    joined = click.option(
        "--embed",
        metavar="NAME,...",
        multiple=True,
        help="For tables: columns that hold an embedding, which is a list of numbers in each row. "
        "Each number becomes an input: NAME[0], NAME[1] and so on.",
    )(joined)
    return click.option(
        "--columns",
        metavar="ROLE=NAME,...",
        help="For tables: the role of each column, for example episode=trip,return=fuel or "
        "observations=speed+load. Roles are episode, step, observations, actions, reward (one "
        "number per step), return (one number per episode), terminated, truncated, truth, "
        "categories and ignored. decimal=comma or decimal=point is about the numbers of a CSV "
        "file. You can leave out columns whose names say their role. In a name, "
        '* stands for any letters. A name with a comma or a plus is put in quotes: "load, kg".',
    )(joined)


class NamesOption(click.Option):
    """An option that lists the names that it takes in the help text, if they are many."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not isinstance(self.type, NamesType | NameType):
            return record
        if self.make_metavar(ctx).startswith("NAME"):
            names = ", ".join(self.type.known)
            text, bracket, rest = record[1].partition("  [")
            return record[0], f"{text} Names: {names}.{bracket}{rest}"
        return record


class SettingOption(NamesOption):
    """An option that shows the bounds of its setting in the help text."""

    def __init__(self, *arguments: Any, bounds: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.bounds = bounds

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if self.bounds:
            extra["range"] = self.bounds
        return extra


def setting_option(settings: type[Any], name: str, **changes: Any) -> Callable[..., Any]:
    """The option of one field of the settings: its type, default, description and bounds.

    `changes` are arguments of `click.option` that differ from those.
    """
    described = describe_settings(settings)[name]
    facts, kind = described.setting, described.kind
    options: dict[str, Any] = {
        "cls": SettingOption,
        "help": facts.text,
        "bounds": facts.describe_range(),
        "show_default": True,
        "type": kind,
    }
    if described.default not in (MISSING, None):
        options["default"] = described.default
    if kind is bool:
        options |= {"is_flag": True}
    elif kind == tuple[str, ...]:
        options |= {"type": NamesType(facts.names)}
    elif facts.names:
        options |= {"type": NameType(facts.names)}
    elif get_origin(kind) is Mapping:
        options |= {"type": parse_argument, "multiple": True, "default": (), "metavar": "KEY=VALUE"}
        options |= {"callback": lambda context, parameter, value: dict(value)}
    flag = facts.option or f"--{name.replace('_', '-')}"
    return click.option(flag, name, **(options | changes))


def setting_options(settings: type[Any], *names: str) -> Callable[..., Any]:
    """Options for several fields of the settings, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = setting_option(settings, name)(command)
        return command

    return decorate


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


device_option = click.option(
    "--device",
    type=click.Choice(("auto", "cpu", "cuda")),
    default="auto",
    show_default=True,
    help="Device that trains the networks. auto uses CUDA if it is available.",
)


def print_warning(text: str) -> None:
    from grd_offline.core.errors import printable

    echo(f"warning: {printable(text)}", err=True)
