"""CrossQ: batch renormalisation by hand, actors without it, and one pass for now and next."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from online_learners import make_learner, make_settings
from small_agents import draw_batch, make_agent

from grd_offline.learning.agents.actors import Actor, ActorSpec
from grd_offline.learning.online.run import complete_settings
from grd_offline.learning.settings import OnlineSettings
from grd_offline.networks.members.renorm import EPSILON, WARM_UP, RenormStack


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("passes", [WARM_UP - 1, WARM_UP])
def test_batch_renormalisation_by_hand(passes):
    """After the warm-up, the output is that of the running moments, within bounds."""
    network = RenormStack(2, (3, 1), generator=torch.Generator().manual_seed(0)).track()
    network.passes.fill_(passes)
    network.means[0].copy_(numbers(2, 1, 3, seed=1))
    network.variances[0].copy_(torch.tensor([0.5, 40.0, 2.0]))
    for parameter, seed in ((network.scales[0], 2), (network.shifts[0], 3)):
        parameter.data.copy_(numbers(2, 1, 3, seed=seed))
    inputs = numbers(2, 6, 3, seed=4) * 2 + torch.tensor([0.0, 1.0, 60.0])
    run = [part.double().numpy().copy() for part in (network.means[0], network.variances[0])]
    found = network(inputs).detach()
    x, (weight, bias) = inputs.double().numpy(), (network.weights[0], network.biases[0])
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    ratio = np.sqrt(variance + EPSILON) / np.sqrt(run[1] + EPSILON)
    gap = (mean - run[0]) / np.sqrt(run[1] + EPSILON)
    assert ratio.min() < 1 / 3
    assert gap.max() > 5
    r, d = (ratio.clip(1 / 3, 3), gap.clip(-5, 5)) if passes == WARM_UP else (1, 0)
    scale, shift = (part[0].detach().double().numpy() for part in (network.scales, network.shifts))
    normal = ((x - mean) / np.sqrt(variance + EPSILON) * r + d) * scale + shift
    expected = normal @ weight.detach().double().numpy() + bias.detach().double().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(network.means[0], 0.99 * run[0] + 0.01 * mean, rtol=1e-5)
    np.testing.assert_allclose(network.variances[0], 0.99 * run[1] + 0.01 * variance, rtol=1e-5)
    assert (network.passes == passes + 1).all()


def test_moments_move_in_passes_with_gradients_alone_and_stay_finite():
    network = RenormStack(1, (2, 4, 1)).track()
    inputs = numbers(1, 5, 2) + 3
    before = [part.clone() for part in network.statistics().values()]
    with torch.no_grad():
        network(inputs)
    network(inputs.requires_grad_(), frozen=True).sum().backward()
    assert all(
        torch.equal(*both) for both in zip(before, network.statistics().values(), strict=True)
    )
    assert network.weights[0].grad is None
    assert network.scales[0].grad is None
    network(torch.full((1, 5, 2), torch.nan))
    assert all(part.isfinite().all() for part in network.statistics().values())
    assert (network.passes == 1).all()


def test_exported_actors_equal_the_networks_in_use():
    agent = make_agent("crossq", False, [0, 1])
    for seed in range(4):
        agent.update(draw_batch(agent, torch.Generator().manual_seed(seed)))
    mean, std = np.array([1.0, -2.0, 0.5]), np.array([2.0, 0.5, 1.0])
    observations = numbers(2, 6, 3)
    with torch.no_grad():
        seen = (observations - torch.tensor(mean)) / torch.tensor(std)
        expected = torch.tanh(agent.actor(seen.float())[..., :2])
    spec = ActorSpec("gaussian", (3, 8, 4), [-1.0] * 2, [1.0] * 2)
    for member, weights in enumerate(agent.export_actors(mean, std)):
        found = Actor(spec, weights).act_many(observations[member].numpy())
        np.testing.assert_allclose(found, expected[member], rtol=1e-4, atol=1e-5)
    shown = torch.tensor([[1.0, 0.0, 2.0]]).repeat(2, 1)
    with torch.no_grad():
        expected = torch.tanh(agent.actor(observations * shown.unsqueeze(1))[..., :2])
    found = Actor(spec, agent.gather_actors(shown)[0].numpy()).act_many(observations[0].numpy())
    np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-5)


def test_critics_see_now_and_next_in_one_pass_and_have_no_targets():
    agent = make_agent("crossq", False, [0, 1])
    batch = draw_batch(agent, torch.Generator().manual_seed(0))
    assert not agent.targets
    with patch.object(agent.critic, "forward", wraps=agent.critic.forward) as passes:
        agent.step_critics(batch)
    (inputs,) = passes.call_args.args
    assert passes.call_count == 1
    assert torch.equal(inputs[:, :7], torch.cat([batch.observations, batch.actions], 2))
    assert torch.equal(inputs[:, 7:, :3], batch.next_observations)
    together = inputs.mean(1, keepdim=True).repeat_interleave(2, 0)
    torch.testing.assert_close(agent.critic.means[0], 0.01 * together)
    assert (agent.critic.passes == 1).all()
    assert (agent.actor.passes == 0).all()
    assert [update for update in range(7) if agent.moves_actor(update)] == [0, 3, 6]


def test_its_settings_reach_the_run():
    settings = complete_settings("Pendulum", backbone="crossq", critic_width=24)
    assert settings.learning_rate == 1e-3
    assert complete_settings("Pendulum", backbone="sac").learning_rate == 3e-4
    given = complete_settings("Pendulum", backbone="crossq", learning_rate=2e-3)
    assert given.learning_rate == 2e-3
    assert OnlineSettings("any").critic_width == 512
    learner = make_learner(make_settings(methods=("oracle",), backbone="crossq", critic_width=24))
    assert [len(weight[0]) for weight in learner.agent.critic.weights] == [5, 24, 24]
    assert [len(weight[0]) for weight in learner.agent.actor.weights] == [3, 8, 8]
