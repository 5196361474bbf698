"""Relabelled data for other libraries: each row is one step, with what followed it.

Tests import these libraries themselves: it takes seconds, which every test process would spend.
"""

import counting
import h5py
import numpy as np
import pytest
import torch
import worlds
from reward_models import make_ends, make_sized

from grd_offline import DataError, LearnedReward, RewardModel, interop, read, relabel, to_d4rl
from grd_offline.interop.d4rl import read_steps
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset
from grd_offline.learning.offline.run import load_data

counting.register()

LENGTHS = (3, 1, 2, 4)
ENDS = ("terminated", "truncated", "both", "neither")


def write_counted(path, *, final=True, layout="own"):
    """Episodes in which observation k of episode e is 100 e + k, and rewards likewise."""
    records = []
    for number, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        last = np.arange(length) == length - 1
        seen = 100 * number + np.arange(length + final)
        records.append(
            Record(
                observations={"": np.stack([seen, -seen], 1).astype(np.float32)},
                actions={"": (100 * number + np.arange(length))[:, None].astype(np.float32)},
                rewards=(100.0 * number + np.arange(length)),
                terminations=last & (end in ("terminated", "both")),
                truncations=last & (end in ("truncated", "both")),
                extras={"observed_rewards": last * 7.0, "wide": np.zeros((length, 2))},
            )
        )
    header = Header(
        observation_leaves=(Leaf("", (2,), "float32"),), action_leaves=(Leaf("", (1,), "float32"),)
    )
    write_dataset(path, header, records, layout=layout, lengths=np.array(LENGTHS))
    return path


@pytest.mark.parametrize("layout", ["own", "d4rl"])
def test_every_row_is_one_step_of_one_episode(tmp_path, layout):
    data = to_d4rl(write_counted(tmp_path / "data.h5", layout=layout))
    assert {name: value.dtype.name for name, value in data.items()} == {
        "observations": "float32",
        "actions": "float32",
        "next_observations": "float32",
        "rewards": "float32",
        "terminals": "bool",
        "timeouts": "bool",
    }
    expected = np.concatenate([100 * e + np.arange(n) for e, n in enumerate(LENGTHS)])
    for name in ("observations", "actions"):
        np.testing.assert_array_equal(data[name][:, 0], expected)
    np.testing.assert_array_equal(data["rewards"], expected)
    np.testing.assert_array_equal(data["next_observations"], data["observations"] + [1, -1])
    stops = np.cumsum(LENGTHS) - 1
    np.testing.assert_array_equal(np.flatnonzero(data["terminals"]), stops[[0, 2]])
    np.testing.assert_array_equal(np.flatnonzero(data["timeouts"]), stops[[1, 3]])


def test_steps_whose_outcome_is_not_known_are_left_out(tmp_path):
    """Without final observations: a terminal step needs none, the others have to go."""
    path = write_counted(tmp_path / "data.h5", final=False)
    data = to_d4rl(path)
    assert data["rewards"].tolist() == [0, 1, 2, 200, 201, 300, 301, 302]
    assert np.flatnonzero(data["terminals"]).tolist() == [2, 4]
    assert np.flatnonzero(data["timeouts"]).tolist() == [7]
    inner = ~data["terminals"]
    next_observations = data["observations"][inner] + [1, -1]
    np.testing.assert_array_equal(data["next_observations"][inner], next_observations)
    assert len(read_steps(path, "rewards")) == sum(LENGTHS)


@pytest.mark.long
def test_next_observations_are_those_of_the_file(tmp_path):
    """In shuffled data a step does not lead to the one below it."""
    path = write_counted(tmp_path / "data.h5", layout="d4rl")
    with h5py.File(path, "r+") as file:
        file["next_observations"][:] = file["observations"][:] + 1000
    data = to_d4rl(path)
    np.testing.assert_array_equal(data["next_observations"], data["observations"] + 1000)
    next_observations = interop.to_tensordict(path)["next", "observation"].numpy()
    np.testing.assert_array_equal(next_observations, data["next_observations"])
    with h5py.File(path, "r+") as file:
        file["next_observations"][0, 1] = np.nan
    with pytest.raises(DataError, match="next_observations: nan at step 0, dimension 1"):
        to_d4rl(path)
    told = load_data(path).warnings
    assert any("next_observations do not follow on" in warning for warning in told)


def test_rewards_come_from_the_field_that_is_named(tmp_path):
    path = write_counted(tmp_path / "data.h5")
    observed = to_d4rl(path, rewards="observed_rewards")["rewards"]
    assert np.flatnonzero(observed).tolist() == (np.cumsum(LENGTHS) - 1).tolist()
    for field in ("true_rewards", "wide"):
        with pytest.raises(
            DataError, match=f"{field}: no such field .*there are: observed_rewards"
        ):
            to_d4rl(path, rewards=field)


@pytest.mark.parametrize("final", [True, False])
def test_relabelled_data_know_where_episodes_terminated(tmp_path, final):
    """Observation k of episode e is 100 e + k; the first and the third episode terminate."""
    path, model = write_counted(tmp_path / "data.h5", final=final), make_ends(2, 1)
    model.save(tmp_path / "model")
    relabel(path, tmp_path / "model", tmp_path / "new.h5")
    steps = read_steps(tmp_path / "new.h5", "rewards")
    ends = np.cumsum(LENGTHS) - 1
    expected = steps.observations[:, 0] + 0.5
    if not final:  # the last observation is taken for the next one
        expected[ends] -= 0.5
    expected[ends[[0, 2]]] += 1000
    np.testing.assert_allclose(steps.rewards, expected)
    data = to_d4rl(tmp_path / "new.h5")
    names = ("observations", "actions", "next_observations", "terminals")
    np.testing.assert_allclose(data["rewards"], model.predict(*(data[name] for name in names)))


@pytest.fixture(scope="module")
def decomposed(tmp_path_factory):
    """What `decompose` leaves, by way of a model made by hand."""
    from grd_offline import DecomposeSettings, decompose_file

    folder = tmp_path_factory.mktemp("world")
    path = worlds.write_world(folder / "data.h5", worlds.make_world(), 20)
    return decompose_file(path, folder / "grd", DecomposeSettings(fit="closed-form")).folder


@pytest.mark.long
def test_the_folder_of_a_decomposition_gives_its_learned_rewards(decomposed):
    data = to_d4rl(decomposed)
    model = RewardModel.load(decomposed)
    predicted = model.predict(data["observations"], data["actions"], data["next_observations"])
    np.testing.assert_allclose(data["rewards"], predicted, rtol=1e-4, atol=1e-5)
    true = to_d4rl(decomposed, rewards="true_rewards")["rewards"]
    observed = to_d4rl(decomposed, rewards="observed_rewards")["rewards"]
    assert observed.sum() == pytest.approx(true.sum(), rel=1e-4)
    assert (observed != 0).sum() == 20
    assert len(true) == read(decomposed / "relabelled.h5").total_steps


def test_a_tensordict_of_the_same_steps(decomposed):
    data, expected = interop.to_tensordict(decomposed), to_d4rl(decomposed)
    for key, name in (
        ("observation", "observations"),
        ("action", "actions"),
        (("next", "observation"), "next_observations"),
    ):
        np.testing.assert_array_equal(data[key], expected[name])
    for key, name in (
        ("reward", "rewards"),
        ("terminated", "terminals"),
        ("truncated", "timeouts"),
    ):
        assert data["next", key].shape == (len(data), 1)
        np.testing.assert_array_equal(data["next", key].squeeze(-1), expected[name])
    assert (data["next", "done"] == data["next", "terminated"] | data["next", "truncated"]).all()
    assert not data["done"].any()


def test_torchrl_samples_relabelled_data(decomposed):
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler

    data = interop.to_tensordict(decomposed)
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(len(data)),
        sampler=SliceSampler(slice_len=5, traj_key="episode"),
        batch_size=20,
    )
    buffer.extend(data)
    batch = buffer.sample().reshape(4, 5)
    assert (batch["episode"] == batch["episode"][:, :1]).all()
    np.testing.assert_array_equal(batch["observation"][:, 1:], batch["next", "observation"][:, :-1])
    model = RewardModel.load(decomposed)
    keys = ("observation", "action", ("next", "observation"), ("next", "terminated"))
    steps = [batch[key].flatten(0, 1) for key in keys]
    expected = model.predict(*steps[:3], steps[3][:, 0])
    np.testing.assert_allclose(batch["next", "reward"].flatten(), expected, rtol=1e-4, atol=1e-4)


def test_the_transform_relabels_what_a_buffer_gives(decomposed):
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    data = interop.to_tensordict(decomposed, rewards="observed_rewards")
    buffer = ReplayBuffer(storage=LazyTensorStorage(len(data)), batch_size=30)
    buffer.append_transform(interop.LearnedRewardTransform(decomposed))
    buffer.extend(data)
    batch = buffer.sample()
    ended = batch["next", "terminated"][:, 0]
    steps = (batch["observation"], batch["action"], batch["next", "observation"], ended)
    expected = RewardModel.load(decomposed).predict(*steps)
    np.testing.assert_allclose(batch["next", "reward"][:, 0], expected, rtol=1e-4, atol=1e-4)
    assert set(batch["next", "true_reward"].unique().tolist()) <= {
        *data["next", "reward"].unique().tolist()
    }
    # The data in the buffer keep their own.
    assert torch.equal(buffer[:]["next", "true_reward"], data["next", "reward"])


def test_what_the_transform_misses_is_named(decomposed):
    data = interop.to_tensordict(decomposed)[:5]
    with pytest.raises(KeyError, match=r"pixels: not there, .*; there are: action, .*obs"):
        interop.LearnedRewardTransform(decomposed, observation_key="pixels")(data)
    with pytest.raises(KeyError, match="next: not there"):
        interop.LearnedRewardTransform(decomposed)(data.exclude("next"))


def test_the_transform_pays_in_an_environment():
    from torchrl.envs import GymEnv, TransformedEnv
    from torchrl.envs.utils import check_env_specs

    env = TransformedEnv(GymEnv("Pendulum-v1"), interop.LearnedRewardTransform(make_sized(3, 1)))
    check_env_specs(env)
    env.set_seed(0)
    rollout = env.rollout(10)
    expected = make_sized(3, 1).predict(rollout["observation"], rollout["action"])
    np.testing.assert_allclose(rollout["next", "reward"][:, 0], expected, rtol=1e-4)
    plain = GymEnv("Pendulum-v1")
    plain.set_seed(0)
    torch.testing.assert_close(
        rollout["next", "observation"].shape, plain.rollout(10)["next", "observation"].shape
    )
    angle, speed = (
        torch.atan2(rollout["observation"][:, 1], rollout["observation"][:, 0]),
        rollout["observation"][:, 2],
    )
    cost = angle**2 + 0.1 * speed**2 + 0.001 * rollout["action"][:, 0] ** 2
    torch.testing.assert_close(rollout["next", "true_reward"][:, 0], -cost, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("terminates", [True, False])
def test_the_transform_reads_terminated_and_never_done(terminates):
    from torchrl.envs import GymEnv, TransformedEnv

    plain = GymEnv(counting.ID, terminates=terminates)
    env = TransformedEnv(plain, interop.LearnedRewardTransform(make_ends(1, 1)))
    rollout = env.rollout(3)
    assert rollout["next", "done"][-1]
    expected = rollout["observation"][:, 0] + 0.5
    expected[-1] += 1000 * terminates
    torch.testing.assert_close(rollout["next", "reward"][:, 0], expected, rtol=0, atol=1e-3)
    again = interop.LearnedRewardTransform(make_ends(1, 1))(rollout.clone())
    torch.testing.assert_close(again["next", "reward"][:, 0], expected, rtol=0, atol=1e-3)
    with pytest.raises(KeyError, match="terminated: not there"):
        interop.LearnedRewardTransform(make_ends(1, 1))(rollout.exclude(("next", "terminated")))


def test_sb3_tells_a_termination_from_a_truncation():
    from stable_baselines3.common.vec_env import DummyVecEnv

    kinds = [lambda: counting.Counting(terminates=True), counting.Counting]
    venv = interop.LearnedRewardVecEnv(DummyVecEnv(kinds), make_ends(1, 1))
    observations = venv.reset().copy()
    for step in range(1, 10):
        next_observations, rewards, dones, _ = venv.step(np.zeros((2, 1), np.float32))
        assert dones.tolist() == [step % 3 == 0] * 2
        np.testing.assert_allclose(rewards, observations[:, 0] + 0.5 + dones * [1000, 0])
        observations = next_observations.copy()


def test_sb3_pairs_are_those_of_the_step():
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    model = counting.make_model()
    venv = interop.LearnedRewardVecEnv(DummyVecEnv([counting.Counting] * 2), model)
    first = venv.reset()
    assert first.shape == (2, 1)
    ends = 0
    for step in range(9):
        action = np.full((2, 1), 0.1 * step, np.float32)
        _, rewards, dones, infos = venv.step(action)
        np.testing.assert_allclose(rewards, 1 + 10 * action[:, 0], rtol=1e-6)
        assert rewards.dtype == np.float32
        assert [info["true_reward"] for info in infos] == [5.0, 5.0]
        ends += int(dones.sum())
    assert ends == 6
    assert model.function.asked == 18
    with pytest.raises(ValueError, match="expects 1 state and 1 action"):
        interop.LearnedRewardVecEnv(make_vec_env("Pendulum-v1"), model)


def test_sb3_trains_on_the_learned_reward():
    """A short SAC run on HalfCheetah: what it stores is the model's reward of its own steps."""

    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env

    model = make_sized(17, 6)
    venv = make_vec_env(
        "HalfCheetah-v5", wrapper_class=LearnedReward, wrapper_kwargs={"model": model}
    )
    agent = SAC("MlpPolicy", venv, learning_starts=40, batch_size=32, seed=0, device="cpu")
    before = [parameter.clone() for parameter in agent.actor.parameters()]
    agent.learn(80)
    buffer = agent.replay_buffer
    expected = model.predict(buffer.observations[:80, 0], buffer.actions[:80, 0])
    # The environment sees float64, the buffer keeps float32.
    np.testing.assert_allclose(buffer.rewards[:80, 0], expected, rtol=1e-3, atol=1e-2)
    after = agent.actor.parameters()
    assert all(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
