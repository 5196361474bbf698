"""Environments of this package, and what it knows about those of Gymnasium.

`FactoredEnv` (`grd/Factored-v0`) is a random world with a known causal graph. `PaddedAntEnv`
(`grd/PaddedAnt-v0`) is Ant with the 111 observation dimensions of older versions, 84 of them zero.
`resolve_environment_id` turns a short name into an id, `dimension_names` names what is observed.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from grd_offline.core.episodes import LabelName
from grd_offline.core.errors import DataError
from grd_offline.worlds.registration import register_environments
from grd_offline.worlds.spaces import list_observation_leaves, name_columns
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

_NAMESPACE = "grd"
_ANT_PADDING = 84

Observation = NDArray[np.float32]
Names = tuple[str, ...]


@functools.lru_cache(maxsize=8)
def _build_world(settings: WorldSettings) -> FactoredWorld:
    """A world is calibrated by simulation and never changes then, so environments share it."""
    return FactoredWorld(settings)


class FactoredEnv(gymnasium.Env[Observation, NDArray[np.float32]]):
    """A `FactoredWorld` as an environment; keyword arguments are the fields of `WorldSettings`.

    The reward carries step noise; `info["noise_free_reward"]` does not. Episodes are truncated by
    the environment itself, since their length may vary. `env.unwrapped.world.masks` is the truth.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, render_mode: None = None, **settings: Any) -> None:
        if render_mode is not None:
            raise ValueError(f"render_mode: expected None, got {render_mode!r}")
        self.render_mode = render_mode
        self.world = _build_world(WorldSettings(**settings))
        shape = (self.world.settings.states,)
        self.observation_space = Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = Box(-1.0, 1.0, (self.world.settings.actions,), np.float32)
        self._state: NDArray[np.float64] | None = None
        self._steps_left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self.world.reset(self.np_random)
        self._steps_left = int(self.world.draw_lengths(self.np_random, 1)[0])
        return self._state.astype(np.float32), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._state is None or self._steps_left <= 0:
            raise gymnasium.error.ResetNeeded("step: expected reset() first, the episode is over")
        act = np.asarray(action, np.float64)
        noise_free = self.world.reward(self._state, act)
        reward = float(self.world.add_noise(noise_free, self.np_random))
        self._state = self.world.step(self._state, act, self.np_random)
        self._steps_left -= 1
        info = {"noise_free_reward": float(noise_free)}
        return self._state.astype(np.float32), reward, False, self._steps_left == 0, info


class PaddedAntEnv(AntEnv):
    """Ant-v5 with 27 informative dimensions followed by 84 that are always zero.

    These are the 111 dimensions that the versions used in the literature had: MuJoCo left their
    contact forces at zero. With `noise`, these 84 dimensions hold independent Gaussian noise of
    that standard deviation instead. The other keyword arguments are those of Ant-v5.
    """

    def __init__(self, *, noise: float = 0.0, **settings: Any) -> None:
        self._noise = float(noise)
        if not 0 <= self._noise < np.inf:
            raise DataError(f"expected a number of at least 0, got {noise!r:.40}", field="noise")
        super().__init__(**{**settings, "include_cfrc_ext_in_observation": False})
        # A copy is made by this class, not by Ant's.
        EzPickle.__init__(self, noise=noise, **settings)
        size = sum(self.observation_structure[part] for part in ("qpos", "qvel")) + _ANT_PADDING
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float64)

    def _get_obs(self) -> NDArray[np.float64]:
        unused = np.zeros(_ANT_PADDING)
        if self._noise:
            unused = self._noise * self.np_random.standard_normal(_ANT_PADDING)
        return np.concatenate([super()._get_obs(), unused])  # type: ignore[no-untyped-call]


def resolve_environment_id(name: str) -> str:
    """The Gymnasium id that `name` stands for.

    A name without version is the newest version that Gymnasium itself or this package registers:
    "HalfCheetah" -> "HalfCheetah-v5", "Factored" -> "grd/Factored-v0". Ids stay as they are, and
    so does "module:id", which Gymnasium resolves by importing the module.
    """
    register_environments()
    if ":" in name or name in gymnasium.registry:
        return name
    # Names in other namespaces need packages that may not be there, so they must be given in full.
    specs = [s for s in gymnasium.registry.values() if s.namespace in (None, _NAMESPACE)]
    specs.sort(key=lambda spec: (spec.namespace is None, spec.version or 0))
    newest = {key: spec.id for spec in specs for key in (spec.id.rpartition("-v")[0], spec.name)}
    if name in newest:
        return newest[name]
    folded = {spec.name.lower(): newest[spec.name] for spec in specs}
    short = re.sub(r"-v\d+$", "", name).removeprefix(f"{_NAMESPACE}/").lower()
    found = [folded[match] for match in difflib.get_close_matches(short, folded, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(found)}?" if found else "see gymnasium.pprint_registry()"
    raise DataError(f"environment: expected a name known to Gymnasium, got {name!r}; {hint}")


def dimension_names(env: gymnasium.Env[Any, Any]) -> tuple[Names | None, Names | None]:
    """Names of the observation and action dimensions, or None if they are not known.

    Names are unique, and there are as many as `env`'s spaces have dimensions.
    """
    base = env.unwrapped
    observed: Sequence[str] = ()
    acted: Sequence[str] = ()
    if isinstance(base, FactoredEnv):
        settings = base.world.settings
        observed = [f"s{i}" for i in range(settings.states)]
        acted = [f"a{i}" for i in range(settings.actions)]
    elif hasattr(base, "model") and hasattr(base, "data"):
        observed, acted = _mujoco_observation_names(base), _actuator_names(base.model)
    elif type(base).__name__ == "FrozenLakeEnv":
        tiles = np.ndindex(getattr(base, "nrow", 0), getattr(base, "ncol", 0))
        observed = [f"row {row} column {column}" for row, column in tiles]
        acted = ("left", "down", "right", "up")
    elif type(base).__name__ in _SMALL:
        observed, acted = _SMALL[type(base).__name__]
    states = _find_names(observed, env.observation_space, "state")
    return states, _find_names(acted, env.action_space, "action")


def _find_names(known: Sequence[str], space: gymnasium.Space[Any], prefix: str) -> Names | None:
    """The known names where they fit the space. Choices and nested spaces always have names."""
    if isinstance(space, Discrete) and len(known) == space.n and len(set(known)) == len(known):
        return tuple(LabelName(prefix, name) for name in known)
    if isinstance(space, Box):
        fits = space.shape == (len(known),) and len(set(known)) == len(known)
        return tuple(known) if fits else None
    try:
        return name_columns([nested.leaf for nested in list_observation_leaves(space)], prefix)
    except DataError:  # no vectors: whoever needs vectors refuses it
        return None


_SMALL: dict[str, tuple[Names, Names]] = {
    "CartPoleEnv": (
        ("cart position", "cart velocity", "pole angle", "pole velocity"),
        ("left", "right"),
    ),
    "AcrobotEnv": (
        (
            *(f"{what} joint{i}" for i in (1, 2) for what in ("cos", "sin")),
            *("velocity joint1", "velocity joint2"),
        ),
        ("torque -1", "torque 0", "torque 1"),
    ),
    "MountainCarEnv": (("position", "velocity"), ("left", "none", "right")),
    "Continuous_MountainCarEnv": (("position", "velocity"), ("force",)),
    "PendulumEnv": (("cos angle", "sin angle", "angular velocity"), ("torque",)),
    "LunarLander": (
        (
            *("x", "y", "velocity x", "velocity y", "angle", "angular velocity"),
            *("left leg contact", "right leg contact"),
        ),
        ("none", "left engine", "main engine", "right engine"),
    ),
}
"""Names of the observations and actions of small Gymnasium environments, by the name of the
class."""


def _mujoco_observation_names(base: Any) -> list[str]:
    structure = getattr(base, "observation_structure", None)
    if structure is None:
        return list(_HAND_MADE.get(type(base).__name__, ()))
    model = base.model
    blocks = {
        "qpos": _joint_names(model, _POSITIONS, "position {}")[structure.get("skipped_qpos", 0) :],
        "qvel": _joint_names(model, _VELOCITIES, "velocity {}"),
        "cinert": _body_names(model, _INERTIA_PARTS),
        "cvel": _body_names(model, _name_axes("angular velocity", "linear velocity")),
        "qfrc_actuator": _joint_names(model, _ACTUATIONS, "actuation {}")[6:],
        "cfrc_ext": _body_names(model, _name_axes("torque", "force")),
    }
    shown = (blocks[block] for block, size in structure.items() if block in blocks and size)
    names = [name for block in shown for name in block]
    if isinstance(base, PaddedAntEnv):
        names += [f"zero {i}" for i in range(_ANT_PADDING)]
    return names


def _name_axes(*parts: str, axes: Sequence[str] = "xyz") -> Names:
    """Patterns of names, in which the name of a joint or a body replaces the braces."""
    return tuple(f"{part} {{}} {axis}" for part in parts for axis in axes)


_POSITIONS = (*_name_axes("position"), *_name_axes("rotation", axes="wxyz"))
_VELOCITIES = _name_axes("velocity", "angular velocity")
_ACTUATIONS = _name_axes("actuation", axes="012345")
"""Names of the numbers of a free joint."""
_INERTIA_PARTS = (
    *(f"inertia {axes} {{}}" for axes in ("xx", "yy", "zz", "xy", "xz", "yz")),
    *(f"mass offset {axis} {{}}" for axis in "xyz"),
    "mass {}",
)

_PUSHER_JOINTS = (
    *("shoulder pan", "shoulder lift", "upper arm roll", "elbow flex", "forearm roll"),
    *("wrist flex", "wrist roll"),
)
_HAND_MADE: dict[str, Names] = {
    "ReacherEnv": (
        *(f"{what} joint{i}" for what in ("cos", "sin") for i in range(2)),
        *("target x", "target y", "velocity joint0", "velocity joint1"),
        *("fingertip to target x", "fingertip to target y"),
    ),
    "InvertedDoublePendulumEnv": (
        *("position slider", "sin hinge", "sin hinge2", "cos hinge", "cos hinge2"),
        *(f"velocity {joint}" for joint in ("slider", "hinge", "hinge2")),
        "constraint force slider",
    ),
    "PusherEnv": (
        *(f"{what} {joint}" for what in ("position", "velocity") for joint in _PUSHER_JOINTS),
        *(f"{body} {axis}" for body in ("fingertip", "object", "goal") for axis in "xyz"),
    ),
}


def _joint_names(model: Any, free: Sequence[str], other: str) -> list[str]:
    """A name per number of each joint, from patterns for a free joint and for any other."""
    return [
        pattern.format(model.joint(index).name or f"joint {index}")
        for index in range(model.njnt)
        for pattern in (free if int(model.jnt_type[index]) == 0 else (other,))
    ]


def _body_names(model: Any, patterns: Sequence[str]) -> list[str]:
    """A name per number of each body but the world, from a pattern for each number.

    A body without a name is the end of the body that it hangs on.
    """
    bodies: list[str] = []
    for index in range(model.nbody):
        parent = int(model.body_parentid[index])
        bodies.append(model.body(index).name or f"{bodies[parent]} end")
    return [pattern.format(body) for body in bodies[1:] for pattern in patterns]


def _actuator_names(model: Any) -> list[str]:
    """Name of each actuator; one without a name is called after the joint that it turns."""
    names: list[str] = []
    for index in range(model.nu):
        joint = model.joint(int(model.actuator_trnid[index, 0])).name
        names.append(model.actuator(index).name or joint or f"actuator {index}")
    return names
