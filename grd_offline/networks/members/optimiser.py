"""Adam for many members at once: no member's trouble reaches another.

All parameters of a group of networks lie in one tensor (member, number), and the networks see
slices of it: one operation steps everything, copies everything, saves everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from grd_offline.networks.members.device import restore
from grd_offline.networks.members.nn import Stack

if TYPE_CHECKING:
    from jaxtyping import Float

BETAS, EPSILON = (0.9, 0.999), 1e-8
_ALIGNMENT = 32
"""Each parameter starts at a multiple of so many numbers: products are faster there."""


class Flat:
    """The parameters of some modules, moved into one tensor (member, number)."""

    def __init__(self, modules: Sequence[nn.Module], *, leaves: bool = True) -> None:
        """Create the optimiser. With `leaves`, each layer of each network is a tensor of its own on
        a CPU."""
        self.parameters = [p for module in modules for p in module.parameters()]
        self.values = self.join([p.detach() for p in self.parameters])
        self.spans: dict[nn.Parameter, tuple[int, int]] = {}
        """Place of each parameter within a row."""
        start = 0
        for parameter in self.parameters:
            size = parameter[0].numel()
            parameter.data = self.values[:, start : start + size].view(parameter.shape)
            self.spans[parameter] = (start, start + size)
            start += size + -size % _ALIGNMENT
        self.leaves: dict[nn.Parameter, list[Tensor]] = {}
        """The tensor of each row of a parameter, where rows have tensors of their own."""
        if leaves and not self.values.is_cuda:
            self._make_leaves(modules)

    @staticmethod
    def join(parts: Sequence[Tensor]) -> Tensor:
        """(member, number) tensors of the parameters' shapes side by side, gaps filled with 0."""
        flat = [part.reshape(part.shape[0], -1) for part in parts]
        filled = [torch.nn.functional.pad(p, (0, -p.shape[1] % _ALIGNMENT)) for p in flat]
        return torch.cat(filled, 1)

    def _make_leaves(self, modules: Sequence[nn.Module]) -> None:
        """Give each layer of each network a tensor of its own, with its own gradient."""
        for stack in (m for module in modules for m in module.modules()):
            if isinstance(stack, Stack):
                weights = [self._split(weight, *weight.shape[1:]) for weight in stack.weights]
                biases = [self._split(bias, -1) for bias in stack.biases]
                layers = [zip(*pair, strict=True) for pair in zip(weights, biases, strict=True)]
                stack.leaves = [list(network) for network in zip(*layers, strict=True)]

    def _split(self, parameter: nn.Parameter, *shape: int) -> list[Tensor]:
        """A tensor of that shape for each row of a parameter."""
        start, stop = self.spans[parameter]
        rows = (self.values[row, start:stop] for row in range(len(self.values)))
        self.leaves[parameter] = [row.view(shape).requires_grad_() for row in rows]
        return self.leaves[parameter]


class _Piece(NamedTuple):
    """A parameter of one member, and what Adam remembers of it."""

    values: Tensor
    first: Tensor
    second: Tensor
    wanted: int
    """Index of the gradient that belongs to the parameter, or holds it."""
    row: int | None
    """Row of that gradient, or None for all of it."""


class Adam:
    """Adam with a learning rate per member; a step that is not finite is left out and counted."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        rates: Float[Tensor, "member"],
        *,
        own: tuple[nn.Module, float] | None = None,
        betas: tuple[float, float] = BETAS,
        leaves: bool = True,
    ) -> None:
        """`own` names the first of the modules and its own learning rate; `Flat` has `leaves`."""
        self.flat = flat = Flat(modules, leaves=leaves)
        self._base_rates = rates.double().unsqueeze(1)
        self._betas, self._factor = betas, 1.0
        self._own_rate = 0.0 if own is None else own[1]
        own_parameters = [] if own is None else list(own[0].parameters())
        if own is not None:
            edge = Flat.join([p.detach() for p in own_parameters]).shape[1]
            is_own = torch.arange(flat.values.shape[1], device=rates.device) < edge
            self._base_rates = torch.where(is_own, own[1], self._base_rates)
        self.rates = self._base_rates.float()
        self.first = torch.zeros_like(flat.values)
        self.second = torch.zeros_like(flat.values)
        self.steps = torch.zeros((len(rates), 1), device=rates.device)
        self.skipped = torch.zeros((len(rates), 1), device=rates.device)
        self.ones = torch.ones(len(rates), device=rates.device)
        self._apply = adam_step
        fixed = {"weight_decay": 0.0, "eps": EPSILON, "amsgrad": False, "maximize": False}
        self._kernel: dict[str, Any] = {"beta1": betas[0], "beta2": betas[1], **fixed}
        self.wanted: list[Tensor] = list(flat.parameters)
        """The tensors whose gradients `apply` takes."""
        if not rates.is_cuda:
            self._rates_by_row = self._list_rates()
            self._find_pieces(set(own_parameters))

    def _find_pieces(self, own: set[nn.Parameter]) -> None:
        self.wanted = []
        rows = range(len(self.flat.values))
        self._pieces: list[tuple[list[_Piece], list[_Piece]]] = [([], []) for _ in rows]
        """For each member, the pieces with its rate, and those with a rate of their own."""
        for parameter, (start, stop) in self.flat.spans.items():
            first, leaves = len(self.wanted), self.flat.leaves.get(parameter)
            self.wanted += leaves or [parameter]
            for row in rows:
                every = self.flat.values, self.first, self.second
                values, means, squares = (numbers[row, start:stop] for numbers in every)
                wanted, shared = (first + row, None) if leaves else (first, row)
                piece = _Piece(values, means, squares, wanted, shared)
                self._pieces[row][parameter in own].append(piece)

    def step(self, losses: Float[Tensor, "member"]) -> None:
        """One step of each member down its own loss."""
        step_together([self], losses)

    @torch.no_grad()
    def apply(self, gradients: tuple[Tensor, ...], losses: Float[Tensor, "member"]) -> None:
        """One step of each member whose loss and gradients, those of `wanted`, are finite."""
        if not losses.is_cuda:
            self._step_by_row(gradients, losses)
            return
        moments = self.first, self.second, self.steps, self.skipped
        self._apply(self.flat.values, gradients, losses, *moments, self.rates, self._betas)

    def scale_rates(self, factor: float) -> None:
        """Multiply the rates that the optimiser started with; a recorded update follows."""
        if factor == self._factor:
            return
        self._factor = factor
        self.rates.copy_(self._base_rates * factor)
        if not self.rates.is_cuda:
            self._rates_by_row = self._list_rates()

    def _list_rates(self) -> list[float]:
        """The rate of each member; a module with its own rate is the first, so the last is not."""
        return list(self.rates[:, -1].tolist())

    def _step_by_row(self, gradients: tuple[Tensor, ...], losses: Tensor) -> None:
        """Step on a CPU with the kernel of torch, which reads and writes each number once."""
        sizes = torch.stack(torch._foreach_norm(gradients))
        # Members share a gradient only where they are few numbers: then all are looked at.
        every = torch.isfinite(losses).tolist()
        finite = torch.isfinite(sizes).tolist()
        for row, groups in enumerate(self._pieces):
            found = [[_pick(gradients, piece) for piece in pieces] for pieces in groups]
            good = every[row] and all(
                finite[piece.wanted] or (piece.row is not None and bool(torch.isfinite(part).all()))
                for pieces, parts in zip(groups, found, strict=True)
                for piece, part in zip(pieces, parts, strict=True)
            )
            if not good:
                self.skipped[row] += 1
                continue
            self.steps[row] += 1
            rates = self._rates_by_row[row], self._own_rate * self._factor
            for pieces, parts, rate in zip(groups, found, rates, strict=True):
                if not pieces:
                    continue
                values, steps = [one.values for one in pieces], [self.steps[row, 0]] * len(pieces)
                first, second = [one.first for one in pieces], [one.second for one in pieces]
                torch._fused_adam_(values, parts, first, second, [], steps, lr=rate, **self._kernel)

    def compile(self, backend: str) -> None:
        """Make one kernel of a step; for devices where that pays."""
        self._apply = torch.compile(adam_step, dynamic=False, backend=backend)

    def state(self) -> dict[str, Tensor]:
        names = ("first", "second", "steps", "skipped")
        return {"values": self.flat.values, **{name: getattr(self, name) for name in names}}

    def load_state(self, state: dict[str, Tensor]) -> None:
        restore(self.state(), state)


def _pick(gradients: Sequence[Tensor], piece: _Piece) -> Tensor:
    gradient = gradients[piece.wanted]
    return (gradient if piece.row is None else gradient[piece.row]).reshape(-1)


def step_together(optimisers: Sequence[Adam], losses: Float[Tensor, "member"]) -> None:
    """One step of several optimisers, whose parameters differ, down the same losses."""
    wanted = [tensor for optimiser in optimisers for tensor in optimiser.wanted]
    # Each loss with a factor of 1, instead of their sum, which would be three kernels more.
    gradients = torch.autograd.grad(losses, wanted, optimisers[0].ones)
    start = 0
    for optimiser in optimisers:
        stop = start + len(optimiser.wanted)
        optimiser.apply(gradients[start:stop], losses.detach())
        start = stop


def adam_step(
    values: Float[Tensor, "member number"],
    gradients: Sequence[Tensor],
    losses: Float[Tensor, "member"],
    first: Float[Tensor, "member number"],
    second: Float[Tensor, "member number"],
    steps: Float[Tensor, "member 1"],
    skipped: Float[Tensor, "member 1"],
    rates: Float[Tensor, "member #number"],
    betas: tuple[float, float] = BETAS,
) -> None:
    """Adam's step in place; where loss or gradient is not finite, only the count of skipped moves.

    One gradient that is not a number would make Adam's averages and weights nan for good.
    """
    gradient = Flat.join(gradients)
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
    values.sub_(scale * first / (second.sqrt() * root + EPSILON))
