"""Scaled columns of the equations: what the search works on, for any effects and any basis size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet, find_resolution
from grd_offline.core.errors import DataError
from grd_offline.methods.closed_form.inputs import (
    Effect,
    Equations,
    Segment,
    build_bases,
    difference_features,
    iterate_segments,
    read_equations,
    rough_kernel,
    sample_steps,
    smooth_kernel,
    sum_features,
    take_states,
)
from grd_offline.methods.closed_form.moments import BOTH, END, MIDPOINT
from grd_offline.methods.closed_form.motion import find_motion
from grd_offline.methods.closed_form.noise import NoiseKind, find_noise
from grd_offline.methods.closed_form.search import EffectBank
from grd_offline.rewards.effect_inputs import StepColumns, name_inputs

Array = NDArray[np.float64]

_LARGE = 30_000_000  # entries beyond which candidate columns are kept in float32
_SMALL = 8_000_000  # numbers of all steps up to which these are kept,
_FEW_SEGMENTS = 20_000  # and deliveries up to which they are
_PROBE = 4096
_TRANSITIONS = 1024
_ALIKE_ENDS = 0.05


class ColumnSource:
    """The data of one fit: bases of all inputs, targets, and columns of effects on demand.

    Each input stands in the basis twice, smooth as i and with corners and jumps as `inputs` + i.
    """

    def __init__(
        self,
        episodes: EpisodeSet,
        *,
        state_at: str,
        discount: float,
        sample: int,
        sizes: tuple[int, int],
        rng: np.random.Generator,
        reach: float = 0.0,
        only: Collection[int] | None = None,
        combine: Callable[[NDArray[Any]], NDArray[Any]] = lambda sums: sums,
    ) -> None:
        """`combine` makes the rows of the equations from those of all segments."""
        self.combine = combine
        self.episodes, self.state_at, self.discount = episodes, state_at, discount
        self.still, self.jumps, _ = find_motion(episodes)
        steps = sample_steps(episodes, state_at, sample, rng, self.still)
        kinds = list(zip(sizes, (smooth_kernel, rough_kernel), strict=True))
        smooth, rough = build_bases(steps, kinds, reach, only)
        self.inputs = len(smooth.columns)
        self.basis = smooth.join(rough)
        self.probe = steps[rng.permutation(len(steps))[:_PROBE]]
        self.transitions = sample_steps(episodes, BOTH, _TRANSITIONS, rng)
        self._segments: list[Segment] | None = None
        self.segment_count = 0
        self.equations, sums = read_equations(self.segments(), self.basis.columns)
        self.segment_count = len(self.equations.target)
        self.totals = combine(self.equations.constant / self.equations.scale)
        self.sums = combine(sums)
        if not len(self.equations.target):
            raise DataError("no reward was delivered in any episode")
        self._raw = self._plain = self.equations
        self.noise = NoiseKind()
        self.weights = np.ones(len(self.equations.target))
        self._scale_target()
        self._mates = self._find_twins()
        self._kept: dict[tuple[Effect, int], NDArray[np.floating]] = {}
        self._room = _LARGE

    def _scale_target(self) -> None:
        """Targets without the constant, in the unit that gives them unit variance.

        `varies` is False where their spread may be nothing but the rounding of the amounts.
        """
        target, mean = self.equations.remove_constant(self.equations.target[:, None])
        size = float(np.sqrt((target**2).mean())) if target.size else 0.0
        largest = float(np.abs(self.equations.target).max())
        self.varies = size > find_resolution(self._plain.target / self._plain.scale) * largest
        self.unit = size if self.varies else 1.0
        self.target: Array = np.asarray(target[:, 0] / self.unit, np.float64)
        self.mean = float(mean[0]) / self.unit

    def measure_size(self) -> float:
        """Spread of the scaled amounts without the constant, all counting alike."""
        target, _ = self._plain.remove_constant(self._plain.target[:, None])
        return float(np.sqrt((target**2).mean())) if target.size else 0.0

    def take_noise(self, noise: NoiseKind) -> None:
        """Let the noise of returns grow with their length in this way; all weights are 1 again."""
        raw, self.noise = self._raw, noise
        root = np.sqrt(noise.weigh(raw.constant, raw.scale))
        self._plain = Equations(raw.target * root, raw.constant * root, raw.scale * root)
        self.reweight(np.ones_like(self.weights))

    def take_amounts(self, amounts: Array, precisions: Array) -> None:
        """Fit to these amounts, whose noise is known: its variance is 1 / precision."""
        root = np.sqrt(precisions)
        self.weights = np.ones(len(amounts))
        self._raw = self._plain = Equations(amounts * root, self.totals * root, root)
        self.noise = NoiseKind()
        self.reweight(self.weights)

    def find_noise(self, errors: Array) -> NoiseKind:
        """The kind of noise that makes some errors of the scaled amounts likely."""
        return find_noise(errors, self._raw.constant, self._raw.scale)

    def reweight(self, weights: Array) -> None:
        """Let each amount count so much: its noise variance is 1 / weight times the usual."""
        root, plain = np.sqrt(weights), self._plain
        self.weights = weights
        self.equations = Equations(plain.target * root, plain.constant * root, plain.scale * root)
        self._scale_target()

    def take(self, transitions: Array, state_at: str) -> Array:
        """(step, column) the inputs of transitions with their states taken at some moment."""
        if state_at == BOTH:
            return transitions
        states = self.episodes.state_size
        now, later = transitions[:, :states], transitions[:, -states:]
        return np.concatenate(
            [take_states(now, later, state_at, self.still), transitions[:, states:-states]], 1
        )

    @property
    def terminated(self) -> int | None:
        """The input that says whether the episode terminated at this step, where that varies."""
        width = self.episodes.state_size + self.episodes.action_size
        places = np.flatnonzero(self.basis.columns[: self.inputs] == width)
        return int(places[0]) if len(places) else None

    def find_ended(self) -> NDArray[np.bool_]:
        """(step,) which of the sampled `transitions` terminate their episode."""
        place = self.episodes.state_size + self.episodes.action_size
        return np.asarray(self.transitions[:, place] > 0)

    def find_joint(self, inputs: Sequence[int]) -> list[int]:
        """Those of some inputs that may act together with others.

        Terminating may not where nearly all episodes end so: what it would then do together with
        the last state cannot be told from what every last step is worth.
        """
        ended = np.array([episode.terminations[-1] for episode in self.episodes])
        alike = min(ended.mean(), 1 - ended.mean()) < _ALIKE_ENDS
        return [i for i in inputs if not alike or i != self.terminated]

    @property
    def names(self) -> tuple[str, ...]:
        """(input,) the name of each input, whatever the moment at which states are taken."""
        names = self.episodes.observation_names, self.episodes.action_names
        return name_inputs([int(column) for column in self.basis.columns[: self.inputs]], *names)

    def translate(self, effect: Effect, source: ColumnSource) -> Effect | None:
        """An effect of another source as one of this; None where this lacks an input of it."""
        places = {int(column): i for i, column in enumerate(self.basis.columns[: self.inputs])}
        found = [places.get(int(source.basis.columns[i])) for i in effect]
        return None if None in found else tuple(i for i in found if i is not None)

    @property
    def model_columns(self) -> NDArray[np.int64]:
        """(input,) the column of each input as a reward model counts them, smooth and rough."""
        step = StepColumns(self.episodes.state_size, self.episodes.action_size)
        shifts = np.zeros(step.width, np.int64)
        shifts[: step.states] = {MIDPOINT: step.first_midpoint, END: step.first_next}.get(
            self.state_at, 0
        )
        if self.state_at == MIDPOINT:
            shifts[: step.states][self.still] = step.first_next
        return np.asarray(self.basis.columns + shifts[self.basis.columns])

    def segments(self) -> Iterator[Segment]:
        """All deliveries of all episodes. If they are few, the second pass keeps them."""
        if self._segments is not None:
            return iter(self._segments)
        found = iterate_segments(self.episodes, self.state_at, self.discount, self.still)
        is_small = self.episodes.total_steps * self.probe.shape[1] <= _SMALL
        if not (is_small and 0 < self.segment_count <= _FEW_SEGMENTS):
            return found
        self._segments = list(found)
        return iter(self._segments)

    def column(self, index: int) -> int:
        """The column of an input. A part of the next state has the column of the state."""
        column = int(self.basis.columns[index])
        width = self.episodes.state_size + self.episodes.action_size + 1
        return column - width if column >= width else column

    def tie_actions(self, tied: bool) -> None:
        """Let the main effects of all actions share one variance, or give each its own.

        Together they are one block, which carries the name of the first.
        """
        self._mates = self._find_twins()
        states = self.episodes.state_size
        for first, stop in ((0, self.inputs), (self.inputs, len(self.basis.columns))):
            columns = self.basis.columns[first:stop] - states
            mine = first + np.flatnonzero((columns >= 0) & (columns < self.episodes.action_size))
            if tied and len(mine) > 1:
                self._mates[int(mine[0])] = tuple(mine[1:].tolist())

    def _find_twins(self) -> dict[int, tuple[int, ...]]:
        """For each state input, find the input of its next value, if next states are offered.

        Over an episode the sums of f(s) and f(s') differ at its ends only, so returns can hardly
        tell them apart. As one effect with one variance they share evenly what data leave open:
        the mean of both is the trapezoid rule, right where the reward is an average over the step.
        """
        width = self.episodes.state_size + self.episodes.action_size + 1
        place = {(int(c), i >= self.inputs): i for i, c in enumerate(self.basis.columns)}
        pairs = ((i, place.get((column + width, rough))) for (column, rough), i in place.items())
        return {i: (twin,) for i, twin in pairs if twin is not None}

    def expand_effect(self, effect: Effect) -> list[Effect]:
        """The effects that one block of columns stands for, those of its input's mates included."""
        mates = self._mates.get(effect[0], ()) if len(effect) == 1 else ()
        return [effect, *((mate,) for mate in mates)]

    def expand_inputs(self, effects: Iterable[Effect]) -> list[int]:
        """The inputs of some effects, and of those that stand in one block with them."""
        return sorted({i for e in effects for part in self.expand_effect(e) for i in part})

    def build_bank(
        self, effects: Sequence[Effect], size: int, *, plain: bool = False
    ) -> EffectBank:
        """Columns of these effects: constant removed, mean squared norm per step 1.

        A main effect takes those of its input's mates along; they have none of their own. `plain`
        leaves the constant in, and the rows as they are.
        """
        followers = {mate for mates in self._mates.values() for mate in mates}
        effects = [e for e in effects if len(e) > 1 or e[0] not in followers]
        whole = {e: self.expand_effect(e) for e in effects}
        bank = self._build([part for parts in whole.values() for part in parts], size, plain)
        for effect, parts in whole.items():
            if len(parts) > 1:
                bank.merge(effect, parts)
        return bank

    def _build(self, effects: Sequence[Effect], size: int, plain: bool) -> EffectBank:
        sums, is_kept = self._sum(effects, size)
        scales = self.measure_scales(effects, size)
        bank = EffectBank({}, self.target)
        for effect, scale in zip(effects, scales.tolist(), strict=True):
            if plain:
                bank.columns[effect] = sums[effect] * sums[effect].dtype.type(scale)
                bank.averages[effect] = np.zeros(sums[effect].shape[1])
            else:
                block = sums[effect].copy() if is_kept else sums[effect]
                block *= (self.equations.scale * scale)[:, None].astype(block.dtype)
                block[1:], block[0] = self.equations.remove_constant(block)
                bank.columns[effect], bank.averages[effect] = block[1:], block[0]
            bank.scales[effect], bank.sizes[effect] = scale, size
        return bank

    def _sum(
        self, effects: Sequence[Effect], size: int
    ) -> tuple[dict[Effect, NDArray[np.floating]], bool]:
        """Sums over segments of each effect's features, and whether they are kept.

        They depend on no weights of the amounts, so that a search with new weights finds them here.
        """
        wanted = [effect for effect in effects if (effect, size) not in self._kept]
        rows = self.segment_count
        entries = rows * sum(size ** len(effect) for effect in wanted)
        kind = np.float32 if entries > _LARGE else np.float64
        segments = self.segments() if wanted else iter(())
        found = sum_features(segments, rows, self.basis, wanted, size, kind)
        found = {effect: self.combine(block) for effect, block in found.items()}
        if entries > self._room:
            found.update({e: self._kept[e, size].copy() for e in effects if e not in found})
            return found, False
        self._room -= entries
        self._kept.update({(effect, size): block for effect, block in found.items()})
        return {effect: self._kept[effect, size] for effect in effects}, True

    def build_potentials(self, size: int) -> EffectBank:
        """Columns of h_i(last state) - h_i(first state) for every state input i.

        This is what a term h(s') - h(s) of the reward adds to a return.
        """
        bank = EffectBank({}, self.target)
        states = [i for i in range(self.inputs) if self.basis.columns[i] < self.episodes.state_size]
        if not states:
            return bank
        every = self.combine(
            difference_features(self.segments(), self.segment_count, self.basis, states, size)
        )
        scales = self.measure_scales([(i,) for i in states], size)
        for place, i in enumerate(states):
            block = every[:, place] * (self.equations.scale * scales[place])[:, None]
            bank.columns[i,], bank.averages[i,] = self.equations.remove_constant(block)
            bank.scales[i,], bank.sizes[i,] = float(scales[place]), size
        return bank

    def measure_scales(self, effects: Sequence[Effect], size: int) -> Array:
        """(effect,) 1 / root of the mean squared norm of its products of features."""
        chosen = sorted({i for effect in effects for i in effect})
        position = {i: k for k, i in enumerate(chosen)}
        norms = (self.basis.evaluate(self.probe, chosen, size) ** 2).sum(-1)
        squares = [norms[:, [position[i] for i in effect]].prod(1).mean() for effect in effects]
        return 1 / np.sqrt(np.maximum(squares, 1e-12))
