"""Episodes from a factored world, for tests of the methods."""

import numpy as np

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

SMALL = {"states": 5, "actions": 2, "reward_states": 2, "reward_actions": 1, "indirect": 1}


def make_world(**settings):
    return FactoredWorld(WorldSettings(**{**SMALL, "length": 40, **settings}))


def make_episodes(world, count, seed=0):
    """Episodes that deliver nothing but their return; and the true rewards, apart."""
    rollout = world.rollout(np.random.default_rng(seed), count)
    episodes, truth = [], []
    for i, length in enumerate(rollout.lengths):
        last = np.arange(length) == length - 1
        episodes.append(
            Episode(
                observations=rollout.observations[i, : length + 1],
                actions=rollout.actions[i, :length],
                rewards=last * rollout.rewards[i, :length].sum(),
                terminations=np.zeros(length, np.bool_),
                truncations=last,
                delivered=last,
            )
        )
        truth.append(rollout.rewards[i, :length])
    return EpisodeSet.from_episodes(episodes), truth


def write_world(path, world, count, *, seed=0, layout="own", dense=False):
    """The same as a file, with the truth beside it."""
    episodes, truth = make_episodes(world, count, seed)
    records = [
        Record(
            observations={"": episode.observations},
            actions={"": episode.actions},
            rewards=rewards if dense else episode.rewards.astype(np.float64),
            terminations=episode.terminations,
            truncations=episode.truncations,
            extras={"true_rewards": rewards},
        )
        for episode, rewards in zip(episodes, truth, strict=True)
    ]
    header = Header(
        observation_leaves=(Leaf("", (episodes.state_size,), "float32"),),
        action_leaves=(Leaf("", (episodes.action_size,), "float32"),),
        environment="grd/Factored-v0",
        delay="step" if dense else "end",
        truth={"masks": {name: mask.tolist() for name, mask in world.masks.items()}},
    )
    write_dataset(path, header, records, layout=layout, lengths=episodes.lengths)
    return path
