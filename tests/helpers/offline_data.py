"""Mixed data of the point mass: half of the episodes act at random, half with some sense."""

import numpy as np
import point_mass

from grd_offline.core.episodes import Episode, EpisodeSet


def make_episode(rng, *, skill, length=point_mass.LENGTH, seed=0, ends=False):
    """One episode, and its true rewards; `skill` is how strongly the point is pulled to 0."""
    env = point_mass.PointMass(ends=ends)
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated) and len(actions) < length:
        action = np.clip(-skill * observation[:1] + rng.normal(0, 0.7, 1), -1, 1)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
    steps = len(actions)
    flags = np.zeros((2, steps), bool)
    flags[:, -1] = terminated, not terminated
    delivered = np.zeros(steps, bool)
    delivered[-1] = True
    handed_out = np.zeros(steps, np.float32)
    handed_out[-1] = sum(rewards)
    episode = Episode(
        np.array(observations, np.float32), np.array(actions, np.float32), handed_out,
        flags[0], flags[1], delivered,
    )  # fmt: skip
    return episode, np.array(rewards)


def make_data(episodes=100, seed=0, **options):
    """Episodes with their return at the end, and the true reward of every step (steps,)."""
    rng = np.random.default_rng(seed)
    made = [
        make_episode(rng, skill=0.4 * (index % 2), seed=seed * 10_000 + index, **options)
        for index in range(episodes)
    ]
    return (
        EpisodeSet.from_episodes([episode for episode, _ in made]),
        np.concatenate([rewards for _, rewards in made]),
    )
