"""`grd` with `--fit closed-form`: the reward as a sum of effects, the estimator of `decompose`.

At moments that grow geometrically the effects are searched for among an even sample of all episodes
(`effect_search`). The step at which a search takes effect is fixed when it begins, however long it
takes, so that runs repeat themselves. Between two searches each finished episode adds a row to
the sums of the chosen effects, from which their weights are solved for again.

All steps of the replay have their rewards beside them, computed whenever the weights change. Solves
are so rare that this is less work than computing those of each batch, and an update only has to
look them up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grd_offline.additive.basis import GRID
from grd_offline.core.inputs import ACTION, END, MIDPOINT, STATE, TERMINATED, StepColumns
from grd_offline.core.interpolation import interpolate, split_place
from grd_offline.core.process import Process, ProcessDied, answer_calls
from grd_offline.core.threads import count_cores, yield_to_others
from grd_offline.core.typing import Array
from grd_offline.learning.agents.agent import ReplaySteps
from grd_offline.learning.online.effect_search import (
    SETTINGS,
    Past,
    Structure,
    find_structure,
    pack,
    sum_episodes,
    unpack,
)
from grd_offline.learning.online.replay import FinishedEpisode, Replay
from grd_offline.learning.online.sources import RewardSource, stack_masks
from grd_offline.learning.settings import Member, OnlineSettings
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


class ClosedFormSource(RewardSource):
    """The sums of effects of some members."""

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        super().__init__(where, replay, members, settings)
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
            is_time = one.structure is None or self.rounds >= one.next_round
            if one.job is None and one.past.count >= one.next_count and is_time:
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
                one.complete_rows()
                one.structure.add(np.concatenate(one.rows) if one.rows else np.zeros((0, 0)))
                one.rows, one.waiting = [], []
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
                    newest = islice(reversed(layout.spans), count)  # if they are still there
                    new += [base + row + np.arange(size) for row, size in newest]
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
            states, actions = self.states, self.actions
            shapes = (states,), (actions,), (states, states), (actions, states)
            unknown = tuple(np.ones(shape) for shape in shapes)
            self._masks = stack_masks(
                [one.structure.masks if one.structure else unknown for one in self._members]
            )
        return self._masks

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        return self._table.gather(1, steps.rows)

    def predict_steps(self, steps: ReplaySteps) -> Tensor:
        count, each = steps.actions.shape[1], self.size // len(self._rewards)
        owners = torch.arange(each, device=self.replay.device).repeat_interleave(count)
        flat = (torch.split(part.flatten(0, 1), each * count) for part in steps[:4])
        parts = zip(self._rewards, *flat, strict=True)
        found = [rewards.compute(owners, *own) for rewards, *own in parts]
        return torch.cat(found).view(self.size, count)

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
            one.past.load_state(kept["past"])
            for name in _NUMBERS:
                setattr(one, name, int(kept[name]))
            one.waiting, one.since, one.rows = unpack(kept["waiting"]), unpack(kept["since"]), []
            if kept["structure"] is not None:
                one.structure = Structure.from_state(kept["structure"])
            found = kept["found"]
            one.job = None if found is None else BackgroundCall(Structure.from_state, (found,))
        for member, one in enumerate(self._members):
            if one.structure is not None:
                self._put(member)


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


FEATURES = max(SETTINGS.basis, SETTINGS.final_basis, SETTINGS.rough_basis)


class Tables(NamedTuple):
    """Everything that rewards are computed from; members stand first."""

    columns: Tensor
    """(member, input) its column in [state, action, terminated]."""
    later: Tensor
    """(member, input) how far it lies in the transition, from 0 to 1."""
    low: Tensor  # (member, input)
    density: Tensor
    """(member, input) cells of the grid per unit."""
    curves: Tensor  # (member, input, grid)
    features: Tensor  # (member, input, grid, feature)
    first: Tensor  # (member, pair) its first input
    second: Tensor  # (member, pair)
    bent: Tensor
    """(member, pair, grid, feature) what each feature of the second input is multiplied by."""
    constant: Tensor  # (member, 1)


class EffectRewards:
    """Rewards of steps as sums of effects, for all members at once, on the device.

    Main effects of an input are one curve over its grid; a pair is a form of the features of its
    inputs, which its first input has on its grid already.
    """

    def __init__(self, members: int, states: int, actions: int, device: torch.device) -> None:
        self.layout, self.members, self.device = StepColumns(states, actions), members, device
        self._places: list[Tensor | None] = [None] * members
        self.tables = self._allocate(inputs=8, pairs=1)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of inputs and of pairs that there is room for."""
        return self.tables.low.shape[1], self.tables.first.shape[1]

    @property
    def width(self) -> int:
        """Numbers that one step takes while its reward is computed."""
        return self.sizes[0] + self.sizes[1] * FEATURES

    def _allocate(self, inputs: int, pairs: int) -> Tables:
        # In the order of the tables' fields.
        shapes = [(inputs,)] * 4 + [(inputs, GRID), (inputs, GRID, FEATURES)]
        shapes += [(pairs,)] * 2 + [(pairs, GRID, FEATURES), (1,)]
        whole = ("columns", "first", "second")
        return Tables(
            *(
                torch.zeros(
                    (self.members, *shape),
                    dtype=torch.int64 if name in whole else torch.float32,
                    device=self.device,
                )
                for name, shape in zip(Tables._fields, shapes, strict=True)
            )
        )

    def make_room(self, structures: Sequence[Structure | None]) -> bool:
        """Grow where a member has more inputs or pairs; True where all have to be put in anew."""
        models = [structure.model for structure in structures if structure is not None]
        inputs = max((len(model.columns) for model in models), default=0)
        pairs = max((len(_list_pairs(model)) for model in models), default=0)
        sizes = self.sizes
        needed = round_up(inputs, sizes[0]), round_up(pairs, sizes[1])
        self.resize(*needed)
        return needed != sizes

    def resize(self, inputs: int, pairs: int) -> None:
        """Make room for so many; where that is a change, all rewards are 0 afterwards."""
        if (inputs, pairs) != self.sizes:
            self.tables = self._allocate(inputs, pairs)

    def put_structure(self, member: int, structure: Structure) -> None:
        """Take over a member's inputs, tables and pairs; its rewards are 0 until weights come."""
        model, tables = structure.model, self.tables
        firsts = {STATE: 0, ACTION: self.layout.states, TERMINATED: self.layout.terminated}
        pairs = _list_pairs(model)
        new = {
            "columns": [firsts[one.part] + one.index for one in model.inputs],
            "later": [{MIDPOINT: 0.5, END: 1.0}.get(one.moment, 0.0) for one in model.inputs],
            "low": model.low,
            "density": (model.tables.shape[1] - 1) / (model.high - model.low),
            "features": model.tables,
            "first": [effect[0] for effect in pairs],
            "second": [effect[1] for effect in pairs],
        }
        for name, target in tables._asdict().items():
            target[member].zero_()
            if name in new:
                part = np.asarray(new[name], np.int64 if target.dtype == torch.int64 else None)
                sent = torch.tensor(part).to(target.dtype)
                where = (member, *(slice(0, count) for count in sent.shape))
                target[where] = sent.to(self.device)
        self._places[member] = torch.from_numpy(self._find_places(structure)).to(self.device)

    def _find_places(self, structure: Structure) -> np.ndarray:
        """(column,) where each weight lies among those of the curves and then of the pairs."""
        model, inputs = structure.model, self.sizes[0]
        places, pair = [np.zeros(0, np.int64)], 0
        for effect, size in zip(model.effects, model.sizes, strict=True):
            if len(effect) == 1:
                places.append(effect[0] * FEATURES + np.arange(size))
                continue
            grid = np.add.outer(np.arange(size) * FEATURES, np.arange(size)).ravel()
            places.append((inputs + pair * FEATURES) * FEATURES + grid)
            pair += 1
        return np.asarray(np.concatenate(places)[structure.kept], np.int64)

    def put_weights(self, member: int, structure: Structure) -> None:
        """Take over the weights and the constant, without waiting for the device."""
        places, (inputs, pairs) = self._places[member], self.sizes
        assert places is not None
        every = torch.zeros((inputs + pairs * FEATURES) * FEATURES, device=self.device)
        sent = torch.from_numpy(np.append(structure.weights, structure.constant))
        sent = sent.float().to(self.device, non_blocking=True)
        every.index_copy_(0, places, sent[:-1])
        mains = every[: inputs * FEATURES].view(inputs, 1, FEATURES)
        tables = self.tables
        # A sum and no matrix product, which would round to fewer digits on some devices.
        tables.curves[member] = (tables.features[member] * mains).sum(2)
        products = every[inputs * FEATURES :].view(pairs, 1, FEATURES, FEATURES)
        firsts = tables.features[member].index_select(0, tables.first[member])
        tables.bent[member] = (firsts.unsqueeze(3) * products).sum(2)
        tables.constant[member] = sent[-1]

    def compute(self, owners: Tensor, *steps: Tensor) -> Tensor:
        """(step,) the reward of each step; `owners` (step,) are the members that took them.

        `steps` are observations, actions, next observations and terminations.
        """
        (observations, actions, next_observations, terminated), tables = steps, self.tables
        inputs, points = tables.curves.shape[1:]
        ended = terminated.unsqueeze(1)
        columns = tables.columns[owners]
        now = torch.cat([observations, actions, ended], 1).gather(1, columns)
        later = torch.cat([next_observations, actions, ended], 1).gather(1, columns)
        values = now + tables.later[owners] * (later - now)
        place = (values - tables.low[owners]) * tables.density[owners]
        cell, part = split_place(place.clamp(0, points - 1), points)  # (step, input)
        first = torch.arange(inputs, device=cell.device) + owners.unsqueeze(1) * inputs
        rewards = interpolate(tables.curves.flatten(), first * points + cell, part).sum(1)
        return rewards + tables.constant[owners, 0] + self._compute_pairs(owners, cell, part)

    def _compute_pairs(self, owners: Tensor, cell: Tensor, part: Tensor) -> Tensor:
        """(step,) the effects of two inputs."""
        tables = self.tables
        (inputs, points), pairs = tables.curves.shape[1:], tables.first.shape[1]
        first, second = tables.first[owners], tables.second[owners]  # (step, pair)
        pair = torch.arange(pairs, device=cell.device)
        left, right = (  # (step, pair, feature)
            interpolate(
                table.flatten(0, 2), row * points + cell.gather(1, chosen), part.gather(1, chosen)
            )
            for table, chosen, row in (
                (tables.bent, first, owners.unsqueeze(1) * pairs + pair),
                (tables.features, second, owners.unsqueeze(1) * inputs + second),
            )
        )
        return (left * right).sum((1, 2))


def round_up(number: int, least: int) -> int:
    """The smallest power of two times `least` that is not smaller than the number."""
    while least < number:
        least *= 2
    return least


def _list_pairs(model: EffectModel) -> list[tuple[int, ...]]:
    return [effect for effect in model.effects if len(effect) == 2]


PATIENCE_SECONDS = 30.0
"""Work that is waited for is begun anew after so long. A usual wait takes a few seconds."""


class Background:
    """Calls functions beside the updates of an accelerator, in processes of their own.

    Threads would share the interpreter with the loop that feeds the device. On a CPU the cores are
    busy with updates anyway, so the work is done at once.

    These processes use only cores that nobody else needs. On a computer whose cores are all busy
    with other programs they would never finish. Work that has been waited for long enough is begun
    anew in processes like any others, and so is all later work.
    """

    def __init__(self, *, beside: bool, most: int) -> None:
        """Run in this process, or `beside` it in at most so many others at a time."""
        self.seconds = 0.0
        """Seconds that this process has worked or waited."""
        self._most = max(1, min(most, count_cores() * 3 // 4))
        self._is_beside, self._is_patient = beside, True
        """Whether there are other processes, and whether they let all others go first."""
        self._pool: _Pool | None = None
        self._unfinished: list[BackgroundCall] = []

    def start(self, function: Callable[..., Any], *arguments: Any) -> BackgroundCall:
        """Begin to call a function."""
        call = BackgroundCall(function, arguments, self)
        self._unfinished.append(call)
        if self._is_beside:
            try:
                call.future = self._find_pool().submit(function, arguments)
            except (OSError, AssertionError):
                self._is_beside = False
        if call.future is None:
            call.finish()
        return call

    def wait(self, call: BackgroundCall) -> Any:
        """Wait for a call, and give its result."""
        began = time.perf_counter()
        try:
            if call.future is not None and self._is_patient:
                wait([call.future], PATIENCE_SECONDS)
                if not call.future.done():
                    self._hurry()
            result = call.future.result() if call.future is not None else call.run()
        except ProcessDied:
            self._is_beside, result = False, call.run()
        self._unfinished.remove(call)
        self.seconds += time.perf_counter() - began
        return result

    def _hurry(self) -> None:
        """Begin all that is not finished anew, in processes that do not let others go first."""
        slow, self._pool, self._is_patient = self._pool, None, False
        for call in self._unfinished:
            if call.future is not None and not call.future.done():
                call.future = self._find_pool().submit(call.function, call.arguments)
        if slow is not None:
            slow.close()

    def _find_pool(self) -> _Pool:
        if self._pool is None:
            self._pool = _Pool(self._most, yield_to_others if self._is_patient else None)
        return self._pool

    def close(self) -> None:
        """Give up what is not finished."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class BackgroundCall:
    """One call, which may not be finished yet. One without an owner has returned already."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        owner: Background | None = None,
    ) -> None:
        self.function, self.arguments = function, arguments
        self.future: Future[Any] | None = None
        self._owner = owner
        self._result = None if owner is not None else function(*arguments)

    def run(self) -> Any:
        """Call the function in this process."""
        return self.function(*self.arguments)

    def finish(self) -> Any:
        """Wait for the function, and return its result."""
        if self._owner is not None:
            self._result = self._owner.wait(self)
            self._owner, self.arguments = None, ()
        return self._result


class _Pool:
    """Processes that answer calls, at most so many."""

    def __init__(self, most: int, prepare: Callable[[], None] | None) -> None:
        self._most, self._prepare = most, prepare
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="grd-offline-background")
        self.processes: list[Process] = []
        self._free: SimpleQueue[Process] = SimpleQueue()

    def submit(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Future[Any]:
        if len(self.processes) < self._most:
            process = Process(answer_calls, self._prepare)
            process.start()
            self.processes.append(process)
            self._free.put(process)
        return self._threads.submit(self._call, function, arguments)

    def _call(self, *call: Any) -> Any:
        process = self._free.get()
        try:
            process.send(call)
            return process.receive()
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes, so that the program does not wait for them when it ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.process.kill()
