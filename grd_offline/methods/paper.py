"""`--fit paper`: Generative Return Decomposition as printed, for reproducing it.

Where the authors' code departs from their text, the text is followed. One update draws M rows
(whole episodes) and N transitions, samples one set of masks for each by hard Gumbel-softmax, and
takes one Adam step on

    L_m = L_rew + L_dyn + L_reg

Inputs and returns are used as they are: the paper scales neither. What the text leaves open is a
setting with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grd_offline.episodes import EpisodeSet
from grd_offline.errors import DataError
from grd_offline.losses import SparsityWeights, model_loss
from grd_offline.members.nn import EDGES, DynamicsNet, GraphMasks, Mixture, RewardNet
from grd_offline.methods.contract import Decomposer, Progress
from grd_offline.methods.equations import Problem, export_network
from grd_offline.methods.training import Noise, Trainer, make_adam

LAMBDAS = {
    "Ant": SparsityWeights(1e-5, 0.0, 1e-7, 1e-8, 1e-8),
    "HalfCheetah": SparsityWeights(1e-5, 1e-5, 1e-5, 1e-6, 1e-5),
    "Walker2d": SparsityWeights(1e-5, 1e-5, 1e-6, 1e-6, 1e-7),
    "Humanoid": SparsityWeights(1e-5, 1e-8, 1e-5, 1e-7, 1e-8),
    "Reacher": SparsityWeights(5e-7, 1e-8, 1e-8, 1e-8, 1e-8),
    "Swimmer": SparsityWeights(1e-7, 1e-9, 1e-9, 0.0, 1e-9),
    "Hopper": SparsityWeights(1e-6, 1e-6, 1e-6, 1e-7, 1e-6),
    "HumanoidStandup": SparsityWeights(1e-5, 1e-4, 1e-6, 1e-7, 1e-7),
}
"""lambda_1 to lambda_5 per environment, the paper's table of hyper-parameters."""
DEFAULT_LAMBDAS = LAMBDAS["HalfCheetah"]
"""For environments the table does not have: the row of its most usual task."""


def find_lambdas(environment: str | None) -> SparsityWeights:
    """The table's row for a name such as `HalfCheetah-v5` or `mujoco/ant`, else the default."""
    name = (environment or "").rsplit("/", 1)[-1]
    name = re.sub(r"-v\d+$", "", name).replace("-", "").lower()
    table = {known.lower(): weights for known, weights in LAMBDAS.items()}
    return table.get(name, DEFAULT_LAMBDAS)


@dataclass(frozen=True)
class PaperSettings:
    """Settings of `paper`; defaults are the paper's unless it says otherwise."""

    updates: int = 4000
    """Offline there is no loop over environment steps to print; as many as an early trial had."""
    episodes_per_batch: int = 4
    """M."""
    steps_per_batch: int = 256
    """N."""
    learning_rate: float = 3e-4
    """Adam's, for networks and masks alike."""
    discount: float = 1.0
    """gamma of the return sum."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of both nets, ReLU."""
    mixtures: int = 3
    """Gaussians per state dimension."""
    lambdas: SparsityWeights | None = None
    """lambda_1 to lambda_5; None takes the table's row for the dataset's environment."""
    temperature: float = 1.0
    """Of the Gumbel-softmax; not printed."""
    mask_spread: float = 1.0
    """Std of the mask logits at first; not printed. The authors' code too starts half on."""
    standardise: bool = False
    """Bring inputs and returns to unit scale first; the paper does not."""
    dynamics_outputs: int | None = None
    """Draw so many state dimensions per update instead of all; same expectation, less time."""
    members: int = 1
    """Independent models trained at once; their mean is the reward, their majority the masks."""
    device: str = "cpu"
    """`cpu` or `cuda`."""

    def __post_init__(self) -> None:
        names = ("updates", "episodes_per_batch", "steps_per_batch", "mixtures", "members")
        for name in (*names, "dynamics_outputs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {value!r}")
        if not 0 < self.discount <= 1:
            raise ValueError(
                f"discount: expected a number above 0, at most 1, got {self.discount!r}"
            )


class Paper(Decomposer, settings=PaperSettings):
    """GRD as printed."""

    def _fit(
        self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress | None
    ) -> None:
        """Learn masks, reward and dynamics jointly."""
        settings = self.settings
        problem = Problem.from_episodes(
            episodes,
            discount=settings.discount,
            device=settings.device,
            standardise=settings.standardise,
        )
        lambdas = settings.lambdas or find_lambdas(episodes.environment)
        model = _Model(problem, settings, lambdas, Noise(rng, settings.device))
        model.trainer.run(
            model.update,
            settings.updates,
            report=lambda done: progress("model", done / settings.updates) if progress else None,
        )
        self._keep(model)

    def _keep(self, model: _Model) -> None:
        chosen, probabilities = model.graph.choose(), model.graph.compute_probabilities()
        self.masks_ = {
            name: (getattr(chosen, name).mean(0) > 0.5).numpy(force=True).astype(np.int64)
            for name in EDGES
        }
        self.scores_ = {
            name: getattr(probabilities, name).mean(0).numpy(force=True).astype(np.float64)
            for name in EDGES
        }
        mask = torch.cat(chosen[:2], 1)
        columns = torch.arange(mask.shape[1])
        self.function_ = export_network(model.reward, model.problem, mask, columns)


class _Model:
    """phi_cau, phi_rew, phi_dyn and one joint update of them."""

    def __init__(
        self, problem: Problem, settings: PaperSettings, lambdas: SparsityWeights, noise: Noise
    ) -> None:
        self.problem, self.settings, self.lambdas = problem, settings, lambdas
        self._noise = noise.updates
        members, states, actions = settings.members, problem.states, problem.actions
        device = problem.device
        self.graph = GraphMasks(
            members, states, actions, spread=settings.mask_spread, generator=noise.weights
        ).to(device)
        self.reward = RewardNet(
            members, states + actions, hidden=settings.hidden, generator=noise.weights
        ).to(device)
        self.dynamics = DynamicsNet(
            members,
            states,
            actions,
            hidden=settings.hidden,
            mixtures=settings.mixtures,
            generator=noise.weights,
        ).to(device)
        modules = (self.graph, self.reward, self.dynamics)
        self.adam = make_adam(modules, settings.learning_rate, members=members, device=device)
        self.trainer = Trainer([self.adam], noise.updates)
        if not len(problem.rows.transitions):
            raise DataError("no step's next observation is known", field="observations")
        self._time = problem.rows.common_time
        self._outputs = min(states, settings.dynamics_outputs or states)

    def update(self) -> None:
        """One Adam step on L_m."""
        rows = self._draw(len(self.problem.targets), self.settings.episodes_per_batch)
        batch = self.problem.rows.gather(rows, self._time)
        temperature = self.settings.temperature
        mask = self.graph.sample_reward(1, temperature=temperature, generator=self._noise)
        rewards = self.reward(self.problem.inputs[batch.steps], mask.unsqueeze(2))
        mixture, targets = self._predict_next()
        loss = model_loss(
            rewards,
            batch.valid,
            self.problem.targets[rows],
            mixture,
            targets,
            self.graph.compute_probabilities(),
            weights=self.lambdas,
            discount=self.problem.discount,
            starts=batch.starts,
            dimensions=self.problem.states,
        )
        self.adam.step(loss.total)

    def _predict_next(self) -> tuple[Mixture, Tensor]:
        """N transitions: the distribution of the next state and what it was."""
        transitions = self.problem.rows.transitions
        steps = transitions[self._draw(len(transitions), self.settings.steps_per_batch)]
        device, states = self.problem.device, self.problem.states
        outputs = torch.arange(states, device=device)
        if self._outputs < states:
            order = torch.rand(states, generator=self._noise, device=device).argsort()
            outputs = order[: self._outputs]
        mask = self.graph.sample_dynamics(
            1, temperature=self.settings.temperature, generator=self._noise
        )
        mixture = self.dynamics(self.problem.inputs[steps], mask.index_select(-1, outputs), outputs)
        return mixture, self.problem.inputs[steps + 1][..., outputs]

    def _draw(self, count: int, size: int) -> Tensor:
        shape = (self.settings.members, size)
        return torch.randint(count, shape, generator=self._noise, device=self.problem.device)
