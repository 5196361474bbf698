"""Rewards as functions of a step that can be written to disk: a constant, and a net."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from grd_offline.decompose.base import Array
from grd_offline.decompose.padded import Problem
from grd_offline.episodes import check_finite
from grd_offline.nn import PairRewardNet, RewardNet

# Predictions are made in blocks of one size, the last one filled up: a product's last bit
# depends on how many rows it has. Larger ones are little faster, and cost a single step more.
_BLOCK = 128


def check_steps(
    states: int,
    actions: int,
    observations: ArrayLike,
    action_values: ArrayLike,
    next_observations: ArrayLike | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None]:
    """The steps as float32 arrays (N, state), (N, action) [, (N, state)], or ValueError."""
    first = _as_matrix("observations", observations, states, None)
    second = _as_matrix("actions", action_values, actions, len(first))
    if next_observations is None:
        return first, second, None
    return first, second, _as_matrix("next_observations", next_observations, states, len(first))


def _as_matrix(name: str, values: ArrayLike, columns: int, rows: int | None) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        array = np.asarray(values, np.float32)
    if array.ndim != 2 or array.shape[1] != columns or rows not in (None, len(array)):
        wanted = f"({'N' if rows is None else rows}, {columns})"
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}")
    check_finite(array, name, np.asarray(values))
    return array


class ConstantFunction:
    """The same reward at every step: what a method without a function of the step comes down to."""

    kind: ClassVar[str] = "constant"

    def __init__(self, value: float, *, states: int, actions: int) -> None:
        self.value = float(value)
        self.states, self.actions = states, actions

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) the constant."""
        steps = check_steps(self.states, self.actions, observations, actions, next_observations)
        return np.full(len(steps[0]), self.value)

    def torch(self) -> nn.Module:
        """A module that returns the constant, whatever comes in."""
        return _ConstantReward(self.value)

    def config(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": self.kind, "states": self.states, "actions": self.actions}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The value alone."""
        return {"value": np.array([self.value])}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild; ValueError names the first thing that does not fit."""
        read = _ConfigReader(config, cls.kind)
        states, actions = read.whole("states"), read.whole("actions")
        read.done()
        check_tensors(cls.expected_tensors(config), tensors)
        return cls(float(tensors["value"][0]), states=states, actions=actions)

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor."""
        return {"value": ("float64", (1,))}


class _ConstantReward(nn.Module):
    value: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(value))

    def forward(
        self, observations: Tensor, actions: Tensor, next_observations: Tensor | None = None
    ) -> Tensor:
        # So that gradients are zero, not missing.
        return self.value + 0 * observations[..., 0].to(self.value.dtype)


class NetworkReward(nn.Module):
    """The mean over members of a network's reward of standardised, masked inputs.

    r = offset + scale * mean_k net_k((x - mean) / std * mask_k)

    x holds the chosen `columns` of (s, a), or of (s, a, s' - s) where `uses_next` is set.
    """

    mask: Tensor
    mean: Tensor
    std: Tensor
    offset: Tensor
    scale: Tensor
    columns: Tensor

    def __init__(
        self,
        net: RewardNet | PairRewardNet,
        *,
        members: int,
        columns: Sequence[int],
        uses_next: bool = False,
    ) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mask", torch.ones(members, len(columns)))
        self.register_buffer("mean", torch.zeros(len(columns)))
        self.register_buffer("std", torch.ones(len(columns)))
        self.register_buffer("offset", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("columns", torch.tensor(list(columns)), persistent=False)
        self.uses_next = uses_next

    def forward(
        self, observations: Tensor, actions: Tensor, next_observations: Tensor | None = None
    ) -> Tensor:
        """(..., state), (..., action) [, (..., state)] -> (...,)"""
        columns = [observations, actions]
        if self.uses_next:
            if next_observations is None:
                raise ValueError("next_observations: expected them, this reward depends on them")
            columns.append(next_observations - observations)
        inputs = torch.cat(columns, -1)[..., self.columns].to(self.mean.dtype)
        rows = ((inputs - self.mean) / self.std).reshape(-1, len(self.columns))
        members = rows.expand(len(self.mask), *rows.shape)
        rewards = cast(Tensor, self.net(members, self.mask.unsqueeze(1))).mean(0)
        scaled = rewards * self.scale + self.offset
        return scaled.reshape(inputs.shape[:-1])


class NetworkFunction:
    """A reward net with its masks, the scaling of inputs and output, averaged over members."""

    kind: ClassVar[str] = "network"

    def __init__(self, module: NetworkReward, *, states: int, actions: int) -> None:
        self.module = module.cpu().eval().requires_grad_(False)
        self.states, self.actions = states, actions

    @property
    def uses_next(self) -> bool:
        """Whether the reward depends on the next observation, through s' - s."""
        return self.module.uses_next

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) the reward of each step."""
        steps = check_steps(self.states, self.actions, observations, actions, next_observations)
        if self.uses_next and steps[2] is None:
            raise ValueError("next_observations: expected them, this reward depends on them")
        rewards = np.empty(len(steps[0]), np.float64)
        for start in range(0, len(rewards), _BLOCK):
            block = [part if part is None else _cut_block(part, start) for part in steps]
            with torch.no_grad():
                values = self.module(*block).numpy()
            rewards[start : start + _BLOCK] = values[: len(rewards) - start]
        return rewards

    def torch(self) -> nn.Module:
        """A frozen copy of the module; gradients flow to its inputs."""
        return copy.deepcopy(self.module)

    def config(self) -> dict[str, Any]:
        """Plain JSON: kind and sizes of the net."""
        net = self.module.net
        sizes: dict[str, Any]
        if isinstance(net, PairRewardNet):
            sizes = {"net": "pair", "features": net.features}
        else:
            hidden = [int(weight.shape[-1]) for weight in net.stack.weights[:-1]]
            sizes = {"net": "dense", "hidden": hidden, "activation": net.stack.activation}
        return {
            "kind": self.kind,
            "states": self.states,
            "actions": self.actions,
            "uses_next": self.uses_next,
            "columns": self.module.columns.tolist(),
            "members": len(self.module.mask),
            **sizes,
        }

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All weights, float32."""
        state = self.module.state_dict()
        return {name: value.numpy().copy() for name, value in state.items()}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild; ValueError names the first thing that does not fit.

        Sizes are compared with the tensors before any memory is taken for them.
        """
        check_tensors(cls.expected_tensors(config), tensors)
        if (tensors["std"] <= 0).any():
            raise ValueError("tensors: std: expected numbers above 0")
        plan = _read_network(config, cls.kind)
        # A new net draws its first weights; whoever loads one must not lose random numbers to it.
        before = torch.get_rng_state()
        module = plan.build()
        torch.set_rng_state(before)
        module.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()})
        return cls(module, states=plan.states, actions=plan.actions)

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor, without taking memory for them."""
        shapes_of = _read_network(config, cls.kind).shapes
        return {name: ("float32", shape) for name, shape in shapes_of.items()}


def export_network(
    net: RewardNet | PairRewardNet, problem: Problem, mask: Tensor, columns: Tensor
) -> NetworkFunction:
    """A trained net as a function in the data's units; `mask` is (member, column)."""
    chosen = columns.cpu()
    module = NetworkReward(
        net,
        members=len(mask),
        columns=chosen.tolist(),
        uses_next=problem.inputs.shape[1] > problem.states + problem.actions,
    ).cpu()
    with torch.no_grad():
        module.mask.copy_(mask)
        module.mean.copy_(problem.mean[chosen])
        module.std.copy_(problem.std[chosen])
        module.offset.fill_(problem.offset)
        module.scale.fill_(problem.scale)
    return NetworkFunction(module, states=problem.states, actions=problem.actions)


def _cut_block(part: NDArray[np.float32], start: int) -> Tensor:
    block = np.zeros((_BLOCK, part.shape[1]), np.float32)
    chosen = part[start : start + _BLOCK]
    block[: len(chosen)] = chosen
    return torch.from_numpy(block)


class _NetworkPlan(NamedTuple):
    """What a config asks for: checked, and nothing of it made yet."""

    build: Callable[[], NetworkReward]
    shapes: dict[str, tuple[int, ...]]
    """Of every tensor that the module will have."""
    states: int
    actions: int


def _read_network(config: Mapping[str, Any], kind: str) -> _NetworkPlan:
    read = _ConfigReader(config, kind)
    states, actions, members = read.whole("states"), read.whole("actions"), read.whole("members")
    uses_next = read.flag("uses_next")
    columns = read.indices("columns", states + actions + (states if uses_next else 0))
    inputs = len(columns)
    net = read.choice("net", ("pair", "dense"))
    make: Callable[[], RewardNet | PairRewardNet]
    shapes: dict[str, tuple[int, ...]] = {
        "mask": (members, inputs),
        "mean": (inputs,),
        "std": (inputs,),
        "offset": (1,),
        "scale": (1,),
    }
    if net == "pair":
        features = read.whole("features")
        total = inputs * features
        each = (members, 1, inputs, features)
        shapes |= dict.fromkeys(("net.rates", "net.shifts", "net.centre"), each)
        shapes |= {"net.main": (members, 1, total), "net.pairs": (members, total, total)}
        shapes["net.constant"] = (members, 1)

        def make() -> PairRewardNet:
            return PairRewardNet(members, inputs, features=features)
    else:
        hidden = read.wholes("hidden")
        activation = read.choice("activation", ("relu", "silu", "tanh"))
        for layer, (rows, columns_out) in enumerate(pairwise((inputs, *hidden, 1))):
            shapes[f"net.stack.weights.{layer}"] = (members, rows, columns_out)
            shapes[f"net.stack.biases.{layer}"] = (members, 1, columns_out)

        def make() -> RewardNet:
            return RewardNet(members, inputs, hidden=hidden, activation=activation)

    read.done()

    def build() -> NetworkReward:
        return NetworkReward(make(), members=members, columns=columns, uses_next=uses_next)

    return _NetworkPlan(build, shapes, states, actions)


class _ConfigReader:
    """Reads a function's config field by field; ValueError names the first that does not fit."""

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        self._left = dict(config)
        self.choice("kind", (kind,))

    def _take(self, name: str) -> Any:
        if name not in self._left:
            raise ValueError(f"config: {name}: missing")
        return self._left.pop(name)

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        value = self._take(name)
        if value not in known:
            raise ValueError(
                f"config: {name}: expected one of {', '.join(known)}, got {value!r:.40}"
            )
        return str(value)

    def whole(self, name: str) -> int:
        return self._check_whole(name, self._take(name))

    def wholes(self, name: str) -> tuple[int, ...]:
        values = self._take(name)
        if not isinstance(values, list | tuple) or len(values) > 16:
            raise ValueError(
                f"config: {name}: expected at most 16 whole numbers, got {values!r:.40}"
            )
        return tuple(self._check_whole(name, value) for value in values)

    def indices(self, name: str, below: int) -> tuple[int, ...]:
        values = self._take(name)
        right = isinstance(values, list | tuple) and all(type(value) is int for value in values)
        if not right or list(values) != sorted({v for v in values if 0 <= v < below}) or not values:
            raise ValueError(
                f"config: {name}: expected ascending whole numbers from 0 to {below - 1}"
            )
        return tuple(values)

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            raise ValueError(f"config: {name}: expected true or false, got {value!r:.40}")
        return value

    def done(self) -> None:
        for name in self._left:
            raise ValueError(f"config: {name}: not known")

    @staticmethod
    def _check_whole(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**20:
            raise ValueError(f"config: {name}: expected a whole number from 1, got {value!r:.40}")
        return value


def check_tensors(
    expected: Mapping[str, tuple[str, tuple[int, ...]]], tensors: Mapping[str, NDArray[Any]]
) -> None:
    """ValueError naming the first tensor that is missing, unknown, misshapen or not finite."""
    for name, (dtype, shape) in expected.items():
        if name not in tensors:
            raise ValueError(f"tensors: {name}: missing")
        value = tensors[name]
        if value.shape != shape:
            raise ValueError(f"tensors: {name}: expected shape {shape}, got {value.shape}")
        if value.dtype != np.dtype(dtype):
            raise ValueError(f"tensors: {name}: expected {dtype}, got {value.dtype}")
        if not np.isfinite(value).all():
            raise ValueError(f"tensors: {name}: not finite")
    for name in tensors:
        if name not in expected:
            raise ValueError(f"tensors: {name}: not known")
