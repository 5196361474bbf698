"""The fleet: what it steps, that it repeats whoever does the work, and workers that die."""

from __future__ import annotations

import os
import re
import signal
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from fleets import SEEDS, WORLD, assert_same, make_fleet, make_odd, make_weights, run_round

from grd_offline import DataError
from grd_offline.learning.agents.actors import Actor
from grd_offline.learning.fleet.environment import VectorEnvironment, _find_step
from grd_offline.learning.fleet.fleet import EvaluatedEpisode, Fleet, RunningEvaluation


@pytest.mark.parametrize("kind", ["gaussian", "deterministic"])
def test_rounds_are_what_gymnasium_does(kind: str) -> None:
    """A plain loop over MuJoCo, with the seeds that the documentation names, gives the rounds."""
    import gymnasium as gym

    with Fleet("Hopper", [7], kind=kind, noise=0.3, hidden=(16,), steps=40, workers=0) as fleet:
        assert (fleet.environment, fleet.step_limit) == ("Hopper-v5", 1000)
        assert (fleet.observation_size, fleet.action_size) == (11, 3)
        rounds = [run_round(fleet, index, warm_up=0) for index in range(3)]
        actors = [Actor(fleet.spec, make_weights(fleet, index)[0]) for index in range(3)]
    env = gym.make("Hopper-v5", disable_env_checker=True)

    def seeds_of(*key: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(7, spawn_key=key)

    episode = 0
    observation, _ = env.reset(seed=int(seeds_of(0, 0).generate_state(1)[0]))
    for index, (round_, actor) in enumerate(zip(rounds, actors, strict=True)):
        rng = np.random.default_rng(seeds_of(1, index))
        for t in range(40):
            np.testing.assert_array_equal(round_.observations[0, t], observation.astype("f4"))
            action = actor.act(observation, rng)
            np.testing.assert_array_equal(round_.actions[0, t], action)
            observation, reward, terminated, truncated, _ = env.step(action)
            assert round_.rewards[0, t] == reward
            np.testing.assert_array_equal(round_.next_observations[0, t], observation.astype("f4"))
            assert (round_.terminations[0, t], round_.truncations[0, t]) == (terminated, truncated)
            if terminated or truncated:
                episode += 1
                seed = int(seeds_of(0, episode).generate_state(1)[0])
                observation, _ = env.reset(seed=seed)
    assert episode > 0


@pytest.mark.long
def test_same_rounds_whoever_does_the_work() -> None:
    with make_fleet() as here:
        expected = [run_round(here, index) for index in range(3)]
        final = here.state()
    assert expected[2].truncations.any()
    for workers in (1, 3):
        with make_fleet(workers=workers) as fleet:
            for index in range(3):
                assert_same(expected[index], run_round(fleet, index))
            for name, value in fleet.state().items():
                np.testing.assert_array_equal(value, final[name])
    with make_fleet(seeds=SEEDS[2:]) as fleet:
        for index in range(3):
            assert_same(expected[index], run_round(fleet, index), [2, 3])
    # Members of one seed and one set of weights are one and the same; others differ.
    np.testing.assert_array_equal(expected[2].actions[1], expected[2].actions[2])
    assert not np.array_equal(expected[0].actions[0], expected[0].actions[1])


def test_a_round_belongs_to_the_caller() -> None:
    with make_fleet() as fleet:
        first = run_round(fleet, 0)
        kept = first.rewards.copy()
        run_round(fleet, 1)
        np.testing.assert_array_equal(first.rewards, kept)
        assert first.observations.shape == (4, 25, 6)
        assert first.observations.dtype == first.actions.dtype == np.float32
        assert first.rewards.dtype == np.float64


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps", "length", "stop", "workers"),
    [(25, 40, 1, 0), (25, 40, 3, 2), (20, 40, 2, 0), (20, 40, 4, 0)],
    ids=["during warm-up", "in mid-episode", "at a reset in warm-up", "at a reset"],
)
def test_resuming_equals_not_having_stopped(
    steps: int, length: int, stop: int, workers: int
) -> None:
    options = {"steps": steps, "env_args": {**WORLD, "length": length, "min_length": length}}
    with make_fleet(**options) as fleet:
        rounds = []
        for index in range(6):
            if index == stop:
                state = fleet.state()
            rounds.append(run_round(fleet, index, warm_up=3))
    assert (state["steps"] == stop * steps % length).all()
    with make_fleet(workers=workers, **options) as fleet:
        run_round(fleet, 0)  # where it stood before does not matter
        fleet.restore(state)
        for name, value in fleet.state().items():
            np.testing.assert_array_equal(value, state[name])
        for index in range(stop, 6):
            assert_same(rounds[index], run_round(fleet, index, warm_up=3))


def test_resuming_mujoco_in_mid_episode() -> None:
    options = {"hidden": (16,), "steps": 60, "workers": 0}
    with Fleet("Walker2d", [0, 1], **options) as fleet:
        run_round(fleet, 0)
        state = fleet.state()
        expected = run_round(fleet, 1)
    with Fleet("Walker2d", [0, 1], **options) as fleet:
        fleet.restore(state)
        assert_same(expected, run_round(fleet, 1))


def test_states_are_checked() -> None:
    with make_fleet() as fleet:
        run_round(fleet, 0)
        state = fleet.state()
        with pytest.raises(DataError, match=r"seeds: expected \[3, 8, 8, 2\], got \[3, 8, 8, 1\]"):
            fleet.restore({**state, "seeds": np.array([3, 8, 8, 1])})
        with pytest.raises(DataError, match="actions: is missing"):
            fleet.restore({name: value for name, value in state.items() if name != "actions"})
        with pytest.raises(DataError, match="observations: expected shape"):
            fleet.restore({**state, "observations": state["observations"][:2]})
        changed = state["observations"].copy()
        changed[2, 4] += 1e-4
        (gap,) = fleet.restore({**state, "observations": changed})
        assert re.match(r"member 2, .*does not repeat itself.*dimension 4", gap)


def test_environment_that_does_not_repeat_itself() -> None:
    with make_odd("forgetful", steps=5) as fleet:
        run_round(fleet, 0)
        gaps = fleet.restore(fleet.state())
        message = r"member 0, episode 0: the environment does not repeat itself: after 5 actions"
        assert re.match(message, gaps[0])
        assert len(gaps) == 2
        assert fleet.state()["episodes"].tolist() == [1, 1]
        following = run_round(fleet, 1)
        assert following.restarted.all()
        assert not run_round(fleet, 2).restarted.any()


def test_every_episode_of_an_evaluation_is_given_to_somebody_once() -> None:
    evaluation = RunningEvaluation(7, members=3, episodes=4)
    orders = []
    while (order := evaluation.take_order()) is not None:
        orders.append(order)
    pairs = sorted((order.member, order.episode) for order in orders)
    assert pairs == [(member, episode) for member in range(3) for episode in range(4)]
    for number, order in enumerate(orders):
        assert not evaluation.is_over
        evaluation.put(EvaluatedEpisode(order, float(number), number + 1, 1.0))
    assert evaluation.is_over
    assert sorted(evaluation.result.returns.ravel()) == list(range(12))
    assert (evaluation.result.lengths == evaluation.result.returns + 1).all()
    assert (evaluation.result.successes == 1).all()


@pytest.mark.long
def test_a_busy_worker_leaves_episodes_to_the_others() -> None:
    """A worker that is stopped holds one episode; the others evaluate all the rest."""
    with make_fleet(workers=5) as fleet:
        fleet.start_evaluation(5, make_weights(fleet), episodes=4)
        expected = fleet.finish_evaluation()
        busy = fleet.processes[0]
        os.kill(busy.pid, signal.SIGSTOP)
        try:
            fleet.start_evaluation(5, make_weights(fleet), episodes=4)
            evaluation, begin = fleet._evaluation, time.monotonic()
            while evaluation._missing > 1 and time.monotonic() - begin < 30:
                assert fleet.poll_evaluation() is None
                time.sleep(0.01)
            assert evaluation._missing == 1
        finally:
            os.kill(busy.pid, signal.SIGCONT)
        np.testing.assert_array_equal(fleet.finish_evaluation().returns, expected.returns)


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 5])
def test_evaluation_is_without_noise_and_disturbs_nothing(workers: int) -> None:
    with make_fleet() as fleet:
        expected = [run_round(fleet, index) for index in range(3)]
        weights = make_weights(fleet, 9)
    with make_fleet(workers=workers) as fleet:
        fleet.start_evaluation(5, weights, episodes=4)
        for index in range(3):
            assert_same(expected[index], run_round(fleet, index))
        first = fleet.finish_evaluation()
        assert fleet.poll_evaluation() is None
        fleet.start_evaluation(5, weights, episodes=4)
        while (second := fleet.poll_evaluation()) is None:
            time.sleep(0.01)
        fleet.start_evaluation(6, weights, episodes=4)
        other = fleet.finish_evaluation()
    assert first.evaluation == 5
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    assert not np.array_equal(first.returns, other.returns)
    assert len(np.unique(first.returns[0])) == 4

    import gymnasium as gym

    env = gym.make("grd/Factored-v0", disable_env_checker=True, **WORLD)
    actor = Actor(fleet.spec, weights[3])
    seeds = np.random.SeedSequence(SEEDS[3], spawn_key=(2, 5, 1))
    observation, _ = env.reset(seed=int(seeds.generate_state(1)[0]))
    total, steps, over = 0.0, 0, False
    while not over:
        observation, reward, _, over, _ = env.step(actor.act(observation))
        total, steps = total + reward, steps + 1
    assert (first.returns[3, 1], first.lengths[3, 1]) == (total, steps)


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_round_that_begins_before_the_last_one_is_over(workers: int) -> None:
    """Each member begins when it is done. What happens is what happens one after the other."""
    with make_fleet(workers=0) as fleet:
        expected = [run_round(fleet, index) for index in range(6)]
        after = fleet.state()
    with make_fleet(workers=workers) as fleet:
        fleet.start_round(0, None)
        for index in range(6):
            if index < 5:
                fleet.start_round(index + 1, make_weights(fleet, index + 1, seeds=SEEDS))
            while not fleet.wait_round(0.01):
                pass
            assert_same(expected[index], fleet.finish_round())
        found = fleet.state()
    assert after.keys() == found.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, found[name])


@pytest.mark.long
def test_a_member_that_is_done_does_not_wait_for_the_others() -> None:
    with make_fleet(workers=2) as fleet:
        for index in (0, 1):
            fleet.start_round(index, None)
        slow = fleet.processes[0]
        os.kill(slow.pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            while fleet._groups[1].owes and time.monotonic() - begin < 30:
                assert not fleet.wait_round(0.05)
            assert not fleet._groups[1].owes
        finally:
            os.kill(slow.pid, signal.SIGCONT)
        found = [fleet.finish_round() for _ in range(2)]
    with make_fleet(workers=0) as fleet:
        for index in (0, 1):
            fleet.start_round(index, None)
            assert_same(fleet.finish_round(), found[index])


@pytest.mark.long
def test_a_round_does_not_wait_for_an_evaluation() -> None:
    with make_fleet(
        [0], workers=1, env_args={**WORLD, "length": 1500, "min_length": 1500}
    ) as fleet:
        run_round(fleet, 0)
        fleet.start_evaluation(0, make_weights(fleet), episodes=2)
        begin = time.monotonic()
        for index in range(1, 4):
            run_round(fleet, index)
        rounds = time.monotonic() - begin
        assert fleet.poll_evaluation() is None
        fleet.finish_evaluation()
        assert rounds < (time.monotonic() - begin) / 2


def test_orders_out_of_turn() -> None:
    with make_fleet() as fleet:
        with pytest.raises(RuntimeError, match="no round is running"):
            fleet.finish_round()
        with pytest.raises(RuntimeError, match="no evaluation is running"):
            fleet.finish_evaluation()
        with pytest.raises(RuntimeError, match="no round is running"):
            fleet.wait_round(0.0)
        state = fleet.state()
        fleet.start_round(4, None)
        fleet.start_round(5, None)
        third = partial(fleet.start_round, 6, None)
        for out_of_turn in (fleet.state, partial(fleet.restore, state), third):
            with pytest.raises(RuntimeError, match="round 4 is running"):
                out_of_turn()
        fleet.finish_round()
        with pytest.raises(RuntimeError, match="round 5 is running"):
            fleet.state()
        fleet.finish_round()
        with pytest.raises(ValueError, match="weights: expected shape"):
            fleet.start_round(5, np.zeros((4, 3)))
        weights = make_weights(fleet)
        weights[2, 7] = np.nan
        with pytest.raises(DataError, match="weights: member 2: nan or infinite"):
            fleet.start_round(5, weights)
        fleet.start_evaluation(1, make_weights(fleet), 1)
        with pytest.raises(RuntimeError, match="evaluation 1 is running"):
            fleet.start_evaluation(2, make_weights(fleet), 1)


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("nan", "^member 0, episode 1: observations: nan at step 3, dimension 1$"),
        ("inf", "^member 0, episode 1: rewards: inf at step 2$"),
        ("raise", "^member 0, episode 1: .*Fleet-v1 failed at step 2: RuntimeError: the motor is"),
    ],
)
def test_misbehaving_environment(mode: str, message: str, workers: int) -> None:
    with make_odd(mode, seeds=[1], workers=workers) as fleet:
        fleet.start_round(0, None)
        with pytest.raises(DataError, match=message):
            fleet.finish_round()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("raise", "member 0, episode 0: .*Fleet-v1 failed at step 2: RuntimeError"),
        ("nan", "member 0, episode 0: observations: nan at step 3, dimension 1"),
    ],
)
def test_misbehaving_in_the_first_step_of_a_round(mode: str, message: str) -> None:
    with make_odd(mode, after=0, steps=2) as fleet:
        run_round(fleet, 0)
        fleet.start_round(1, None)
        with pytest.raises(DataError, match=message):
            fleet.finish_round()


def test_misbehaving_in_an_evaluation() -> None:
    with make_odd("raise") as fleet:
        fleet.start_evaluation(3, make_weights(fleet), 2)
        with pytest.raises(DataError, match=r"member 1, evaluation 3, episode 0: .*on fire"):
            fleet.finish_evaluation()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("image", "Fleet-v1: observations: images of shape .* are not supported"),
        ("unbounded", "Fleet-v1: actions: .* a bounded one-dimensional Box of floats, got Box"),
        ("choices", "Fleet-v1 has discrete actions, a gaussian policy has others"),
    ],
)
def test_unsupported_spaces(mode: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        make_odd(mode)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"workers": -1}, "workers"),
        ({"steps": 0}, "steps"),
        ({"kind": "clever"}, "kind"),
        ({"hidden": (10**9,)}, "sizes"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(DataError, match=f"{field}: expected"):
        make_fleet(**wrong)


def test_a_step_goes_around_wrappers_that_only_count():
    made = VectorEnvironment("Hopper", {}, 5)
    assert made._step == made.environment.unwrapped.step
    made.reset(0)
    zero = np.zeros(3, np.float32)
    ends = [made.step(zero)[2:] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    made.environment = gymnasium.wrappers.TimeLimit(made.environment.unwrapped, 3)
    step, is_limited = _find_step(made.environment, 5)
    assert (step, is_limited) == (made.environment.step, False)  # another limit is kept
    made.close()
