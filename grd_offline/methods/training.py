"""Training nets on a file: seeded noise, a plan of the learning rate, an update many times over.

The optimiser and the recording of updates are those of `grd_offline.networks.members`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from grd_offline.core.observer import Progress
from grd_offline.core.waiting import sleep_beside_others
from grd_offline.networks.members.capture import record
from grd_offline.networks.members.optimiser import BETAS, Adam, step_together

if TYPE_CHECKING:
    from jaxtyping import Float

PATIENCE = 20
"""Training ends with an error when one member had to leave out more updates than this."""


class Noise:
    """Two generators seeded from the caller's: one for weights, one on the device for updates."""

    def __init__(self, rng: np.random.Generator, device: str) -> None:
        seeds = rng.integers(2**62, size=2)
        self.weights = torch.Generator().manual_seed(int(seeds[0]))
        self.updates = torch.Generator(device).manual_seed(int(seeds[1]))


class Plan:
    """Progress of a stage: the cosine of its learning rate, and the callback that hears of it."""

    def __init__(self, updates: int, stage: str, progress: Progress) -> None:
        self.updates, self.stage, self.progress = updates, stage, progress
        self.begun = 0.0

    def rate(self, part: float, done: float) -> float:
        """The factor of the learning rate when `done` of a part is done."""
        return 0.5 * (1 + math.cos(math.pi * min(1.0, self.begun + part * done)))

    def tell(self, part: float, done: float) -> None:
        """Report the progress of the stage."""
        self.progress(self.stage, min(1.0, self.begun + part * done))


def make_adam(
    modules: Sequence[nn.Module],
    rate: float,
    *,
    members: int,
    device: torch.device,
    betas: tuple[float, float] = BETAS,
) -> Adam:
    """Adam with one learning rate for all members, which are stepped in one batched product."""
    rates = torch.full((members,), rate, dtype=torch.float64, device=device)
    return Adam(modules, rates, betas=betas, leaves=False)


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
        report: Callable[[int], None] | None = None,
        every: int = 50,
    ) -> None:
        """Call `update` that many times; `schedule` scales the rates by the fraction done.

        After every `every` updates, and the last, `report` is called with their number.
        """
        self._scale_rates(schedule(0.0))
        call = record(update, self._list_tensors(), [self._generator]) if self.capture else update
        with sleep_beside_others():
            for done in range(updates):
                self._scale_rates(schedule(done / updates))
                call()
                if (done + 1) % every == 0 or done + 1 == updates:
                    self._check_patience(done + 1)
                    if report is not None:
                        report(done + 1)

    def _scale_rates(self, factor: float) -> None:
        for optimiser in self.optimisers:
            optimiser.scale_rates(factor)

    def _list_tensors(self) -> list[Tensor]:
        return [tensor for optimiser in self.optimisers for tensor in optimiser.state().values()]

    def _check_patience(self, done: int) -> None:
        skipped = self.skipped
        if skipped > PATIENCE:
            raise RuntimeError(
                f"training: {skipped} of {done} updates gave a loss or gradient that is not "
                "finite; look for extreme values in the data or lower the learning rate"
            )
