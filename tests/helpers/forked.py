"""Commands that start at once: each runs in a fork of one process that imported the program.

A command of its own spends seconds on imports. Where none of the tests is about how a process
starts, a fork gives the same exit code, output, time and memory.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from small_networks import small_networks

LIBRARIES = (
    *("gymnasium.envs.mujoco.mujoco_env", "matplotlib.backends.backend_agg", "matplotlib.figure"),
    *("rich.live", "rich.progress", "rich.table", "safetensors.numpy", "sklearn.exceptions"),
    "torch.utils.tensorboard",
)
"""What commands import when they need it."""


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    """Exit code, or minus the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float
    """CPU time."""
    megabytes: float
    """Peak memory, with that of the imports."""


def run(
    *arguments: object,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    small: bool = False,
    light: bool = False,
) -> Done:
    """Run `grd-offline ARGUMENTS`.

    A small one trains small networks. A light one has imported what reads files, and no more.
    """
    order = {"arguments": [str(part) for part in arguments], "small": small}
    return _ask(order, cwd, environment, light)


def run_script(
    script: str,
    *arguments: object,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
) -> Done:
    """Run a script in a fork like a command."""
    given = [str(part) for part in arguments]
    return _ask({"script": script, "arguments": given}, cwd, environment, light=False)


def write_command(folder: Path) -> None:
    """Put a `grd-offline` that trains small networks into a folder for the path of shells."""
    text = f"#!{sys.executable} -IS\nimport sys\nsys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
    text += f"import forked\nsys.exit(forked.stand_in({_start(False)!r}))\n"
    folder.mkdir()
    (folder / "grd-offline").write_text(text)
    (folder / "grd-offline").chmod(0o755)


def stand_in(address: str) -> int:
    """Have a fork do what this process was started for, on its own streams."""
    order = {"arguments": sys.argv[1:], "small": True}
    order |= {"cwd": os.getcwd(), "environment": dict(os.environ)}
    return int(_send(address, order, (0, 1, 2))[0])


def _ask(
    order: dict[str, Any], cwd: Path | None, environment: dict[str, str] | None, light: bool
) -> Done:
    order |= {"cwd": str(cwd or os.getcwd()), "environment": {**os.environ, **(environment or {})}}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with open(os.devnull) as nothing:
            streams = (nothing.fileno(), out.fileno(), err.fileno())
            code, seconds, megabytes = _send(_start(light), order, streams)
        for file in (out, err):
            file.seek(0)
        return Done(code, out.read(), err.read(), seconds, megabytes)


def _send(address: str, order: dict[str, Any], streams: tuple[int, ...]) -> list[Any]:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        socket.send_fds(line, [b"x"], list(streams))
        line.sendall(json.dumps(order).encode())
        line.shutdown(socket.SHUT_WR)
        return json.loads(_receive(line))


def _receive(line: socket.socket) -> bytes:
    return b"".join(iter(lambda: line.recv(2**16), b""))


@functools.cache
def _start(light: bool) -> str:
    """Start the process whose forks are the commands; gives its address."""
    folder = tempfile.mkdtemp()
    address = f"{folder}/socket"
    kind = "light" if light else "whole"
    server = subprocess.Popen([sys.executable, __file__, kind, address])
    atexit.register(_end, server, address)
    deadline = time.monotonic() + 480
    while not os.path.exists(address) and time.monotonic() < deadline:
        assert server.poll() is None
        time.sleep(0.02)
    return address


def _end(server: subprocess.Popen[bytes], address: str) -> None:
    server.kill()
    with suppress(OSError):
        os.unlink(address)
        os.rmdir(os.path.dirname(address))


def _serve(kind: str, address: str) -> None:
    parent = os.getppid()
    _load(kind)
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(f"{address}.new")
        line.listen()
        os.rename(f"{address}.new", address)
        line.settimeout(2.0)
        while os.getppid() == parent:  # else the tests were killed
            try:
                asked, _ = line.accept()
            except TimeoutError:
                continue
            with asked:
                asked.sendall(json.dumps(_answer(asked, line)).encode())


def _load(kind: str) -> None:
    import rich.table  # noqa: F401

    import grd_offline.cli.program
    import grd_offline.io.formats.summary

    if kind == "whole":
        for found in pkgutil.walk_packages(grd_offline.__path__, "grd_offline."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
        for name in LIBRARIES:
            importlib.import_module(name)


def _answer(asked: socket.socket, line: socket.socket) -> tuple[int, float, float]:
    _, streams, _, _ = socket.recv_fds(asked, 1, 3)
    order = json.loads(_receive(asked))
    child = os.fork()
    if child == 0:
        asked.close()
        line.close()
        _become_command(order, streams)
    for stream in streams:
        os.close(stream)
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss / 1024


def _become_command(order: dict[str, Any], streams: list[int]) -> None:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["cwd"])
        # As `python -m grd_offline.cli` has it; worker processes must not import this file.
        sys.modules["__main__"] = ModuleType("__main__")
        sys.path[:1] = [order["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        sys.argv = ["grd-offline", *order["arguments"]]
        with _exit_code() as ended, small_networks() if order.get("small") else nullcontext():
            if "script" in order:
                exec(order["script"], {"__name__": "__main__"})
            else:
                from grd_offline.cli import main

                main()
        code = ended[0]
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def _exit_code() -> Iterator[list[int]]:
    ended = [0]
    try:
        yield ended
    except SystemExit as error:
        ended[0] = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        ended[0] = 1


if __name__ == "__main__":
    _serve(*sys.argv[1:])
