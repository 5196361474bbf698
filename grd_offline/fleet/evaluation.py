"""Evaluation of the members of a fleet: whole episodes without noise."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.agents.actors import Actor
from grd_offline.errors import DataError
from grd_offline.fleet.environment import VectorEnvironment
from grd_offline.fleet.shared import EVALUATIONS, FleetSettings, SharedArrays, make_reset_seed

EVALUATION_STEPS = 24
"""Steps of an evaluation between two looks at whether a round is due."""


class EvaluationResult(NamedTuple):
    """The true, undiscounted returns of members that act without noise."""

    evaluation: int
    """The index that the evaluation was started with."""
    returns: NDArray[np.float64]  # (member, episode)
    lengths: NDArray[np.int64]  # (member, episode)


def evaluate(
    environment: VectorEnvironment,
    settings: FleetSettings,
    members: Sequence[int],
    shared: SharedArrays,
    index: int,
    episodes: int,
) -> Generator[None, None, EvaluationResult]:
    """Run episodes without noise, and pause every few steps. The generator returns the result."""
    weights = shared.evaluation_weights
    actor = Actor(settings.spec, weights[members[0]])
    returns = np.zeros((len(members), episodes))
    lengths = np.zeros((len(members), episodes), np.int64)
    taken = 0
    for row, member in enumerate(members):
        actor.load(weights[member])
        environment.heartbeat = shared.heartbeats[member]
        for episode in range(episodes):
            key = (EVALUATIONS, index, episode)
            with environment.explain_errors(partial(_describe, member, index, episode)):
                observation = environment.reset(make_reset_seed(settings.seeds[member], *key))
                over = False
                while not over:
                    action = actor.act_with_noise(observation, None)
                    observation, reward, terminated, truncated = environment.step(action)
                    returns[row, episode] += reward
                    over = terminated or truncated
                    taken += 1
                    if taken % EVALUATION_STEPS == 0:
                        yield
                if not np.isfinite(returns[row, episode]) or not np.isfinite(observation).all():
                    raise DataError("observations or rewards: nan or infinite")
            lengths[row, episode] = environment.steps
    return EvaluationResult(index, returns, lengths)


def _describe(member: int, index: int, episode: int) -> str:
    return f"member {member}, evaluation {index}, episode {episode}"
