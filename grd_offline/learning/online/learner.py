"""Everything that learns in an online run, and one update of all members.

An update draws steps. Every source of rewards learns from them and from whole episodes. Then the
agents are trained on the rewards that the sources compute. On CUDA the update is recorded once as
a graph and replayed.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from grd_offline.core.endings import Endings
from grd_offline.core.graph import compact_closure, compact_one_hop
from grd_offline.learning.agents.agent import Ahead, PolicyBatch, ReplaySteps
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.online.closed_form import ClosedFormSource
from grd_offline.learning.online.replay import FinishedEpisode, Replay, TrueRewards
from grd_offline.learning.online.sources import (
    Delayed,
    Generative,
    IrcrSource,
    Oracle,
    Quadratic,
    RewardSource,
    RrdSource,
)
from grd_offline.learning.runs.run import RunLearner
from grd_offline.learning.settings import Member, OnlineSettings
from grd_offline.networks.members.device import Download
from grd_offline.networks.members.nn import Masks, UniformNumbers

Flags = NDArray[np.bool_]


class CompactStates:
    """The compact states of the members of one source."""

    def __init__(self, rule: str) -> None:
        """`rule` is `closure`, all states from which a path leads to the reward, or `one_hop`."""
        self._find_causes = compact_closure if rule == "closure" else compact_one_hop
        self._masks: Masks | None = None
        self._known: dict[tuple[int, bytes], Flags] = {}
        """Compact states by member and by the states that they must hold."""

    def find(self, masks: Masks, signs: Sequence[Flags | None]) -> Flags:
        """(member, state) the compact states: the causes of the reward and of the `signs`.

        Masks that have changed must be a new object. A member whose signs are None sees everything.
        """
        if masks is not self._masks:
            self._masks, self._known = masks, {}
            self._to_reward = masks.state_to_reward.numpy(force=True) > 0
            self._to_state = masks.state_to_state.numpy(force=True)
        wanted = np.ones(self._to_reward.shape, np.bool_)
        for place, sign in enumerate(signs):
            # Where nothing is known to matter, nothing is known not to matter either.
            if sign is not None and (needed := self._to_reward[place] | sign).any():
                key = place, needed.tobytes()
                if key not in self._known:
                    self._known[key] = self._find_causes(needed, self._to_state[place]) > 0
                wanted[place] = self._known[key]
        return wanted


STREAM = 0
SOURCES = {
    "none": Delayed, "oracle": Oracle, "ircr": IrcrSource, "quadratic": Quadratic, "rrd": RrdSource,
    "closed-form": ClosedFormSource, "paper": Generative, "joint-net": Generative,
}  # fmt: skip
"""The source of rewards of each kind of member."""


class Learner(RunLearner):
    """Replay, sources of rewards and agents of all members."""

    def __init__(
        self,
        settings: OnlineSettings,
        members: Sequence[Member],
        *,
        states: int,
        low: ArrayLike,
        high: ArrayLike,
        step_limit: int,
        device: torch.device,
        capture: bool = True,
        sizes: ArrayLike | None = None,
        names: tuple[Sequence[str], Sequence[str]] | None = None,
        is_discrete: bool = False,
    ) -> None:
        """Policies see their states divided by `sizes`, one for each state."""
        super().__init__(device, capture=capture)
        self.settings, self.members = settings, list(members)
        count, actions = len(self.members), len(np.asarray(low))
        capacity = max(min(settings.replay, settings.steps), step_limit)
        self.replay = Replay(count, capacity, states, actions, step_limit, device)
        lowest, highest = (self.replay.send(bound) for bound in (low, high))
        self._centre, self._half = (highest + lowest) / 2, (highest - lowest) / 2
        self._seeds = [member.seed for member in members]
        algorithm = find_algorithm(settings.backbone)
        self.agent = algorithm.find_class(is_discrete=is_discrete)(
            states,
            actions,
            seeds=self._seeds,
            hidden=settings.hidden,
            rates=self.replay.send(member.learning_rate for member in members),
            discounts=self.replay.send(member.policy_discount for member in members),
            target_rates=self.replay.send(member.target_rate for member in members),
            centre_rates=self.replay.send(
                member.centre_rate if member.policy_discount == 1 else 0.0 for member in members
            ),
            normed=[bool(member.critic_norm) for member in members],
            **algorithm.pick_settings(settings),
        )
        self.sources: list[RewardSource] = []
        kinds = [member.kind for member in members]
        for kind in dict.fromkeys(kinds):
            first = kinds.index(kind)
            where = slice(first, first + kinds.count(kind))
            source = SOURCES[kind](where, self.replay, self.members[where], settings)
            source.names = names
            self.sources.append(source)
        self._scale = 1 / np.broadcast_to(np.asarray(1 if sizes is None else sizes), (states,))
        self.mask = torch.ones((count, states), device=device) * self.replay.send(self._scale)
        """(member, state) what the policies' states are multiplied by: 0 hides a state."""
        self._absent = np.zeros((count, states), np.int64)
        self.endings = [Endings(states) for _ in self.members]
        self._seen: NDArray[np.bool_] | None = None
        """The states that `mask` was last set to show, or None if they are not known."""
        self._is_uncentred = [False] * count
        self._compact = [CompactStates(settings.compact) for _ in self.sources]
        self._noise_size = self.agent.noise_size * actions
        numbers = settings.batch * (1 + self._noise_size)
        self._uniform = UniformNumbers(self._seeds, numbers, stream=STREAM, device=device)
        self._draw = self._draw_steps
        self._rewards = [source.compute_rewards for source in self.sources]
        if self._capture:
            self.compile()

    def add(self, member: int, episode: FinishedEpisode, truth: TrueRewards) -> None:
        """Take in a finished episode of a member. The truth goes to `oracle` alone."""
        self.add_all([(member, episode, truth)])

    def add_all(self, finished: Sequence[tuple[int, FinishedEpisode, TrueRewards]]) -> None:
        """Take in finished episodes of some members."""
        if not finished:
            return
        every_rows = self.replay.add_all([(member, episode) for member, episode, _ in finished])
        for (member, episode, truth), rows in zip(finished, every_rows, strict=True):
            self.endings[member].add(episode.observations, episode.terminated)
            if episode.terminated and not self._is_uncentred[member]:
                self._is_uncentred[member] = True
                self.agent.stop_centring(member)
            source, place = self.find_source(member)
            source.add(place, episode)
            if isinstance(source, Oracle):
                source.add_truth(place, rows, truth)

    def find_source(self, member: int) -> tuple[RewardSource, int]:
        """The source of a member's reward, and the member's place in it."""
        for source in self.sources:
            if source.members.start <= member < source.members.stop:
                return source, member - source.members.start
        raise IndexError(member)

    def refresh(self) -> None:
        """After a round: sources take in what is new, and policies see the new compact state."""
        for source in self.sources:
            source.refresh()
        wanted = self.compute_compact()
        self._absent = np.where(wanted, 0, self._absent + self.settings.round_steps)
        seen = self._absent <= self.settings.compact_patience
        if self._seen is None or not np.array_equal(seen, self._seen):
            self._seen = seen
            self.mask.copy_(self.replay.upload((seen * self._scale).astype(np.float32)))

    def prepare(self) -> None:
        """Do what the next `refresh` will need, while the device is at the updates of a round."""
        for source in self.sources:
            source.prepare()

    def compute_compact(self) -> NDArray[np.bool_]:
        """(member, state) the compact state as the masks now have it.

        It holds the causes of the reward, and those of the end of an episode.
        """
        wanted = np.ones(self._absent.shape, np.bool_)
        signs = [
            endings.find_signs() if member.method == "grd" else None
            for member, endings in zip(self.members, self.endings, strict=True)
        ]
        for source, compact in zip(self.sources, self._compact, strict=True):
            masks = source.find_masks()
            if masks is not None:
                wanted[source.members] = compact.find(masks, signs[source.members])
        return wanted

    def cuda_graph_key(self) -> Hashable:
        return tuple(source.cuda_graph_key() for source in self.sources)

    def _update(self, with_actor: bool) -> None:
        """Lines 16 to 30 of the paper's Algorithm 1, for all members at once.

        `refresh` works out the compact state of line 28, which changes from round to round.
        """
        steps, seen, uniform = self._draw(self.counter)
        paid, valid = steps, None
        if self.settings.target_steps > 1:
            paid, valid = self.replay.follow(steps.rows, self.settings.target_steps)
        parts = []
        for source, compute_rewards in zip(self.sources, self._rewards, strict=True):
            # lines 16 to 24: one step on L_m
            source.update(self._choose(steps, source), self.counter)
            with torch.no_grad():
                parts.append(compute_rewards(self._choose(paid, source)))  # lines 27 and 29
        rewards = torch.cat(parts) if len(parts) > 1 else parts[0]
        ahead = None
        if valid is not None:
            rewards, ahead = self._sum_ahead(steps, rewards.view(valid.shape), valid)
        # line 30: Eq. 8, on states behind the compact mask
        batch = PolicyBatch(*seen, steps.terminated, rewards, uniform, ahead)
        self.agent.update(batch, with_actor=with_actor)

    def _choose(self, steps: ReplaySteps, source: RewardSource) -> ReplaySteps:
        """The steps of the members of one source."""
        if len(self.sources) == 1:
            return steps
        return ReplaySteps(*(part[source.members] for part in steps))

    def _sum_ahead(
        self, steps: ReplaySteps, rewards: Tensor, valid: Tensor
    ) -> tuple[Tensor, Ahead]:
        """The rewards of the steps themselves, and what comes of them within a few steps.

        `rewards` and `valid` (member, batch, step) are those of the steps from each of them on.
        """
        counts = valid.sum(2)
        later = torch.arange(valid.shape[2], device=valid.device)
        powers = self.agent.discounts.view(-1, 1, 1) ** later
        last = self.replay.take(steps.rows + counts - 1)
        total = (rewards * powers * valid).sum(2)
        seen = last.next_observations * self.mask.unsqueeze(1)
        ahead = Ahead(total, rewards, counts.to(rewards.dtype), seen, last.terminated)
        return rewards[..., 0], ahead

    def _draw_steps(
        self, counter: Tensor
    ) -> tuple[ReplaySteps, tuple[Tensor, Tensor, Tensor], Tensor]:
        """Count an update, and draw its steps and random numbers.

        The second of three are observations, actions and next observations as the agents see them:
        the compact state, and actions between -1 and 1.
        """
        batch = self.settings.batch
        counter += 1
        uniform = self._uniform.draw(counter)
        noise = uniform[:, batch:].view(len(self.members), batch, self._noise_size)
        steps, mask = self.replay.draw_steps(uniform[:, :batch]), self.mask.unsqueeze(1)
        actions = (steps.actions - self._centre) / self._half
        return steps, (steps.observations * mask, actions, steps.next_observations * mask), noise

    def compile(self, backend: str = "inductor") -> None:
        """Fuse what lies between matrix products; `backend` is one of torch.compile's."""
        self._draw = torch.compile(self._draw_steps, dynamic=False, backend=backend)
        self.agent.compile(backend)
        for source in self.sources:
            source.compile(backend)
        self._rewards = [
            torch.compile(source.compute_rewards, dynamic=False, backend=backend)
            for source in self.sources
        ]

    def export_actors(self) -> NDArray[np.float32]:
        return self.begin_export().finish()

    def begin_export(self) -> Download:
        """Weights of actors that take observations as they are, without waiting for the device."""
        return Download(self.agent.gather_actors(self.mask))

    def close(self) -> None:
        """End what goes on beside the updates."""
        for source in self.sources:
            source.close()

    def begin_skipped(self) -> Download:
        """Count as `count_skipped` does: of critics, actor and source what left out the most."""
        sources = torch.cat([source.skipped for source in self.sources])
        return Download(torch.maximum(self.agent.count_skipped(), sources))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "sources": [source.changes() for source in self.sources]}

    def save_state(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {
            **super().state(),
            "sources": [source.state() for source in self.sources],
            "updates": self.updates,
            "absent": self._absent,
            "endings": [endings.state() for endings in self.endings],
            "mask": self.mask,
            "replay": self.replay.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `save_state` gave."""
        self.counter.copy_(state["counter"])
        self.agent.load_state(state["policy"])
        self.replay.load_state(state["replay"])
        for source, part in zip(self.sources, state["sources"], strict=True):
            source.load_state(part)
        self.updates = int(state["updates"])
        self._absent = np.array(state["absent"])
        for endings, part in zip(self.endings, state["endings"], strict=True):
            endings.load_state(part)
        self.mask.copy_(state["mask"])
        self._seen = None
