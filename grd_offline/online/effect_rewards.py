"""Rewards of drawn steps as sums of effects, for all members at once, on the device.

Main effects of an input are one curve over its grid; a pair is a form of the features of its
inputs. Sizes are powers of two and hardly ever change, so that graphs need not be recorded anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grd_offline.agents.batch import Steps
from grd_offline.methods.closed_form.inputs import GRID
from grd_offline.online.effect_search import SETTINGS, Structure
from grd_offline.online.effect_sums import round_up
from grd_offline.rewards.effect_inputs import MIDPOINT, NEXT, TERMINATED, StepColumns
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
    products: Tensor  # (member, pair, feature, feature)
    constant: Tensor  # (member, 1)


class EffectRewards:
    """The reward functions of some members."""

    def __init__(self, members: int, states: int, actions: int, device: torch.device) -> None:
        self.layout, self.members, self.device = StepColumns(states, actions), members, device
        # Growing costs a new graph on an accelerator, and room costs time on a CPU.
        self._least = (32, 16) if device.type == "cuda" else (8, 1)
        self._places: list[Tensor | None] = [None] * members
        self.tables = self._allocate(*self._least)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of inputs and of pairs that there is room for."""
        return self.tables.low.shape[1], self.tables.first.shape[1]

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
            products=zeros(pairs, FEATURES, FEATURES),
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
        places = [self.layout.find_part(int(column)) for column in model.columns]
        firsts = {TERMINATED: self.layout.terminated}
        columns = [
            place + (self.layout.states if part == 1 else firsts.get(part, 0))
            for part, place in places
        ]
        later = [{NEXT: 1.0, MIDPOINT: 0.5}.get(part, 0.0) for part, _ in places]
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

    def put_weights(self, member: int, weights: Tensor, constant: Tensor) -> None:
        """Take over weights (column,) and the constant, without waiting for the device."""
        places, (inputs, pairs) = self._places[member], self.sizes
        assert places is not None
        every = torch.zeros((inputs + pairs * FEATURES) * FEATURES, device=self.device)
        every.index_copy_(0, places, weights[: len(places)].float())
        mains = every[: inputs * FEATURES].view(inputs, 1, FEATURES)
        tables = self.tables
        # A sum and no matrix product, which would round to fewer digits on some devices.
        tables.curves[member] = (tables.features[member] * mains).sum(2)
        tables.products[member] = every[inputs * FEATURES :].view(pairs, FEATURES, FEATURES)
        tables.constant[member] = constant.float()

    def compute(self, steps: Steps) -> Tensor:
        """(member, batch) the reward of each step."""
        tables = self.tables
        members, batch = steps.actions.shape[:2]
        inputs, points = tables.curves.shape[1:]
        ended = steps.terminated.unsqueeze(2)
        columns = tables.columns.unsqueeze(1).expand(members, batch, inputs)
        now = torch.cat([steps.observations, steps.actions, ended], 2).gather(2, columns)
        later = torch.cat([steps.next_observations, steps.actions, ended], 2).gather(2, columns)
        values = now + tables.later.unsqueeze(1) * (later - now)
        place = (values - tables.low.unsqueeze(1)) * tables.density.unsqueeze(1)
        place = place.clamp(0, points - 1)
        cell = place.long().clamp(max=points - 2)
        part = place - cell  # (member, batch, input)
        first = torch.arange(members * inputs, device=cell.device).view(members, 1, inputs)
        index = first * points + cell
        curves = tables.curves.flatten()
        below = curves[index]
        rewards = (below + part * (curves[index + 1] - below)).sum(2) + tables.constant
        return rewards + self._compute_pairs(index, part)

    def _compute_pairs(self, index: Tensor, part: Tensor) -> Tensor:
        tables = self.tables
        members, batch, _ = index.shape
        pairs = tables.first.shape[1]
        table, sides = tables.features.flatten(0, 2), []
        for inputs in (tables.first, tables.second):
            chosen = inputs.unsqueeze(1).expand(members, batch, pairs)
            where, share = index.gather(2, chosen), part.gather(2, chosen).unsqueeze(3)
            below = table[where]
            sides.append(below + share * (table[where + 1] - below))
        left, right = sides  # (member, batch, pair, feature)
        bent = (left.unsqueeze(4) * tables.products.unsqueeze(1)).sum(3)
        return (bent * right).sum((2, 3))


def _list_pairs(model: EffectModel) -> list[tuple[int, ...]]:
    return [effect for effect in model.effects if len(effect) == 2]
