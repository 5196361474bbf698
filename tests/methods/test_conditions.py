"""What is said beside the bands of steps."""

from types import SimpleNamespace

import numpy as np
import pytest

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.outcomes import NUMBER, PREFERENCE, SUCCESS, describe_bands
from grd_offline.methods.closed_form.estimator import list_conditions, tell_bands


def make_function(knows_std):
    return SimpleNamespace(outcome=NUMBER, knows_std=knows_std)


def make_fit(**changes):
    model = SimpleNamespace(
        effects=((0,),), shared_variance=0.0, noise_variance=0.0, whole_variance=0.0,
        lasting_share=0.0, inflation=1.0, hidden_variance=0.0,
    )  # fmt: skip
    for name in [name for name in changes if hasattr(model, name)]:
        setattr(model, name, changes.pop(name))
    facts = {"moments": {}, "state_at": "midpoint", "moment_variance": 0.0, "even_inputs": ()}
    facts |= {"outcome": NUMBER, "jumps": False}
    return SimpleNamespace(model=model, **{**facts, **changes})


def make_episodes(lengths):
    return EpisodeSet.from_episodes(
        [
            Episode(
                np.zeros((n, 1)), np.zeros((n, 1)), np.zeros(n), np.zeros(n, bool),
                np.zeros(n, bool), np.arange(n) == n - 1,
            )
            for n in lengths
        ]
    )  # fmt: skip


OPEN = {"moments": {"start": 0.0, "midpoint": 1.0, "end": -50.0}}
TIMES = "worth more because of its number alone"
SAME, OTHER = make_episodes([5, 5, 5]), make_episodes([2, 5, 9])


@pytest.mark.parametrize(
    ("fit", "episodes", "words"),
    [
        (make_fit(**OPEN, moment_variance=0.25), SAME, "halfway through each step"),
        (make_fit(**OPEN, moment_variance=1e-6), SAME, None),
        (make_fit(moments={"start": -50.0, "midpoint": 1.0}, moment_variance=0.25), SAME, None),
        (make_fit(noise_variance=0.1), SAME, "episodes of one length"),
        (make_fit(noise_variance=0.1), OTHER, None),
        (make_fit(noise_variance=0.1, whole_variance=1.0), SAME, None),
        (make_fit(even_inputs=("hour",)), SAME, "hour is worth what was found"),
        (make_fit(hidden_variance=0.01), OTHER, "parts that returns do not show"),
        (make_fit(hidden_variance=0.01, noise_variance=0.02), OTHER, None),
        (make_fit(hidden_variance=1e-4), OTHER, None),
        (make_fit(outcome=SUCCESS), SAME, "no effect was missed"),
        (make_fit(outcome=PREFERENCE), SAME, None),
    ],
)
def test_a_condition_is_told_where_it_holds_and_only_there(fit, episodes, words):
    found = [one for one in list_conditions(fit, episodes, spread=1.0) if TIMES not in one]
    told = tell_bands(make_function(True), found)
    if words is None:
        assert not found
        assert told == describe_bands(NUMBER, True)
    else:
        assert len(found) == 1
        assert words in told
        assert " Here they hold if " in told


@pytest.mark.parametrize(
    ("fit", "episodes", "is_told"),
    [
        (make_fit(), SAME, True),
        (make_fit(), OTHER, False),
        (make_fit(even_inputs=("hour",)), SAME, False),  # which is told by itself
        (make_fit(effects=()), SAME, False),
        (make_fit(), make_episodes([1, 1, 1]), False),
    ],
)
def test_episodes_of_one_length_hide_what_depends_on_the_number_of_the_step(fit, episodes, is_told):
    assert any(TIMES in one for one in list_conditions(fit, episodes, spread=1.0)) == is_told


def test_bands_without_a_posterior_say_so():
    told = tell_bands(make_function(False), ["it rains"])
    assert told == describe_bands(NUMBER, False)
