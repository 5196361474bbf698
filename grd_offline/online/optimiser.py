"""Adam for many members at once: no member's trouble reaches another.

All parameters of a group of networks lie in one tensor (member, number), and the networks see
slices of it: one operation steps everything, copies everything, saves everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float


class Flat:
    """The parameters of some modules, moved into one tensor (member, number)."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.parameters = [p for module in modules for p in module.parameters()]
        members = self.parameters[0].shape[0]
        self.values = torch.cat([p.detach().reshape(members, -1) for p in self.parameters], 1)
        start = 0
        for parameter in self.parameters:
            size = parameter[0].numel()
            parameter.data = self.values[:, start : start + size].view(parameter.shape)
            start += size


class Adam:
    """Adam with a learning rate per member; a step that is not finite is left out and counted."""

    def __init__(self, flat: Flat, rates: Float[Tensor, "member"]) -> None:
        self.flat = flat
        self.rates = rates.unsqueeze(1).clone()
        self.first = torch.zeros_like(flat.values)
        self.second = torch.zeros_like(flat.values)
        self.steps = torch.zeros((len(rates), 1), device=rates.device)
        self.skipped = torch.zeros((len(rates), 1), device=rates.device)
        self._apply = adam_step

    def step(self, losses: Float[Tensor, "member"]) -> None:
        """One step of each member down its own loss."""
        gradients = torch.autograd.grad(losses.sum(), self.flat.parameters)
        with torch.no_grad():
            self._apply(
                self.flat.values,
                gradients,
                losses.detach(),
                self.first,
                self.second,
                self.steps,
                self.skipped,
                self.rates,
            )

    def compile(self) -> None:
        """Make one kernel of a step; for devices where that pays."""
        self._apply = torch.compile(adam_step, dynamic=False)

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        names = ("first", "second", "steps", "skipped")
        return {"values": self.flat.values, **{name: getattr(self, name) for name in names}}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        for name, value in self.state().items():
            value.copy_(state[name])


def adam_step(
    values: Float[Tensor, "member number"],
    gradients: Sequence[Tensor],
    losses: Float[Tensor, "member"],
    first: Float[Tensor, "member number"],
    second: Float[Tensor, "member number"],
    steps: Float[Tensor, "member 1"],
    skipped: Float[Tensor, "member 1"],
    rates: Float[Tensor, "member #number"],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> None:
    """Adam's step in place; where loss or gradient is not finite, only the count of skipped moves.

    One gradient that is not a number would make Adam's averages and weights nan for good.
    """
    gradient = torch.cat([part.reshape(part.shape[0], -1) for part in gradients], 1)
    good = torch.isfinite(losses + gradient.sum(1)).unsqueeze(1)
    gradient = torch.where(good, gradient, 0.0)
    weight = good.to(values.dtype)
    steps.add_(weight)
    skipped.add_(1 - weight)
    first.lerp_(gradient, (1 - betas[0]) * weight)
    second.lerp_(gradient.square(), (1 - betas[1]) * weight)
    count = steps.clamp_min(1)
    scale = rates * weight / (1 - betas[0] ** count)
    root = torch.rsqrt(1 - betas[1] ** count)
    values.sub_(scale * first / (second.sqrt() * root + epsilon))
