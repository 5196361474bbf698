"""The closed form as a method: rewards and reward masks from `fit_closed_form`."""

from __future__ import annotations

from typing import Any

import numpy as np

from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.core.outcomes import SUCCESS
from grd_offline.core.statistics import soften_chance
from grd_offline.core.typing import Array
from grd_offline.methods.closed_form.findings import examine
from grd_offline.methods.closed_form.fit import ClosedFormFit, fit_closed_form
from grd_offline.methods.contract import Decomposer, Finding


class ClosedForm(Decomposer, settings=ClosedFormSettings):
    """The reward as a sum of effects, each kept by its evidence; see `closed_form`.

    After `fit`, `fit_` says how well the data pin the reward down.

    Examples
    --------
    >>> from grd_offline import read
    >>> model = ClosedForm(order=2).fit(read("datasets/sample.h5"))
    >>> model.masks_["state_to_reward"].sum()
    np.int64(1)
    """

    fit_: ClosedFormFit

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Find effects, variances and weights."""
        self.fit_ = fit_closed_form(episodes, self.settings, rng, progress)
        self.function_ = self.fit_.model
        self.masks_ = {
            "state_to_reward": self.fit_.state_to_reward,
            "action_to_reward": self.fit_.action_to_reward,
        }
        self.scores_ = {
            "state_to_reward": self.fit_.state_score,
            "action_to_reward": self.fit_.action_score,
        }

    def predict_amounts(self, episode: Episode, discount: float) -> tuple[Array, Array | None]:
        """Mean and standard deviation of each amount; of labels, those of the chance of success."""
        mean, std = super().predict_amounts(episode, discount)
        if self.function_.outcome != SUCCESS or std is None:
            return mean, std
        chances = soften_chance(mean + self.function_.base, std)
        return chances, np.sqrt(chances * (1 - chances))

    def examine(self, episodes: EpisodeSet) -> tuple[list[Finding], dict[str, Any]]:
        """Examine how strongly the episodes determine each effect, and what could hide from
        them."""
        self._check_fitted()
        return examine(self.fit_, episodes, self.discount)
