"""The fleet: what it steps, that it repeats whoever does the work, and workers that die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from grd_offline import DataError
from grd_offline.agents.actors import Actor, count_weights
from grd_offline.fleet.fleet import Fleet, Round

WORLD = {"length": 30, "min_length": 11, "states": 6}
SEEDS = (3, 8, 8, 2)

ODD_ENVIRONMENTS = '''
import os, signal
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class Odd(gym.Env):
    """Misbehaves at step 2 of every episode that begins after `after` others."""

    def __init__(self, mode="fine", after=1):
        self.mode, self.after, self.episodes = mode, after, 0
        self.action_space = spaces.Box(-2.0, 3.0, (2,), np.float64)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        if mode == "image":
            self.observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        if mode == "unbounded":
            self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        if mode == "choices":
            self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.state = 0, self.np_random.normal(size=2)
        self.episodes += 1
        return self.state, {}

    def step(self, action):
        assert np.all(action >= -2) and np.all(action <= 3)
        self.state += action
        action *= 0
        reward = 1.0
        if self.t == 2 and self.episodes > self.after:
            if self.mode == "raise":
                raise RuntimeError("the motor\\nis on fire")
            if self.mode == "exit":
                os._exit(3)
            if self.mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.mode == "nan":
                self.state[1] = np.nan
            if self.mode == "inf":
                reward = np.inf
        if self.mode == "forgetful" and self.t == 3:
            self.state = np.random.normal(size=2)
        self.t += 1
        return self.state, reward, False, False, {}

gym.register("Fleet-v1", entry_point=Odd)
'''


@pytest.fixture(scope="module", autouse=True)
def odd_environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "odd_fleet_environments.py").write_text(ODD_ENVIRONMENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


def make_fleet(seeds: Sequence[int] = SEEDS, **options: Any) -> Fleet:
    defaults = {"workers": 0, "hidden": (16,), "steps": 25, "env_args": WORLD}
    return Fleet("Factored", seeds, **{**defaults, **options})


def make_odd(mode: str, seeds: Sequence[int] = (1, 2), after: int = 1, **options: Any) -> Fleet:
    defaults = {"workers": 0, "hidden": (4,), "steps": 10, "max_episode_steps": 7}
    args = {"mode": mode, "after": after}
    return Fleet("odd_fleet_environments:Fleet-v1", seeds, env_args=args, **{**defaults, **options})


def make_weights(fleet: Fleet, number: int = 0) -> np.ndarray:
    """The weights of member m depend on its seed alone."""
    shape = count_weights(fleet.spec)
    rows = [
        np.random.default_rng((seed, number)).standard_normal(shape)
        for seed in fleet.state()["seeds"].tolist()
    ]
    return 0.5 * np.array(rows, np.float32)


def run_round(fleet: Fleet, index: int, warm_up: int = 1) -> Round:
    fleet.start_round(index, None if index < warm_up else make_weights(fleet, index))
    return fleet.finish_round()


def assert_same(first: Round, second: Round, rows: Sequence[int] | slice = slice(None)) -> None:
    for name, array in first._asdict().items():
        np.testing.assert_array_equal(array[rows], getattr(second, name), err_msg=name)


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


@pytest.mark.parametrize("workers", [0, 2])
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
        fleet.start_round(4, None)
        for out_of_turn in (fleet.state, lambda: fleet.start_round(5, None)):
            with pytest.raises(RuntimeError, match="round 4 is running"):
                out_of_turn()
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
        with pytest.raises(DataError, match=r"member 0, evaluation 3, episode 1: .*on fire"):
            fleet.finish_evaluation()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("image", "Fleet-v1: observations: expected a one-dimensional Box, got Box"),
        (
            "unbounded",
            "Fleet-v1: actions: expected a bounded one-dimensional Box of floats, got Box",
        ),
        ("choices", "Fleet-v1: actions: expected a bounded .* got Discrete"),
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


def kill_worker(fleet: Fleet, number: int) -> None:
    process = fleet.processes[number]
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_a_killed_worker_is_replaced() -> None:
    """Its members go on with their next episode, the others and the evaluation as if nothing."""
    with make_fleet() as fleet:
        expected = [run_round(fleet, index) for index in range(4)]
        weights = make_weights(fleet, 9)
        fleet.start_evaluation(0, weights, 3)
        evaluated = fleet.finish_evaluation()
    with make_fleet(workers=2) as fleet:
        run_round(fleet, 0)
        before = fleet.state()["episodes"]
        fleet.start_evaluation(0, weights, 3)
        fleet.start_round(1, make_weights(fleet, 1))
        kill_worker(fleet, 1)
        second = fleet.finish_round()
        assert second.restarted.tolist() == [False, False, True, True]
        for name, array in second._asdict().items():
            np.testing.assert_array_equal(array[:2], getattr(expected[1], name)[:2])
        state = fleet.state()
        ended = (second.terminations | second.truncations).sum(axis=1)
        np.testing.assert_array_equal(state["episodes"], before + ended + second.restarted)
        third = run_round(fleet, 2)
        assert not third.restarted.any()
        result = fleet.finish_evaluation()
        np.testing.assert_array_equal(result.returns, evaluated.returns)
        kill_worker(fleet, 0)  # while it has nothing to do
        assert run_round(fleet, 3).restarted.tolist() == [True, True, False, False]
        kill_worker(fleet, 1)  # before it is put somewhere else, where nothing is lost
        fleet.restore(state)
        assert_same(third, run_round(fleet, 2))
    # What happens after a death can be repeated as well.
    with make_fleet() as fleet:
        fleet.restore(state)
        assert_same(third, run_round(fleet, 2))


@pytest.mark.parametrize(
    ("mode", "cause"), [("exit", "with exit code 3"), ("kill", "of signal SIGKILL")]
)
def test_a_worker_that_keeps_dying(mode: str, cause: str) -> None:
    with make_odd(mode, seeds=[1, 2, 3], after=0, workers=1) as fleet:
        fleet.start_round(0, None)
        message = f"worker process of members 0, 1, 2 died 3 times in a row, the last time {cause}"
        with pytest.raises(DataError, match=message):
            fleet.finish_round()


def test_what_a_death_between_rounds_cost_is_known_after_resuming() -> None:
    with make_fleet(workers=2) as fleet:
        run_round(fleet, 0)
        fleet.start_evaluation(0, make_weights(fleet), 3)
        kill_worker(fleet, 1)
        fleet.finish_evaluation()
        state = fleet.state()
        assert state["lost"].tolist() == [False, False, True, True]
        expected = run_round(fleet, 1)
        assert expected.restarted.tolist() == [False, False, True, True]
    with make_fleet() as fleet:
        fleet.restore(state)
        assert_same(expected, run_round(fleet, 1))
        assert not run_round(fleet, 2).restarted.any()


def test_an_evaluation_that_keeps_killing_its_worker() -> None:
    with make_odd("exit", seeds=[1], after=1, workers=1, steps=1) as fleet:
        run_round(fleet, 0)
        fleet.start_evaluation(0, make_weights(fleet), 2)
        with pytest.raises(DataError, match="died 3 times in a row, the last time with exit code"):
            fleet.finish_evaluation()


def test_workers_are_gone_after_closing_and_deaf_to_interrupts() -> None:
    fleet = make_fleet(workers=2)
    run_round(fleet, 0)
    processes = fleet.processes
    for process in processes:
        os.kill(process.pid, signal.SIGINT)
    run_round(fleet, 1)
    assert all(process.is_alive() for process in processes)
    fleet.start_evaluation(0, make_weights(fleet), 50)
    begin = time.monotonic()
    fleet.close()
    assert time.monotonic() - begin < 10
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(RuntimeError, match="the fleet is closed"):
        fleet.start_round(2, None)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")
def test_a_killed_parent_leaves_nothing_behind() -> None:
    script = (
        "from grd_offline.fleet.fleet import Fleet\n"
        "if __name__ == '__main__':\n"
        "    fleet = Fleet('Factored', [0, 1], workers=2)\n"
        "    fleet.start_round(0, None); fleet.finish_round()\n"
        "    print(*(process.pid for process in fleet.processes), flush=True)\n"
        "    while True: fleet.start_round(1, None); fleet.finish_round()\n"
    )
    memory = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = parent.stdout.readline().split()
    assert len(children) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(is_running(child) for child in children):
        time.sleep(0.05)
    assert not any(is_running(child) for child in children)
    ours = {name for name in set(os.listdir("/dev/shm")) - memory if str(parent.pid) in name}
    assert not ours


def is_running(process: str) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_torch_is_not_imported() -> None:
    script = (
        "import sys; from grd_offline.fleet.fleet import Fleet\n"
        "Fleet('Factored', [0], workers=0).close()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
