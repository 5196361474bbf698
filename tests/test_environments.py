"""Environments: Gymnasium's contract, names, and registration in either import order."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import choices
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from places import ROOT

from grd_offline.core.errors import DataError
from grd_offline.worlds.environments import (
    FactoredEnv,
    PaddedAntEnv,
    dimension_names,
    resolve_environment_id,
)
from grd_offline.worlds.registration import ENVIRONMENTS, register_environments

PAPER_TASKS = (
    "Ant",
    "HalfCheetah",
    "Walker2d",
    "Humanoid",
    "Swimmer",
    "Hopper",
    "HumanoidStandup",
    "Reacher",
)
SHORT_NAMES = (*PAPER_TASKS, "PaddedAnt", "Factored")


@pytest.fixture(autouse=True)
def _registered_in_a_scratch_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes its log into the working directory."""
    monkeypatch.chdir(tmp_path)
    register_environments()


@pytest.mark.filterwarnings("ignore:.*A Box observation space (min|max)imum value is")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_gymnasium_accepts_the_environment(name: str) -> None:
    env = gymnasium.make(name)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def play(env: gymnasium.Env, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One episode under random actions: observations, rewards, noise-free rewards."""
    observation, _ = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    observations, rewards, noise_free = [observation], [], []
    truncated = False
    while not truncated:
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        assert not terminated
        observations.append(observation)
        rewards.append(reward)
        noise_free.append(info["noise_free_reward"])
    return np.array(observations), np.array(rewards), np.array(noise_free)


def test_factored_episodes_repeat_under_a_seed() -> None:
    first = play(gymnasium.make("grd/Factored-v0", graph_seed=2), seed=7)
    again = play(gymnasium.make("grd/Factored-v0", graph_seed=2), seed=7)
    other = play(gymnasium.make("grd/Factored-v0", graph_seed=2), seed=8)
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a, b)
    assert first[0].dtype == np.float32
    assert not np.array_equal(first[1], other[1])


def test_factored_lengths_vary_and_the_end_must_be_respected() -> None:
    env = gymnasium.make("grd/Factored-v0", length=9, min_length=3)
    lengths = {len(play(env, seed)[1]) for seed in range(60)}
    assert lengths == set(range(3, 10))
    bare = FactoredEnv(length=1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        bare.step(np.zeros(3, np.float32))
    bare.reset(seed=0)
    assert bare.step(np.zeros(3, np.float32))[3]
    with pytest.raises(gymnasium.error.ResetNeeded):
        bare.step(np.zeros(3, np.float32))


def test_factored_rewards_are_the_worlds() -> None:
    env = gymnasium.make("grd/Factored-v0", scales=False, reward_noise=0.0)
    observations, rewards, noise_free = play(env, seed=3)
    actions = np.random.default_rng(3).uniform(-1, 1, (len(rewards), 3))
    assert np.array_equal(rewards, noise_free)
    expected = env.unwrapped.world.reward(observations[:-1], actions.astype(np.float32))
    np.testing.assert_allclose(rewards, expected, atol=1e-4)
    assert set(env.unwrapped.world.masks) == {
        "state_to_reward",
        "action_to_reward",
        "state_to_state",
        "action_to_state",
    }


def test_factored_refuses_what_worlds_refuse() -> None:
    with pytest.raises(ValueError, match="family: expected one of smooth, hard"):
        FactoredEnv(family="easy")
    with pytest.raises(ValueError, match="render_mode: expected None"):
        FactoredEnv(render_mode="human")


def test_padded_ant_is_ant_and_zeros() -> None:
    padded = gymnasium.make("grd/PaddedAnt-v0", reset_noise_scale=0.05)
    ant = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False, reset_noise_scale=0.05)
    assert padded.spec is not None
    assert padded.spec.max_episode_steps == 1000
    assert padded.observation_space.shape == (111,)
    observation, _ = padded.reset(seed=0)
    assert np.array_equal(observation[:27], ant.reset(seed=0)[0])
    action = np.full(8, 0.3, np.float32)
    seen, expected = padded.step(action), ant.step(action)
    assert np.array_equal(seen[0][:27], expected[0])
    assert seen[1] == expected[1]
    assert not seen[0][27:].any()


def test_padded_ant_can_have_noise_where_nothing_is_observed() -> None:
    plain, noisy = PaddedAntEnv(), PaddedAntEnv(noise=0.5)
    ours, theirs = (env.reset(seed=0)[0] for env in (noisy, plain))
    assert np.array_equal(ours[:27], theirs[:27])
    rows = np.array([noisy.step(np.zeros(8))[0][27:] for _ in range(100)])
    assert rows.std() == pytest.approx(0.5, rel=0.05)
    assert rows.mean() == pytest.approx(0, abs=0.05)
    assert copy.deepcopy(noisy).reset(seed=0)[0][27:].any()
    with pytest.raises(ValueError, match="noise: expected a number of at least 0, got -1"):
        PaddedAntEnv(noise=-1)


def test_padded_ant_can_be_copied() -> None:
    clone = copy.deepcopy(PaddedAntEnv(reset_noise_scale=0.0))
    assert clone.observation_space.shape == (111,)
    assert clone.reset(seed=0)[0].shape == (111,)


@pytest.mark.parametrize("task", [*PAPER_TASKS, "PaddedAnt", "Factored", "Pusher"])
def test_every_dimension_has_a_name_of_its_own(task: str) -> None:
    env = gymnasium.make(resolve_environment_id(task))
    for names, space in zip(
        dimension_names(env), (env.observation_space, env.action_space), strict=True
    ):
        assert names is not None
        assert (len(names),) == space.shape
        assert len(set(names)) == len(names)
    env.close()


def test_names_point_at_the_right_numbers() -> None:
    cheetah = gymnasium.make("HalfCheetah-v5")
    names, actuators = dimension_names(cheetah)
    assert names is not None
    assert names[0] == "position rootz"
    assert names[8] == "velocity rootx"
    assert actuators == ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
    observation, _ = cheetah.reset(seed=0)
    velocity = cheetah.unwrapped.data.joint("bfoot").qvel[0]
    assert observation[names.index("velocity bfoot")] == velocity

    humanoid = gymnasium.make("Humanoid-v5")
    names, _ = dimension_names(humanoid)
    assert names is not None
    humanoid.reset(seed=0)
    for _ in range(40):
        observation = humanoid.step(np.zeros(17))[0]
    data = humanoid.unwrapped.data
    assert observation[names.index("position root z")] == data.qpos[2]
    assert observation[names.index("rotation root w")] == data.qpos[3]
    assert observation[names.index("mass right_foot")] == data.body("right_foot").cinert[9]
    assert observation[names.index("linear velocity torso z")] == data.body("torso").cvel[5]
    assert observation[names.index("force right_foot z")] == data.body("right_foot").cfrc_ext[5]
    forces = data.qfrc_actuator[humanoid.unwrapped.model.joint("left_knee").dofadr[0]]
    assert observation[names.index("actuation left_knee")] == forces


def test_unknown_dimensions_have_no_names() -> None:
    wrapped = gymnasium.wrappers.TimeAwareObservation(gymnasium.make("Hopper-v5"))
    assert dimension_names(wrapped) == (None, ("thigh_joint", "leg_joint", "foot_joint"))


def test_choices_and_nested_observations_have_names() -> None:
    observed, acted = dimension_names(gymnasium.make("CartPole-v1"))
    assert observed == ("cart position", "cart velocity", "pole angle", "pole velocity")
    assert acted == ("action=left", "action=right")
    observed, acted = dimension_names(gymnasium.make("FrozenLake-v1"))
    assert observed is not None
    assert len(observed) == 16
    assert observed[6] == "state=row 1 column 2"
    assert acted == ("action=left", "action=down", "action=right", "action=up")
    choices.register()
    observed, acted = dimension_names(gymnasium.make(choices.ID))
    assert observed == (
        *("goal.kind=0", "goal.kind=1", "goal.kind=2", "goal.x"),
        *("t[0]", "t[1]"),
    )
    assert acted == ("action=1", "action=2", "action=3")
    assert dimension_names(gymnasium.make(choices.ID, observed="image"))[0] is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HalfCheetah", "HalfCheetah-v5"),
        ("HalfCheetah-v4", "HalfCheetah-v4"),
        ("CartPole", "CartPole-v1"),
        ("Factored", "grd/Factored-v0"),
        ("grd/Factored", "grd/Factored-v0"),
        ("PaddedAnt", "grd/PaddedAnt-v0"),
        ("phys2d/CartPole-v1", "phys2d/CartPole-v1"),
        ("some_module:Thing-v0", "some_module:Thing-v0"),
    ],
)
def test_names_resolve(name: str, expected: str) -> None:
    assert resolve_environment_id(name) == expected


def test_all_short_names_resolve() -> None:
    for name in SHORT_NAMES:
        assert resolve_environment_id(name) in gymnasium.registry


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("halfcheeta", "HalfCheetah-v5"),
        ("HalfCheetah-v9", "HalfCheetah-v5"),
        ("factord", "grd/Factored-v0"),
        ("qqqqqqqq", "pprint_registry"),
        ("", "pprint_registry"),
    ],
)
def test_unknown_names_are_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(DataError, match="expected a name known to Gymnasium") as caught:
        resolve_environment_id(name)
    assert hint in str(caught.value)
    assert repr(name) in str(caught.value)


REGISTER = "import grd_offline.worlds.registration as r; r.register_environments(); "
CHECK = (
    "env = gymnasium.make('grd/Factored-v0', length=5); env.reset(seed=0); "
    "assert 'grd/PaddedAnt-v0' in gymnasium.registry; "
    "assert gymnasium.spec('Ant-v5').entry_point"
)


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        f"{REGISTER} import sys; assert 'gymnasium' not in sys.modules; import gymnasium; {CHECK}",
        f"import gymnasium; {REGISTER} {CHECK}",
        f"{REGISTER} {REGISTER} import gymnasium; {REGISTER} {CHECK}",
        f"{REGISTER} import gymnasium.envs.registration; import gymnasium; {CHECK}; import sys; "
        "assert not [f for f in sys.meta_path if type(f).__module__.startswith('grd_offline')]",
    ],
    ids=["package first", "gymnasium first", "again and again", "leaves nothing behind"],
)
def test_registration_works_in_either_order(code: str) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
