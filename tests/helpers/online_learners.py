"""Small learners of online runs, with a few episodes of a known reward."""

import numpy as np
import torch

from grd_offline.learning.online.learner import Learner
from grd_offline.learning.online.replay import separate_truth
from grd_offline.learning.settings import METHODS, OnlineSettings

STATES, ACTIONS, LENGTH = 3, 2, 12


def make_episode(rng, length=LENGTH, reward=None):
    """A walk whose second action moves the first state, and apart from it its true rewards."""
    observations = np.zeros((length + 1, STATES))
    observations[0] = rng.normal(size=STATES)
    actions = rng.uniform(-1, 1, (length, ACTIONS))
    for time in range(length):
        step = 0.9 * observations[time] + 0.1 * rng.normal(size=STATES)
        step[0] += 0.5 * actions[time, 1]
        observations[time + 1] = step
    reward = reward or (lambda s, a: s[:, 0] - a[:, 0] ** 2)
    rewards = reward(observations[:-1], actions)
    return separate_truth(
        observations.astype(np.float32), actions.astype(np.float32), rewards, False
    )


def make_learner(settings, members=None, *, episodes=6, device="cpu", capture=True):
    members = members or settings.make_members()
    learner = Learner(
        settings,
        members,
        states=STATES,
        low=[-1.0, -2.0],
        high=[1.0, 2.0],
        step_limit=20,
        device=torch.device(device),
        capture=capture,
    )
    for index, member in enumerate(members):
        rng = np.random.default_rng(member.seed)
        for number in range(episodes):
            learner.add(index, *make_episode(rng, LENGTH + number % 8))
    learner.refresh()
    return learner


def make_settings(**changes):
    given = {
        "steps": 1000, "hidden": (8, 8), "critic_width": 8, "batch": 16, "episodes": 2,
        "methods": METHODS, "fits": ("quadratic", "joint-net", "paper"), "seeds": 2,
    }  # fmt: skip
    return OnlineSettings("any", **{**given, **changes})
