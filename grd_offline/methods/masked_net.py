"""`--fit masked-net`: a dense net on the inputs that the closed form finds.

The closed form is a sum of effects of at most three inputs. Where a reward needs more of them at
once it still finds the inputs; a dense net on those alone then learns what they do together, which
it could not from all inputs. It learns the returns themselves, not what the closed form leaves of
them: a closed form that does not fit explains its own returns too well to leave the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.core.settings import COUNT, Settings, setting
from grd_offline.methods.closed_form.estimator import ClosedForm
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.pair_net import PairNetSettings, RewardStage
from grd_offline.methods.training import Noise, Plan, Problem
from grd_offline.networks.members.nn import RewardNet


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

    def start_from(self, other: Decomposer) -> Self:
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
        problem = Problem.from_episodes(
            episodes, discount=settings.discount, device=settings.device
        )
        kept = np.concatenate([closed.fit_.state_to_reward, closed.fit_.action_to_reward])
        self.function_ = problem.constant
        if not (kept.any() and problem.variance > 0):
            return
        columns = torch.from_numpy(np.flatnonzero(kept)).to(problem.device)
        noise = Noise(rng, settings.device)
        net = RewardNet(
            settings.members,
            len(columns),
            hidden=(settings.hidden,) * 2,
            activation=settings.activation,
            generator=noise.weights,
        )
        shared = PairNetSettings(
            discount=settings.discount,
            batch_steps=settings.batch_steps,
            learning_rate=settings.learning_rate,
            device=settings.device,
        )
        stage = RewardStage(problem, columns, shared, noise, members=settings.members, net=net)
        stage.fix_masks()
        plan = Plan(settings.updates, "net", progress)
        stage.run(plan, stage.update_fixed, 1.0, choose=True)
        stage.restore_best()
        self.function_ = stage.export()
