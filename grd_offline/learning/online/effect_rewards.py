"""Rewards of steps as sums of effects, for all members at once, on the device.

Main effects of an input are one curve over its grid; a pair is a form of the features of its
inputs, which its first input has on its grid already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grd_offline.additive.basis import GRID
from grd_offline.core.inputs import ACTION, END, MIDPOINT, STATE, TERMINATED, StepColumns
from grd_offline.core.interpolation import interpolate, split_place
from grd_offline.learning.online.effect_search import SETTINGS, Structure
from grd_offline.rewards.effects import EffectModel

FEATURES = max(SETTINGS.basis, SETTINGS.final_basis, SETTINGS.rough_basis)


class Tables(NamedTuple):
    """Everything that rewards are computed from; members stand first."""

    columns: Tensor
    """(member, input) its column in [state, action, terminated]."""
    later: Tensor
    """(member, input) how far it lies in the transition, from 0 to 1."""
    low: Tensor  # (member, input)
    density: Tensor
    """(member, input) cells of the grid per unit."""
    curves: Tensor  # (member, input, grid)
    features: Tensor  # (member, input, grid, feature)
    first: Tensor  # (member, pair) its first input
    second: Tensor  # (member, pair)
    bent: Tensor
    """(member, pair, grid, feature) what each feature of the second input is multiplied by."""
    constant: Tensor  # (member, 1)


class EffectRewards:
    """The reward functions of some members."""

    def __init__(self, members: int, states: int, actions: int, device: torch.device) -> None:
        self.layout, self.members, self.device = StepColumns(states, actions), members, device
        self._least = (8, 1)
        self._places: list[Tensor | None] = [None] * members
        self.tables = self._allocate(*self._least)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of inputs and of pairs that there is room for."""
        return self.tables.low.shape[1], self.tables.first.shape[1]

    @property
    def width(self) -> int:
        """Numbers that one step takes while its reward is computed."""
        return self.sizes[0] + self.sizes[1] * FEATURES

    def _allocate(self, inputs: int, pairs: int) -> Tables:
        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((self.members, *shape), dtype=dtype, device=self.device)

        whole = torch.int64
        return Tables(
            columns=zeros(inputs, dtype=whole),
            later=zeros(inputs),
            low=zeros(inputs),
            density=zeros(inputs),
            curves=zeros(inputs, GRID),
            features=zeros(inputs, GRID, FEATURES),
            first=zeros(pairs, dtype=whole),
            second=zeros(pairs, dtype=whole),
            bent=zeros(pairs, GRID, FEATURES),
            constant=zeros(1),
        )

    def make_room(self, structures: Sequence[Structure | None]) -> bool:
        """Grow where a member has more inputs or pairs; True where all have to be put in anew."""
        models = [structure.model for structure in structures if structure is not None]
        inputs = max((len(model.columns) for model in models), default=0)
        pairs = max((len(_list_pairs(model)) for model in models), default=0)
        sizes = self.sizes
        needed = round_up(inputs, sizes[0]), round_up(pairs, sizes[1])
        self.resize(*needed)
        return needed != sizes

    def resize(self, inputs: int, pairs: int) -> None:
        """Make room for so many; where that is a change, all rewards are 0 afterwards."""
        if (inputs, pairs) != self.sizes:
            self.tables = self._allocate(inputs, pairs)

    def put_structure(self, member: int, structure: Structure) -> None:
        """Take over a member's inputs, tables and pairs; its rewards are 0 until weights come."""
        model, tables = structure.model, self.tables
        firsts = {STATE: 0, ACTION: self.layout.states, TERMINATED: self.layout.terminated}
        columns = [firsts[one.part] + one.index for one in model.inputs]
        later = [{MIDPOINT: 0.5, END: 1.0}.get(one.moment, 0.0) for one in model.inputs]
        pairs = _list_pairs(model)
        density = (model.tables.shape[1] - 1) / (model.high - model.low)
        new = {
            "columns": columns,
            "later": later,
            "low": model.low,
            "density": density,
            "features": model.tables,
            "first": [effect[0] for effect in pairs],
            "second": [effect[1] for effect in pairs],
        }
        for name, target in tables._asdict().items():
            target[member].zero_()
            if name in new:
                part = np.asarray(new[name], np.int64 if target.dtype == torch.int64 else None)
                sent = torch.tensor(part).to(target.dtype)
                where = (member, *(slice(0, count) for count in sent.shape))
                target[where] = sent.to(self.device)
        self._places[member] = torch.from_numpy(self._find_places(structure)).to(self.device)

    def _find_places(self, structure: Structure) -> np.ndarray:
        """(column,) where each weight lies among those of the curves and then of the pairs."""
        model, inputs = structure.model, self.sizes[0]
        places, pair = [np.zeros(0, np.int64)], 0
        for effect, size in zip(model.effects, model.sizes, strict=True):
            if len(effect) == 1:
                places.append(effect[0] * FEATURES + np.arange(size))
                continue
            grid = np.add.outer(np.arange(size) * FEATURES, np.arange(size)).ravel()
            places.append((inputs + pair * FEATURES) * FEATURES + grid)
            pair += 1
        return np.asarray(np.concatenate(places)[structure.kept], np.int64)

    def put_weights(self, member: int, structure: Structure) -> None:
        """Take over the weights and the constant, without waiting for the device."""
        places, (inputs, pairs) = self._places[member], self.sizes
        assert places is not None
        every = torch.zeros((inputs + pairs * FEATURES) * FEATURES, device=self.device)
        sent = torch.from_numpy(np.append(structure.weights, structure.constant))
        sent = sent.float().to(self.device, non_blocking=True)
        every.index_copy_(0, places, sent[:-1])
        mains = every[: inputs * FEATURES].view(inputs, 1, FEATURES)
        tables = self.tables
        # A sum and no matrix product, which would round to fewer digits on some devices.
        tables.curves[member] = (tables.features[member] * mains).sum(2)
        products = every[inputs * FEATURES :].view(pairs, 1, FEATURES, FEATURES)
        firsts = tables.features[member].index_select(0, tables.first[member])
        tables.bent[member] = (firsts.unsqueeze(3) * products).sum(2)
        tables.constant[member] = sent[-1]

    def compute(
        self,
        owners: Tensor,
        observations: Tensor,
        actions: Tensor,
        next_observations: Tensor,
        terminated: Tensor,
    ) -> Tensor:
        """(step,) the reward of each step; `owners` (step,) are the members that took them."""
        tables = self.tables
        inputs, points = tables.curves.shape[1:]
        ended = terminated.unsqueeze(1)
        columns = tables.columns[owners]
        now = torch.cat([observations, actions, ended], 1).gather(1, columns)
        later = torch.cat([next_observations, actions, ended], 1).gather(1, columns)
        values = now + tables.later[owners] * (later - now)
        place = (values - tables.low[owners]) * tables.density[owners]
        cell, part = split_place(place.clamp(0, points - 1), points)  # (step, input)
        first = torch.arange(inputs, device=cell.device) + owners.unsqueeze(1) * inputs
        rewards = interpolate(tables.curves.flatten(), first * points + cell, part).sum(1)
        return rewards + tables.constant[owners, 0] + self._compute_pairs(owners, cell, part)

    def _compute_pairs(self, owners: Tensor, cell: Tensor, part: Tensor) -> Tensor:
        """(step,) the effects of two inputs."""
        tables = self.tables
        (inputs, points), pairs = tables.curves.shape[1:], tables.first.shape[1]
        first, second = tables.first[owners], tables.second[owners]  # (step, pair)
        pair = torch.arange(pairs, device=cell.device)
        left, right = (  # (step, pair, feature)
            interpolate(
                table.flatten(0, 2), row * points + cell.gather(1, chosen), part.gather(1, chosen)
            )
            for table, chosen, row in (
                (tables.bent, first, owners.unsqueeze(1) * pairs + pair),
                (tables.features, second, owners.unsqueeze(1) * inputs + second),
            )
        )
        return (left * right).sum((1, 2))


def round_up(number: int, least: int) -> int:
    """The smallest power of two times `least` that is not smaller than the number."""
    while least < number:
        least *= 2
    return least


def _list_pairs(model: EffectModel) -> list[tuple[int, ...]]:
    return [effect for effect in model.effects if len(effect) == 2]
