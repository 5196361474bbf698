"""Sources of rewards: one for all members of a run that share a method.

In each update a source may learn (`update`) and then computes the rewards of the drawn steps
(`compute_rewards`). After a round of collection it hears of finished episodes (`add`), and
`refresh` does the work of the host, some of it ahead of time (`prepare`). These are no part of a
recorded graph. `closed_form` has the source that searches for effects; all others are here.

A source sees observations, actions and returns. The true rewards of steps reach `Oracle` alone.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from grd_offline.additive.search import EvidenceProblem
from grd_offline.core.typing import Array, BoolArray
from grd_offline.learning.agents.agent import ReplaySteps
from grd_offline.learning.online.effect_search import Regression
from grd_offline.learning.online.replay import FinishedEpisode, Replay, SampledSteps, TrueRewards
from grd_offline.learning.settings import Member, OnlineSettings
from grd_offline.methods import paper
from grd_offline.methods.rrd import STEPS_PER_EPISODE, RrdModel
from grd_offline.methods.training import copy_member, export_reward
from grd_offline.networks.losses import SparsityWeights
from grd_offline.networks.members.device import Download, SideStream, restore
from grd_offline.networks.members.nn import (
    Masks,
    RewardNet,
    UniformNumbers,
    build_members,
    to_gumbel,
)
from grd_offline.networks.members.optimiser import Adam
from grd_offline.rewards.network import NetworkFunction
from grd_offline.rewards.quadratic import QuadraticFunction

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from grd_offline.learning.agents.shapes import Actions, Members, States, Steps

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
    compiled: tuple[str, ...] = ()
    """Methods that become one kernel each where that pays."""
    adam: Adam | None = None
    """The optimiser of its networks, where it has any."""
    names: tuple[Sequence[str], Sequence[str]] | None = None
    """Names of the dimensions of observations and of actions, where they are known."""

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        """The `members`, which stand at `where` among all of the run."""
        self.members, self.replay, self.size = where, replay, len(members)
        self.states, self.actions = replay.observations.shape[-1], replay.actions.shape[-1]

    def update(self, steps: ReplaySteps, counter: Tensor) -> None:
        """Learn from the replay, if there is anything to learn."""

    def compile(self, backend: str) -> None:
        """Fuse what lies between matrix products; for devices where that pays."""
        for name in self.compiled:
            method = torch.compile(getattr(self, name), dynamic=False, backend=backend)
            setattr(self, name, method)
        if self.adam is not None:
            self.adam.compile(backend)

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
        known = [(m, episode) for m, episode in enumerate(episodes) if episode is not None]
        if not known or not self.is_model:
            return lambda: [None] * self.size
        shape = self.size, max(len(episode.actions) for _, episode in known)
        seen = np.zeros((self.size, shape[1] + 1, self.states), np.float32)
        acted = np.zeros((*shape, self.actions), np.float32)
        ended = np.zeros(shape, np.float32)
        for member, episode in known:
            length = len(episode.actions)
            seen[member, : length + 1], acted[member, :length] = episode[:2]
            ended[member, length - 1] = episode.terminated
        states, actions, terminated = map(self.replay.upload, (seen, acted, ended))
        nothing = torch.zeros_like(terminated)
        steps = ReplaySteps(
            states[:, :-1], actions, states[:, 1:], terminated, nothing, nothing, nothing.long()
        )
        with torch.no_grad():
            under_way = Download(self.predict_steps(steps))

        def finish() -> list[Array | None]:
            rewards: list[Array | None] = [None] * self.size
            for member, episode in known:
                own = under_way.finish()[member, : len(episode.actions)]
                rewards[member] = own.astype(np.float64)
            return rewards

        return finish

    def export(self, member: int) -> Any:
        """The member's reward as a `RewardFunction` in the environment's units, or None."""
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
        """Take over what `state` gave. The replay has been loaded before."""
        restore(self.state(), state)

    @property
    def skipped(self) -> Tensor:
        """(member,) updates that were left out because they were not finite."""
        if self.adam is not None:
            return self.adam.skipped.squeeze(1)
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


class IrcrSource(RewardSource):
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
        rewards: list[Array | None] = [None] * self.size
        for member, (lowest, highest) in enumerate(self._range.T.tolist()):
            if (episode := episodes[member]) is not None:
                total = float(np.float32(episode.episode_return))  # as the range is
                share = (total - lowest) / max(highest - lowest, 1e-8)
                rewards[member] = np.full(len(episode.actions), share)
        return lambda: rewards

    def state(self) -> dict[str, Any]:
        return {"range": self._range}


def stack_masks(members: Sequence[Sequence[Array]]) -> Masks:
    """The masks of all members in one object."""
    stacked = [np.stack(edges).astype(np.float32) for edges in zip(*members, strict=True)]
    return Masks(*(torch.from_numpy(edges) for edges in stacked))


class SourceNumbers:
    """Uniform random numbers of some shapes, (member, ...) each, for the updates of a source."""

    def __init__(
        self, seeds: Sequence[int], device: torch.device, *shapes: tuple[int, ...]
    ) -> None:
        self._shapes = shapes
        self._sizes = [math.prod(shape) for shape in shapes]
        self._uniform = UniformNumbers(seeds, sum(self._sizes), stream=STREAM, device=device)

    def draw(self, counter: Tensor, part: int) -> Tensor:
        """The numbers of one of the shapes."""
        start = sum(self._sizes[:part])
        drawn = self._uniform.draw(counter, slice(start, start + self._sizes[part]))
        return drawn.view(-1, *self._shapes[part])


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
    """`grd` with `--fit quadratic`: the reward as a quadratic of the step, solved for exactly.

        r(x) = c + sum_i (b_i z_i) + sum_{i<=j} q_ij z_i z_j,   z = (x - mean) / std of x = (s, a)

    An episode's return is then linear in its sums of z_i and z_i z_j, which follow from the sums of
    x_i x_j: these are all that is kept of an episode. When one ends, the coefficients are solved
    for again (a Gaussian prior, a variance for each effect, found by the evidence and carried on
    from solve to solve), and the policy trains on the new reward at once. The masks of the dynamics
    come from sums as well, see `Regression`.
    """

    def __init__(self, where: slice, replay: Replay, *about: Any) -> None:
        super().__init__(where, replay, *about)
        inputs, device = self.states + self.actions, replay.device
        self.solvers = [Solver(self.states, self.actions) for _ in range(self.size)]
        self._changed: set[int] = set()
        self._mean = torch.zeros((self.size, 1, inputs), device=device)
        self._std = torch.ones((self.size, 1, inputs), device=device)
        self._constant = torch.zeros((self.size, 1), device=device)
        self._linear = torch.zeros((self.size, inputs, 1), device=device)
        self._products = torch.zeros((self.size, inputs, inputs), device=device)

    def add(self, member: int, episode: FinishedEpisode) -> None:
        self.solvers[member].add(episode)
        self._changed.add(member)

    def refresh(self) -> None:
        """Solve again for every member that has finished an episode."""
        changed, self._changed = sorted(self._changed), set()
        solvers = [self.solvers[member] for member in changed]
        # Side by side where an accelerator trains meanwhile; on a CPU the cores are busy.
        if self.replay.device.type == "cpu" or len(changed) < 2:
            solutions = [solver.solve() for solver in solvers]
        else:
            with ThreadPoolExecutor(min(len(changed), os.cpu_count() or 1)) as pool:
                solutions = list(pool.map(Solver.solve, solvers))
        for member, solution in zip(changed, solutions, strict=True):
            self._take(member, solution)

    def _take(self, member: int, solution: QuadraticFunction) -> None:
        targets = (self._mean, self._std, self._constant, self._linear, self._products)
        for target, value in zip(targets, solution.tensors().values(), strict=True):
            sent = torch.from_numpy(np.asarray(value, np.float32))
            target[member].copy_(sent.view(target[member].shape), non_blocking=True)

    def find_masks(self) -> Masks:
        return stack_masks([solver.masks for solver in self.solvers])

    def compute_rewards(self, steps: ReplaySteps) -> Tensor:
        inputs = torch.cat([steps.observations, steps.actions], -1)
        inputs = (inputs - self._mean) / self._std  # (member, batch, input)
        slopes = torch.baddbmm(self._linear.mT, inputs, self._products)
        return (slopes * inputs).sum(-1) + self._constant

    def export(self, member: int) -> QuadraticFunction:
        return self.solvers[member].solution

    def state(self) -> dict[str, Any]:
        return {"solvers": [solver.state() for solver in self.solvers]}

    def load_state(self, state: dict[str, Any]) -> None:
        for member, (solver, part) in enumerate(zip(self.solvers, state["solvers"], strict=True)):
            solver.load_state(part)
            self._take(member, solver.solution)


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
        zeros, products = np.zeros(self.inputs), np.zeros((self.inputs, self.inputs))
        self.solution = self._make_solution(zeros, np.ones(self.inputs), 0.0, zeros, products)

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

    def _make_solution(self, *tensors: ArrayLike) -> QuadraticFunction:
        """Mean and std of the inputs, the constant, and the weights of z and of z z'."""
        return QuadraticFunction(states=self.states, **dict(zip(_TENSORS, tensors, strict=True)))

    def solve(self) -> QuadraticFunction:
        """The coefficients by the evidence, masks by what each input carries.

        The masks of the dynamics are found anew when the steps have grown.
        """
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
        constant = constant - centres @ weights
        self.solution = self._make_solution(mean, std, constant, linear, products)
        dynamics = self.masks[2:]
        if self._dynamics.count >= MASK_GROWTH * self._masks_at:
            dynamics = tuple(np.split(self._dynamics.find_edges(), [self.states]))
            self._masks_at = self._dynamics.count
        self.masks = (*np.split(kept.astype(np.float64), [self.states]), *dynamics)
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

    def state(self) -> dict[str, Any]:
        return {
            "moments": np.array(self._moments),
            "returns": np.array(self._returns),
            "variances": self._variances,
            "noise": self._noise,
            "solution": tuple(self.solution.tensors().values()),
            "masks": self.masks,
            "masks_at": self._masks_at,
            **{name: getattr(self._dynamics, name) for name in _SUMS},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._moments = deque(np.asarray(state["moments"]), maxlen=WINDOW)
        self._returns = deque(np.asarray(state["returns"]).tolist(), maxlen=WINDOW)
        self._variances, self._noise = np.array(state["variances"]), float(state["noise"])
        self.solution = self._make_solution(*map(np.array, state["solution"]))
        self.masks = tuple(np.array(part) for part in state["masks"])
        self._masks_at = float(state.get("masks_at", 0.0))
        for name in _SUMS:
            setattr(self._dynamics, name, np.array(state[name]))


_SUMS = ("gram", "cross", "squares")
_TENSORS = ("mean", "std", "constant", "linear", "products")


class Generative(RewardSource):
    """`grd` with `--fit paper` or `--fit joint-net`: the generative model, driven by the replay.

    Each update draws M whole episodes for the reward and its masks (D_1) and takes the policy's N
    steps for the dynamics and theirs (D_2); `grd_offline.methods.paper` has the model
    and the two fits. `joint-net` sees inputs and returns at unit scale, which follows the episodes
    as they come in.
    """

    losses: Tensor
    loss_names = ("reward", "dynamics", "sparsity")
    compiled = ("_compute_reward_loss", "_compute_dynamics_losses")

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        super().__init__(where, replay, members, settings)
        is_paper = members[0].kind == "paper"
        self.settings = fit = paper.PAPER if is_paper else paper.JOINT_NET
        states, actions, device = self.states, self.actions, replay.device
        inputs, hidden, self._episodes = states + actions, settings.hidden, settings.episodes
        seeds = [member.seed * 4 + 2 for member in members]
        parts: Any = (
            build_members(lambda g: fit.build_graph(1, states, actions, generator=g), seeds),
            build_members(lambda g: RewardNet(1, inputs, hidden=hidden, generator=g), seeds),
            build_members(
                lambda g: fit.build_dynamics(1, states, actions, generator=g),
                [seed + 1 for seed in seeds],
            ),
        )
        columns = zip(*(member.lambdas for member in members), strict=True)
        self.model = paper.GenerativeModel(
            *(part.to(device) for part in parts),
            settings=fit,
            lambdas=SparsityWeights(*(replay.send(c) for c in columns)),  # type: ignore[arg-type]
            rates=replay.send(member.model_rate for member in members),
        )
        self.adam = self.model.adam
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
        self.losses = torch.zeros((3, self.size), device=device)
        self._side = SideStream(device)

    def update(self, steps: ReplaySteps, counter: Tensor) -> None:
        cuda = self.replay.device.type == "cuda"
        rows = self._episodes * self.replay.longest if cuda else None
        with self._side.fork():
            dynamics, sparsity = self._compute_dynamics_losses(steps, counter)
        reward = self._compute_reward_loss(counter, rows)
        self._side.join()
        self.model.step(reward + dynamics + sparsity)
        for target, term in zip(self.losses, (reward, dynamics, sparsity), strict=True):
            target.copy_(term.detach())

    def cuda_graph_key(self) -> Hashable:
        """Episodes that have become much longer need other graphs."""
        return self.replay.longest

    def _compute_reward_loss(self, counter: Int[Tensor, ""], rows: int | None) -> Members:
        """Compute L_rew on D_1, whose episodes lie end to end."""
        picks, noise = (self._draws.draw(counter, part) for part in range(2))
        drawn = self.replay.draw_episodes(picks, self.members, rows)
        inputs = self._scale_inputs(drawn.observations, drawn.actions).unsqueeze(1)
        returns, unit = drawn.returns, None
        if self.settings.standardise:
            returns = (returns - self._offset * drawn.lengths) / self._spread
            unit = self._scale / self._spread
        trajectories = paper.Trajectories(inputs, drawn.valid, returns, unit=unit)
        dense = self._is_dense(counter)
        return self.model.compute_return_loss(trajectories, to_gumbel(noise), dense)

    def _compute_dynamics_losses(
        self, steps: ReplaySteps, counter: Int[Tensor, ""]
    ) -> tuple[Members, Members]:
        """Compute L_dyn on D_2, whose state dimensions take turns if only a few are predicted, and
        L_reg."""
        noise, dense, states = self._draws.draw(counter, 2), self._is_dense(counter), self.states
        count = min(states, self.settings.dynamics_outputs or states)
        outputs = torch.arange(count, device=counter.device)
        if count < states:
            outputs = (counter * count + outputs) % states
        next_states = steps.next_observations
        if self.settings.standardise:
            next_states = (next_states - self._mean[..., :states]) / self._std[..., :states]
        inputs = self._scale_inputs(steps.observations, steps.actions)
        transitions = paper.TransitionBatch(inputs, next_states, outputs)
        dynamics = self.model.compute_dynamics_loss(transitions, to_gumbel(noise), dense)
        return dynamics, self.model.compute_sparsity_loss(dense)

    def _is_dense(self, counter: Int[Tensor, ""]) -> Float[Tensor, ""]:
        """1 while every edge is to be on, else 0; a recorded graph has no branches."""
        return (counter <= self.settings.dense_updates).to(torch.float32)

    def _scale_inputs(
        self, observations: States, actions: Actions
    ) -> Float[Tensor, "member batch input"]:
        inputs = torch.cat([observations, actions], -1)
        return (inputs - self._mean) / self._std if self.settings.standardise else inputs

    def compute_rewards(self, steps: ReplaySteps) -> Steps:
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
        super().load_state(state)
        self.refresh()


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


class RrdSource(RewardSource):
    """`rrd` and `rrd-unbiased`: randomised return decomposition beside a policy that learns.

    `grd_offline.methods.rrd` has the model; each update draws a few episodes of the replay
    and some steps of each. Both kinds may be members of one source: `unbiased` says which member is
    which.
    """

    losses: Tensor
    loss_names = ("reward",)
    compiled = ("_compute_losses",)

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        super().__init__(where, replay, members, settings)
        device, episodes, hidden = replay.device, settings.episodes, settings.hidden
        net = build_members(
            lambda g: RewardNet(1, 2 * self.states + self.actions, hidden=hidden, generator=g),
            [member.seed * 4 + 2 for member in members],
        ).to(device)
        unbiased = [member.method == "rrd-unbiased" for member in members]
        self.model = RrdModel(net, unbiased, replay.send(m.model_rate for m in members))
        self.adam = self.model.adam
        seeds = [member.seed for member in members]
        self._draws = SourceNumbers(seeds, device, (episodes,), (episodes, replay.limit))
        self.losses = torch.zeros((1, self.size), device=device)

    def update(self, steps: ReplaySteps, counter: Tensor) -> None:
        losses = self._compute_losses(counter)
        self.model.step(losses)
        self.losses[0] = losses.detach()

    def _compute_losses(self, counter: Int[Tensor, ""]) -> Members:
        picks, order = (self._draws.draw(counter, part) for part in range(2))
        drawn = self.replay.draw_from_episodes(picks, order, STEPS_PER_EPISODE, self.members)
        return self.model.compute_losses(_join(drawn), drawn.valid, drawn.lengths, drawn.returns)

    def compute_rewards(self, steps: ReplaySteps) -> Steps:
        return self.model.compute_rewards(_join(steps))

    def export(self, member: int) -> NetworkFunction:
        net, mask = copy_member(self.model.net, member), self.model.mask[member : member + 1]
        sizes: Any = {"states": self.states, "actions": self.actions}
        return export_reward(net, mask, **sizes, columns=range(mask.shape[-1]), needs_next=True)

    def state(self) -> dict[str, Any]:
        return {"net": self.model.adam.state()}


def _join(steps: ReplaySteps | SampledSteps) -> Tensor:
    """(..., input) the state, the action and the change to the next state, side by side."""
    change = steps.next_observations - steps.observations
    return torch.cat([steps.observations, steps.actions, change], -1)
