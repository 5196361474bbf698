"""What a person sees of a run while it trains, and at its end."""

import io
import math
from pathlib import Path
from types import SimpleNamespace

import forked
import numpy as np
import pytest
from rich.console import Console

from grd_offline.cli import display
from grd_offline.cli.display import (
    Point,
    RunDisplay,
    draw_curve,
    draw_panel,
    format_point,
    print_closing,
    summarise,
)
from grd_offline.io.files.results import EVALUATION_COLUMNS
from grd_offline.learning.runs.run import Evaluation, MemberMeasures


class FakeRun:
    """Two groups of two seeds: one has masks, the other knows nothing of rewards."""

    title, unit, states, total, warmup = "Some-v0", "step", 4, 5000, 1000

    def __init__(self):
        names = [("grd-paper-lambda_state_reward=3e-06", seed) for seed in (0, 1)]
        names += [("oracle", seed) for seed in (0, 1)]
        self.members = [SimpleNamespace(group=g, seed=s, name=f"{g}-seed{s}") for g, s in names]
        self.observers = []
        self.step = 0
        self.looks = 0
        self.learner = SimpleNamespace(updates=0)

    @property
    def phase(self):
        return "" if self.learner.updates else "warm-up with random actions until step 1,000"

    def measure(self):
        self.looks += 1
        nan = np.nan
        return MemberMeasures(
            np.array([0.9, 0.7, nan, nan]),
            np.array([0.25, 0.25, nan, nan]),
            np.array([2.0, 1.0, 4.0, 4.0]),
            np.array([0, 2, 0, 0]),
        )


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(display, "time", clock)
    return clock


@pytest.fixture
def files(tmp_path):
    (tmp_path / "evaluations.csv").write_text(",".join(EVALUATION_COLUMNS) + "\n")
    return SimpleNamespace(path=tmp_path, seconds=75.0, best={})


def evaluate(run, observer, returns):
    """One evaluation, of two episodes each, with these means."""
    both = np.array(returns)[:, None] + np.array([-1.0, 1.0])
    nothing = np.zeros(0, np.float32)
    observer.on_start(Evaluation(run.step, nothing))
    observer.on_result(run, Evaluation(run.step, nothing, both, np.ones(both.shape, int)))


def advance(run, clock, *observers, seconds):
    """A round that takes so long."""
    clock.now += seconds
    run.step += 100
    if run.step >= run.warmup:
        run.learner.updates += 100
    for observer in observers:
        observer.on_progress(run.phase, run.step / run.total)


def show(panel, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(panel)
    return console.file.getvalue()


def test_a_group_is_summarised_over_its_seeds(clock, files):
    run = FakeRun()
    seen = RunDisplay(run, files)
    run.step = 1000
    evaluate(run, seen, [10.0, 14.0, 5.0, 5.0])
    evaluate(run, seen, [2.0, 2.0, 6.0, 8.0])
    first, oracle = seen.groups
    assert first.curve == [Point(1000, 12.0, 2.0), Point(1000, 2.0, 0.0)]
    assert first.best == Point(1000, 12.0, 2.0)
    assert oracle.last == Point(1000, 7.0, 1.0)
    assert first.correlation == pytest.approx(0.8)
    assert (first.edges, first.compact, first.skipped) == (0.25, 1.5, 2)
    assert math.isnan(oracle.correlation)
    assert math.isnan(oracle.edges)


def test_time_left_does_not_count_the_warm_up(clock, files):
    run = FakeRun()
    seen = RunDisplay(run, files)
    assert seen.total == 5000
    for _ in range(9):
        advance(run, clock, seen, seconds=0.1)
    assert seen.run.phase
    assert seen.seconds_left is None
    advance(run, clock, seen, seconds=500.0)
    assert seen.seconds_left is None  # the first updates took long: kernels were compiled
    for _ in range(2):
        advance(run, clock, seen, seconds=10.0)
    assert seen.rates == pytest.approx((10.0, 10.0))
    assert seen.seconds_left == pytest.approx(380.0)
    clock.now += 30.0
    assert seen.seconds_left == pytest.approx(350.0)


def test_members_are_looked_at_now_and_then(clock, files):
    run = FakeRun()
    run.step, run.learner.updates = 2000, 1000
    seen = RunDisplay(run, files)
    for _ in range(100):
        advance(run, clock, seen, seconds=0.1)
    assert run.looks <= 6
    seen.on_start(Evaluation(run.step, np.zeros(0, np.float32)))
    looks = run.looks
    for _ in range(100):
        advance(run, clock, seen, seconds=0.1)
    assert run.looks == looks  # what was seen belongs to the evaluation until that is told


def test_a_resumed_run_shows_what_came_before(files):
    row = dict.fromkeys(EVALUATION_COLUMNS, "")
    lines = [
        row | {"step": "1000", "group": "oracle", "seed": str(seed), "mean_return": value}
        for seed, value in ((0, "3.0"), (1, "5.0"))
    ]
    with (files.path / "evaluations.csv").open("a") as file:
        file.writelines(",".join(line.values()) + "\n" for line in lines)
    assert RunDisplay(FakeRun(), files).groups[1].curve == [Point(1000, 4.0, 1.0)]


def test_lines(clock, files, capsys):
    run = FakeRun()
    seen = RunDisplay(run, files)
    for _ in range(9):
        advance(run, clock, seen, seconds=1.0)
    for _ in range(3):
        advance(run, clock, seen, seconds=12.0)
    evaluate(run, seen, [10.0, 14.0, 5.0, 5.0])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "Some-v0: 4 members, 5,000 steps each, warm-up with random actions until step 1,000; "
        f"writing to {files.path}",
        "step 1,100 of 5,000, 8 steps/s, 8 updates/s, 7 min 48 s left",
        "step 1,200  grd-paper-lambda_state_reward=3e-06 (2 seeds): return 12.00 ± 2.00, "
        "best 12.00, correlation 0.80, edges 25 %, compact state 1.5 of 4, 2 updates skipped",
        "step 1,200  oracle (2 seeds): return 5.00 ± 0.00, best 5.00",
    ]


def test_panel_says_that_it_is_warming_up(clock, files):
    run = FakeRun()
    text = show(draw_panel(RunDisplay(run, files), 100, 40), 100)
    assert "warm-up with random actions until step 1,000" in text
    assert "1 min 15 s so far" in text
    assert "left" not in text


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_panel_fits_the_terminal(clock, files, width):
    run = FakeRun()
    run.step = 900
    seen = RunDisplay(run, files)
    for _ in range(3):
        advance(run, clock, seen, seconds=10.0)
        evaluate(run, seen, [run.step * 1.5, run.step * 1.6, 5.0, 5.0])
    text = show(draw_panel(seen, width, 30), width)
    assert max(map(len, text.splitlines())) <= width
    assert "grd-paper" in text
    if width >= 80:
        for part in ("1,860 ± 60", "0.80", "1.5/4", "▁▅█", "6 min 20 s left", "10 updates/s"):
            assert part in text


def test_panel_of_many_groups_says_how_many_are_not_shown(clock, files):
    seen = RunDisplay(FakeRun(), files)
    seen.groups = seen.groups * 20
    text = show(draw_panel(seen, 100, 20), 100)
    assert "and 30 more" in text
    assert len(text.splitlines()) <= 20


def test_closing_table(clock, files, capsys):
    run = FakeRun()
    seen = RunDisplay(run, files)
    print_closing(seen)
    assert capsys.readouterr().out == ""
    for step, scale in ((1000, 2.0), (2000, 1.0)):
        run.step = step
        evaluate(run, seen, [10.0 * scale, 14.0 * scale, 5.0, 5.0])
    files.best = {"oracle-seed0": 5.0, "oracle-seed1": 6.0}
    print_closing(seen)
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("oracle"))
    assert row.split() == ["oracle", "2", "5.00", "±", "0.00", "5.00", "±", "0.00", "1,000", "-"]
    assert "12.00 ± 2.00" in out
    assert "24.00 ± 4.00" in out
    assert f"best policy of oracle: {files.path}/members/oracle-seed1/policies/best\n" in out
    assert "best policy of grd" not in out


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([], 8, "-"),
        ([3.0], 8, "▁"),
        ([1.0, 1.0], 8, "▁▁"),
        ([0.0, 7.0, 3.0], 8, "▁█▄"),
        ([0.0, 0.0, 1.0, 1.0, 2.0, 2.0], 3, "▁▅█"),
    ],
)
def test_curve(values, width, drawn):
    assert draw_curve(values, width) == drawn


def test_numbers():
    assert summarise(5, [1.0, 3.0]) == Point(5, 2.0, 1.0)
    assert format_point(None, 2) == "-"
    assert format_point(Point(0, 12345.6, 78.9), 2) == "12,346 ± 79"
    assert format_point(Point(0, -123.45, 6.0), 1) == "-123.5"
    assert format_point(Point(0, 0.0, 0.0), 1) == "0.00"
    assert format_point(Point(0, -2.5e-6, 1.2e-7), 2) == "-2.5e-06 ± 1.2e-07"
    assert format_point(Point(0, 0.001, 2.0), 2) == "0.00 ± 2.00"
    assert display.format_correlation(-0.001) == "0.00"


def test_a_run_without_a_terminal(tmp_path):
    """Lines on stderr, the table on stdout."""
    arguments = "train-online --env grd/Factored-v0 --method grd,none --steps 300 --warmup 200"
    arguments += " --eval-every 100 --eval-episodes 1 --workers 0 --device cpu --out run"
    done = forked.run(*arguments.split(), cwd=tmp_path, small=True)
    assert done.returncode == 0, done.stderr
    # On a busy computer there are lines of progress in between.
    lines = [line for line in done.stderr.splitlines() if " of 300, " not in line]
    assert lines[0].startswith("grd/Factored-v0: 2 members, 300 steps each, warm-up")
    assert lines[1].startswith("step 200  grd-closed-form (1 seed): return ")
    assert lines[-1].startswith("step 300  none (1 seed): return ")
    table = done.stdout.splitlines()
    assert " ".join(table[0].split()) == "group seeds final return best return at step corr."
    assert table[1].startswith("grd-closed-form")
    policy = Path("run/members/none-seed0/policies/best")
    assert f"best policy of none: {policy}" in table
    assert (tmp_path / policy).is_dir()
    assert table[-1] == "wrote run: 300 steps of 2 members"
