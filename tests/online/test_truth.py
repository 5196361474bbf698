"""The true rewards of steps reach `oracle` and the evaluation, and nobody else."""

import numpy as np
import pytest
import torch
from online_learners import ACTIONS, STATES, make_episode, make_learner, make_settings

from grd_offline.learning.online.learner import Learner
from grd_offline.learning.online.replay import FinishedEpisode, TrueRewards
from grd_offline.learning.online.sources import Oracle, RewardSource
from grd_offline.learning.settings import METHODS

SECRET = 1234.5
"""A reward of one step that occurs in no other number."""


class Ear:
    """Keeps whatever a source is given by the learner."""

    def __init__(self, monkeypatch):
        self.heard = []
        for name in ("update", "add", "compute_rewards", "predict"):
            for kind in (RewardSource, *find_kinds(RewardSource)):
                if name in vars(kind):
                    monkeypatch.setattr(kind, name, self._listen(vars(kind)[name]))

    def _listen(self, method):
        def call(*arguments):
            if not isinstance(arguments[0], Oracle):
                self.heard.append(arguments)
            return method(*arguments)

        return call


def find_kinds(kind):
    for child in kind.__subclasses__():
        yield child
        yield from find_kinds(child)


def walk(thing, seen):
    """Every object that can be reached through attributes, items, closures and bound methods."""
    if id(thing) in seen or isinstance(thing, type(np) | type | str | bytes | int | float):
        return
    seen[id(thing)] = thing
    yield thing
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, list | tuple | set) or type(thing).__name__ == "deque":
        parts = list(thing)
    else:
        parts = list(getattr(thing, "__dict__", {}).values())
        parts += [getattr(thing, "__self__", None)]
        parts += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    for part in parts:
        yield from walk(part, seen)


def holds_secret(thing):
    if isinstance(thing, torch.Tensor):
        return bool((thing == SECRET).any())
    return isinstance(thing, np.ndarray) and bool((thing == SECRET).any())


def make_episode_with_secret(rng):
    """An episode in which one step has the secret reward, and the others take it off again."""
    episode, truth = make_episode(rng)
    rewards = truth.rewards.copy()
    rewards[3] += SECRET - rewards[3]
    return episode._replace(episode_return=float(rewards.sum())), TrueRewards(rewards)


@pytest.mark.parametrize("methods", [METHODS, tuple(m for m in METHODS if m != "oracle")])
def test_no_source_but_oracle_can_reach_a_true_reward(methods, monkeypatch):
    ear = Ear(monkeypatch)
    settings = make_settings(methods=methods, seeds=1)
    learner = make_learner(settings, episodes=2)
    rng = np.random.default_rng(0)
    for member in range(len(learner.members)):
        told = make_episode_with_secret(rng)
        learner.add(member, *told)
        source, place = learner.find_source(member)
        source.predict(place, told[0])
    learner.refresh()
    learner.run_updates(2)
    others = [source for source in learner.sources if not isinstance(source, Oracle)]
    assert {id(arguments[0]) for arguments in ear.heard} == {id(source) for source in others}
    seen = {}
    reached = [part for arguments in ear.heard for part in walk(arguments, seen)]
    assert sum(isinstance(part, FinishedEpisode) for part in reached) > len(others)
    assert not any(isinstance(part, TrueRewards | Oracle | Learner) for part in reached)
    assert not any(holds_secret(part) for part in reached)
    # The walk does find it where it is.
    everything = list(walk(learner, {}))
    assert any(holds_secret(part) for part in everything) == ("oracle" in methods)


def test_without_the_truth_every_method_but_oracle_learns_the_same():
    settings = make_settings(seeds=1)
    learners = [make_learner(settings, episodes=0) for _ in range(2)]
    for index, member in enumerate(learners[0].members):
        rng = np.random.default_rng(member.seed)
        for _ in range(6):
            episode, truth = make_episode(rng)
            learners[0].add(index, episode, truth)
            learners[1].add(index, episode, TrueRewards(np.full_like(truth.rewards, np.nan)))
    for learner in learners:
        learner.refresh()
        learner.run_updates(10)
    ours, theirs = (learner.export_actors() for learner in learners)
    for index, member in enumerate(learners[0].members):
        same = np.array_equal(ours[index], theirs[index])
        assert same == (member.method != "oracle"), member.name
    assert learners[1].count_skipped().sum() == 10


def test_only_oracle_keeps_a_column_of_true_rewards():
    with_oracle = make_learner(make_settings(methods=("none", "oracle"), seeds=3))
    shapes = [tensor.shape for tensor in walk(with_oracle, {}) if holds_rows(tensor, with_oracle)]
    without = make_learner(make_settings(methods=("none", "ircr"), seeds=3))
    fewer = [tensor.shape for tensor in walk(without, {}) if holds_rows(tensor, without)]
    rows = with_oracle.replay.rows
    # Beside states, actions and numbers, the replay knows which steps are the last ones.
    known = [(6, rows, STATES), (6, rows, ACTIONS), (6, rows, 3), (6, rows)]
    assert sorted(fewer) == sorted(known)
    assert sorted(shapes) == sorted([*fewer, (3, rows)])


def holds_rows(thing, learner):
    return isinstance(thing, torch.Tensor) and learner.replay.rows in thing.shape
