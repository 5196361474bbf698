"""Inputs that stand for the outcome are named, and only these."""

import re

import numpy as np
import pytest

from grd_offline import ClosedForm
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.methods.contract import CAREFUL
from grd_offline.methods.verdict import find_totals


def draw(column, steps=(8, 16)):
    """Episodes that pay x² and noise at every step; a second column is made of the rewards."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(60):
        count = int(rng.integers(*steps))
        x = rng.normal(size=count)
        paid = x**2 + rng.normal(size=count)  # the second part cannot be seen
        states = np.stack([x, column(paid)], 1)
        last = np.arange(count) == count - 1
        none = np.zeros((count, 0))
        made.append(Episode(states, none, last * paid.sum(), last & False, last, last))
    return EpisodeSet.from_episodes(made, observation_names=["x", "column"])


def look(episodes):
    fitted = ClosedForm(order=1).fit(episodes)
    return find_totals(fitted, episodes)


@pytest.mark.parametrize(
    "column",
    [np.cumsum, lambda paid: 100 - np.cumsum(paid), lambda paid: paid.sum() * np.append(
        np.zeros(len(paid) - 1), 1), lambda paid: np.cumsum(paid) - paid,
     lambda paid: paid.sum() - np.cumsum(paid)],
    ids=["so far", "left", "at the end alone", "before", "left after"],
)  # fmt: skip
def test_totals_are_named(column):
    (finding,) = look(draw(column))
    assert finding.level == CAREFUL
    assert finding.short == "column stands for the outcome"
    assert re.search(r"(100|9\d|8\d) % of how returns differ", finding.text)


@pytest.mark.parametrize(
    "column",
    [lambda paid: paid, lambda paid: np.arange(len(paid)), lambda paid: np.sin(paid),
     lambda paid: np.full(len(paid), paid.sum())],
    ids=["the reward itself", "a clock", "a state", "the outcome in every row"],
)  # fmt: skip
def test_other_inputs_are_not(column):
    assert look(draw(column)) == []


def test_a_clock_is_no_total_where_every_step_pays_the_same():
    rng = np.random.default_rng(0)
    made = []
    for _ in range(60):
        count = int(rng.integers(8, 16))
        states = np.stack([rng.normal(size=count), np.arange(count)], 1)
        last = np.arange(count) == count - 1
        made.append(
            Episode(states, np.zeros((count, 0)), last * float(count), last & False, last, last)
        )
    assert look(EpisodeSet.from_episodes(made)) == []
