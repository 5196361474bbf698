"""`--fit pair-net`: the paper's model, made to work.

The reward is a sum of small learned effects, one per input and one per pair of inputs
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
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.equations import Problem
from grd_offline.methods.stages import DynamicsStage, PairNetSettings, RewardStage
from grd_offline.methods.training import Noise, Plan
from grd_offline.networks.members.nn import EDGES, GraphMasks


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
        problem = Problem.from_episodes(
            episodes, discount=settings.discount, device=settings.device
        )
        noise = Noise(rng, settings.device)
        stage = None
        if problem.variance > 0:
            kept = _find_masks(problem, settings, noise, progress)
            stage = _fit_reward(problem, kept, settings, noise, progress) if len(kept) else None
        self._keep_reward(problem, stage)
        graph = _fit_dynamics(problem, settings, noise, progress)
        self._keep_dynamics(graph)

    def _keep_reward(self, problem: Problem, stage: RewardStage | None) -> None:
        reward = np.zeros(problem.states + problem.actions)
        scores = np.zeros_like(reward)
        self.held_out_r2_ = 0.0
        self.function_ = problem.constant
        if stage is not None:
            columns = stage.kept.numpy(force=True)
            reward[columns] = stage.vote().numpy(force=True)[0, 0]
            scores[columns] = stage.compute_probabilities().mean(0).numpy(force=True)
            self.held_out_r2_ = float(1 - stage.best_losses.mean() / problem.variance)
            if reward.any():
                self.function_ = stage.export()
        states = problem.states
        kept = reward.astype(np.int64)
        self.masks_ = {"state_to_reward": kept[:states], "action_to_reward": kept[states:]}
        self.scores_ = {"state_to_reward": scores[:states], "action_to_reward": scores[states:]}

    def _keep_dynamics(self, graph: GraphMasks) -> None:
        assert self.masks_ is not None
        assert self.scores_ is not None
        chosen, probabilities = graph.choose(), graph.compute_probabilities()
        for name in EDGES[2:]:
            self.masks_[name] = getattr(chosen, name)[0].numpy(force=True).astype(np.int64)
            self.scores_[name] = getattr(probabilities, name)[0].numpy(force=True).astype(float)


def _find_masks(
    problem: Problem, settings: PairNetSettings, noise: Noise, progress: Progress
) -> Tensor:
    """First stage: which inputs the reward may need, as indices."""
    everything = torch.arange(problem.states + problem.actions, device=problem.device)
    stage = RewardStage(problem, everything, settings, noise, members=1)
    plan = Plan(settings.mask_updates, "masks", progress)
    stage.run(plan, stage.update_dense, 0.25)
    stage.run(plan, stage.update_masked, 0.75)
    return everything[stage.vote()[0, 0] > 0]


def _fit_reward(
    problem: Problem,
    kept: Tensor,
    settings: PairNetSettings,
    noise: Noise,
    progress: Progress,
) -> RewardStage:
    """Second stage: several members on the inputs that are left."""
    stage = RewardStage(problem, kept, settings, noise, members=settings.members)
    plan = Plan(settings.reward_updates, "reward", progress)
    stage.run(plan, stage.update_dense, 0.2)
    stage.run(plan, stage.update_masked, 0.45)
    stage.fix_masks()
    stage.run(plan, stage.update_fixed, 0.35, choose=True)
    stage.restore_best()
    return stage


def _fit_dynamics(
    problem: Problem, settings: PairNetSettings, noise: Noise, progress: Progress
) -> GraphMasks:
    """Third stage: the masks of the dynamics."""
    stage = DynamicsStage(problem, settings, noise)
    plan = Plan(settings.dynamics_updates, "dynamics", progress)
    if settings.dynamics_updates and len(problem.rows.transitions):
        stage.run(plan, stage.update_dense, 0.3)
        stage.run(plan, stage.update_masked, 0.7)
    return stage.graph
