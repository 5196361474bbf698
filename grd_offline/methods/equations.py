"""Episodes as tensors: flat steps, and rows that say which of them add up to what was delivered.

A row is a stretch of steps between two deliveries and the amount delivered at its end; an episode
with one return is one row. Steps lie one after the other without padding, so that a few long
episodes among many short ones cost no memory; a batch of rows is padded when it is gathered.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grd_offline.core.episodes import Episode, EpisodeSet, find_resolution
from grd_offline.core.errors import DataError
from grd_offline.methods.models.export import export_reward
from grd_offline.networks.members.nn import PairRewardNet, RewardNet
from grd_offline.rewards.constant import ConstantFunction
from grd_offline.rewards.network import NetworkFunction

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Batch(NamedTuple):
    """Rows of some members, padded to a common number of steps."""

    steps: Tensor
    """(member, row, time) where each step lies in the flat tensors."""
    valid: Tensor
    """(member, row, time) bool: False on padding."""
    amounts: Tensor
    """(member, row): the delivered amount of each row."""
    starts: Tensor
    """(member, row): the number of steps of the episode before the row."""
    lengths: Tensor
    """(member, row): the number of steps of each row."""


class StepSample(NamedTuple):
    """Some steps of some rows, in no order."""

    steps: Tensor
    """(member, row, draw) where each step lies in the flat tensors."""
    valid: Tensor
    """(member, row, draw) bool: False where a row has fewer steps than were drawn."""
    times: Tensor
    """(member, row, draw) the number of steps before it in its episode."""
    lengths: Tensor
    """(member, row): the number of steps of each row."""


@dataclass(frozen=True, eq=False)
class Rows:
    """All steps of a dataset and the equations about them."""

    observations: Tensor
    """(step, state) each episode's observations, the last one included (repeated if unknown)."""
    actions: Tensor
    """(step, action) aligned with `observations`; zeros at each last observation."""
    first: Tensor
    """(row,) where the row's first step lies."""
    lengths: Tensor
    """(row,) steps in the row."""
    starts: Tensor
    """(row,) steps of the episode before the row; 0 where rewards came at every step."""
    amounts: Tensor
    """(row,) what was delivered, in float64: float32 would lose what a large mean hides."""
    episodes: Tensor
    """(row,) which episode the row belongs to."""
    transitions: Tensor
    """(transition,) where the steps lie whose next observation is known: it lies one further."""
    real_steps: Tensor
    """(step,) bool: False at each last observation, where nothing was done."""

    @property
    def longest(self) -> int:
        """Steps in the longest row."""
        return int(self.lengths.max())

    @property
    def common_time(self) -> int | None:
        """Length to which batches are padded: a fixed length on CUDA, else the length that a batch
        needs."""
        return self.longest if self.lengths.is_cuda else None

    def gather(self, rows: Int[Tensor, "member row"], time: int | None = None) -> Batch:
        """The rows with these indices, padded to `time` steps.

        None pads to the longest of them, which asks the device for a number: not while a CUDA
        graph is captured.
        """
        lengths = self.lengths[rows]
        offsets = torch.arange(int(lengths.max()) if time is None else time, device=rows.device)
        valid = offsets < lengths.unsqueeze(-1)
        # Padding points at the row's first step: any finite numbers will do.
        steps = self.first[rows].unsqueeze(-1) + torch.where(valid, offsets, 0)
        return Batch(steps, valid, self.amounts[rows], self.starts[rows], lengths)

    def sample_steps(
        self, rows: Int[Tensor, "member row"], count: int, time: int, generator: torch.Generator
    ) -> StepSample:
        """`count` distinct steps of each row, all of them where a row has fewer."""
        lengths = self.lengths[rows]
        order = torch.rand((*rows.shape, time), device=rows.device, generator=generator)
        order = torch.where(torch.arange(time, device=rows.device) < lengths[..., None], order, -1)
        values, offsets = order.topk(min(count, time), -1)
        valid = values >= 0
        offsets = torch.where(valid, offsets, 0)
        steps = self.first[rows].unsqueeze(-1) + offsets
        return StepSample(steps, valid, self.starts[rows].unsqueeze(-1) + offsets, lengths)

    def compute_differences(self) -> Float[Tensor, "step state"]:
        """Compute s' - s, which is 0 where s' is unknown."""
        differences = torch.zeros_like(self.observations)
        later = self.observations[self.transitions + 1]
        differences[self.transitions] = later - self.observations[self.transitions]
        return differences

    def to(self, device: torch.device | str) -> Rows:
        """Return the same rows on another device."""
        moved = {name: value.to(device) for name, value in vars(self).items()}
        return replace(self, **moved)


def stack_rows(episodes: EpisodeSet) -> Rows:
    """Load all episodes into memory as `Rows`; an episode without any delivery gives no row."""
    parts: list[dict[str, NDArray[Any]]] = []
    offset = 0
    for index, episode in enumerate(episodes):
        parts.append(_read(episode, index, offset))
        offset += len(episode) + 1
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if not len(joined["amounts"]):
        raise DataError("no reward is delivered in any episode", field="delivered")
    return Rows(**{name: torch.from_numpy(array) for name, array in joined.items()})


def _read(episode: Episode, index: int, offset: int) -> dict[str, NDArray[Any]]:
    """The fields of `Rows` for one episode, whose first step lies at `offset`."""
    observations, actions = episode.observations, episode.actions
    if not episode.has_final_observation:
        observations = np.concatenate([observations, observations[-1:]])
    starts, stops, amounts = episode.segments()
    return {
        "observations": observations,
        "actions": np.concatenate([actions, np.zeros_like(actions[:1])]),
        "first": offset + starts,
        "lengths": stops - starts,
        # A reward at every step is plain; only a sum of several carries its discount inside.
        "starts": np.zeros_like(starts) if episode.delivered.all() else starts,
        "amounts": amounts.astype(np.float64),
        "episodes": np.full(len(starts), index),
        "transitions": offset + np.arange(len(episode.observations) - 1),
        "real_steps": np.arange(len(observations)) < len(episode),
    }


def compute_weights(rows: Rows, discount: float) -> NDArray[np.float64]:
    """(row,) sum of gamma^(t-1) over the steps of each row: its length where gamma is 1."""
    lengths = rows.lengths.cpu().numpy().astype(np.float64)
    if discount == 1.0:
        return lengths
    before = discount ** rows.starts.cpu().numpy().astype(np.float64)
    return np.asarray(before * (1 - discount**lengths) / (1 - discount))


def measure_inputs(
    inputs: Float[Tensor, "step input"], real_steps: Bool[Tensor, "step"]
) -> tuple[Float[Tensor, "input"], Float[Tensor, "input"]]:
    """Mean and std of each input column over real steps, in float64; std 1 where constant."""
    chosen = inputs[real_steps].double()
    mean = chosen.mean(0)
    std = (chosen - mean).square().mean(0).sqrt()
    constant = std <= 1e-7 * mean.abs().clamp_min(1e-12)
    return mean, torch.where(constant, 1.0, std)


def measure_returns(rows: Rows, discount: float) -> tuple[float, float]:
    """c = sum R / sum T, and the spread of (R - c T) / sqrt(T) over rows.

    Subtracting the mean return instead would make short episodes look bad and long ones good.
    The spread is in units of reward: rewards of that size, independent between steps, make returns
    as spread out as they are. It is 0 where returns differ by no more than rounding.
    """
    weights = compute_weights(rows, discount)
    amounts = rows.amounts.cpu().numpy()
    offset = float(amounts.sum() / weights.sum())
    spread = float(np.sqrt(np.mean((amounts - offset * weights) ** 2 / weights)))
    size = float(np.sqrt(np.mean(amounts**2 / weights)))
    return offset, spread if spread > find_resolution(amounts) * size else 0.0


@dataclass(frozen=True, eq=False)
class Problem:
    """The data of a network: input columns, and the sums that its outputs must reach."""

    rows: Rows
    inputs: Tensor
    """(step, input) states, actions, and s' - s where wanted, side by side."""
    mean: Tensor
    """(input,) taken off each input; 0 where they were left as they are."""
    std: Tensor
    """(input,) each input was divided by this."""
    targets: Tensor
    """(row,) (R - c T) / scale."""
    spans: Tensor
    """(row,) square root of the row's sum of discounts: gaps are divided by it."""
    offset: float
    """The mean reward per step, c."""
    scale: float
    """Units of reward per unit of the net's output."""
    states: int
    actions: int
    discount: float

    @classmethod
    def from_episodes(
        cls,
        episodes: EpisodeSet,
        *,
        discount: float,
        device: str,
        standardise: bool = True,
        differences: bool = False,
    ) -> Problem:
        """Load all episodes; with `standardise` bring inputs and returns to unit scale."""
        rows = stack_rows(episodes)
        columns = [rows.observations, rows.actions]
        if differences:
            columns.append(rows.compute_differences())
        inputs = torch.cat(columns, 1)
        mean, std = torch.zeros(inputs.shape[1]), torch.ones(inputs.shape[1])
        offset, scale = 0.0, 1.0
        if standardise:
            mean, std = measure_inputs(inputs, rows.real_steps)
            offset, spread = measure_returns(rows, discount)
            scale = spread or np.inf
            inputs = ((inputs.double() - mean) / std).float()
        weights = torch.from_numpy(compute_weights(rows, discount))
        return cls(
            rows=rows.to(device),
            inputs=inputs.to(device),
            mean=mean.float(),
            std=std.float(),
            targets=((rows.amounts - offset * weights) / scale).float().to(device),
            spans=weights.sqrt().float().to(device),
            offset=offset,
            scale=scale if np.isfinite(scale) else 1.0,
            states=episodes.state_size,
            actions=episodes.action_size,
            discount=discount,
        )

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.inputs.device

    @property
    def constant(self) -> ConstantFunction:
        """The mean reward at every step."""
        return ConstantFunction(self.offset, states=self.states, actions=self.actions)

    @property
    def variance(self) -> float:
        """Mean square of the scaled targets: the loss of a constant reward; 0 if that is exact."""
        return float((self.targets / self.spans).square().mean())


def export_network(
    net: RewardNet | PairRewardNet,
    problem: Problem,
    mask: Float[Tensor, "member column"],
    columns: Int[Tensor, "column"],
) -> NetworkFunction:
    """A trained net as a function in the units of the data."""
    chosen = columns.cpu()
    return export_reward(
        copy.deepcopy(net),  # whose weights are slices of the optimiser's tensor
        mask,
        states=problem.states,
        actions=problem.actions,
        columns=chosen.tolist(),
        needs_next=problem.inputs.shape[1] > problem.states + problem.actions,
        mean=problem.mean[chosen],
        std=problem.std[chosen],
        offset=problem.offset,
        scale=problem.scale,
    )
