"""Completion in the shell, as docs/install.md says to switch it on."""

import os
import shutil
import subprocess
import sys

import pytest
from places import ROOT

from grd_offline.cli.program import cli

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "install.md").read_text()
PRESS = """
{line}
COMP_WORDS=({words})
COMP_CWORD={place}
_grd_offline_completion grd-offline
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(folder, *words):
    """What bash offers for the last word, after the line of the page has run in it."""
    line = 'eval "$(_GRD_OFFLINE_COMPLETE=bash_source grd-offline)"'
    assert f"`{line}`" in PAGE
    command = folder / "grd-offline"
    if not command.exists():
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m grd_offline.cli "$@"\n')
        command.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ("grd-offline", *words))
    done = subprocess.run(
        ["bash", "-c", PRESS.format(line=line, words=quoted, place=len(words))],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_choices(tmp_path):
    names = set(cli.commands)
    assert set(complete(tmp_path, "")) == names
    assert complete(tmp_path, "train-on") == ["train-online"]
    assert complete(tmp_path, "decompose", "--exact") == ["--exact-returns"]
    assert complete(tmp_path, "sweep", "x.toml", "--runner", "r") == ["ray"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_script(shell):
    assert f"_GRD_OFFLINE_COMPLETE={shell}_source grd-offline" in PAGE
    done = subprocess.run(
        [sys.executable, "-m", "grd_offline.cli"],
        capture_output=True,
        text=True,
        env={**os.environ, "_GRD_OFFLINE_COMPLETE": f"{shell}_source"},
    )
    assert done.returncode == 0
    assert "grd-offline" in done.stdout
