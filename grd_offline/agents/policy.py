"""SAC, TD3 and DDPG for many members at once, on the compact state.

Each member has its own actor, critics and target networks; one batched product steps them all.
Observations are multiplied by the member's compact mask before any network sees them, those of
the next step as well. Actions are stored in the environment's units; critics see them between
-1 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from grd_offline.agents import BACKBONES
from grd_offline.agents.batch import Steps
from grd_offline.agents.losses import (
    bellman_target,
    critic_loss,
    deterministic_actor_loss,
    sac_actor_loss,
    squash,
    temperature_loss,
)
from grd_offline.members.draws import to_normal
from grd_offline.members.nn import Stack, build_members
from grd_offline.members.optimiser import Adam, Flat

if TYPE_CHECKING:
    from jaxtyping import Float

SMOOTHING, SMOOTHING_LIMIT = 0.2, 0.5
"""TD3: noise on the target's action, and where it is cut off."""
ACTOR_EVERY = 2
"""TD3: the actor steps with every second update of the critics."""


class Temperature(nn.Module):
    """log alpha of each member, 0 at first."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.zeros(members, 1))


class Policy:
    """The actors and critics of all members, and one update of them."""

    def __init__(
        self,
        backbone: str,
        states: int,
        low: ArrayLike,
        high: ArrayLike,
        *,
        seeds: Sequence[int],
        hidden: Sequence[int],
        rates: Float[Tensor, "member"],
        discounts: Float[Tensor, "member"],
        target_rates: Float[Tensor, "member"],
        centre_rates: Float[Tensor, "member"],
        normed: Sequence[bool],
    ) -> None:
        if backbone not in BACKBONES:
            raise ValueError(f"backbone: expected one of {', '.join(BACKBONES)}, got {backbone!r}")
        self.backbone, self.members = backbone, len(seeds)
        device = rates.device
        bounds = (np.asarray(bound, np.float32) for bound in (low, high))
        lowest, highest = (torch.from_numpy(bound).to(device) for bound in bounds)
        self.centre, self.half = (highest + lowest) / 2, (highest - lowest) / 2
        self.actions, self.states = len(self.centre), states
        self.critics = 1 if backbone == "ddpg" else 2
        self.discounts = discounts
        outputs = self.actions * (2 if backbone == "sac" else 1)
        self.actor_sizes = (states, *hidden, outputs)
        critic_sizes = (states + self.actions, *hidden, 1)

        def make_actor(generator: torch.Generator) -> Stack:
            return Stack(1, self.actor_sizes, generator=generator)

        def make_critics(generator: torch.Generator) -> Stack:
            return Stack(self.critics, critic_sizes, generator=generator)

        self.actor = build_members(make_actor, [seed * 4 for seed in seeds]).to(device)
        self.critic = build_members(make_critics, [seed * 4 + 1 for seed in seeds]).to(device)
        self.target_critic = build_members(make_critics, [seed * 4 + 1 for seed in seeds])
        self.target_actor = build_members(make_actor, [seed * 4 for seed in seeds])
        self.temperature = Temperature(self.members).to(device)
        self.target_entropy = -float(self.actions)
        # SAC's temperature steps with the actor: neither loss has a gradient in the other's part.
        acting = [self.actor, self.temperature] if backbone == "sac" else [self.actor]
        self.actor_adam = Adam(acting, rates)
        self.critic_adam = Adam([self.critic], rates.repeat_interleave(self.critics))
        self.critic_targets = Flat([self.target_critic.to(device)])
        self.actor_targets = Flat([self.target_actor.to(device)])
        for target in (self.target_critic, self.target_actor):
            target.requires_grad_(False)
        for critic in (self.critic, self.target_critic):
            critic.normalise([is_normed for is_normed in normed for _ in range(self.critics)])
        self._value_critics, self._value_actors = self._critic_losses, self._actor_losses
        self._target_rates = target_rates.unsqueeze(1)
        self._centre_rates = centre_rates
        self.mean_rewards = torch.zeros_like(discounts)
        """(member,) what is taken off the rewards of those that are centred."""
        self.losses = torch.zeros((2, self.members), device=device)
        """Of critics and actor at the last update, for the log."""

    @property
    def uniforms(self) -> int:
        """Random numbers per step of a batch."""
        return {"sac": 2, "td3": 1, "ddpg": 0}[self.backbone] * self.actions

    def moves_actor(self, update: int) -> bool:
        """Whether the actor steps with this update."""
        return self.backbone != "td3" or update % ACTOR_EVERY == 0

    def update(
        self,
        steps: Steps,
        rewards: Float[Tensor, "member batch"],
        mask: Float[Tensor, "member state"],
        uniform: Float[Tensor, "member batch number"],
        *,
        with_actor: bool = True,
    ) -> None:
        """One step of the critics; with the actor's, which TD3 delays, the targets follow."""
        losses, surprise = self._value_critics(steps, rewards, mask, uniform[..., : self.actions])
        self.critic_adam.step(losses.flatten())
        surprise = torch.nan_to_num(surprise.detach(), posinf=0.0, neginf=0.0)
        self.mean_rewards.add_(self._centre_rates * surprise)
        self.losses[0] = losses.detach().mean(1)
        if with_actor:
            noise = uniform[..., self.actions :]
            losses = self._value_actors(steps.observations, mask, noise)
            self.actor_adam.step(losses)
            self.losses[1] = losses.detach()
            self._follow()

    @torch.no_grad()
    def _follow(self) -> None:
        rates = self._target_rates.repeat_interleave(self.critics, 0)
        self.critic_targets.values.lerp_(self.critic_adam.flat.values, rates)
        if self.backbone != "sac":
            self.actor_targets.values.lerp_(self.actor_adam.flat.values, self._target_rates)

    def compile(self, backend: str) -> None:
        """Fuse what lies between the matrix products; for devices where that pays."""
        self._value_critics = torch.compile(self._critic_losses, dynamic=False, backend=backend)
        self._value_actors = torch.compile(self._actor_losses, dynamic=False, backend=backend)
        for adam in (self.critic_adam, self.actor_adam):
            adam.compile(backend)

    def stop_centring(self, member: int) -> None:
        """Where an end is worth 0, what is taken off each step would change what is best."""
        self._centre_rates[member] = 0.0
        self.mean_rewards[member] = 0.0

    def _critic_losses(
        self, steps: Steps, rewards: Tensor, mask: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(member, critic), and (member,) by how much targets exceed values on average."""
        observations = steps.observations * mask.unsqueeze(1)
        following = steps.next_observations * mask.unsqueeze(1)
        actions = (steps.actions - self.centre) / self.half
        with torch.no_grad():
            next_values = self._value_next(following, to_normal(noise))
            targets = bellman_target(
                rewards - self.mean_rewards.unsqueeze(1),
                steps.terminated,
                next_values,
                discount=self.discounts,
            )
        values = self._value(self.critic, observations, actions)
        return critic_loss(values, targets), (targets - values.mean(1)).mean(1)

    def _value_next(self, observations: Tensor, noise: Tensor) -> Tensor:
        """(member, batch) value of the next state by the target networks."""
        if self.backbone == "sac":
            actions, log_density = squash(*self._gaussian(observations), noise)
            values = self._value(self.target_critic, observations, actions).amin(1)
            return values - self.temperature.logarithm.exp() * log_density
        actions = torch.tanh(self.target_actor(observations))
        if self.backbone == "td3":
            noise = (SMOOTHING * noise).clamp(-SMOOTHING_LIMIT, SMOOTHING_LIMIT)
            actions = (actions + noise).clamp(-1, 1)
        return self._value(self.target_critic, observations, actions).amin(1)

    def _actor_losses(self, observations: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
        """(member,) of the actor, and of the temperature where there is one."""
        observations = observations * mask.unsqueeze(1)
        if self.backbone != "sac":
            actions = torch.tanh(self.actor(observations))
            values = self._value(self.critic, observations, actions, frozen=True)
            return deterministic_actor_loss(values)
        actions, log_density = squash(*self._gaussian(observations), to_normal(noise))
        values = self._value(self.critic, observations, actions, frozen=True)
        logarithm = self.temperature.logarithm.squeeze(1)
        loss = sac_actor_loss(values, log_density, temperature=logarithm.detach().exp())
        entropy = self.target_entropy
        return loss + temperature_loss(logarithm, log_density.detach(), target_entropy=entropy)

    def _gaussian(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(observations).chunk(2, -1)
        return mean, log_std

    def _value(
        self, critic: Stack, observations: Tensor, actions: Tensor, *, frozen: bool = False
    ) -> Tensor:
        """(member, critic, batch)"""
        inputs = torch.cat([observations, actions], -1)
        values = cast(Tensor, critic(inputs, frozen=frozen, repeats=self.critics))
        return values.view(self.members, self.critics, -1)

    @torch.no_grad()
    def export_actors(self, mask: Float[Tensor, "member state"]) -> NDArray[np.float32]:
        """(member, number) the actors' weights, layer by layer, with the masks worked in."""
        parts = []
        for layer, (weight, bias) in enumerate(
            zip(self.actor.weights, self.actor.biases, strict=True)
        ):
            kept = weight * mask.unsqueeze(2) if layer == 0 else weight
            parts += [kept.flatten(1), bias.flatten(1)]
        return torch.cat(parts, 1).numpy(force=True)

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {
            "actor": self.actor_adam.state(),
            "critic": self.critic_adam.state(),
            "mean_rewards": self.mean_rewards,
            "centre_rates": self._centre_rates,
            "targets": {"critic": self.critic_targets.values, "actor": self.actor_targets.values},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.actor_adam.load_state(state["actor"])
        self.critic_adam.load_state(state["critic"])
        self.mean_rewards.copy_(state["mean_rewards"])
        self._centre_rates.copy_(state["centre_rates"])
        self.critic_targets.values.copy_(state["targets"]["critic"])
        self.actor_targets.values.copy_(state["targets"]["actor"])
