"""A sum of effects as a torch module, with gradients to its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray


class EffectModule(torch.nn.Module):
    """A fixed `EffectModel`: its numbers are buffers, not parameters."""

    low: torch.Tensor
    high: torch.Tensor
    tables: torch.Tensor
    weights: torch.Tensor
    offset: torch.Tensor
    columns: torch.Tensor

    def __init__(
        self,
        columns: Sequence[int],
        effects: Sequence[tuple[tuple[int, ...], int]],
        arrays: Mapping[str, NDArray[np.float64]],
        offset: float,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`effects`: inputs and size of each; `arrays`: low, high, tables and weights."""
        super().__init__()
        kind = dtype if dtype is not None else torch.get_default_dtype()
        self.effects = list(effects)
        self.register_buffer("offset", torch.tensor(offset, dtype=kind))
        if not self.effects:  # the arrays are empty, and torch does not export such
            return
        chosen = torch.tensor(list(columns), dtype=torch.int64)
        self.register_buffer("columns", chosen, persistent=False)
        for name, array in arrays.items():
            # Where a value lies on its grid is found in float64: the rest may be less exact.
            wide = torch.float64 if name in ("low", "high") else kind
            self.register_buffer(name, torch.from_numpy(array).to(wide))

    def forward(
        self,
        observations: torch.Tensor,
        actions: torch.Tensor,
        next_observations: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if not self.effects:  # gradients are zero then, not missing
            return self.offset + 0 * observations[..., 0].to(self.offset.dtype)
        given = [observations, actions]
        if next_observations is not None:
            given.append(next_observations)
        inputs = torch.cat(given, -1).to(self.low.dtype)[..., self.columns]
        features = self.place(inputs)  # (..., input, feature)
        rewards = self.offset.expand(inputs.shape[:-1])
        start = 0
        for effect, size in self.effects:
            width = size ** len(effect)
            value = self.weights[start : start + width]
            start += width
            for i in effect:
                width //= size
                value = value.reshape(*value.shape[:-1], size, width)
                row = features[..., i, :size].unsqueeze(-1)
                value = (value * row).sum(-2)  # (..., what is left of the weights)
            rewards = rewards + value.squeeze(-1)
        return rewards

    def place(self, inputs: torch.Tensor) -> torch.Tensor:
        """Features by linear interpolation in the tables."""
        cells = self.tables.shape[1] - 1
        clamped = torch.minimum(torch.maximum(inputs, self.low), self.high)
        place = (clamped - self.low) * (cells / (self.high - self.low))
        cell = place.detach().long().clamp(0, cells - 1)
        part = (place - cell).unsqueeze(-1).to(self.tables.dtype)
        index = torch.arange(len(self.columns), device=inputs.device)
        below, above = self.tables[index, cell], self.tables[index, cell + 1]
        return below + part * (above - below)
