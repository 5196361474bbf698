"""One contract for all methods of decomposition: every method of the registry passes these."""

import pickle
from dataclasses import fields, is_dataclass, replace
from inspect import signature

import numpy as np
import pytest
import worlds
from places import ROOT
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate

from grd_offline import DecomposeSettings, RewardModel, decompose_episodes
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.methods.contract import ALL_EQUAL, Decomposer
from grd_offline.methods.registry import find_method, list_methods, make_decomposer

METHODS = {method.fit or method.name: method for method in list_methods() if method.offline}
QUICK = {
    "masked-net": {"members": 2, "updates": 8},
    "pair-net": {"members": 2, "mask_updates": 8, "reward_updates": 8, "dynamics_updates": 8},
    "paper": {"updates": 8},
    "rrd": {"updates": 8},
    "rrd-unbiased": {"updates": 8},
}
"""Parameters that make a method quick, where it is not."""


@pytest.fixture(scope="module")
def data():
    return worlds.make_episodes(worlds.make_world(min_length=20), 30)


@pytest.fixture(scope="module", params=METHODS)
def name(request):
    return request.param


def make(name, **more):
    return METHODS[name].make(**QUICK.get(name, {}), **more)


@pytest.fixture(scope="module")
def fitted(name, data):
    return make(name).fit(data[0], rng=np.random.default_rng(0))


def steps(episodes):
    episode = episodes[0]
    following = episode.observations[1:]
    return episode.observations[:-1], episode.actions, following, episode.terminations


def test_the_class_is_what_the_registry_says(name):
    found = METHODS[name].load()
    assert issubclass(found, Decomposer)
    assert is_dataclass(found.settings_class)
    assert METHODS[name].about.endswith(".")
    assert "discount" in signature(found).parameters


def test_parameters_are_the_fields_of_the_settings(name):
    decomposer = make(name)
    names = [field.name for field in fields(decomposer.settings_class)]
    assert list(decomposer.get_params()) == [*names, "random_state"]
    assert list(signature(type(decomposer)).parameters) == [*names, "random_state"]
    plain = type(decomposer)()
    assert plain.settings == decomposer.settings_class()
    assert plain.set_params(discount=0.9) is plain
    assert plain.settings.discount == 0.9
    with pytest.raises(TypeError, match=r"expected one of .*discount.*, got 'nonsense'"):
        plain.set_params(nonsense=1)
    with pytest.raises(TypeError, match="got 'nonsense'"):
        type(decomposer)(nonsense=1)


def test_settings_are_checked_by_fit_and_not_before(name, data):
    decomposer = make(name).set_params(discount=2.0)
    with pytest.raises(ValueError, match="discount"):
        decomposer.fit(data[0])


def test_a_clone_has_the_parameters_and_nothing_that_was_learned(name, fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert repr(again) == repr(fitted)
    assert not [attribute for attribute in vars(again) if attribute.endswith("_")]


def test_use_before_fit_is_refused(name, data):
    decomposer, episodes = make(name), data[0]
    for use in (
        lambda: decomposer.predict(*steps(episodes)),
        lambda: decomposer.predict_episode(episodes[0]),
        lambda: decomposer.relabel_episode(episodes[0]),
        lambda: decomposer.relabel(episodes),
        lambda: decomposer.score(episodes),
    ):
        with pytest.raises(NotFittedError, match="is not fitted yet: call fit first"):
            use()


def test_rewards_have_the_shape_of_the_steps(fitted, data):
    episodes, _ = data
    rewards = fitted.predict(*steps(episodes))
    assert rewards.shape == (len(episodes[0]),)
    assert rewards.dtype == np.float64
    np.testing.assert_array_equal(fitted.predict_episode(episodes[0]), rewards)
    relabelled = list(fitted.relabel(episodes))
    assert [len(part) for part in relabelled] == episodes.lengths.tolist()
    assert all(np.isfinite(part).all() for part in relabelled)


def test_only_methods_that_see_whole_episodes_look_at_what_was_paid(name, fitted, data):
    episode = data[0][0]
    richer = replace(episode, rewards=episode.rewards + 5 * episode.delivered)
    looks = not np.array_equal(fitted.relabel_episode(richer), fitted.relabel_episode(episode))
    assert looks == METHODS[name].sees_whole_episodes
    np.testing.assert_array_equal(fitted.predict_episode(richer), fitted.predict_episode(episode))


def test_same_seed_same_result_and_a_second_fit_equals_a_fresh_one(name, fitted, data):
    episodes, _ = data
    again = make(name)
    assert again.fit(episodes[:12], rng=np.random.default_rng(5)) is again
    again.fit(list(episodes))  # the default seed, and a plain list
    np.testing.assert_array_equal(again.predict(*steps(episodes)), fitted.predict(*steps(episodes)))
    assert again.score(episodes) == fitted.score(list(episodes)) <= 1


def test_masks_are_there_where_the_registry_says_so(name, fitted, data):
    assert (fitted.masks_ is not None) == METHODS[name].has_masks
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
        assert fitted.scores_[key].shape == shapes[key]


def test_the_next_state_is_taken_where_the_registry_says_so(name, data):
    if METHODS[name].takes_next_state:
        found = make(name, next_state=True).fit(data[0][:15])
        assert np.isfinite(found.predict(*steps(data[0]))).all()
    else:
        with pytest.raises(ValueError, match=f"next_state: {name} does not take the next state"):
            make(name, next_state=True)


def test_the_wrong_number_of_dimensions_is_refused(fitted, data):
    observations, actions, following, terminations = steps(data[0])
    with pytest.raises(ValueError, match="observations: expected"):
        fitted.predict(observations[:, :-1], actions, following[:, :-1], terminations)
    with pytest.raises(ValueError, match="actions: expected"):
        fitted.predict(observations, actions[:-1], following, terminations)


def test_a_function_survives_being_taken_apart(fitted, data):
    function = fitted.function_
    again = type(function).from_parts(function.config(), function.tensors())
    np.testing.assert_array_equal(
        again.predict(StepBatch(*steps(data[0]))), function.predict(StepBatch(*steps(data[0])))
    )


def test_discounted_sums_and_several_deliveries_are_understood(name):
    """Deliver every 10 steps, discounted: every method fits without complaint."""
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


@pytest.mark.long
def test_scikit_learn_compares_methods_on_held_out_returns(name, data):
    found = cross_validate(make(name), data[0], cv=2, return_estimator=True, error_score="raise")
    assert found["test_score"].shape == (2,)
    assert (found["test_score"] <= 1).all()
    first = found["estimator"][0]
    assert first.score(data[0][:15]) == found["test_score"][0]


def test_a_fit_has_the_verdict_and_the_model_of_a_decomposition(name, fitted, data, tmp_path):
    found = fitted.decomposition_
    assert fitted.verdict_ == found.verdict
    assert fitted.findings_ == found.findings
    assert (found.metrics["fit"], len(found.metrics["alternatives"])) == (name, 1)
    rewards = np.concatenate(list(fitted.relabel(data[0])))
    np.testing.assert_array_equal(np.concatenate(found.rewards), rewards)
    fitted.save(tmp_path / "model")
    again = RewardModel.load(tmp_path / "model")
    assert again.compact_mask.tolist() == found.masks["compact"]["closure"]
    assert again.about["verdict"] == fitted.verdict_.text
    batch = found.fitted.recording.load(0)
    states = batch.observations[""]
    steps = states[:-1], batch.actions[""], states[1:], batch.terminations
    np.testing.assert_array_equal(again.predict(*steps), fitted.predict(*steps))
    assert fitted.decomposition_ is found
    stored = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(AttributeError, match="has no episodes: call remember with them"):
        _ = stored.verdict_


def test_the_verdict_of_an_estimator_is_that_of_the_command(data):
    """With the random numbers of its last fit, every finding is the same."""
    episodes = data[0]
    fitted = make("closed-form").fit(episodes, rng=np.random.default_rng(0).spawn(1)[0])
    found = decompose_episodes(episodes, DecomposeSettings(fit="closed-form"))
    assert fitted.verdict_ == found.verdict
    assert fitted.findings_ == found.findings
    assert fitted.decomposition_.metrics["alternatives"] == found.metrics["alternatives"]


@pytest.mark.long
def test_constant_returns_are_told(data):
    """A fit to them warns; a decomposition says the same in a finding."""
    same = EpisodeSet.from_episodes(
        [
            replace(one, rewards=3.0 * one.delivered)
            for one in data[0]
            if len(one) == len(data[0][0])
        ]
        * 12
    )
    with pytest.warns(UserWarning, match="All returns are equal, and so are all lengths"):
        fitted = make("closed-form").fit(same)
    assert ALL_EQUAL.text in [one.text for one in fitted.findings_]
    assert fitted.verdict_.level == "careful"
    found = decompose_episodes(same, DecomposeSettings(fit="closed-form"))
    assert found.findings == fitted.findings_


@pytest.mark.long
def test_scikit_learn_searches_a_grid():
    episodes, _ = worlds.make_episodes(worlds.make_world(), 40)
    search = GridSearchCV(make_decomposer("grd"), {"order": [1, 2]}, cv=2, error_score="raise")
    search.fit(episodes)
    assert search.best_params_["order"] in (1, 2)
    assert search.best_estimator_.order == search.best_params_["order"]
    assert search.best_score_ > 0.5


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="method: expected one of grd, rrd"):
        make_decomposer("nonsense")
    with pytest.raises(ValueError, match="fit: expected one of auto"):
        make_decomposer("grd", "nonsense")
    with pytest.raises(ValueError, match="method: expected one of grd, rrd"):
        make_decomposer("oracle")
    assert find_method("grd", "auto").fit == "closed-form"


def test_the_table_in_the_documentation_holds_the_facts():
    head = "| method | what | next state | masks | whole episodes | `decompose` | `train-online` |"
    rows = [head, "|---|---|---|---|---|---|---|"]
    for method in list_methods():
        name = f"{method.name} --fit {method.fit}" if method.fit else method.name
        facts = (
            method.takes_next_state, method.has_masks, method.sees_whole_episodes,
            method.offline, method.online,
        )  # fmt: skip
        told = " | ".join("yes" if fact else "" for fact in facts)
        rows.append(f"| `{name}` | {method.about} | {told} |".replace("  |", " |"))
    assert "\n".join(rows) in (ROOT / "docs" / "choosing.md").read_text()
