"""Random factored MDPs with a known causal graph: the ground truth for return decomposition.

A world has d_s states and d_a actions, no instantaneous effects, and obeys, at every step,

    r_t       = g(C_sr * s_t, C_ar * a_t) + noise
    s_{i,t+1} = f_i(C_ss[:, i] * s_t, C_as[:, i] * a_t) + noise

The masks C are in `FactoredWorld.masks`. Each state has one of three roles: a `direct` parent of
the reward; `indirect`, which reaches the reward only through other states; a `distractor`, which
may be driven by anything, parents of the reward included, but from which no directed path leads to
the reward.

Inside, a world is written in z = (x, sqrt(3) a): x is the state at roughly zero mean and unit
variance, actions are clipped to [-1, 1] and scaled to unit variance under uniform choice. What is
observed is s = scale * x + offset. Reward and dynamics are weighted sums of terms. A term is a
shape (linear, bump, switch, product of sines, ...) of one to three components of z, standardised
to zero mean and unit variance under uniformly random actions.

Reward. Each parent stands in at least one term; weights lie within 0.6 and 1.4; a constant is
added. The family `smooth` draws main effects of many shapes, products and gates, quadratic action
costs, and tracking terms -(a - tanh s)^2. The family `hard` adds threshold switches, products of
sines, actions whose effect changes its sign with a state, and inputs that matter only together
with another. With `order` 3 one term is a three-way interaction. Draws are repeated until no two
terms are close to collinear, per step or summed over an episode, and until randomising any single
parent changes the reward noticeably, so that nothing cancels.

Dynamics. x_i' = decay_i x_i + gain_i * (weighted sum of terms) + process_noise * normal. One state
in five has no self edge (decay 0) but an action among its parents. All terms are bounded and decays
are below one, so that no policy can make a state grow without bound. Gains keep each state near
unit variance; decays are lowered where they would make another parent's contribution to the next
state fall below about 0.15 of the state's standard deviation. Loops through several states are few:
at most two edges, or one per twenty states, run against a random order of the states (those that
connect indirect states to the reward aside).

Everything is drawn from generators seeded by `graph_seed`: equal settings give an equal world.
Initial states are independent standard normals in x, which with persistent dynamics lets returns
differ between episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.settings import COUNT, SHARE, Settings, setting
from grd_offline.core.typing import Array, IntArray

__all__ = ["FAMILIES", "FactoredWorld", "Rollout", "Term", "WorldSettings"]


FAMILIES = ("smooth", "hard")


@dataclass(frozen=True)
class WorldSettings(Settings):
    """Settings of a random world."""

    states: int = setting(10, **COUNT)
    """Number of state dimensions."""
    actions: int = setting(3, **COUNT)
    """Number of action dimensions."""
    reward_states: int = 3
    """States that are direct parents of the reward."""
    reward_actions: int = 2
    """Actions that are direct parents of the reward."""
    indirect: int = 2
    """States that reach the reward only through other states; the rest are distractors."""
    density: float = setting(0.1, **SHARE)
    """Probability of each further state-to-state edge off the diagonal (at most 4 into a state)."""
    action_density: float = setting(0.25, **SHARE)
    """Probability of each action-to-state edge (at most 3 into a state)."""
    family: str = setting("smooth", names=FAMILIES)
    """`smooth`, or `hard`: switches, oscillations, pure interactions among ordinary effects."""
    order: int = setting(2, at_least=1, at_most=3)
    """Largest number of inputs in one term of the reward: 1, 2, or 3."""
    process_noise: float = setting(0.2, at_least=0, at_most=0.6)
    """Noise of the dynamics per step, relative to a state's standard deviation."""
    reward_noise: float = setting(0.1, at_least=0, below=inf)
    """Noise of the reward per step, relative to the noise-free reward's standard deviation."""
    length: int = setting(100, **COUNT)
    """Steps per episode; the largest number of them if `min_length` is given."""
    min_length: int | None = setting(None, **COUNT)
    """If given, each episode's length is drawn uniformly from `min_length` to `length`."""
    scales: bool = True
    """Observe states at scales from 1e-3 to 1e3 and off zero, instead of near unit variance."""
    graph_seed: int = 0
    """Seed of the graph and of all functions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {
            "reward_states": self.states,
            "reward_actions": self.actions,
            "indirect": self.states - self.reward_states,
            "min_length": self.length,
        }
        for name, most in limits.items():
            if (getattr(self, name) or 0) > most:
                raise DataError(f"expected at most {most}, got {getattr(self, name)}", field=name)
        parents = self.reward_states + self.reward_actions
        least = 3 if self.order == 3 else 1
        if parents < least:
            reason = f"expected at least {least} for a term of order {self.order}, got {parents}"
            raise DataError(reason, field="reward_states + reward_actions")
        if self.indirect and not self.reward_states:
            reason = "expected 0 when reward_states is 0 (nothing to reach the reward through)"
            raise DataError(f"{reason}, got {self.indirect}", field="indirect")


ACTION_SCALE = 3.0**0.5


def _sigmoid(values: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))


def _positive(values: Array) -> Array:
    return (values > 0).astype(np.float64)


Shape = Callable[..., Array]

# Each shape takes two parameters, p (a rate) and q (a shift), and then its inputs.
_SHAPES: dict[str, Shape] = {
    "linear": lambda p, q, u: u,
    "soft_linear": lambda p, q, u: 3 * np.tanh(u / 3),
    "tanh": lambda p, q, u: np.tanh(p * (u - q)),
    "square": lambda p, q, u: (u - q) ** 2,
    "cost": lambda p, q, u: -(u**2),
    "bump": lambda p, q, u: np.exp(-0.5 * (p * (u - q)) ** 2),
    "sine": lambda p, q, u: np.sin(p * u + q),
    "fast_sine": lambda p, q, u: np.sin(2 * p * u + q),
    "softplus": lambda p, q, u: np.logaddexp(0.0, 2 * p * (u - q)),
    "hinge": lambda p, q, u: np.abs(u - q),
    "step": lambda p, q, u: _positive(u - q),
    "product": lambda p, q, u, v: u * v,
    "tanh_product": lambda p, q, u, v: np.tanh(p * u) * np.tanh(p * v),
    "gate": lambda p, q, u, v: u * _sigmoid(3 * p * (v - q)),
    "soft_gate": lambda p, q, u, v: np.tanh(u) * _sigmoid(3 * p * (v - q)),
    "near": lambda p, q, u, v: np.exp(-0.5 * (p * (u - v)) ** 2),
    "tracking": lambda p, q, u, v: -((u / ACTION_SCALE - np.tanh(v)) ** 2),
    "switch": lambda p, q, u, v: _positive(v - q) * np.tanh(p * u),
    "sines": lambda p, q, u, v: np.sin(2 * p * u) * np.sin(1.5 * p * v + q),
    "modulated": lambda p, q, u, v: u * np.sin(2 * p * v + q),
    "flipped": lambda p, q, u, v: u * np.sign(v - q),
    "agreement": lambda p, q, u, v: np.sign(u) * np.sign(v),
    "product_3": lambda p, q, u, v, w: u * v * np.tanh(p * w),
    "tanh_3": lambda p, q, u, v, w: np.tanh(p * u) * np.tanh(p * v) * np.tanh(p * w),
    "flipped_3": lambda p, q, u, v, w: np.tanh(p * u) * v * np.sign(w),
    "sines_3": lambda p, q, u, v, w: np.sin(1.5 * p * u) * np.sin(1.5 * p * v) * np.tanh(w),
}

_SMOOTH_MAIN = ("linear", "square", "tanh", "bump", "sine", "softplus")
_SMOOTH_PAIR = ("product", "product", "tanh_product", "gate", "near")
_HARD_MAIN = (*_SMOOTH_MAIN, "fast_sine", "hinge", "step")
_HARD_PAIR = ("switch", "switch", "sines", "modulated", "flipped", "agreement", "product", "gate")
REWARD_SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "smooth": (_SMOOTH_MAIN, _SMOOTH_PAIR, ("product_3", "tanh_3")),
    "hard": (_HARD_MAIN, _HARD_PAIR, ("tanh_3", "flipped_3", "sines_3")),
}
DYNAMICS_SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "smooth": (("soft_linear", "soft_linear", "tanh", "sine"), ("tanh_product", "soft_gate")),
    "hard": (("soft_linear", "tanh", "sine", "bump", "step"), ("tanh_product", "switch", "sines")),
}
MAIN_PROBABILITY = {"smooth": 0.8, "hard": 0.5}


class Term(NamedTuple):
    """A shape applied to some components of z = (states, actions): one summand, before weights."""

    shape: str
    inputs: tuple[int, ...]
    rate: float
    shift: float


class TermTable:
    """Terms in the order given, each centred and scaled by what `calibrate` last saw."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)
        self.means, self.stds = np.zeros(len(terms)), np.ones(len(terms))

    @cached_property
    def _groups(self) -> list[tuple[Shape, IntArray, IntArray, Array, Array]]:
        """All terms of one shape, evaluated at once: the shape, which terms these are, their inputs
        (arity, term), rates and shifts."""
        groups = []
        for name in sorted({term.shape for term in self.terms}):
            places = np.array([k for k, term in enumerate(self.terms) if term.shape == name])
            _, *parts = zip(*(self.terms[k] for k in places), strict=True)
            inputs, rates, shifts = map(np.array, parts)
            groups.append((_SHAPES[name], places, inputs.T, rates, shifts))
        return groups

    def raw(self, inputs: Array) -> Array:
        """(..., state + action) -> (..., term), not standardised."""
        values = np.empty((*inputs.shape[:-1], len(self.terms)))
        for shape, places, columns, rates, shifts in self._groups:
            values[..., places] = shape(rates, shifts, *(inputs[..., index] for index in columns))
        return values

    def standardised(self, inputs: Array) -> Array:
        return np.asarray((self.raw(inputs) - self.means) / self.stds)

    def calibrate(self, inputs: Array) -> None:
        values = self.raw(inputs)
        samples = tuple(range(values.ndim - 1))
        self.means = values.mean(samples)
        self.stds = np.maximum(values.std(samples), 1e-3)


def draw_term(rng: np.random.Generator, shapes: Sequence[str], inputs: tuple[int, ...]) -> Term:
    shape = shapes[int(rng.integers(len(shapes)))]
    return Term(shape, inputs, float(rng.uniform(0.8, 1.5)), float(rng.uniform(-0.7, 0.7)))


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
        count = self.settings.states
        self._scale, self._offset = np.ones(count), np.zeros(count)
        if self.settings.scales:
            self._scale = 10.0 ** scales.uniform(-3, 3, count)
            self._offset = self._scale * scales.uniform(-5, 5, count)
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
        return self._observe(self._advance(self._inputs(states, actions), rng))

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
        actions = rng.permutation(settings.actions)[: settings.reward_actions]
        self._reward_parents = [*direct.tolist(), *(settings.states + actions).tolist()]
        names = np.full(settings.states, "distractor", dtype=object)
        names[direct], names[indirect] = "direct", "indirect"
        self.roles = tuple(str(name) for name in names)

        allowed = relevant[:, None] | ~relevant[None, :]
        np.fill_diagonal(allowed, False)
        edges = allowed & (rng.random(allowed.shape) < settings.density)
        action_edges = rng.random((settings.actions, settings.states)) < settings.action_density
        # Few edges against a random order: many loops make for drifting, frozen states.
        rank = rng.random(len(relevant)) - relevant
        backward = np.argwhere(edges & (rank[:, None] > rank[None, :]))
        surplus = rng.permutation(backward)[max(2, len(relevant) // 20) :]
        edges[surplus[:, 0], surplus[:, 1]] = False
        for k, state in enumerate(indirect):
            heads = np.concatenate([direct, indirect[:k]])
            if not edges[state, heads].any():
                edges[state, rng.choice(heads)] = True
        self._limit_parents(rng, edges, indirect)
        self._fill_parents(rng, edges, action_edges)
        self._state_edges, self._action_edges = edges, action_edges

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
        count, noise = self.settings.states, self.settings.process_noise
        terms: list[Term] = []
        targets: list[int] = []
        every: list[Array] = []
        self._decay, self._gain = np.zeros((2, count))
        for state in range(count):
            new = self._draw_state_terms(rng, state)
            terms += new
            targets += [state] * len(new)
            weights = _draw_weights(rng, len(new))
            every.append(weights / max(1e-9, float((weights**2).sum()) ** 0.5))
            if self._has_self[state]:
                # Process noise alone then makes up at most half of the variance.
                highest = min(0.95, (1 - 2 * noise**2) ** 0.5)
                self._decay[state] = rng.uniform(0.75, 1.0) * highest
                if not new:
                    self._decay[state] = (1 - noise**2) ** 0.5
            self._gain[state] = (1 - self._decay[state] ** 2) ** 0.5 if new else 0.0
        self._dynamics_table = TermTable(terms)
        self._dynamics_targets = np.array(targets, np.int64)
        self._driven, self._first_terms = np.unique(self._dynamics_targets, return_index=True)
        self._dynamics_weights = np.concatenate(every)

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
        final = self._simulate(rng, start, 2 * _CALIBRATION_STEPS)
        final = final[_CALIBRATION_STEPS:, :, : self.settings.states]
        centred = bool((np.abs(final.mean((0, 1))) < 1.2).all())
        return centred and bool((np.abs(final.std((0, 1)) - 1) < 0.6).all())

    def _draw_reward(self, rng: np.random.Generator, calibration: np.random.Generator) -> None:
        """Draw until every parent matters and no two terms stand in for each other."""
        steps = min(self.settings.length, 64)
        start = calibration.standard_normal((256, self.settings.states))
        inputs = self._simulate(calibration, start, steps)
        best = -np.inf
        for _ in range(_REWARD_DRAWS):
            table = TermTable(self._draw_reward_terms(rng))
            table.calibrate(inputs)
            costs = np.isin([term.shape for term in table.terms], ("cost", "tracking"))
            weights = _draw_weights(rng, len(table.terms))
            weights = np.where(costs, np.abs(weights), weights)
            quality = self._judge_reward(calibration, table, weights, inputs)
            if quality > best:
                best, self._reward_table, self.reward_weights = quality, table, weights
            if quality >= 1:
                break
        values = self._reward_table.standardised(inputs)
        self.reward_std = float((values * self.reward_weights).sum(-1).std())
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
        terms = []
        for i in parents:
            if i not in paired or rng.random() < MAIN_PROBABILITY[family]:
                is_cost = i >= self.settings.states and rng.random() < 0.35
                cost = Term("cost", (i,), 1.0, 0.0)  # the quadratic cost of an action
                terms.append(cost if is_cost else draw_term(rng, mains, (i,)))
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
        self, rng: np.random.Generator, table: TermTable, weights: Array, inputs: Array
    ) -> float:
        """Judge a reward: the worst of its criteria as a ratio. It is at least 1 if the reward can
        be used.

        Asked: correlation between terms below .6 per step and .8 over episodes; the share of the
        variance lost when one parent is replaced by a stranger's value above a floor.
        """
        values = table.standardised(inputs)
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

    def _read_masks(self) -> dict[str, IntArray]:
        """Masks as the terms have them, so that they cannot differ from what is computed."""
        states, actions = self.settings.states, self.settings.actions
        to_reward = np.zeros(states + actions, np.int64)
        for term in self.reward_terms:
            to_reward[list(term.inputs)] = 1
        to_state = np.zeros((states + actions, states), np.int64)
        for term, state in zip(self._dynamics_table.terms, self._dynamics_targets, strict=True):
            to_state[list(term.inputs), state] = 1
        persistent = np.flatnonzero(self._decay > 0)
        to_state[persistent, persistent] = 1
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
