"""A trained policy in numpy: where environments are stepped, torch is neither needed nor imported.

The learner hands over its weights as one flat float32 vector: W0 (in x out, row by row), b0, W1,
b1, and so on. `Actor` turns an observation into an action; a saved one is a folder of
`config.json` and `model.safetensors`, loaded without running code from it. `load_policies` finds
those that a training run left behind:

    RUN/members/NAME/policies/step-000010000/   a checkpoint of one member
    RUN/members/NAME/policies/best/             its best

A member's folder, or a single policy's, may be named as well as the whole run.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grd_offline.core.errors import DataError
from grd_offline.core.settings import Settings, setting
from grd_offline.core.typing import SingleArray
from grd_offline.io.files import models
from grd_offline.learning.agents.exploration import float32_bounds

FORMAT = "grd-offline policy"
VERSION = 1
DISCRETE_KINDS = ("categorical", "greedy")
KINDS = ("gaussian", "deterministic", *DISCRETE_KINDS)
NOISY_KINDS = ("deterministic", "greedy")
"""Kinds whose noise is a number of its own, and no part of the policy."""
LOG_STD_RANGE = (-20.0, 2.0)
"""Range to which SAC's log standard deviation is clamped."""
MAX_ACTION = 1e30
_CERTAIN = np.float32(1e30)
"""Added to an output, it decides which is the largest."""
MAX_UNITS = 2**16
MAX_LAYERS = 64
MAX_WEIGHTS = 2**28
_ACTIONS: dict[str, Any] = {"at_least": -MAX_ACTION, "at_most": MAX_ACTION}


@dataclass(frozen=True)
class ActorSpec(Settings):
    """The description of a policy network, apart from its weights."""

    kind: str = setting(MISSING, names=KINDS)
    """"gaussian": mean and log standard deviation, squashed by tanh (SAC); "deterministic": tanh
    of the output, plus noise (TD3, DDPG); "categorical": the logarithm of the weight of each choice
    (IQL); "greedy": the value of each choice, of which the best is taken (DQN)."""
    sizes: tuple[int, ...] = setting(MISSING, at_least=1, at_most=MAX_UNITS)
    """Units per layer, from the observation to the output; ReLU between the layers."""
    low: tuple[float, ...] = setting(MISSING, **_ACTIONS)
    """Smallest action, in the units of the environment; 0 for each choice of a discrete one."""
    high: tuple[float, ...] = setting(MISSING, **_ACTIONS)
    noise: float = setting(0.0, at_least=0, at_most=MAX_ACTION)
    """Standard deviation of a deterministic policy's noise, where the action is in [-1, 1]; share
    of random choices of a greedy one."""
    first_choice: int = setting(0, at_least=-MAX_UNITS, at_most=MAX_UNITS)
    """The number of the first choice, where actions are discrete."""

    def __post_init__(self) -> None:
        for field in ("sizes", "low", "high"):
            values = getattr(self, field)
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise DataError(f"expected a list of numbers, got {values!r:.40}", field=field)
            object.__setattr__(self, field, tuple(values))
        super().__post_init__()
        for field, kind in (("sizes", int), ("low", float), ("high", float)):
            object.__setattr__(self, field, tuple(map(kind, getattr(self, field))))
        if not 2 <= (count := len(self.sizes)) <= MAX_LAYERS:
            raise DataError(f"expected 2 to {MAX_LAYERS} layers, got {count}", field="sizes")
        if self.kind == "gaussian" and self.sizes[-1] % 2:
            found = f"expected a mean and a spread per action, got {self.sizes[-1]} outputs"
            raise DataError(found, field="sizes")
        if (count := count_weights(self)) > MAX_WEIGHTS:
            raise DataError(f"expected at most {MAX_WEIGHTS} weights, got {count}", field="sizes")
        for field in ("low", "high"):
            if (count := len(getattr(self, field))) != (wanted := self.action_size):
                text = f"expected {wanted} numbers, as many as actions, got {count}"
                raise DataError(text, field=field)
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise DataError("expected each above its low", field="high")

    @property
    def observation_size(self) -> int:
        return self.sizes[0]

    @property
    def action_size(self) -> int:
        return self.sizes[-1] // (2 if self.kind == "gaussian" else 1)

    @property
    def is_discrete(self) -> bool:
        return self.kind in DISCRETE_KINDS


def count_weights(spec: ActorSpec) -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(spec.sizes))


class Actor:
    """A policy network with its weights. Not for use by several threads: it has buffers."""

    def __init__(self, spec: ActorSpec, weights: ArrayLike) -> None:
        self.spec = spec
        # Arrays of its own, so that results do not depend on where the weights came from.
        self._layers = [
            (np.empty((inputs, outputs), np.float32), np.empty(outputs, np.float32))
            for inputs, outputs in pairwise(spec.sizes)
        ]
        *self._hidden, self._last = [(*layer, np.empty_like(layer[1])) for layer in self._layers]
        low, high = np.array(spec.low), np.array(spec.high)
        # Halved before the sum, which could overflow otherwise.
        self._centre = (low / 2 + high / 2).astype(np.float32)
        self._half = (high / 2 - low / 2).astype(np.float32)
        self._lowest, self._highest = float32_bounds(low, high)
        self.load(weights)

    @property
    def weights(self) -> SingleArray:
        """The flat weight vector, a copy."""
        return np.concatenate([part.ravel() for layer in self._layers for part in layer])

    def load(self, weights: ArrayLike) -> None:
        flat = np.asarray(weights, np.float32)
        expected = (count_weights(self.spec),)
        if flat.shape != expected:
            raise DataError(f"expected shape {expected}, got {flat.shape}", field="weights")
        if not np.isfinite(flat).all():
            raise DataError("nan or infinite", field="weights")
        begin = 0
        for layer in self._layers:
            for part in layer:
                part[...] = flat[begin : begin + part.size].reshape(part.shape)
                begin += part.size

    def act(self, observation: ArrayLike, rng: np.random.Generator | None = None) -> Any:
        """The action for one observation, as the environment takes it; no rng: no noise.

        That is (action,) numbers, or one whole number where actions are discrete.
        """
        noise = None if rng is None else self.draw_noise(1, rng)[0]
        return self.decode(self.act_with_noise(np.asarray(observation, np.float32), noise))

    def draw_noise(self, steps: int, rng: np.random.Generator) -> SingleArray:
        """(step, action) the noise of so many steps, for `act_with_noise`."""
        shape = (steps, self.spec.action_size)
        if self.spec.kind == "categorical":
            return rng.gumbel(size=shape).astype(np.float32)
        if self.spec.kind == "greedy":
            is_random = rng.random((steps, 1)) < self.spec.noise
            return np.where(is_random, _CERTAIN * rng.random(shape, np.float32), np.float32(0))
        return rng.standard_normal(shape, np.float32)

    def decode(self, action: SingleArray) -> Any:
        """What `act_with_noise` gave as the environment takes it: (..., action), or choices."""
        if not self.spec.is_discrete:
            return action
        return self.spec.first_choice + action.argmax(-1)

    def act_with_noise(self, observation: SingleArray, noise: SingleArray | None) -> SingleArray:
        """(action,) with the noise already drawn; None: no noise. Choices are one-hot."""
        x = observation
        for weight, bias, out in self._hidden:
            x = np.dot(x, weight, out=out)
            x += bias
            np.maximum(x, _ZERO, out=x)
        weight, bias, out = self._last
        x = np.dot(x, weight, out=out)
        x += bias
        return self._finish(x, noise)

    def act_many(self, observations: ArrayLike, rng: np.random.Generator | None = None) -> Any:
        """The actions for N observations, as environments take them; `act` up to rounding."""
        x = np.asarray(observations, np.float32)
        if x.ndim != 2 or x.shape[1] != self.spec.observation_size:
            text = f"expected shape (N, {self.spec.observation_size}), got {x.shape}"
            raise DataError(text, field="observations")
        for weight, bias in self._layers[:-1]:
            x = np.maximum(x @ weight + bias, 0.0)
        weight, bias = self._layers[-1]
        noise = None if rng is None else self.draw_noise(len(x), rng)
        return self.decode(self._finish(x @ weight + bias, noise))

    def _finish(self, output: SingleArray, noise: SingleArray | None) -> SingleArray:
        if self.spec.is_discrete:
            chosen = (output if noise is None else output + noise).argmax(-1)
            code = np.zeros(output.shape, np.float32)
            np.put_along_axis(code, np.expand_dims(chosen, -1), 1.0, -1)
            return code
        size = self.spec.action_size
        if self.spec.kind == "gaussian":
            squashed: Any = output[..., :size]
            if noise is not None:
                log_std = np.minimum(np.maximum(output[..., size:], _LOWEST), _HIGHEST)
                squashed = squashed + np.exp(log_std) * noise
            action: SingleArray = np.tanh(squashed)
        else:
            action = np.tanh(output)
            if noise is not None and self.spec.noise:
                action += np.float32(self.spec.noise) * noise
        # Clipping to [-1, 1] and scaling, or scaling and clipping to the bounds, is the same, and
        # the latter also mends what float32 rounds out of the bounds. np.clip takes longer.
        action *= self._half
        action += self._centre
        np.maximum(action, self._lowest, out=action)
        np.minimum(action, self._highest, out=action)
        return action


# Arrays rather than numbers, which numpy would convert in every call.
_ZERO = np.zeros((), np.float32)
_LOWEST, _HIGHEST = (np.full((), value, np.float32) for value in LOG_STD_RANGE)


def save_actor(
    folder: str | os.PathLike[str], actor: Actor, about: Mapping[str, Any] | None = None
) -> None:
    """Write a policy folder, all or nothing. `about`: plain JSON, such as environment and step."""
    spec = actor.spec
    config = {"format": FORMAT, "version": VERSION, **asdict(spec), "noise": float(spec.noise)}
    config["about"] = dict(about or {})
    layers = zip(_names(spec), (part for layer in actor._layers for part in layer), strict=True)
    models.write_model(folder, config, dict(layers), _card(spec, about or {}))


def load_actor(folder: str | os.PathLike[str]) -> Actor:
    """Read a trained policy. It is stepped in numpy: torch is not imported.

    Parameters
    ----------
    folder
        The folder of a policy, such as `runs/hc/members/NAME/policy`.

    Returns
    -------
    Actor
        The policy. The first thing that does not fit is named by a `DataError`.

    Examples
    --------
    >>> actor = load_actor("runs/hc/members/grd-closed-form-seed0/policy")  # doctest: +SKIP
    >>> action = actor.act(observation)  # doctest: +SKIP
    """
    return load_actor_about(folder)[0]


def load_actor_about(folder: str | os.PathLike[str]) -> tuple[Actor, dict[str, Any]]:
    """Read a policy folder, and what was written about it."""
    return models.read_settled(Path(folder), _read_actor)


def _read_actor(path: Path) -> tuple[Actor, dict[str, Any]]:
    config = models.read_config(path / models.CONFIG, FORMAT, VERSION)
    about = config.get("about")
    if not isinstance(about, dict):
        raise DataError("expected an object", file=path / "config.json", field="about")
    try:
        given: dict[str, Any] = {field.name: config.get(field.name) for field in fields(ActorSpec)}
        given["first_choice"] = config.get("first_choice", 0)  # older files have none
        spec = ActorSpec(**given)
    except DataError as error:
        raise error.at(file=path / "config.json") from None
    shapes = [shape for pair in pairwise(spec.sizes) for shape in (pair, pair[1:])]
    expected = {name: ("float32", shape) for name, shape in zip(_names(spec), shapes, strict=True)}
    tensors = models.read_tensors(path, expected)
    return Actor(spec, np.concatenate([tensors[name].ravel() for name in _names(spec)])), about


def _names(spec: ActorSpec) -> list[str]:
    layers = range(len(spec.sizes) - 1)
    return [f"{part}_{layer}" for layer in layers for part in ("weight", "bias")]


def _card(spec: ActorSpec, about: Mapping[str, Any]) -> str:
    facts = "\n".join(
        f"| {models.as_plain(key)} | {models.as_plain(value)} |" for key, value in about.items()
    )
    explores = spec.kind in ("gaussian", "categorical") or spec.noise > 0
    imported = "import numpy as np\n" if explores else ""
    explored = "action = actor.act(observation, np.random.default_rng(0))   # with noise\n"
    return f"""# Policy

A {spec.kind} policy of {" x ".join(str(size) for size in spec.sizes)} units. Made by grd-offline.

```python
{imported}from grd_offline import load_actor

actor = load_actor("this folder")
action = actor.act(observation)                             # without noise
{explored if explores else ""}```

    grd-offline collect --policy "this folder" --env ENV --out data.h5

| | |
|---|---|
{facts}
"""


NAMED_CHECKPOINTS = ("best", "last", "all")
MAX_LOADED_WEIGHTS = 2**28
"""All of them together: each process that collects holds them in memory."""


class SavedPolicy(NamedTuple):
    """A policy, and where it stands in its run."""

    name: str
    """Folder, as seen from the one that was named."""
    step: int | None
    """Environment steps of its training, where known."""
    actor: Actor

    def describe(self) -> dict[str, Any]:
        """Plain JSON, for the settings of a dataset."""
        digest = hashlib.sha256(self.actor.weights.tobytes()).hexdigest()[:16]
        return {"name": self.name, "step": self.step, "weights": digest}


def check_checkpoints(choice: str) -> None:
    """Refuse what is neither a name nor a range of steps."""
    if choice not in NAMED_CHECKPOINTS:
        _read_range(choice)


def load_policies(run: str | Path, checkpoints: str = "best") -> list[SavedPolicy]:
    """The chosen policies of a run, a member or a single policy's folder, in order."""
    folder = Path(run)
    if not folder.is_dir():
        raise DataError("there is no such folder", file=folder)
    found: list[SavedPolicy] = []
    total = 0
    for path, step in _find(folder, checkpoints):
        actor, about = load_actor_about(path)
        total += count_weights(actor.spec)
        if total > MAX_LOADED_WEIGHTS:
            raise DataError("too many for the memory: choose fewer checkpoints", file=folder)
        name = path.resolve().name if path == folder else path.relative_to(folder).as_posix()
        told = about.get("step") if step is None else step
        is_whole = isinstance(told, int) and not isinstance(told, bool)
        found.append(SavedPolicy(name, told if is_whole else None, actor))
    return found


def _find(folder: Path, checkpoints: str) -> Iterator[tuple[Path, int | None]]:
    if (folder / "members").is_dir():
        members = sorted(path for path in (folder / "members").iterdir() if path.is_dir())
        if not members:
            raise DataError("there are no members in it", file=folder / "members")
        for member in members:
            yield from _find_in_member(member / "policies", checkpoints)
    elif (folder / "policies").is_dir():
        yield from _find_in_member(folder / "policies", checkpoints)
    elif (folder / "config.json").is_file():
        if checkpoints != "best":
            text = f"is a single policy: there are no checkpoints {checkpoints} in it"
            raise DataError(text, file=folder)
        yield folder, None
    else:
        text = "holds no policies: expected members/, policies/ or config.json"
        raise DataError(text, file=folder)


def _find_in_member(folder: Path, checkpoints: str) -> list[tuple[Path, int | None]]:
    matches = [(re.fullmatch(r"step-(\d{1,18})", path.name), path) for path in folder.glob("*")]
    steps = sorted((int(match[1]), path) for match, path in matches if match and path.is_dir())
    if checkpoints == "best" and (folder / "best").is_dir():
        return [(folder / "best", None)]
    chosen: list[tuple[int, Path]] = []
    if checkpoints in ("last", "all"):
        chosen = steps[-1:] if checkpoints == "last" else steps
    elif checkpoints != "best":
        first, last = _read_range(checkpoints)
        chosen = [(step, path) for step, path in steps if first <= step <= last]
    if not chosen:
        there = f"there are steps {steps[0][0]} to {steps[-1][0]}" if steps else "there are none"
        if checkpoints == "best" and steps:
            there += ", none of which was evaluated (--checkpoints last takes the last)"
        raise DataError(f"no checkpoints {checkpoints}: {there}", file=folder)
    return [(path, step) for step, path in chosen]


def _read_range(choice: str) -> tuple[int, float]:
    """FIRST:LAST, both included; either may be left out."""
    match = re.fullmatch(r"(\d{0,18}):(\d{0,18})", choice)
    if match is None:
        expected = f"{', '.join(NAMED_CHECKPOINTS)} or FIRST:LAST"
        raise DataError(f"expected {expected}, got {choice!r:.40}", field="checkpoints")
    first, last = int(match[1] or 0), float(match[2] or "inf")
    if first > last:
        text = f"expected the first step before the last, got {choice}"
        raise DataError(text, field="checkpoints")
    return first, last
