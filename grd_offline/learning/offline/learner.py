"""Everything that learns in an offline run, and one update of all members.

The transitions lie on the device once, for all members. The rewards lie there once for each
source. On CUDA an update is recorded as a graph and replayed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from grd_offline.core.errors import DataError
from grd_offline.core.typing import Array
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.offline.data import OfflineTransitions
from grd_offline.learning.offline.settings import OfflineMember, OfflineSettings
from grd_offline.learning.runs.run import RunLearner
from grd_offline.networks.members.draws import Uniform, to_index

STREAM = 1
_FLOOR = 1e-3
"""Added to the standard deviation of each observation (TD3+BC)."""
_STILL = 1e-6
"""An observation whose standard deviation is less than this share of its mean does not change."""


class OfflineLearner(RunLearner):
    """All that learns in a run."""

    def __init__(
        self,
        settings: OfflineSettings,
        members: Sequence[OfflineMember],
        transitions: OfflineTransitions,
        rewards: Mapping[str, Array],
        *,
        low: ArrayLike,
        high: ArrayLike,
        device: torch.device,
        capture: bool = True,
        is_discrete: bool = False,
    ) -> None:
        """`rewards` of each source, one for every step of the data, in common units.

        Discrete actions are one-hot.
        """
        super().__init__(device, capture=capture)
        self.settings, self.members = settings, list(members)
        self._put_data(transitions, np.asarray(low, np.float64), np.asarray(high, np.float64))
        names = list(dict.fromkeys(member.source for member in members))
        table = np.stack([rewards[name][transitions.kept] for name in names])
        self.rewards = self._send(table)
        places = [names.index(member.source) for member in members]
        self._sources = torch.tensor(places, device=device).unsqueeze(1)
        seeds = [member.seed for member in members]
        sizes = transitions.observations.shape[1], transitions.actions.shape[1]
        algorithm = find_algorithm(settings.algorithm)
        self.agent = algorithm.find_class(is_discrete=is_discrete)(
            *sizes,
            seeds=seeds,
            hidden=settings.hidden,
            rates=self._fill(settings.learning_rate),
            discounts=self._fill(settings.discount),
            target_rates=self._fill(settings.target_rate),
            **algorithm.pick_settings(settings),
        )
        self._sizes = torch.full((len(seeds),), len(transitions.rows), device=device)
        self._noise_size = self.agent.noise_size * sizes[1]
        count = settings.batch * (2 + self._noise_size)
        self._uniform = Uniform(seeds, count, stream=STREAM, device=device)
        self._draw = self._draw_batch
        if self._capture:
            self.compile()

    def _put_data(self, transitions: OfflineTransitions, low: Array, high: Array) -> None:
        acted_upon = transitions.observations[transitions.rows]
        # In float32, as the data are: of millions of rows there is no room for a wider copy.
        self.mean = acted_upon.mean(0, dtype=np.float64).astype(np.float32)
        spread = acted_upon.std(0, dtype=np.float64)
        # What never changes tells nothing. Its weights would be huge, and cancel in float32.
        still = spread <= _STILL * np.abs(self.mean)
        self.std = np.where(still, np.inf, spread + _FLOOR).astype(np.float32)
        self.observations = self._send((transitions.observations - self.mean) / self.std)
        self.actions = self._send((transitions.actions - (high + low) / 2) / ((high - low) / 2))
        self.terminated = self._send(transitions.terminated)
        self.rows = torch.from_numpy(transitions.rows).to(self.device)

    def _fill(self, value: float) -> Tensor:
        return torch.full((len(self.members),), value, device=self.device)

    def _send(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.asarray(array, np.float32)).to(self.device)

    def _update(self, with_actor: bool) -> None:
        self.counter += 1
        self.agent.update(self._draw(self.counter), with_actor=with_actor)

    def _draw_batch(self, counter: Tensor) -> PolicyBatch:
        size = self.settings.batch
        uniform = self._uniform.draw(counter)
        # One number has 23 bits: too coarse to reach each of millions of steps equally often.
        coarse, fine = uniform[:, :size].double(), uniform[:, size : 2 * size].double()
        steps = to_index(coarse + (fine - 0.5) * 2.0**-23, self._sizes)
        rows = self.rows[steps]
        return PolicyBatch(
            observations=self.observations[rows],
            actions=self.actions[steps],
            next_observations=self.observations[rows + 1],
            terminated=self.terminated[steps],
            rewards=self.rewards[self._sources, steps],
            uniform=uniform[:, 2 * size :].reshape(len(self.members), size, self._noise_size),
        )

    def compile(self, backend: str = "inductor") -> None:
        """Fuse what lies between matrix products; `backend` is one of torch.compile's."""
        self._draw = torch.compile(self._draw_batch, dynamic=False, backend=backend)
        self.agent.compile(backend)

    def export_actors(self) -> NDArray[np.float32]:
        return self.agent.export_actors(self.mean, self.std)


def find_outside(actions: NDArray[np.float32], low: ArrayLike, high: ArrayLike) -> float:
    """Share of the steps with an action outside of the bounds, by more than rounding."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    margin = 1e-3 * (high - low)
    return float(((actions < low - margin) | (actions > high + margin)).any(1).mean())


def find_bounds(actions: NDArray[np.float32]) -> tuple[Array, Array]:
    """The smallest and largest action of the data, where no environment says what they may be."""
    low, high = actions.min(0).astype(np.float64), actions.max(0).astype(np.float64)
    flat = np.flatnonzero(low == high)
    if len(flat):
        raise DataError(
            f"dimension {flat[0]} is always {low[flat[0]]:g}: name the environment, which knows "
            "the range of actions",
            field="actions",
        )
    return low, high
