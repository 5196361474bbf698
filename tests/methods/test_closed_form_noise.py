"""Where the noise of returns comes from, and how wide the bands of single steps are."""

from __future__ import annotations

import numpy as np
import pytest

from grd_offline.additive.equations import NoiseKind, find_noise
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.methods.closed_form.estimator import find_noise_sources
from grd_offline.methods.closed_form.fit import fit_closed_form

BAND = 1.645


def draw(*, step=0.0, shared=0.0, whole=0.0, short=8, long=60, pay=None, seed=0):
    """Episodes whose returns have noise of these standard deviations, and their true rewards."""
    rng = np.random.default_rng(seed)
    made, truth = [], []
    for _ in range(150):
        steps = int(rng.integers(short, long + 1))
        states, actions = rng.normal(size=(steps + 1, 2)), rng.uniform(-1, 1, (steps, 1))
        true = pay(states[:-1]) if pay else np.sin(states[:-1, 0])
        true = true + step * rng.normal(size=steps) + shared * rng.normal()
        last = np.arange(steps) == steps - 1
        amount = true.sum() + whole * rng.normal()
        truth.append(true)
        made.append(Episode(states, actions, last * amount, last & False, last, last))
    return EpisodeSet.from_episodes(made), np.concatenate(truth)


def fit_to(episodes, **settings):
    quick = {"order": 1, "basis": 5, "final_basis": 8, "rough_basis": 1, "switches": False}
    chosen = ClosedFormSettings(**{**quick, "state_at": "start", **settings})
    return fit_closed_form(episodes, chosen, np.random.default_rng(0))


def measure_bands(found, episodes, truth):
    """Share of the true step rewards within the 90 % bands."""
    parts = [
        found.model.predict_both(StepBatch(e.observations[:-1], e.actions, e.next_observations))
        for e in episodes
    ]
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    return float((np.abs(mean - truth) <= BAND * std).mean())


@pytest.mark.parametrize("kind", ["step", "shared", "whole"])
def test_lengths_tell_which_noise_it_is(kind: str) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(5, 80, 400).astype(np.float64)
    constant, scale = np.sqrt(lengths), 1 / np.sqrt(lengths)
    variance = {"step": lengths, "shared": lengths + 0.2 * lengths**2, "whole": lengths + 300.0}
    errors = rng.normal(size=400) * np.sqrt(variance[kind]) * scale
    found = find_noise(errors, constant, scale)
    assert (found.shared > 0, found.whole > 0) == (kind == "shared", kind == "whole")
    if kind == "shared":
        assert found.shared == pytest.approx(0.2, rel=0.5)
    if kind == "whole":
        assert found.whole == pytest.approx(300, rel=0.5)


def test_equal_lengths_tell_nothing() -> None:
    errors = np.random.default_rng(0).normal(size=200)
    assert find_noise(errors, np.full(200, 6.0), np.full(200, 1 / 6)) == NoiseKind()
    assert find_noise(np.zeros(200), np.arange(1, 201.0), np.ones(200)) == NoiseKind()


@pytest.mark.parametrize("noise", [{"step": 0.5}, {"shared": 0.4, "step": 0.2}, {"whole": 6.0}])
def test_bands_of_steps_hold_whatever_the_noise(noise) -> None:
    episodes, truth = draw(**noise)
    found = fit_to(episodes)
    assert (found.model.shared_variance > 0) == ("shared" in noise)
    assert (found.model.whole_variance > 0) == ("whole" in noise)
    if "whole" in noise:  # no step has any of it: bands may not take it for noise of steps
        assert found.model.noise_variance < 0.3 * 6.0**2 / 34
    else:
        assert 0.85 <= measure_bands(found, episodes, truth) <= 0.97


def test_the_kind_of_noise_is_that_of_the_moment_that_was_chosen() -> None:
    episodes, truth = draw(shared=0.1, step=0.1)
    found = fit_to(episodes, state_at="auto")
    assert found.state_at == "start"
    assert found.model.shared_variance == pytest.approx(0.1**2, rel=0.5)
    assert measure_bands(found, episodes, truth) >= 0.85


def test_returns_have_the_noise_that_steps_do_not() -> None:
    episodes, _ = draw(whole=6.0)
    model = fit_to(episodes).model
    first = episodes[0]
    _, std = model.predict_sums(
        StepBatch(first.observations[:-1], first.actions, first.next_observations),
        weights=np.ones(len(first)),
        starts=np.array([0]),
    )
    assert std[0] == pytest.approx(6.0, rel=0.35)


def test_an_error_of_the_reward_is_not_taken_for_noise_of_steps() -> None:
    """A product of two states that main effects cannot express, and that lasts over an episode."""
    rng = np.random.default_rng(0)
    made, truth = [], []
    for _ in range(150):
        place = rng.normal(size=2) + 0.1 * np.cumsum(rng.normal(size=(41, 2)), 0)
        true = place[:-1].sum(1) + 0.3 * place[:-1].prod(1)
        last = np.arange(40) == 39
        truth.append(true)
        made.append(Episode(place, np.zeros((40, 1)), last * true.sum(), last & False, last, last))
    episodes = EpisodeSet.from_episodes(made)
    found = fit_to(episodes)
    model = found.model
    assert found.state_to_reward.tolist() == [1, 1]
    assert model.lasting_share > 0.9
    assert found.hidden["interactions left out"] > 0
    mean = np.concatenate(
        [
            model.predict(StepBatch(e.observations[:-1], e.actions, e.next_observations))
            for e in episodes
        ]
    )
    error = float(((mean - np.concatenate(truth)) ** 2).mean())
    assert model.noise_variance > 5 * error
    assert 0.3 * error < found.hidden["interactions left out"] < 3 * error


def test_noise_of_steps_stays_noise_of_steps() -> None:
    found = fit_to(draw(step=0.5, short=30, long=30)[0])
    assert found.model.lasting_share < 0.3


@pytest.mark.long
@pytest.mark.parametrize(
    ("noise", "said"),
    [
        ({"step": 0.5, "short": 30, "long": 30}, "hold on one condition"),
        ({"step": 0.5}, None),
        ({"step": 0.2, "shared": 0.4}, "shared by all steps of an episode"),
        ({"whole": 6.0}, "belongs to returns as a whole"),
    ],
)
def test_what_bands_take_for_granted_is_said(noise, said) -> None:
    episodes, _ = draw(**noise)
    texts = [finding.text for finding in find_noise_sources(fit_to(episodes), episodes, 0.7)]
    assert len(texts) == (said is not None)
    assert said is None or said in texts[0]
