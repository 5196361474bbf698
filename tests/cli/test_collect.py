"""`grd-offline collect` as people run it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import numpy as np
import pytest
from forked import Done
from places import ROOT

from grd_offline import open_recording, read

COMMAND = str(Path(sys.executable).with_name("grd-offline"))
RECIPES = ROOT / "datasets" / "recipes"


def run(folder: Path, *arguments: str) -> Done:
    return forked.run("collect", *arguments, cwd=folder)


def check_refused(result: Done, *words: str) -> None:
    """One line on stderr that holds these words, nothing on stdout, exit code 2."""
    assert result.returncode == 2, result
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("grd-offline: error: ")
    for word in words:
        assert word in lines[0]


def test_collect_writes_a_dataset_and_says_so(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        "--env",
        "Factored",
        "--env-arg",
        "length=9",
        "--env-arg",
        "family=hard",
        "--episodes",
        "5",
        "--delay",
        "4",
        "--seed",
        "2",
        "--out",
        "a.h5",
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert re.fullmatch(
        r"wrote a\.h5: 5 episodes, 45 steps, return \S+ ± \S+, \d+\.\d kB, [\d,]+ steps/s\n",
        result.stdout,
    )
    episodes = read(tmp_path / "a.h5")
    assert episodes.lengths.tolist() == [9] * 5
    assert np.flatnonzero(episodes[0].delivered).tolist() == [3, 7, 8]
    with open_recording(tmp_path / "a.h5") as recording:
        assert recording.header.settings["env_args"] == {"length": 9, "family": "hard"}
        assert recording.header.settings["seed"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


def test_help_shows_examples_and_the_defaults_of_the_settings() -> None:
    from grd_offline.learning.settings import CollectSettings

    result = run(Path(), "--help")
    text = " ".join(result.stdout.split())
    assert "Examples:\n" in result.stdout
    settings = CollectSettings("any")
    for name in ("episodes", "policy", "seed", "workers", "delay", "discount"):
        assert re.search(
            rf"--{name} [^\[]*(\[[^\]]*\] )?.*?\[default: {getattr(settings, name)}", text
        )


def test_recipe_and_options_over_it(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        'env = "Factored"\nepisodes = 3\nseed = 5\nkeep-true-rewards = true\nout = "a.h5"\n'
        "[env-arg]\nlength = 6\nstates = 7\n"
    )
    result = run(tmp_path, "--recipe", "r.toml", "--episodes", "2", "--env-arg", "length=8")
    assert result.returncode == 0, result.stderr
    with open_recording(tmp_path / "a.h5") as recording:
        settings = recording.header.settings
        assert (settings["episodes"], settings["seed"]) == (2, 5)
        assert settings["env_args"] == {"length": 8, "states": 7}
        assert "true_rewards" in recording.load(0).extras


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("episods = 3", ("r.toml", "episods", "did you mean episodes?")),
        ("episodes = 3.5", ("r.toml", "episodes", "3.5")),
        ('episodes = "many"', ("r.toml", "episodes", "many")),
        ("keep-true-rewards = 3", ("r.toml", "keep-true-rewards")),
        ("delay = []", ("r.toml", "delay")),
        ("env-arg = [3]", ("r.toml", "env-arg", "KEY=VALUE")),
        ("episodes = = 3", ("r.toml", "cannot be read")),
    ],
)
def test_wrong_recipes(tmp_path: Path, line: str, words: tuple[str, ...]) -> None:
    (tmp_path / "r.toml").write_text(f'{line}\nenv = "Factored"\nout = "a.h5"\n')
    check_refused(run(tmp_path, "--recipe", "r.toml"), *words)
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "HalfCheeta", "--out", "a.h5"], ("HalfCheeta", "HalfCheetah-v5?")),
        (["--env", "Hopper", "--env-arg", "wheels=4", "--out", "a.h5"], ("Hopper-v5", "wheels")),
        (["--env", "Hopper", "--env-arg", "wheels", "--out", "a.h5"], ("KEY=VALUE", "wheels")),
        (["--env", "Hopper", "--delay", "soon", "--out", "a.h5"], ("--delay", "soon")),
        (["--env", "Hopper", "--discount", "2", "--out", "a.h5"], ("discount", "2.0")),
        (["--env", "Hopper"], ("--out",)),
        (["--out", "a.h5"], ("--env",)),
        (["--env", "Hopper", "--out", "no/a.h5"], ("no/a.h5", "does not exist")),
        (["--env", "Hopper", "--out", "/proc/a.h5"], ("/proc/a.h5", "cannot be written")),
        (["--env", "Hopper", "--out", "."], ("folder",)),
        (["--recipe", "no.toml"], ("no.toml",)),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, arguments: list[str], words: tuple[str, ...]
) -> None:
    check_refused(run(tmp_path, *arguments), *words)
    assert not list(tmp_path.iterdir())


def start_endless_run(folder: Path, workers: int) -> tuple[subprocess.Popen[str], int, str]:
    """A run with its progress bar on a terminal of its own, after some episodes."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "collect", "--env", "Factored", "--episodes", "99999", "--out", "a.h5",
         "--workers", str(workers)],
        cwd=folder, stdout=subprocess.PIPE, stderr=theirs, text=True, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(theirs)
    shown = ""
    deadline = time.monotonic() + 240
    while not re.search(r"[1-9][\d,]*\D{1,4}99,?999", shown) and time.monotonic() < deadline:
        shown += os.read(ours, 4096).decode(errors="replace")
    return process, ours, shown


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 2)]
)
def test_stopping_keeps_finished_episodes(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    (tmp_path / "a.h5").write_text("what was there before")
    process, terminal, shown = start_endless_run(tmp_path, workers)
    assert "collecting grd/Factored-v0" in shown
    assert "steps/s" in shown
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=240)
    said = os.read(terminal, 100_000).decode(errors="replace")
    os.close(terminal)
    assert "saving the finished episodes; press Ctrl-C again to quit" in said
    assert process.returncode == 128 + number
    match = re.fullmatch(
        r"stopped: a\.partial\.h5 holds ([\d,]+) of 99,999 episodes; a\.h5 was not written\n",
        output,
    )
    assert match, output
    assert len(read(tmp_path / "a.partial.h5")) == int(match[1].replace(",", "")) > 0
    assert (tmp_path / "a.h5").read_text() == "what was there before"
    assert {path.name for path in tmp_path.iterdir()} == {"a.h5", "a.partial.h5"}


def test_second_interrupt_keeps_nothing(tmp_path: Path) -> None:
    """The second one comes while the first is still being obeyed."""
    script = (
        "import os, signal, sys\n"
        "import grd_offline.io.datasets\n"
        "from grd_offline.cli import main\n"
        "write = grd_offline.io.datasets.write_dataset\n"
        "def interrupted(path, header, records):\n"
        "    def stream():\n"
        "        for i, record in enumerate(records):\n"
        "            yield record\n"
        "            if i == 3:\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "    write(path, header, stream())\n"
        "grd_offline.io.datasets.write_dataset = interrupted\n"
        "main(['collect', '--env', 'Factored', '--workers', '1', '--out', 'a.h5'])\n"
    )
    result = forked.run_script(script, cwd=tmp_path)
    assert result.returncode == 130, result.stderr
    assert result.stdout == "stopped: nothing was written\n"
    assert result.stderr in ("", "saving the finished episodes; press Ctrl-C again to quit\n")
    assert not list(tmp_path.iterdir())


def test_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from grd_offline.cli import display
    from grd_offline.core import words

    monkeypatch.setattr(display, "LINE_SECONDS", 0.0)
    with display.show_progress("reading", 4) as advance:
        advance(50)
        advance(50)
    _, line = capsys.readouterr().err.splitlines(keepends=True)
    assert re.fullmatch(r"reading: 2 of 4 episodes, [\d,]+ steps/s, about 1 s left\n", line)
    assert words.format_seconds(59.7) == "1 min"
    assert words.format_seconds(7500) == "2 h 5 min"
    assert words.format_bytes(999) == "999 B"
    assert words.format_bytes(1_234_567) == "1.2 MB"


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.glob("*.toml")))
def test_recipes_can_be_read(recipe: str) -> None:
    import click

    from grd_offline.cli.data import REAL, collect, read_recipe
    from grd_offline.worlds.environments import resolve_environment_id

    context = click.Context(collect)
    read_recipe(context, collect.params[0], RECIPES / recipe)
    assert context.default_map is not None
    name = context.default_map["out"].name
    assert name == recipe.replace(".toml", ".h5")
    if REAL in context.meta:
        assert context.meta[REAL] == recipe.removesuffix(".toml")
        return
    assert (
        resolve_environment_id(context.default_map["environment"])
        == context.default_map["environment"]
    )


def test_sample_recipe_makes_a_small_file(tmp_path: Path) -> None:
    result = run(tmp_path, "--recipe", str(RECIPES / "sample.toml"), "--out", "sample.h5")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "sample.h5").stat().st_size < 300_000
    assert len(set(read(tmp_path / "sample.h5").lengths.tolist())) > 5
