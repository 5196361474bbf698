"""Evaluation of the members of a fleet: whole episodes without noise.

An episode does not depend on who steps it, so the episodes of all members are divided over all
workers: those that step fewer members in rounds evaluate more.
"""

from collections.abc import Generator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.agents.actors import Actor
from grd_offline.errors import DataError
from grd_offline.fleet.environment import VectorEnvironment
from grd_offline.fleet.shared import EVALUATIONS, FleetSettings, SharedArrays, make_reset_seed

EVALUATION_STEPS = 2
"""Steps of an evaluation between two looks at whether a round is due."""
EpisodeOfMember = tuple[int, int]
"""A member, and the number of one of its episodes in an evaluation."""


class EvaluationResult(NamedTuple):
    """The true, undiscounted returns of members that act without noise."""

    evaluation: int
    """The index that the evaluation was started with."""
    returns: NDArray[np.float64]  # (member, episode)
    lengths: NDArray[np.int64]  # (member, episode)
    successes: NDArray[np.float64]
    """(member, episode) 1 for a success and 0 for none; nan if the environment does not tell it."""


class EvaluationPart(NamedTuple):
    """The results of one worker."""

    episodes: tuple[EpisodeOfMember, ...]
    returns: NDArray[np.float64]  # (episode,)
    lengths: NDArray[np.int64]  # (episode,)
    successes: NDArray[np.float64]  # (episode,)


def divide_episodes(
    loads: Sequence[int], members: int, episodes: int
) -> list[tuple[EpisodeOfMember, ...]]:
    """The episodes that each worker evaluates.

    `loads` is the number of members that each worker steps in rounds. Between two evaluations a
    member takes about as many steps in rounds as in an evaluation.
    """
    work = [load * episodes for load in loads]
    parts: list[list[EpisodeOfMember]] = [[] for _ in loads]
    for episode in range(episodes):
        for member in range(members):
            least = work.index(min(work))
            work[least] += 1
            parts[least].append((member, episode))
    return [tuple(sorted(part)) for part in parts]


def evaluate(
    environment: VectorEnvironment,
    settings: FleetSettings,
    shared: SharedArrays,
    worker: int,
    index: int,
    episodes: Sequence[EpisodeOfMember],
) -> Generator[None, None, EvaluationPart]:
    """Run episodes without noise, and pause every few steps. The generator returns the result."""
    weights = shared.evaluation_weights
    actor, loaded = Actor(settings.spec, weights[episodes[0][0]]), episodes[0][0]
    environment.heartbeat = shared.evaluation_heartbeats[worker]
    returns, lengths = np.zeros(len(episodes)), np.zeros(len(episodes), np.int64)
    successes = np.full(len(episodes), np.nan)
    taken = 0
    for row, (member, episode) in enumerate(episodes):
        if member != loaded:
            actor.load(weights[member])
            loaded = member
        shared.evaluated[worker] = member
        key = (EVALUATIONS, index, episode)
        with environment.explain_errors(partial(_describe, member, index, episode)):
            observation = environment.reset(make_reset_seed(settings.seeds[member], *key))
            over = False
            while not over:
                action = actor.act_with_noise(observation, None)
                observation, reward, terminated, truncated = environment.step(action)
                returns[row] += reward
                over = terminated or truncated
                taken += 1
                if taken % EVALUATION_STEPS == 0:
                    yield
            if not np.isfinite(returns[row]) or not np.isfinite(observation).all():
                raise DataError("observations or rewards: nan or infinite")
        lengths[row] = environment.steps
        if environment.success is not None:
            successes[row] = environment.success
    return EvaluationPart(tuple(episodes), returns, lengths, successes)


def _describe(member: int, index: int, episode: int) -> str:
    return f"member {member}, evaluation {index}, episode {episode}"
