"""A fixed amount in returns and copies of episodes are named, and only where there are any."""

import numpy as np
import pytest

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.methods import make_decomposer
from grd_offline.methods.contract import UNRELIABLE
from grd_offline.methods.verdict import find_copies, gather_findings

WORDS = "Returns contain a fixed amount of about "


def draw(base=0.0, *, steps=(5, 40), average=False, terminated=False):
    """Two jumping states, of which one is rewarded, and outcomes with a base value."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(150):
        length = int(rng.integers(*steps))
        states, actions = rng.normal(size=(length + 1, 2)), rng.normal(size=(length, 1))
        last = np.arange(length) == length - 1
        total = states[:-1, 0].sum() + 0.3 * length + 0.1 * rng.normal()
        amount = base + (total / length if average else total)
        ends = (last, last & False) if terminated else (last & False, last)
        made.append(Episode(states, actions, last * amount, *ends, last))
    return EpisodeSet.from_episodes(made)


def look(episodes, fit):
    decomposer = make_decomposer("grd", fit).fit(episodes, rng=np.random.default_rng(0))
    findings, _ = gather_findings(decomposer, episodes, None)
    return [finding for finding in findings if WORDS in finding.text]


@pytest.mark.parametrize("fit", ["closed-form", "linear"])
def test_a_base_value_is_named(fit):
    (found,) = look(draw(50.0), fit)
    amount = float(found.text.split(WORDS)[1].split(",")[0])
    assert amount == pytest.approx(50, rel=0.1)
    assert found.level == UNRELIABLE
    assert "subtract their base value" in found.text


def test_an_average_has_a_base_value():
    assert look(draw(3.0, average=True), "linear")


@pytest.mark.long
@pytest.mark.parametrize(
    "episodes",
    [draw(), draw(50.0, steps=(20, 21)), draw(50.0, terminated=True)],
    ids=["sums", "one length", "paid where episodes terminate"],
)
def test_nothing_is_said_where_there_is_none_or_it_does_not_show(episodes):
    assert look(episodes, "closed-form") == []


def test_copies_are_counted():
    once = draw()
    twice = EpisodeSet.from_episodes([*once, *once[:15]])
    assert find_copies(once) == []
    (found,) = find_copies(twice)
    assert found.text.startswith("15 of 165 episodes are exact copies")
