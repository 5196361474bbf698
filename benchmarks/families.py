"""Worlds made to find out where a decomposition is wrong: each with its true step rewards.

States follow an autoregression driven by actions and noise, so that neighbouring states are alike
but jump. The reward is a random function of three states and one action, changed as the family's
name says. `make_family` gives episodes that hold returns alone, and the true reward of each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grd_offline.episodes import Episode, EpisodeSet

Array = NDArray[np.float64]
STATES, ACTIONS, STEPS = 8, 3, 60
NOISE = 0.1
LIMIT = 3.0
"""A state beyond this ends an episode, in families whose episodes end early."""


@dataclass(frozen=True)
class Family:
    """What is special about a world."""

    episodes: int = 200
    inputs: tuple[int, ...] = (0, 1, 2)
    """States that the reward depends on; the first action is one more input."""
    ends: bool = False
    """Whether episodes terminate where the first state leaves its limits."""
    offset: float = 0.0
    """Added to every reward."""
    correlation: float = 0.0
    """Of the noise that drives the states, between any two of them."""


FAMILIES = {
    "next state": Family(),
    "previous state": Family(),
    "terminal bonus": Family(ends=True),
    "terminal penalty": Family(ends=True, offset=1.0),
    "rare event": Family(inputs=(0,)),
    "rare event of two": Family(inputs=(0, 1)),
    "heavy tails": Family(),
    "corrupted returns": Family(),
    "correlated states": Family(correlation=0.98),
    "drift": Family(),
    "product of four": Family(episodes=1000, inputs=(0, 1, 2)),
    "network of six": Family(episodes=500, inputs=(0, 1, 2, 3, 4)),
    "offset": Family(offset=1e6),
    "shaping": Family(),
    "success labels": Family(episodes=120),
    "discounted": Family(ends=True),
}


def make_family(
    name: str, seed: int, episodes: int | None = None
) -> tuple[EpisodeSet, list[Array], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Episodes, the true (noise-free) rewards of their steps, and the true masks."""
    family = FAMILIES[name]
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    reward = _draw_reward(name, rng)
    move = _draw_dynamics(rng)
    made, truth = [], []
    count = episodes or family.episodes
    for index in range(count):
        states, actions, terminated = _roll(name, family, move, index / count, rng)
        true = reward(states, actions, terminated) + family.offset
        true = true + rng.normal(0, NOISE, len(true))
        truth.append(true)
        made.append((states, actions, terminated, true))
    spread = float(np.std([true.sum() for *_, true in made]))
    noisy = [_deliver(name, true, spread, rng) for *_, true in made]
    if name == "success labels":
        level = np.median(noisy)
        noisy = [float(amount > level) for amount in noisy]
    every = [
        _finish(states, actions, terminated, amount)
        for (states, actions, terminated, _), amount in zip(made, noisy, strict=True)
    ]
    masks = np.zeros(STATES, np.int64), np.zeros(ACTIONS, np.int64)
    masks[0][list(family.inputs)] = 1
    masks[1][0] = int(not name.startswith("rare"))
    return EpisodeSet.from_episodes(every), truth, masks


def _draw_dynamics(rng: np.random.Generator) -> tuple[Array, Array]:
    links = np.where(rng.random((STATES, STATES)) < 0.2, rng.normal(0, 0.15, (STATES, STATES)), 0)
    np.fill_diagonal(links, rng.uniform(0.6, 0.9, STATES))
    links *= min(1.0, 0.93 / np.abs(np.linalg.eigvals(links)).max())
    return links, np.where(rng.random((ACTIONS, STATES)) < 0.5, rng.normal(0, 0.3), 0.0)


def _roll(
    name: str,
    family: Family,
    move: tuple[Array, Array],
    progress: float,
    rng: np.random.Generator,
) -> tuple[Array, Array, bool]:
    links, push = move
    mixed = np.sqrt(1 - family.correlation)
    states, actions = [rng.normal(0, 0.7, STATES)], []
    tilt = rng.normal(0, 0.5, ACTIONS) + (2 * progress if name == "drift" else 0.0)
    for _ in range(30 if name == "success labels" else STEPS):
        action = np.clip(rng.normal(tilt, 0.7), -2, 2)
        noise = rng.normal(0, 0.5, STATES) * mixed + rng.normal(0, 0.5) * np.sqrt(1 - mixed**2)
        state = states[-1] @ links + action @ push + noise
        states.append(state)
        actions.append(action)
        if family.ends and abs(state[0]) > LIMIT / 2:
            return np.array(states), np.array(actions), True
    return np.array(states), np.array(actions), False


def _draw_reward(name: str, rng: np.random.Generator) -> Callable[[Array, Array, bool], Array]:
    """The reward of a whole episode from its states (T + 1), its actions and how it ended."""
    phases, signs = rng.uniform(-1, 1, 4), rng.choice([-1.0, 1.0], 4)
    layers = rng.normal(size=(6, 12)), rng.normal(size=12), rng.normal(size=12)

    def base(s: Array, a: Array) -> Array:
        return (
            signs[0] * np.sin(1.5 * s[:, 0] + phases[0])
            + signs[1] * 0.6 * np.abs(s[:, 1] - phases[1])
            + signs[2] * 0.5 * s[:, 0] * s[:, 2]
            + signs[3] * 0.4 * a[:, 0] ** 2
        )

    def reward(states: Array, actions: Array, terminated: bool) -> Array:
        now, later = states[:-1], states[1:]
        last = np.arange(len(actions)) == len(actions) - 1
        if name == "next state":
            return base(later, actions)
        if name == "previous state":
            return base(np.concatenate([now[:1], now[:-1]]), actions)
        if name == "terminal bonus":
            return base(now, actions) + 15.0 * (last & terminated)
        if name == "terminal penalty":
            return base(now, actions) - 10.0 * (last & terminated)
        if name == "rare event":
            return 5.0 * (now[:, 0] > 2.0)
        if name == "rare event of two":
            return 5.0 * ((now[:, 0] > 1.0) & (now[:, 1] > 1.0))
        if name == "product of four":
            return 2.0 * now[:, 0] * now[:, 1] * now[:, 2] * actions[:, 0]
        if name == "network of six":
            inputs = np.concatenate([now[:, :5], actions[:, :1]], 1)
            return np.tanh(inputs @ layers[0] / 2 + layers[1]) @ layers[2]
        if name == "shaping":
            return base(now, actions) + 2.0 * (np.sin(later[:, 3]) - np.sin(now[:, 3]))
        return base(now, actions)

    return reward


def _deliver(name: str, true: Array, spread: float, rng: np.random.Generator) -> float:
    """What is delivered for an episode."""
    weights = 0.97 ** np.arange(len(true)) if name == "discounted" else np.ones(len(true))
    amount = float(true @ weights)
    if name == "heavy tails":
        amount += 0.15 * spread * float(rng.standard_t(1.5))
    if name == "corrupted returns" and rng.random() < 0.01:
        amount += 30 * spread * float(rng.choice([-1, 1]))
    return amount


def _finish(states: Array, actions: Array, terminated: bool, amount: float) -> Episode:
    last = np.arange(len(actions)) == len(actions) - 1
    return Episode(
        observations=states.astype(np.float32),
        actions=actions.astype(np.float32),
        rewards=np.where(last, amount, 0.0).astype(np.float32),
        terminations=last & terminated,
        truncations=last & (not terminated),
        delivered=last,
    )
