"""Training nets on a file: its episodes as tensors, an update many times over, and the trained net.

A row is a stretch of steps between two deliveries and the amount delivered at its end; an episode
with one return is one row. Steps lie one after the other without padding, so that a few long
episodes among many short ones cost no memory; a batch of rows is padded when it is gathered.

The optimiser and the recording of updates are those of `grd_offline.networks.members`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grd_offline.core.episodes import Episode, EpisodeSet, find_resolution
from grd_offline.core.errors import DataError
from grd_offline.core.observer import Progress
from grd_offline.core.waiting import sleep_beside_others
from grd_offline.networks.members.device import record
from grd_offline.networks.members.nn import EDGES, GraphMasks, PairRewardNet, RewardNet
from grd_offline.networks.members.optimiser import BETAS, Adam, step_together
from grd_offline.rewards.constant import ConstantFunction
from grd_offline.rewards.network import NetworkFunction, NetworkReward

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


PATIENCE = 20
"""Training ends with an error when one member had to leave out more updates than this."""


class Noise:
    """Two generators seeded from the caller's: one for weights, one on the device for updates."""

    def __init__(self, rng: np.random.Generator, device: str) -> None:
        seeds = rng.integers(2**62, size=2)
        self.weights = torch.Generator().manual_seed(int(seeds[0]))
        self.updates = torch.Generator(device).manual_seed(int(seeds[1]))

    def pick(self, count: int, shape: tuple[int, ...]) -> Int[Tensor, "..."]:
        """Draw random whole numbers from 0 to count - 1."""
        return torch.randint(count, shape, generator=self.updates, device=self.updates.device)

    def order(self, count: int) -> Int[Tensor, "count"]:
        """Draw a random order of so many things."""
        order = torch.rand(count, generator=self.updates, device=self.updates.device)
        return order.argsort()


class Plan:
    """Progress of a stage: the cosine of its learning rate, and the callback that hears of it."""

    def __init__(self, updates: int, stage: str, progress: Progress) -> None:
        self.updates, self.stage, self.progress = updates, stage, progress
        self.begun = 0.0

    def run(
        self,
        trainer: Trainer,
        update: Callable[[], None],
        part: float,
        *,
        report: Callable[[], None] = lambda: None,
        every: int = 50,
    ) -> None:
        """Spend `part` of the plan on `update`, with a report after `every` updates."""
        updates, begun = max(1, round(part * self.updates)), self.begun

        def find_rate(done: float) -> float:
            return 0.5 * (1 + math.cos(math.pi * min(1.0, begun + part * done)))

        def tell(done: int) -> None:
            self.progress(self.stage, min(1.0, begun + part * (done / updates)))
            report()

        trainer.run(update, updates, schedule=find_rate, report=tell, every=every)
        self.begun += part


def make_adam(module: nn.Module, rate: float, betas: tuple[float, float] = BETAS) -> Adam:
    """Adam with one learning rate for all members, which are stepped in one batched product."""
    first = next(module.parameters())
    rates = torch.full((len(first),), rate, dtype=torch.float64, device=first.device)
    return Adam([module], rates, betas=betas, leaves=False)


class Trainer:
    """Repeats an update many times; on CUDA the update is recorded once and replayed.

    An update that gives a loss or gradient that is not finite is left out by the optimiser; too
    many of them end the training.
    """

    def __init__(
        self, optimisers: Sequence[Adam], generator: torch.Generator, *, capture: bool = True
    ) -> None:
        """`generator` is the one that updates draw from."""
        self.optimisers, self._generator = optimisers, generator
        self.capture = capture and optimisers[0].flat.values.is_cuda

    @property
    def skipped(self) -> int:
        """Updates left out so far, by the member that left out the most."""
        return int(torch.cat([optimiser.skipped for optimiser in self.optimisers]).max().item())

    def step(
        self, losses: Float[Tensor, "member"], price: Float[Tensor, "member"] | None = None
    ) -> None:
        """One step of the first optimiser; with `price`, which is added, of all of them."""
        if price is None:
            self.optimisers[0].step(losses)
        else:
            step_together(self.optimisers, losses + price)

    def run(
        self,
        update: Callable[[], None],
        updates: int,
        *,
        schedule: Callable[[float], float] = lambda done: 1.0,
        report: Callable[[int], None] = lambda done: None,
        every: int = 50,
    ) -> None:
        """Call `update` that many times; `schedule` scales the rates by the fraction done.

        After every `every` updates, and the last, `report` is called with their number.
        """
        call = update
        if self.capture:
            self._scale_rates(schedule(0.0))
            state = [one for optimiser in self.optimisers for one in optimiser.state().values()]
            call = record(update, state, [self._generator])
        with sleep_beside_others():
            for done in range(1, updates + 1):
                self._scale_rates(schedule((done - 1) / updates))
                call()
                if done % every and done < updates:
                    continue
                if (skipped := self.skipped) > PATIENCE:
                    raise RuntimeError(
                        f"training: {skipped} of {done} updates gave a loss or gradient that is "
                        "not finite; look for extreme values in the data or lower the learning rate"
                    )
                report(done)

    def _scale_rates(self, factor: float) -> None:
        for optimiser in self.optimisers:
            optimiser.scale_rates(factor)


class Batch(NamedTuple):
    """Rows of some members, padded to a common number of steps."""

    steps: Tensor
    """(member, row, time) where each step lies in the flat tensors."""
    valid: Tensor
    """(member, row, time) bool: False on padding."""
    starts: Tensor
    """(member, row): the number of steps of the episode before the row."""


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
        return Batch(steps, valid, self.starts[rows])

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

    def to(self, device: torch.device | str) -> Rows:
        """Return the same rows on another device."""
        return Rows(**{name: value.to(device) for name, value in vars(self).items()})


def stack_rows(episodes: EpisodeSet) -> Rows:
    """Load all episodes into memory as `Rows`; an episode without any delivery gives no row."""
    offsets = np.cumsum(episodes.lengths + 1) - episodes.lengths - 1
    parts = [_read(episode, offset) for episode, offset in zip(episodes, offsets, strict=True)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if not len(joined["amounts"]):
        raise DataError("no reward is delivered in any episode", field="delivered")
    return Rows(**{name: torch.from_numpy(array) for name, array in joined.items()})


def _read(episode: Episode, offset: np.int64) -> dict[str, NDArray[Any]]:
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
class NetworkData:
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
        cls, episodes: EpisodeSet, settings: Any, *, standardise: bool = True, changes: bool = False
    ) -> NetworkData:
        """Load all episodes; with `standardise` bring inputs and returns to unit scale.

        `settings` are those of the method, with a discount and a device. With `changes` s' - s are
        inputs, too.
        """
        rows, discount, device = stack_rows(episodes), settings.discount, settings.device
        columns = [rows.observations, rows.actions]
        if changes:  # 0 where s' is unknown
            change, places = torch.zeros_like(rows.observations), rows.transitions
            change[places] = rows.observations[places + 1] - rows.observations[places]
            columns.append(change)
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
    problem: NetworkData,
    mask: Float[Tensor, "member column"],
    columns: Int[Tensor, "column"] | None = None,
) -> NetworkFunction:
    """A trained net as a function in the units of the data; it sees all columns by default."""
    chosen = torch.arange(mask.shape[1]) if columns is None else columns.cpu()
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


def export_reward(
    net: RewardNet | PairRewardNet,
    mask: Float[Tensor, "member column"],
    *,
    states: int,
    actions: int,
    columns: Sequence[int],
    needs_next: bool = False,
    **scaling: Tensor | float,
) -> NetworkFunction:
    """The mean of the net's members: r = offset + scale * net((x - mean) / std * mask).

    `scaling` has the other names of this equation; of those that are left out, the mean and the
    offset are 0, and the others 1. The function takes the net over: pass a copy where training
    goes on.
    """
    module = NetworkReward(net, members=len(mask), columns=columns, needs_next=needs_next).cpu()
    with torch.no_grad():
        for name, value in {"mask": mask, **scaling}.items():
            buffer: Tensor = getattr(module, name)
            buffer.copy_(torch.as_tensor(value))
    return NetworkFunction(module, states=states, actions=actions)


def read_graph(
    graph: GraphMasks, names: Sequence[str] = EDGES
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.float64]]]:
    """Masks that most members chose, and the mean probability of each edge."""
    chosen, probabilities = graph.choose(), graph.compute_probabilities()
    masks, scores = {}, {}
    for name in names:
        majority, mean = getattr(chosen, name).mean(0) > 0.5, getattr(probabilities, name).mean(0)
        masks[name] = majority.numpy(force=True).astype(np.int64)
        scores[name] = mean.numpy(force=True).astype(np.float64)
    return masks, scores


def copy_member(nets: RewardNet, member: int) -> RewardNet:
    """One member's reward net on its own, on the CPU."""
    weights = nets.stack.weights
    hidden = [weight.shape[-1] for weight in weights[:-1]]
    net = RewardNet(1, weights[0].shape[1], hidden=hidden, activation=nets.stack.activation)
    with torch.no_grad():
        for ours, theirs in zip(net.parameters(), nets.parameters(), strict=True):
            ours.copy_(theirs[member : member + 1])
    return net
