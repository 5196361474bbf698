"""Scaled columns of the equations: what the search works on, for any effects and any basis size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.episodes import EpisodeSet
from grd_offline.errors import DataError
from grd_offline.methods.closed_form.inputs import (
    Effect,
    Segment,
    build_basis,
    difference_features,
    iterate_segments,
    read_equations,
    rough_kernel,
    sample_steps,
    smooth_kernel,
    sum_features,
)
from grd_offline.methods.closed_form.search import EffectBank

Array = NDArray[np.float64]

_LARGE = 30_000_000  # entries beyond which candidate columns are kept in float32
_PROBE = 4096
_SCALES = (1e-2, 1e3)


class ColumnSource:
    """The data of one fit: bases of all inputs, targets, and columns of effects on demand.

    Each input stands in the basis twice, smooth as i and with corners and jumps as `inputs` + i.
    """

    def __init__(
        self,
        episodes: EpisodeSet,
        *,
        next_state: bool,
        discount: float,
        sample: int,
        sizes: tuple[int, int],
        rng: np.random.Generator,
    ) -> None:
        if next_state and not all(episode.has_final_observation for episode in episodes):
            raise DataError("next_state: not every episode holds its last observation")
        self.episodes, self.next_state, self.discount = episodes, next_state, discount
        steps = sample_steps(episodes, next_state, sample, rng)
        smooth = build_basis(steps, sizes[0], smooth_kernel)
        self.inputs = len(smooth.columns)
        self.basis = smooth.join(build_basis(steps, sizes[1], rough_kernel))
        self.probe = steps[rng.permutation(len(steps))[:_PROBE]]
        self.equations, self.sums = read_equations(self.segments(), self.basis.columns)
        if not len(self.equations.target):
            raise DataError("no reward was delivered in any episode")
        self._scale_target()
        self.twins = self.find_twins()

    def _scale_target(self) -> None:
        """Targets without the constant, at unit variance; scale 0 where they do not vary.

        All else is in a unit of amounts in which variances are of the size that is searched: 1, or
        where amounts are far from it a power of ten.
        """
        target, mean = self.equations.remove_constant(self.equations.target[:, None])
        scale = float(np.sqrt((target**2).mean())) if target.size else 0.0
        # A spread that float32 amounts cannot hold is rounding.
        if scale <= 1e-6 * float(np.abs(self.equations.target).max()):
            scale = 0.0
        self.target: Array = np.asarray(target[:, 0] / (scale or 1.0), np.float64)
        is_usual = scale == 0.0 or _SCALES[0] <= scale <= _SCALES[1]
        self.unit = 1.0 if is_usual else float(10.0 ** np.round(np.log10(scale)))
        self.mean, self.scale = float(mean[0]) / self.unit, scale / self.unit

    def segments(self) -> Iterator[Segment]:
        return iterate_segments(self.episodes, self.next_state, self.discount)

    def column(self, index: int) -> int:
        """Of an input; for a part of the next state that of the state; -1 for a potential."""
        if index >= 2 * self.inputs:
            return -1
        column = int(self.basis.columns[index])
        width = self.episodes.state_size + self.episodes.action_size
        return column - width if column >= width else column

    def find_twins(self) -> dict[int, int]:
        """Of each state input its next value's input, where next states are offered.

        Over an episode the sums of f(s) and f(s') differ at its ends only, so returns can hardly
        tell them apart. As one effect with one variance they share evenly what data leave open:
        the mean of both is the trapezoid rule, right where the reward is an average over the step.
        """
        width = self.episodes.state_size + self.episodes.action_size
        place = {(int(c), i >= self.inputs): i for i, c in enumerate(self.basis.columns)}
        pairs = ((i, place.get((column + width, rough))) for (column, rough), i in place.items())
        return {i: twin for i, twin in pairs if twin is not None}

    def expand_effect(self, effect: Effect) -> list[Effect]:
        """The effects that one block of columns stands for: a state's main effect has two."""
        twin = self.twins.get(effect[0]) if len(effect) == 1 else None
        return [effect] if twin is None else [effect, (twin,)]

    def build_bank(self, effects: Sequence[Effect], size: int) -> EffectBank:
        """Columns of these effects: constant removed, mean squared norm per step 1.

        A state's main effect takes its next value's along; that has none of its own.
        """
        followers = set(self.twins.values())
        effects = [e for e in effects if len(e) > 1 or e[0] not in followers]
        whole = {e: self.expand_effect(e) for e in effects}
        bank = self._build([part for parts in whole.values() for part in parts], size)
        for effect, parts in whole.items():
            if len(parts) > 1:
                bank.merge(effect, parts)
        return bank

    def _build(self, effects: Sequence[Effect], size: int) -> EffectBank:
        entries = len(self.target) * sum(size ** len(effect) for effect in effects)
        kind = np.float32 if entries > _LARGE else np.float64
        rows = len(self.equations.target)
        sums = sum_features(self.segments(), rows, self.basis, effects, size, kind)
        scales = self.measure_scales(effects, size)
        bank = EffectBank({}, self.target)
        for order, every in sums.items():
            members = [k for k, effect in enumerate(effects) if len(effect) == order]
            for place, k in enumerate(members):
                factor = self.equations.scale * (scales[k] / (self.scale or 1.0))
                block = every[:, place] * factor[:, None].astype(kind)
                free, average = self.equations.remove_constant(block)
                every[1:, place], every[0, place] = free, average
                bank.columns[effects[k]] = every[1:, place]
                bank.averages[effects[k]] = every[0, place]
                bank.scales[effects[k]] = float(scales[k])
                bank.sizes[effects[k]] = size
        return bank

    def build_potentials(self, inputs: Sequence[int], size: int) -> EffectBank:
        """Columns of h_i(last state) - h_i(first state): what cancels within an episode.

        Input 2 * self.inputs + i is the potential of input i. Returns may hold such a part, and no
        function of (s, a) may take it for its own: it is fitted beside the effects, and left out of
        the reward.
        """
        bank = EffectBank({}, self.target)
        states = [i for i in inputs if self.basis.columns[i] < self.episodes.state_size]
        if not states:
            return bank
        rows = len(self.equations.target)
        every = difference_features(self.segments(), rows, self.basis, states, size)
        scales = self.measure_scales([(i,) for i in states], size)
        for place, i in enumerate(states):
            factor = self.equations.scale * (scales[place] / (self.scale or 1.0))
            block = every[:, place] * factor[:, None]
            key = (2 * self.inputs + i,)
            bank.columns[key], bank.averages[key] = self.equations.remove_constant(block)
            bank.scales[key], bank.sizes[key] = float(scales[place]), size
        return bank

    def measure_scales(self, effects: Sequence[Effect], size: int) -> Array:
        """(effect,) 1 / root of the mean squared norm of its products of features."""
        chosen = sorted({i for effect in effects for i in effect})
        position = {i: k for k, i in enumerate(chosen)}
        norms = (self.basis.evaluate(self.probe, chosen, size) ** 2).sum(-1)
        squares = [norms[:, [position[i] for i in effect]].prod(1).mean() for effect in effects]
        return 1 / np.sqrt(np.maximum(squares, 1e-12))
