"""Reward functions as torch modules, with gradients to their inputs.

Each module is a copy of its own: moving it to a device or changing its type leaves the model as it
is. Its numbers are buffers, not parameters. The module of a reward net is in `network`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import cast

import torch
from torch import Tensor, nn

from grd_offline.core.inputs import ACTION, END, START, STATE, TERMINATED
from grd_offline.core.interpolation import interpolate, locate_on_grid
from grd_offline.core.steps import StepBatch
from grd_offline.rewards.contract import RewardFunction
from grd_offline.rewards.effects import EffectModel
from grd_offline.rewards.quadratic import QuadraticFunction


class RewardModule(nn.Module):
    """(..., state), (..., action) [, (..., state)] [, (...,)] -> (...,) the reward of each step.

    Made by `RewardModel.torch`: the module of a reward function, with shapes checked.
    """

    def __init__(self, function: RewardFunction) -> None:
        super().__init__()
        self.reward, self.states, self.actions = function.torch(), function.states, function.actions
        self.needs_next, self.needs_termination = function.needs_next, function.needs_termination

    def forward(
        self,
        observations: Tensor,
        actions: Tensor,
        next_observations: Tensor | None = None,
        terminations: Tensor | None = None,
    ) -> Tensor:
        """The reward of each step.

        Next observations and terminations are used where the reward needs them.
        """
        batch = StepBatch(observations, actions, next_observations, terminations)
        # Columns are picked by number from all parts side by side: with one part too wide and the
        # next too narrow, the wrong ones would be picked without a word.
        batch.check_shapes(self.states, self.actions, observations.shape[:-1])
        batch.check_given(next_observations=self.needs_next, terminations=self.needs_termination)
        rewards: Tensor = self.reward(batch)
        return rewards


class EffectModule(nn.Module):
    """The module of an `EffectModel`."""

    def __init__(self, model: EffectModel, offset: float, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        kind = dtype if dtype is not None else torch.get_default_dtype()
        self.effects = list(model.effect_slices())
        self.offset = nn.Buffer(torch.tensor(offset, dtype=kind))
        if not self.effects:  # The arrays are empty then, and torch cannot export empty arrays.
            return
        # Of the parts of a step, only those that are used are put side by side.
        widths = {STATE: model.states, ACTION: model.actions, TERMINATED: 1}
        self.parts = sorted({(one.part, one.moment) for one in model.inputs})
        starts = accumulate((widths[part] for part, _ in self.parts), initial=0)
        first = dict(zip(self.parts, starts, strict=False))
        chosen = torch.tensor([first[one.part, one.moment] + one.index for one in model.inputs])
        self.columns = nn.Buffer(chosen, persistent=False)
        # Where a value lies on its grid is found in float64: the rest may be less exact.
        self.low = nn.Buffer(torch.tensor(model.low))
        self.high = nn.Buffer(torch.tensor(model.high))
        self.tables = nn.Buffer(torch.tensor(model.tables).to(kind))
        self.weights = nn.Buffer(torch.tensor(model.weights).to(kind))

    def forward(self, batch: StepBatch[Tensor]) -> Tensor:
        """The reward of each step."""
        if not self.effects:
            return _repeat(self.offset, batch.observations)
        parts = [self._find_part(*part, batch).to(self.low.dtype) for part in self.parts]
        inputs = torch.cat(parts, -1)[..., self.columns]
        points = self.tables.shape[1]
        cell, part = locate_on_grid(inputs, self.low, self.high, points)
        row = cell + points * torch.arange(len(self.columns), device=inputs.device)
        part = part.to(self.tables.dtype)
        features = interpolate(self.tables.flatten(0, 1), row, part)  # (..., input, feature)
        rewards = self.offset.expand(inputs.shape[:-1])
        for effect, place, size in self.effects:
            value = self.weights[place]
            for i in effect:
                value = value.reshape(*value.shape[:-1], size, value.shape[-1] // size)
                row = features[..., i, :size].unsqueeze(-1)
                value = (value * row).sum(-2)  # (..., what is left of the weights)
            rewards = rewards + value.squeeze(-1)
        return rewards

    def _find_part(self, part: str, moment: str, batch: StepBatch[Tensor]) -> Tensor:
        """(..., column) one part of the steps."""
        if part == ACTION:
            return batch.actions
        if part == TERMINATED:
            return cast(Tensor, batch.terminations).unsqueeze(-1)
        if moment == START:
            return batch.observations
        later = cast(Tensor, batch.next_observations)
        if moment == END:
            return later
        wide = self.low.dtype
        return 0.5 * batch.observations.to(wide) + 0.5 * later.to(wide)


class QuadraticModule(nn.Module):
    """The module of a `QuadraticFunction`, in float32."""

    def __init__(self, function: QuadraticFunction) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(function.mean).float())
        self.std = nn.Buffer(torch.tensor(function.std).float())
        self.constant = nn.Buffer(torch.tensor(function.constant).float())
        self.linear = nn.Buffer(torch.tensor(function.linear).float())
        self.products = nn.Buffer(torch.tensor(function.products).float())

    def forward(self, batch: StepBatch[Tensor]) -> Tensor:
        """The reward of each step."""
        inputs = torch.cat([batch.observations, batch.actions], -1).to(self.mean.dtype)
        scaled = (inputs - self.mean) / self.std
        return ((scaled @ self.products + self.linear) * scaled).sum(-1) + self.constant[0]


class ConstantModule(nn.Module):
    """The module of a `ConstantFunction`."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Buffer(torch.tensor(value))

    def forward(self, batch: StepBatch[Tensor]) -> Tensor:
        """The reward of each step."""
        return _repeat(self.value, batch.observations)


def _repeat(value: Tensor, observations: Tensor) -> Tensor:
    """The value for every step, with gradients that are zero instead of missing."""
    return value + 0 * observations[..., 0].to(value.dtype)
