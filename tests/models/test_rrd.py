"""Randomised return decomposition: one model, from a file and from a replay."""

from __future__ import annotations

import numpy as np
import online_learners
import pytest
import torch

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.learning.online.replay import FinishedEpisode, TrueRewards
from grd_offline.methods.rrd import Rrd, RrdModel, RrdSettings
from grd_offline.networks.losses import rrd_losses
from grd_offline.networks.members.nn import RewardNet


def test_each_member_has_its_own_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    net = RewardNet(2, 3, hidden=(4,), generator=generator)
    model = RrdModel(net, [False, True], torch.full((2,), 1e-2))
    inputs = torch.randn((2, 5, 6, 3), generator=generator)
    valid, lengths = torch.ones((2, 5, 6), dtype=torch.bool), torch.full((2, 5), 20)
    returns = torch.randn((2, 5), generator=generator)
    discounts = torch.full((2, 5, 6), 0.5)
    found = model.compute_losses(inputs, valid, lengths, returns, discounts)
    parts = (0.5 * model.compute_rewards(inputs), valid, lengths, returns)
    assert found[0] == rrd_losses(*parts)[0][0]
    assert found[1] == rrd_losses(*parts)[1][1]


def make_episodes() -> list[tuple[FinishedEpisode, TrueRewards]]:
    """Every step pays 3, whatever happens."""
    rng = np.random.default_rng(0)
    return [
        online_learners.make_episode(rng, 8 + number % 5, lambda s, a: np.full(len(s), 3.0))
        for number in range(30)
    ]


@pytest.mark.parametrize("standardise", [False, True])
def test_rewards_of_a_file_are_per_step_in_units_of_the_return(standardise: bool) -> None:
    episodes = []
    for finished, _ in make_episodes():
        last = np.arange(len(finished.actions)) == len(finished.actions) - 1
        paid = finished.episode_return * last
        states = finished.observations
        episodes.append(Episode(states, finished.actions, paid, last & False, last, last))
    settings = RrdSettings(
        standardise=standardise, updates=150, hidden=(16,), learning_rate=1e-2, rows_per_batch=8
    )
    model = Rrd.from_settings(settings)
    model.fit(EpisodeSet.from_episodes(episodes), rng=np.random.default_rng(0))
    found = np.concatenate(list(model.relabel(EpisodeSet.from_episodes(episodes))))
    assert found.mean() == pytest.approx(3.0, abs=0.1)


def test_rewards_of_a_replay_are_too() -> None:
    settings = online_learners.make_settings(
        methods=("rrd",), seeds=1, hidden=(16,), model_rate=1e-2, episodes=8
    )
    learner = online_learners.make_learner(settings, episodes=0)
    for finished, truth in make_episodes():
        learner.add(0, finished, truth)
    source, steps = learner.sources[0], learner.replay.draw_steps(torch.full((1, 4), 0.5))
    for number in range(1, 151):
        source.update(steps, torch.tensor(number))
    function = source.export(0)
    assert function is not None
    finished, _ = make_episodes()[0]
    parts = (finished.observations[:-1], finished.actions, finished.observations[1:])
    assert function.predict(StepBatch(*parts)).mean() == pytest.approx(3.0, abs=0.1)
