"""One contract for all methods of decomposition."""

import numpy as np
import pytest
import worlds

from grd_offline.methods import make_decomposer

QUICK = {
    "closed-form": ("grd", "closed-form", {}),
    "masked-net": ("grd", "masked-net", {"members": 2, "updates": 8}),
    "pair-net": (
        "grd",
        "pair-net",
        {"members": 2, "mask_updates": 8, "reward_updates": 8, "dynamics_updates": 8},
    ),
    "paper": ("grd", "paper", {"updates": 8}),
    "rrd": ("rrd", "", {"updates": 8}),
    "rrd-unbiased": ("rrd-unbiased", "", {"updates": 8}),
    "ircr": ("ircr", "", {}),
    "uniform": ("uniform", "", {}),
}


@pytest.fixture(scope="module")
def data():
    return worlds.make_episodes(worlds.make_world(min_length=20), 30)


def make(name, **more):
    method, fit, settings = QUICK[name]
    return make_decomposer(method, fit, **settings, **more)


@pytest.fixture(scope="module", params=QUICK)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name, data):
    return make(name).fit(data[0], rng=np.random.default_rng(0))


def steps(episodes):
    episode = episodes[0]
    return episode.observations[:-1], episode.actions, episode.observations[1:]


def test_fit_returns_itself(name, data):
    decomposer = make(name)
    assert decomposer.fit(data[0], rng=np.random.default_rng(0)) is decomposer


def test_use_before_fit_is_refused(name, data):
    with pytest.raises(RuntimeError, match="is not fitted yet: call fit first"):
        make(name).predict(*steps(data[0]))
    with pytest.raises(RuntimeError, match="is not fitted yet: call fit first"):
        make(name).relabel(data[0])


def test_rewards_have_the_shape_of_the_steps(fitted, data):
    episodes, _ = data
    rewards = fitted.predict(*steps(episodes))
    assert rewards.shape == (len(episodes[0]),)
    assert rewards.dtype == np.float64
    relabelled = list(fitted.relabel(episodes))
    assert [len(part) for part in relabelled] == episodes.lengths.tolist()
    assert all(np.isfinite(part).all() for part in relabelled)


def test_same_seed_same_result_and_a_second_fit_equals_a_fresh_one(name, fitted, data):
    episodes, _ = data
    again = make(name)
    again.fit(episodes[:12], rng=np.random.default_rng(5))
    again.fit(episodes, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(again.predict(*steps(episodes)), fitted.predict(*steps(episodes)))


def test_masks_are_zeros_and_ones_of_the_right_shape(fitted, data):
    episodes, _ = data
    s, a = episodes.state_size, episodes.action_size
    shapes = {
        "state_to_reward": (s,),
        "action_to_reward": (a,),
        "state_to_state": (s, s),
        "action_to_state": (a, s),
    }
    for key, mask in (fitted.masks_ or {}).items():
        assert mask.shape == shapes[key]
        assert set(np.unique(mask)) <= {0, 1}


def test_the_wrong_number_of_dimensions_is_refused(fitted, data):
    observations, actions, following = steps(data[0])
    with pytest.raises(ValueError, match="observations: expected"):
        fitted.predict(observations[:, :-1], actions, following[:, :-1])
    with pytest.raises(ValueError, match="actions: expected"):
        fitted.predict(observations, actions[:-1], following)


def test_a_function_survives_being_taken_apart(fitted, data):
    function = fitted.function_
    again = type(function).from_parts(function.config(), function.tensors())
    np.testing.assert_array_equal(again.predict(*steps(data[0])), function.predict(*steps(data[0])))


def test_discounted_sums_and_several_deliveries_are_understood(name):
    """Deliver every 10 steps, discounted: every method fits without complaint."""
    from dataclasses import replace

    from grd_offline.episodes import EpisodeSet

    episodes, truth = worlds.make_episodes(worlds.make_world(), 12)
    changed = []
    for episode, rewards in zip(episodes, truth, strict=True):
        weighted = rewards * 0.99 ** np.arange(len(rewards))
        delivered = np.arange(1, len(rewards) + 1) % 10 == 0
        amounts = np.zeros(len(rewards))
        amounts[delivered] = weighted.reshape(-1, 10).sum(axis=1)
        changed.append(replace(episode, rewards=amounts, delivered=delivered))
    decomposer = make(name, discount=0.99)
    decomposer.fit(EpisodeSet.from_episodes(changed), rng=np.random.default_rng(0))
    assert np.isfinite(decomposer.predict(*steps(EpisodeSet.from_episodes(changed)))).all()


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="method: expected one of grd, rrd"):
        make_decomposer("nonsense")
    with pytest.raises(ValueError, match="fit: expected one of auto"):
        make_decomposer("grd", "nonsense")
