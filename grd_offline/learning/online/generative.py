"""`grd` with `--fit paper` or `--fit joint-net`: the generative model, driven by the replay.

Each update draws M whole episodes for the reward and its masks (D_1) and takes the policy's N steps
for the dynamics and theirs (D_2); `grd_offline.methods.models.generative` has the model and the
two fits.
`joint-net` sees inputs and returns at unit scale, which follows the episodes as they come in.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from grd_offline.learning.agents.batch import ReplaySteps
from grd_offline.learning.online.replay import FinishedEpisode, Replay
from grd_offline.learning.online.settings import Member, OnlineSettings
from grd_offline.learning.online.sources import RewardSource, SourceNumbers
from grd_offline.methods.models import generative
from grd_offline.methods.training import copy_member, export_reward
from grd_offline.networks.losses import SparsityWeights
from grd_offline.networks.members.capture import SideStream
from grd_offline.networks.members.draws import to_gumbel
from grd_offline.networks.members.nn import Masks, RewardNet, build_members
from grd_offline.rewards.network import NetworkFunction

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Generative(RewardSource):
    """The generative model of some members, learned from the replay beside the policy."""

    loss_names = ("reward", "dynamics", "sparsity")

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        super().__init__(where, replay, members, settings)
        self.settings = fit = (
            generative.PAPER if members[0].kind == "paper" else generative.JOINT_NET
        )
        self.states, self.actions = replay.observations.shape[-1], replay.actions.shape[-1]
        states, actions, device = self.states, self.actions, replay.device
        inputs, hidden, self._episodes = states + actions, settings.hidden, settings.episodes
        seeds = [member.seed * 4 + 2 for member in members]
        further = [seed + 1 for seed in seeds]
        columns = zip(*(member.lambdas for member in members), strict=True)
        self.model = generative.GenerativeModel(
            build_members(lambda g: fit.build_graph(1, states, actions, generator=g), seeds).to(
                device
            ),
            build_members(lambda g: RewardNet(1, inputs, hidden=hidden, generator=g), seeds).to(
                device
            ),
            build_members(
                lambda g: fit.build_dynamics(1, states, actions, generator=g), further
            ).to(device),
            settings=fit,
            lambdas=SparsityWeights(*(replay.send(c) for c in columns)),  # type: ignore[arg-type]
            rates=replay.send(member.model_rate for member in members),
        )
        self._draws = SourceNumbers(
            [member.seed for member in members],
            device,
            (self._episodes,),
            (self._episodes if fit.mask_per_episode else 1, inputs, 2),
            (fit.dynamics_samples, inputs, states, 2),
        )
        self._normaliser = Normaliser(self.size, inputs) if fit.standardise else None
        self._mean = torch.zeros((self.size, 1, inputs), device=device)
        self._std = torch.ones((self.size, 1, inputs), device=device)
        # r = offset + scale * net, and returns are divided by spread before they are compared
        self._offset = torch.zeros((self.size, 1), device=device)
        self._scale = torch.ones((self.size, 1), device=device)
        self._spread = torch.ones((self.size, 1), device=device)
        self._terms = torch.zeros((3, self.size), device=device)
        self.losses = self._terms
        self._side = SideStream(device)
        self._reward_loss_of = self._compute_reward_loss
        self._dynamics_losses_of = self._compute_dynamics_losses

    def update(self, steps: ReplaySteps, counter: Tensor) -> None:
        cuda = self.replay.device.type == "cuda"
        rows = self._episodes * self.replay.longest if cuda else None
        with self._side.fork():
            dynamics, sparsity = self._dynamics_losses_of(steps, counter)
        reward = self._reward_loss_of(counter, rows)
        self._side.join()
        self.model.step(reward + dynamics + sparsity)
        for target, term in zip(self._terms, (reward, dynamics, sparsity), strict=True):
            target.copy_(term.detach())

    def cuda_graph_key(self) -> Hashable:
        """Episodes that have become much longer need other graphs."""
        return self.replay.longest

    def compile(self, backend: str) -> None:
        compile_ = partial(torch.compile, dynamic=False, backend=backend)
        self._reward_loss_of = compile_(self._compute_reward_loss)
        self._dynamics_losses_of = compile_(self._compute_dynamics_losses)
        self.model.adam.compile(backend)

    def _compute_reward_loss(
        self, counter: Int[Tensor, ""], rows: int | None
    ) -> Float[Tensor, "member"]:
        """Compute L_rew."""
        picks, noise = (self._draws.draw_part(counter, part) for part in range(2))
        trajectories = self._draw_trajectories(picks, rows)
        return self.model.compute_return_loss(
            trajectories, to_gumbel(noise), self._is_dense(counter)
        )

    def _compute_dynamics_losses(
        self, steps: ReplaySteps, counter: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "member"], Float[Tensor, "member"]]:
        """Compute L_dyn and L_reg."""
        noise, dense = self._draws.draw_part(counter, 2), self._is_dense(counter)
        transitions = self._make_transitions(steps, counter)
        dynamics = self.model.compute_dynamics_loss(transitions, to_gumbel(noise), dense)
        return dynamics, self.model.compute_sparsity_loss(dense)

    def _is_dense(self, counter: Int[Tensor, ""]) -> Float[Tensor, ""]:
        """1 while every edge is to be on, else 0; a recorded graph has no branches."""
        return (counter <= self.settings.dense_updates).to(torch.float32)

    def _draw_trajectories(
        self, picks: Float[Tensor, "member episode"], rows: int | None
    ) -> generative.Trajectories:
        """D_1, its episodes end to end."""
        stretch = self.replay.draw_episodes(picks, self.members, rows)
        inputs = self._scale_inputs(stretch.observations, stretch.actions).unsqueeze(1)
        if not self.settings.standardise:
            return generative.Trajectories(inputs, stretch.valid, stretch.returns)
        returns = (stretch.returns - self._offset * stretch.lengths) / self._spread
        return generative.Trajectories(
            inputs, stretch.valid, returns, unit=self._scale / self._spread
        )

    def _make_transitions(
        self, steps: ReplaySteps, counter: Int[Tensor, ""]
    ) -> generative.Transitions:
        """D_2; where an update predicts a few state dimensions, they take turns."""
        states = self.states
        count = min(states, self.settings.dynamics_outputs or states)
        outputs = torch.arange(count, device=counter.device)
        if count < states:
            outputs = (counter * count + outputs) % states
        next_states = steps.next_observations
        if self.settings.standardise:
            next_states = (next_states - self._mean[..., :states]) / self._std[..., :states]
        return generative.Transitions(
            self._scale_inputs(steps.observations, steps.actions), next_states, outputs
        )

    def _scale_inputs(
        self,
        observations: Float[Tensor, "member batch state"],
        actions: Float[Tensor, "member batch action"],
    ) -> Float[Tensor, "member batch input"]:
        inputs = torch.cat([observations, actions], -1)
        return (inputs - self._mean) / self._std if self.settings.standardise else inputs

    def compute_rewards(self, steps: ReplaySteps) -> Float[Tensor, "member batch"]:
        rewards = self.model.compute_rewards(self._scale_inputs(steps.observations, steps.actions))
        return rewards * self._scale + self._offset if self.settings.standardise else rewards

    def add(self, member: int, episode: FinishedEpisode) -> None:
        if self._normaliser is not None:
            self._normaliser.add(member, episode)

    def find_masks(self) -> Masks:
        return self.model.graph.choose()

    def refresh(self) -> None:
        if self._normaliser is not None:
            device = self._mean.device
            scales = self._normaliser.compute_scales()
            targets = (self._mean, self._std, self._offset, self._scale, self._spread)
            for target, value in zip(targets, scales, strict=True):
                target.copy_(torch.from_numpy(value.astype(np.float32)).to(device))

    def export(self, member: int) -> NetworkFunction:
        return export_reward(
            copy_member(self.model.reward, member),
            self.model.choose_reward_mask()[member : member + 1],
            states=self.states,
            actions=self.actions,
            columns=range(self.states + self.actions),
            mean=self._mean[member, 0],
            std=self._std[member, 0],
            offset=self._offset[member],
            scale=self._scale[member],
        )

    def state(self) -> dict[str, Any]:
        sums = None if self._normaliser is None else self._normaliser.sums
        return {"model": self.model.adam.state(), "sums": sums}

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.adam.load_state(state["model"])
        if self._normaliser is not None:
            self._normaliser.sums[...] = state["sums"]
        self.refresh()

    @property
    def skipped(self) -> Tensor:
        return self.model.adam.skipped.squeeze(1)


class Normaliser:
    """Running sums over all finished episodes, and the scales that follow from them."""

    def __init__(self, members: int, inputs: int) -> None:
        self._inputs = inputs
        # T, R, R T, R^2, T^2, episodes, then x and x^2 of each input
        self.sums = np.zeros((members, 6 + 2 * inputs))

    def add(self, member: int, episode: FinishedEpisode) -> None:
        steps, total = float(len(episode.actions)), episode.episode_return
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
