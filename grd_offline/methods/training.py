"""Training nets: seeded noise, a plan of the learning rate, updates that survive bad numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from grd_offline.methods.contract import Progress


class Noise:
    """Two generators seeded from the caller's: one for weights, one on the device for updates."""

    def __init__(self, rng: np.random.Generator, device: str) -> None:
        seeds = rng.integers(2**62, size=2)
        self.weights = torch.Generator().manual_seed(int(seeds[0]))
        self.updates = torch.Generator(device).manual_seed(int(seeds[1]))


class Plan:
    """How far a stage has come: the cosine of its learning rate, and who hears of it."""

    def __init__(self, updates: int, stage: str, progress: Progress | None) -> None:
        self.updates, self.stage, self.progress = updates, stage, progress
        self.begun = 0.0

    def rate(self, part: float, done: float) -> float:
        """The factor of the learning rate when `done` of a part is done."""
        return 0.5 * (1 + math.cos(math.pi * min(1.0, self.begun + part * done)))

    def tell(self, part: float, done: float) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(self.stage, min(1.0, self.begun + part * done))


class ParameterGroup(NamedTuple):
    """Parameters that share a learning rate."""

    parameters: Sequence[nn.Parameter]
    rate: float
    weight_decay: float = 0.0


class Trainer:
    """Takes Adam steps that a bad loss or gradient cannot spoil, and repeats an update many times.

    One step on a gradient that is not finite would make Adam's weights nan for good. So loss and
    gradients are checked first, on the device, and the step is left out and counted if they are
    not finite. On CUDA the update is captured once as a graph and replayed.
    """

    def __init__(
        self,
        groups: Sequence[ParameterGroup],
        *,
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        betas: tuple[float, float] = (0.9, 0.999),
        capture: bool = True,
        patience: int = 20,
    ) -> None:
        self._groups, self._generators, self._patience = groups, generators, patience
        self._capture = capture and device.type == "cuda"
        self._parameters = [p for group in groups for p in group.parameters]
        # The rate is a tensor, so that a captured graph reads what the schedule last wrote.
        self._optimiser = torch.optim.AdamW(
            [
                {
                    "params": list(group.parameters),
                    "lr": torch.tensor(group.rate, device=device),
                    "weight_decay": group.weight_decay,
                }
                for group in groups
            ],
            betas=betas,
            fused=True,
            capturable=device.type == "cuda",
        )
        self._is_bad = torch.zeros((), device=device)
        self._bad_count = torch.zeros((), device=device)
        # A fused optimiser leaves the step out where this says 1, without asking the host.
        self._optimiser.found_inf = self._is_bad  # type: ignore[attr-defined]

    @property
    def skipped(self) -> int:
        """How many steps were left out so far."""
        return int(self._bad_count.item())

    def step(self, losses: Tensor) -> None:
        """One step down the sum of the members' losses (member,), unless it is not finite."""
        total = losses.sum()
        gradients = torch.autograd.grad(total, self._parameters, allow_unused=True)
        checked = torch.stack([total.detach(), *(g.sum() for g in gradients if g is not None)])
        self._is_bad.copy_(~torch.isfinite(checked).all())
        self._bad_count.add_(self._is_bad)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimiser.step()

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
        call = update
        for done in range(updates):
            for group, state in zip(self._groups, self._optimiser.param_groups, strict=True):
                state["lr"].fill_(group.rate * schedule(done / updates))
            # The first three, which count, warm up what a capture must not see for the first time.
            if self._capture and done == 3:
                call = self._capture_update(update)
            self._call_aside(call) if self._capture and done < 3 else call()
            if (done + 1) % every == 0 or done + 1 == updates:
                self._check_patience(done + 1)
                if report is not None:
                    report(done + 1)

    def _check_patience(self, done: int) -> None:
        skipped = self.skipped
        if skipped > self._patience:
            raise RuntimeError(
                f"training: {skipped} of {done} updates gave a loss or gradient that is not "
                "finite; look for extreme values in the data or lower the learning rate"
            )

    def _call_aside(self, update: Callable[[], None]) -> None:
        """Call `update` on a side stream, as a capture asks of its warm-up."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            update()
        torch.cuda.current_stream().wait_stream(stream)

    def _capture_update(self, update: Callable[[], None]) -> Callable[[], None]:
        """Record `update` without running it; calling the result runs it."""
        for parameter in self._parameters:
            parameter.grad = None
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            update()
        return graph.replay
