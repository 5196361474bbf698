"""The methods of networks: `pair-net` and `paper`, and the rows that they learn from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.steps import StepBatch
from grd_offline.methods.pair_net import DynamicsStage, PairNet, PairNetSettings, RewardStage
from grd_offline.methods.paper import (
    DEFAULT_LAMBDAS,
    LAMBDAS,
    Paper,
    PaperSettings,
    _Updates,
    find_lambdas,
)
from grd_offline.methods.training import (
    NetworkData,
    Noise,
    compute_weights,
    measure_returns,
    stack_rows,
)
from grd_offline.networks.losses import SparsityWeights
from grd_offline.rewards.constant import ConstantFunction
from grd_offline.rewards.network import NetworkFunction

QUICK = PairNetSettings(
    members=2, features=4, batch_steps=600, mask_updates=6, reward_updates=10, dynamics_updates=6
)
QUICK_PAPER = PaperSettings(updates=5, hidden=(8,), steps_per_batch=16)


def make_episode(
    rng: np.random.Generator,
    steps: int,
    *,
    stops: Sequence[int] | None = None,
    final: bool = True,
    states: int = 4,
    discount: float = 1.0,
) -> Episode:
    """r = 2 s_1 - s_0^2 + a_0 (plus an idle action); s_0 drifts, the rest is noise."""
    actions = rng.uniform(-1, 1, (steps, 2))
    observations = rng.standard_normal((steps + 1, states))
    observations[:, 0] = np.cumsum(rng.standard_normal(steps + 1)) * steps**-0.5
    rewards = compute_rewards(observations[:-1], actions) * discount ** np.arange(steps)
    delivered = np.zeros(steps, bool)
    delivered[np.array(stops if stops is not None else [steps]) - 1] = True
    paid = np.zeros(steps)
    paid[delivered] = np.diff(np.cumsum(rewards)[delivered], prepend=0.0)
    observations = observations * 100 + 7  # a scale of its own, as datasets have
    return Episode(
        observations if final else observations[:-1],
        actions,
        paid,
        np.zeros(steps, bool),
        np.arange(steps) == steps - 1,
        delivered,
    )


def compute_rewards(observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return 2 * observations[:, 1] - observations[:, 0] ** 2 + 2 * actions[:, 0] + 0.5


def make_set(count: int = 12, *, seed: int = 0, **options: object) -> EpisodeSet:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, 20, count)
    return EpisodeSet.from_episodes([make_episode(rng, int(n), **options) for n in lengths])  # type: ignore[arg-type]


def test_rows_hold_every_delivery_with_its_steps() -> None:
    rng = np.random.default_rng(0)
    first = make_episode(rng, 7, stops=[3, 5])  # two steps after the last delivery
    second = make_episode(rng, 4, final=False)
    rows = stack_rows(EpisodeSet.from_episodes([first, second]))
    assert rows.first.tolist() == [0, 3, 8]
    assert rows.lengths.tolist() == [3, 2, 4]
    assert rows.starts.tolist() == [0, 3, 0]
    np.testing.assert_allclose(rows.amounts, [*first.rewards[[2, 4]], second.rewards[3]])
    assert rows.transitions.tolist() == [*range(7), 8, 9, 10]
    batch = rows.gather(torch.tensor([[1, 2]]))
    assert batch.steps.tolist() == [[[3, 4, 3, 3], [8, 9, 10, 11]]]
    assert batch.valid.tolist() == [[[True, True, False, False], [True] * 4]]
    np.testing.assert_array_equal(rows.observations[batch.steps[0, 1]], second.observations)
    np.testing.assert_array_equal(rows.actions[batch.steps[0, 1]], second.actions)


def test_a_reward_at_every_step_carries_no_discount() -> None:
    episode = make_episode(np.random.default_rng(0), 3, stops=[1, 2, 3])
    rows = stack_rows(EpisodeSet.from_episodes([episode]))
    assert rows.starts.tolist() == [0, 0, 0]
    assert compute_weights(rows, 0.5).tolist() == [1.0, 1.0, 1.0]


def test_weights_are_sums_of_discounts() -> None:
    episode = make_episode(np.random.default_rng(0), 5, stops=[2, 5])
    rows = stack_rows(EpisodeSet.from_episodes([episode]))
    np.testing.assert_allclose(compute_weights(rows, 0.5), [1.5, 0.4375])


def test_drawn_steps_are_distinct_and_of_their_row() -> None:
    rows = stack_rows(make_set(6))
    everything = torch.arange(6).unsqueeze(0)
    sample = rows.sample_steps(everything, 8, rows.longest, torch.Generator().manual_seed(0))
    for row in range(6):
        steps = sample.steps[0, row][sample.valid[0, row]]
        assert len(steps) == min(8, int(rows.lengths[row])) == len(steps.unique())
        assert steps.min() >= rows.first[row]
        assert steps.max() < rows.first[row] + rows.lengths[row]


def test_no_delivery_at_all_is_refused() -> None:
    steps = np.zeros(3, bool)
    episode = Episode(np.zeros((4, 1)), np.zeros((3, 1)), np.zeros(3), steps, steps, steps)
    with pytest.raises(DataError, match="no reward is delivered"):
        stack_rows(EpisodeSet.from_episodes([episode]))


def test_equal_rewards_per_step_leave_nothing_to_explain_whatever_the_length() -> None:
    episodes = [
        Episode(
            np.zeros((n + 1, 1)),
            np.zeros((n, 1)),
            np.where(np.arange(n) == n - 1, 3.0 * n, 0.0),
            np.zeros(n, bool),
            np.zeros(n, bool),
            np.arange(n) == n - 1,
        )
        for n in (2, 5, 9)
    ]
    offset, scale = measure_returns(stack_rows(EpisodeSet.from_episodes(episodes)), 1.0)
    assert (offset, scale) == (pytest.approx(3.0), 0.0)


@pytest.mark.parametrize("model", [PairNet.from_settings(QUICK), Paper.from_settings(QUICK_PAPER)])
def test_use_before_fit_is_refused(model: PairNet | Paper) -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet: call fit first"):
        model.predict(np.zeros((1, 4)), np.zeros((1, 2)))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.relabel(make_set(1))


@pytest.mark.parametrize(
    "make", [lambda: PairNet.from_settings(QUICK), lambda: Paper.from_settings(QUICK_PAPER)]
)
@pytest.mark.parametrize(
    "options", [{}, {"final": False}, {"stops": [3, 5]}], ids=["plain", "no last", "deliveries"]
)
def test_contract(make, options) -> None:  # type: ignore[no-untyped-def]
    episodes = make_set(**options)
    told: list[tuple[str, float]] = []
    model = make()
    assert (
        model.fit(episodes, rng=np.random.default_rng(3), progress=lambda *news: told.append(news))
        is model
    )
    assert told[-1][1] == 1.0
    assert all(0 <= fraction <= 1 for _, fraction in told)
    relabelled = list(model.relabel(episodes))
    assert [len(rewards) for rewards in relabelled] == episodes.lengths.tolist()
    assert all(r.dtype == np.float64 and np.isfinite(r).all() for r in relabelled)
    shapes = {name: mask.shape for name, mask in model.masks_.items()}
    assert shapes == {
        "state_to_reward": (4,),
        "action_to_reward": (2,),
        "state_to_state": (4, 4),
        "action_to_state": (2, 4),
    }
    for name, mask in model.masks_.items():
        assert set(np.unique(mask)) <= {0, 1}
        assert model.scores_[name].shape == mask.shape
    fresh = make().fit(episodes, rng=np.random.default_rng(3))
    again = model.fit(episodes, rng=np.random.default_rng(3))
    for one, two in zip(fresh.relabel(episodes), again.relabel(episodes), strict=True):
        np.testing.assert_array_equal(one, two)


def test_fit_leaves_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    PairNet.from_settings(QUICK).fit(make_set(3), rng=np.random.default_rng(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.long
@pytest.mark.parametrize("discount", [1.0, 0.97])
def test_pair_net_recovers_a_known_reward(discount: float) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 20, 200)
    episodes = EpisodeSet.from_episodes(
        [make_episode(rng, int(n), discount=discount) for n in lengths]
    )
    settings = PairNetSettings(
        members=2,
        features=5,
        batch_steps=600,
        mask_updates=400,
        reward_updates=400,
        dynamics_updates=0,
        mask_rate=0.05,
        edge_price=0.01,
        discount=discount,
    )
    model = PairNet.from_settings(settings).fit(episodes, rng=np.random.default_rng(1))
    assert model.masks_ is not None
    assert model.masks_["state_to_reward"].tolist() == [1, 1, 0, 0]
    assert model.masks_["action_to_reward"].tolist() == [1, 0]
    test = make_episode(np.random.default_rng(9), 400)
    observations = test.observations[:-1]
    found = model.predict(observations, test.actions)
    # s_0 drifts further in a longer episode, out of what was seen: compare where it was.
    seen = np.abs(observations[:, 0] - 7) < 150
    true = compute_rewards((observations - 7) / 100, test.actions)
    assert np.corrcoef(found[seen], true[seen])[0, 1] > 0.97
    assert found[seen].mean() == pytest.approx(true[seen].mean(), abs=0.15)
    assert model.held_out_r2_ > 0.9


@pytest.mark.parametrize("count", [1, 3])
def test_pair_net_gives_a_constant_where_returns_do_not_differ(count: int) -> None:
    zeros = np.zeros(5, bool)
    rng = np.random.default_rng(0)
    last = np.arange(5) == 4
    episodes = EpisodeSet.from_episodes(
        [
            Episode(rng.random((6, 2)), rng.random((5, 1)), 10.1 * last, zeros, last, last)
            for _ in range(count)
        ]
    )
    told = pytest.warns(UserWarning, match="All returns are equal") if count > 1 else nullcontext()
    with told:
        model = PairNet.from_settings(QUICK).fit(episodes, rng=rng)
    assert isinstance(model.function_, ConstantFunction)
    np.testing.assert_allclose(model.predict(np.zeros((2, 2)), np.zeros((2, 1))), 2.02)
    assert model.masks_ is not None
    assert not model.masks_["state_to_reward"].any()


def test_pair_net_makes_do_with_two_episodes() -> None:
    model = PairNet.from_settings(QUICK).fit(make_set(2), rng=np.random.default_rng(0))
    assert np.isfinite(model.predict(np.zeros((2, 4)), np.zeros((2, 2)))).all()


def fit_quick() -> tuple[PairNet, EpisodeSet]:
    episodes = make_set()
    return PairNet.from_settings(QUICK).fit(episodes, rng=np.random.default_rng(0)), episodes


def test_function_survives_being_taken_apart() -> None:
    model, episodes = fit_quick()
    function = model.function_
    config = json.loads(json.dumps(function.config()))
    again = NetworkFunction.from_parts(config, function.tensors())
    episode = episodes[0]
    steps = (episode.observations[:-1], episode.actions)
    np.testing.assert_array_equal(
        again.predict(StepBatch(*steps)), function.predict(StepBatch(*steps))
    )


def test_function_as_a_module_agrees_and_passes_gradients() -> None:
    model, episodes = fit_quick()
    observations = torch.tensor(episodes[0].observations[:-1], requires_grad=True)
    actions = torch.tensor(episodes[0].actions)
    rewards = model.function_.torch()(StepBatch(observations, actions))
    expected = model.predict(observations.detach().numpy(), actions.numpy())
    np.testing.assert_allclose(rewards.detach(), expected, rtol=1e-4, atol=1e-4)
    (gradient,) = torch.autograd.grad(rewards.sum(), observations)
    assert (gradient != 0).any()


def test_prediction_does_not_depend_on_what_it_is_made_with() -> None:
    model, _ = fit_quick()
    episode = make_episode(np.random.default_rng(5), 1500)
    steps = (episode.observations[:-1], episode.actions)
    whole = model.predict(*steps)
    parts = [model.predict(steps[0][cut], steps[1][cut]) for cut in (slice(700), slice(700, None))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_prediction_refuses_other_shapes() -> None:
    model, _ = fit_quick()
    with pytest.raises(ValueError, match=r"observations: expected shape \(N, 4\), got \(3, 5\)"):
        model.predict(np.zeros((3, 5)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"actions: expected shape \(3, 2\), got \(2, 2\)"):
        model.predict(np.zeros((3, 4)), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "kind: expected network, got 'other'"),
        ({"members": 3}, r"tensors: mask: expected shape \(3, "),
        ({"members": True}, "members: expected a whole number"),
        ({"members": 2**20, "features": 2**20}, "tensors: mask: expected shape"),
        ({"columns": [2, 1]}, "columns: expected ascending whole numbers from 0 to 5"),
        ({"columns": [0, 99]}, "columns: expected ascending whole numbers"),
        ({"net": "big"}, "net: expected pair or dense, got 'big'"),
        ({"uses_next": 1}, "uses_next: expected true or false"),
        ({"extra": 1}, "extra: not known"),
    ],
)
def test_parts_that_do_not_fit_are_named(change: dict[str, object], message: str) -> None:
    function = fit_quick()[0].function_
    with pytest.raises(ValueError, match=message):
        NetworkFunction.from_parts({**function.config(), **change}, function.tensors())


def test_tensors_that_do_not_fit_are_named() -> None:
    function = fit_quick()[0].function_
    config, tensors = function.config(), function.tensors()
    without = {name: value for name, value in tensors.items() if name != "std"}
    with pytest.raises(ValueError, match="tensors: std: missing"):
        NetworkFunction.from_parts(config, without)
    with pytest.raises(ValueError, match="tensors: new: not known"):
        NetworkFunction.from_parts(config, {**tensors, "new": np.zeros(1)})
    with pytest.raises(ValueError, match="tensors: scale: not finite"):
        NetworkFunction.from_parts(config, {**tensors, "scale": np.array([np.nan], np.float32)})
    with pytest.raises(ValueError, match="tensors: scale: expected float32, got float64"):
        NetworkFunction.from_parts(config, {**tensors, "scale": np.ones(1)})
    with pytest.raises(ValueError, match="config: states: missing"):
        NetworkFunction.from_parts({"kind": "network"}, tensors)


def test_constant_function_round_trip() -> None:
    function = ConstantFunction(1.5, states=3, actions=2)
    again = ConstantFunction.from_parts(function.config(), function.tensors())
    assert again.predict(StepBatch(np.zeros((2, 3)), np.zeros((2, 2)))).tolist() == [1.5, 1.5]
    assert function.torch()(StepBatch(torch.zeros(4, 3), torch.zeros(4, 2))).tolist() == [1.5] * 4
    with pytest.raises(ValueError, match="value: expected shape"):
        ConstantFunction.from_parts(function.config(), {"value": np.zeros(2)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": 0}, "members: expected a whole number of at least 1, got 0"),
        ({"discount": 1.5}, "discount: expected more than 0 and at most 1, got 1.5"),
        ({"held_out": 1.0}, "held_out: expected more than 0 and less than 1"),
    ],
)
def test_settings_are_checked(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PairNetSettings(**change)  # type: ignore[arg-type]


def test_members_do_not_see_each_other() -> None:
    """Two members in one tensor end where they would have ended with the other one disturbed."""
    problem = NetworkData.from_episodes(make_set(), QUICK)
    kept = torch.arange(6)
    ends = []
    for disturbance in (0.0, 1.0):
        stage = RewardStage(problem, kept, QUICK, Noise(np.random.default_rng(0), "cpu"), members=2)
        with torch.no_grad():
            stage.net.main[1] += disturbance
        for _ in range(5):
            stage.update_masked()
        ends.append([p.detach().clone() for p in (*stage.net.parameters(),)])
    for one, two in zip(*ends, strict=True):
        assert torch.equal(one[0], two[0])
    assert not torch.equal(ends[0][2][1], ends[1][2][1])


def test_each_member_holds_out_other_rows_and_trains_on_the_rest() -> None:
    problem = NetworkData.from_episodes(make_set(20), QUICK)
    settings = PairNetSettings(members=4, held_out=0.25)
    stage = RewardStage(
        problem, torch.arange(6), settings, Noise(np.random.default_rng(0), "cpu"), members=4
    )
    assert sorted(stage._held_out.flatten().tolist()) == list(range(20))
    for member in range(4):
        rows = [*stage._held_out[member].tolist(), *stage._training[member].tolist()]
        assert sorted(rows) == list(range(20))


@pytest.mark.long
def test_dynamics_masks_find_what_moves_a_state() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(40):
        actions = rng.uniform(-1, 1, (30, 1))
        states = np.zeros((31, 2))
        states[0] = rng.standard_normal(2)
        for t in range(30):
            states[t + 1, 0] = 0.5 * states[t, 0] + actions[t, 0] + 0.1 * rng.standard_normal()
            states[t + 1, 1] = np.sin(states[t, 0]) + 0.1 * rng.standard_normal()
        last = np.arange(30) == 29
        episodes.append(Episode(states, actions, 1.0 * last, last & False, last, last))
    problem = NetworkData.from_episodes(EpisodeSet.from_episodes(episodes), QUICK)
    settings = PairNetSettings(dynamics_hidden=32, dynamics_batch=128, dynamics_edge_price=0.02)
    stage = DynamicsStage(problem, settings, Noise(np.random.default_rng(0), "cpu"))
    stage.trainer.run(stage.update_dense, 150)
    stage.trainer.run(stage.update_masked, 350)
    chosen = stage.graph.choose()
    assert chosen.state_to_state[0].tolist() == [[1, 1], [0, 0]]
    assert chosen.action_to_state[0].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HalfCheetah-v5", LAMBDAS["HalfCheetah"]),
        ("Swimmer", LAMBDAS["Swimmer"]),
        ("mujoco/ant-v0", LAMBDAS["Ant"]),
        ("HumanoidStandup-v4", LAMBDAS["HumanoidStandup"]),
        ("grd/Factored-v0", DEFAULT_LAMBDAS),
        (None, DEFAULT_LAMBDAS),
    ],
)
def test_lambdas_by_environment(name: str | None, expected: SparsityWeights) -> None:
    assert find_lambdas(name) == expected


@pytest.mark.long
def test_paper_learns_a_reward_of_one_input() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(60):
        states, actions = rng.standard_normal((11, 2)), rng.uniform(-1, 1, (10, 1))
        states[:, 0] += rng.standard_normal()
        last = np.arange(10) == 9
        paid = states[:-1, 0].sum() * last
        episodes.append(Episode(states, actions, paid, last & False, last, last))
    settings = PaperSettings(
        updates=400, hidden=(32, 32), steps_per_batch=16, learning_rate=3e-3, mask_spread=0.0
    )
    model = Paper.from_settings(settings).fit(
        EpisodeSet.from_episodes(episodes), rng=np.random.default_rng(1)
    )
    test = rng.standard_normal((300, 2))
    found = model.predict(test, np.zeros((300, 1)))
    assert model.masks_ is not None
    assert model.masks_["state_to_reward"][0] == 1
    assert np.corrcoef(found, test[:, 0])[0, 1] > 0.8


def test_paper_can_predict_fewer_dimensions_per_update() -> None:
    """Each update draws other ones, all equally often; `tests/models` has their loss."""
    problem = NetworkData.from_episodes(make_set(), QUICK, standardise=False)
    settings = PaperSettings(hidden=(8,), steps_per_batch=8, dynamics_outputs=2)
    noise = Noise(np.random.default_rng(0), "cpu")
    updates = _Updates(problem, settings, DEFAULT_LAMBDAS, noise)
    drawn = [updates._draw_transitions() for _ in range(200)]
    assert {transitions.next_states.shape for transitions in drawn} == {(1, 8, 4)}
    outputs = torch.stack([transitions.outputs for transitions in drawn])
    assert outputs.shape == (200, 2)
    assert (outputs[:, 0] != outputs[:, 1]).all()
    assert (torch.bincount(outputs.flatten(), minlength=4) > 75).all()  # 100 expected
    before = [parameter.detach().clone() for parameter in updates.model.dynamics.parameters()]
    updates.update()
    after = updates.model.dynamics.parameters()
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_paper_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="updates: expected a whole number of at least 1, got 0"):
        PaperSettings(updates=0)
