"""What a person sees in a terminal: one bar, whole words, and an answer to Ctrl-C at once."""

import io
import os
import signal
import threading
import time

import numpy as np
import pytest
from places import ROOT
from rich.console import Console

from grd_offline.cli import terminal
from grd_offline.cli.display import (
    FITTING,
    GROUPS,
    TESTING,
    Forecast,
    format_left,
    make_stage_bar,
    show_stages,
)
from grd_offline.cli.program import cli
from grd_offline.cli.terminal import print_facts, wrap
from grd_offline.core import words
from grd_offline.core.episodes import EpisodeSet
from grd_offline.io.datasets import read
from grd_offline.methods import choose
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.pipeline.decompose import decompose

SAMPLE = ROOT / "datasets" / "sample.h5"


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def walk(forecast, clock, seconds):
    """Go through groups that take these seconds, and look every tenth of them."""
    looks = []
    for stage, taken in seconds.items():
        for tenth in range(10):
            forecast.hear(stage, tenth / 10)
            clock.now += taken / 10
            looks.append((clock.now, forecast.look()))
    return looks


@pytest.mark.long
def test_every_stage_of_a_decomposition_is_known(tmp_path):
    heard, sizes = [], []
    decompose(
        SAMPLE, tmp_path / "out", DecomposeSettings("uniform"),
        progress=lambda stage, share: heard.append((stage.partition(": ")[0], share)),
        on_data=lambda episodes, fitted: sizes.append((len(episodes), len(fitted))),
    )  # fmt: skip
    order = list(dict.fromkeys(group for group, _ in heard))
    assert order == [group for group in GROUPS if group in order]
    assert set(GROUPS) - set(order) == {"comparing with other fits"}
    assert all(0 <= share <= 1 for _, share in heard)
    assert sizes == [(80, 80)]


def test_results_of_all_episodes_take_longer_than_fits_to_a_few():
    """Of a large table, models are fitted to a part; rewards and report are of all of it."""
    clock, sample = Clock(), read(SAMPLE)
    many = EpisodeSet.from_episodes([sample[k % 80] for k in range(8000)])
    few, all_of_them = Forecast(clock=clock), Forecast(clock=clock)
    few.take_size(sample, sample, is_closed_form=True)
    all_of_them.take_size(many, sample, is_closed_form=True)
    for forecast in (few, all_of_them):
        forecast.hear(TESTING, 0.0)
    more = all_of_them.look().seconds_left - few.look().seconds_left
    per_episode = more / (8000 - 80)
    assert 1e-3 < per_episode < 1e-2


def test_the_bar_never_goes_back_and_the_time_left_becomes_right():
    clock = Clock()
    forecast = Forecast(clock=clock)
    forecast.take_size(read(SAMPLE), read(SAMPLE), is_closed_form=True)
    # Ten times as long as the size of the data tells.
    seconds = {group: 20.0 for group in GROUPS if not group.startswith("comparing")}
    looks = walk(forecast, clock, seconds)
    fractions = [look.fraction for _, look in looks]
    assert fractions == sorted(fractions)
    assert 0.9 < fractions[-1] <= 1
    assert all(look.seconds_left >= 0 for _, look in looks)
    fitting = [look for _, look in looks if look.stage == FITTING]
    assert 10 < fitting[0].seconds_left < 200


def test_work_that_is_found_on_the_way_does_not_take_the_bar_back():
    clock = Clock()
    forecast = Forecast(clock=clock)
    forecast.take_size(read(SAMPLE), read(SAMPLE), is_closed_form=True)
    first = walk(forecast, clock, {"reading the data": 0.1, "testing on held-out episodes": 4.0})
    second = walk(forecast, clock, {"comparing with other fits: masked-net: net": 60.0})
    third = walk(forecast, clock, {"fitting the rewards": 5.0})
    fractions = [look.fraction for _, look in first + second + third]
    assert fractions == sorted(fractions)
    assert second[5][1].is_least
    assert not third[5][1].is_least
    assert second[5][1].seconds_left > first[-1][1].seconds_left


def test_a_fit_in_a_second_process_is_heard_of_late_and_hardly_counts(monkeypatch):
    clock = Clock()
    forecast = Forecast(clock=clock)
    monkeypatch.setattr(choose, "is_worth_a_process", lambda episodes: True)
    forecast.take_size(read(SAMPLE), read(SAMPLE), is_closed_form=True)
    order = [group for group in GROUPS if not group.startswith("comparing") and group != FITTING]
    before, after = order[:-3], order[-3:]
    first = walk(forecast, clock, dict.fromkeys(before, 2.0))
    second = walk(forecast, clock, {f"{FITTING}: second process": 1.0, **dict.fromkeys(after, 2.0)})
    fractions = [look.fraction for _, look in first + second]
    assert fractions == sorted(fractions)
    waiting = [look for _, look in second if look.stage == FITTING]
    assert 0 < waiting[-1].seconds_left < 8


def test_several_outcomes_have_one_bar():
    clock = Clock()
    forecast = Forecast(("fuel", "minutes"), clock=clock)
    forecast.take_size(read(SAMPLE), read(SAMPLE), is_closed_form=True)
    groups = [group for group in GROUPS if not group.startswith("comparing")]
    first = walk(forecast, clock, {f"fuel: {group}": 1.0 for group in groups})
    second = walk(forecast, clock, {f"minutes: {group}": 1.0 for group in groups})
    assert first[-1][1].stage == "fuel: making the report"
    assert second[0][1].stage == "minutes: reading the data"
    assert 0.3 < first[-1][1].fraction < 0.7 < second[-1][1].fraction


@pytest.mark.parametrize("width", [60, 80])
def test_the_bar_is_one_line(width):
    clock = Clock()
    forecast = Forecast(clock=clock)
    forecast.take_size(read(SAMPLE), read(SAMPLE), is_closed_form=True)
    forecast.hear("testing on held-out episodes: pairs", 0.0)
    clock.now = 1.0
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(make_stage_bar(forecast).get_renderable())
    (line,) = console.export_text().splitlines()
    assert len(line.rstrip()) <= width
    assert line.startswith("testing on held-out episodes")
    assert " %" in line
    assert "s left" in line


def test_lines_of_stages(capsys):
    with show_stages() as forecast:
        forecast.take_size(read(SAMPLE), read(SAMPLE), is_closed_form=True)
        for stage in ("reading the data", "testing on held-out episodes: a", "fitting the rewards"):
            forecast.hear(stage, 0.0)
        forecast.hear("fitting the rewards: pairs", 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" s  ")[1].split(" (")[0] for line in lines] == [
        "reading the data", "testing on held-out episodes", "fitting the rewards",
    ]  # fmt: skip
    assert lines[0].endswith("s left)")


def test_numbers_in_words():
    assert words.count(1, "episode") == "1 episode"
    assert words.count(2000, "episode") == "2,000 episodes"
    assert words.count(2, "policy", "policies") == "2 policies"
    assert words.format_percentage(0.664) == "66 %"
    assert words.format_percentage(-0.001) == "0 %"
    assert words.format_percentage(0.0123, 1) == "1.2 %"
    assert words.format_percentage(None) == words.format_percentage(float("nan")) == "-"
    assert format_left(None) == ""
    assert format_left(0.2) == "about 1 s left"
    assert format_left(83) == "about 1 min 20 s left"
    assert format_left(700, is_least=True) == "over 12 min left"


def test_words_are_not_broken():
    text = "90 % intervals hold 75 % of 20 returns in a-very-long-name-with-hyphens in 12 s"
    for width in (10, 20, 30):
        lines = wrap(text, width)
        assert " ".join(lines) == text
        assert not any(line.startswith(("%", "s ")) for line in lines)
        assert all(len(line) <= width or " " not in line for line in lines)
    assert wrap("", 10) == [""]


@pytest.mark.parametrize("width", [30, 60, 80])
def test_facts_keep_words_whole(width):
    facts = {"fit": "closed-form", "drives the reward": "velocity_of_the_root 66 %, hip 12 %"}
    console = Console(width=width, record=True, file=io.StringIO())
    print_facts(console, facts)
    shown = console.export_text().split()
    for text in facts.values():
        assert all(word in shown for word in text.split())


def list_commands():
    return [None, *sorted(cli.commands)]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", list_commands())
def test_help_fits_the_terminal(name, width):
    command = cli if name is None else cli.commands[name]
    path = "grd-offline" if name is None else f"grd-offline {name}"

    def show(columns):
        limits = {"terminal_width": columns, "max_content_width": columns}
        return command.get_help(command.context_class(command, info_name=path, **limits))

    text = show(width)
    assert [line for line in text.splitlines() if len(line) > width] == []
    assert "Examples:" in text
    assert [word for word in text.split() if word != "\\"] == show(1000).split()  # none is broken


def test_a_signal_is_acknowledged_at_once_and_the_second_one_ends(capsys):
    with terminal.catch_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        deadline = time.monotonic() + 5
        while not stop.notice and time.monotonic() < deadline:
            time.sleep(0.01)
        assert stop.is_set()
        assert stop.notice == "saving after this round; press Ctrl-C again to quit"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capsys.readouterr().err == f"{stop.notice}\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.long
def test_a_signal_is_acknowledged_while_a_library_computes():
    """numpy holds Python's handlers back, but not the acknowledgement."""
    seen = []
    with terminal.catch_signals() as stop:
        stop.show = lambda notice: seen.append(time.monotonic())
        large = np.random.default_rng(0).normal(size=(1500, 1500))
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        begin = time.monotonic()
        np.linalg.svd(large)
        end = time.monotonic()
        timer.join()
        time.sleep(0.2)
    assert stop.signal_number == signal.SIGTERM
    assert len(seen) == 1
    assert seen[0] - begin < 0.2 + 0.5 * max(end - begin, 1.0)


def test_children_do_not_speak_for_their_parent():
    with terminal.catch_signals() as stop:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.1)
        assert stop.notice == ""
