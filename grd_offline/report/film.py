"""Frames of episodes, rendered off-screen, that follow the cursor of the rewards.

Frames must belong to the episode shown. Where the data hold an episode's seed, its actions are
replayed from it; where that gives other observations, or there is no seed, MuJoCo's state is set
from each observation, if it holds positions and velocities. Both are checked against what was
recorded (states that are set must also move on as they did), and an episode that fails has no
frames. The environment is the one that the user names; a file is never asked for it.

Rendering runs in a process of its own: a graphics driver can take a process down with it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError, printable
from grd_offline.core.process import Process, ProcessDied, answer_calls
from grd_offline.io.datasets import Recording
from grd_offline.report.page import encode

FRAMES = 48
COLUMNS = 8
WIDTH, HEIGHT = 240, 180
RENDERERS = ("egl", "osmesa")
SECONDS = 400
Given = tuple[int | None, NDArray[Any], NDArray[Any]]
"""The seed of an episode, if it is known, its observations and its actions."""
Filmed = tuple[str, NDArray[np.int64], NDArray[np.uint8]]
"""The way that worked, or why none did, the steps shown, and their frames."""
CHECKED, ALIKE = 10, 0.05
"""Number of transitions that are checked, and their largest error in standard deviations."""
NOTES = {
    "replay": "The frames come from a replay of the seed and the actions of the episode. Every "
    "observation equals the recorded one.",
    "states": "The frames show states that were set from the recorded observations. These do not "
    "contain the position along the track, so the body stays at the start.",
}


@dataclass(frozen=True)
class Film:
    """Frames of a few episodes, or why there are none."""

    note: str
    clips: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """For each episode, the steps shown and all frames as one picture, row by row."""


class CannotFilm(Exception):
    """Why an environment cannot be filmed."""


def make_film(recording: Recording, episodes: Sequence[int], environment: str) -> Film:
    """Render some episodes of a dataset; without a renderer, the note gives the reason."""
    from grd_offline.worlds.environments import resolve_environment_id

    name = resolve_environment_id(environment)
    try:
        given = {index: _gather(recording, index) for index in episodes}
    except DataError as error:
        return Film(f"No video: {error}.")
    reasons = []
    asked = os.environ.get("MUJOCO_GL")
    for renderer in (asked,) if asked else RENDERERS:
        try:
            return _assemble(_film_beside(renderer, name, given))
        except CannotFilm as error:
            reasons.append(f"{renderer}: {printable(str(error))[:160]}")
            if not str(error).startswith("renderer"):
                break
    return Film(f"No video: {name} could not be filmed ({'; '.join(dict.fromkeys(reasons))}).")


def _gather(recording: Recording, index: int) -> Given:
    record = recording.load(index)
    if set(record.observations) != {""} or set(record.actions) != {""}:
        raise DataError("video needs plain observations and actions")
    seed = record.attributes.get("seed")
    known = int(seed) if isinstance(seed, int | np.integer) else None
    return known, record.observations[""], record.actions[""]


def _film_beside(renderer: str, name: str, given: Mapping[int, Given]) -> Mapping[int, Filmed]:
    """Film in a process of its own."""
    process = Process(answer_calls)
    process.start()
    try:
        process.send((film_episodes, (renderer, name, given)))
        if not process.connection.poll(SECONDS):
            raise CannotFilm(f"took more than {SECONDS} s")
        filmed: Mapping[int, Filmed] = process.receive()
        return filmed
    except ProcessDied as death:
        raise CannotFilm(f"renderer died {death}") from None
    finally:
        process.end()


def _assemble(filmed: Mapping[int, Filmed]) -> Film:
    notes = dict.fromkeys(NOTES.get(way, way) for way, _, _ in filmed.values())
    clips = {
        index: {
            "steps": steps.tolist(),
            "columns": COLUMNS,
            "width": int(frames.shape[2]),
            "height": int(frames.shape[1]),
            "image": _make_picture(frames),
        }
        for index, (way, steps, frames) in filmed.items()
        if way in NOTES
    }
    return Film(" ".join(notes), clips)


def _make_picture(frames: NDArray[np.uint8]) -> str:
    # Pillow comes with matplotlib.
    from PIL import Image

    height, width = frames.shape[1:3]
    rows = -(-len(frames) // COLUMNS)
    sheet = np.zeros((rows * COLUMNS, height, width, 3), np.uint8)
    sheet[: len(frames)] = frames
    table = sheet.reshape(rows, COLUMNS, height, width, 3).swapaxes(1, 2)
    memory = BytesIO()
    Image.fromarray(table.reshape(rows * height, -1, 3)).save(memory, "WEBP", quality=70)
    return f"data:image/webp;base64,{encode(memory.getvalue())}"


def film_episodes(renderer: str, name: str, given: Mapping[int, Given]) -> dict[int, Filmed]:
    """Render every episode, in the child process, and note which way worked."""
    os.environ |= {"MUJOCO_GL": renderer, "PYOPENGL_PLATFORM": renderer, "SDL_VIDEODRIVER": "dummy"}
    os.chdir(tempfile.gettempdir())  # MuJoCo writes a log
    try:
        env = _make_environment(name)
    except Exception as error:
        raise CannotFilm(f"cannot be made: {_first_line(error)}") from None
    filmed = {}
    for index, (seed, observations, actions) in given.items():
        steps = np.unique(np.linspace(0, len(actions) - 1, FRAMES).round().astype(int))
        way, frames = _film(env, seed, observations, actions, steps)
        filmed[index] = way, steps, np.asarray(frames)
    return filmed


def _make_environment(name: str) -> Any:
    import gymnasium

    try:
        return gymnasium.make(name, render_mode="rgb_array", width=WIDTH, height=HEIGHT)
    except TypeError:  # only those of MuJoCo take a size
        return gymnasium.make(name, render_mode="rgb_array")


def _film(
    env: Any, seed: int | None, observations: Any, actions: Any, steps: NDArray[np.int64]
) -> tuple[str, list[Any]]:
    ways = [] if seed is None else [("replay", _replay(env, seed, observations, actions))]
    ways.append(("states", _visit(env, observations, actions)))
    wanted = set(steps.tolist())
    for way, walk in ways:
        frames = [_render(env) for step in walk if step in wanted]
        if len(frames) == len(steps):
            return way, frames
    reason = "its frames would not be those of the episode: neither replay nor setting states"
    return f"An episode has no video: {reason} gave the observations recorded.", []


def _replay(env: Any, seed: int, observations: Any, actions: Any) -> Iterator[int]:
    """Yield each step, as long as the observations equal the recorded ones."""
    observation, _ = env.reset(seed=seed)
    for step, action in enumerate(actions):
        if not _is_same(observation, observations[step]):
            return
        yield step
        observation, *_ = env.step(action)


def _visit(env: Any, observations: Any, actions: Any) -> Iterator[int]:
    """Yield each step of a MuJoCo model whose observation begins with its state."""
    base = env.unwrapped
    structure = getattr(base, "observation_structure", None)
    if structure is None or observations.shape[1:] != env.observation_space.shape:
        return
    env.reset(seed=0)
    skipped, shown, moving = (structure.get(n, 0) for n in ("skipped_qpos", "qpos", "qvel"))
    if skipped + shown != base.model.nq or moving != base.model.nv:
        return

    def put(observation: Any) -> None:
        positions = np.concatenate([base.init_qpos[:skipped], observation[:shown]])
        base.set_state(positions, np.asarray(observation[shown : shown + moving], np.float64))

    if not _moves_alike(env, put, observations, actions):
        return
    for step, observation in enumerate(observations):
        put(observation)
        if not _is_same(base._get_obs()[:shown], observation[:shown]):
            return
        yield step


def _moves_alike(env: Any, put: Callable[[Any], None], observations: Any, actions: Any) -> bool:
    """Return whether a few recorded transitions come out as they were recorded."""
    last = min(len(actions), len(observations) - 1)
    scale = observations.std(0) + 1e-6
    errors = []
    for step in np.unique(np.linspace(0, last - 1, CHECKED).round().astype(int)):
        put(observations[step])
        next_observation, *_ = env.step(actions[step])
        errors.append(np.median(np.abs(next_observation - observations[step + 1]) / scale))
    return bool(errors) and float(np.median(errors)) < ALIKE


def _is_same(found: Any, recorded: Any) -> bool:
    one, other = np.asarray(found, np.float64), np.asarray(recorded, np.float64)
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-4)


def _render(env: Any) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        frame = np.asarray(env.render(), np.uint8)
    except Exception as error:
        raise CannotFilm(f"renderer: {_first_line(error)}") from None
    picture = Image.fromarray(frame)
    picture.thumbnail((WIDTH, HEIGHT))
    return np.asarray(picture)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
