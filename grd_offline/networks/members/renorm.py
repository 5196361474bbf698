"""Networks with batch renormalisation, which without its batch is a part of the linear layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from grd_offline.networks.members.nn import Stack

MOMENTUM, EPSILON = 0.01, 1e-3
WARM_UP = 100_000
"""Passes with plain batch normalisation."""
MOST_SCALE, MOST_SHIFT = 3.0, 5.0
"""From then on, bounds of how far the moments of a batch may be from the running ones."""


class RenormStack(Stack):
    """A `Stack` that normalises the inputs of each layer, the first included (Ioffe, 2017).

        y = ((x - mu) / sigma * r + d) * scale + shift
        r = sigma / sigma_run,  d = (mu - mu_run) / sigma_run,  clipped and without gradient

    A pass in which the weights have a gradient takes mu and sigma from its batch, and moves the
    running moments. All other passes take the running moments.
    """

    def __init__(
        self, members: int, sizes: Sequence[int], *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(members, sizes, generator=generator)
        shapes = [(members, 1, size) for size in sizes[:-1]]
        self.scales = nn.ParameterList(torch.ones(shape) for shape in shapes)
        self.shifts = nn.ParameterList(torch.zeros(shape) for shape in shapes)

    def track(self) -> RenormStack:
        """Start the running moments, when members and device are known."""
        self.means = [torch.zeros_like(scale) for scale in self.scales]
        self.variances = [torch.ones_like(scale) for scale in self.scales]
        self.passes = torch.zeros_like(self.scales[0][..., :1])
        """(network, 1, 1) how often the running moments have moved."""
        return self

    def statistics(self) -> dict[str, Tensor]:
        """All that passes change, by name."""
        parts = {"mean": self.means, "variance": self.variances}
        named = {f"{n}_{i}": part for n, some in parts.items() for i, part in enumerate(some)}
        return {**named, "passes": self.passes}

    def apply_layers(self, hidden: Tensor, frozen: bool, repeats: int) -> Tensor:
        """(member, batch, input) -> (network, batch, output)"""
        is_learning = torch.is_grad_enabled() and not frozen
        if repeats > 1:
            hidden = hidden.repeat_interleave(repeats, 0)
        for layer in range(len(self.weights)):
            if layer:
                hidden = relu(hidden)
            scale, shift = self.scales[layer], self.shifts[layer]
            if frozen:
                scale, shift = scale.detach(), shift.detach()
            mean, variance = self.means[layer], self.variances[layer]
            if is_learning:
                mean, variance, factor, offset = self._renormalise(layer, hidden)
                shift, scale = shift + scale * offset, scale * factor
            hidden = (hidden - mean) * (scale * torch.rsqrt(variance + EPSILON)) + shift
            hidden = self.multiply(layer, hidden, frozen)
        if is_learning:
            self.passes.add_(1)
        return hidden

    def _renormalise(self, layer: int, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean and variance of the batch, r and d; the running moments move."""
        variance, mean = torch.var_mean(hidden, 1, correction=0, keepdim=True)
        running_mean, running_variance = self.means[layer], self.variances[layer]
        with torch.no_grad():
            deviation = torch.sqrt(running_variance + EPSILON)
            factor = torch.sqrt(variance + EPSILON) / deviation
            offset = (mean - running_mean) / deviation
            is_warm = self.passes >= WARM_UP
            factor = torch.where(is_warm, factor.clamp(1 / MOST_SCALE, MOST_SCALE), 1.0)
            offset = torch.where(is_warm, offset.clamp(-MOST_SHIFT, MOST_SHIFT), 0.0)
            # One batch that is not finite would make running moments nan for good.
            is_finite = torch.isfinite(mean) & torch.isfinite(variance)
            running_mean.lerp_(torch.where(is_finite, mean, running_mean), MOMENTUM)
            running_variance.lerp_(torch.where(is_finite, variance, running_variance), MOMENTUM)
        return mean, variance, factor, offset

    def fold(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer of the plain `Stack` that equals this one in use.

        (x k + c) W + b = x (k W) + (b + c W), with k and c from the running moments
        """
        layers = []
        with torch.no_grad():
            for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                scale = self.scales[layer] * torch.rsqrt(self.variances[layer] + EPSILON)
                shift = self.shifts[layer] - self.means[layer] * scale
                layers.append((scale.transpose(1, 2) * weight, bias + torch.bmm(shift, weight)))
        return layers
