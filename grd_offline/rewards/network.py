"""A reward net as a reward function, averaged over its members."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array
from grd_offline.networks.members.nn import PairRewardNet, RewardNet
from grd_offline.rewards.contract import ConfigReader, Headers, RewardFunction, Steps, check_tensors

# Predictions are made in blocks of one size, and the last block is filled up with zeros: the last
# bit of a matrix product depends on its number of rows. Larger blocks are little faster, and make
# the prediction of a single step slower.
_BLOCK = 128


class NetworkReward(nn.Module):
    """The mean over members of a network's reward of standardised, masked inputs.

    r = offset + scale * mean_k net_k((x - mean) / std * mask_k)

    x holds the chosen `columns` of (s, a), or of (s, a, s' - s) where `needs_next` is set.
    """

    def __init__(
        self,
        net: RewardNet | PairRewardNet,
        *,
        members: int,
        columns: Sequence[int],
        needs_next: bool = False,
    ) -> None:
        super().__init__()
        self.net = net
        self.mask = nn.Buffer(torch.ones(members, len(columns)))
        self.mean = nn.Buffer(torch.zeros(len(columns)))
        self.std = nn.Buffer(torch.ones(len(columns)))
        self.offset = nn.Buffer(torch.zeros(1))
        self.scale = nn.Buffer(torch.ones(1))
        self.columns = nn.Buffer(torch.tensor(list(columns)), persistent=False)
        self.needs_next = needs_next

    def forward(self, batch: StepBatch[Tensor]) -> Tensor:
        """(...,) the reward of each step; terminations are not used."""
        columns = [batch.observations, batch.actions]
        if self.needs_next:
            columns.append(cast(Tensor, batch.next_observations) - batch.observations)
        inputs = torch.cat(columns, -1)[..., self.columns].to(self.mean.dtype)
        rows = ((inputs - self.mean) / self.std).reshape(-1, len(self.columns))
        members = rows.expand(len(self.mask), *rows.shape)
        rewards = cast(Tensor, self.net(members, self.mask.unsqueeze(1))).mean(0)
        scaled = rewards * self.scale + self.offset
        return scaled.reshape(inputs.shape[:-1])


class NetworkFunction(RewardFunction):
    """A reward net with its masks, the scaling of inputs and output, averaged over members.

    Where it depends on the next observation, it does so through s' - s.
    """

    kind: ClassVar[str] = "network"
    description: ClassVar[str] = "a mean of neural networks"
    far_from_data: ClassVar[str] = "the reward is whatever the networks make of it"

    def __init__(self, module: NetworkReward, *, states: int, actions: int) -> None:
        self.module = module.cpu().eval().requires_grad_(False)
        self.states, self.actions, self.needs_next = states, actions, module.needs_next

    def predict(self, batch: Steps) -> Array:
        """(N,) the reward of each step."""
        checked = batch.as_numbers(self.states, self.actions)
        checked.check_given(next_observations=self.needs_next, terminations=False)
        rewards = np.empty(len(checked), np.float64)
        for start in range(0, len(rewards), _BLOCK):
            with torch.no_grad():
                values = self.module(checked[start : start + _BLOCK].map(_fill_block)).numpy()
            rewards[start : start + _BLOCK] = values[: len(rewards) - start]
        return rewards

    def draw_inputs(self, rng: np.random.Generator, count: int) -> Array:
        """Steps with the mean and the standard deviation of the data."""
        rows = super().draw_inputs(rng, count)
        columns = self.module.columns.numpy()
        rows[:, columns] *= self.module.std.numpy()
        rows[:, columns] += self.module.mean.numpy()
        # The net takes the change of state, not the next state.
        rows[:, self.states + self.actions : -1] += rows[:, : self.states]
        return rows

    def torch(self) -> nn.Module:
        """A frozen copy of the module; gradients flow to its inputs."""
        return copy.deepcopy(self.module)

    def config(self) -> dict[str, Any]:
        """Plain JSON: kind and sizes of the net."""
        net = self.module.net
        columns, members = self.module.columns.tolist(), len(self.module.mask)
        shared = {"uses_next": self.needs_next, "columns": columns, "members": members}
        config = super().config() | shared
        if isinstance(net, PairRewardNet):
            return config | {"net": "pair", "features": net.features}
        hidden = [int(weight.shape[-1]) for weight in net.stack.weights[:-1]]
        return config | {"net": "dense", "hidden": hidden, "activation": net.stack.activation}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return all weights as float32."""
        state = self.module.state_dict()
        return {name: value.numpy().copy() for name, value in state.items()}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """The function with this config and these tensors.

        Sizes are compared with the tensors before any memory is taken for them.
        """
        check_tensors(cls.expected_tensors(config), tensors)
        if (tensors["std"] <= 0).any():
            raise ValueError("tensors: std: expected numbers above 0")
        build, _, states, actions = _read_network(config, cls.kind)
        # A new net draws random weights, which are replaced: the random state stays as it was.
        before = torch.get_rng_state()
        module = build()
        torch.set_rng_state(before)
        module.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()})
        return cls(module, states=states, actions=actions)

    @classmethod
    def expected_tensors(cls, config: Mapping[str, Any], shapes: object = None) -> Headers:
        """Type and shape of every tensor, without taking memory for them."""
        _, found, *_ = _read_network(config, cls.kind)
        return {name: ("float32", shape) for name, shape in found.items()}


def _fill_block(part: NDArray[Any]) -> Tensor:
    block = np.zeros((_BLOCK, *part.shape[1:]), np.float32)
    block[: len(part)] = part
    return torch.from_numpy(block)


def _read_network(
    config: Mapping[str, Any], kind: str
) -> tuple[Callable[[], NetworkReward], dict[str, tuple[int, ...]], int, int]:
    """A function that makes the network of a config, which is checked here, the shapes of all its
    tensors, and the numbers of states and actions."""
    read = ConfigReader(config, kind)
    states, actions = read.whole("states"), read.whole("actions", least=0)
    members = read.whole("members")
    needs_next = read.flag("uses_next")
    columns = read.indices("columns", states + actions + (states if needs_next else 0))
    inputs = len(columns)
    net = read.choice("net", ("pair", "dense"))
    make: Callable[[], RewardNet | PairRewardNet]
    shapes: dict[str, tuple[int, ...]] = {"mask": (members, inputs)}
    shapes |= {"mean": (inputs,), "std": (inputs,), "offset": (1,), "scale": (1,)}
    if net == "pair":
        features = read.whole("features")
        total, each = inputs * features, (members, 1, inputs, features)
        shapes |= dict.fromkeys(("net.rates", "net.shifts", "net.centre"), each)
        shapes |= {"net.main": (members, 1, total), "net.pairs": (members, total, total)}
        shapes["net.constant"] = (members, 1)
        make = partial(PairRewardNet, members, inputs, features=features)
    else:
        hidden = read.wholes("hidden")
        activation = read.choice("activation", ("relu", "silu", "tanh"))
        for layer, (rows, columns_out) in enumerate(pairwise((inputs, *hidden, 1))):
            shapes[f"net.stack.weights.{layer}"] = (members, rows, columns_out)
            shapes[f"net.stack.biases.{layer}"] = (members, 1, columns_out)
        make = partial(RewardNet, members, inputs, hidden=hidden, activation=activation)
    read.done()

    def build() -> NetworkReward:
        return NetworkReward(make(), members=members, columns=columns, needs_next=needs_next)

    return build, shapes, states, actions
