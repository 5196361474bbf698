"""`--fit pair-net`, the paper's model made to work, and `--fit masked-net`.

`pair-net`. The reward is a sum of small learned effects, one per input and one per pair of inputs
(`PairRewardNet`), each behind the masks of its inputs. What a free net cannot tell from a few
hundred returns, which of many rewards with the same returns is the one that few inputs explain,
the masks then decide, by gradient:

1. `masks`. One net on all inputs: a dense warm-up, then masks sampled per row by Gumbel-softmax,
   every edge at a price, until most of those that the reward does not need are gone.
2. `reward`. Several members on the inputs that are left, each with a part of the episodes held
   out; masks sampled again, now with clearer sight. What all members keep is then fixed and the
   nets polished, keeping for each member the weights that were best on its held-out returns. The
   mean of the members is the reward.
3. `dynamics`. The mixture density net and its masks, for a limited number of updates.

`masked-net` is a dense net on the inputs that the closed form finds, trained in the same stage of
the reward. The closed form is a sum of effects of at most three inputs. Where a reward needs more
of them at once it still finds the inputs; a dense net on those alone then learns what they do
together, which it could not from all inputs. It learns the returns themselves, not what the closed
form leaves of them: a closed form that does not fit explains its own returns too well to leave the
truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.core.settings import COUNT, RATE, Settings, setting
from grd_offline.methods.closed_form.estimator import ClosedForm
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.training import (
    NetworkData,
    Noise,
    Plan,
    Trainer,
    export_network,
    make_adam,
    read_graph,
)
from grd_offline.networks.losses import SparsityWeights, dynamics_loss, edge_count_loss, return_loss
from grd_offline.networks.members import nn
from grd_offline.rewards.network import NetworkFunction

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True)
class PairNetSettings(Settings):
    """Settings of `pair-net`; defaults from trials, see benchmarks/research/pair_net.md."""

    discount: float = setting(1.0, **RATE)
    """Discount factor of the return (paper: 1.00)."""
    members: int = setting(4, **COUNT)
    """Nets in the second stage, each with its own held-out episodes; their mean is the reward."""
    features: int = setting(8, **COUNT)
    """Features of each input; fewer where there are many inputs."""
    batch_steps: int = setting(5000, **COUNT)
    """Steps in an update's batch; as many whole rows as fit, at least 8."""
    mask_updates: int = setting(1200, **COUNT)
    """Updates of the first stage."""
    reward_updates: int = setting(1500, **COUNT)
    """Updates of the second stage."""
    dynamics_updates: int = 1000
    """Updates of the dynamics net; with 0 every edge of the dynamics stays in."""
    learning_rate: float = 0.01
    """Adam's rate for the nets, falling to 0 along a cosine."""
    mask_rate: float = 0.02
    """Adam's rate for the mask logits."""
    mask_start: float = 3.0
    """Start of psi_0 - psi_1: each edge is there with probability .95."""
    temperature: float = setting(1.0, above=0)
    """Temperature of the Gumbel-softmax."""
    edge_price: float = 0.003
    """Sparsity weight of each edge into the reward, at most; returns have variance 1."""
    edge_share: float = 0.15
    """The weight is no more than this share of what is unexplained of held-out returns."""
    dynamics_edge_price: float = 0.003
    """Sparsity weight of each edge into a state."""
    dynamics_hidden: int = 64
    """Hidden units of both layers of the dynamics net (paper: 256)."""
    embedding: int = 8
    """Size of the vector that tells the dynamics net which dimension it predicts (paper: none)."""
    dynamics_batch: int = 256
    """Steps per update of the dynamics net (paper: N = 256)."""
    dynamics_rate: float = 3e-3
    """Adam's rate for the dynamics net."""
    dynamics_outputs: int = 16
    """Number of state dimensions per update of the dynamics network. They are drawn at random."""
    held_out: float = setting(0.15, above=0, below=1)
    """Fraction of the rows that each member holds out to choose its weights by."""
    device: str = "cpu"
    """Device that trains the networks: `cpu` or `cuda`."""
    capture: bool = True
    """On CUDA, record each kind of update as a graph and replay it."""


class RewardStage:
    """Members of a pair net on some inputs, their masks, and updates as closures over both."""

    def __init__(
        self,
        problem: NetworkData,
        kept: Tensor,
        settings: PairNetSettings,
        noise: Noise,
        *,
        members: int,
        net: nn.RewardNet | nn.PairRewardNet | None = None,
    ) -> None:
        """`net` takes the place of a pair net."""
        self.problem, self.kept, self.settings = problem, kept, settings
        self._noise, device, count = noise, problem.device, len(kept)
        states = int((kept < problem.states).sum())
        features = min(settings.features, max(2, 512 // count))
        if net is None:
            net = nn.PairRewardNet(members, count, features=features, generator=noise.weights)
        self.net = net.to(device)
        self.graph = nn.GraphMasks(members, states, count - states, start=settings.mask_start)
        self.graph.to(device)
        self._inputs = problem.inputs[:, kept]
        self._time = problem.rows.common_time
        self._split(members, noise.weights)
        self._fixed, self._is_fixed = torch.ones(members, 1, count, device=device), False
        self._unexplained = torch.ones(members, device=device)
        self.best_losses = torch.full((members,), torch.inf, device=device)
        self._best = [torch.zeros_like(value) for value in self._kept_tensors()]
        rates = ((self.net, settings.learning_rate), (self.graph, settings.mask_rate))
        optimisers = [make_adam(module, rate, betas=(0.9, 0.98)) for module, rate in rates]
        self.trainer = Trainer(optimisers, noise.updates, capture=settings.capture)

    def _split(self, members: int, generator: torch.Generator) -> None:
        """Rows to train on and rows held out, other ones for each member; steps to centre by."""
        count = len(self.problem.targets)
        held_out = max(1, round(self.settings.held_out * count))
        order = torch.randperm(count, generator=generator)
        shifts = (torch.arange(members) * count) // members
        tables = order[(torch.arange(count) + shifts.unsqueeze(1)) % count]
        tables = tables.to(self.problem.device)
        self._held_out = tables[:, :held_out]
        # A single row has to do for both.
        self._training = tables[:, held_out:] if held_out < count else tables
        real = self.problem.rows.real_steps.nonzero().squeeze(1)
        chosen = torch.randperm(len(real), generator=generator)[:512].to(real.device)
        self._reference = self._inputs[real[chosen]]
        lengths = self.problem.rows.lengths
        typical = self._time or int(lengths.double().mean().ceil())
        self._batch = max(8, self.settings.batch_steps // typical)

    def _kept_tensors(self) -> list[Tensor]:
        """The weights, and the centre of a pair net."""
        return list(self.net.state_dict().values())

    def run(
        self, plan: Plan, update: Callable[[], None], part: float, *, choose: bool = False
    ) -> None:
        """Spend `part` of the plan on `update`; with `choose`, keep each member's best weights."""
        self._measure_unexplained()

        def report() -> None:
            self._measure_unexplained()
            if choose:
                self._keep_better()

        plan.run(self.trainer, update, part, report=report, every=25)

    def update_dense(self) -> None:
        """Update with every input present."""
        self._step(torch.ones_like(self._fixed))

    def update_masked(self) -> None:
        """Masks sampled for each row, each edge at its price.

        The price falls with what the members do not yet explain of their held-out returns: where
        nearly all is explained, an input of little effect is worth keeping too.
        """
        mask = self.graph.sample_reward(
            self._batch, temperature=self.settings.temperature, generator=self._noise.updates
        )
        weights = SparsityWeights(1, 1, 0, 0, 0)
        edges = edge_count_loss(*self.graph.compute_probabilities(), weights=weights)
        price = (self.settings.edge_share * self._unexplained).clamp_max(self.settings.edge_price)
        self._step(mask, price * edges)

    def update_fixed(self) -> None:
        """Update with the masks that were voted for."""
        self._step(self._fixed)

    def _step(
        self, mask: Float[Tensor, "member #row input"], price: Float[Tensor, "member"] | None = None
    ) -> None:
        """One update on a batch of training rows; masks learn where their edges have a price."""
        members, count = self._training.shape
        picks = self._noise.pick(count, (members, self._batch))
        self._recentre()
        losses = self._compute_losses(self._training.gather(1, picks), mask)
        self.trainer.step(losses, price)

    @torch.no_grad()
    def _recentre(self) -> None:
        """Centre the features of a pair net on a fixed sample of the steps."""
        if not isinstance(self.net, nn.PairRewardNet):
            return
        reference = self._reference.expand(len(self._training), -1, -1)
        centre = self.net.compute_features(reference).mean(1, keepdim=True)
        self.net.centre.copy_(centre)

    def _compute_losses(
        self, rows: Int[Tensor, "member row"], mask: Float[Tensor, "member #row input"]
    ) -> Float[Tensor, "member"]:
        batch = self.problem.rows.gather(rows, self._time)
        rewards = self.net(self._inputs[batch.steps], mask.unsqueeze(2))
        return return_loss(
            rewards,
            batch.valid,
            self.problem.targets[rows],
            discount=self.problem.discount,
            starts=batch.starts,
            scales=self.problem.spans[rows],
        )

    def compute_probabilities(self) -> Float[Tensor, "member input"]:
        """P(edge) into the reward."""
        return torch.cat(self.graph.compute_probabilities()[:2], 1).detach()

    def vote(self) -> Float[Tensor, "1 1 input"]:
        """The inputs that all members keep.

        They hold out different episodes: an input that only helps to learn some episodes by heart
        is dropped by one or the other, one that the reward needs by none.
        """
        return torch.cat(self.graph.choose()[:2], 1).amin(0).unsqueeze(0).unsqueeze(0)

    def fix_masks(self) -> None:
        """Fix every member's mask to the inputs that all of them keep."""
        self._fixed.copy_(self.vote().expand_as(self._fixed))
        self._is_fixed = True

    @torch.no_grad()
    def _measure_unexplained(self) -> None:
        """Measure the return loss on each member's held-out rows, masks as they stand."""
        self._recentre()
        mask = self._fixed
        if not self._is_fixed:
            mask = torch.cat(self.graph.choose()[:2], 1).unsqueeze(1)
        chunks = torch.split(self._held_out, self._batch, 1)
        losses = [self._compute_losses(rows, mask) * rows.shape[1] for rows in chunks]
        self._unexplained.copy_(torch.stack(losses).sum(0) / self._held_out.shape[1])

    @torch.no_grad()
    def _keep_better(self) -> None:
        better = self._unexplained < self.best_losses
        self.best_losses.copy_(torch.where(better, self._unexplained, self.best_losses))
        for best, value in zip(self._best, self._kept_tensors(), strict=True):
            best.copy_(torch.where(better.view(-1, *[1] * (value.ndim - 1)), value, best))

    @torch.no_grad()
    def restore_best(self) -> None:
        """Take back the weights that were best on held-out rows."""
        for best, value in zip(self._best, self._kept_tensors(), strict=True):
            value.copy_(best)

    def export(self) -> NetworkFunction:
        """The mean of the members as a function in the data's units."""
        return export_network(self.net, self.problem, self._fixed.squeeze(1), self.kept)


class DynamicsStage:
    """The mixture density net of the next state, and the masks of its inputs."""

    def __init__(self, problem: NetworkData, settings: PairNetSettings, noise: Noise) -> None:
        self.problem, self.settings, self._noise = problem, settings, noise
        states, actions = problem.states, problem.actions
        self.net = nn.DynamicsNet(
            1,
            states,
            actions,
            hidden=(settings.dynamics_hidden,) * 2,
            embedding=settings.embedding,
            log_std_range=(-5.0, 2.0),
            activation="silu",
            generator=noise.weights,
        ).to(problem.device)
        self.graph = nn.GraphMasks(1, states, actions, start=settings.mask_start).to(problem.device)
        rates = ((self.net, settings.dynamics_rate), (self.graph, settings.mask_rate))
        optimisers = [make_adam(module, rate) for module, rate in rates]
        self.trainer = Trainer(optimisers, noise.updates, capture=settings.capture)

    def update_dense(self) -> None:
        """Update with every edge present."""
        inputs = self.problem.states + self.problem.actions
        mask = torch.ones(1, 1, inputs, self.problem.states, device=self.problem.device)
        self._step(mask)

    def update_masked(self) -> None:
        """Masks sampled for each row, each edge at its price."""
        settings, price = self.settings, self.settings.dynamics_edge_price
        mask = self.graph.sample_dynamics(
            settings.dynamics_batch, temperature=settings.temperature, generator=self._noise.updates
        )
        weights = SparsityWeights(0, 0, price, price, price)
        self._step(mask, edge_count_loss(*self.graph.compute_probabilities(), weights=weights))

    def _step(
        self, mask: Float[Tensor, "1 #row input state"], price: Float[Tensor, "1"] | None = None
    ) -> None:
        rows, states = self.problem.rows, self.problem.states
        picks = self._noise.pick(len(rows.transitions), (1, self.settings.dynamics_batch))
        steps = rows.transitions[picks]
        outputs = self._noise.order(states)[: self.settings.dynamics_outputs]
        mixture: nn.Mixture = self.net(
            self.problem.inputs[steps], mask.index_select(-1, outputs), outputs
        )
        targets = self.problem.inputs[steps + 1][..., outputs]
        losses = dynamics_loss(*mixture, targets, dimensions=states)
        self.trainer.step(losses, price)


class PairNet(Decomposer, settings=PairNetSettings):
    """GRD with learned effects and masks by gradient.

    Examples
    --------
    >>> from grd_offline import read
    >>> model = PairNet().fit(read("datasets/sample.h5"))  # doctest: +SKIP
    """

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Learn masks, reward and dynamics; the module's words describe the stages."""
        settings = self.settings
        problem = NetworkData.from_episodes(episodes, settings)
        noise, device = Noise(rng, settings.device), problem.device
        kept = torch.arange(problem.states + problem.actions, device=device)
        if problem.variance > 0:
            first = RewardStage(problem, kept, settings, noise, members=1)
            plan = Plan(settings.mask_updates, "masks", progress)
            first.run(plan, first.update_dense, 0.25)
            first.run(plan, first.update_masked, 0.75)
            kept = kept[first.vote()[0, 0] > 0]
        stage = None
        if problem.variance > 0 and len(kept):
            stage = RewardStage(problem, kept, settings, noise, members=settings.members)
            plan = Plan(settings.reward_updates, "reward", progress)
            stage.run(plan, stage.update_dense, 0.2)
            stage.run(plan, stage.update_masked, 0.45)
            stage.fix_masks()
            stage.run(plan, stage.update_fixed, 0.35, choose=True)
            stage.restore_best()
        dynamics = DynamicsStage(problem, settings, noise)
        if settings.dynamics_updates and len(problem.rows.transitions):
            plan = Plan(settings.dynamics_updates, "dynamics", progress)
            plan.run(dynamics.trainer, dynamics.update_dense, 0.3)
            plan.run(dynamics.trainer, dynamics.update_masked, 0.7)
        self._keep(problem, stage, dynamics.graph)

    def _keep(self, problem: NetworkData, stage: RewardStage | None, graph: nn.GraphMasks) -> None:
        reward = np.zeros(problem.states + problem.actions)
        score = np.zeros_like(reward)
        self.held_out_r2_ = 0.0
        self.function_ = problem.constant
        if stage is not None:
            columns = stage.kept.numpy(force=True)
            reward[columns] = stage.vote().numpy(force=True)[0, 0]
            score[columns] = stage.compute_probabilities().mean(0).numpy(force=True)
            self.held_out_r2_ = float(1 - stage.best_losses.mean() / problem.variance)
            if reward.any():
                self.function_ = stage.export()
        parts, mine = nn.EDGES[:2], [problem.states]
        masks, scores = read_graph(graph, nn.EDGES[2:])
        kept = np.split(reward.astype(np.int64), mine)
        self.masks_ = dict(zip(parts, kept, strict=True)) | masks
        self.scores_ = dict(zip(parts, np.split(score, mine), strict=True)) | scores


@dataclass(frozen=True)
class MaskedNetSettings(Settings):
    """Settings of the network. The defaults are those of the closed form."""

    discount: float = 1.0
    """Discount factor of the return."""
    members: int = setting(4, **COUNT)
    """Nets, each with its own held-out episodes; their mean is the reward."""
    hidden: int = setting(64, **COUNT)
    """Hidden units of both layers."""
    updates: int = setting(3000, **COUNT)
    """Number of updates of the network."""
    batch_steps: int = 2000
    """Steps in an update's batch; as many whole rows as fit, at least 8."""
    learning_rate: float = 0.01
    """Adam's rate, falling to 0 along a cosine; at .003 it hardly learns (see pair_net.md)."""
    activation: str = "tanh"
    """Activation of the hidden units: relu, silu or tanh."""
    device: str = "cpu"
    """Device that trains the network: `cpu` or `cuda`."""


class MaskedNet(Decomposer, settings=MaskedNetSettings):
    """An average of several dense networks, behind the masks of a closed form.

    After `fit`, `closed_` is that closed form.

    Examples
    --------
    >>> from grd_offline import read
    >>> MaskedNet().fit(read("datasets/sample.h5")).verdict_  # doctest: +SKIP
    """

    closed_: ClosedForm
    _given: ClosedForm | None = None

    def start_from(self, other: Decomposer) -> MaskedNet:
        """Take over a closed form of the same episodes."""
        if isinstance(other, ClosedForm):
            self._given = other
        return self

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Find the inputs in closed form, then train the nets."""
        settings = self.settings
        closed, self._given = self._given, None
        if closed is None:
            closed = ClosedForm(discount=settings.discount)
            closed.learn(episodes, rng=rng, progress=progress)
        self.closed_, self.masks_, self.scores_ = closed, closed.masks_, closed.scores_
        problem = NetworkData.from_episodes(episodes, settings)
        kept = np.concatenate([closed.fit_.state_to_reward, closed.fit_.action_to_reward])
        self.function_ = problem.constant
        if not (kept.any() and problem.variance > 0):
            return
        columns = torch.from_numpy(np.flatnonzero(kept)).to(problem.device)
        noise = Noise(rng, settings.device)
        net = nn.RewardNet(
            settings.members,
            len(columns),
            hidden=(settings.hidden,) * 2,
            activation=settings.activation,
            generator=noise.weights,
        )
        names = ("discount", "batch_steps", "learning_rate", "device")
        shared = PairNetSettings(**{name: getattr(settings, name) for name in names})
        stage = RewardStage(problem, columns, shared, noise, members=settings.members, net=net)
        stage.fix_masks()
        plan = Plan(settings.updates, "net", progress)
        stage.run(plan, stage.update_fixed, 1.0, choose=True)
        stage.restore_best()
        self.function_ = stage.export()
