"""`grd` with `--fit paper` or `--fit joint-net`: masks, reward and dynamics by gradient.

Each update takes M whole episodes for the reward and its masks, the policy's N steps for the
dynamics and theirs, and one step of Adam on L_m = L_rew + L_dyn + L_reg.

`paper` is as printed: inputs and returns as they are, one sample of the masks per update, the
sparsity terms of the table. `joint-net` is the same model made to work: inputs and returns brought
to unit scale as data come in, a dense start, masks that start on, with their own learning rate and
a price per edge, a sample of them for each episode, a smaller dynamics net that is told which
dimension it predicts and works on a few of them per update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grd_offline.agents.batch import Steps
from grd_offline.losses import (
    SparsityWeights,
    dynamics_loss,
    edge_count_loss,
    return_loss,
    sparsity_loss,
)
from grd_offline.members.draws import to_gumbel
from grd_offline.members.nn import (
    DynamicsNet,
    GraphMasks,
    Masks,
    RewardNet,
    build_members,
    sample_edges,
)
from grd_offline.members.optimiser import Adam
from grd_offline.online.replay import FinishedEpisode, Replay
from grd_offline.online.sources import Draws, Source
from grd_offline.rewards.network import NetworkFunction, NetworkReward


@dataclass(frozen=True)
class GenerativeSettings:
    """What `paper` and `joint-net` do differently; the defaults are the paper's."""

    standardise: bool = False
    """Bring inputs and returns to unit scale."""
    mask_start: float = 0.0
    """psi_0 - psi_1 at first."""
    mask_spread: float = 1.0
    """Std of the mask logits at first; not printed. The authors' code too starts half on."""
    mask_rate: float | None = None
    """Adam's rate for the mask logits; None: that of the networks."""
    mask_per_episode: bool = False
    """A sample of the reward's masks for each episode instead of one for all."""
    dynamics_samples: int = 1
    """Samples of the dynamics' masks, each for an equal part of the steps."""
    dense_updates: int = 0
    """So many first updates have every edge on."""
    edge_price: float | None = None
    """Weight of each edge's probability; None: the paper's log-probabilities and lambdas."""
    dynamics_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the dynamics net."""
    embedding: int = 0
    """Size of the vector that tells the dynamics net which dimension it predicts."""
    dynamics_outputs: int | None = None
    """So many state dimensions per update, in turn; None: all."""
    activation: str = "relu"
    """Of the dynamics net."""


PAPER = GenerativeSettings()
JOINT_NET = GenerativeSettings(
    standardise=True,
    mask_start=3.0,
    mask_spread=0.0,
    mask_rate=0.02,
    mask_per_episode=True,
    dynamics_samples=8,
    dense_updates=2000,
    edge_price=0.003,
    dynamics_hidden=(64, 64),
    embedding=8,
    dynamics_outputs=8,
    activation="silu",
)


class Generative(Source):
    """phi_cau, phi_rew and phi_dyn of some members, and one joint update of them."""

    loss_names = ("reward", "dynamics", "sparsity")

    def __init__(
        self,
        members: slice,
        replay: Replay,
        *,
        settings: GenerativeSettings,
        seeds: Sequence[int],
        episodes: int,
        hidden: Sequence[int],
        rates: Tensor,
        lambdas: SparsityWeights,
    ) -> None:
        """`rates` is (member,), and so may each of `lambdas` be."""
        super().__init__(members, replay)
        self.settings, self.lambdas, self._episodes = settings, lambdas, episodes
        self.states, self.actions = replay.observations.shape[-1], replay.actions.shape[-1]
        device = replay.device
        chosen = [seed * 4 + 2 for seed in seeds]
        self.graph = build_members(self._make_graph, chosen).to(device)
        inputs = self.states + self.actions
        self.reward = build_members(
            lambda generator: RewardNet(1, inputs, hidden=hidden, generator=generator), chosen
        ).to(device)
        self.dynamics = build_members(self._make_dynamics, [seed + 1 for seed in chosen]).to(device)
        own = None if settings.mask_rate is None else (self.graph, settings.mask_rate)
        self.adam = Adam([self.graph, self.reward, self.dynamics], rates, own=own)
        self._draws = Draws(
            seeds,
            device,
            (episodes,),
            (episodes if settings.mask_per_episode else 1, inputs, 2),
            (settings.dynamics_samples, inputs, self.states, 2),
        )
        self._normaliser = Normaliser(self.size, inputs) if settings.standardise else None
        self._mean = torch.zeros((self.size, 1, inputs), device=device)
        self._std = torch.ones((self.size, 1, inputs), device=device)
        # r = offset + scale * net, and returns are divided by spread before they are compared
        self._offset = torch.zeros((self.size, 1), device=device)
        self._scale = torch.ones((self.size, 1), device=device)
        self._spread = torch.ones((self.size, 1), device=device)
        self._terms = torch.zeros((3, self.size), device=device)
        self.losses = self._terms
        self._terms_of = self._compute_terms

    def _make_graph(self, generator: torch.Generator) -> GraphMasks:
        start, spread = self.settings.mask_start, self.settings.mask_spread
        return GraphMasks(
            1, self.states, self.actions, start=start, spread=spread, generator=generator
        )

    def _make_dynamics(self, generator: torch.Generator) -> DynamicsNet:
        return DynamicsNet(
            1,
            self.states,
            self.actions,
            hidden=self.settings.dynamics_hidden,
            embedding=self.settings.embedding,
            log_std_range=(-5.0, 2.0) if self.settings.standardise else (-7.0, 7.0),
            activation=self.settings.activation,
            generator=generator,
        )

    def update(self, steps: Steps, counter: Tensor) -> None:
        """One step of Adam on L_m."""
        cuda = self.replay.device.type == "cuda"
        rows = self._episodes * self.replay.longest if cuda else None
        terms = self._terms_of(steps, counter, rows)
        self.adam.step(terms.sum(0))
        self._terms.copy_(terms.detach())

    def compile(self, backend: str) -> None:
        self._terms_of = torch.compile(self._compute_terms, dynamic=False, backend=backend)
        self.adam.compile(backend)

    def _compute_terms(self, steps: Steps, counter: Tensor, rows: int | None) -> Tensor:
        """(term, member)"""
        picks, reward_noise, dynamics_noise = self._draws.draw(counter)
        # 1 while every edge is to be on; a tensor, since a captured graph has no branches
        dense = (counter <= self.settings.dense_updates).to(torch.float32)
        reward_loss = self._compute_reward_loss(picks, to_gumbel(reward_noise), dense, rows)
        next_loss = self._compute_dynamics_loss(steps, to_gumbel(dynamics_noise), dense, counter)
        sparsity = self._compute_sparsity() * (1 - dense)
        return torch.stack([reward_loss, next_loss, sparsity])

    def _compute_reward_loss(
        self, picks: Tensor, noise: Tensor, dense: Tensor, rows: int | None
    ) -> Tensor:
        stretch = self.replay.draw_episodes(picks, self.members, rows)
        logits = torch.cat([self.graph.state_to_reward, self.graph.action_to_reward], 1)
        mask = _sample(logits, noise, dense)  # (member, copy, input)
        if self.settings.mask_per_episode:
            mask = stretch.valid.to(mask.dtype).mT @ mask  # (member, row, input)
        rewards = self.reward(self._scale_inputs(stretch.observations, stretch.actions), mask)
        returns = stretch.returns
        if self.settings.standardise:
            returns = (returns - self._offset * stretch.lengths) / self._spread
            rewards = rewards * (self._scale / self._spread)
        by_episode = rewards.unsqueeze(1).expand(stretch.valid.shape)
        return return_loss(by_episode, stretch.valid, returns)

    def _compute_dynamics_loss(
        self, steps: Steps, noise: Tensor, dense: Tensor, counter: Tensor
    ) -> Tensor:
        count = min(self.states, self.settings.dynamics_outputs or self.states)
        outputs = torch.arange(count, device=noise.device)
        if count < self.states:
            outputs = (counter * count + outputs) % self.states
        logits = torch.cat([self.graph.state_to_state, self.graph.action_to_state], 1)
        mask = _sample(logits.index_select(2, outputs), noise.index_select(3, outputs), dense)
        samples = mask.shape[1]
        if samples > 1:
            batch = steps.actions.shape[1]
            mask = mask.repeat_interleave(-(-batch // samples), 1)[:, :batch]
        inputs = self._scale_inputs(steps.observations, steps.actions)
        mixture = self.dynamics(inputs, mask, outputs)
        states = self.states
        following = steps.next_observations
        if self.settings.standardise:
            following = (following - self._mean[..., :states]) / self._std[..., :states]
        targets = following.index_select(2, outputs)
        parts = (mixture.logits, mixture.means, mixture.log_stds)
        return dynamics_loss(*parts, targets, dimensions=states)

    def _compute_sparsity(self) -> Tensor:
        probabilities = self.graph.compute_probabilities()
        price = self.settings.edge_price
        if price is None:
            return sparsity_loss(*probabilities, weights=self.lambdas).total
        weights = SparsityWeights(price, price, price, price, price)
        return edge_count_loss(*probabilities, weights=weights).total

    def _scale_inputs(self, observations: Tensor, actions: Tensor) -> Tensor:
        inputs = torch.cat([observations, actions], -1)
        return (inputs - self._mean) / self._std if self.settings.standardise else inputs

    def compute_rewards(self, steps: Steps) -> Tensor:
        chosen = self.graph.choose()
        mask = torch.cat([chosen.state_to_reward, chosen.action_to_reward], 1).unsqueeze(1)
        rewards: Tensor = self.reward(self._scale_inputs(steps.observations, steps.actions), mask)
        return rewards * self._scale + self._offset if self.settings.standardise else rewards

    def add(self, member: int, episode: FinishedEpisode) -> None:
        if self._normaliser is not None:
            self._normaliser.add(member, episode)

    def find_masks(self) -> Masks:
        return self.graph.choose()

    def refresh(self) -> None:
        if self._normaliser is not None:
            device = self._mean.device
            scales = self._normaliser.compute_scales()
            targets = (self._mean, self._std, self._offset, self._scale, self._spread)
            for target, value in zip(targets, scales, strict=True):
                target.copy_(torch.from_numpy(value.astype(np.float32)).to(device))

    def export(self, member: int) -> NetworkFunction:
        """The member's reward as a function in the environment's units."""
        chosen = self.graph.choose()
        masks = torch.cat([chosen.state_to_reward, chosen.action_to_reward], 1)
        module = copy_member(self.reward, member, masks[member])
        with torch.no_grad():
            module.mean.copy_(self._mean[member, 0])
            module.std.copy_(self._std[member, 0])
            module.offset.copy_(self._offset[member])
            module.scale.copy_(self._scale[member])
        return NetworkFunction(module, states=self.states, actions=self.actions)

    def state(self) -> dict[str, Any]:
        sums = None if self._normaliser is None else self._normaliser.sums
        return {"model": self.adam.state(), "sums": sums}

    def load_state(self, state: dict[str, Any]) -> None:
        self.adam.load_state(state["model"])
        if self._normaliser is not None:
            self._normaliser.sums[...] = state["sums"]
        self.refresh()

    @property
    def skipped(self) -> Tensor:
        return self.adam.skipped.squeeze(1)


def copy_member(
    nets: RewardNet, member: int, mask: Tensor, *, needs_next: bool = False
) -> NetworkReward:
    """One member's reward net on its own, on the CPU."""
    weights = nets.stack.weights
    hidden = [weight.shape[-1] for weight in weights[:-1]]
    inputs = weights[0].shape[1]
    net = RewardNet(1, inputs, hidden=hidden, activation=nets.stack.activation)
    module = NetworkReward(net, members=1, columns=range(inputs), needs_next=needs_next)
    with torch.no_grad():
        for ours, theirs in zip(net.parameters(), nets.parameters(), strict=True):
            ours.copy_(theirs[member : member + 1])
        module.mask.copy_(mask)
    return module


class Normaliser:
    """Running sums over all finished episodes, and the scales that follow from them."""

    def __init__(self, members: int, inputs: int) -> None:
        self._inputs = inputs
        # T, R, R T, R^2, T^2, episodes, then x and x^2 of each input
        self.sums = np.zeros((members, 6 + 2 * inputs))

    def add(self, member: int, episode: FinishedEpisode) -> None:
        """Count an episode in."""
        steps, total = float(len(episode.actions)), float(episode.rewards.sum())
        values = np.hstack([episode.observations[:-1], episode.actions]).astype(np.float64)
        numbers = [steps, total, total * steps, total**2, steps**2, 1.0]
        self.sums[member] += np.concatenate([numbers, values.sum(0), (values**2).sum(0)])

    def compute_scales(self) -> tuple[np.ndarray, ...]:
        """Mean and std of the inputs; offset, scale and spread of rewards and returns.

        The offset is c = sum R / sum T: subtracting the mean return instead would be wrong for
        episodes of unequal length. The spread is that of R - c T over episodes; the net's unit is
        the spread over the root of the mean length.
        """
        steps, returns, mixed, squares, lengths, count = self.sums[:, :6].T
        steps, count = np.maximum(steps, 1), np.maximum(count, 1)
        mean = self.sums[:, 6 : 6 + self._inputs] / steps[:, None]
        variance = self.sums[:, 6 + self._inputs :] / steps[:, None] - mean**2
        std = np.sqrt(np.maximum(variance, 0))
        std[std < 1e-6] = 1.0
        offset = returns / steps
        gap = (squares - 2 * offset * mixed + offset**2 * lengths) / count
        spread = np.maximum(np.sqrt(np.maximum(gap, 0)), 1e-6)
        scale = spread / np.sqrt(steps / count)
        return mean[:, None], std[:, None], offset[:, None], scale[:, None], spread[:, None]


def _sample(logits: Tensor, noise: Tensor, dense: Tensor) -> Tensor:
    """(member, copy, ...) masks; all 1 where `dense` is."""
    shape = (noise.shape[0], noise.shape[1], *logits.shape[1:])
    sampled = sample_edges(logits.unsqueeze(1).expand(shape), noise, temperature=1.0)
    return sampled * (1 - dense) + dense
