"""All commands, and what becomes of their errors."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.packages import describe_missing

from .data import collect, convert, inspect
from .decompose import decompose, evaluate, export, relabel
from .doctor import doctor
from .options import CommandGroup
from .results import compare, plot, report, sweep
from .terminal import echo
from .train import judge, train_offline, train_online


@click.group(
    cls=CommandGroup,
    commands=[
        *(collect, compare, convert, decompose, doctor, evaluate, export, inspect, judge, plot),
        *(relabel, report, sweep, train_offline, train_online),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False,
    callback=lambda context, parameter, value: _show_version(context) if value else None,
    help="Show the versions of grd-offline and of the packages that its results depend on.",
)  # fmt: skip
def cli() -> None:
    """Find out which steps of an episode deserve the credit for its return.

    \b
    Examples:
      grd-offline collect --env HalfCheetah --episodes 500 --out hc.h5
      grd-offline inspect hc.h5
      grd-offline decompose hc.h5
      grd-offline convert hc.h5 hc-minari --to minari
      grd-offline export hc-grd --to onnx
      grd-offline judge hc.h5 --env HalfCheetah
      grd-offline train-online --env Walker2d
      grd-offline plot runs/Walker2d-grd
      grd-offline report runs/Walker2d-grd
      grd-offline compare runs/Walker2d-grd runs/Hopper-grd
      grd-offline sweep experiments/main.toml
    """


def _show_version(context: click.Context) -> None:
    from grd_offline.core.packages import find_versions

    found = find_versions()
    echo(f"grd-offline, version {found.pop('grd-offline', 'unknown')}")
    echo(", ".join(f"{name} {version}" for name, version in found.items()))
    context.exit()


def run(arguments: Sequence[str] | None) -> int:
    """Run a command and give its exit code; every error is one line."""
    _prepare_streams()
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BrokenPipeError:
        _discard_output()
        return _CLOSED_PIPE
    except OSError:
        _discard_output()
        return code or _fail("the output cannot be written")
    return code


_CLOSED_PIPE = 128 + 13
"""The exit code that shells show for a program that was ended by a closed pipe (SIGPIPE)."""


def _prepare_streams() -> None:
    """Streams that are closed swallow what is printed; those of another encoding show a question
    mark for what they cannot show."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened would be taken for the stream
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run(arguments: Sequence[str]) -> int:
    try:
        os.getcwd()
        code = cli.main(arguments, prog_name="grd-offline", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "grd-offline"
        return _fail(f"{error.format_message()} (see '{where} --help')")
    except click.ClickException as error:
        return _fail(error.format_message())
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", code=130)
    except SystemExit as end:
        if end.code == 1:  # with which click leaves where a pipe was closed
            raise BrokenPipeError from None
        raise
    except Exception as error:
        return _report(error, next((part for part in arguments if part in cli.commands), ""))


def _report(error: Exception, command: str) -> int:
    if os.environ.get("GRD_OFFLINE_DEBUG"):
        raise error
    if isinstance(error, DataError | StorageError):
        return _fail(str(error))
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, MemoryError) or "alloc" in reason or "out of memory" in reason:
        return _fail("out of memory")
    if isinstance(error, OSError):
        return _fail(_describe_system_error(error))
    if isinstance(error, ImportError) and (line := describe_missing(command, error)):
        return _fail(line)
    if isinstance(error, ImportError) or type(error).__name__ == "DependencyNotInstalled":
        return _fail(f"a package is missing, or does not fit: {reason}")
    return _fail(f"{reason} (a bug: set GRD_OFFLINE_DEBUG=1 to see where)", code=1)


def _describe_system_error(error: OSError) -> str:
    """Describe an error of the operating system in words."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    try:
        os.getcwd()
    except OSError:
        return "the working folder is gone: change to another one"
    return f"the output cannot be written: {reason}" if error.errno == errno.ENOSPC else reason


def _discard_output() -> None:
    """Python must not complain at exit of what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(reason: str, code: int = 2) -> int:
    line = " ".join(reason.split())
    with suppress(OSError):
        echo(f"grd-offline: error: {line}", err=True)
    return code
