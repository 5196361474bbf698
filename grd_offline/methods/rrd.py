"""Randomised return decomposition (Ren et al., ICLR 2022): the model of `rrd` and `rrd-unbiased`.

The sum of an episode's rewards is estimated from a few of its steps, drawn at random, so that an
update costs the same however long episodes are. The biased loss also punishes differences between
the rewards of one episode; the unbiased loss subtracts that. The reward net sees the state, the
action and the change to the next state. There is no graph.

`decompose --method rrd` and `train-online --method rrd` train this one model. Its rewards are per
step, in the units of the return: a perfect model's rewards add up to the return of each episode.
What the two do differently:

- A file is seen as a whole before training, so inputs are brought to unit scale, and the net learns
  R - c T in units of its spread (`RrdSettings.standardise`); the exported reward has both undone.
  A replay is not, so the net takes inputs and returns as they are, as the authors' code does.
- A file may lack the last observation of its episodes. Then the net does not see the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.core.settings import COUNT, RATE, Settings, setting
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.training import NetworkData, Noise, Trainer, export_network
from grd_offline.networks.losses import rrd_losses
from grd_offline.networks.members.nn import RewardNet
from grd_offline.networks.members.optimiser import Adam

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


STEPS_PER_EPISODE = 64
"""Number of steps drawn from each episode (K), as its authors have it."""


class RrdModel:
    """The reward net of some members, and one update of it."""

    def __init__(
        self,
        net: RewardNet,
        unbiased: Sequence[bool],
        rates: Float[Tensor, "member"],
        *,
        leaves: bool = True,
    ) -> None:
        """`unbiased` says which loss each member has. `Flat` of the optimiser has `leaves`."""
        self.net, self.adam = net, Adam([net], rates, leaves=leaves)
        self._unbiased = torch.tensor(list(unbiased), device=rates.device)
        inputs = net.stack.weights[0].shape[1]
        self.mask = torch.ones((len(rates), inputs), device=rates.device)

    def compute_losses(
        self,
        inputs: Float[Tensor, "member episode draw input"],
        valid: Bool[Tensor, "member episode draw"],
        lengths: Int[Tensor, "member episode"],
        returns: Float[Tensor, "member episode"],
        discounts: Float[Tensor, "member episode draw"] | None = None,
    ) -> Float[Tensor, "member"]:
        """The loss of each member on the drawn steps; `discounts` weighs their rewards."""
        rewards = self.compute_rewards(inputs)
        if discounts is not None:
            rewards = rewards * discounts
        biased, unbiased = rrd_losses(rewards, valid, lengths, returns)
        return torch.where(self._unbiased, unbiased, biased)

    def step(self, losses: Float[Tensor, "member"]) -> None:
        """Take one step of Adam."""
        self.adam.step(losses)

    def compute_rewards(
        self, inputs: Float[Tensor, "member *batch input"]
    ) -> Float[Tensor, "member *batch"]:
        """The reward of each step, in the units that the net was trained in."""
        mask = self.mask.view(len(self.mask), *[1] * (inputs.ndim - 2), -1)
        return cast(Tensor, self.net(inputs, mask))


@dataclass(frozen=True)
class RrdSettings(Settings):
    """Settings of `rrd`; the defaults are those of the RRD authors' code unless they say so."""

    unbiased: bool = False
    """Subtract the variance that drawing adds (`rrd-unbiased`)."""
    subsequence: int = setting(STEPS_PER_EPISODE, at_least=2)
    """Number of steps drawn from each row (K)."""
    rows_per_batch: int = setting(4, **COUNT)
    """Rows (whole episodes, or stretches between deliveries) per update; theirs: 256 steps."""
    updates: int = setting(4000, **COUNT)
    """Number of updates: as many as for `paper`, so that the two compare."""
    learning_rate: float = 3e-4
    """Learning rate of Adam."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers, which use ReLU."""
    discount: float = setting(1.0, **RATE)
    """Discount factor of the return (gamma); theirs is undiscounted."""
    standardise: bool = True
    """Bring inputs and returns to unit scale while training; theirs are used as they are."""
    use_next: bool | None = None
    """Let the net see s' - s. None: if every episode's last observation is known. True: fill in 0
    where it is not."""
    members: int = setting(1, **COUNT)
    """Independent nets trained at once; their mean is the reward."""
    device: str = "cpu"
    """Device that trains the network: `cpu` or `cuda`."""


class Rrd(Decomposer, settings=RrdSettings):
    """Randomised return decomposition.

    Examples
    --------
    >>> from grd_offline import read
    >>> model = Rrd().fit(read("datasets/sample.h5"))  # doctest: +SKIP
    """

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Train the reward network."""
        settings, use_next = self.settings, self.settings.use_next
        if use_next is None:
            use_next = all(episode.has_final_observation for episode in episodes)
        problem = NetworkData.from_episodes(
            episodes, settings, standardise=settings.standardise, changes=use_next
        )
        model, trainer, update = build_updates(problem, settings, Noise(rng, settings.device))
        count = settings.updates
        trainer.run(update, count, report=lambda done: progress("reward", done / count))
        self.function_ = export_network(model.net, problem, model.mask)


def build_updates(
    problem: NetworkData, settings: RrdSettings, noise: Noise
) -> tuple[RrdModel, Trainer, Callable[[], None]]:
    """The model, its trainer, and an update on a few steps of a few rows of a file."""
    members, inputs, device = settings.members, problem.inputs, problem.device
    net = RewardNet(members, inputs.shape[1], hidden=settings.hidden, generator=noise.weights)
    rates = torch.full((members,), settings.learning_rate, dtype=torch.float64, device=device)
    model = RrdModel(net.to(device), [settings.unbiased] * members, rates, leaves=False)
    shape, longest = (members, settings.rows_per_batch), problem.rows.longest

    def update() -> None:
        rows = noise.pick(len(problem.targets), shape)
        sample = problem.rows.sample_steps(rows, settings.subsequence, longest, noise.updates)
        discounts = None if settings.discount == 1.0 else settings.discount**sample.times
        steps = inputs[sample.steps], sample.valid, sample.lengths, problem.targets[rows]
        model.step(model.compute_losses(*steps, discounts))

    return model, Trainer([model.adam], noise.updates), update
