"""`grd` with `--fit closed-form`: the reward as a sum of effects, the estimator of `decompose`.

At moments that grow geometrically the effects are searched for among an even sample of all episodes
(`effect_search`). The step at which a search takes effect is fixed when it begins, however long it
takes, so that runs repeat themselves. Between two searches each finished episode adds a row to
the sums of the chosen effects, from which their weights are solved for again.

All steps of the replay have their rewards beside them, computed whenever the weights change
(`effect_rewards`). Solves are so rare that this is less work than computing those of each batch,
and an update only has to look them up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grd_offline.additive.moments import MIDPOINT
from grd_offline.core.typing import Array
from grd_offline.learning.agents.batch import ReplaySteps
from grd_offline.learning.online.background import Background, BackgroundCall
from grd_offline.learning.online.effect_rewards import EffectRewards
from grd_offline.learning.online.effect_search import Structure, find_structure, sum_episodes
from grd_offline.learning.online.past import Past, pack, unpack
from grd_offline.learning.online.replay import FinishedEpisode, Replay
from grd_offline.learning.online.settings import Member, OnlineSettings
from grd_offline.learning.online.sources import RewardSource
from grd_offline.networks.members.nn import Masks
from grd_offline.rewards.effects import EffectModel

GROWTH, EARLY_GROWTH, FEW = 0.4, 0.2, 60
"""Share of new episodes that asks for a search; the same while there are fewer episodes than that,
when each says much and a search costs little."""
MOST_BETWEEN = 1000
"""Largest number of episodes between two searches."""
PAUSE, DELAY = 2000, 1000
"""Smallest number of steps between two searches, and until a search takes effect."""
DELAY_SHARE, EARLY_DELAY_SHARE = 0.3, 0.2
"""Share of all steps until a search takes effect, since a search among more episodes takes longer;
the same while there are few episodes, when a search takes little time."""
FEW_INPUTS = 150
"""Among more inputs a search takes longer: `GROWTH` and `EARLY_DELAY_SHARE` grow with their number,
and the larger of both shares counts."""
SOLVE_EVERY = 50
"""Weights are solved for again when the episodes have grown by one part in so many."""
CHUNKS = {"cpu": 2**20, "cuda": 2**25}
"""Numbers that may be held at once while rewards are computed."""


@dataclass
class _Member:
    """The state of the reward of one member."""

    seed: int
    past: Past = field(default_factory=Past)
    structure: Structure | None = None
    waiting: list[FinishedEpisode] = field(default_factory=list)
    """Episodes that are not in the sums yet."""
    rows: list[Array] = field(default_factory=list)
    """The rows of those of them that came first, as far as they have been worked out."""
    job: BackgroundCall | None = None
    """The search that is running, if there is one."""
    since: list[FinishedEpisode] = field(default_factory=list)
    """Episodes that have finished since the search under way began."""
    new: int = 0
    """Number of the newest episodes of the replay that have no rewards yet."""
    due: int = 0
    """Round in which the search under way takes effect."""
    searches: int = 0
    next_count: int = 1
    next_round: int = 0

    def complete_rows(self) -> None:
        """Work out the rows of waiting episodes that have none. Each is a row for itself, so it
        does not matter which are worked out together."""
        assert self.structure is not None
        known = sum(map(len, self.rows))
        if known < len(self.waiting):
            self.rows.append(sum_episodes(self.structure, self.waiting[known:]))

    def take_rows(self) -> Array:
        """(episode, 2 + column) the rows of all episodes that waited."""
        self.complete_rows()
        rows, self.rows, self.waiting = self.rows, [], []
        return np.concatenate(rows) if rows else np.zeros((0, 0))


class ClosedForm(RewardSource):
    """The sums of effects of some members."""

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        super().__init__(where, replay, members, settings)
        self.states, self.actions = replay.observations.shape[-1], replay.actions.shape[-1]
        self.rounds = 0
        self._warmup, self._round_steps = settings.warmup, settings.round_steps
        self._members = [_Member(member.seed) for member in members]
        is_cpu = replay.device.type == "cpu"
        # Sums over the room that another member needs would change the last bit.
        count, size = (self.size, 1) if is_cpu else (1, self.size)
        self._rewards = [
            EffectRewards(size, self.states, self.actions, replay.device) for _ in range(count)
        ]
        self._table = torch.zeros((self.size, replay.rows), device=replay.device)
        """(member, row) the reward of each step in the replay; 0 before the first search."""
        self._background = Background(beside=not is_cpu, most=self.size)
        self._solve_seconds = 0.0
        self._masks: Masks | None = None

    def count_seconds(self) -> dict[str, float]:
        """On an accelerator, searches count as far as they were waited for."""
        return {"solving": self._solve_seconds, "searches": self._background.seconds}

    def add(self, member: int, episode: FinishedEpisode) -> None:
        one = self._members[member]
        one.past.add(episode)
        one.new += 1
        if one.structure is not None:
            one.waiting.append(episode)
        if one.job is not None:
            one.since.append(episode)

    def refresh(self) -> None:
        """Take over searches that are due, begin new ones, and solve where episodes are new."""
        self.rounds += 1
        if self.rounds * self._round_steps < self._warmup:
            return
        for one in self._members:
            if one.job is None and self._asks_for_search(one):
                self._start_search(one)
        ready = [m for m, one in enumerate(self._members) if one.job and one.due <= self.rounds]
        for member in ready:
            self._take_search(member)
        self._solve(ready)

    def prepare(self) -> None:
        """Work out the rows of the episodes that wait for the next solve."""
        began = time.perf_counter()
        for one in self._members:
            if one.structure is not None:
                one.complete_rows()
        self._solve_seconds += time.perf_counter() - began

    def _asks_for_search(self, one: _Member) -> bool:
        is_grown = one.past.count >= one.next_count
        return is_grown and (one.structure is None or self.rounds >= one.next_round)

    def _start_search(self, one: _Member) -> None:
        first = MIDPOINT if one.structure is None else one.structure.state_at
        seed = one.seed, one.searches
        one.job = self._background.start(
            find_structure, pack(one.past.episodes), self.names, seed, first
        )
        shortest = -(-DELAY // self._round_steps)
        longer = max(1.0, (self.states + self.actions) / FEW_INPUTS)
        count = one.past.count
        is_early = count < FEW
        growth = EARLY_GROWTH if is_early else GROWTH * longer
        share = max(EARLY_DELAY_SHARE * longer, 0.0 if is_early else DELAY_SHARE)
        delay = max(shortest, int(share * self.rounds))
        one.due = self.rounds + (0 if one.structure is None else delay)
        one.searches += 1
        one.next_count = count + min(max(int(np.ceil(growth * count)), 3), MOST_BETWEEN)
        one.next_round = self.rounds + -(-PAUSE // self._round_steps)

    def _take_search(self, member: int) -> None:
        """Replace a member's effects, and add what has finished since the search began."""
        one = self._members[member]
        assert one.job is not None
        one.structure = one.job.finish()
        assert one.structure is not None
        one.waiting, one.since, one.rows, one.job = one.since, [], [], None
        self._put(member)

    def _put(self, member: int) -> None:
        """Show the device a member's effects and weights."""
        self._masks = None
        rewards, place = self._find_rewards(member)
        owners = self._members if len(self._rewards) == 1 else [self._members[member]]
        is_new = rewards.make_room([owner.structure for owner in owners])
        for other, owner in enumerate(owners):
            if owner.structure is not None and (is_new or other == place):
                rewards.put_structure(other, owner.structure)
                rewards.put_weights(other, owner.structure)

    def _find_rewards(self, member: int) -> tuple[EffectRewards, int]:
        return (self._rewards[0], member) if len(self._rewards) == 1 else (self._rewards[member], 0)

    def _solve(self, ready: Sequence[int]) -> None:
        """Solve for weights where episodes are new, and put rewards beside the steps."""
        began = time.perf_counter()
        chosen = []
        for member, one in enumerate(self._members):
            if one.structure is None or not (one.waiting or member in ready):
                continue
            if member in ready or len(one.waiting) * SOLVE_EVERY >= one.past.count:
                one.structure.add(one.take_rows())
                one.structure.solve()
                rewards, place = self._find_rewards(member)
                rewards.put_weights(place, one.structure)
                chosen.append(member)
        self._fill_table(chosen)
        self._solve_seconds += time.perf_counter() - began

    def _fill_table(self, chosen: Sequence[int]) -> None:
        """Compute the rewards of all steps of the chosen members, and of new steps of the others.

        Rows that are no steps, such as last observations, get numbers that nobody reads.
        """
        for group, rewards in enumerate(self._rewards):
            own = range(self.size) if len(self._rewards) == 1 else (group,)
            places, new = [], []
            for member in own:
                one, base = self._members[member], member * self.replay.rows
                layout = self.replay.layouts[self.members.start + member]
                count, one.new = one.new, 0
                if member in chosen:
                    last = base + layout.highest - 1
                    places.append(torch.arange(base, last, device=self.replay.device))
                elif one.structure is not None:
                    spans = layout.list_newest(count)
                    new += [base + row + np.arange(size) for row, size in spans]
            if new:
                places.append(self.replay.upload(np.concatenate(new)))
            if places:
                self._fill_places(rewards, torch.cat(places))

    def _fill_places(self, rewards: EffectRewards, places: Tensor) -> None:
        """Compute the rewards in some places of the flat table."""
        replay, start = self.replay, self.members.start * self.replay.rows
        observations, actions = replay.observations.flatten(0, 1), replay.actions.flatten(0, 1)
        terminated = replay.numbers.flatten(0, 1)[:, 0]
        for at in torch.split(places, max(1, CHUNKS[replay.device.type] // rewards.width)):
            owners = at // replay.rows if rewards.members > 1 else torch.zeros_like(at)
            rows = at + start
            found = rewards.compute(
                owners, observations[rows], actions[rows], observations[rows + 1], terminated[rows]
            )
            self._table.flatten().index_copy_(0, at, found)

    def find_masks(self) -> Masks:
        """Return the masks. It is the same object until a search changes a mask."""
        if self._masks is None:
            self._masks = self._stack_masks()
        return self._masks

    def _stack_masks(self) -> Masks:
        shapes = ((self.states,), (self.actions,), (self.states,) * 2, (self.actions, self.states))
        unknown = [np.ones(shape) for shape in shapes]
        parts = [one.structure.masks if one.structure else unknown for one in self._members]
        stacked = [np.stack(edges).astype(np.float32) for edges in zip(*parts, strict=True)]
        return Masks(*(torch.from_numpy(edges) for edges in stacked))

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        return self._table.gather(1, steps.rows)

    def predict_steps(self, steps: ReplaySteps) -> Tensor:
        count = steps.actions.shape[1]
        flat = [part.flatten(0, 1) for part in steps[:4]]
        if len(self._rewards) == 1:
            owners = torch.arange(self.size, device=self.replay.device).repeat_interleave(count)
            return self._rewards[0].compute(owners, *flat).view(self.size, count)
        owners = torch.zeros(count, dtype=torch.int64)
        parts = zip(self._rewards, *(torch.split(part, count) for part in flat), strict=True)
        return torch.stack([rewards.compute(owners, *own) for rewards, *own in parts])

    def export(self, member: int) -> EffectModel | None:
        """The model with the weights of now, and with the bands of the last search."""
        one = self._members[member]
        if one.structure is None:
            return None
        model, weights = one.structure.model, np.zeros(len(one.structure.model.weights))
        weights[one.structure.kept] = one.structure.weights
        constant = one.structure.constant + float(model.centres @ weights)
        return replace(model, weights=weights, constant=constant)

    def close(self) -> None:
        self._background.close()

    def changes(self) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "sizes": [list(rewards.sizes) for rewards in self._rewards],
            "rewards": self._table[:, : self.replay.used],
            "members": [_save(one) for one in self._members],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.rounds = int(state["rounds"])
        self._table[:, : state["rewards"].shape[1]] = state["rewards"]
        for rewards, sizes in zip(self._rewards, state["sizes"], strict=False):
            rewards.resize(int(sizes[0]), int(sizes[1]))
        for one, kept in zip(self._members, state["members"], strict=True):
            self._load(one, kept)
        for member, one in enumerate(self._members):
            if one.structure is not None:
                self._put(member)

    def _load(self, one: _Member, kept: dict[str, Any]) -> None:
        one.past.load_state(kept["past"])
        for name in _NUMBERS:
            setattr(one, name, int(kept[name]))
        one.waiting, one.rows = unpack(kept["waiting"]), []
        one.since = unpack(kept["since"])
        if kept["structure"] is not None:
            one.structure = Structure.from_state(kept["structure"])
        one.job = None
        if kept["found"] is not None:
            one.job = BackgroundCall(Structure.from_state, (kept["found"],))


_NUMBERS = ("due", "searches", "next_count", "next_round")


def _save(one: _Member) -> dict[str, Any]:
    """A member's state. A search under way is waited for."""
    return {
        "past": one.past.state(),
        **{name: getattr(one, name) for name in _NUMBERS},
        "waiting": pack(one.waiting),
        "since": pack(one.since),
        "structure": None if one.structure is None else one.structure.state(),
        "found": None if one.job is None else one.job.finish().state(),
    }
