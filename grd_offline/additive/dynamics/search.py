"""The causal graph of the dynamics in closed form: which states and actions drive each next state.

    s_{i,t+1} = f_i(C_ss[:, i] * s_t, C_as[:, i] * a_t) + noise

Each next state is regressed on smooth one-dimensional features of every input and on products of
the features of two inputs. All of it is linear algebra on sums over a sample of transitions:

1. Forward: inputs by their main effect, best first, while the BIC falls.
2. Pairs: a score test of the residual against all products of two inputs. No main effect is asked
   for, so inputs that act only through a product are found. The best pair is added and the rest
   tested again.
3. Backward: pairs, and inputs with all that they take part in, while removing one costs less than
   the BIC asks for. An input must also raise the residual variance by `min_gain`, and by
   `min_share` of the variance of the state's change, when it is removed: what a smooth basis cannot
   express leaves traces in the inputs that are correlated with the true ones, and with enough data
   or little noise the BIC alone would take those for effects.

One-hot actions are one input: all of them are parents of a state, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grd_offline.additive.dynamics.features import (
    Transitions,
    build_feature_table,
    draw_transitions,
    is_varying,
    score_pairs,
    sum_squares,
)
from grd_offline.additive.dynamics.fit import Progress, fit_to_transitions, ignore_progress
from grd_offline.additive.dynamics.model import DynamicsModel, DynamicsModelSettings, check_whole
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.typing import Array, BoolArray, IntArray

RIDGE = 1e-7
"""Added to the mean square of every regressor."""
_MAX_MAINS = 200


class Design:
    """The regressors of one next state, and which groups each of them involves.

    `index` is the number of a feature, or -1 - k for the product k. `first` and `second` are the
    groups that a regressor involves; -1 stands for none.
    """

    def __init__(self, problem: Problem, state: int) -> None:
        self.problem = problem
        self.target = problem.targets[state]
        self.floor = float(problem.floor[state])
        self.least_rise = float(problem.least_rise[state])
        self.total = float(self.target @ self.target)
        self.products = np.zeros((0, problem.rows))
        self.index = np.zeros(0, np.int64)
        self.first = np.zeros(0, np.int64)
        self.second = np.zeros(0, np.int64)
        self.gram = np.zeros((0, 0))
        self.moments = np.zeros(0)
        groups = len(problem.groups)
        self.paired = np.zeros((groups, groups), np.bool_)

    def add_mains(self, groups: list[int]) -> None:
        """Add main effects, of fewer features where inputs are many."""
        problem = self.problem
        chosen = len(groups) + int(self.kept().sum())
        count = max(problem.count, min(problem.rich_count, _MAX_MAINS // max(1, chosen)))
        for group in groups:
            new = problem.members(group, count)
            is_main = self.index >= 0
            cross = np.empty((len(self.index), len(new)))
            cross[is_main] = problem.gram[np.ix_(self.index[is_main], new)]
            if not is_main.all():
                products = self.products[-1 - self.index[~is_main]]
                cross[~is_main] = products @ problem.features[new].T
            inner = problem.gram[np.ix_(new, new)]
            self._append(new, group, -1, cross, inner, problem.features[new] @ self.target)

    def add_pair(self, first: int, second: int, size: int) -> None:
        """Add the products of two groups' features, and the main effects that they lack."""
        problem = self.problem
        self.paired[first, second] = self.paired[second, first] = True
        present = set(self.first[self.second < 0].tolist())
        self.add_mains([group for group in (first, second) if group not in present])
        left, right = (problem.features[problem.members(g, size)] for g in (first, second))
        new = (left[:, None] * right[None, :]).reshape(-1, problem.rows)
        new -= new.mean(axis=1, keepdims=True)
        is_main = self.index >= 0
        cross = np.empty((len(self.index), len(new)))
        cross[is_main] = problem.features[self.index[is_main]] @ new.T
        cross[~is_main] = self.products[-1 - self.index[~is_main]] @ new.T
        inner = new @ new.T + RIDGE * problem.rows * np.eye(len(new))
        index = -1 - len(self.products) - np.arange(len(new))
        self._append(index, first, second, cross, inner, new @ self.target)
        self.products = np.concatenate([self.products, new])

    def _append(
        self, index: IntArray, first: int, second: int, cross: Array, inner: Array, moments: Array
    ) -> None:
        self.index = np.concatenate([self.index, index])
        self.first = np.concatenate([self.first, np.full(len(index), first)])
        self.second = np.concatenate([self.second, np.full(len(index), second)])
        self.gram = np.block([[self.gram, cross], [cross.T, inner]])
        self.moments = np.concatenate([self.moments, moments])

    def _keep(self, kept: BoolArray) -> None:
        self.index, self.first, self.second = self.index[kept], self.first[kept], self.second[kept]
        self.gram, self.moments = self.gram[np.ix_(kept, kept)], self.moments[kept]

    def residual(self, rows: int) -> Array:
        """(row,): what the regressors leave of the first rows."""
        residual: Array = self.target[:rows].copy()
        if len(self.index):
            weights = np.linalg.solve(self.gram, self.moments)
            is_main = self.index >= 0
            residual -= weights[is_main] @ self.problem.features[:, :rows][self.index[is_main]]
            products = self.products[:, :rows][-1 - self.index[~is_main]]
            residual -= weights[~is_main] @ products
        return residual

    def missed_mains(self) -> list[int]:
        """Groups left out whose main effect shows now that pairs have lowered the noise."""
        if not len(self.products):
            return []
        problem = self.problem
        wanted = self._outside_gains() > problem.penalty(problem.sizes) / problem.rows
        return [int(group) for group in np.flatnonzero(wanted)]

    def _outside_gains(self) -> Array:
        """(group,): nats per transition that a main effect would add, for groups without one."""
        problem = self.problem
        rows = problem.screen.shape[2]
        residual = self.residual(rows)
        slopes = np.zeros(len(problem.features))
        basic = problem.rank < problem.count
        found = problem.screen.reshape(-1, rows) @ residual.astype(np.float32)
        slopes[basic] = found.reshape(problem.screen.shape[:2])[
            problem.column[basic], problem.rank[basic]
        ]
        if not len(slopes):
            return np.zeros(len(problem.groups))
        part = np.where(problem.block_valid, slopes[problem.blocks], 0.0)
        inner = problem.inner * (rows / problem.rows)
        gains = (part * np.linalg.solve(inner, part[:, :, None])[:, :, 0]).sum(axis=1)
        rss = max(float(residual @ residual), self.floor * rows / problem.rows)
        gains[self.first[self.second < 0]] = 0.0
        return np.asarray(-0.5 * np.log1p(-np.clip(gains / rss, 0.0, 0.99)))

    def _rises(self, removals: list[BoolArray]) -> tuple[Array, float]:
        """(removal,) by how much the sum of squares rises when regressors go, and from what."""
        inverse = np.linalg.inv(self.gram)
        weights = inverse @ self.moments
        rss = max(self.total - float(weights @ self.moments), self.floor)
        rises = np.zeros(len(removals))
        for k, removed in enumerate(removals):
            part = weights[removed]
            rises[k] = part @ np.linalg.solve(inverse[np.ix_(removed, removed)], part)
        return np.maximum(rises, 0.0), rss

    def _involving(self, group: int) -> BoolArray:
        return np.asarray((self.first == group) | (self.second == group))

    def eliminate(self) -> None:
        """Remove pairs and inputs while the least missed of them costs less than it must."""
        while len(self.index):
            owners = np.stack([self.first, self.second])[:, self.second >= 0]
            pairs = np.unique(owners, axis=1).T
            removals = [(self.first == a) & (self.second == b) for a, b in pairs]
            removals += [self._involving(int(group)) for group in np.flatnonzero(self.kept())]
            rises, rss = self._rises(removals)
            spare = np.log1p(rises / rss) - self._needed(removals, len(pairs), rss)
            worst = int(spare.argmin())
            if spare[worst] >= 0:
                break
            self._keep(~removals[worst])

    def _needed(self, removals: list[BoolArray], pairs: int, rss: float) -> Array:
        """(removal,): rise of the log residual variance that keeps it; the pairs come first."""
        problem = self.problem
        sizes = np.array([removed.sum() for removed in removals])
        needed: Array = 2 * problem.penalty(sizes) / problem.rows
        least = np.log1p(max(problem.settings.min_gain, self.least_rise / rss))
        needed[pairs:] = np.maximum(needed[pairs:], least)
        return needed

    def kept(self) -> BoolArray:
        """(group,): whether each group takes part."""
        kept = np.zeros(len(self.problem.groups), np.bool_)
        kept[self.first] = True
        kept[self.second[self.second >= 0]] = True
        return kept

    def strengths(self) -> Array:
        """(group,): nats per transition lost without the group, or gained by adding it."""
        strengths = self._outside_gains()
        groups = np.flatnonzero(self.kept())
        if len(groups):
            rises, rss = self._rises([self._involving(int(group)) for group in groups])
            strengths[groups] = 0.5 * np.log1p(rises / rss)
        return strengths


_MAX_ENTRIES = 30_000_000
_RESCREENED = 30
_COMPARED = 60
_MAX_BASIC = 1_200
_PAIR_WORK = 2.5e11


@dataclass(frozen=True)
class DynamicsSettings:
    """Settings of the search for the masks of the dynamics. The dynamics model has its own
    settings."""

    transitions: int = 20_000
    """Transitions that the masks are chosen on; at most 3e7 / (inputs * rich_features)."""
    features: int = 8
    """Features per input when main effects are compared, the value itself included."""
    rich_features: int = 16
    """Features per input once it is chosen: what is not expressed looks like other inputs."""
    pair_features: int = 7
    """Features per input in a product of two; fewer where inputs are many."""
    max_parents: int = 40
    """Inputs taken up per next state by their main effect, the strongest first."""
    max_pairs: int = 6
    """Products tried per next state."""
    min_gain: float = 0.02
    """Share by which the residual variance must rise when an input is removed, else it goes."""
    min_share: float = 0.001
    """Smallest rise as a fraction of the variance of the change of the state. It matters where
    noise is small."""
    penalty: float = 1.0
    """Strength of the penalty on regressors; 1 is the BIC."""

    def __post_init__(self) -> None:
        check_whole(self, "transitions", "features", "pair_features", "rich_features")
        check_whole(self, "max_parents")
        check_whole(self, "max_pairs", low=0)
        for name in ("min_gain", "min_share", "penalty"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise ValueError(f"{name}: expected a number of at least 0, got {value!r}")


@dataclass(frozen=True, eq=False)
class DynamicsFit:
    """The graph of the dynamics, how strong each edge is, and a model fitted within the graph."""

    state_to_state: IntArray
    """(state, state), 0 and 1: row = cause, column = effect."""
    action_to_state: IntArray
    """(action, state), 0 and 1."""
    state_score: Array
    """(state, state): log-likelihood per transition, in nats, that is lost without the edge."""
    action_score: Array
    """(action, state), likewise; for an edge that is not there, what it would add on its own."""
    model: DynamicsModel


def fit_dynamics(
    episodes: EpisodeSet,
    settings: DynamicsSettings | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = ignore_progress,
    model_settings: DynamicsModelSettings | None = None,
) -> DynamicsFit:
    """Find the parents of each next state, and fit a model of the dynamics to them alone."""
    settings = settings or DynamicsSettings()
    model_settings = model_settings or DynamicsModelSettings()
    rng = rng if rng is not None else np.random.default_rng(0)
    limit = max(settings.transitions, model_settings.max_transitions)
    transitions = draw_transitions(episodes, limit, rng)
    masks, scores = find_parents(
        transitions,
        input_groups(episodes),
        settings,
        lambda part: progress("finding the causal graph", part),
    )
    model = fit_to_transitions(
        transitions.take(slice(0, model_settings.max_transitions)),
        masks,
        episodes,
        model_settings,
        rng,
        progress,
    )
    states = episodes.state_size
    return DynamicsFit(
        model.state_to_state, model.action_to_state, scores[:states], scores[states:], model
    )


def input_groups(episodes: EpisodeSet) -> list[IntArray]:
    """Columns that are chosen together: each on its own, one-hot actions all at once."""
    states, actions = episodes.state_size, episodes.action_size
    if episodes.discrete_actions and actions:
        return [np.array([c]) for c in range(states)] + [np.arange(states, states + actions)]
    return [np.array([c]) for c in range(states + actions)]


def find_parents(
    transitions: Transitions,
    groups: list[IntArray],
    settings: DynamicsSettings,
    progress: Callable[[float], None],
) -> tuple[BoolArray, Array]:
    """(input, state) which inputs each next state depends on, and the strength of each edge."""
    progress(0.0)
    problem = Problem(transitions, groups, settings)
    inputs, states = transitions.inputs.shape[1], transitions.targets.shape[1]
    masks = np.zeros((inputs, states), np.bool_)
    scores = np.zeros((inputs, states))
    for state in range(states):
        if problem.varies[state]:
            kept, strength = problem.select(state)
            for group, columns in enumerate(groups):
                masks[columns, state] = kept[group]
                scores[columns, state] = strength[group]
        progress((state + 1) / states)
    return masks, scores


class Problem:
    """Sums over the sample that the selection of every state's parents shares.

    Features are numbered through all inputs; `owner` is the group and `rank` the place within the
    input of each. Inputs are compared by the first few (`basic`), chosen ones use all.
    """

    def __init__(
        self, transitions: Transitions, groups: list[IntArray], settings: DynamicsSettings
    ) -> None:
        inputs = transitions.inputs.shape[1]
        rows = min(len(transitions), settings.transitions)
        rows = min(rows, max(1_000, _MAX_ENTRIES // max(1, inputs * settings.rich_features)))
        sample = transitions.take(slice(0, rows))
        self.rows, self.groups, self.settings = rows, groups, settings
        # Few transitions do not carry many features, and time not many inputs with many.
        most = min(settings.features, max(3, _MAX_BASIC // max(1, inputs)))
        self.count = int(np.clip(rows // 100, 1, most))
        rich = min(settings.rich_features, 2 * most)
        self.rich_count = int(np.clip(rows // 300, self.count, max(rich, self.count)))
        self._prepare_features(sample.inputs)
        self._prepare_blocks()
        self._prepare_targets(sample)
        self._prepare_screen()

    def _prepare_features(self, inputs: Array) -> None:
        """Centred features (feature, row) and their Gram matrix."""
        table = build_feature_table(inputs, self.rich_count)
        self.counts = table.counts
        self.features = np.empty((int(self.counts.sum()), self.rows))
        stops = np.cumsum(self.counts)
        for column in np.flatnonzero(self.counts):
            own = slice(stops[column] - self.counts[column], stops[column])
            self.features[own] = table.evaluate(inputs, int(column), int(self.counts[column]))
        self.features -= self.features.mean(axis=1, keepdims=True)
        self.gram = self.features @ self.features.T
        self.gram[np.diag_indices_from(self.gram)] += RIDGE * self.rows

    def _prepare_blocks(self) -> None:
        """Assign features to groups: (group, place) lists the basic features of each group, padded
        to equal length."""
        self.group_of = np.zeros(len(self.counts), np.int64)
        for group, members in enumerate(self.groups):
            self.group_of[members] = group
        self.column = np.repeat(np.arange(len(self.counts)), self.counts)
        self.owner = self.group_of[self.column]
        self.rank = np.concatenate([np.zeros(0, np.int64), *map(np.arange, self.counts)])
        basic = np.flatnonzero(self.rank < self.count)
        basic = basic[np.argsort(self.owner[basic], kind="stable")]
        self.sizes = np.bincount(self.owner[basic], minlength=len(self.groups))
        self.block_valid = np.arange(max(1, self.sizes.max())) < self.sizes[:, None]
        self.blocks = np.zeros(self.block_valid.shape, np.int64)
        self.blocks[self.block_valid] = basic
        self.both = self.block_valid[:, :, None] & self.block_valid[:, None, :]
        padding = self.rows * np.eye(self.block_valid.shape[1])
        self.inner = np.broadcast_to(padding, self.both.shape)
        if len(basic):
            inner = self.gram[self.blocks[:, :, None], self.blocks[:, None, :]]
            self.inner = np.where(self.both, inner, padding)
        self.inner_inverse = np.linalg.inv(self.inner)

    def _prepare_targets(self, sample: Transitions) -> None:
        targets = sample.targets
        self.varies = is_varying(targets)
        scale = np.where(self.varies, targets.std(axis=0), 1.0)
        self.targets = np.ascontiguousarray(((targets - targets.mean(axis=0)) / scale).T)
        self.moments = self.features @ self.targets.T
        # Below this a residual is rounding, of the data or of the sums.
        rounding = 2e-7 * np.abs(targets).max(axis=0) / scale
        self.floor = self.rows * (rounding**2 + 1e-10)
        change = (targets - sample.inputs[:, : targets.shape[1]]).std(axis=0) / scale
        self.least_rise = self.settings.min_share * self.rows * np.minimum(change, 1.0) ** 2

    def _prepare_screen(self) -> None:
        """(input, feature, row): basic features of a few thousand rows in float32, for tests."""
        rows = min(self.rows, 8_000 if len(self.counts) <= 50 else 4_000)
        basic = self.rank < self.count
        self.screen = np.zeros((len(self.counts), self.count, rows), np.float32)
        self.screen[self.column[basic], self.rank[basic]] = self.features[basic, :rows]
        count = min(self.count, self.settings.pair_features)
        work = 2.0 * len(self.targets) * rows * len(self.counts) ** 2
        while count > 2 and work * count**2 > _PAIR_WORK:
            count -= 1
        self.pair_screen = np.ascontiguousarray(self.screen[:, :count])
        self.pair_squares = sum_squares(self.pair_screen)
        same = self.group_of[:, None] == self.group_of[None, :]
        constant = self.counts == 0
        self.pair_refused = same | constant[:, None] | constant[None, :]

    def members(self, group: int, count: int) -> IntArray:
        """The first features of each of a group's inputs."""
        return np.flatnonzero((self.owner == group) & (self.rank < count))

    def penalty(self, sizes: IntArray | int) -> Array:
        """The gain in nats that a number of regressors must reach."""
        return np.asarray(0.5 * self.settings.penalty * np.log(self.rows) * np.asarray(sizes))

    def select(self, state: int) -> tuple[BoolArray, Array]:
        """(group,) the parents of one next state, and the strength of every edge."""
        design = Design(self, state)
        design.add_mains(self._forward(state))
        candidates: IntArray | None = None
        for _ in range(self.settings.max_pairs):
            found = self._best_pair(design, candidates)
            if found is None:
                break
            candidates = found[2] if candidates is None else candidates
            design.add_pair(found[0], found[1], found[3])
        design.add_mains(design.missed_mains())
        design.eliminate()
        return design.kept(), design.strengths()

    def _forward(self, state: int) -> list[int]:
        """Groups by main effect, best first, while the BIC falls."""
        chosen: list[int] = []
        moments = self.moments[:, state]
        rss = max(float(self.targets[state] @ self.targets[state]), self.floor[state])
        while len(chosen) < self.settings.max_parents:
            gains = self._main_gains(chosen, moments)
            gains = np.minimum(gains, rss - self.floor[state])
            value = -0.5 * self.rows * np.log1p(-np.maximum(gains, 0) / rss)
            value -= self.penalty(self.sizes)
            value[self.sizes == 0] = -np.inf
            value[chosen] = -np.inf
            best = int(value.argmax())
            if value[best] <= 0:
                break
            chosen.append(best)
            rss = max(rss - float(gains[best]), self.floor[state])
        return chosen

    def _main_gains(self, chosen: list[int], moments: Array) -> Array:
        """(group,): fall of the residual sum of squares if a group joins the chosen ones.

        Exact for the most promising groups, a lower bound for the others.
        """
        own = self.blocks[chosen][self.block_valid[chosen]]
        weights = np.linalg.solve(self.gram[np.ix_(own, own)], moments[own])
        slope = moments - weights @ self.gram[own]
        part = np.where(self.block_valid, slope[self.blocks], 0.0)
        gains: Array = np.einsum("gi,gij,gj->g", part, self.inner_inverse, part)
        gains[chosen] = 0.0
        best = np.argsort(gains)[::-1][:_COMPARED]
        best = best[(gains[best] > 0) & self.block_valid[best, 0]]
        if chosen and len(best):
            cross = self.gram[own][:, self.blocks[best]]  # (own, group, place)
            flat = cross.reshape(len(own), -1)
            solved = np.linalg.solve(self.gram[np.ix_(own, own)], flat).reshape(cross.shape)
            known = cross.transpose(1, 2, 0) @ solved.transpose(1, 0, 2)
            inner = self.inner[best] - np.where(self.both[best], known, 0.0)
            inner = inner + 1e-6 * self.rows * np.eye(inner.shape[1])
            solution = np.linalg.solve(inner, part[best][:, :, None])[:, :, 0]
            gains[best] = (part[best] * solution).sum(axis=1)
        return gains

    def _best_pair(
        self, design: Design, candidates: IntArray | None
    ) -> tuple[int, int, IntArray, int] | None:
        """The pair of groups that speaks loudest in the residual, and the inputs worth a retest.

        The first test is of all inputs; later ones, where there are many, of the best few.
        """
        features, squares = self.pair_screen, self.pair_squares
        inputs, count, rows = features.shape
        columns = np.arange(inputs) if candidates is None else candidates
        if len(columns) < inputs:
            places = (columns[:, None] * count + np.arange(count)).ravel()
            features, squares = features[columns], squares[np.ix_(places, places)]
        scores = score_pairs(features, squares, design.residual(rows))
        refused = self.pair_refused | design.paired[self.group_of][:, self.group_of]
        score = np.where(refused[np.ix_(columns, columns)], -np.inf, scores.score)
        a, b = np.unravel_index(int(score.argmax()), score.shape)
        if not score[a, b] > 0:
            return None
        loudest = np.maximum(score.max(axis=0), score.max(axis=1))
        worth = columns[np.sort(np.argsort(loudest)[::-1][:_RESCREENED])]
        first, second = int(self.group_of[columns[a]]), int(self.group_of[columns[b]])
        return first, second, worth, int(scores.sizes[a, b])
