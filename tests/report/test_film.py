"""Frames belong to the episode shown, or there are none."""

import base64
from io import BytesIO

import gymnasium
import numpy as np
import pytest
from dying import die
from PIL import Image

from grd_offline.io.datasets import Header, Leaf, Record, open_recording, write_dataset
from grd_offline.report import film
from grd_offline.report.film import Film, make_film

pytestmark = pytest.mark.long

SEED = 5


def play(name, steps=12):
    """Observations and actions of an episode, in the precision of a dataset."""
    env = gymnasium.make(name)
    env.action_space.seed(1)
    observation, _ = env.reset(seed=SEED)
    observations, actions = [observation], []
    for _ in range(steps):
        actions.append(env.action_space.sample())
        observations.append(env.step(actions[-1])[0])
    env.close()
    return np.array(observations, np.float32), np.array(actions, np.float32)


def write_played(path, name, *, seed=SEED):
    observations, actions = play(name)
    last = np.arange(len(actions)) == len(actions) - 1
    record = Record(
        observations={"": observations},
        actions={"": actions},
        rewards=last * 1.0,
        terminations=np.zeros(len(actions), np.bool_),
        truncations=last,
        attributes={} if seed is None else {"seed": seed},
    )
    header = Header(
        observation_leaves=(Leaf("", observations.shape[1:], "float32"),),
        action_leaves=(Leaf("", actions.shape[1:], "float32"),),
        environment="Never-Asked-v0",
    )
    write_dataset(path, header, [record], lengths=np.array([len(actions)]))
    return path


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Swimmer-v5"])
def test_replaying_and_setting_states_go_through_what_was_recorded(name):
    observations, actions = play(name)
    env = gymnasium.make(name)
    assert list(film._replay(env, SEED, observations, actions)) == list(range(12))
    assert list(film._replay(env, SEED + 1, observations, actions)) == []
    visited = []
    for step in film._visit(env, observations, actions):
        visited.append(step)
        np.testing.assert_allclose(env.unwrapped._get_obs(), observations[step], atol=1e-5)
    assert visited == list(range(13))
    env.close()


def film_first(path, environment):
    with open_recording(path) as recording:
        return make_film(recording, [0], environment)


def test_a_replay_that_leaves_the_record_is_noticed():
    observations, actions = play("Swimmer-v5")
    observations[7, 2] += 0.1
    env = gymnasium.make("Swimmer-v5")
    assert list(film._replay(env, SEED, observations, actions)) == list(range(7))
    env.close()


def test_another_body_of_the_same_size_is_noticed():
    observations, actions = play("HalfCheetah-v5")
    env = gymnasium.make("Walker2d-v5")
    assert env.observation_space.shape == observations.shape[1:]
    assert list(film._visit(env, observations, actions)) == []
    env.close()


def test_an_environment_without_pictures_is_said_in_one_line(tmp_path):
    made = film_first(write_played(tmp_path / "data.h5", "Swimmer-v5"), "Factored")
    assert made.clips == {}
    assert made.note.startswith("No video: grd/Factored-v0 could not be filmed")
    assert "\n" not in made.note


def test_a_renderer_that_dies_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(film, "answer_calls", die)
    made = film_first(write_played(tmp_path / "data.h5", "Swimmer-v5"), "Swimmer")
    ends = "; ".join(f"{name}: renderer died of signal SIGABRT" for name in ("egl", "osmesa"))
    assert made == Film(f"No video: Swimmer-v5 could not be filmed ({ends}).")


@pytest.mark.parametrize(("seed", "way"), [(SEED, "replay"), (None, "states"), (9, "states")])
def test_frames_are_rendered_where_there_is_a_renderer(tmp_path, seed, way):
    made = film_first(write_played(tmp_path / "data.h5", "Swimmer-v5", seed=seed), "Swimmer")
    if not made.clips and "renderer" in made.note:
        pytest.skip(f"no off-screen renderer here: {made.note}")
    assert made.note == film.NOTES[way]
    clip = made.clips[0]
    assert clip["steps"] == list(range(12))
    picture = Image.open(BytesIO(base64.b64decode(clip["image"].split(",")[1])))
    assert picture.size == (clip["columns"] * clip["width"], 2 * clip["height"])
    sheet = np.asarray(picture.convert("RGB"), np.float64)
    first, later = sheet[:180, :240], sheet[180:, 720:960]
    assert first.std() > 5
    assert np.abs(first - later).max() > 20
