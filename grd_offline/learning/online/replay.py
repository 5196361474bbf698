"""Finished episodes of all members, on the device, ready to be drawn from.

Each member has a ring of rows: an episode's T observations and the last one lie one after the
other, so that the next observation is one row further and nothing is stored twice. A ring of
places says which rows are steps, a ring of episodes where each begins and what it returned. Where
there is no room, the oldest episodes leave.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grd_offline.core.typing import Array, SingleArray
from grd_offline.learning.agents.agent import ReplaySteps
from grd_offline.networks.members.nn import to_index


class FinishedEpisode(NamedTuple):
    """The part of an episode that a learner sees: its steps and its return, but no rewards of
    steps."""

    observations: NDArray[np.float32]  # (T + 1, state)
    actions: NDArray[np.float32]  # (T, action)
    episode_return: float
    terminated: bool
    """Whether the episode ended by itself, and not by a time limit."""


class TrueRewards(NamedTuple):
    """The rewards of an episode's steps: for `oracle` and for the evaluation, for nobody else."""

    rewards: NDArray[np.float64]  # (T,)


def separate_truth(
    observations: SingleArray, actions: SingleArray, rewards: Array, terminated: bool
) -> tuple[FinishedEpisode, TrueRewards]:
    """An episode, and apart from it the rewards of its steps."""
    total = float(rewards.sum())
    return FinishedEpisode(observations, actions, total, terminated), TrueRewards(rewards)


class SampledEpisodes(NamedTuple):
    """Whole episodes, one after the other without gaps, filled up at the end."""

    observations: Tensor  # (member, row, state)
    actions: Tensor  # (member, row, action)
    valid: Tensor
    """(member, episode, row) whether the row is a step of that episode."""
    lengths: Tensor  # (member, episode)
    returns: Tensor  # (member, episode)


class SampledSteps(NamedTuple):
    """Some steps of some episodes; all (member, episode, ...)."""

    observations: Tensor
    actions: Tensor
    next_observations: Tensor
    valid: Tensor
    """(member, episode, draw) False where an episode has fewer steps than were asked for."""
    lengths: Tensor
    returns: Tensor


_ROWS = ("observations", "actions", "numbers")
_RINGS = ("places", "episode_first", "episode_lengths", "episode_returns")


class Replay:
    """A ring of finished episodes for each member."""

    def __init__(
        self, count: int, capacity: int, states: int, actions: int, limit: int, device: torch.device
    ) -> None:
        self.capacity, self.device = capacity, device
        self.limit = limit
        """Steps that no episode exceeds."""
        # Last observations need rows too; with very short episodes somewhat fewer steps fit.
        self.rows = capacity + capacity // 8 + 2 * (limit + 1)
        shape = (count, self.rows)
        self.observations = torch.zeros((*shape, states), device=device)
        self.actions = torch.zeros((*shape, actions), device=device)
        # terminated, delivered, return: they are read together, so they lie together.
        self.numbers = torch.zeros((*shape, 3), device=device)
        self.is_last = torch.zeros(shape, dtype=torch.bool, device=device)
        """(member, row) whether a step is the last one of its episode."""
        self.places = torch.zeros((count, capacity), dtype=torch.int64, device=device)
        self.episode_first = torch.zeros_like(self.places)
        self.episode_lengths = torch.ones_like(self.places)
        self.episode_returns = torch.zeros((count, capacity), device=device)
        # Where the oldest step and the oldest episode lie in their rings, and how many there are.
        self.step_rings = torch.zeros((2, count), dtype=torch.int64, device=device)
        self.episode_rings = torch.zeros((2, count), dtype=torch.int64, device=device)
        self.layouts = [_Layout(capacity, self.rows) for _ in range(count)]
        self._bases = torch.arange(count, device=device).unsqueeze(1) * self.rows

    def add(self, member: int, episode: FinishedEpisode) -> slice:
        """Put a finished episode in, and say in which rows its steps lie.

        The oldest episodes make room.
        """
        return self.add_all([(member, episode)])[0]

    def add_all(self, finished: Sequence[tuple[int, FinishedEpisode]]) -> list[slice]:
        """Put episodes of some members in at once, and say in which rows the steps of each lie."""
        lengths = [len(episode.actions) for _, episode in finished]
        most = min(self.limit, self.capacity)
        if lengths and max(lengths) > most:
            reason = f"replay: expected an episode of at most {most} steps, got {max(lengths)}"
            raise ValueError(reason)
        totals = dict.fromkeys((member for member, _ in finished), 0)
        for (member, _), length in zip(finished, lengths, strict=True):
            totals[member] += length
        if len(finished) > 1 and max(totals.values()) > self.capacity // 2:
            # Some might have to make room for others.
            return [self.add(member, episode) for member, episode in finished]
        spots = [
            (member, *self.layouts[member].make_room(length))
            for (member, _), length in zip(finished, lengths, strict=True)
        ]
        self._write_steps(finished, spots)
        self._publish()
        return [slice(first, first + n) for (_, first, *_), n in zip(spots, lengths, strict=True)]

    def _write_steps(
        self,
        finished: Sequence[tuple[int, FinishedEpisode]],
        spots: Sequence[tuple[int, int, int, int]],
    ) -> None:
        """Write episodes; a spot is a member, a row, a place among steps and one among episodes."""
        places, written, whole = [], [], []
        for (_, episode), (member, first, step_place, place) in zip(finished, spots, strict=True):
            length, start = len(episode.actions), member * self.capacity
            times, rows = np.arange(length), first + np.arange(length + 1)
            numbers = np.zeros((length, 3), np.float32)
            numbers[-1, :2] = episode.terminated, episode.episode_return
            numbers[:, 2] = episode.episode_return
            seen_at = member * self.rows + rows
            step_at = start + (step_place + times) % self.capacity
            places.append((seen_at, seen_at[:-1], step_at, rows[:-1]))
            written.append((*episode[:2], numbers, times == length - 1))
            whole.append((start + place, first, length))
        seen, acted, step, row = (
            self.upload(np.concatenate(part)) for part in zip(*places, strict=True)
        )
        observations, actions, about, is_last = map(np.concatenate, zip(*written, strict=True))
        at, firsts, lengths = self.upload(np.array(whole).T)
        returns = np.array([episode.episode_return for _, episode in finished], np.float32)
        for target, where, values in (
            (self.observations, seen, observations),
            (self.actions, acted, actions),
            (self.numbers, acted, about),
            (self.is_last, acted, is_last),
            (self.places, step, row),
            (self.episode_first, at, firsts),
            (self.episode_lengths, at, lengths),
            (self.episode_returns, at, returns),
        ):
            sent = values if isinstance(values, Tensor) else self.upload(values)
            target.flatten(0, 1).index_copy_(0, where, sent)

    def _publish(self) -> None:
        numbers = [
            (one.step_head, one.steps, one.episode_head, one.episodes) for one in self.layouts
        ]
        sent = self.upload(np.array(numbers).T)
        self.step_rings.copy_(sent[:2])
        self.episode_rings.copy_(sent[2:])

    def send(self, values: Any) -> Tensor:
        """The numbers as a tensor on the device."""
        return torch.tensor(list(values), dtype=torch.float32, device=self.device)

    def upload(self, array: NDArray[Any]) -> Tensor:
        """The numbers as a tensor on the device; updates under way are not waited for."""
        sent = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type != "cuda":
            return sent.to(self.device)
        # The device reads them when its turn comes; until then they stay where they are.
        return sent.pin_memory().to(self.device, non_blocking=True)

    def draw_steps(self, uniform: Tensor) -> ReplaySteps:
        """A step for each number (member, batch), all of a member's steps equally likely."""
        head, count = self.step_rings
        index = (to_index(uniform, count) + head.unsqueeze(1)) % self.capacity
        return self.take(self.places.gather(1, index))

    def take(self, rows: Tensor) -> ReplaySteps:
        """The steps in some rows (member, batch)."""
        places = rows + self._bases
        observations, actions = self.observations.flatten(0, 1), self.actions.flatten(0, 1)
        seen, acted, following = observations[places], actions[places], observations[places + 1]
        terminated, delivered, returns = self.numbers.flatten(0, 1)[places].unbind(-1)
        return ReplaySteps(seen, acted, following, terminated, delivered, returns, rows)

    def follow(self, rows: Tensor, count: int) -> tuple[ReplaySteps, Tensor]:
        """Take `count` steps in a row, from the steps in some rows (member, batch) on.

        They stand side by side. The second result (member, batch, count) says which of them are of
        the same episode. The others repeat the first one.
        """
        rows = rows.unsqueeze(2)
        places = (rows + torch.arange(count, device=self.device)).clamp_max(self.rows - 1)
        is_last = self.is_last.flatten()[places + self._bases.unsqueeze(2)]
        # A step is beyond the end if a step before it, from the first one on, was the last one.
        is_beyond = is_last.cumsum(2) - is_last.long() > 0
        return self.take(torch.where(is_beyond, rows, places).flatten(1)), ~is_beyond

    def draw_episodes(
        self, uniform: Tensor, members: slice, rows: int | None = None
    ) -> SampledEpisodes:
        """Whole episodes, one for each number (member, episode), laid end to end.

        `rows` is how many rows to make, at least what any member's episodes need; None takes just
        that many, which asks the device for a number: not while a graph is captured.
        """
        first, lengths, returns = self._pick_episodes(uniform, members)
        stops = lengths.cumsum(1)
        if rows is None:
            rows = int(stops[:, -1].max())
        times = torch.arange(rows, device=self.device)
        starts = stops - lengths
        later = times >= starts.unsqueeze(2)  # (member, episode, row)
        valid = later & (times < stops.unsqueeze(2))
        owner = later.sum(1) - 1  # (member, row): the episode that a row belongs to
        places = (first - starts).gather(1, owner) + times
        # What fills up the end reads the first row: any finite numbers will do.
        places = torch.where(times < stops[:, -1:], places, 0) + self._bases[members]
        observations, actions = self.observations.flatten(0, 1), self.actions.flatten(0, 1)
        return SampledEpisodes(observations[places], actions[places], valid, lengths, returns)

    def draw_from_episodes(
        self, uniform: Tensor, order: Tensor, count: int, members: slice
    ) -> SampledSteps:
        """`count` distinct steps of an episode for each number (member, episode).

        `order` (member, episode, time) has a number for every step of the longest episode: the
        steps with the largest are taken, all of them where an episode has fewer than `count`.
        """
        first, lengths, returns = self._pick_episodes(uniform, members)
        times = torch.arange(order.shape[-1], device=self.device)
        order = torch.where(times < lengths.unsqueeze(-1), order, -1.0)
        values, offsets = order.topk(min(count, order.shape[-1]), -1)
        valid = values >= 0
        places = first.unsqueeze(-1) + torch.where(valid, offsets, 0)
        places = places + self._bases[members].unsqueeze(-1)
        observations, actions = self.observations.flatten(0, 1), self.actions.flatten(0, 1)
        return SampledSteps(
            observations[places], actions[places], observations[places + 1], valid, lengths, returns
        )

    def _pick_episodes(self, uniform: Tensor, members: slice) -> tuple[Tensor, Tensor, Tensor]:
        """(member, episode) first row, length and return; a member's are all equally likely."""
        head, count = self.episode_rings[:, members]
        picked = (to_index(uniform, count) + head.unsqueeze(1)) % self.capacity
        return (
            self.episode_first[members].gather(1, picked),
            self.episode_lengths[members].gather(1, picked),
            self.episode_returns[members].gather(1, picked),
        )

    @property
    def used(self) -> int:
        """Rows that have ever been written to, of the member that has the most."""
        return max(layout.highest for layout in self.layouts)

    @property
    def longest(self) -> int:
        """A number of steps that no episode so far exceeds: the limit, a quarter of it, ...

        It rarely changes: what is compiled for it has to be compiled anew when it does.
        """
        longest, number = max(layout.longest for layout in self.layouts), self.limit
        while -(-number // 4) >= max(longest, 2):
            number = -(-number // 4)
        return number

    def state(self) -> dict[str, Any]:
        """Tensors cut to what is used, and the layouts."""
        used = self.used
        parts = {name: getattr(self, name)[:, :used] for name in _ROWS}
        parts |= {name: getattr(self, name)[:, : min(used, self.capacity)] for name in _RINGS}
        return {**parts, "books": [layout.state() for layout in self.layouts]}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in (*_ROWS, *_RINGS):
            part = state[name]
            getattr(self, name)[:, : part.shape[1]] = part.to(self.device)
        for layout, kept in zip(self.layouts, state["books"], strict=True):
            layout.load_state(kept)
        # The last step of every episode is found anew, from where the episodes lie.
        is_last = np.zeros(self.is_last.shape, np.bool_)
        for member, layout in enumerate(self.layouts):
            is_last[member, [first + length - 1 for first, length in layout.spans]] = True
        self.is_last.copy_(torch.from_numpy(is_last))
        self._publish()


_COUNTS = "step_head", "steps", "episode_head", "episodes", "next_row", "longest", "highest"


class _Layout:
    """Places of the episodes of a member. They are kept on the host, so that the device is never
    asked."""

    def __init__(self, capacity: int, rows: int) -> None:
        self.capacity, self.rows = capacity, rows
        self.step_head = self.steps = self.episode_head = self.episodes = 0
        self.next_row = self.longest = self.highest = 0
        self.spans: deque[tuple[int, int]] = deque()
        """First row and length of each episode, the oldest first."""

    def make_room(self, length: int) -> tuple[int, int, int]:
        """Find room for the rows and steps of a new episode. The oldest episodes leave as
        needed."""
        if self.next_row + length + 1 > self.rows:
            # Back to the first row: what lies between here and the end is the oldest there is.
            while self.spans and self.spans[0][0] >= self.next_row:
                self._drop_oldest()
            self.next_row = 0
        first = self.next_row
        while self.spans and (
            self.steps + length > self.capacity
            or self.episodes >= self.capacity
            or first <= self.spans[0][0] <= first + length
        ):
            self._drop_oldest()
        step_place = (self.step_head + self.steps) % self.capacity
        episode_place = (self.episode_head + self.episodes) % self.capacity
        self.spans.append((first, length))
        self.steps += length
        self.episodes += 1
        self.longest = max(self.longest, length)
        self.next_row = first + length + 1
        self.highest = max(self.highest, self.next_row)
        return first, step_place, episode_place

    def _drop_oldest(self) -> None:
        _, length = self.spans.popleft()
        self.step_head = (self.step_head + length) % self.capacity
        self.steps -= length
        self.episode_head = (self.episode_head + 1) % self.capacity
        self.episodes -= 1

    def state(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in _COUNTS}
        return {**numbers, "spans": [list(span) for span in self.spans]}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in _COUNTS:
            setattr(self, name, int(state[name]))
        self.spans = deque((int(first), int(length)) for first, length in state["spans"])
