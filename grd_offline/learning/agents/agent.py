"""The part that all algorithms share: batches of steps, networks of all members, optimisers, target
networks, and their state.

Each member has networks of its own. One batched product computes the networks of all members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grd_offline.learning.agents.losses import bellman_target, critic_loss
from grd_offline.networks.members.device import restore
from grd_offline.networks.members.nn import Stack, build_members
from grd_offline.networks.members.optimiser import BETAS, Adam, Flat

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from grd_offline.learning.agents.shapes import (
        Actions,
        CriticLosses,
        Members,
        States,
        Steps,
        Values,
    )


class ReplaySteps(NamedTuple):
    """Steps of finished episodes, as a source of rewards sees them.

    The true rewards of the steps are not among them.
    """

    observations: States
    actions: Actions
    """Actions in the units of the environment."""
    next_observations: States
    terminated: Steps
    """1 where the episode ends at this step by itself."""
    delivered: Steps
    """The reward that the environment delivers: the return at the last step, otherwise 0."""
    returns: Steps
    """The return of the episode that the step belongs to."""
    rows: Int[Tensor, "member batch"]
    """Rows of the replay that hold the steps."""


class Ahead(NamedTuple):
    """What comes of steps within the next few steps of their episodes."""

    rewards: Steps
    """Sum of the rewards of these few steps, later ones discounted."""
    each: Float[Tensor, "member batch step"]
    """The rewards of these steps. Beyond the end of an episode, that of the first one."""
    counts: Steps
    """Number of these steps: fewer than asked for where the episode ends before."""
    next_observations: States
    """Observations after the last of them."""
    terminated: Steps
    """1 where the episode ends by itself at the last of them."""


class PolicyBatch(NamedTuple):
    """Steps as an agent sees them, with the rewards that it learns from.

    Observations are masked or normalised, and actions lie between -1 and 1. `uniform` are the
    random numbers between 0 and 1 that the update uses.
    """

    observations: States
    actions: Actions
    next_observations: States
    terminated: Steps
    rewards: Steps
    uniform: Float[Tensor, "member batch number"]
    ahead: Ahead | None = None
    """What targets look at, where they look further ahead than one step."""

    def look_ahead(self) -> PolicyBatch:
        """The steps with the states that targets ask the value of as next ones."""
        if self.ahead is None:
            return self
        return self._replace(next_observations=self.ahead.next_observations)


class Agent:
    """Actors, critics and target critics of all members.

    An algorithm is a subclass. It says what a next state is worth (`compute_next_values`) and what
    the actor minimises (`compute_actor_losses`), and it may change the order of an update.
    """

    actor_kind = "deterministic"
    """The kind of the policy; see `ActorSpec`."""
    critics = 2
    has_target_actor = False
    noise_size = 0
    """Random numbers that an update needs for each step and each dimension of the action."""
    actor_every = 1
    """The actor steps with every so many updates of the critics, the first one included."""
    betas = BETAS
    """Adam's averages of gradients and of their squares fade so slowly."""
    loss_names: tuple[str, ...] = ("critic", "actor")
    compiled: tuple[str, ...] = (
        "compute_critic_losses", "compute_actor_losses", "keep_losses", "centre", "follow",
    )  # fmt: skip
    """Methods that become one kernel each where that pays."""

    def __init__(
        self,
        states: int,
        actions: int,
        *,
        seeds: Sequence[int],
        hidden: Sequence[int],
        rates: Members,
        discounts: Members,
        target_rates: Members,
        averaging: float = 0.0,
        centre_rates: Members | None = None,
        normed: Sequence[bool] = (),
    ) -> None:
        """`rates` are the learning rates.

        The policy that acts is the mean of the actor over a share `averaging` of its steps so far.
        `centre_rates` say how fast the mean reward is learned that is subtracted from the rewards.
        `normed` says whose critics have normalised hidden layers.
        """
        self.states, self.actions, self.members = states, actions, len(seeds)
        self.seeds, self.hidden, self.device = list(seeds), tuple(hidden), rates.device
        self.rates, self.discounts, self.averaging = rates, discounts, averaging
        self.actor = self.make_actor()
        self.critic, self.target_critic = self.make_critic(), self.make_critic()
        for critic in (self.critic, self.target_critic):
            critic.normalise([is_normed for is_normed in normed for _ in range(self.critics)])
        self.adams = {
            "actor": Adam(self.list_actor_modules(), rates, betas=self.betas),
            "critic": Adam([self.critic], rates.repeat_interleave(self.critics), betas=self.betas),
        }
        self.targets = {"critic": Flat([self.target_critic.requires_grad_(False)])}
        self._target_rates = {
            "critic": target_rates.repeat_interleave(self.critics).unsqueeze(1),
            "actor": target_rates.unsqueeze(1),
        }
        if self.has_target_actor:
            self.target_actor = self.make_actor()
            self.targets["actor"] = Flat([self.target_actor.requires_grad_(False)])
        self.acting = self.make_actor().requires_grad_(False) if averaging else self.actor
        self.averages = Flat([self.acting]) if averaging else None
        self.mean_rewards = torch.zeros_like(discounts)
        """(member,) what is subtracted from the rewards of the members that are centred."""
        self.centre_rates = centre_rates
        self.losses = torch.zeros((len(self.loss_names), self.members), device=self.device)
        """Losses at the last update, for the log."""

    def make_networks(self, count: int, inputs: int, outputs: int, *, place: int) -> Stack:
        """`count` networks for each member, started from its own seed.

        Networks of the same `place`, from 0 to 3, start alike.
        """
        sizes = (inputs, *self.hidden, outputs)
        return build_members(
            lambda generator: Stack(count, sizes, generator=generator),
            [seed * 4 + place for seed in self.seeds],
        ).to(self.device)

    def make_actor(self) -> Stack:
        """The policy networks as they are at the start."""
        outputs = self.actions * (2 if self.actor_kind == "gaussian" else 1)
        return self.make_networks(1, self.states, outputs, place=0)

    def make_critic(self) -> Stack:
        """The critics as they are at the start."""
        return self.make_networks(self.critics, self.states + self.actions, 1, place=1)

    def list_actor_modules(self) -> list[nn.Module]:
        """The modules that the optimiser of the actor trains."""
        return [self.actor]

    def moves_actor(self, update: int) -> bool:
        """Whether the actor steps with the update of this number, counted from 0."""
        return update % self.actor_every == 0

    def update(self, batch: PolicyBatch, *, with_actor: bool = True) -> None:
        """One step of the critics and, if it is their turn, of the actor and the targets."""
        self.step_critics(batch)
        if with_actor:
            self.step_actor(batch)
            self.follow()

    def step_critics(self, batch: PolicyBatch) -> None:
        """One step of the critics, and of the mean reward where it is learned."""
        losses, surprises = self.compute_critic_losses(batch)
        self.step("critic", losses)
        if self.centre_rates is not None:
            self.centre(surprises)

    def step_actor(self, batch: PolicyBatch) -> None:
        """One step of the actor, and of the policy that acts."""
        self.step("actor", self.compute_actor_losses(batch))
        if self.averages is not None:
            with torch.no_grad():
                memory = (self.averaging * self.adams["actor"].steps).clamp_min(1.0)
                self.averages.values.lerp_(self.adams["actor"].flat.values, 1 / memory)

    def step(self, name: str, losses: Float[Tensor, "member *critic"]) -> None:
        """One step of the optimiser with this name; the losses are kept for the log."""
        self.adams[name].step(losses.flatten())
        self.keep_losses(self.loss_names.index(name), losses)

    @torch.no_grad()
    def keep_losses(self, place: int, losses: Float[Tensor, "member *critic"]) -> None:
        """Keep losses for the log."""
        self.losses[place] = losses.view(self.members, -1).mean(1)

    @torch.no_grad()
    def centre(self, surprises: Members) -> None:
        """Move the mean rewards by how much the targets exceed the values."""
        assert self.centre_rates is not None
        surprises = torch.nan_to_num(surprises, posinf=0.0, neginf=0.0)
        self.mean_rewards.add_(self.centre_rates * surprises)

    @torch.no_grad()
    def follow(self) -> None:
        """Move the target networks a little towards the networks that learn."""
        for name, target in self.targets.items():
            target.values.lerp_(self.adams[name].flat.values, self._target_rates[name])

    def stop_centring(self, member: int) -> None:
        """Subtract nothing from this member's rewards any more.

        Where an episode can end by itself, subtracting the mean would change which policy is best.
        """
        if self.centre_rates is not None:
            self.centre_rates[member] = 0.0
            self.mean_rewards[member] = 0.0

    def compute_critic_losses(self, batch: PolicyBatch) -> tuple[CriticLosses, Members]:
        """The losses, and by how much the targets exceed the values on average."""
        with torch.no_grad():
            targets = self.compute_targets(batch, self.compute_next_values(batch.look_ahead()))
        values = self.compute_values(self.critic, batch.observations, batch.actions)
        return self.compare(batch, values, targets)

    def compare(
        self, batch: PolicyBatch, values: Values, targets: Steps
    ) -> tuple[CriticLosses, Members]:
        """What `compute_critic_losses` gives."""
        gaps = targets - values.detach().mean(1)
        if batch.ahead is not None:
            gaps = gaps / self._weigh(batch.ahead)
        return critic_loss(values, targets), gaps.mean(1)

    def compute_targets(self, batch: PolicyBatch, next_values: Steps) -> Steps:
        """What the values should be. Those with `ahead` are n-step returns (Hessel et al., 2018):
        what an action leads to much later shows after fewer updates.

        What SAC pays for entropy counts in the next value alone, not at the steps before.
        """
        if batch.ahead is None:
            rewards = batch.rewards - self.mean_rewards.unsqueeze(1)
            return bellman_target(rewards, batch.terminated, next_values, discount=self.discounts)
        rewards = batch.ahead.rewards - self.mean_rewards.unsqueeze(1) * self._weigh(batch.ahead)
        later = self.discounts.unsqueeze(1) ** batch.ahead.counts
        return rewards + later * (1 - batch.ahead.terminated) * next_values

    def _weigh(self, ahead: Ahead) -> Steps:
        """1 + discount + ...: how often the mean reward is among the rewards of some steps."""
        discounts = self.discounts.unsqueeze(1)
        often = (1 - discounts**ahead.counts) / (1 - discounts)
        return torch.where(discounts < 1, often, ahead.counts)

    def compute_next_values(self, batch: PolicyBatch) -> Steps:
        """The values of the next states."""
        raise NotImplementedError

    def compute_actor_losses(self, batch: PolicyBatch) -> Members:
        """Compute the losses that the actor minimises."""
        raise NotImplementedError

    def compute_values(
        self, critic: Stack, observations: States, actions: Actions, *, frozen: bool = False
    ) -> Values:
        """Q(s, a) by each critic; `frozen` lets no gradient reach the critics."""
        inputs = torch.cat([observations, actions], -1)
        values = cast(Tensor, critic(inputs, frozen=frozen, repeats=self.critics))
        return values.view(self.members, self.critics, -1)

    def compile(self, backend: str) -> None:
        """Fuse what lies between the matrix products, on devices where that pays."""
        for name in self.compiled:
            method = torch.compile(getattr(self, name), dynamic=False, backend=backend)
            setattr(self, name, method)
        for adam in self.adams.values():
            adam.compile(backend)

    def export_actors(
        self, mean: NDArray[np.floating[Any]], std: NDArray[np.floating[Any]]
    ) -> NDArray[np.float32]:
        """(member, number) weights of actors that take observations as they are.

        The networks see (s - mean) / std, which is worked into the first layer:
        (s - m) / d W + b = s (W / d) + (b - m W / d). `mean` is (state,), `std` is (state,) or
        (member, state); an infinite `std` hides a dimension.
        """
        parts = [part.flatten(1) for layer in self.acting.fold() for part in layer]
        flat = torch.cat(parts, 1).numpy(force=True)
        edge, units = parts[0].shape[1], parts[1].shape[1]
        weight, bias = flat[:, :edge], flat[:, edge : edge + units]
        # In float64, because the means of some observations are large.
        scaled = weight.reshape(self.members, -1, units) / std.astype(np.float64)[..., None]
        bias[...] = bias - mean.astype(np.float64) @ scaled
        weight[...] = scaled.reshape(self.members, -1)
        return flat

    def gather_actors(self, seen: Float[Tensor, "member state"]) -> Float[Tensor, "member number"]:
        """`export_actors` on the device, for networks that see each dimension times a number.

        Where `seen` is 0, a dimension is hidden.
        """
        (first, bias), *rest = self.acting.fold()
        shown = first.view(self.members, seen.shape[1], -1) * seen.unsqueeze(2)
        parts = [shown, bias, *(part for layer in rest for part in layer)]
        return torch.cat([part.flatten(1) for part in parts], 1)

    def count_skipped(self) -> Members:
        """Updates that were left out because they were not finite, of the worst optimiser."""
        counts = [adam.skipped.view(self.members, -1) for adam in self.adams.values()]
        return torch.cat(counts, 1).amax(1)

    def find_log_values(self) -> dict[str, Tensor]:
        """Other numbers for the log, (member,) each."""
        return {}

    def state(self) -> dict[str, Any]:
        """Everything that an update changes and a resumed run needs."""
        state: dict[str, Any] = {name: adam.state() for name, adam in self.adams.items()}
        state["mean_rewards"] = self.mean_rewards
        state["targets"] = {name: target.values for name, target in self.targets.items()}
        if self.centre_rates is not None:
            state["centre_rates"] = self.centre_rates
        if self.averages is not None:
            state["acting"] = self.averages.values
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        restore(self.state(), state)
