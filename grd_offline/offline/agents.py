"""TD3+BC and IQL for many members at once.

Each member has its own actor, critics and whatever else its algorithm needs; one batched product
steps them all. Observations come normalised and actions between -1 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from grd_offline.agents.losses import bellman_target, critic_loss
from grd_offline.agents.policy import ACTOR_EVERY, SMOOTHING, SMOOTHING_LIMIT
from grd_offline.members.draws import to_normal
from grd_offline.members.nn import Stack, build_members
from grd_offline.members.optimiser import Adam, Flat
from grd_offline.offline.losses import (
    advantage_weights,
    expectile_loss,
    td3bc_actor_loss,
    weighted_imitation_loss,
)
from grd_offline.offline.settings import OfflineSettings

CRITICS = 2


class Batch(NamedTuple):
    """Steps drawn from the data; all (member, batch, ...)."""

    observations: Tensor
    actions: Tensor
    next_observations: Tensor
    terminated: Tensor
    rewards: Tensor
    uniform: Tensor
    """Random numbers for the update itself."""


class Agent:
    """What both algorithms have: actors, two critics each, and target critics."""

    loss_names: tuple[str, ...] = ("critic", "actor")
    numbers = 0
    """Random numbers per step and action dimension."""

    def __init__(
        self,
        settings: OfflineSettings,
        states: int,
        actions: int,
        *,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self.settings, self.members = settings, len(seeds)
        self.states, self.actions = states, actions
        self._seeds, self._device = list(seeds), device
        self.rates = torch.full((self.members,), settings.learning_rate, device=device)
        self.discounts = torch.full((self.members,), settings.discount, device=device)
        self.actor = self._make(1, states, actions, 0)
        self.critic = self._make(CRITICS, states + actions, 1, 1)
        self.target_critic = self._make(CRITICS, states + actions, 1, 1)
        self.actor_adam = Adam([self.actor], self.rates)
        self.critic_adam = Adam([self.critic], self.rates.repeat_interleave(CRITICS))
        self.critic_targets = Flat([self.target_critic])
        self.target_critic.requires_grad_(False)
        self.acting = self._make(1, states, actions, 0)
        """The policy that acts: the actor, averaged over its last steps."""
        self.acting.requires_grad_(False)
        self.acting_values = Flat([self.acting])
        self.losses = torch.zeros((len(self.loss_names), self.members), device=device)
        """At the last update, for the log."""
        self._value_critics, self._value_actors = self._critic_losses, self._actor_losses
        self._build()

    def _build(self) -> None:
        """What only this algorithm has."""

    def _make(self, networks: int, inputs: int, outputs: int, place: int) -> Stack:
        """So many networks for every member, from its own seed."""
        sizes = (inputs, *self.settings.hidden, outputs)
        return build_members(
            lambda generator: Stack(networks, sizes, generator=generator),
            [seed * 4 + place for seed in self._seeds],
        ).to(self._device)

    def moves_actor(self, update: int) -> bool:
        """Whether the actor steps with the update of this number, from 0."""
        return True

    def update(self, batch: Batch, *, with_actor: bool) -> None:
        """One step of everything that learns."""
        raise NotImplementedError

    def _critic_losses(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def _actor_losses(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def _choose(self, observations: Tensor) -> Tensor:
        """(member, batch, action) between -1 and 1, by the actor that learns."""
        return torch.tanh(self.actor(observations))

    def _step(self, adam: Adam, losses: Tensor, name: str) -> None:
        """One step of `losses`, (member,) or (member, critic)."""
        adam.step(losses.flatten())
        values = losses.detach()
        place = self.loss_names.index(name)
        self.losses[place] = values.mean(1) if values.ndim > 1 else values

    @torch.no_grad()
    def _follow(self) -> None:
        """Target critics go a little of the way."""
        self.critic_targets.values.lerp_(self.critic_adam.flat.values, self.settings.target_rate)

    @torch.no_grad()
    def _average(self) -> None:
        """The policy that acts goes some of the way to the actor: less and less."""
        memory = (self.settings.averaging * self.actor_adam.steps).clamp_min(1.0)
        self.acting_values.values.lerp_(self.actor_adam.flat.values, 1 / memory)

    def _value(
        self, critic: Stack, observations: Tensor, actions: Tensor, *, frozen: bool = False
    ) -> Tensor:
        """(member, critic, batch)"""
        inputs = torch.cat([observations, actions], -1)
        values = cast(Tensor, critic(inputs, frozen=frozen, repeats=CRITICS))
        return values.view(self.members, CRITICS, -1)

    def adams(self) -> list[Adam]:
        """All optimisers."""
        return [self.actor_adam, self.critic_adam]

    def targets(self) -> list[Flat]:
        """All networks that follow others."""
        return [self.critic_targets, self.acting_values]

    def tensors(self) -> list[Tensor]:
        """Everything that an update changes."""
        own = [tensor for adam in self.adams() for tensor in adam.state().values()]
        return [*own, *(target.values for target in self.targets()), self.losses]

    def compile(self, backend: str) -> None:
        """Fuse what lies between the matrix products; for devices where that pays."""
        self._value_critics = torch.compile(self._critic_losses, dynamic=False, backend=backend)
        self._value_actors = torch.compile(self._actor_losses, dynamic=False, backend=backend)
        for adam in self.adams():
            adam.compile(backend)


class Td3Bc(Agent):
    """TD3 whose actor also imitates the data; it and all targets move with every second update."""

    numbers = 1

    def _build(self) -> None:
        self.target_actor = self._make(1, self.states, self.actions, 0)
        self.actor_targets = Flat([self.target_actor])
        self.target_actor.requires_grad_(False)

    def moves_actor(self, update: int) -> bool:
        """Every second time."""
        return (update + 1) % ACTOR_EVERY == 0

    def update(self, batch: Batch, *, with_actor: bool) -> None:
        """Critics; then, if it is their turn, actor and targets."""
        self._step(self.critic_adam, self._value_critics(batch), "critic")
        if with_actor:
            self._step(self.actor_adam, self._value_actors(batch), "actor")
            self._average()
            self._follow()

    @torch.no_grad()
    def _follow(self) -> None:
        super()._follow()
        self.actor_targets.values.lerp_(self.actor_adam.flat.values, self.settings.target_rate)

    def _critic_losses(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            noise = SMOOTHING * to_normal(batch.uniform)
            actions = torch.tanh(self.target_actor(batch.next_observations))
            actions = (actions + noise.clamp(-SMOOTHING_LIMIT, SMOOTHING_LIMIT)).clamp(-1, 1)
            following = self._value(self.target_critic, batch.next_observations, actions).amin(1)
            targets = bellman_target(
                batch.rewards, batch.terminated, following, discount=self.discounts
            )
        return critic_loss(self._value(self.critic, batch.observations, batch.actions), targets)

    def _actor_losses(self, batch: Batch) -> Tensor:
        chosen = self._choose(batch.observations)
        values = self._value(self.critic, batch.observations, chosen, frozen=True)[:, 0]
        return td3bc_actor_loss(values, chosen, batch.actions, alpha=self.settings.alpha)

    def targets(self) -> list[Flat]:
        """Also of the actor."""
        return [*super().targets(), self.actor_targets]


class Iql(Agent):
    """Implicit Q-learning: values of actions in the data alone, then imitation of the better ones.

    The actor is the mean of a Gaussian whose spread is fixed.
    """

    loss_names = ("critic", "actor", "value")

    def _build(self) -> None:
        self.value = self._make(1, self.states, 1, 2)
        self.value_adam = Adam([self.value], self.rates)
        self._value_states = self._value_losses

    def update(self, batch: Batch, *, with_actor: bool) -> None:
        """Values of states, then the actor, then the critics, as in the authors' code."""
        self._step(self.value_adam, self._value_states(batch), "value")
        if with_actor:
            self._step(self.actor_adam, self._value_actors(batch), "actor")
            self._average()
        self._step(self.critic_adam, self._value_critics(batch), "critic")
        self._follow()

    def _advantages(self, batch: Batch, *, frozen: bool) -> Tensor:
        """(member, batch) Q(s, a) - V(s), Q by the target critics."""
        with torch.no_grad():
            values = self._value(self.target_critic, batch.observations, batch.actions).amin(1)
        return values - cast(Tensor, self.value(batch.observations, frozen=frozen)).squeeze(-1)

    def _value_losses(self, batch: Batch) -> Tensor:
        advantages = self._advantages(batch, frozen=False)
        return expectile_loss(advantages, expectile=self.settings.expectile)

    def _actor_losses(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            advantages = self._advantages(batch, frozen=True)
            weights = advantage_weights(advantages, temperature=self.settings.temperature)
        return weighted_imitation_loss(self._choose(batch.observations), batch.actions, weights)

    def _critic_losses(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            following = self.value(batch.next_observations).squeeze(-1)
            targets = bellman_target(
                batch.rewards, batch.terminated, following, discount=self.discounts
            )
        return critic_loss(self._value(self.critic, batch.observations, batch.actions), targets)

    def adams(self) -> list[Adam]:
        """Also of the values."""
        return [*super().adams(), self.value_adam]

    def compile(self, backend: str) -> None:
        """The values too."""
        super().compile(backend)
        self._value_states = torch.compile(self._value_losses, dynamic=False, backend=backend)


AGENTS: dict[str, type[Agent]] = {"td3bc": Td3Bc, "iql": Iql}
