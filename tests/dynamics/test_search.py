"""The graph of the dynamics: found on worlds whose graph is known, and sane where data are odd."""

import numpy as np
import pytest

from grd_offline.additive.dynamics import DynamicsSettings, fit_dynamics
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings


def make_episode(observations, actions):
    steps = len(actions)
    ends = np.arange(steps) == steps - 1
    return Episode(observations, actions, np.zeros(steps), ends & False, ends, ends)


def roll_out(step, *, states, actions, episodes=40, steps=50, seed=0, final=True, discrete=False):
    """Episodes of a hand-written world: `step(states, actions, rng)` works on a batch."""
    rng = np.random.default_rng(seed)
    observations = np.empty((episodes, steps + 1, states))
    observations[:, 0] = rng.standard_normal((episodes, states))
    taken = rng.uniform(-1, 1, (episodes, steps, actions))
    if discrete:
        taken = np.eye(actions)[rng.integers(actions, size=(episodes, steps))]
    for t in range(steps):
        observations[:, t + 1] = step(observations[:, t], taken[:, t], rng)
    kept = steps + 1 if final else steps
    return EpisodeSet.from_episodes(
        [make_episode(o[:kept], a) for o, a in zip(observations, taken, strict=True)],
        discrete_actions=discrete,
    )


def world_episodes(world, count):
    rollout = world.rollout(np.random.default_rng(1), count)
    return EpisodeSet.from_episodes(
        [make_episode(o, a) for o, a in zip(rollout.observations, rollout.actions, strict=True)]
    )


@pytest.mark.parametrize("family", ["smooth", "hard"])
@pytest.mark.parametrize("seed", [3, 9])
def test_known_graphs_are_found_exactly(family, seed):
    world = FactoredWorld(WorldSettings(family=family, graph_seed=seed))
    fit = fit_dynamics(world_episodes(world, 60), rng=np.random.default_rng(0))
    for name in ("state_to_state", "action_to_state"):
        assert (getattr(fit.model, name) == world.masks[name]).all(), name
    assert min(fit.model.metrics["held_out_r2"]) > 0.7


def test_an_edge_scores_higher_than_no_edge():
    world = FactoredWorld(WorldSettings(graph_seed=3))
    fit = fit_dynamics(world_episodes(world, 60), rng=np.random.default_rng(0))
    true = world.masks["state_to_state"] == 1
    assert fit.state_score[true].min() > 10 * fit.state_score[~true].max() >= 0
    assert fit.action_score.shape == fit.model.action_to_state.shape


def test_inputs_that_act_only_through_a_product_are_found():
    def step(s, a, rng):
        noise = 0.2 * rng.standard_normal(s.shape)
        drive = np.stack([a[:, 0] * np.tanh(s[:, 1]), 0.8 * s[:, 1], np.sign(s[:, 1] * a[:, 1])], 1)
        return drive + noise * [1, 3, 1]

    fit = fit_dynamics(roll_out(step, states=3, actions=2), rng=np.random.default_rng(0))
    assert fit.model.state_to_state.tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert fit.model.action_to_state.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_correlated_states_are_told_apart():
    """s1 follows s0 closely (correlation above .9), s2 depends on s1 alone, s3 on s0 alone."""

    def step(s, a, rng):
        noise = rng.standard_normal(s.shape) * [0.1, 0.1, 0.3, 0.3]
        leader = 0.95 * s[:, 0] + 0.3 * a[:, 0]
        return np.stack([leader, s[:, 0], s[:, 1], np.sin(s[:, 0])], axis=1) + noise

    episodes = roll_out(step, states=4, actions=1, episodes=80)
    fit = fit_dynamics(episodes, rng=np.random.default_rng(0))
    seen = np.concatenate([episode.observations for episode in episodes])
    assert np.corrcoef(seen[:, 0], seen[:, 1])[0, 1] > 0.9
    assert fit.model.state_to_state.tolist() == [
        [1, 1, 0, 1],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
    assert fit.model.action_to_state.tolist() == [[1, 0, 0, 0]]


def test_scales_do_not_matter():
    def step(s, a, rng):
        new = np.stack([0.7 * s[:, 0] + a[:, 0], np.tanh(2 * s[:, 0]), 0.9 * s[:, 2]], axis=1)
        return new + 0.2 * rng.standard_normal(s.shape)

    plain = roll_out(step, states=3, actions=1)
    scaled = EpisodeSet.from_episodes(
        [make_episode(e.observations * [1e-6, 1e5, 1] + [1e-5, -3e5, 0], e.actions) for e in plain]
    )
    for episodes in (plain, scaled):
        fit = fit_dynamics(episodes, rng=np.random.default_rng(0))
        assert fit.model.state_to_state.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
        assert fit.model.action_to_state.tolist() == [[1, 0, 0]]


def test_constant_states_have_no_parents_and_stay():
    def step(s, a, rng):
        moving = 0.8 * s[:, 0] + a[:, 0] + 0.1 * rng.standard_normal(len(s))
        return np.stack([moving, np.full(len(s), 7.5), s[:, 2]], axis=1)

    episodes = roll_out(step, states=3, actions=1)
    constant = [
        make_episode(np.where([False, True, False], 7.5, e.observations), e.actions)
        for e in episodes
    ]
    fit = fit_dynamics(EpisodeSet.from_episodes(constant), rng=np.random.default_rng(0))
    assert fit.model.state_to_state.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert fit.model.action_to_state.tolist() == [[1, 0, 0]]
    observation = np.array([[0.1, 9.0, 0.3]])
    assert fit.model.predict(observation, [[0.0]])[0, 1:] == pytest.approx([9.0, 0.3], abs=1e-3)


def test_one_hot_actions_are_one_input():
    def step(s, a, rng):
        push = a @ np.array([0.5, -0.5, 0.0])
        turned = np.where(a[:, 0] == 1, -s[:, 1], s[:, 1])
        new = np.stack([0.5 * s[:, 0] + push, 0.9 * turned, 0.9 * s[:, 2]], axis=1)
        return new + 0.2 * rng.standard_normal(s.shape)

    episodes = roll_out(step, states=3, actions=3, discrete=True)
    fit = fit_dynamics(episodes, rng=np.random.default_rng(0))
    assert fit.model.state_to_state.tolist() == np.eye(3).tolist()
    assert fit.model.action_to_state.tolist() == [[1, 1, 0]] * 3
    codes = np.eye(3)
    mean = fit.model.predict(np.tile([0.0, 1.0, 0.0], (3, 1)), codes)
    assert mean[:, 0] == pytest.approx([0.5, -0.5, 0.0], abs=0.1)
    assert mean[:, 1] == pytest.approx([-0.9, 0.9, 0.9], abs=0.15)


def test_no_transition_leads_from_one_episode_to_the_next():
    """Without the final observation, two-step episodes that start anew teach one step each."""
    episodes = [
        make_episode(np.array([[k], [k + 1.0]], np.float32), np.zeros((2, 1)))
        for k in np.random.default_rng(0).uniform(-5, 5, 400)
    ]
    fit = fit_dynamics(EpisodeSet.from_episodes(episodes), rng=np.random.default_rng(0))
    used = fit.model.metrics["training_transitions"] + fit.model.metrics["held_out_transitions"]
    assert used == 400
    assert fit.model.predict([[2.0]], [[0.0]])[0, 0] == pytest.approx(3.0, abs=1e-3)
    assert fit.model.state_to_state.tolist() == [[1]]


def test_exact_dynamics_do_not_break_it():
    """No noise at all, and a state that is a copy of another."""

    def step(s, a, rng):
        new = np.stack([s[:, 0] + 0.1 * s[:, 1], 0.9 * s[:, 1] + a[:, 0]], axis=1)
        return np.concatenate([new, new[:, :1]], axis=1)

    fit = fit_dynamics(roll_out(step, states=3, actions=1), rng=np.random.default_rng(0))
    assert fit.model.state_to_state[1, 0] == 1
    assert fit.model.state_to_state[:, 1].tolist() == [0, 1, 0]
    assert np.isfinite(fit.state_score).all()
    assert min(fit.model.metrics["held_out_r2"]) > 0.999


@pytest.mark.parametrize(("count", "steps"), [(1, 1), (1, 2), (2, 3), (3, 20)])
def test_very_few_transitions_give_an_answer(count, steps):
    rng = np.random.default_rng(0)
    episodes = EpisodeSet.from_episodes(
        [
            make_episode(rng.standard_normal((steps + 1, 4)), rng.standard_normal((steps, 2)))
            for _ in range(count)
        ]
    )
    fit = fit_dynamics(episodes, rng=rng)
    assert fit.model.state_to_state.shape == (4, 4)
    assert np.isfinite(fit.model.predict(rng.standard_normal((5, 4)), np.zeros((5, 2)))).all()


def test_without_actions():
    episodes = roll_out(
        lambda s, a, rng: 0.9 * s + 0.2 * rng.standard_normal(s.shape), states=2, actions=0
    )
    fit = fit_dynamics(episodes, rng=np.random.default_rng(0))
    assert fit.model.state_to_state.tolist() == [[1, 0], [0, 1]]
    assert fit.model.action_to_state.shape == (0, 2)


def test_no_transitions_at_all_are_refused():
    episode = make_episode(np.zeros((1, 2)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="no transitions"):
        fit_dynamics(EpisodeSet.from_episodes([episode]))


def test_same_generator_same_fit_and_progress_runs_to_the_end():
    world = FactoredWorld(WorldSettings(graph_seed=1, states=5, reward_states=2, indirect=1))
    episodes = world_episodes(world, 30)
    seen = []
    first = fit_dynamics(
        episodes, rng=np.random.default_rng(5), progress=lambda *report: seen.append(report)
    )
    second = fit_dynamics(episodes, rng=np.random.default_rng(5))
    assert (first.state_score == second.state_score).all()
    assert (first.model.weights == second.model.weights).all()
    for stage in ("finding the causal graph", "fitting the dynamics"):
        parts = [part for name, part in seen if name == stage]
        assert parts == sorted(parts)
        assert parts[-1] == 1.0


@pytest.mark.parametrize(
    "wrong", [{"features": 0}, {"min_gain": -0.1}, {"transitions": 1.5}, {"penalty": float("nan")}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DynamicsSettings(**wrong)


def test_next_states_of_constant_inputs_have_no_parents():
    """Episodes of one step that all begin at the same place."""
    rng = np.random.default_rng(0)
    last = np.ones(1, bool)
    episodes = [
        Episode(np.stack([np.zeros(2), rng.normal(size=2)]), np.zeros((1, 1)), np.ones(1), last,
                ~last, last)
        for _ in range(60)
    ]  # fmt: skip
    found = fit_dynamics(EpisodeSet.from_episodes(episodes), rng=rng)
    assert not found.model.state_to_state.any()
