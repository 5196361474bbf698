"""The registry of algorithms, and an algorithm that joins by one class and one registration."""

import numpy as np
import offline_learners
import online_learners
import pytest
import torch
from small_agents import draw_batch, make_agent

from grd_offline.core.errors import DataError
from grd_offline.learning.agents import algorithms
from grd_offline.learning.agents.actors import Actor, ActorSpec
from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.agents.algorithms import (
    Algorithm,
    find_algorithm,
    find_title,
    list_offline,
    list_online,
    register_algorithm,
)


class Leaning(Agent):
    """A toy: every action becomes 1/2, and the critics learn what that is worth."""

    def __init__(self, *sizes, expectile=0.5, **common):
        super().__init__(*sizes, **common)
        self.expectile = expectile

    def compute_next_values(self, batch):
        actions = torch.tanh(self.actor(batch.next_observations))
        return self.compute_values(self.target_critic, batch.next_observations, actions).amin(1)

    def compute_actor_losses(self, batch):
        return (torch.tanh(self.actor(batch.observations)) - 0.5).square().mean((1, 2))


@pytest.fixture(params=[True, False])
def toy(request, monkeypatch):
    monkeypatch.setattr(algorithms, "_ALGORITHMS", dict(algorithms._ALGORITHMS))
    settings = () if request.param else ("expectile",)
    register_algorithm(Algorithm("leaning", "Leaning", request.param, lambda: Leaning, settings))
    return find_algorithm("leaning")


def test_a_new_algorithm_is_one_class_and_one_registration(toy):
    assert ("leaning" in list_online()) == toy.online
    assert ("leaning" in list_offline()) != toy.online
    if toy.online:
        settings = online_learners.make_settings(
            backbone="leaning", methods=("oracle", "none"), learning_rate=1e-2
        )
        learner = online_learners.make_learner(settings)
    else:
        settings = offline_learners.make_settings(algorithm="leaning", expectile=0.9)
        learner = offline_learners.make_learner(settings)
        assert learner.agent.expectile == 0.9
    learner.run_updates(100)
    assert (learner.agent.losses[1] < 1e-2).all()
    assert learner.count_skipped().sum() == 0
    low, high = ([-1.0, -2.0], [1.0, 2.0]) if toy.online else ([-1.0], [1.0])
    spec = ActorSpec("deterministic", (learner.agent.states, 8, 8, len(low)), low, high)
    action = Actor(spec, learner.export_actors()[0]).act(np.zeros(spec.observation_size))
    np.testing.assert_allclose(action, np.array(high) / 2, rtol=0.3)


def test_a_name_is_registered_once(toy):
    with pytest.raises(ValueError, match="already an algorithm called 'leaning'"):
        register_algorithm(toy)


def test_names_and_titles():
    assert list_online() == ("sac", "crossq", "td3", "ddpg", "dqn")
    assert list_offline() == ("iql", "td3bc")
    assert find_title("td3bc") == "TD3+BC"
    assert find_title("unheard-of") == "unheard-of"
    with pytest.raises(
        DataError, match=r"backbone: expected one of sac, crossq, td3, ddpg, dqn, got 'iql'"
    ):
        online_learners.make_settings(backbone="iql")


EVERY = [
    *((name, False) for name in (*list_online(), *list_offline()) if find_algorithm(name).load),
    *((name, True) for name in ("dqn", "iql")),
]


@pytest.mark.parametrize(("name", "is_discrete"), EVERY)
def test_an_agent_goes_on_from_its_state(name, is_discrete):
    """Two agents with one state and one batch stay alike; shapes that do not fit are refused."""
    numbers = torch.Generator().manual_seed(0)
    agents = [make_agent(name, is_discrete, seeds) for seeds in ([0, 1], [5, 6])]
    batch = draw_batch(agents[0], numbers)
    agents[0].update(batch)
    agents[1].load_state(agents[0].state())
    for agent in agents:
        agent.update(batch)
    for one, other in zip(*(list(walk(agent.state())) for agent in agents), strict=True):
        assert torch.equal(one, other)
    wrong = batch._replace(actions=batch.actions[:, :1])
    with pytest.raises(Exception, match=r"dimension|batch|size"):
        agents[0].update(wrong)


def walk(state):
    for value in state.values():
        if isinstance(value, dict):
            yield from walk(value)
        else:
            yield value
