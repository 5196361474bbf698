"""`grd` with `--fit quadratic`: the reward as a quadratic of the step, solved for exactly.

    r(x) = c + sum_i (b_i z_i) + sum_{i<=j} q_ij z_i z_j,   z = (x - mean) / std of x = (s, a)

An episode's return is then linear in its sums of z_i and z_i z_j, which follow from the sums of
x_i x_j: these are all that is kept of an episode. When one ends, the coefficients are solved for
again (a Gaussian prior, a variance for each effect, found by the evidence and carried on from
solve to solve), and the policy trains on the new reward at once.

The masks of the dynamics come from sums as well, see `dynamics_masks`.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grd_offline.additive.search import EvidenceProblem
from grd_offline.core.typing import Array, BoolArray
from grd_offline.learning.agents.batch import ReplaySteps
from grd_offline.learning.online.dynamics_masks import Regression
from grd_offline.learning.online.replay import FinishedEpisode, Replay
from grd_offline.learning.online.sources import RewardSource
from grd_offline.networks.members.nn import Masks
from grd_offline.rewards.quadratic import QuadraticFunction

MOST_PAIRED = 32
"""With more inputs than this, only their squares enter, and no products of two inputs."""
WINDOW = 2000
"""Episodes that are remembered: the newest."""
SIGMAS, SHARE = 5.0, 0.02
"""An input belongs to the mask if one of its coefficients is so many standard deviations from 0, or
if it carries such a share of the reward's variance: while episodes are few nothing is certain."""
ITERATIONS, FURTHER_ITERATIONS, FEW = 8, 3, 50
"""Fixed-point steps per solve while a member has few episodes, and later."""
NOISE_FLOOR = 1e-4
MASK_GROWTH = 1.2
"""Growth of the number of steps after which the masks of the dynamics are found anew."""


class Quadratic(RewardSource):
    """The quadratic rewards of some members."""

    def __init__(self, where: slice, replay: Replay, *about: Any) -> None:
        super().__init__(where, replay, *about)
        self.states, self.actions = replay.observations.shape[-1], replay.actions.shape[-1]
        inputs = self.states + self.actions
        device = replay.device
        self.solvers = [Solver(self.states, self.actions) for _ in range(self.size)]
        self._changed = [False] * self.size
        self._mean = torch.zeros((self.size, 1, inputs), device=device)
        self._std = torch.ones((self.size, 1, inputs), device=device)
        self._constant = torch.zeros((self.size, 1), device=device)
        self._linear = torch.zeros((self.size, inputs, 1), device=device)
        self._products = torch.zeros((self.size, inputs, inputs), device=device)

    def add(self, member: int, episode: FinishedEpisode) -> None:
        self.solvers[member].add(episode)
        self._changed[member] = True

    def refresh(self) -> None:
        """Solve again for every member that has finished an episode."""
        if not any(self._changed):
            return
        changed = [member for member in range(self.size) if self._changed[member]]
        self._changed = [False] * self.size
        for member, solution in zip(changed, self._solve(changed), strict=True):
            self._take(member, solution)

    def _solve(self, members: list[int]) -> list[Solution]:
        """Side by side where an accelerator trains meanwhile; on a CPU the cores are busy."""
        if self.replay.device.type == "cpu" or len(members) == 1:
            return [self.solvers[member].solve() for member in members]
        with ThreadPoolExecutor(min(len(members), os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda member: self.solvers[member].solve(), members))

    def _take(self, member: int, solution: Solution) -> None:
        targets = (self._mean, self._std, self._constant, self._linear, self._products)
        for target, value in zip(targets, solution, strict=True):
            sent = torch.from_numpy(np.asarray(value, np.float32))
            target[member].copy_(sent.view(target[member].shape), non_blocking=True)

    def find_masks(self) -> Masks:
        parts = [solver.masks for solver in self.solvers]
        stacked = [np.stack(edges).astype(np.float32) for edges in zip(*parts, strict=True)]
        return Masks(*(torch.from_numpy(edges) for edges in stacked))

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        inputs = torch.cat([steps.observations, steps.actions], -1)
        inputs = (inputs - self._mean) / self._std  # (member, batch, input)
        slopes = torch.baddbmm(self._linear.mT, inputs, self._products)
        return (slopes * inputs).sum(-1) + self._constant

    def export(self, member: int) -> QuadraticFunction:
        solution = self.solvers[member].solution
        return QuadraticFunction(states=self.states, **solution._asdict())

    def state(self) -> dict[str, Any]:
        return {"solvers": [solver.state() for solver in self.solvers]}

    def load_state(self, state: dict[str, Any]) -> None:
        for member, (solver, part) in enumerate(zip(self.solvers, state["solvers"], strict=True)):
            solver.load_state(part)
            self._take(member, solver.solution)


class Solution(NamedTuple):
    """r = constant + linear . z + z' products z with z = (x - mean) / std."""

    mean: Array
    std: Array
    constant: Array
    linear: Array
    products: Array
    """(input, input), upper triangle."""


class Solver:
    """The sums of one member's episodes, and what they say."""

    def __init__(self, states: int, actions: int) -> None:
        self.states, self.actions = states, actions
        self.inputs = states + actions
        self.paired = self.inputs <= MOST_PAIRED
        first, second = np.triu_indices(self.inputs)
        if not self.paired:
            first = second = np.arange(self.inputs)
        self._first, self._second = first, second
        self._moments: deque[Array] = deque(maxlen=WINDOW)
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._dynamics = Regression(states, actions)
        self._masks_at = 0.0
        """Number of steps when the masks of the dynamics were found."""
        # an effect per input (z_i and z_i^2) and one per pair
        single = np.arange(self.inputs)
        pairs = np.where(first == second, first, self.inputs + np.arange(len(first)))
        self._effects = np.unique(np.concatenate([single, pairs]), return_inverse=True)[1]
        self._variances = np.full(self._effects.max() + 1, 1.0)
        self._noise = 1.0
        shapes = ((states,), (actions,), (states, states), (actions, states))
        self.masks: tuple[Array, ...] = tuple(np.ones(shape) for shape in shapes)
        self.solution = Solution(
            np.zeros(self.inputs),
            np.ones(self.inputs),
            np.zeros(1),
            np.zeros(self.inputs),
            np.zeros((self.inputs, self.inputs)),
        )

    def add(self, episode: FinishedEpisode) -> None:
        """Keep an episode's sums: T, the sums of x_i, of x_i^2 and of x_i x_j."""
        values = np.hstack([episode.observations[:-1], episode.actions]).astype(np.float64)
        if self.paired:
            second = (values.T @ values)[self._first, self._second]
        else:
            second = (values**2).sum(0)
        self._moments.append(np.concatenate([[float(len(values))], values.sum(0), second]))
        self._returns.append(episode.episode_return)
        self._dynamics.add(values, episode.observations[1:].astype(np.float64))

    def solve(self) -> Solution:
        """The coefficients by the evidence, masks by what each input carries."""
        moments, returns = np.stack(self._moments), np.array(self._returns)
        lengths = moments[:, 0]
        total = moments.sum(0) / lengths.sum()
        mean = total[1 : 1 + self.inputs]
        is_square = self._first == self._second
        variance = total[1 + self.inputs :][is_square] - mean**2
        std = np.sqrt(np.maximum(variance, 0))
        moving = std > 1e-6 * (1 + np.abs(mean))
        std = np.where(moving, std, 1.0)
        columns = self._standardise(moments, mean, std)
        centres = columns.sum(0) / lengths.sum()
        # constant: c T + sum of features; features centred over steps, so that c is sum R / sum T
        constant = returns.sum() / lengths.sum()
        root = np.sqrt(lengths)
        design = (columns - np.outer(lengths, centres)) / root[:, None]
        design[:, ~np.concatenate([moving, (moving[self._first] & moving[self._second])])] = 0
        target = (returns - constant * lengths) / root
        weights, certainty = self._maximise_evidence(design, target)
        kept = self._choose_inputs(weights, certainty)
        weights[~np.concatenate([kept, kept[self._first] & kept[self._second]])] = 0
        linear, products = weights[: self.inputs], np.zeros((self.inputs, self.inputs))
        products[self._first, self._second] = weights[self.inputs :]
        self.solution = Solution(
            mean, std, np.array([constant - centres @ weights]), linear, products
        )
        self._set_masks(kept)
        return self.solution

    def _standardise(self, moments: Array, mean: Array, std: Array) -> Array:
        """(episode, feature) sums of z_i and z_i z_j from those of x_i and x_i x_j."""
        lengths, sums = moments[:, :1], moments[:, 1 : 1 + self.inputs]
        products = moments[:, 1 + self.inputs :]
        first, second = self._first, self._second
        mixed = products - sums[:, first] * mean[second] - sums[:, second] * mean[first]
        mixed = (mixed + lengths * (mean[first] * mean[second])) / (std[first] * std[second])
        return np.hstack([(sums - lengths * mean) / std, mixed])

    def _maximise_evidence(self, design: Array, target: Array) -> tuple[Array, Array]:
        """Posterior mean of the weights, and how many standard deviations each is from 0.

        Their prior variances are found by a few fixed-point steps from the last.
        """
        power = max(float((target**2).mean()), 1e-12)
        if len(target) <= 20 or not np.isfinite(self._noise):
            self._variances[:] = power / max(1, design.shape[1])
            self._noise = 0.1 * power
        order = np.argsort(self._effects, kind="stable")
        sizes = np.bincount(self._effects).tolist()
        problem = EvidenceProblem(design[:, order], sizes, target, few_steps=True)
        steps = ITERATIONS if len(target) <= FEW else FURTHER_ITERATIONS
        floor = NOISE_FLOOR * power
        fit = problem.maximise(self._variances, self._noise, floor=floor, iterations=steps)
        self._variances, self._noise = fit.variances, fit.noise
        weights, certainty = np.zeros((2, design.shape[1]))
        weights[order] = fit.weights
        certainty[order] = np.abs(fit.weights) / np.sqrt(fit.weight_variances())
        return weights, certainty

    def _choose_inputs(self, weights: Array, certainty: Array) -> BoolArray:
        """Those that the reward is kept to."""
        # z has variance 1 over steps; z_i z_j about 1, z_i^2 about 2
        power, singles = weights**2, self.inputs
        carried, surest = power[:singles].copy(), certainty[:singles].copy()
        for inputs in (self._first, self._second):
            np.add.at(carried, inputs, power[singles:])
            np.maximum.at(surest, inputs, certainty[singles:])
        is_large = carried > SHARE * max(float(power.sum()), 1e-300)
        return np.asarray(is_large | (surest > SIGMAS))

    def _set_masks(self, kept: BoolArray) -> None:
        """Those of the reward as they are, those of the dynamics when the steps have grown."""
        states, dynamics = self.states, self.masks[2:]
        if self._dynamics.count >= MASK_GROWTH * self._masks_at:
            to_state = self._dynamics.find_edges()
            dynamics = to_state[:states], to_state[states:]
            self._masks_at = self._dynamics.count
        self.masks = (
            kept[:states].astype(np.float64),
            kept[states:].astype(np.float64),
            *dynamics,
        )

    def state(self) -> dict[str, Any]:
        return {
            "moments": np.array(self._moments),
            "returns": np.array(self._returns),
            "variances": self._variances,
            "noise": self._noise,
            "solution": tuple(self.solution),
            "masks": self.masks,
            "masks_at": self._masks_at,
            **{name: getattr(self._dynamics, name) for name in _SUMS},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._moments = deque(np.asarray(state["moments"]), maxlen=WINDOW)
        self._returns = deque(np.asarray(state["returns"]).tolist(), maxlen=WINDOW)
        self._variances, self._noise = np.array(state["variances"]), float(state["noise"])
        self.solution = Solution(*(np.array(part) for part in state["solution"]))
        self.masks = tuple(np.array(part) for part in state["masks"])
        self._masks_at = float(state.get("masks_at", 0.0))
        for name in _SUMS:
            setattr(self._dynamics, name, np.array(state[name]))


_SUMS = ("gram", "cross", "squares")
