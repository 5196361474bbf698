"""Sources of rewards: one for all members of a run that share a method.

In each update a source may learn (`update`) and then computes the rewards of the drawn steps
(`compute_rewards`). After a round of collection it hears of finished episodes (`add`), and
`refresh` does the work of the host, some of it ahead of time (`prepare`). These are no part of a
recorded graph.

A source sees observations, actions and returns. The true rewards of steps reach `Oracle` alone.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.typing import Array
from grd_offline.learning.agents.batch import ReplaySteps
from grd_offline.learning.online.replay import FinishedEpisode, Replay, TrueRewards
from grd_offline.learning.online.settings import Member, OnlineSettings
from grd_offline.networks.members.download import Download
from grd_offline.networks.members.draws import Uniform
from grd_offline.networks.members.nn import Masks
from grd_offline.rewards.contract import RewardFunction

Predictions = Callable[[], list[Array | None]]
"""Waits for rewards on their way from the device: one array for each member, or None."""
STREAM = 1
"""Random numbers of sources; those of the policy are another stream."""


class RewardSource:
    """The reward of some members; this one takes it from the replay as it is."""

    is_model: ClassVar[bool] = True
    """Whether it computes rewards from steps alone."""
    losses: Tensor | None = None
    """(term, member) at the last update, for the log."""
    loss_names: tuple[str, ...] = ()
    names: tuple[Sequence[str], Sequence[str]] | None = None
    """Names of the dimensions of observations and of actions, where they are known."""

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        """The `members`, which stand at `where` among all of the run."""
        self.members, self.replay, self.size = where, replay, len(members)

    def update(self, steps: ReplaySteps, counter: Tensor) -> None:
        """Learn from the replay, if there is anything to learn."""

    def compile(self, backend: str) -> None:
        """Fuse what lies between matrix products; for devices where that pays."""

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        """(member, batch) the reward of each step; `steps` are those of these members."""
        raise NotImplementedError

    def predict_steps(self, steps: ReplaySteps) -> Tensor:
        """`compute_rewards` of steps that need not lie in the replay."""
        return self.compute_rewards(steps)

    def add(self, member: int, episode: FinishedEpisode) -> None:
        """Hear of an episode that the member (counted within the source) has finished."""

    def refresh(self) -> None:
        """Bring up to date what changes from round to round only."""

    def prepare(self) -> None:
        """Do what the next `refresh` will need, while the device is at the updates of a round."""

    def find_masks(self) -> Masks | None:
        """The greedy masks (member, ...) as they are now, where the method has any."""
        return None

    def predict(self, member: int, episode: FinishedEpisode) -> Array | None:
        """(T,) the member's reward for each step of an episode, None where there is no model."""
        episodes = [episode if m == member else None for m in range(self.size)]
        return self.begin_predictions(episodes)()[member]

    def begin_predictions(self, episodes: Sequence[FinishedEpisode | None]) -> Predictions:
        """Ask for every member's reward for each step of an episode. None: a member without one.

        The function that comes back waits for the device.
        """
        known = [episode for episode in episodes if episode is not None]
        if not known or not self.is_model:
            return lambda: [None] * self.size
        longest = max(len(episode.actions) for episode in known)
        widths = known[0].observations.shape[1], known[0].actions.shape[1]
        seen = np.zeros((self.size, longest + 1, widths[0]), np.float32)
        acted = np.zeros((self.size, longest, widths[1]), np.float32)
        ended = np.zeros((self.size, longest), np.float32)
        for member, episode in enumerate(episodes):
            if episode is not None:
                length = len(episode.actions)
                seen[member, : length + 1], acted[member, :length] = episode[:2]
                ended[member, length - 1] = episode.terminated
        observations, actions, terminated = map(self.replay.upload, (seen, acted, ended))
        nothing = torch.zeros_like(terminated)
        steps = ReplaySteps(
            observations[:, :-1],
            actions,
            observations[:, 1:],
            terminated,
            nothing,
            nothing,
            nothing.to(torch.int64),
        )
        with torch.no_grad():
            under_way = Download(self.predict_steps(steps))
        lengths = [None if episode is None else len(episode.actions) for episode in episodes]

        def finish() -> list[Array | None]:
            found = under_way.finish().astype(np.float64)
            return [
                None if length is None else found[member, :length]
                for member, length in enumerate(lengths)
            ]

        return finish

    def export(self, member: int) -> RewardFunction | None:
        """The member's reward as a function in the environment's units, if it is one."""
        return None

    def count_seconds(self) -> dict[str, float]:
        """Seconds of the host for work on the reward, by the name of the work."""
        return {}

    def cuda_graph_key(self) -> Hashable:
        """What recorded CUDA graphs are good for: where it changes, updates are recorded anew."""
        return 0

    def close(self) -> None:
        """End what goes on beside the updates."""

    def changes(self) -> dict[str, Any]:
        """Tensors that an update changes."""
        return self.state()

    def state(self) -> dict[str, Any]:
        """Tensors and plain values that a resumed run needs."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""

    @property
    def skipped(self) -> Tensor:
        """(member,) updates that were left out because they were not finite."""
        return torch.zeros(self.size, device=self.replay.device)


class Delayed(RewardSource):
    """`none`: the reward as the environment hands it out, the whole return at the end."""

    is_model = False

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        return steps.delivered


class Oracle(RewardSource):
    """`oracle`: the true reward of each step. No other source can reach the true rewards."""

    is_model = False

    def __init__(self, where: slice, replay: Replay, *about: Any) -> None:
        super().__init__(where, replay, *about)
        self._true = torch.zeros((self.size, replay.rows), device=replay.device)

    def add_truth(self, member: int, rows: slice, truth: TrueRewards) -> None:
        """Keep the true rewards of an episode whose steps lie in these rows of the replay."""
        rewards = torch.from_numpy(truth.rewards.astype(np.float32))
        self._true[member, rows] = rewards.to(self._true.device, non_blocking=True)

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        return self._true.gather(1, steps.rows)

    def state(self) -> dict[str, Any]:
        return {"true": self._true[:, : self.replay.used]}

    def load_state(self, state: dict[str, Any]) -> None:
        self._true[:, : state["true"].shape[1]] = state["true"]


class Ircr(RewardSource):
    """`ircr`: each step gets its episode's return, between 0 and 1 over the episodes seen."""

    def __init__(self, where: slice, replay: Replay, *about: Any) -> None:
        super().__init__(where, replay, *about)
        unseen = torch.full((1, self.size), torch.inf, device=replay.device)
        self._range = torch.cat([unseen, -unseen])

    def add(self, member: int, episode: FinishedEpisode) -> None:
        total = torch.tensor(episode.episode_return, device=self._range.device)
        self._range[0, member] = torch.minimum(self._range[0, member], total)
        self._range[1, member] = torch.maximum(self._range[1, member], total)

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        lowest, highest = self._range.unsqueeze(-1)
        scaled: Tensor = (steps.returns - lowest) / (highest - lowest).clamp_min(1e-8)
        return scaled

    def begin_predictions(self, episodes: Sequence[FinishedEpisode | None]) -> Predictions:
        found: list[Array | None] = []
        for episode, (lowest, highest) in zip(episodes, self._range.T.tolist(), strict=True):
            if episode is None:
                found.append(None)
                continue
            total = float(np.float32(episode.episode_return))  # as the range is
            share = (total - lowest) / max(highest - lowest, 1e-8)
            found.append(np.full(len(episode.actions), share))
        return lambda: found

    def state(self) -> dict[str, Any]:
        return {"range": self._range}

    def load_state(self, state: dict[str, Any]) -> None:
        self._range.copy_(state["range"])


class SourceNumbers:
    """Uniform random numbers of some shapes, (member, ...) each, for the updates of a source."""

    def __init__(
        self, seeds: Sequence[int], device: torch.device, *shapes: tuple[int, ...]
    ) -> None:
        self._shapes = shapes
        self._sizes = [math.prod(shape) for shape in shapes]
        self._uniform = Uniform(seeds, sum(self._sizes), stream=STREAM, device=device)

    def draw(self, counter: Tensor) -> list[Tensor]:
        return [self.draw_part(counter, part) for part in range(len(self._shapes))]

    def draw_part(self, counter: Tensor, part: int) -> Tensor:
        """The numbers of one of the shapes."""
        start = sum(self._sizes[:part])
        drawn = self._uniform.draw(counter, slice(start, start + self._sizes[part]))
        return drawn.view(-1, *self._shapes[part])
