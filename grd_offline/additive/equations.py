"""From episodes to equations: features summed over the steps of each delivered amount.

Episodes are read one at a time: once for a sample of steps, once per table of sums. If they are
small, `ColumnSource` keeps what was read. It gives the search scaled columns of any effects.

Noise of returns, as far as the lengths of episodes show its sources:

    variance of a return = a sum_t w_t^2  +  b (sum_t w_t)^2  +  c        (w_t = discount^t)

a is the variance of noise that is drawn anew at every step, b that of noise which all steps of an
episode share (a day with bad weather), and c that of noise of the return itself (its measurement).
With all episodes of one length these cannot be told apart, and all noise counts as noise of steps.
Else b or c joins a where it makes the errors of the returns clearly more likely.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import (
    Effect,
    Features,
    InputBasis,
    build_bases,
    rough_kernel,
    smooth_kernel,
)
from grd_offline.additive.moments import BEFORE, BOTH, END, MIDPOINT
from grd_offline.additive.search import Block, EffectBank, Posterior
from grd_offline.core.episodes import Episode, EpisodeSet, find_resolution
from grd_offline.core.errors import DataError
from grd_offline.core.typing import Array, BoolArray, IntArray

Still = BoolArray | None
"""(state,) those that stand still in most steps, see `moments`; None: no state does."""


def take_states(now: Array, later: Array, state_at: str, still: Still = None) -> Array:
    """(step, state) the state of each transition at some moment of it, see `moments`."""
    if state_at == BEFORE:
        return np.concatenate([now[:1], now[:-1]])
    if state_at == MIDPOINT:
        halfway = (now + later) / 2
        return halfway if still is None else np.where(still, later, halfway)
    return later if state_at == END else now


def join_inputs(episode: Episode, state_at: str, still: Still = None) -> Array:
    """(step, column) states, actions, whether it terminated and, for "both", next states."""
    now = episode.observations[: len(episode)].astype(np.float64)
    later = episode.next_observations.astype(np.float64)
    states = take_states(now, later, state_at, still)
    parts: list[NDArray[Any]] = [states, episode.actions, episode.terminations[:, None]]
    if state_at == BOTH:
        parts.append(later)
    return np.concatenate(parts, 1, dtype=np.float64)


class Segment(NamedTuple):
    """The steps that one delivered amount is for."""

    inputs: Array
    """(step, column): the inputs of each step."""
    weights: Array
    """(step,) discount^t, t from the episode's start."""
    amount: float
    before: Array
    """(state,) the state it begins in."""
    after: Array
    """(state,) the state it ends in; the last one known where the final one is not."""


def iterate_segments(
    episodes: EpisodeSet, state_at: str, discount: float, still: Still = None
) -> Iterator[Segment]:
    """All deliveries of all episodes."""
    for episode in episodes:
        inputs = join_inputs(episode, state_at, still)
        states = episode.observations
        weights = discount ** np.arange(len(episode), dtype=np.float64)
        for start, stop, amount in zip(*episode.segments(), strict=True):
            after = states[min(stop, len(states) - 1)].astype(np.float64)
            before = states[start].astype(np.float64)
            yield Segment(inputs[start:stop], weights[start:stop], float(amount), before, after)


def sample_steps(
    episodes: EpisodeSet, state_at: str, limit: int, rng: np.random.Generator, still: Still = None
) -> Array:
    """(step, column) at most `limit` steps, drawn evenly at random from the episodes."""
    total = episodes.total_steps
    kept = []
    for episode in episodes:
        inputs = join_inputs(episode, state_at, still)
        if total > limit:
            inputs = inputs[rng.random(len(inputs)) < limit / total]
        kept.append(inputs)
    sample = np.concatenate(kept)
    return sample if len(sample) else join_inputs(episodes[0], state_at, still)


@dataclass(frozen=True, eq=False)
class Equations:
    """The equations that every fit shares: targets and the column of the constant, with rows scaled
    to equal noise."""

    target: Array
    """(row,) amount / sqrt(sum of squared weights)."""
    constant: Array
    """(row,) sum of weights, scaled likewise."""
    scale: Array
    """(row,) 1 / sqrt(sum of squared weights)."""

    def remove_constant(
        self, columns: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Rows free of the constant, and the average per step of each column.

        A reflection H turns the constant's column h into |h| e_1. The first row then fixes c given
        the rest, and is left out: what remains is the likelihood with c integrated out. The average
        is (H Z)_1 / |h|. Where no row has a constant, as with preferences between pieces of equal
        length, the first row is left out all the same.
        """
        length = float(np.linalg.norm(self.constant))
        if not length:
            return columns[1:], np.zeros(columns.shape[1], columns.dtype)
        sign = -np.copysign(1.0, self.constant[0])
        mirror = self.find_mirror().astype(columns.dtype)
        along = mirror @ columns
        first = columns[0] - 2 * mirror[0] * along
        return columns[1:] - np.outer(2 * mirror[1:], along), sign * first / length

    def find_mirror(self) -> Array:
        """(row,) the unit vector m of the reflection H = I - 2 m m^T."""
        mirror = self.constant / (np.linalg.norm(self.constant) or 1.0)
        mirror = mirror + np.where(np.arange(len(mirror)) == 0, np.copysign(1.0, mirror[0]), 0.0)
        return np.asarray(mirror / np.linalg.norm(mirror))

    def find_errors(self, fit: Posterior) -> Array:
        """(row,) the error of each row, left out in turn with the variances as they are.

        It is K y over the diagonal of K = H^T [0 0; 0 C^-1] H. The fit has C^-1 (H y) and the
        diagonal of C^-1, both without the first row.
        """
        mirror = self.find_mirror()
        along = np.asarray(fit.apply_inverse(mirror[1:, None])[:, 0], np.float64)
        residual, inner = np.append(0.0, fit.residual), np.append(0.0, fit.inverse_diagonal())
        residual = residual - 2 * mirror * float(mirror @ residual)
        power = float(mirror[1:] @ along)
        diagonal = inner - 4 * mirror * np.append(0.0, along) + 4 * mirror**2 * power
        return np.asarray(residual / np.maximum(diagonal, 1e-300))


def read_equations(segments: Iterator[Segment], columns: IntArray) -> tuple[Equations, Array]:
    """Targets and the constant's column of all deliveries, and the sums of these columns."""
    rows, sums = [], []
    for segment in segments:
        weights = segment.weights
        rows.append((segment.amount, weights.sum(), (weights**2).sum()))
        sums.append(weights @ segment.inputs[:, columns])
    amounts, totals, squares = np.array(rows, np.float64).reshape(-1, 3).T
    scale = 1 / np.sqrt(np.maximum(squares, 1e-300))
    raw = np.array(sums, np.float64).reshape(len(rows), len(columns))
    return Equations(amounts * scale, totals * scale, scale), raw * scale[:, None]


def sum_features(
    segments: Iterator[Segment],
    rows: int,
    basis: InputBasis,
    effects: Sequence[Effect],
    size: int,
    kind: type[np.floating],
) -> dict[Effect, NDArray[np.floating]]:
    """For each effect, sum products of features over each segment: (row, size^order)."""
    chosen = sorted({i for effect in effects for i in effect})
    position = {i: k for k, i in enumerate(chosen)}
    orders = sorted({len(effect) for effect in effects})
    groups = {order: [effect for effect in effects if len(effect) == order] for order in orders}
    places = {k: np.array([[position[i] for i in e] for e in g]) for k, g in groups.items()}
    sums = {k: np.zeros((rows, len(g), size**k), kind) for k, g in groups.items()}
    lookup = Features(basis, chosen, size)
    for row, segment in enumerate(segments):
        if 1 in groups:
            sums[1][row] = lookup.sum(segment.inputs, segment.weights)[places[1][:, 0]]
        if set(groups) == {1}:
            continue
        features = lookup.evaluate(segment.inputs)
        weighted = features * segment.weights[:, None, None]
        for order in groups.keys() - {1}:
            combine = _sum_pairs if order == 2 else _sum_joint
            sums[order][row] = combine(weighted, features, places[order])
    return {e: sums[order][:, k] for order, g in groups.items() for k, e in enumerate(g)}


def difference_features(
    segments: Iterator[Segment], rows: int, basis: InputBasis, states: Sequence[int], size: int
) -> Array:
    """(row, state, size): features at the segment's end less those at its start, discounted.

    What a potential h adds to a return, sum_t gamma^t (gamma h(s') - h(s)), is all of this form.
    """
    differences = np.zeros((rows, len(states), size))
    lookup = Features(basis, states, size)
    for row, segment in enumerate(segments):
        ends = np.stack([segment.before, segment.after])
        features = lookup.evaluate(ends)
        weights = segment.weights
        ratio = weights[1] / weights[0] if len(weights) > 1 else 1.0
        differences[row] = features[1] * (weights[-1] * ratio) - features[0] * weights[0]
    return differences


def _sum_pairs(weighted: Array, features: Array, where: IntArray) -> Array:
    """All pairs from one matrix product over the steps."""
    steps, count, size = features.shape
    every = weighted.reshape(steps, -1).T @ features.reshape(steps, -1)
    blocks = every.reshape(count, size, count, size)[where[:, 0], :, where[:, 1], :]
    return np.asarray(blocks.reshape(len(where), size * size))


def _sum_joint(weighted: Array, features: Array, where: IntArray) -> Array:
    """Effects of three or four inputs that share their first two from one matrix product."""
    steps, _, size = features.shape
    sums = np.empty((len(where), size ** where.shape[1]))
    pairs, group = np.unique(where[:, :2], axis=0, return_inverse=True)
    for k, (a, b) in enumerate(pairs):
        members = np.flatnonzero(group.ravel() == k)
        joint = (weighted[:, a, :, None] * features[:, b, None, :]).reshape(steps, -1)
        others = features[:, where[members, 2]]
        for place in range(3, where.shape[1]):
            last = features[:, where[members, place]]
            others = (others[..., None] * last[:, :, None, :]).reshape(steps, len(members), -1)
        block = (joint.T @ others.reshape(steps, -1)).reshape(size * size, len(members), -1)
        sums[members] = block.transpose(1, 0, 2).reshape(len(members), -1)
    return sums


class Motion(NamedTuple):
    """How states move from step to step."""

    still: BoolArray
    """(state,) those that are exactly the same before and after most of the steps."""
    jumps: bool
    """Whether every state is new at every step: rows are independent of each other."""
    start_only: bool
    """Whether rows are independent, and the state after the last one is not known.

    The last state is then repeated, which along a path is nearly right. Here it is wrong, and would
    decide between the moments of a step, because sums differ in the first and last state alone.
    """


_MOTIONS: WeakKeyDictionary[EpisodeSet, Motion] = WeakKeyDictionary()


def find_motion(episodes: EpisodeSet) -> Motion:
    """How states move. It is measured once for each set of episodes.

    For independent rows the mean squared step is twice the variance within episodes.
    """
    if episodes not in _MOTIONS:
        count, steps, spread = np.zeros((3, episodes.state_size))
        ends_known = True
        for episode in episodes:
            now, later = episode.observations[: len(episode)], episode.next_observations
            ends_known = ends_known and episode.has_final_observation
            count += (now == later).sum(0)
            path = np.concatenate([now[:1], later]).astype(np.float64)
            steps += (np.diff(path, axis=0) ** 2).sum(0) * (len(path) / (len(path) - 1))
            spread += 2 * ((path - path.mean(0)) ** 2).sum(0)
        moving = spread > 0
        jumps = bool(moving.any() and (steps[moving] > BARS.jump * spread[moving]).all())
        still = count > episodes.total_steps / 2
        _MOTIONS[episodes] = Motion(still, jumps, jumps and not ends_known)
    return _MOTIONS[episodes]


_GRID = np.geomspace(1e-2, 1e3, 61)


@dataclass(frozen=True)
class NoiseKind:
    """The second kind of noise, in units of the noise of a single step."""

    shared: float = 0.0
    """The ratio b / a."""
    whole: float = 0.0
    """The ratio c / a."""

    def weigh(self, constant: Array, scale: Array) -> Array:
        """(row,) by how much each return counts less than with noise of steps alone.

        `constant` and `scale` are those of the equations: sum of weights and 1, both divided by the
        root of the sum of squared weights.
        """
        return np.asarray(1 / (1 + self.shared * constant**2 + self.whole * scale**2))


def find_noise(errors: Array, constant: Array, scale: Array) -> NoiseKind:
    """The kind of noise that makes these errors likely, each divided by its root of a weight."""
    short, long = np.quantile(constant**2, [0.1, 0.9])
    is_short = len(errors) < BARS.fewest_for_noise
    if is_short or long < BARS.noise_lengths * short or not (errors**2).sum() > 0:
        return NoiseKind()
    kinds = [NoiseKind()]
    kinds += [NoiseKind(shared=float(ratio / (constant**2).mean())) for ratio in _GRID]
    kinds += [NoiseKind(whole=float(ratio / (scale**2).mean())) for ratio in _GRID]
    likely = [_measure(errors, kind.weigh(constant, scale)) for kind in kinds]
    best = int(np.argmax(likely))
    return kinds[best] if likely[best] > likely[0] + BARS.noise_gain else kinds[0]


def _measure(errors: Array, weights: Array) -> float:
    """Log likelihood at the best level of the noise."""
    return float(0.5 * np.log(weights).sum() - 0.5 * len(errors) * np.log(weights @ errors**2))


_LARGE = 30_000_000  # entries beyond which candidate columns are kept in float32
_SMALL = 8_000_000  # numbers of all steps up to which these are kept,
_FEW_SEGMENTS = 20_000  # and deliveries up to which they are
_PROBE = 4096  # steps on which functions are compared
_TRANSITIONS = 1024  # steps drawn with the state at their start and at their end


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
        """`combine` makes the rows of the equations from those of all segments.

        If `only` is given, only these columns of [states, actions, terminated] are inputs.
        """
        self.combine = combine
        self.episodes, self.state_at, self.discount = episodes, state_at, discount
        self.ended = episodes.state_size + episodes.action_size
        """The column that says whether the episode terminated; next states come after it."""
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
        self._raw = self._plain = Equations(amounts * root, self.totals * root, root)
        self.noise = NoiseKind()
        self.reweight(np.ones(len(amounts)))

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
        now, rest, later = np.split(transitions, [states, transitions.shape[1] - states], axis=1)
        return np.concatenate([take_states(now, later, state_at, self.still), rest], 1)

    @property
    def terminated(self) -> int | None:
        """The input that says whether the episode terminated at this step, where that varies."""
        places = np.flatnonzero(self.basis.columns[: self.inputs] == self.ended)
        return int(places[0]) if len(places) else None

    def find_joint(self, inputs: Sequence[int]) -> list[int]:
        """Those of some inputs that may act together with others.

        Terminating may not where nearly all episodes end so: what it would then do together with
        the last state cannot be told from what every last step is worth.
        """
        ended = np.array([episode.terminations[-1] for episode in self.episodes])
        alike = min(ended.mean(), 1 - ended.mean()) < BARS.alike_ends
        return [i for i in inputs if not alike or i != self.terminated]

    def translate(self, effects: Iterable[Effect], source: ColumnSource) -> list[Effect]:
        """The effects of another source as those of this, without any that lack an input here."""
        places = {int(column): i for i, column in enumerate(self.basis.columns[: self.inputs])}
        every = [[int(source.basis.columns[i]) for i in effect] for effect in effects]
        return [tuple(places[c] for c in one) for one in every if places.keys() >= set(one)]

    def segments(self) -> Iterator[Segment]:
        """All deliveries of all episodes. If they are few, the second pass keeps them."""
        if self._segments is None:
            found = iterate_segments(self.episodes, self.state_at, self.discount, self.still)
            is_small = self.episodes.total_steps * self.probe.shape[1] <= _SMALL
            if not (is_small and 0 < self.segment_count <= _FEW_SEGMENTS):
                return found
            self._segments = list(found)
        return iter(self._segments)

    def column(self, index: int) -> int:
        """The column of an input. A part of the next state has the column of the state."""
        column = int(self.basis.columns[index])
        return column - self.ended - 1 if column > self.ended else column

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
        width = self.ended + 1
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
        every = [part for parts in whole.values() for part in parts]
        bank = self._scale(every, self._sum(every, size), size, plain)
        for effect, parts in whole.items():
            if len(parts) > 1:
                bank.merge(effect, parts)
        return bank

    def _scale(
        self,
        effects: Sequence[Effect],
        sums: Mapping[Effect, NDArray[np.floating]],
        size: int,
        plain: bool = False,
    ) -> EffectBank:
        """The sums of each effect as its columns, see `build_bank`."""
        scales = self.measure_scales(effects, size)
        bank = EffectBank({}, self.target)
        for effect, scale in zip(effects, scales.tolist(), strict=True):
            if plain:
                columns = sums[effect] * sums[effect].dtype.type(scale)
                average = np.zeros(columns.shape[1], columns.dtype)
            else:
                factors = (self.equations.scale * scale)[:, None].astype(sums[effect].dtype)
                columns, average = self.equations.remove_constant(sums[effect] * factors)
            bank[effect] = Block(columns, average, scale, size)
        return bank

    def _sum(self, effects: Sequence[Effect], size: int) -> dict[Effect, NDArray[np.floating]]:
        """Sums over segments of each effect's features.

        They depend on no weights of the amounts, so that a search with new weights finds them here.
        """
        wanted = [effect for effect in effects if (effect, size) not in self._kept]
        rows = self.segment_count
        entries = rows * sum(size ** len(effect) for effect in wanted)
        kind = np.float32 if entries > _LARGE else np.float64
        segments = self.segments() if wanted else iter(())
        found = sum_features(segments, rows, self.basis, wanted, size, kind)
        found = {effect: self.combine(block) for effect, block in found.items()}
        known = {effect: self._kept[effect, size] for effect in effects if effect not in found}
        if entries <= self._room:
            self._room -= entries
            self._kept.update({(effect, size): block for effect, block in found.items()})
        return found | known

    def build_potentials(self, size: int) -> EffectBank:
        """Columns of h_i(last state) - h_i(first state) for every state input i.

        This is what a term h(s') - h(s) of the reward adds to a return.
        """
        states = [i for i in range(self.inputs) if self.basis.columns[i] < self.episodes.state_size]
        if not states:
            return EffectBank({}, self.target)
        rows, basis = self.segment_count, self.basis
        every = self.combine(difference_features(self.segments(), rows, basis, states, size))
        effects: list[Effect] = [(i,) for i in states]
        sums = dict(zip(effects, np.moveaxis(every, 1, 0), strict=True))
        return self._scale(effects, sums, size)

    def normalise(self, sums: Array) -> tuple[Array, Array]:
        """(row, column) sums free of a constant reward and of size 1, and the sizes they had."""
        free, _ = self.equations.remove_constant(sums * self.equations.scale[:, None])
        sizes = np.sqrt(np.maximum((np.asarray(free, np.float64) ** 2).mean(0), 1e-300))
        return np.asarray(free / sizes, np.float64), sizes

    def measure_scales(self, effects: Sequence[Effect], size: int) -> Array:
        """(effect,) 1 / root of the mean squared norm of its products of features."""
        chosen = sorted({i for effect in effects for i in effect})
        position = {i: k for k, i in enumerate(chosen)}
        norms = (self.basis.evaluate(self.probe, chosen, size) ** 2).sum(-1)
        squares = [norms[:, [position[i] for i in effect]].prod(1).mean() for effect in effects]
        return 1 / np.sqrt(np.maximum(squares, 1e-12))
