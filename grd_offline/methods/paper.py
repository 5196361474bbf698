"""The paper's generative model Phi_m: a causal graph, a reward net and a dynamics net.

    phi_cau   two logits per possible edge of the graph      `members.nn.GraphMasks`
    phi_rew   reward of a step from its masked inputs         `members.nn.RewardNet`
    phi_dyn   distribution of the next state, likewise        `members.nn.DynamicsNet`

All three are learned at once, by one step of Adam on L_m = L_rew + L_dyn + L_reg per update. The
same model learns from a file (`decompose --fit paper`) and beside a policy (`train-online --fit
paper` and `--fit joint-net`); who drives it draws the batches and the noise.

Algorithm 1 of the paper, with its line numbers:

    6, 9      steps of the environment, and finished episodes into the replay    `online.run`
    16        D_1: M whole episodes                                              `Trajectories`
    20        D_2: N transitions                                                 `Transitions`
    17, 21    sample the masks by Gumbel-softmax                   }
    18, 22    L_rew on D_1, L_dyn on D_2                           }  `compute_losses`
    24        L_reg                                                }
    18-24     one step on L_m                                         `step`
    27, 29    choose the masks greedily, rewards of D_2               `compute_rewards`
    28        the compact state                                       `graph.compact_closure`
    30        one step of the policy                                  `agents`

`online.learner.Learner` runs lines 16 to 30 in this order, once per update. `LAMBDAS` are the
sparsity weights of the paper, one row per environment (its Table 3).

`--fit paper` is Generative Return Decomposition as printed, from the rows of a file. Each update
draws M rows (whole episodes) and N transitions, samples one set of masks for each, and takes one
step of Adam on L_m. Where the authors' code departs from their text, the text is followed. Inputs
and returns are used as they are: the paper scales neither. What the text leaves open is a setting
with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.observer import Progress
from grd_offline.core.settings import COUNT, RATE, Settings, setting
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.training import NetworkData, Noise, Trainer, export_network, read_graph
from grd_offline.networks.losses import (
    ModelLoss,
    SparsityWeights,
    dynamics_loss,
    edge_count_loss,
    return_loss,
    sparsity_loss,
)
from grd_offline.networks.members import nn
from grd_offline.networks.members.optimiser import Adam

if TYPE_CHECKING:
    from jaxtyping import Float


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
"""The weights lambda_1 to lambda_5 of the paper for each environment."""
DEFAULT_LAMBDAS = LAMBDAS["HalfCheetah"]
"""Weights for environments that the table does not have: those of HalfCheetah."""


def find_lambdas(environment: str | None) -> SparsityWeights:
    """The table's row for a name such as `HalfCheetah-v5` or `mujoco/ant`, else the default."""
    name = (environment or "").rsplit("/", 1)[-1]
    name = re.sub(r"-v\d+$", "", name).replace("-", "").lower()
    table = {known.lower(): weights for known, weights in LAMBDAS.items()}
    return table.get(name, DEFAULT_LAMBDAS)


@dataclass(frozen=True)
class GenerativeSettings:
    """Settings in which `paper` and `joint-net` differ. The defaults are those of the paper."""

    standardise: bool = False
    """Bring inputs and returns to unit scale."""
    mask_start: float = 0.0
    """Value of psi_0 - psi_1 at the start."""
    mask_spread: float = 1.0
    """Standard deviation of the mask logits at the start. The paper does not print it; with this
    value half of the edges start on, as in the authors' code."""
    mask_rate: float | None = None
    """Learning rate of the mask logits; None takes that of the networks."""
    mask_per_episode: bool = False
    """Sample the reward's masks for each episode instead of once for all."""
    temperature: float = 1.0
    """Temperature of the Gumbel-softmax; the paper does not print it."""
    dynamics_samples: int = 1
    """Samples of the dynamics' masks, each for an equal part of the steps."""
    dense_updates: int = 0
    """Number of first updates in which every edge is on."""
    edge_price: float | None = None
    """Weight of each edge's probability; None takes the paper's log-probabilities and lambdas."""
    dynamics_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the dynamics net."""
    mixtures: int = 3
    """Number of Gaussians per state dimension."""
    log_std_range: tuple[float, float] = (-7.0, 7.0)
    """Log standard deviations of the Gaussians are clamped to this range."""
    embedding: int = 0
    """Size of the vector that tells the dynamics net which dimension it predicts."""
    dynamics_outputs: int | None = None
    """Number of state dimensions that an update predicts; None predicts all of them."""
    activation: str = "relu"
    """Activation of the dynamics net."""

    def build_graph(self, *sizes: int, generator: torch.Generator) -> nn.GraphMasks:
        """Build phi_cau of so many members, states and actions, as it is at the start."""
        start, spread = self.mask_start, self.mask_spread
        return nn.GraphMasks(*sizes, start=start, spread=spread, generator=generator)

    def build_dynamics(self, *sizes: int, generator: torch.Generator) -> nn.DynamicsNet:
        """Build phi_dyn of so many members, states and actions, as it is at the start."""
        return nn.DynamicsNet(
            *sizes,
            hidden=self.dynamics_hidden,
            mixtures=self.mixtures,
            embedding=self.embedding,
            log_std_range=self.log_std_range,
            activation=self.activation,
            generator=generator,
        )


PAPER = GenerativeSettings()
JOINT_NET = GenerativeSettings(
    standardise=True,
    mask_start=3.0,
    mask_spread=0.0,
    mask_rate=0.02,
    mask_per_episode=True,
    dynamics_samples=8,
    dense_updates=2000,
    edge_price=0.003,
    dynamics_hidden=(64, 64),
    log_std_range=(-5.0, 2.0),
    embedding=8,
    dynamics_outputs=8,
    activation="silu",
)


class Trajectories(NamedTuple):
    """D_1: whole episodes with their returns (or stretches with what was delivered)."""

    inputs: Tensor
    """(member, episode or 1, time, input); 1 where episodes lie end to end on one time axis."""
    valid: Tensor
    """(member, episode, time) whether a step took place and is of that episode."""
    returns: Tensor
    """(member, episode): the return of each episode."""
    starts: Tensor | None = None
    """(member, episode): number of steps before the row, for the discount. None means 0."""
    unit: Tensor | None = None
    """(member, 1) unit of the net's rewards, where it is not that of the returns."""


class TransitionBatch(NamedTuple):
    """D_2: single steps, and the state after each."""

    inputs: Tensor
    """(member, batch, input): states and actions of the steps."""
    next_states: Tensor
    """(member, batch, state): the states after the steps."""
    outputs: Tensor
    """(output,) the state dimensions to predict."""


class GenerativeModel:
    """phi_cau, phi_rew and phi_dyn of some members, and one joint update of them."""

    def __init__(
        self,
        graph: nn.GraphMasks,
        reward: nn.RewardNet,
        dynamics: nn.DynamicsNet,
        *,
        settings: GenerativeSettings,
        lambdas: SparsityWeights,
        rates: Float[Tensor, "member"],
        discount: float = 1.0,
        leaves: bool = True,
    ) -> None:
        """Each of `lambdas` may be a tensor (member,). `Flat` of the optimiser has `leaves`."""
        self.graph, self.reward, self.dynamics = graph, reward, dynamics
        self.settings, self.lambdas, self.discount = settings, lambdas, discount
        own = None if settings.mask_rate is None else (graph, settings.mask_rate)
        self.adam = Adam([graph, reward, dynamics], rates, own=own, leaves=leaves)

    def compute_losses(
        self,
        trajectories: Trajectories,
        transitions: TransitionBatch,
        reward_noise: Float[Tensor, "member reward_copy input 2"],
        dynamics_noise: Float[Tensor, "member dynamics_copy input state 2"],
    ) -> ModelLoss:
        """L_rew, L_dyn and L_reg; the noise is standard Gumbel."""
        return ModelLoss(
            self.compute_return_loss(trajectories, reward_noise),
            self.compute_dynamics_loss(transitions, dynamics_noise),
            self.compute_sparsity_loss(),
        )

    def step(self, losses: Float[Tensor, "member"]) -> None:
        """One step of Adam on L_m for all three parts."""
        self.adam.step(losses)

    def compute_rewards(
        self, inputs: Float[Tensor, "member batch input"]
    ) -> Float[Tensor, "member batch"]:
        """Rewards behind the masks as they are chosen greedily (Eq. 24)."""
        return cast(Tensor, self.reward(inputs, self.choose_reward_mask().unsqueeze(1)))

    def choose_reward_mask(self) -> Float[Tensor, "member input"]:
        """The greedy masks of states and actions into the reward, side by side (Eq. 22)."""
        return torch.cat(self.graph.choose()[:2], 1)

    def compute_return_loss(
        self,
        batch: Trajectories,
        noise: Float[Tensor, "member copy input 2"],
        dense: Float[Tensor, ""] | None = None,
    ) -> Float[Tensor, "member"]:
        """Compute the return loss L_rew (Eq. 4).

        In all three losses `dense` is 1 while every edge is to be on and costs nothing, else 0.
        """
        logits = torch.cat([self.graph.state_to_reward, self.graph.action_to_reward], 1)
        mask = self._sample(logits, noise, dense)  # (member, copy, input)
        if batch.inputs.shape[1] == 1 and mask.shape[1] > 1:  # episodes lie end to end
            mask = (batch.valid.to(mask.dtype).mT @ mask).unsqueeze(1)  # (member, 1, time, input)
        else:
            mask = mask.unsqueeze(2)
        rewards = self.reward(batch.inputs, mask)  # (member, episode or 1, time)
        if batch.unit is not None:
            rewards = rewards * batch.unit.unsqueeze(2)
        return return_loss(
            rewards.expand(batch.valid.shape),
            batch.valid,
            batch.returns,
            discount=self.discount,
            starts=batch.starts,
        )

    def compute_dynamics_loss(
        self,
        batch: TransitionBatch,
        noise: Float[Tensor, "member copy input state 2"],
        dense: Float[Tensor, ""] | None = None,
    ) -> Float[Tensor, "member"]:
        """L_dyn (Eq. 5), scaled up from the predicted dimensions to all of them."""
        logits = torch.cat([self.graph.state_to_state, self.graph.action_to_state], 1)
        outputs = batch.outputs
        mask = self._sample(logits.index_select(2, outputs), noise.index_select(3, outputs), dense)
        samples, size = mask.shape[1], batch.inputs.shape[1]
        if samples > 1:
            mask = mask.repeat_interleave(-(-size // samples), 1)[:, :size]
        mixture: nn.Mixture = self.dynamics(batch.inputs, mask, outputs)
        targets = batch.next_states.index_select(2, outputs)
        return dynamics_loss(*mixture, targets, dimensions=logits.shape[2])

    def compute_sparsity_loss(
        self, dense: Float[Tensor, ""] | None = None
    ) -> Float[Tensor, "member"]:
        """L_reg (Eq. 6), or the price of the expected number of edges."""
        probabilities, price = self.graph.compute_probabilities(), self.settings.edge_price
        if price is None:
            loss = sparsity_loss(*probabilities, weights=self.lambdas)
        else:
            loss = edge_count_loss(*probabilities, weights=SparsityWeights(*[price] * 5))
        return loss if dense is None else loss * (1 - dense)

    def _sample(
        self,
        logits: Float[Tensor, "member *edges 2"],
        noise: Float[Tensor, "member copy *edges 2"],
        dense: Float[Tensor, ""] | None,
    ) -> Float[Tensor, "member copy *edges"]:
        """Masks by Gumbel-softmax (Eq. 21); all 1 where `dense` is."""
        shape = (noise.shape[0], noise.shape[1], *logits.shape[1:])
        sampled = nn.sample_edges(
            logits.unsqueeze(1).expand(shape), noise, temperature=self.settings.temperature
        )
        return sampled if dense is None else sampled * (1 - dense) + dense


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
        problem = NetworkData.from_episodes(episodes, settings, standardise=settings.standardise)
        lambdas = settings.lambdas or find_lambdas(episodes.environment)
        updates = _Updates(problem, settings, lambdas, Noise(rng, settings.device))
        count, model = settings.updates, updates.model
        updates.trainer.run(
            updates.update, count, report=lambda done: progress("model", done / count)
        )
        self.masks_, self.scores_ = read_graph(model.graph)
        self.function_ = export_network(model.reward, problem, model.choose_reward_mask())


class _Updates:
    """The generative model, and updates of it that draw from the rows of a file."""

    def __init__(
        self, problem: NetworkData, settings: PaperSettings, lambdas: SparsityWeights, noise: Noise
    ) -> None:
        if not len(problem.rows.transitions):
            raise DataError("no step's next observation is known", field="observations")
        self.problem, self.settings, self._noise = problem, settings, noise
        members, states, actions = settings.members, problem.states, problem.actions
        device, generator = problem.device, noise.weights
        names = ("mask_spread", "temperature", "mixtures", "dynamics_outputs")
        shared = {name: getattr(settings, name) for name in names}
        chosen = GenerativeSettings(dynamics_hidden=settings.hidden, **shared)
        sizes = members, states, actions
        graph = chosen.build_graph(*sizes, generator=generator)
        net = nn.RewardNet(members, states + actions, hidden=settings.hidden, generator=generator)
        self.model = GenerativeModel(
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

    def _draw_trajectories(self) -> Trajectories:
        """Draw D_1: M rows of the file."""
        shape = self.settings.members, self.settings.episodes_per_batch
        rows = self._noise.pick(len(self.problem.targets), shape)
        batch = self.problem.rows.gather(rows, self._time)
        inputs, returns = self.problem.inputs[batch.steps], self.problem.targets[rows]
        return Trajectories(inputs, batch.valid, returns, batch.starts)

    def _draw_transitions(self) -> TransitionBatch:
        """Draw D_2: N steps of the file, and the state dimensions that this update predicts."""
        transitions, states = self.problem.rows.transitions, self.problem.states
        shape = self.settings.members, self.settings.steps_per_batch
        steps = transitions[self._noise.pick(len(transitions), shape)]
        outputs = torch.arange(states, device=self.problem.device)
        if self._outputs < states:
            outputs = self._noise.order(states)[: self._outputs]
        next_states = self.problem.inputs[steps + 1][..., :states]
        return TransitionBatch(self.problem.inputs[steps], next_states, outputs)

    def _draw_gumbel(self, *shape: int) -> Float[Tensor, "member 1 *shape"]:
        """Gumbel noise; there is one copy of it, since masks are sampled once per update."""
        every = (self.settings.members, 1, *shape)
        return nn.draw_gumbel(every, device=self.problem.device, generator=self._noise.updates)
