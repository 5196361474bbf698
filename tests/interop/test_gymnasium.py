"""Learned rewards and compact observations in Gymnasium, one environment and many."""

import subprocess
import sys
import warnings

import counting
import gymnasium
import numpy as np
import point_mass
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation
from reward_models import make_ends, make_sized

from grd_offline import (
    CompactObservation,
    LearnedReward,
    RewardModel,
    VectorLearnedReward,
    from_dataframe,
    open_recording,
    read,
    write_dataset,
)
from grd_offline.interop.gymnasium import EnvironmentReward
from grd_offline.learning.collecting.dataset import run_episodes
from grd_offline.learning.settings import CollectSettings

point_mass.register()
counting.register()


@pytest.fixture
def folder(tmp_path):
    make_sized(2, 1, mask=[1, 0]).save(tmp_path / "reward_model")
    return tmp_path


def roll(env, steps, seed=0):
    """Observations, actions, rewards, true rewards of one episode."""
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    rows = []
    for _ in range(steps):
        action = env.action_space.sample()
        next_observations, reward, terminated, truncated, info = env.step(action)
        rows.append((observation, action, reward, info.get("true_reward"), terminated, truncated))
        observation = next_observations
    return rows


def test_the_model_pays_and_the_truth_is_in_the_info(folder):
    rows = roll(LearnedReward(gymnasium.make(point_mass.ID), folder), 20)
    bare = roll(gymnasium.make(point_mass.ID), 20)
    np.testing.assert_array_equal([row[0] for row in rows], [row[0] for row in bare])
    assert [row[3] for row in rows] == [row[2] for row in bare]
    observations, actions = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    expected = RewardModel.load(folder).predict(observations, actions)
    np.testing.assert_allclose([row[2] for row in rows], expected, rtol=1e-12)
    assert all(type(row[2]) is float for row in rows)


def test_pairs_are_those_of_the_step():
    env = LearnedReward(gymnasium.make(counting.ID), counting.make_model())
    for seed in (0, 1):
        for _, action, reward, true, *_ in roll(env, 3, seed):
            assert reward == pytest.approx(1 + 10 * action[0])
            assert true == 5


@pytest.mark.parametrize("terminates", [True, False])
def test_the_end_of_an_episode_is_paid_where_it_terminated(terminates):
    """A step leads from k to k + 1; a truncated one is no termination."""
    env = LearnedReward(gymnasium.make(counting.ID, terminates=terminates), make_ends(1, 1))
    for seed in (0, 1):
        rows = roll(env, 3, seed)
        assert [row[4:] for row in rows[1:]] == [(False, False), (terminates, not terminates)]
        for observation, _, reward, _, terminated, _ in rows:
            assert reward == pytest.approx(observation[0] + 0.5 + 1000 * terminated)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_each_environment_of_a_vector_is_paid_for_its_own_end(mode):
    kinds = [lambda: counting.Counting(terminates=True), counting.Counting]
    envs = VectorLearnedReward(SyncVectorEnv(kinds, autoreset_mode=mode), make_ends(1, 1))
    observations, _ = envs.reset(seed=0)
    ends = np.zeros(2)
    for _ in range(9):
        next_observations, paid, terminations, truncations, infos = envs.step(
            np.zeros((2, 1), np.float32)
        )
        expected = observations[:, 0] + 0.5 + 1000 * terminations
        np.testing.assert_allclose(paid, np.where(infos["_true_reward"], expected, 0))
        ends += [terminations[0], truncations[1]]
        assert not terminations[1]
        observations = next_observations.copy()
    assert (ends >= 2).all()


class Scaling(counting.Counting):
    """Writes into the action that it is given, as some environments do."""

    def step(self, action):
        action *= 0.5
        return super().step(action)


def test_the_action_is_the_one_that_was_chosen():
    env = LearnedReward(Scaling(), counting.make_model())
    env.reset(seed=0)
    assert env.step(np.array([0.5], np.float32))[1] == pytest.approx(1 + 10 * 0.5)
    envs = VectorLearnedReward(SyncVectorEnv([Scaling, Scaling]), counting.make_model())
    envs.reset(seed=0)
    actions = np.array([[0.5], [-0.5]], np.float32)
    np.testing.assert_allclose(envs.step(actions)[1], [6.0, -4.0])


def test_it_passes_gymnasiums_check(folder):
    for make in (
        lambda: LearnedReward(gymnasium.make(point_mass.ID), str(folder)),
        lambda: CompactObservation(gymnasium.make(point_mass.ID), str(folder)),
        lambda: LearnedReward(gymnasium.make("HalfCheetah-v5"), make_sized(17, 6)),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_env(make(), skip_render_check=True)
        told = " ".join(str(warning.message) for warning in caught)
        # That it is wrapped and unbounded is said of every such environment.
        assert not [
            w for w in caught if not ("unwrapped" in str(w.message) or "infinity" in str(w.message))
        ], told


def test_the_spec_goes_through_json_and_makes_it_again(folder):
    env = LearnedReward(gymnasium.make(point_mass.ID), folder)
    env = CompactObservation(env, folder)
    text = env.spec.to_json()
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(text))
    assert [row[2] for row in roll(again, 20)] == [row[2] for row in roll(env, 20)]
    assert again.observation_space == env.observation_space
    by_mask = CompactObservation(gymnasium.make(point_mass.ID), RewardModel.load(folder))
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(by_mask.spec.to_json()))
    assert again.observation_space.shape == (1,)


def test_a_model_of_another_size_is_refused_with_both_counts(folder):
    compact = CompactObservation(gymnasium.make(point_mass.ID), folder)
    with pytest.raises(ValueError, match=r"expects 2 state and 1 action .* has 1 and 1"):
        LearnedReward(compact, folder)
    with pytest.raises(gymnasium.error.ResetNeeded):
        LearnedReward(point_mass.PointMass(), folder).step(np.zeros(1))


def test_choices_that_are_numbers_in_the_data_are_to_be_categories():
    one = spaces.Box(-9, 9, (1,), np.float32)
    with pytest.raises(ValueError, match=r"1 and 2: .*categories=.* in from_dataframe"):
        EnvironmentReward(make_sized(1, 1), one, spaces.Discrete(2))
    table = {"view": [0, 1], "x": [1.0, 2.0], "ad_shown": [0, 1], "return": [1, 2]}
    episodes = from_dataframe(table, episode="view", actions="ad_shown", categories="ad_shown")
    assert episodes.action_names == ("ad_shown=0", "ad_shown=1")
    assert EnvironmentReward(make_sized(1, 2), one, spaces.Discrete(2)).model is not None


@pytest.mark.parametrize("masks", ["folder", "model", "array", "list"])
def test_the_compact_observation_is_what_the_mask_says(masks, folder):
    given = {
        "folder": folder,
        "model": RewardModel.load(folder),
        "array": np.array([True, False]),
        "list": [1, 0],
    }[masks]
    env = CompactObservation(gymnasium.make(point_mass.ID), given)
    shown = [row[0] for row in roll(env, 20)]
    whole = [row[0] for row in roll(gymnasium.make(point_mass.ID), 20)]
    np.testing.assert_array_equal(shown, np.array(whole)[:, :1])
    assert env.observation_space.contains(shown[0])


def test_masks_that_do_not_fit_are_refused():
    env = gymnasium.make(point_mass.ID)
    for masks, message in (
        ([1, 0, 1], "masks: 3 dimensions, expected an environment whose observations have as many"),
        ([0, 0], "no dimension is left"),
        ([0.5, 1], "expected a 0 or 1 per dimension"),
    ):
        with pytest.raises(ValueError, match=message):
            CompactObservation(env, masks)


class Nested(gymnasium.Env):
    """Observations in a Dict whose keys are not in order, and discrete actions from 3."""

    observation_space = spaces.Dict(  # by name: Gymnasium would sort a plain dictionary
        z=spaces.Box(-1, 1, (2,)), a=spaces.Discrete(3), m=spaces.MultiDiscrete([2, 3])
    )
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_nested_observations_and_discrete_actions_are_laid_out_as_in_datasets(tmp_path):
    """Against what `collect` and `read` make of the same environment."""
    if "tests/Nested-v0" not in gymnasium.registry:
        gymnasium.register("tests/Nested-v0", entry_point=Nested)
    settings = CollectSettings("tests/Nested-v0", episodes=1, max_episode_steps=5, workers=1)
    write_dataset(tmp_path / "nested.h5", *run_episodes(settings))
    episode = read(tmp_path / "nested.h5")[0]
    with open_recording(tmp_path / "nested.h5") as recording:
        record = recording.load(0)

    model = make_sized(10, 2)
    envs = VectorLearnedReward(SyncVectorEnv([Nested] * 3), model)
    batch = envs._reward.flatten_observations(record.observations, 6)
    np.testing.assert_array_equal(batch, episode.observations)
    choices = envs._reward.flatten_actions(record.actions[""], 5)
    np.testing.assert_array_equal(choices, episode.actions)

    env = LearnedReward(Nested(), model)
    (row,) = env._reward.flatten_observations({k: v[0] for k, v in record.observations.items()})
    np.testing.assert_array_equal(row, episode.observations[0])
    np.testing.assert_array_equal(env._reward.flatten_actions(4), [[0, 1]])
    env.reset(seed=1)
    assert isinstance(env.step(4)[1], float)
    envs.reset(seed=1)
    assert envs.step(np.array([3, 4, 3]))[1].shape == (3,)

    kept = [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    compact = CompactObservation(Nested(), kept)
    shown = compact.observation({k: v[0] for k, v in record.observations.items()})
    np.testing.assert_array_equal(shown, episode.observations[0][[0, 3, 9]])
    assert compact.observation_space == spaces.Box(np.float32([0, 0, -1]), np.float32([1, 1, 1]))
    assert compact.observation_space.contains(compact.reset(seed=0)[0])


def make_vector(mode, count=2):
    model = counting.make_model()
    # The second starts one step late, so that episodes end at different times.
    envs = SyncVectorEnv([counting.Counting, Late][:count], autoreset_mode=mode)
    return VectorLearnedReward(envs, model), model.function


class Late(counting.Counting):
    def reset(self, *, seed=None, options=None):
        observation = super().reset(seed=seed)
        self.time = 1 if self.shown == 0 else 0
        return observation


def test_the_fake_step_after_an_episode_pays_nothing_and_asks_no_model():
    envs, function = make_vector(AutoresetMode.NEXT_STEP)
    envs.reset(seed=0)
    rewards, real = [], []
    for step in range(9):
        action = np.full((2, 1), 0.1 * (step % 3), np.float32)
        _, paid, _, _, infos = envs.step(action)
        rewards.append(paid - 10 * action[:, 0])
        real.append(infos["_true_reward"])
        np.testing.assert_array_equal(infos["true_reward"], np.where(infos["_true_reward"], 5.0, 0))
        assert (paid[~infos["_true_reward"]] == 0).all()
    real = np.array(real)
    # Three steps, then the reset; the second environment's first episode has two.
    assert real[:, 0].tolist() == [True] * 3 + [False] + [True] * 3 + [False, True]
    assert real[:, 1].tolist() == [True] * 2 + [False] + [True] * 3 + [False, True, True]
    np.testing.assert_allclose(np.array(rewards)[real], 1, atol=1e-6)
    assert function.asked == real.sum()


def test_a_reset_in_the_same_step_leads_to_the_final_observation():
    envs, function = make_vector(AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    ends = 0
    for _ in range(9):
        _, paid, terminations, truncations, infos = envs.step(np.zeros((2, 1), np.float32))
        np.testing.assert_allclose(paid, 1)
        assert infos["_true_reward"].all()
        ends += int((terminations | truncations).sum())
    assert ends == 6
    assert function.asked == 18


def test_environments_that_the_user_resets():
    envs, _ = make_vector(AutoresetMode.DISABLED)
    envs.reset(seed=0)
    for _ in range(9):
        _, paid, terminations, truncations, _ = envs.step(np.zeros((2, 1), np.float32))
        np.testing.assert_allclose(paid, 1)
        over = terminations | truncations
        if over.any():
            envs.reset(options={"reset_mask": over})


def test_a_reset_by_the_user_forgets_the_one_that_was_due():
    envs, _ = make_vector(AutoresetMode.NEXT_STEP, 1)
    for _ in range(2):
        envs.reset(seed=0)
        for _ in range(3):
            np.testing.assert_allclose(envs.step(np.zeros((1, 1), np.float32))[1], 1)


def test_made_from_a_folder_and_flattened(folder):
    envs = VectorLearnedReward(gymnasium.make_vec(point_mass.ID, num_envs=3), folder)
    assert envs.model.compact_mask.tolist() == [1, 0]
    assert (
        LearnedReward(FlattenObservation(gymnasium.make(point_mass.ID)), folder).model is not None
    )


def test_a_room_imports_its_own_library_only():
    code = """
import sys, grd_offline.interop
def show(*names): print([name for name in names if name in sys.modules])
show("gymnasium", "torch", "torchrl", "tensordict", "stable_baselines3", "d3rlpy")
from grd_offline.interop import to_d4rl, to_d3rlpy
show("gymnasium", "torchrl", "tensordict", "stable_baselines3", "d3rlpy")
from grd_offline.interop import LearnedReward
show("torchrl", "tensordict", "stable_baselines3", "d3rlpy")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "[]"]
