"""Effects that act late or change during an episode are named, and only where there are any."""

import numpy as np
import pytest

from grd_offline.episodes import Episode, EpisodeSet
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.methods.closed_form.identifiability import examine
from grd_offline.methods.closed_form.settings import ClosedFormSettings
from grd_offline.methods.contract import CAREFUL, UNRELIABLE

QUICK = ClosedFormSettings(basis=5, final_basis=8, rough_basis=1, order=1, switches=False)
LATE, TIMED = "depend on earlier steps", "depend on the time within an episode"
NOISY = "single steps are mostly noise"


def draw(reward, noise=0.02):
    """Episodes of 30 steps with a dose about a level of its own, and what `reward` makes of it."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(150):
        states = rng.normal(size=(31, 1))
        doses = rng.normal() + 0.7 * rng.normal(size=(30, 2))
        paid = reward(doses[:, 0], np.arange(30)).sum() + noise * rng.normal(size=30).sum()
        last = np.arange(30) == 29
        made.append(Episode(states, doses, last * paid, last & False, last, last))
    return EpisodeSet.from_episodes(made)


def look(episodes):
    found = fit_closed_form(episodes, QUICK, np.random.default_rng(0))
    return [one.short for one in examine(found, episodes)[0] if one.level in (CAREFUL, UNRELIABLE)]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda dose, time: 2 * np.append(dose[:1], dose[:-1]), [LATE]),
        (lambda dose, time: 2 * dose * (time < 15), [TIMED]),
        (lambda dose, time: 2 * dose, []),
        (lambda dose, time: np.tanh(2 * dose) + dose, []),
    ],
    ids=["late", "at first only", "at once", "bent"],
)
def test_what_acts_late_or_fades_is_told(reward, words):
    said = look(draw(reward))
    assert [word for word in (LATE, TIMED) if any(word in one for one in said)] == words


@pytest.mark.parametrize(("noise", "is_told"), [(2.0, True), (0.3, False)])
def test_noise_of_steps_that_exceeds_the_rewards_is_told(noise, is_told):
    assert (NOISY in look(draw(lambda dose, time: dose, noise=noise))) == is_told
