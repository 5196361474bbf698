"""`--fit paper`: Generative Return Decomposition as printed, from the rows of a file.

`grd_offline.methods.models.generative` has the model. Each update draws M rows (whole episodes)
and N transitions, samples one set of masks for each, and takes one step of Adam on L_m. Where the
authors' code departs from their text, the text is followed. Inputs and returns are used as they
are: the paper scales neither. What the text leaves open is a setting with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.observer import Progress
from grd_offline.core.settings import COUNT, RATE, Settings, setting
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.models import generative
from grd_offline.methods.models.generative import find_lambdas
from grd_offline.methods.training import Noise, Problem, Trainer, export_network
from grd_offline.networks.losses import SparsityWeights
from grd_offline.networks.members.nn import EDGES, RewardNet, draw_gumbel

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True)
class PaperSettings(Settings):
    """Settings of `paper`. The defaults are those of the paper unless the text says otherwise."""

    updates: int = setting(4000, **COUNT)
    """Number of updates. The paper counts environment steps, which a file does not have."""
    episodes_per_batch: int = setting(4, **COUNT)
    """Whole episodes per update (M)."""
    steps_per_batch: int = setting(256, **COUNT)
    """Number N of transitions per update."""
    learning_rate: float = 3e-4
    """Learning rate of Adam, for networks and masks alike."""
    discount: float = setting(1.0, **RATE)
    """Discount factor of the return (gamma)."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of both nets, with ReLU."""
    mixtures: int = setting(3, **COUNT)
    """Number of Gaussians per state dimension."""
    lambdas: SparsityWeights | None = None
    """Sparsity weights lambda_1 to lambda_5. None takes the row of the paper for the environment of
    the data."""
    temperature: float = 1.0
    """Temperature of the Gumbel-softmax; the paper does not print it."""
    mask_spread: float = 1.0
    """Standard deviation of the mask logits at the start. The paper does not print it; with this
    value half of the edges start on, as in the authors' code."""
    standardise: bool = False
    """Bring inputs and returns to unit scale first; the paper does not."""
    dynamics_outputs: int | None = setting(None, **COUNT)
    """Number of state dimensions that an update predicts, drawn at random; None predicts all."""
    members: int = setting(1, **COUNT)
    """Independent models trained at once; their mean is the reward, their majority the masks."""
    device: str = "cpu"
    """Device that trains the networks: `cpu` or `cuda`."""


class Paper(Decomposer, settings=PaperSettings):
    """GRD as the paper prints it.

    Examples
    --------
    >>> from grd_offline import read
    >>> model = Paper().fit(read("datasets/sample.h5"))  # doctest: +SKIP
    """

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Learn masks, reward and dynamics jointly."""
        settings = self.settings
        problem = Problem.from_episodes(
            episodes,
            discount=settings.discount,
            device=settings.device,
            standardise=settings.standardise,
        )
        lambdas = settings.lambdas or find_lambdas(episodes.environment)
        updates = _Updates(problem, settings, lambdas, Noise(rng, settings.device))
        count, model = settings.updates, updates.model
        updates.trainer.run(
            updates.update, count, report=lambda done: progress("model", done / count)
        )
        chosen, probabilities = model.graph.choose(), model.graph.compute_probabilities()
        self.masks_, self.scores_ = {}, {}
        for name in EDGES:
            majority = getattr(chosen, name).mean(0) > 0.5
            self.masks_[name] = majority.numpy(force=True).astype(np.int64)
            mean = getattr(probabilities, name).mean(0)
            self.scores_[name] = mean.numpy(force=True).astype(np.float64)
        mask = model.choose_reward_mask()
        self.function_ = export_network(model.reward, problem, mask, torch.arange(mask.shape[1]))


class _Updates:
    """The generative model, and updates of it that draw from the rows of a file."""

    def __init__(
        self, problem: Problem, settings: PaperSettings, lambdas: SparsityWeights, noise: Noise
    ) -> None:
        if not len(problem.rows.transitions):
            raise DataError("no step's next observation is known", field="observations")
        self.problem, self.settings, self._noise = problem, settings, noise.updates
        members, states, actions = settings.members, problem.states, problem.actions
        device, generator = problem.device, noise.weights
        chosen = generative.GenerativeSettings(
            mask_spread=settings.mask_spread,
            temperature=settings.temperature,
            dynamics_hidden=settings.hidden,
            mixtures=settings.mixtures,
            dynamics_outputs=settings.dynamics_outputs,
        )
        sizes = members, states, actions
        graph = chosen.build_graph(*sizes, generator=generator)
        net = RewardNet(members, states + actions, hidden=settings.hidden, generator=generator)
        self.model = generative.GenerativeModel(
            graph.to(device),
            net.to(device),
            chosen.build_dynamics(*sizes, generator=generator).to(device),
            settings=chosen,
            lambdas=lambdas,
            rates=torch.full((members,), settings.learning_rate, dtype=torch.float64).to(device),
            discount=problem.discount,
            leaves=False,
        )
        self.trainer = Trainer([self.model.adam], noise.updates)
        self._time = problem.rows.common_time
        self._outputs = min(states, settings.dynamics_outputs or states)

    def update(self) -> None:
        """Update the model, as in lines 16 to 24 of Algorithm 1."""
        inputs = self.problem.states + self.problem.actions
        trajectories, reward_noise = self._draw_trajectories(), self._draw_gumbel(inputs, 2)
        transitions = self._draw_transitions()
        dynamics_noise = self._draw_gumbel(inputs, self.problem.states, 2)
        losses = self.model.compute_losses(trajectories, transitions, reward_noise, dynamics_noise)
        self.model.step(losses.total)

    def _draw_trajectories(self) -> generative.Trajectories:
        """Draw D_1: M rows of the file."""
        rows = self._pick(len(self.problem.targets), self.settings.episodes_per_batch)
        batch = self.problem.rows.gather(rows, self._time)
        inputs, returns = self.problem.inputs[batch.steps], self.problem.targets[rows]
        return generative.Trajectories(inputs, batch.valid, returns, batch.starts)

    def _draw_transitions(self) -> generative.Transitions:
        """Draw D_2: N steps of the file, and the state dimensions that this update predicts."""
        transitions, states = self.problem.rows.transitions, self.problem.states
        steps = transitions[self._pick(len(transitions), self.settings.steps_per_batch)]
        outputs = torch.arange(states, device=self.problem.device)
        if self._outputs < states:
            order = torch.rand(states, generator=self._noise, device=self.problem.device).argsort()
            outputs = order[: self._outputs]
        next_states = self.problem.inputs[steps + 1][..., :states]
        return generative.Transitions(self.problem.inputs[steps], next_states, outputs)

    def _draw_gumbel(self, *shape: int) -> Float[Tensor, "member 1 *shape"]:
        """Gumbel noise; there is one copy of it, since masks are sampled once per update."""
        return draw_gumbel(
            (self.settings.members, 1, *shape), device=self.problem.device, generator=self._noise
        )

    def _pick(self, count: int, size: int) -> Int[Tensor, "member size"]:
        """Draw random whole numbers from 0 to count - 1."""
        shape = (self.settings.members, size)
        return torch.randint(count, shape, generator=self._noise, device=self.problem.device)
