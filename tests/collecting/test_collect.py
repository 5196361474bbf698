"""Collecting: what is recorded, that it repeats, and environments that misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import samples
from online_runs import Stopper

from grd_offline import DataError, collect, write_dataset
from grd_offline.io.datasets import Header, Record, open_recording, read
from grd_offline.learning.agents.exploration import draw_box_actions, draw_discrete_actions
from grd_offline.learning.collecting.dataset import deliver, run_episodes
from grd_offline.learning.settings import CollectSettings
from grd_offline.worlds.environments import FactoredEnv

ODD_ENVIRONMENTS = '''
import os
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class Odd(gym.Env):
    """Counts its steps; in the episode whose reset draws it so, it misbehaves at step 2."""

    def __init__(self, mode="fine", share=1.0):
        self.mode, self.share = mode, share
        self.action_space = spaces.Box(-2.0, 3.0, (2,), np.float64)
        number = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = {
            "dict": spaces.Dict({
                "speed": number,
                "arm": spaces.Dict({"angle": spaces.Box(-9, 9, (), np.float32)}),
                "gear": spaces.Discrete(3, start=1),
            }),
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "text": spaces.Text(5),
        }.get(mode, number)

    def _observe(self):
        if self.mode == "dict":
            return {"speed": self.state, "arm": {"angle": np.float32(self.t)},
                    "gear": 1 + self.t % 3}
        return self.state

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.state = 0, self.np_random.normal(size=2)
        self.misbehaves = self.np_random.random() < self.share
        return self._observe(), {}

    def step(self, action):
        assert np.all(action >= -2) and np.all(action <= 3)
        self.state += action
        action *= 0
        reward = float(self.t + 1)
        if self.t == 2 and self.misbehaves:
            if self.mode == "raise":
                raise RuntimeError("the motor\\nis on fire")
            if self.mode == "exit":
                os._exit(3)
            if self.mode == "nan":
                self.state[1] = np.nan
            if self.mode == "inf":
                reward = np.inf
        self.t += 1
        return self._observe(), reward, self.mode == "ends" and self.t == 7, False, {}

gym.register("Odd-v0", entry_point=Odd)
'''


@pytest.fixture(scope="module", autouse=True)
def odd_environments(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "odd_environments.py").write_text(ODD_ENVIRONMENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


def run(environment: str, **settings: Any) -> tuple[Header, list[Record]]:
    header, records = run_episodes(CollectSettings(environment, **{"workers": 1, **settings}))
    return header, list(records)


def run_odd(mode: str, **settings: Any) -> tuple[Header, list[Record]]:
    share = settings.pop("share", 1.0)
    return run(
        "odd_environments:Odd-v0",
        env_args={"mode": mode, "share": share},
        **{"episodes": 2, "max_episode_steps": 20, **settings},
    )


@pytest.mark.long
def test_same_file_whatever_the_number_of_workers(tmp_path: Path) -> None:
    files = []
    for workers in (1, 2, 3):
        settings = CollectSettings(
            "Factored",
            episodes=13,
            workers=workers,
            seed=4,
            keep_true_rewards=True,
            env_args={"length": 40, "min_length": 5},
        )
        path = tmp_path / f"{workers}.h5"
        write_dataset(path, *run_episodes(settings))
        files.append(path)
    with open_recording(files[0]) as first:
        for path in files[1:]:
            with open_recording(path) as other:
                assert other.header == first.header
                for got, expected in zip(other, first, strict=True):
                    samples.assert_same_record(got, expected)
    if h5py.version.hdf5_version_tuple >= (2,):  # older ones put the time into every group
        assert files[0].read_bytes() == files[1].read_bytes() == files[2].read_bytes()


def test_other_seeds_give_other_data() -> None:
    first, second = (run("Hopper", episodes=2, seed=seed)[1] for seed in (0, 1))
    assert first[0].attributes["seed"] != second[0].attributes["seed"]
    assert not np.array_equal(first[0].actions[""][:5], second[0].actions[""][:5])
    assert not np.array_equal(first[0].actions[""][:5], first[1].actions[""][:5])


def test_record_is_what_gymnasium_does() -> None:
    """The actions of a record, replayed from its seed in a plain loop, give the record."""
    import gymnasium as gym

    header, records = run("Walker2d", episodes=3, keep_true_rewards=True)
    assert header.environment == "Walker2d-v5"
    assert header.observation_names is not None
    env = gym.make("Walker2d-v5", disable_env_checker=True)
    for record in records:
        observation, _ = env.reset(seed=int(record.attributes["seed"]))
        for t, action in enumerate(record.actions[""]):
            np.testing.assert_array_equal(record.observations[""][t], observation.astype("f4"))
            observation, reward, terminated, truncated, _ = env.step(action)
            assert record.extras["true_rewards"][t] == reward
            assert record.terminations[t] == terminated
            assert record.truncations[t] == truncated
        assert terminated or truncated
        np.testing.assert_array_equal(record.observations[""][-1], observation.astype("f4"))
        assert len(record.observations[""]) == len(record.actions[""]) + 1
        assert record.observations[""].dtype == record.actions[""].dtype == np.float32
        assert record.rewards.dtype == np.float64


def test_time_limit_is_a_truncation() -> None:
    _, records = run("HalfCheetah", episodes=1, max_episode_steps=15)
    assert len(records[0].rewards) == 15
    assert records[0].truncations.tolist() == [False] * 14 + [True]
    assert not records[0].terminations.any()


def test_without_a_limit_1000_steps_and_termination_before() -> None:
    header, records = run_odd("fine", max_episode_steps=None, episodes=1)
    assert len(records[0].rewards) == 1000
    assert records[0].truncations[-1]
    assert header.settings["max_episode_steps"] == 1000
    _, records = run_odd("ends", max_episode_steps=None, episodes=1)
    assert len(records[0].rewards) == 7
    assert records[0].terminations[-1]
    assert not records[0].truncations.any()


@pytest.mark.parametrize("delay", ["end", 2, 4, 50])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_deliveries(delay: int | str, discount: float) -> None:
    header, records = run_odd(
        "ends", delay=delay, discount=discount, keep_true_rewards=True, episodes=1
    )
    expected, total = [], 0.0
    for t in range(7):
        total += discount**t * (t + 1)
        is_due = t == 6 or (delay != "end" and (t + 1) % int(delay) == 0)
        expected.append(total if is_due else 0.0)
        total = 0.0 if is_due else total
    np.testing.assert_allclose(records[0].rewards, expected, rtol=1e-12)
    np.testing.assert_array_equal(records[0].extras["true_rewards"], np.arange(1.0, 8.0))
    assert (header.delay, header.discount) == (delay, discount)


def test_delay_of_one_is_the_reward_itself(tmp_path: Path) -> None:
    header, records = run_odd("ends", delay=1, discount=0.9)
    np.testing.assert_array_equal(records[0].rewards, np.arange(1.0, 8.0))
    write_dataset(tmp_path / "a.h5", header, records)
    episode = read(tmp_path / "a.h5")[0]
    assert episode.delivered.all()
    expected = sum(0.9**t * (t + 1) for t in range(7))
    assert episode.compute_return(0.9) == pytest.approx(expected)
    assert len(deliver(np.ones(1), "end", 0.9)) == 1


def test_truth_is_kept_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_dataset(path, *run("Factored", episodes=2))
    with open_recording(path) as recording:
        assert not recording.header.truth
        assert not recording.load(0).extras
        assert np.count_nonzero(recording.load(0).rewards) == 1
    assert b"noise_free" not in path.read_bytes()
    assert b"masks" not in path.read_bytes()

    header, records = run("Factored", episodes=2, keep_true_rewards=True)
    world = FactoredEnv().world
    for name, mask in world.masks.items():
        np.testing.assert_array_equal(header.truth["masks"][name], mask)
    extras = records[0].extras
    assert set(extras) == {"true_rewards", "noise_free_rewards"}
    noise = extras["true_rewards"] - extras["noise_free_rewards"]
    assert 0 < noise.std() < extras["true_rewards"].std()
    assert records[0].rewards[-1] == pytest.approx(extras["true_rewards"].sum())


def test_settings_tell_how_but_not_when_or_where() -> None:
    settings = run("Factored", episodes=2, seed=3, env_args={"length": 9})[0].settings
    assert settings["environment"] == "grd/Factored-v0"
    assert settings["env_args"] == {"length": 9}
    assert (settings["seed"], settings["policy"], settings["max_episode_steps"]) == (
        3,
        "explore",
        9,
    )
    assert set(settings["versions"]) == {"grd-offline", "gymnasium", "mujoco", "numpy"}
    assert "workers" not in settings


def test_discrete_actions_stay_integers(tmp_path: Path) -> None:
    header, records = run("CartPole-v1", episodes=4)
    assert header.action_leaves[0].categories == (2,)
    assert records[0].actions[""].dtype == np.int64
    assert records[0].terminations[-1]
    write_dataset(tmp_path / "a.h5", header, records)
    assert read(tmp_path / "a.h5").action_size == 2


def test_dict_observations_become_leaves(tmp_path: Path) -> None:
    header, records = run_odd("dict")
    assert [leaf.path for leaf in header.observation_leaves] == ["arm/angle", "gear", "speed"]
    assert records[0].observations["arm/angle"].tolist() == list(range(21))
    assert records[0].observations["gear"].tolist()[:4] == [1, 2, 3, 1]
    assert records[0].observations["speed"].shape == (21, 2)
    write_dataset(tmp_path / "a.h5", header, records)
    assert read(tmp_path / "a.h5").state_size == 1 + 3 + 2


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("nan", r"episode 0: observations: nan at step 3, dimension 1"),
        ("inf", r"episode 0: rewards: inf at step 2"),
        ("raise", r"episode 0: .*Odd-v0 failed at step 2: RuntimeError: the motor is on fire"),
    ],
)
def test_misbehaving_environment(mode: str, message: str, workers: int) -> None:
    with pytest.raises(DataError, match=message):
        run_odd(mode, workers=workers)


@pytest.mark.long
def test_first_error_is_the_same_for_any_number_of_workers() -> None:
    errors = set()
    for workers in (1, 3):
        with pytest.raises(DataError) as caught:
            run_odd("raise", share=0.2, episodes=40, workers=workers)
        errors.add(str(caught.value))
    assert len(errors) == 1


def test_worker_that_dies() -> None:
    with pytest.raises(DataError, match="worker process died with exit code 3"):
        run_odd("exit", workers=2, share=0.3, episodes=30)


@pytest.mark.parametrize("mode", ["image", "text"])
def test_unsupported_observations(mode: str) -> None:
    with pytest.raises(DataError, match=r"observations: (images|expected numbers)"):
        run_odd(mode)


def test_environment_that_cannot_be_made() -> None:
    with pytest.raises(DataError, match=r"HalfCheetah-v5 cannot be made: .*wheels"):
        run("HalfCheetah", env_args={"wheels": 4})
    with pytest.raises(DataError, match=r"did you mean HalfCheetah-v5"):
        run("HalfCheeta")
    with pytest.raises(DataError, match=r"finds no module no_such_place: install it, or name its"):
        run("no_such_place.inner:Task-v0")


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": 0},
        {"workers": 0},
        {"seed": -1},
        {"policy": "clever"},
        {"delay": 0},
        {"delay": "never"},
        {"discount": 0.0},
        {"discount": 1.1},
        {"max_episode_steps": 0},
        {"env_args": {"a": object()}},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"{next(iter(wrong))}: expected"):
        CollectSettings("Hopper", **wrong)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_stopping_keeps_what_is_finished(workers: int) -> None:
    seen: list[Record] = []
    settings = CollectSettings("Factored", episodes=500, workers=workers)
    _, records = run_episodes(settings, Stopper(lambda: len(seen) >= 3))
    for record in records:
        seen.append(record)
    assert 3 <= len(seen) < 30
    _, expected = run("Factored", episodes=len(seen))
    for ours, theirs in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_do_not_outlive_a_killed_parent() -> None:
    script = (
        "from grd_offline.learning.collecting.dataset import *\n"
        "if __name__ == '__main__':\n"
        "    _, records = run_episodes(CollectSettings('Factored', episodes=10**6, workers=2))\n"
        "    next(records); print('running', flush=True)\n"
        "    for record in records: pass\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "running\n"
    children = [pid for pid, status in processes().items() if status[1] == parent.pid]
    assert len(children) >= 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(pid in processes() for pid in children):
        time.sleep(0.05)
    assert not any(pid in processes() for pid in children)


def processes() -> dict[int, tuple[str, int]]:
    """State and parent of every process that is not a zombie."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry)] = (state, int(parent))
    return found


@pytest.mark.parametrize("policy", ["random", "explore"])
def test_box_actions(policy: str) -> None:
    low = np.array([[-1.0, 0.1, -np.inf], [-np.inf, 2.0, -1e300]])
    high = np.array([[1.0, 0.3, np.inf], [5.0, np.inf, 1e300]])
    for seed in range(20):
        actions = draw_box_actions(policy, low, high, 200, np.random.default_rng(seed))
        assert actions.shape == (200, 2, 3)
        assert actions.dtype == np.float32
        assert np.isfinite(actions).all()
        wide = actions.astype(np.float64)
        assert (wide >= low).all()
        assert (wide <= high).all()
        assert (np.ptp(wide, axis=0) > 0).all()


def test_exploration_differs_between_episodes() -> None:
    """Some episodes move slowly, some quickly, which is what makes returns differ."""
    low, high = -np.ones(4), np.ones(4)
    change = []
    for seed in range(60):
        actions = draw_box_actions("explore", low, high, 300, np.random.default_rng(seed))
        change.append(np.abs(np.diff(actions, axis=0)).mean())
    assert min(change) < 0.1
    assert max(change) > 0.5


def test_drifting_noise_is_the_recursion() -> None:
    from grd_offline.learning.agents.exploration import _accumulate

    shocks = np.random.default_rng(0).standard_normal((77, 2))
    expected = shocks.copy()
    for t in range(1, 77):
        expected[t] += 0.9 * expected[t - 1]
    np.testing.assert_allclose(_accumulate(shocks, 0.9), expected)


@pytest.mark.parametrize("policy", ["random", "explore"])
def test_discrete_actions(policy: str) -> None:
    drawn = [
        draw_discrete_actions(policy, 3, 100, np.random.default_rng(seed)) for seed in range(40)
    ]
    assert set(np.concatenate(drawn)) == {0, 1, 2}
    repeats = [float((actions[1:] == actions[:-1]).mean()) for actions in drawn]
    assert (max(repeats) > 0.7) == (policy == "explore")


def test_a_dataset_has_no_ending_of_a_table(tmp_path: Path) -> None:
    """It is refused before anything is collected."""
    with pytest.raises(DataError, match=r"a dataset: give it the ending \.h5"):
        collect("Pendulum", tmp_path / "data.csv", episodes=10**6)
    assert list(tmp_path.iterdir()) == []
