"""One random world: the drawing of its graph, dynamics and reward, and its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.typing import Array, IntArray
from grd_offline.worlds.synthetic.settings import WorldSettings
from grd_offline.worlds.synthetic.terms import (
    ACTION_SCALE,
    DYNAMICS_SHAPES,
    MAIN_PROBABILITY,
    REWARD_SHAPES,
    Term,
    TermTable,
    draw_term,
)

_MAX_STATE_PARENTS = 4
_MAX_ACTION_PARENTS = 3
_MIN_EDGE = 0.18
_MIN_DECAY = 0.3
_CALIBRATION_EPISODES = 96
_CALIBRATION_STEPS = 24
_CALIBRATION_ROUNDS = 16
_DYNAMICS_DRAWS = 60
_REWARD_DRAWS = 60


class Rollout(NamedTuple):
    """Episodes under uniformly random actions; zeros past an episode's length."""

    observations: Array
    """(episode, time + 1, state)"""
    actions: Array
    """(episode, time, action): the action at each step."""
    rewards: Array
    """(episode, time): the reward of each step, with noise."""
    noise_free_rewards: Array
    """(episode, time): the reward of each step, without noise."""
    lengths: IntArray
    """(episode,): the number of steps of each episode."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(episode, time): whether the step took place."""
        return np.arange(self.actions.shape[1]) < self.lengths[:, None]

    @property
    def returns(self) -> Array:
        """(episode,): the sum of the rewards of each episode."""
        return np.asarray(self.rewards.sum(1))


class FactoredWorld:
    """One random world: its masks, its dynamics, its reward; every method works on batches.

    `states` are observed states of shape (..., d_s), `actions` of shape (..., d_a).
    """

    def __init__(self, settings: WorldSettings | None = None) -> None:
        self.settings = settings if settings is not None else WorldSettings()
        graph, scales, calibration = np.random.default_rng(self.settings.graph_seed).spawn(3)
        self._draw_graph(graph)
        # In a wide world a draw takes long, and one state that is off matters less.
        for _ in range(max(1, _DYNAMICS_DRAWS // self.settings.states)):
            self._draw_dynamics(graph)
            if self._calibrate_dynamics(calibration):
                break
        self._draw_reward(graph, calibration)
        self._draw_scales(scales)
        self.masks = self._read_masks()

    roles: tuple[str, ...]
    """Role of each state: `direct`, `indirect` or `distractor`."""
    masks: dict[str, IntArray]
    """`state_to_reward`, `action_to_reward`, `state_to_state`, `action_to_state`, as 0 and 1."""
    reward_terms: tuple[Term, ...]
    """Terms whose weighted sum is the noise-free reward."""
    reward_weights: Array
    """(term,): the weight of each, once standardised."""
    reward_std: float
    """Standard deviation of the noise-free reward per step under random actions."""

    @property
    def reward_noise_std(self) -> float:
        """Standard deviation of the noise added to each step's reward."""
        return self.settings.reward_noise * self.reward_std

    def reset(self, rng: np.random.Generator, batch: int | None = None) -> Array:
        """Initial states (batch, d_s), or (d_s,) without `batch`."""
        shape = () if batch is None else (batch,)
        return self._observe(rng.standard_normal((*shape, self.settings.states)))

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> Array:
        """The states that follow, with process noise."""
        inputs = self._inputs(states, actions)
        return self._observe(self._advance(inputs, rng))

    def reward(self, states: Array, actions: Array) -> Array:
        """The noise-free reward, of shape (...)."""
        terms = self._reward_table.standardised(self._inputs(states, actions))
        return np.asarray((terms * self.reward_weights).sum(-1) + self._reward_constant)

    def add_noise(self, rewards: Array, rng: np.random.Generator) -> Array:
        """Noise-free rewards with step noise added."""
        noise = rng.standard_normal(np.shape(rewards))
        return np.asarray(rewards + self.reward_noise_std * noise)

    def draw_lengths(self, rng: np.random.Generator, batch: int) -> IntArray:
        """Draw the lengths of `batch` episodes."""
        low = self.settings.length if self.settings.min_length is None else self.settings.min_length
        return rng.integers(low, self.settings.length, size=batch, endpoint=True)

    def rollout(self, rng: np.random.Generator, episodes: int) -> Rollout:
        """`episodes` episodes under actions uniform on [-1, 1]."""
        steps = self.settings.length
        lengths = self.draw_lengths(rng, episodes)
        actions = rng.uniform(-1, 1, (episodes, steps, self.settings.actions))
        observations = np.empty((episodes, steps + 1, self.settings.states))
        observations[:, 0] = self.reset(rng, episodes)
        for t in range(steps):
            observations[:, t + 1] = self.step(observations[:, t], actions[:, t], rng)
        noise_free = self.reward(observations[:, :-1], actions)
        rewards = self.add_noise(noise_free, rng)
        past = np.arange(steps) >= lengths[:, None]
        for values in (observations[:, 1:], actions, rewards, noise_free):
            values[past] = 0.0
        return Rollout(observations, actions, rewards, noise_free, lengths)

    def _inputs(self, states: Array, actions: Array) -> Array:
        """Observed states and actions -> z."""
        standard = (np.asarray(states, np.float64) - self._offset) / self._scale
        scaled = ACTION_SCALE * np.clip(np.asarray(actions, np.float64), -1, 1)
        return np.concatenate([standard, scaled], axis=-1)

    def _observe(self, standard: Array) -> Array:
        return np.asarray(standard * self._scale + self._offset)

    def _advance(self, inputs: Array, rng: np.random.Generator) -> Array:
        """One step of the dynamics in standardised coordinates."""
        standard = inputs[..., : self.settings.states]
        drive = np.zeros_like(standard)
        if self._dynamics_table.terms:
            terms = self._dynamics_table.standardised(inputs) * self._dynamics_weights
            drive[..., self._driven] = np.add.reduceat(terms, self._first_terms, axis=-1)
        noise = self.settings.process_noise * rng.standard_normal(standard.shape)
        return np.asarray(self._decay * standard + self._gain * drive + noise)

    def _draw_graph(self, rng: np.random.Generator) -> None:
        """Roles, then edges: into the reward's ancestors only from each other or from actions."""
        settings = self.settings
        order = rng.permutation(settings.states)
        direct = order[: settings.reward_states]
        indirect = order[settings.reward_states : settings.reward_states + settings.indirect]
        relevant = np.isin(np.arange(settings.states), np.concatenate([direct, indirect]))
        self._reward_parents = [int(i) for i in direct] + [
            settings.states + int(i)
            for i in rng.permutation(settings.actions)[: settings.reward_actions]
        ]
        names = np.full(settings.states, "distractor", dtype=object)
        names[direct], names[indirect] = "direct", "indirect"
        self.roles = tuple(str(name) for name in names)

        allowed = relevant[:, None] | ~relevant[None, :]
        np.fill_diagonal(allowed, False)
        edges = allowed & (rng.random(allowed.shape) < settings.density)
        action_edges = rng.random((settings.actions, settings.states)) < settings.action_density
        self._limit_feedback(rng, edges, relevant)
        for k, state in enumerate(indirect):
            heads = np.concatenate([direct, indirect[:k]])
            if not edges[state, heads].any():
                edges[state, rng.choice(heads)] = True
        self._limit_parents(rng, edges, indirect)
        self._fill_parents(rng, edges, action_edges)
        self._state_edges, self._action_edges = edges, action_edges

    def _limit_feedback(
        self, rng: np.random.Generator, edges: NDArray[np.bool_], relevant: NDArray[np.bool_]
    ) -> None:
        """Leave few edges against a random order: many loops make for drifting, frozen states."""
        rank = rng.random(len(relevant)) - relevant
        backward = np.argwhere(edges & (rank[:, None] > rank[None, :]))
        surplus = rng.permutation(backward)[max(2, len(relevant) // 20) :]
        edges[surplus[:, 0], surplus[:, 1]] = False

    def _limit_parents(
        self, rng: np.random.Generator, edges: NDArray[np.bool_], indirect: IntArray
    ) -> None:
        """Drop edges where a state has too many, but none that leads an indirect state on."""
        for state in range(self.settings.states):
            parents = np.flatnonzero(edges[:, state])
            keep = np.isin(parents, indirect) & (np.array(self.roles)[state] != "distractor")
            spare = parents[~keep]
            surplus = max(0, len(parents) - _MAX_STATE_PARENTS)
            edges[rng.permutation(spare)[:surplus], state] = False

    def _fill_parents(
        self, rng: np.random.Generator, edges: NDArray[np.bool_], action_edges: NDArray[np.bool_]
    ) -> None:
        """Choose self edges; see to it that every state has a parent and news of its own.

        A state without a self edge gets an action as parent, else it could be a near copy of
        another. A state driven by itself alone lives on process noise, if there is any.
        """
        count = self.settings.states
        without_self = rng.permutation(count)[: count // 5]
        self._has_self = ~np.isin(np.arange(count), without_self)
        for state in range(count):
            actions = rng.permutation(np.flatnonzero(action_edges[:, state]))
            action_edges[actions[_MAX_ACTION_PARENTS:], state] = False
            alone = not edges[:, state].any() and self.settings.process_noise < 0.1
            if not action_edges[:, state].any() and (alone or not self._has_self[state]):
                action_edges[rng.integers(self.settings.actions), state] = True

    def _draw_dynamics(self, rng: np.random.Generator) -> None:
        """Terms of each state's next value, their weights, and first guesses of decay and gain."""
        count = self.settings.states
        noise = self.settings.process_noise
        terms: list[Term] = []
        targets: list[int] = []
        all_weights: list[float] = []
        self._decay = np.zeros(count)
        self._gain = np.zeros(count)
        for state in range(count):
            new = self._draw_state_terms(rng, state)
            terms += new
            targets += [state] * len(new)
            weights = _draw_weights(rng, len(new))
            all_weights += [float(w) for w in weights / max(1e-9, float((weights**2).sum()) ** 0.5)]
            if self._has_self[state]:
                # Process noise alone then makes up at most half of the variance.
                highest = min(0.95, (1 - 2 * noise**2) ** 0.5)
                self._decay[state] = rng.uniform(0.75, 1.0) * highest
                if not new:
                    self._decay[state] = (1 - noise**2) ** 0.5
            self._gain[state] = (1 - self._decay[state] ** 2) ** 0.5 if new else 0.0
        self._dynamics_table = TermTable(tuple(terms))
        self._dynamics_targets = np.array(targets, np.int64)
        self._driven, self._first_terms = np.unique(self._dynamics_targets, return_index=True)
        self._dynamics_weights = np.array(all_weights)

    def _draw_state_terms(self, rng: np.random.Generator, state: int) -> list[Term]:
        """One term per parent, some of them of two parents, some of a parent and the state."""
        singles, pairs = DYNAMICS_SHAPES[self.settings.family]
        states = np.flatnonzero(self._state_edges[:, state])
        actions = self.settings.states + np.flatnonzero(self._action_edges[:, state])
        parents = [int(i) for i in rng.permutation(np.concatenate([states, actions]))]
        terms: list[Term] = []
        while parents:
            parent = parents.pop()
            chance = rng.random()
            if parents and chance < 0.3:
                terms.append(draw_term(rng, pairs, (parent, parents.pop())))
            elif self._has_self[state] and chance > 0.85:
                # Not a product, which would leave a state at rest where it once reached zero.
                terms.append(draw_term(rng, ("soft_gate",), (parent, state)))
            else:
                terms.append(draw_term(rng, singles, (parent,)))
        return terms

    def _simulate(self, rng: np.random.Generator, start: Array, steps: int) -> Array:
        """Inputs z (step, episode, state + action) under random actions."""
        shape = (steps, len(start), self.settings.states + self.settings.actions)
        inputs = rng.uniform(-ACTION_SCALE, ACTION_SCALE, shape)
        standard = start
        for t in range(steps):
            inputs[t, :, : self.settings.states] = standard
            standard = self._advance(inputs[t], rng)
        return inputs

    def _calibrate_dynamics(self, rng: np.random.Generator) -> bool:
        """Bring states to unit variance and every edge to a noticeable strength, by simulation.

        False if some state has settled far from where it starts, as feedback at times makes it.
        """
        probe = rng.standard_normal((512, self.settings.states + self.settings.actions))
        self._dynamics_table.calibrate(probe)
        driven = self._gain > 0
        weakest = np.ones(self.settings.states)
        np.minimum.at(weakest, self._dynamics_targets, np.abs(self._dynamics_weights))
        start = rng.standard_normal((_CALIBRATION_EPISODES, self.settings.states))
        for _ in range(_CALIBRATION_ROUNDS):
            inputs = self._simulate(rng, start, _CALIBRATION_STEPS)
            start = inputs[-1, :, : self.settings.states]
            self._dynamics_table.calibrate(inputs)
            variance = inputs[..., : self.settings.states].var((0, 1))
            from_noise = self.settings.process_noise**2 / (1 - self._decay**2)
            from_drive = np.maximum(variance - from_noise, 0.05)
            change = np.clip(np.sqrt((1 - np.minimum(from_noise, 0.9)) / from_drive), 0.4, 2.0)
            self._gain = np.where(driven, self._gain * change, 0.0)
            weak = driven & (self._gain * weakest < _MIN_EDGE) & (self._decay > _MIN_DECAY)
            self._decay = np.where(weak, self._decay * 0.85, self._decay)
        start = rng.standard_normal(start.shape)
        final = self._simulate(rng, start, 2 * _CALIBRATION_STEPS)[_CALIBRATION_STEPS:]
        final = final[..., : self.settings.states]
        centred = bool((np.abs(final.mean((0, 1))) < 1.2).all())
        return centred and bool((np.abs(final.std((0, 1)) - 1) < 0.6).all())

    def _draw_reward(self, rng: np.random.Generator, calibration: np.random.Generator) -> None:
        """Draw until every parent matters and no two terms stand in for each other."""
        steps = min(self.settings.length, 64)
        start = calibration.standard_normal((256, self.settings.states))
        inputs = self._simulate(calibration, start, steps)
        best = -np.inf
        for _ in range(_REWARD_DRAWS):
            table = TermTable(tuple(self._draw_reward_terms(rng)))
            table.calibrate(inputs)
            costs = np.isin([term.shape for term in table.terms], ("cost", "tracking"))
            weights = _draw_weights(rng, len(table.terms))
            weights = np.where(costs, np.abs(weights), weights)
            values = table.standardised(inputs)
            quality = self._judge_reward(calibration, table, weights, inputs, values)
            if quality > best:
                best = quality
                self._reward_table, self.reward_weights = table, weights
                self.reward_std = float((values * weights).sum(-1).std())
            if quality >= 1:
                break
        self.reward_terms = self._reward_table.terms
        self._reward_constant = float(rng.uniform(-1, 1))

    def _draw_reward_terms(self, rng: np.random.Generator) -> list[Term]:
        """Main effects for most parents, pairs that cover the others and more, perhaps a triple."""
        family, order = self.settings.family, self.settings.order
        mains, pairs, triples = REWARD_SHAPES[family]
        parents = self._reward_parents
        wanted: list[tuple[int, ...]] = []
        if order >= 2 and len(parents) >= 2:
            wanted = self._draw_pairs(rng, MAIN_PROBABILITY[family])
        paired = {i for pair in wanted for i in pair}
        terms = [
            self._draw_main(rng, mains, i)
            for i in parents
            if i not in paired or rng.random() < MAIN_PROBABILITY[family]
        ]
        terms += [self._draw_pair(rng, pairs, pair) for pair in wanted]
        if order == 3:
            triple = tuple(int(i) for i in rng.permutation(parents)[:3])
            terms.append(draw_term(rng, triples, triple))
        return terms

    def _draw_pairs(self, rng: np.random.Generator, main: float) -> list[tuple[int, ...]]:
        """Distinct pairs of parents: some for parents that might lack a main effect, some more."""
        parents = self._reward_parents
        pairs: dict[frozenset[int], tuple[int, ...]] = {}
        for first in parents:
            if rng.random() < 1 - main:
                second = int(rng.choice([i for i in parents if i != first]))
                pairs.setdefault(frozenset((first, second)), (first, second))
        while len(pairs) < max(1, len(parents) // 2):
            first, second = (int(i) for i in rng.choice(parents, 2, replace=False))
            pairs.setdefault(frozenset((first, second)), (first, second))
        return list(pairs.values())

    def _draw_main(self, rng: np.random.Generator, shapes: Sequence[str], index: int) -> Term:
        """A main effect; for an action often a quadratic cost."""
        if index >= self.settings.states and rng.random() < 0.35:
            return Term("cost", (index,), 1.0, 0.0)
        return draw_term(rng, shapes, (index,))

    def _draw_pair(
        self, rng: np.random.Generator, shapes: Sequence[str], pair: tuple[int, ...]
    ) -> Term:
        """An interaction; an action with a state may track it, and comes first: v acts on u."""
        first, second = sorted(pair, reverse=True)
        if first >= self.settings.states > second:
            if rng.random() < 0.2:
                return Term("tracking", (first, second), 1.0, 0.0)
            return draw_term(rng, shapes, (first, second))
        return draw_term(rng, shapes, pair)

    def _judge_reward(
        self,
        rng: np.random.Generator,
        table: TermTable,
        weights: Array,
        inputs: Array,
        values: Array,
    ) -> float:
        """Judge a reward: the worst of its criteria as a ratio. It is at least 1 if the reward can
        be used.

        Asked: correlation between terms below .6 per step and .8 over episodes; the share of the
        variance lost when one parent is replaced by a stranger's value above a floor.
        """
        steps = _largest_correlation(values.reshape(-1, len(weights)))
        sums = _largest_correlation(values.sum(0))
        total = (values * weights).sum(-1)
        floor = min(0.05, 0.35 / len(weights))
        shares = []
        for index in self._reward_parents:
            changed = inputs[::4].copy()
            changed[..., index] = rng.permuted(changed[..., index], axis=1)
            moved = (table.standardised(changed) * weights).sum(-1) - total[::4]
            shares.append(float((moved**2).mean()) / (2 * float(total.var()) + 1e-12))
        return min(0.6 / max(steps, 0.01), 0.8 / max(sums, 0.01), min(shares) / floor)

    def _draw_scales(self, rng: np.random.Generator) -> None:
        count = self.settings.states
        self._scale = np.ones(count)
        self._offset = np.zeros(count)
        if self.settings.scales:
            self._scale = 10.0 ** rng.uniform(-3, 3, count)
            self._offset = self._scale * rng.uniform(-5, 5, count)

    def _read_masks(self) -> dict[str, IntArray]:
        """Masks as the terms have them, so that they cannot differ from what is computed."""
        states, actions = self.settings.states, self.settings.actions
        to_reward = np.zeros(states + actions, np.int64)
        for term in self.reward_terms:
            to_reward[list(term.inputs)] = 1
        to_state = np.zeros((states + actions, states), np.int64)
        for term, state in zip(self._dynamics_table.terms, self._dynamics_targets, strict=True):
            to_state[list(term.inputs), state] = 1
        to_state[np.arange(states)[self._decay > 0], np.arange(states)[self._decay > 0]] = 1
        return {
            "state_to_reward": to_reward[:states],
            "action_to_reward": to_reward[states:],
            "state_to_state": to_state[:states],
            "action_to_state": to_state[states:],
        }


def _draw_weights(rng: np.random.Generator, count: int) -> Array:
    return np.asarray(rng.uniform(0.6, 1.4, count) * rng.choice([-1.0, 1.0], count))


def _largest_correlation(values: Array) -> float:
    """Between any two columns, in absolute value."""
    if values.shape[1] < 2:
        return 0.0
    return float(np.abs(np.corrcoef(values.T) - np.eye(values.shape[1])).max())
