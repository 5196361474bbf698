"""The closed form: its algebra against dense references, known graphs, odd data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grd_offline.additive.basis import build_bases, smooth_kernel
from grd_offline.additive.equations import Equations, sum_features
from grd_offline.additive.search import (
    EvidenceProblem,
    average_models,
    compress,
    measure_gains,
    measure_losses,
)
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.methods.closed_form.fit import ClosedFormFit, fit_closed_form
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

SMALL = ClosedFormSettings(order=2, basis=6, final_basis=8, rough_basis=1)


def make_episode(
    observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, every: int = 0
) -> Episode:
    """Rewards summed up to deliveries: at the end, or every so many steps as well."""
    steps = len(actions)
    delivered = np.arange(steps) == steps - 1
    if every:
        delivered[every - 1 :: every] = True
    amounts = np.zeros(steps)
    start = 0
    for stop in np.flatnonzero(delivered) + 1:
        amounts[stop - 1], start = rewards[start:stop].sum(), stop
    return Episode(
        observations, actions, amounts, np.zeros(steps, bool), np.arange(steps) == steps - 1,
        delivered,
    )  # fmt: skip


def draw_episodes(
    rng: np.random.Generator,
    reward: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    episodes: int = 150,
    steps: int = 20,
    states: int = 4,
    every: int = 0,
) -> EpisodeSet:
    """Independent random walks; the reward is a function of states and two actions."""
    made = []
    for _ in range(episodes):
        length = int(rng.integers(max(1, steps // 2), steps + 1))
        walk = 0.5 * np.cumsum(rng.normal(size=(length + 1, states)), 0)
        actions = rng.uniform(-1, 1, (length, 2))
        made.append(make_episode(walk, actions, reward(walk[:-1], actions), every))
    return EpisodeSet.from_episodes(made)


def fit(episodes: EpisodeSet, settings: ClosedFormSettings = SMALL) -> ClosedFormFit:
    return fit_closed_form(episodes, settings, np.random.default_rng(0))


def dense_evidence(blocks: list[np.ndarray], y: np.ndarray, v: np.ndarray, noise: float) -> float:
    covariance = noise * np.eye(len(y))
    for block, variance in zip(blocks, v, strict=True):
        covariance += variance * block @ block.T
    sign, determinant = np.linalg.slogdet(covariance)
    assert sign > 0
    quadratic = y @ np.linalg.solve(covariance, y)
    return -0.5 * (len(y) * np.log(2 * np.pi) + determinant + quadratic)


@pytest.mark.parametrize("widths", [(2, 3, 4), (12, 9, 15)])
def test_evidence_gains_and_losses_equal_a_dense_reference(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(20, width)) for width in widths]
    y, v, noise = rng.normal(size=20), np.array([0.3, 1.2, 0.05]), 0.4
    problem = EvidenceProblem(np.concatenate(blocks, 1), widths, y)
    assert problem.primal == (sum(widths) < 20)
    posterior = problem.solve(v, noise)
    assert posterior.evidence == pytest.approx(dense_evidence(blocks, y, v, noise))
    losses = measure_losses(posterior)
    for p in range(3):
        keep = [k for k in range(3) if k != p]
        without = dense_evidence([blocks[k] for k in keep], y, v[keep], noise)
        assert losses[p] == pytest.approx(posterior.evidence - without)
    new = rng.normal(size=(20, 1, 5)) + 0.3 * y[:, None, None]
    (gain,), (variance,) = measure_gains(posterior, new)
    grown = dense_evidence([*blocks, new[:, 0]], y, np.append(v, variance), noise)
    assert gain == pytest.approx(grown - posterior.evidence)


def test_primal_equals_dual() -> None:
    rng = np.random.default_rng(1)
    columns, sizes, y = rng.normal(size=(20, 9)), (4, 5), rng.normal(size=20)
    v, noise = np.array([0.5, 0.02]), 0.3
    primal = EvidenceProblem(columns, sizes, y)
    dual = EvidenceProblem(columns, sizes, y)
    ends = np.cumsum(sizes)
    parts = [columns[:, e - k : e] for e, k in zip(ends, sizes, strict=True)]
    dual.primal, dual.kernels = False, np.stack([part @ part.T for part in parts]).reshape(2, -1)
    left, right = primal.solve(v, noise), dual.solve(v, noise)
    assert left.primal
    assert not right.primal
    assert left.evidence == pytest.approx(right.evidence)
    np.testing.assert_allclose(left.weights, right.weights, atol=1e-10)
    covariances = [posterior.apply_covariance(np.eye(9)) for posterior in (left, right)]
    np.testing.assert_allclose(*covariances, atol=1e-10)
    np.testing.assert_allclose(left.inverse_diagonal(), right.inverse_diagonal(), atol=1e-10)
    np.testing.assert_allclose(left.block_traces(), right.block_traces(), atol=1e-10)
    for one, covariance in zip((left, right), covariances, strict=True):
        np.testing.assert_allclose(one.weight_variances(), np.diag(covariance), atol=1e-10)
    climbed = [
        problem.maximise(v, noise, floor=1e-6, iterations=50).evidence for problem in (primal, dual)
    ]
    assert climbed[0] == pytest.approx(climbed[1], abs=1e-6)
    assert climbed[0] >= left.evidence


def test_known_shares_keep_their_digits_at_little_noise() -> None:
    rng = np.random.default_rng(2)
    columns, y = rng.normal(size=(40, 6)), rng.normal(size=40)
    steps = [rng.normal(size=(30, 3)), rng.normal(size=(30, 3))]
    for noise in (0.3, 1e-6, 1e-14):
        posterior = EvidenceProblem(columns, (3, 3), y).solve(np.array([0.5, 2.0]), noise)
        precision = np.diag(1 / np.repeat([0.5, 2.0], 3)) + columns.T @ columns / noise
        covariance = np.linalg.inv(precision)
        for k, features in enumerate(steps):
            centred, part = features - features.mean(0), slice(3 * k, 3 * k + 3)
            left = ((centred @ covariance[part, part]) * centred).sum()
            left /= (0.5, 2.0)[k] * (centred**2).sum()
            found = posterior.apply_covariance(np.eye(6))[part, part]
            open_part = ((centred @ found) * centred).sum() / (0.5, 2.0)[k] / (centred**2).sum()
            assert open_part == pytest.approx(left, rel=1e-6, abs=1e-15)


def test_features_reproduce_the_kernel() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4000, 1))
    (basis,) = build_bases(values, [(40, smooth_kernel)])
    features = basis.evaluate(values[:200], [0], 40)[:, 0]
    standard = (values[:, 0] - values.mean()) / values.std()
    kernel = smooth_kernel(standard[:200], standard[:200])
    average = smooth_kernel(standard[:200], standard[::4]).mean(1)
    whole = smooth_kernel(standard[::4], standard[::4]).mean()
    centred = kernel - average[:, None] - average + whole
    inner = np.abs(standard[:200]) < 2
    assert np.abs((features @ features.T - centred)[np.ix_(inner, inner)]).max() < 0.1


def test_sums_per_segment_and_the_constant() -> None:
    rng = np.random.default_rng(3)
    episodes = draw_episodes(rng, lambda s, a: s[:, 0], episodes=5, every=4)
    from grd_offline.additive.equations import iterate_segments

    segments = list(iterate_segments(episodes, False, 0.9))
    inputs = np.concatenate([segment.inputs for segment in segments])
    (basis,) = build_bases(inputs, [(3, smooth_kernel)])
    effects = [(0,), (2,), (0, 2), (1, 3), (0, 1, 3)]
    sums = sum_features(iter(segments), len(segments), basis, effects, 3, np.float64)
    last = segments[-1]
    features = basis.evaluate(last.inputs, range(4), 3)
    by_hand = np.einsum(
        "t,ta,tb,tc->abc", last.weights, features[:, 0], features[:, 1], features[:, 3]
    )
    np.testing.assert_allclose(sums[0, 1, 3][-1], by_hand.ravel())
    by_hand = np.einsum("t,ta,tb->ab", last.weights, features[:, 1], features[:, 3])
    np.testing.assert_allclose(sums[1, 3][-1], by_hand.ravel())
    np.testing.assert_allclose(sums[2,][-1], last.weights @ features[:, 2])
    constant = rng.uniform(1, 3, 12)
    free, average = Equations(constant, constant, constant).remove_constant(
        np.stack([constant, 5 * constant], 1)
    )
    np.testing.assert_allclose(free, 0, atol=1e-12)
    np.testing.assert_allclose(average, [1, 5])


def test_compressed_columns_keep_the_kernel() -> None:
    rng = np.random.default_rng(5)
    block = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 64))
    small = compress(block)
    assert small.shape == (30, 3)
    np.testing.assert_allclose(small @ small.T, block @ block.T, atol=1e-9)


def test_models_are_averaged_by_their_posterior() -> None:
    """A strong input is in every model, twins share what either could explain, noise is in few."""
    rng = np.random.default_rng(6)
    strong, shared, idle = (rng.normal(size=(60, 2)) for _ in range(3))
    target = strong @ [1.0, -1.0] + 0.7 * shared[:, 0] + 0.3 * rng.normal(size=60)
    blocks = {(0,): strong, (1,): shared, (2,): shared.copy(), (3,): idle, (1, 3): shared * idle}
    average = average_models(
        blocks, target, lambda i: i, 4, sweeps=400, rng=np.random.default_rng(0)
    )
    assert average.inclusion[0] == 1.0
    assert average.inclusion[1] == pytest.approx(average.inclusion[2], abs=0.2)
    assert 0.3 < average.inclusion[1] < 0.9
    assert average.inclusion.get(3, 0.0) < 0.3
    assert 0 in average.likely()
    assert average.score(0) > 5 > 0 > average.score(3)
    assert average.noise == pytest.approx(0.09, rel=0.5)
    assert average.variances[(0,)] == pytest.approx(1.0, rel=0.9)


def test_few_noisy_episodes_leave_honest_intervals() -> None:
    """Forty returns with as much noise as reward per step: several models, wide bands."""
    rng = np.random.default_rng(14)
    noise = np.random.default_rng(15)

    def reward(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return states[:, 0] + np.tanh(states[:, 1]) * actions[:, 0]

    data = draw_episodes(rng, lambda s, a: reward(s, a) + noise.normal(size=len(s)), episodes=40)
    found = fit(data, ClosedFormSettings(state_at="start"))
    fresh = draw_episodes(rng, lambda s, a: np.zeros(len(s)), episodes=40)
    states = np.concatenate([episode.observations[:-1] for episode in fresh])
    actions = np.concatenate([episode.actions for episode in fresh])
    mean, std = (
        found.model.predict(StepBatch(states, actions)),
        found.model.predict_std(StepBatch(states, actions)),
    )
    truth = reward(states, actions) + noise.normal(size=len(states))
    assert found.state_to_reward[0] == 1
    assert ((found.state_score > 0) == found.state_to_reward).all()
    assert 0.8 < float((np.abs(mean - truth) < 1.645 * std).mean()) < 0.99


@pytest.fixture(scope="module")
def world_fit() -> tuple[FactoredWorld, ClosedFormFit, float, float]:
    world = FactoredWorld(WorldSettings(states=6, graph_seed=3, length=60))
    rng = np.random.default_rng(0)
    train, test = world.rollout(rng, 150), world.rollout(rng, 20)
    made = [
        make_episode(o, a, r)
        for o, a, r in zip(train.observations, train.actions, train.rewards, strict=True)
    ]
    found = fit(EpisodeSet.from_episodes(made), ClosedFormSettings())
    states = test.observations[:, :-1].reshape(-1, 6)
    actions = test.actions.reshape(-1, 3)
    mean, std = (
        found.model.predict(StepBatch(states, actions)),
        found.model.predict_std(StepBatch(states, actions)),
    )
    pearson = float(np.corrcoef(mean, test.rewards.ravel())[0, 1])
    cover = float((np.abs(mean - test.rewards.ravel()) < 1.645 * std).mean())
    return world, found, pearson, cover


def test_recovers_a_known_graph(
    world_fit: tuple[FactoredWorld, ClosedFormFit, float, float],
) -> None:
    world, found, pearson, cover = world_fit
    np.testing.assert_array_equal(found.state_to_reward, world.masks["state_to_reward"])
    np.testing.assert_array_equal(found.action_to_reward, world.masks["action_to_reward"])
    assert pearson > 0.985
    assert 0.83 < cover < 0.97
    assert found.return_r2 > found.left_out_r2 > 0.9
    assert ((found.state_score > 0) == found.state_to_reward).all()
    assert found.model.shares.sum() == pytest.approx(1, abs=0.02)


@pytest.mark.long
def test_a_pure_interaction_and_a_triple_are_found() -> None:
    rng = np.random.default_rng(5)
    pair = draw_episodes(rng, lambda s, a: s[:, 1] * a[:, 0], episodes=250)
    found = fit(pair)
    np.testing.assert_array_equal(found.state_to_reward, [0, 1, 0, 0])
    np.testing.assert_array_equal(found.action_to_reward, [1, 0])
    triple = draw_episodes(rng, lambda s, a: s[:, 1] * np.sign(s[:, 2]) * a[:, 1], episodes=400)
    small = {"order": 3, "basis": 5, "final_basis": 6, "rough_basis": 1, "switches": False}
    found = fit(triple, ClosedFormSettings(**small, state_at="start"))
    np.testing.assert_array_equal(found.state_to_reward, [0, 1, 1, 0])
    np.testing.assert_array_equal(found.action_to_reward, [0, 1])


def test_what_telescopes_and_follows_from_the_step_is_paid() -> None:
    """R = sum s_0 + (s_1 at the end - s_1 at the start), where s_1 moves by the action and s_2."""
    rng = np.random.default_rng(6)
    made, truth = [], []
    for _ in range(150):
        length = int(rng.integers(5, 15))
        walk = np.zeros((length + 1, 3))
        actions = rng.uniform(-1, 1, (length, 2))
        for t in range(length):
            walk[t + 1] = 0.8 * walk[t] + rng.normal(size=3) * 0.3
            walk[t + 1, 1] = walk[t, 1] + 0.5 * actions[t, 0] - 0.2 * walk[t, 2]
        truth.append(walk[:-1, 0] + np.diff(walk[:, 1]))
        made.append(make_episode(walk, actions, truth[-1]))
    found = fit(EpisodeSet.from_episodes(made))
    assert found.state_at == "start"
    rewards = [found.model.predict(StepBatch(e.observations[:-1], e.actions)) for e in made]
    assert np.corrcoef(np.concatenate(rewards), np.concatenate(truth))[0, 1] > 0.99


@pytest.mark.long
def test_several_deliveries_and_discount() -> None:
    rng = np.random.default_rng(7)
    episodes = draw_episodes(rng, lambda s, a: np.cos(s[:, 0]) - a[:, 1], episodes=60, every=5)
    found = fit(episodes)
    np.testing.assert_array_equal(found.state_to_reward, [1, 0, 0, 0])
    np.testing.assert_array_equal(found.action_to_reward, [0, 1])
    made = []
    for episode in draw_episodes(rng, lambda s, a: 0 * s[:, 0]):
        rewards = np.sin(episode.observations[:-1, 2]) * 0.8 ** np.arange(len(episode))
        made.append(make_episode(episode.observations, episode.actions, rewards))
    discounted = EpisodeSet.from_episodes(made)
    found = fit(discounted, ClosedFormSettings(discount=0.8, order=2, rough_basis=1))
    states = np.linspace(-2, 2, 50)[:, None] * np.ones(4)
    rewards = found.model.predict(StepBatch(states, np.zeros((50, 2))))
    assert np.corrcoef(rewards, np.sin(states[:, 0]))[0, 1] > 0.99


def test_next_state_as_input() -> None:
    rng = np.random.default_rng(8)
    made = []
    for episode in draw_episodes(rng, lambda s, a: 0 * s[:, 0], episodes=120):
        made.append(
            make_episode(
                episode.observations, episode.actions, np.tanh(episode.observations[1:, 3])
            )
        )
    settings = ClosedFormSettings(next_state=True, order=2, basis=5, rough_basis=1)
    found = fit(EpisodeSet.from_episodes(made), settings)
    np.testing.assert_array_equal(found.state_to_reward, [0, 0, 0, 1])
    last = made[0].observations
    rewards = found.model.predict(StepBatch(last[:-1], made[0].actions, last[1:]))
    assert np.corrcoef(rewards, np.tanh(last[1:, 3]))[0, 1] > 0.98


def test_same_generator_same_fit() -> None:
    episodes = draw_episodes(np.random.default_rng(9), lambda s, a: s[:, 0] + a[:, 0], episodes=40)
    first, second = fit(episodes), fit(episodes)
    for name, tensor in first.model.tensors().items():
        np.testing.assert_array_equal(tensor, second.model.tensors()[name])
    assert first.model.config() == second.model.config()


@pytest.mark.parametrize("episodes", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 8])
def test_few_or_short_episodes(episodes: int, steps: int) -> None:
    data = draw_episodes(
        np.random.default_rng(10), lambda s, a: 1 + s[:, 0], episodes=episodes, steps=steps
    )
    found = fit(data)
    rewards = found.model.predict(StepBatch(np.zeros((3, 4)), np.zeros((3, 2))))
    assert np.isfinite(rewards).all()
    assert np.isfinite(found.model.predict_std(StepBatch(np.zeros((3, 4)), np.zeros((3, 2))))).all()


def test_constant_returns_give_a_constant_reward() -> None:
    rng = np.random.default_rng(11)
    data = draw_episodes(rng, lambda s, a: np.full(len(s), 0.1), episodes=30)
    found = fit(data)
    assert not found.state_to_reward.any()
    assert not found.action_to_reward.any()
    rewards = found.model.predict(StepBatch(rng.normal(size=(5, 4)), rng.normal(size=(5, 2))))
    np.testing.assert_allclose(rewards, 0.1, atol=1e-4)


def test_odd_columns() -> None:
    """Constant, repeated, binary, huge and tiny columns, and an outlier."""
    rng = np.random.default_rng(12)
    made = []
    for _ in range(200):
        walk = 0.5 * np.cumsum(rng.normal(size=(16, 2)), 0)
        binary = (rng.random((16, 1)) < 0.3 + 0.4 * rng.random()).astype(float)
        flat = np.full((16, 1), 7.0)
        states = np.concatenate([1e5 * walk[:, :1] + 3e5, walk[:, :1], flat, binary], 1)
        states = np.concatenate([states, 1e-4 * walk[:, 1:]], 1)
        rewards = walk[:-1, 0] + 2 * binary[:-1, 0] + 0.05 * rng.normal(size=15)
        made.append(make_episode(states, rng.uniform(-1, 1, (15, 1)), rewards))
    found = fit(EpisodeSet.from_episodes(made))
    np.testing.assert_array_equal(found.state_to_reward, [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(found.action_to_reward, [0])


def test_settings_and_progress() -> None:
    with pytest.raises(ValueError, match="order"):
        ClosedFormSettings(order=5)
    with pytest.raises(ValueError, match="discount"):
        ClosedFormSettings(discount=0.0)
    with pytest.raises(ValueError, match="basis"):
        ClosedFormSettings(basis=0)
    with pytest.raises(ValueError, match="sweeps"):
        ClosedFormSettings(sweeps=1)
    stages = []
    episodes = draw_episodes(np.random.default_rng(13), lambda s, a: s[:, 0], episodes=20)
    fit_closed_form(
        episodes, SMALL, np.random.default_rng(0), lambda stage, share: stages.append(stage)
    )
    assert stages[0] == "sample of the steps"
    assert stages[-1] == "uncertainty"


def test_an_averaged_reward_depends_on_its_mask_alone() -> None:
    """Also where an input was in a third of the models, and so not in the mask."""
    rng, noise = np.random.default_rng(14), np.random.default_rng(15)

    def reward(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return states[:, 0] + np.tanh(states[:, 1]) * actions[:, 0] + noise.normal(size=len(states))

    found = fit(draw_episodes(rng, reward, episodes=40), ClosedFormSettings(state_at="start"))
    states, others = rng.normal(size=(2, 50, len(found.state_to_reward)))
    actions, other_actions = rng.uniform(-1, 1, (2, 50, 2))
    assert 0 < found.state_to_reward.sum() < len(found.state_to_reward)
    same = found.model.predict(
        StepBatch(
            np.where(found.state_to_reward == 1, states, others),
            np.where(found.action_to_reward == 1, actions, other_actions),
        ),
    )
    np.testing.assert_array_equal(same, found.model.predict(StepBatch(states, actions)))


@pytest.mark.long
@pytest.mark.parametrize("scale", [1e-8, 1e9])
def test_any_unit_of_the_reward_will_do(scale: float) -> None:
    def make(unit: float) -> EpisodeSet:
        rng = np.random.default_rng(0)
        return draw_episodes(rng, lambda s, a: unit * (s[:, 0] + a[:, 0] ** 2), episodes=60)

    plain, scaled = fit(make(1.0)), fit(make(scale))
    np.testing.assert_array_equal(scaled.state_to_reward, plain.state_to_reward)
    np.testing.assert_array_equal(scaled.action_to_reward, plain.action_to_reward)
    rng = np.random.default_rng(1)
    steps = rng.normal(size=(200, 4)), rng.uniform(-1, 1, (200, 2))
    one, other = (
        plain.model.predict_both(StepBatch(*steps)),
        scaled.model.predict_both(StepBatch(*steps)),
    )
    np.testing.assert_allclose(other[0] / scale, one[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other[1] / scale, one[1], rtol=1e-6)
    assert scaled.noise / scale**2 == pytest.approx(plain.noise)
