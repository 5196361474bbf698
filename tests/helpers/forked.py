"""Commands that start at once: each runs in a fork of one process that imported the program.

A command of its own spends half a second on imports. Where hundreds are run, and none of them tests
how a process starts, a fork gives the same exit code, output, time and memory.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    """How a command ended."""

    code: int
    """Exit code, or minus the signal that ended it."""
    out: str
    err: str
    seconds: float
    """CPU time."""
    megabytes: float
    """Peak memory, with that of the imports."""


def run(*arguments: object, cwd: Path) -> Done:
    """Run `grd-offline ARGUMENTS` in the folder `cwd`."""
    server = _start()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/out", f"{folder}/err"]
        order = {"arguments": [str(part) for part in arguments], "cwd": str(cwd), "files": files}
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code, seconds, megabytes = json.loads(server.stdout.readline())
        out, err = (Path(file).read_text() for file in files)
    return Done(code, out, err, seconds, megabytes)


@functools.cache
def _start() -> subprocess.Popen[str]:
    command = [sys.executable, __file__]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    return server


def _serve() -> None:
    import rich.table  # noqa: F401

    import grd_offline.cli.program
    import grd_offline.formats.summary  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become_command(order)
        _, status, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        seconds = usage.ru_utime + usage.ru_stime
        print(json.dumps([code, seconds, usage.ru_maxrss / 1024]), flush=True)


def _become_command(order: dict) -> None:
    code = 1
    try:
        for number, file in enumerate(order["files"], 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(order["cwd"])
        sys.argv = ["grd-offline", *order["arguments"]]
        from grd_offline.cli.program import run as run_program

        code = run_program(None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
