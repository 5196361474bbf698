"""`--method rrd` and `rrd-unbiased`: randomised return decomposition (Ren et al., ICLR 2022).

The sum of an episode's rewards is estimated from 64 of its steps drawn at random, so that an
update costs the same however long episodes are. The biased loss also punishes differences between
the rewards of one episode; the unbiased one subtracts that. The reward net sees state, action and
the difference to the next state. There is no graph: `masks_` is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from grd_offline.episodes import EpisodeSet
from grd_offline.losses import rrd_loss, rrd_unbiased_loss
from grd_offline.members.nn import RewardNet
from grd_offline.methods.contract import Decomposer, Progress
from grd_offline.methods.equations import Problem, export_network
from grd_offline.methods.training import Noise, Trainer, make_adam


@dataclass(frozen=True)
class RrdSettings:
    """Settings of `rrd`; defaults from the RRD authors' code unless said otherwise."""

    unbiased: bool = False
    """Subtract the variance that drawing adds (`rrd-unbiased`)."""
    subsequence: int = 64
    """Steps drawn from each row (K)."""
    rows_per_batch: int = 4
    """Rows (whole episodes, or stretches between deliveries) per update; theirs: 256 steps."""
    updates: int = 4000
    """Offline; as for `paper`, so that the two compare."""
    learning_rate: float = 3e-4
    """Adam's."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers, ReLU."""
    discount: float = 1.0
    """gamma of the return sum; theirs is undiscounted."""
    use_next: bool | None = None
    """See s' - s. None: if every episode's last observation is known. True fills in 0 there."""
    members: int = 1
    """Independent nets trained at once; their mean is the reward."""
    device: str = "cpu"
    """`cpu` or `cuda`."""

    def __post_init__(self) -> None:
        for name in ("rows_per_batch", "updates", "members"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}: expected a whole number of at least 1, got {getattr(self, name)!r}"
                )
        if self.subsequence < 2:
            raise ValueError(
                f"subsequence: expected a whole number of at least 2, got {self.subsequence!r}"
            )
        if not 0 < self.discount <= 1:
            raise ValueError(
                f"discount: expected a number above 0, at most 1, got {self.discount!r}"
            )


class Rrd(Decomposer, settings=RrdSettings):
    """Randomised return decomposition.

    Unlike the authors' code inputs are standardised and returns taken as R - c T, since a dataset
    comes at any scale and is seen as a whole.
    """

    def _fit(
        self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress | None
    ) -> None:
        """Learn the reward net."""
        settings = self.settings
        use_next = settings.use_next
        if use_next is None:
            use_next = all(episode.has_final_observation for episode in episodes)
        problem = Problem.from_episodes(
            episodes, discount=settings.discount, device=settings.device, differences=use_next
        )
        model = _Model(problem, settings, Noise(rng, settings.device))
        model.trainer.run(
            model.update,
            settings.updates,
            report=lambda done: progress("reward", done / settings.updates) if progress else None,
        )
        self.function_ = export_network(
            model.net, problem, model.mask.squeeze(1), torch.arange(problem.inputs.shape[1])
        )


class _Model:
    """The net and one update of it."""

    def __init__(self, problem: Problem, settings: RrdSettings, noise: Noise) -> None:
        self.problem, self.settings, self._noise = problem, settings, noise.updates
        inputs = problem.inputs.shape[1]
        self.net = RewardNet(
            settings.members, inputs, hidden=settings.hidden, generator=noise.weights
        ).to(problem.device)
        self.mask = torch.ones(settings.members, 1, inputs, device=problem.device)
        members, device = settings.members, problem.device
        self.adam = make_adam([self.net], settings.learning_rate, members=members, device=device)
        self.trainer = Trainer([self.adam], noise.updates)
        self._loss = rrd_unbiased_loss if settings.unbiased else rrd_loss
        self._time = problem.rows.longest

    def update(self) -> None:
        """One Adam step on a few steps of a few rows."""
        problem, settings = self.problem, self.settings
        shape = (settings.members, settings.rows_per_batch)
        rows = torch.randint(
            len(problem.targets), shape, generator=self._noise, device=problem.device
        )
        draw = problem.rows.draw(rows, settings.subsequence, self._time, self._noise)
        rewards = self.net(problem.inputs[draw.steps], self.mask.unsqueeze(2))
        if settings.discount != 1.0:
            rewards = rewards * settings.discount**draw.times
        losses = self._loss(rewards, draw.valid, draw.lengths, problem.targets[rows])
        self.adam.step(losses)
