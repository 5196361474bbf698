"""The algorithms for continuous actions, each as far as its equations differ from another's.

IQL without its loss of the actor is for discrete actions as well: see `discrete`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from grd_offline.learning.agents.agent import Agent, PolicyBatch
from grd_offline.learning.agents.losses import (
    advantage_weights,
    deterministic_actor_loss,
    expectile_loss,
    sac_actor_loss,
    smooth_actions,
    squash,
    td3bc_actor_loss,
    temperature_loss,
    weighted_imitation_loss,
)
from grd_offline.networks.members.nn import build_members, to_normal
from grd_offline.networks.members.optimiser import Adam
from grd_offline.networks.members.renorm import RenormStack

if TYPE_CHECKING:
    from grd_offline.learning.agents.shapes import Actions, CriticLosses, Members, States, Steps


class Ddpg(Agent):
    """DDPG (Lillicrap et al., 2015): a deterministic policy, one critic, and a target of each."""

    critics = 1
    has_target_actor = True

    def compute_next_values(self, batch: PolicyBatch) -> Steps:
        """Q(s', pi(s')) by the target networks."""
        actions = torch.tanh(self.target_actor(batch.next_observations))
        return self.compute_values(self.target_critic, batch.next_observations, actions).amin(1)

    def compute_actor_losses(self, batch: PolicyBatch) -> Members:
        """-E[Q(s, pi(s))]."""
        actions = torch.tanh(self.actor(batch.observations))
        return deterministic_actor_loss(
            self.compute_values(self.critic, batch.observations, actions, frozen=True)
        )


class Td3(Ddpg):
    """TD3 (Fujimoto et al., 2018): DDPG with two critics, noise on the target's action, and an
    actor that steps less often."""

    critics = 2
    noise_size = 1
    actor_every = 2

    def compute_next_values(self, batch: PolicyBatch) -> Steps:
        """min_c Q_c(s', pi(s') + noise) by the target networks."""
        actions = torch.tanh(self.target_actor(batch.next_observations))
        actions = smooth_actions(actions, to_normal(batch.uniform))
        return self.compute_values(self.target_critic, batch.next_observations, actions).amin(1)


class Td3Bc(Td3):
    """TD3+BC (Fujimoto and Gu, 2021): TD3 whose actor also imitates the actions of the data."""

    def __init__(self, *sizes: int, alpha: float = 2.5, **common: Any) -> None:
        """`alpha` is the weight of the value against imitation."""
        super().__init__(*sizes, **common)
        self.alpha = alpha

    def moves_actor(self, update: int) -> bool:
        """Every second time, the first time not included."""
        return super().moves_actor(update + 1)

    def compute_actor_losses(self, batch: PolicyBatch) -> Members:
        """-lambda E[Q(s, pi(s))] + E[(pi(s) - a)^2]."""
        chosen = torch.tanh(self.actor(batch.observations))
        values = self.compute_values(self.critic, batch.observations, chosen, frozen=True)
        return td3bc_actor_loss(values[:, 0], chosen, batch.actions, alpha=self.alpha)


class Temperature(nn.Module):
    """log alpha of each member, 0 at first."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.zeros(members, 1))


class Sac(Agent):
    """SAC (Haarnoja et al., 2018): a Gaussian policy that is paid for its entropy.

    Its temperature is learned. Its target entropy is minus its number of actions.
    """

    actor_kind = "gaussian"
    noise_size = 2

    def list_actor_modules(self) -> list[nn.Module]:
        """The temperature steps with the actor: neither loss has a gradient in the other's part."""
        self.temperature = Temperature(self.members).to(self.device)
        return [self.actor, self.temperature]

    def draw_actions(self, observations: States, uniform: Actions) -> tuple[Actions, Steps]:
        """Actions of the policy, and the logarithms of their densities."""
        mean, log_std = self.actor(observations).chunk(2, -1)
        return squash(mean, log_std, to_normal(uniform))

    def compute_next_values(self, batch: PolicyBatch) -> Steps:
        """min_c Q_c(s', a') - alpha log pi(a'|s') by the target critics."""
        uniform = batch.uniform[..., : self.actions]
        actions, log_density = self.draw_actions(batch.next_observations, uniform)
        values = self.compute_values(self.target_critic, batch.next_observations, actions)
        return values.amin(1) - self.temperature.logarithm.exp() * log_density

    def compute_actor_losses(self, batch: PolicyBatch) -> Members:
        """The losses of the actor and of the temperature, added."""
        uniform = batch.uniform[..., self.actions :]
        actions, log_density = self.draw_actions(batch.observations, uniform)
        values = self.compute_values(self.critic, batch.observations, actions, frozen=True)
        logarithm = self.temperature.logarithm.squeeze(1)
        loss = sac_actor_loss(values, log_density, temperature=logarithm.detach().exp())
        return loss + temperature_loss(
            logarithm, log_density.detach(), target_entropy=-float(self.actions)
        )

    def find_log_values(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature.logarithm.detach().exp().squeeze(1)}


class CrossQ(Sac):
    """CrossQ (Bhatt et al., 2024): SAC without target networks.

    Batch renormalisation steadies the critics, which are wide, and the actor. The critics see
    states and next states in one pass, so that both are normalised by the same moments. These are
    moments of inputs: a refitted reward asks for nothing.
    """

    actor: RenormStack
    critic: RenormStack
    betas = (0.5, 0.999)
    actor_every = 3
    compiled = ("compute_critic_losses", "compute_actor_losses", "keep_losses", "centre")

    def __init__(self, *sizes: int, critic_width: int = 512, **common: Any) -> None:
        """`critic_width` is the number of units in each hidden layer of the critics."""
        self.critic_width = critic_width
        super().__init__(*sizes, **common)
        del self.targets["critic"], self.target_critic

    def make_networks(self, count: int, inputs: int, outputs: int, *, place: int) -> RenormStack:
        widths = [self.critic_width] * len(self.hidden) if place == 1 else self.hidden
        sizes = (inputs, *widths, outputs)
        nets = build_members(
            lambda generator: RenormStack(count, sizes, generator=generator),
            [seed * 4 + place for seed in self.seeds],
        )
        return nets.to(self.device).track()

    def compute_critic_losses(self, batch: PolicyBatch) -> tuple[CriticLosses, Members]:
        """The losses, with min_c Q_c(s', a') - alpha log pi(a'|s') by the critics that learn."""
        later = batch.look_ahead()
        with torch.no_grad():
            uniform = batch.uniform[..., : self.actions]
            actions, log_density = self.draw_actions(later.next_observations, uniform)
        states = torch.cat([batch.observations, later.next_observations], 1)
        both = self.compute_values(self.critic, states, torch.cat([batch.actions, actions], 1))
        values, next_values = both.chunk(2, -1)
        with torch.no_grad():
            bonus = self.temperature.logarithm.exp() * log_density
            targets = self.compute_targets(batch, next_values.amin(1) - bonus)
        return self.compare(batch, values, targets)

    def state(self) -> dict[str, Any]:
        moments = {"actor": self.actor.statistics(), "critic": self.critic.statistics()}
        return {**super().state(), "moments": moments}


class Iql(Agent):
    """IQL (Kostrikov et al., 2021): values of actions in the data alone, then imitation of the
    better ones.

    The actor is the mean of a Gaussian whose spread is fixed.
    """

    loss_names = ("critic", "actor", "value")
    compiled = (*Agent.compiled, "compute_state_losses")

    def __init__(
        self, *sizes: int, expectile: float = 0.7, temperature: float = 3.0, **common: Any
    ) -> None:
        """`temperature` says how sharply better actions are preferred."""
        super().__init__(*sizes, **common)
        self.expectile, self.temperature = expectile, temperature
        self.state_critic = self.make_networks(1, self.states, 1, place=2)
        self.adams["value"] = Adam([self.state_critic], self.rates)

    def update(self, batch: PolicyBatch, *, with_actor: bool = True) -> None:
        """Values of states, then the actor, then the critics, as in the authors' code."""
        self.step("value", self.compute_state_losses(batch))
        if with_actor:
            self.step_actor(batch)
        self.step_critics(batch)
        self.follow()

    def compute_state_values(self, observations: States, *, frozen: bool = False) -> Steps:
        """Compute the state values V(s)."""
        return cast(Tensor, self.state_critic(observations, frozen=frozen)).squeeze(-1)

    def compute_advantages(self, batch: PolicyBatch, *, frozen: bool = False) -> Steps:
        """min_c Q_c(s, a) - V(s), with Q by the target critics."""
        with torch.no_grad():
            values = self.compute_values(self.target_critic, batch.observations, batch.actions)
        return values.amin(1) - self.compute_state_values(batch.observations, frozen=frozen)

    def compute_next_values(self, batch: PolicyBatch) -> Steps:
        """Compute the values V(s') of the next states."""
        return self.compute_state_values(batch.next_observations)

    def compute_state_losses(self, batch: PolicyBatch) -> Members:
        return expectile_loss(self.compute_advantages(batch), expectile=self.expectile)

    def compute_actor_losses(self, batch: PolicyBatch) -> Members:
        """What imitating the actions costs, each with a weight that grows with its advantage."""
        with torch.no_grad():
            advantages = self.compute_advantages(batch, frozen=True)
            weights = advantage_weights(advantages, temperature=self.temperature)
        return self.imitate(batch, weights)

    def imitate(self, batch: PolicyBatch, weights: Steps) -> Members:
        """E[w |pi(s) - a|^2]."""
        chosen = torch.tanh(self.actor(batch.observations))
        return weighted_imitation_loss(chosen, batch.actions, weights)
