"""Families of worlds that show where a decomposition is wrong. The true step rewards are known.

States follow a linear autoregression, driven by actions and noise. Actions are random around a mean
that each episode draws. The base of the reward is a random function of three states and one action:
a sine, a corner, a product and a square. Each family changes one thing:

| family | what is different |
|---|---|
| next state, previous state | the base looks at the state one step later, or one earlier |
| terminal bonus, terminal penalty | episodes may terminate, and that step earns 15 more, 10 less |
| rare event, rare event of two | 5 where one state, or two states together, are large; else 0 |
| heavy tails | noise with heavy tails is added to the returns (Student-t, 1.5 degrees of freedom) |
| corrupted returns | 1 % of the returns are off by 30 standard deviations |
| correlated states | the noise of the states is correlated, .98 |
| drift | the mean of the actions grows from the first episode to the last |
| product of four | the reward is one product of three states and one action; 1,000 episodes |
| network of six | the reward is a random network of five states and one action; 500 episodes |
| offset | every step earns 1e6 more |
| shaping | a term h(s') - h(s) of a fourth state is added, which cancels over an episode |
| success labels | returns are 1 above their median and 0 else; 120 episodes of 30 steps |
| discounted | episodes may terminate, and returns are discounted |

Every step reward has noise of standard deviation 0.1, which is part of its true reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet

Array = NDArray[np.float64]
STATES, ACTIONS, STEPS = 8, 3, 60
NOISE = 0.1
LIMIT = 1.5
"""An episode terminates where the first state is beyond this, in families that terminate."""


@dataclass(frozen=True)
class Family:
    """What is special about a world."""

    episodes: int = 200
    inputs: tuple[int, ...] = (0, 1, 2)
    """States that the reward depends on."""
    action: bool = True
    """Whether the reward depends on the first action."""
    steps: int = STEPS
    """Steps of an episode that does not terminate."""
    terminates: bool = False
    """Whether episodes terminate where the first state is beyond `LIMIT`."""
    offset: float = 0.0
    """Added to every reward."""
    correlation: float = 0.0
    """Correlation of the noise of any two states."""
    discount: float = 1.0
    """Discount factor inside the returns."""


class FamilyData(NamedTuple):
    """One draw of a family."""

    episodes: EpisodeSet
    """Episodes with their return at the last step alone."""
    true: list[Array]
    """(T,) the true rewards of each episode."""
    masks: tuple[NDArray[np.int64], NDArray[np.int64]]
    """(state,) and (action,): 1 where the true reward depends on it."""


class Trajectory(NamedTuple):
    """One episode before anything is paid."""

    states: Array
    """(T + 1, state)"""
    actions: Array
    """(T, action)"""
    terminated: bool


FAMILIES = {
    "next state": Family(),
    "previous state": Family(),
    "terminal bonus": Family(terminates=True),
    "terminal penalty": Family(terminates=True, offset=1.0),
    "rare event": Family(inputs=(0,), action=False),
    "rare event of two": Family(inputs=(0, 1), action=False),
    "heavy tails": Family(),
    "corrupted returns": Family(),
    "correlated states": Family(correlation=0.98),
    "drift": Family(),
    "product of four": Family(episodes=1000),
    "network of six": Family(episodes=500, inputs=(0, 1, 2, 3, 4)),
    "offset": Family(offset=1e6),
    "shaping": Family(inputs=(0, 1, 2, 3)),
    "success labels": Family(episodes=120, steps=30),
    "discounted": Family(terminates=True, discount=0.97),
}


def make_family(name: str, seed: int, episodes: int | None = None) -> FamilyData:
    """Draw a world of the family and its episodes: as many as given, or as the family says."""
    family = FAMILIES[name]
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    reward = _draw_reward(name, rng)
    links, push = _draw_dynamics(rng)
    count = episodes if episodes is not None else family.episodes
    rolled, true = [], []
    for index in range(count):
        shift = 2 * index / count if name == "drift" else 0.0
        trajectory = _roll(family, links, push, shift, rng)
        rewards = reward(trajectory) + family.offset
        rolled.append(trajectory)
        true.append(rewards + rng.normal(0, NOISE, len(rewards)))
    spread = float(np.std([rewards.sum() for rewards in true]))
    amounts = np.array([_deliver(name, family, rewards, spread, rng) for rewards in true])
    if name == "success labels":
        amounts = (amounts > np.median(amounts)).astype(np.float64)
    every = [_make_episode(*parts) for parts in zip(rolled, amounts, strict=True)]
    masks = np.zeros(STATES, np.int64), np.zeros(ACTIONS, np.int64)
    masks[0][list(family.inputs)] = 1
    masks[1][0] = int(family.action)
    return FamilyData(EpisodeSet.from_episodes(every), true, masks)


def _draw_dynamics(rng: np.random.Generator) -> tuple[Array, Array]:
    """(state, state) and (action, state): what states and actions add to the next state."""
    links = np.where(rng.random((STATES, STATES)) < 0.2, rng.normal(0, 0.15, (STATES, STATES)), 0)
    np.fill_diagonal(links, rng.uniform(0.6, 0.9, STATES))
    links *= min(1.0, 0.93 / np.abs(np.linalg.eigvals(links)).max())
    return links, np.where(rng.random((ACTIONS, STATES)) < 0.5, rng.normal(0, 0.3), 0.0)


def _roll(
    family: Family, links: Array, push: Array, shift: float, rng: np.random.Generator
) -> Trajectory:
    """One episode; `shift` moves the mean of its actions."""
    own = np.sqrt(1 - family.correlation)
    states, actions = [rng.normal(0, 0.7, STATES)], []
    mean = rng.normal(0, 0.5, ACTIONS) + shift
    terminated = False
    while len(actions) < family.steps and not terminated:
        action = np.clip(rng.normal(mean, 0.7), -2, 2)
        noise = rng.normal(0, 0.5, STATES) * own + rng.normal(0, 0.5) * np.sqrt(1 - own**2)
        states.append(states[-1] @ links + action @ push + noise)
        actions.append(action)
        terminated = family.terminates and abs(states[-1][0]) > LIMIT
    return Trajectory(np.array(states), np.array(actions), terminated)


def _draw_reward(name: str, rng: np.random.Generator) -> Callable[[Trajectory], Array]:
    """A function that gives the (T,) rewards of an episode, before noise and offset."""
    phases, signs = rng.uniform(-1, 1, 4), rng.choice([-1.0, 1.0], 4)
    layers = rng.normal(size=(6, 12)), rng.normal(size=12), rng.normal(size=12)

    def base(s: Array, a: Array) -> Array:
        return (
            signs[0] * np.sin(1.5 * s[:, 0] + phases[0])
            + signs[1] * 0.6 * np.abs(s[:, 1] - phases[1])
            + signs[2] * 0.5 * s[:, 0] * s[:, 2]
            + signs[3] * 0.4 * a[:, 0] ** 2
        )

    def reward(trajectory: Trajectory) -> Array:
        states, actions, terminated = trajectory
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


def _deliver(
    name: str, family: Family, true: Array, spread: float, rng: np.random.Generator
) -> float:
    """What is delivered for an episode; `spread` is the standard deviation of true returns."""
    amount = float(true @ family.discount ** np.arange(len(true)))
    if name == "heavy tails":
        amount += 0.15 * spread * float(rng.standard_t(1.5))
    if name == "corrupted returns" and rng.random() < 0.01:
        amount += 30 * spread * float(rng.choice([-1, 1]))
    return amount


def _make_episode(trajectory: Trajectory, amount: float) -> Episode:
    states, actions, terminated = trajectory
    last = np.arange(len(actions)) == len(actions) - 1
    return Episode(
        observations=states.astype(np.float32),
        actions=actions.astype(np.float32),
        rewards=np.where(last, amount, 0.0),
        terminations=last & terminated,
        truncations=last & (not terminated),
        delivered=last,
    )
