"""The contract of every method of decomposition.

A method is an estimator as scikit-learn has them: `__init__` only stores parameters, `fit` learns
and returns the estimator, and what was learned ends in `_`. An estimator that is not fitted refuses
to predict, and a second `fit` equals a fresh one. scikit-learn's `clone`, `cross_validate` and
`GridSearchCV` take it, with episodes for samples. scikit-learn itself is imported by its callers
only, because importing it takes half a second.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import fields
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.episodes import DOUBLE_RESOLUTION, Episode, EpisodeSet, Matrix
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.statistics import r_squared
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array
from grd_offline.io.tables.results import Rewarded, as_frame
from grd_offline.rewards.contract import RewardFunction
from grd_offline.rewards.model import RewardModel, check_predicted

if TYPE_CHECKING:
    from grd_offline.methods.result import Decomposition

FINE, NOTE, CAREFUL, UNRELIABLE = "fine", "note", "careful", "unreliable"
"""Levels of findings. A note would be fine if no other finding called for care."""


class Finding(NamedTuple):
    """One statement about what the data can tell."""

    level: str
    """`FINE`, `NOTE`, `CAREFUL`, or `UNRELIABLE` where the rewards should not be used."""
    text: str
    """Whole sentences: what was found, and what to do."""
    short: str = ""
    """The finding in a few words that can follow a colon. It is needed unless all is fine."""


ALL_EQUAL = Finding(
    CAREFUL,
    "All returns are equal, and so are all lengths. Such returns cannot tell which steps earn "
    "them, so every step is given the same.",
    "all returns are equal",
)


class Verdict(NamedTuple):
    """A verdict on how far rewards can be trusted."""

    level: str
    """The worst level of all findings."""
    text: str
    """The verdict in one sentence."""


class Decomposer:
    """The base class of all methods.

    A method is a class with its settings, `class Mine(Decomposer, settings=MineSettings)`, and with
    `_fit`. The fields of the settings, a frozen dataclass, are the parameters of the class, and
    `random_state` is one more: the seed of a `fit` that is given no generator.

    After `fit`, `function_` is the reward function; `masks_` has the 0/1 masks that the method
    found, or is None where it looks for none; `scores_` has the strength of each edge, or is None.
    `findings_` and `verdict_` are those of the command.

    Examples
    --------
    >>> from grd_offline import Uniform, read
    >>> episodes = read("datasets/sample.h5")
    >>> model = Uniform(discount=1.0).fit(episodes)
    >>> next(model.relabel(episodes)).shape == (len(episodes[0]),)
    True
    """

    settings_class: ClassVar[type[Any]]
    discount: float
    """Every method has this setting: the discount factor inside the delivered amounts."""
    random_state: int
    function_: RewardFunction
    _fitted_on: EpisodeSet | None = None
    _decomposition: Decomposition | None = None
    masks_: dict[str, NDArray[np.int64]] | None
    scores_: dict[str, Array] | None

    def __init_subclass__(cls, settings: type[Any] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if settings is not None:
            cls.settings_class = settings
            parameters = [
                Parameter(name, Parameter.KEYWORD_ONLY, default=value)
                for name, value in cls._find_defaults().items()
            ]
            cls.__signature__ = Signature(parameters)  # type: ignore[attr-defined]

    def __init__(self, **parameters: Any) -> None:
        self.set_params(**{**self._find_defaults(), **parameters})

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Make an estimator with these settings."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(settings)})

    @classmethod
    def _find_defaults(cls) -> dict[str, Any]:
        made = cls.settings_class()
        return {**{one.name: getattr(made, one.name) for one in fields(made)}, "random_state": 0}

    @property
    def settings(self) -> Any:
        """The parameters as settings, which are checked."""
        names = (field.name for field in fields(self.settings_class))
        return self.settings_class(**{name: getattr(self, name) for name in names})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in self._find_defaults()}

    def set_params(self, **parameters: Any) -> Self:
        """Change some parameters."""
        known = self._find_defaults()
        if unknown := [name for name in parameters if name not in known]:
            expected = f"expected one of {', '.join(known)}"
            raise TypeError(f"{type(self).__name__}: {expected}, got {unknown[0]!r}")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def fit(
        self,
        episodes: EpisodeSet | Sequence[Episode],
        y: None = None,
        *,
        rng: np.random.Generator | None = None,
        progress: Progress = NOBODY.on_progress,
    ) -> Self:
        """Learn from episodes.

        Parameters
        ----------
        episodes : EpisodeSet or list of Episode
            At least one of them has to deliver a reward. Where all returns and lengths are equal,
            a `UserWarning` says what `findings_` says too: such returns tell nothing about steps.
        y : None
            Is there for scikit-learn and has no use.
        rng : numpy.random.Generator, optional
            Takes the place of a generator with the seed `random_state`.
        progress : callable, optional
            Hears of each stage and the fraction of it that is done.

        Returns
        -------
        Decomposer
            The estimator itself.
        """
        self.learn(episodes, rng=rng, progress=progress)
        if self._fitted_on is not None and are_all_equal(self._fitted_on, self.discount):
            warnings.warn(ALL_EQUAL.text, stacklevel=2)
        return self

    def learn(
        self,
        episodes: EpisodeSet | Sequence[Episode],
        *,
        rng: np.random.Generator | None = None,
        progress: Progress = NOBODY.on_progress,
    ) -> Self:
        """Do what `fit` does, without its warning: for callers that show the findings."""
        _ = self.settings  # parameters that make no sense are refused before any work
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self._decomposition = None
        chosen = rng if rng is not None else np.random.default_rng(self.random_state)
        self.masks_ = self.scores_ = None
        if not isinstance(episodes, EpisodeSet):  # scikit-learn cuts a set into plain lists
            episodes = EpisodeSet.from_episodes(episodes)
        self._fitted_on = episodes
        self._fit(episodes, chosen, progress)
        return self

    def remember(self, episodes: EpisodeSet) -> Self:
        """Take these for the episodes of the fit, which a stored estimator does not bring along."""
        self._fitted_on, self._decomposition = episodes, None
        return self

    def start_from(self, other: Decomposer) -> Self:
        """Let the next `fit` use what another method learned from the same episodes, if it can."""
        return self

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Learn from the episodes. Every method has this."""
        raise NotImplementedError

    def predict(
        self,
        observations: Matrix,
        actions: Matrix,
        next_observations: Matrix | None = None,
        terminations: ArrayLike | None = None,
    ) -> Array:
        """Predict the reward of each step: (N,)."""
        self._check_fitted()
        given = StepBatch[Any](observations, actions, next_observations, terminations)
        return self.function_.predict(given.map(np.asarray))

    def predict_episode(self, episode: Episode) -> Array:
        """Predict the reward of each step, without looking at the rewards of the episode: (T,).

        A method with memory overrides this: it may look at all steps of the episode.
        """
        self._check_fitted()
        return self.function_.predict(StepBatch.from_episode(episode))

    def predict_amounts(self, episode: Episode, discount: float) -> tuple[Array, Array | None]:
        """Predict the mean and standard deviation of each amount that the episode delivers.

        The standard deviation is None where the reward function does not know it.
        """
        self._check_fitted()
        if type(self).predict_episode is Decomposer.predict_episode:
            return predict_sums(self.function_, episode, discount)
        starts, stops, _ = episode.segments()
        weights = np.asarray(discount ** np.arange(stops[-1]), np.float64)
        return np.add.reduceat(self.predict_episode(episode)[: stops[-1]] * weights, starts), None

    def relabel_episode(self, episode: Episode) -> Array:
        """Compute the reward of each step. It may depend on the return of the episode: (T,)."""
        return self.predict_episode(episode)

    def relabel(self, episodes: EpisodeSet | Sequence[Episode]) -> Iterator[Array]:
        """Compute the rewards of every episode in turn, (T,) each."""
        self._check_fitted()
        return (self.relabel_episode(episode) for episode in episodes)

    @property
    def rewards_(self) -> Any:
        """The rewards of the episodes of the fit, in the form of `tabulate`."""
        return self.tabulate(self._find_episodes("tabulate"))

    @property
    def decomposition_(self) -> Decomposition:
        """All that `decompose_episodes` finds out, about the episodes of the fit.

        It is made when it is first asked for. That takes about as long as the fit, because another
        estimator is fitted to 80 % of the episodes and tested on the returns of the others.
        """
        from grd_offline.methods.decompose import decompose_fitted

        if self._decomposition is None:
            self._decomposition = decompose_fitted(self, self._find_episodes("remember"))
        return self._decomposition

    @property
    def findings_(self) -> list[Finding]:
        """What the episodes of the fit can and cannot tell, the worst first."""
        return self.decomposition_.findings

    @property
    def verdict_(self) -> Verdict:
        """How far the rewards can be trusted: what the command says first."""
        return self.decomposition_.verdict

    def to_reward_model(self) -> RewardModel:
        """Make the model that `RewardModel.load` gives after `decompose`.

        Returns
        -------
        RewardModel
            The reward as a function, with its masks and its uncertainty.

        Examples
        --------
        >>> from grd_offline import Uniform, read
        >>> Uniform().fit(read("datasets/sample.h5")).to_reward_model()
        RewardModel(constant, 14 of 14 inputs)
        """
        return self.decomposition_.model

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the reward model into a folder, from which `RewardModel.load` reads it.

        Parameters
        ----------
        folder : path
            Where to write. It is written in full or not at all, and may replace a reward model.

        Examples
        --------
        >>> from grd_offline import RewardModel, Uniform, read
        >>> Uniform().fit(read("datasets/sample.h5")).save("sample-model")
        >>> RewardModel.load("sample-model")
        RewardModel(constant, 14 of 14 inputs)
        """
        self.to_reward_model().save(folder)

    def _find_episodes(self, instead: str) -> EpisodeSet:
        self._check_fitted()
        if self._fitted_on is None:
            raise AttributeError(f"a stored estimator has no episodes: call {instead} with them")
        return self._fitted_on

    def tabulate(self, episodes: EpisodeSet | Sequence[Episode]) -> Any:
        """Put all rewards into a table with their episode, step and spread (standard deviation, nan
        if not known).

        A table of the library that the data frame of the episodes came from, otherwise a mapping
        from names to arrays, which every such library takes.
        """
        self._check_fitted()
        rewarded = (Rewarded(one.origin, *self.relabel_with_spread(one)) for one in episodes)
        return as_frame(rewarded, getattr(episodes, "provenance", None))

    def relabel_with_spread(self, episode: Episode) -> tuple[Array, Array]:
        """Compute the reward of each step and its standard deviation, nan if not known."""
        if not self.function_.knows_std:
            return self.relabel_episode(episode), np.full(len(episode), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            rewards, spread = self.function_.predict_both(StepBatch.from_episode(episode))
        return check_predicted(rewards), np.full(len(episode), np.nan) if spread is None else spread

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to store: everything except the episodes, which may be larger than
        memory."""
        return {**vars(self), "_fitted_on": None, "_decomposition": None}

    def score(self, episodes: EpisodeSet | Sequence[Episode], y: None = None) -> float:
        """Compute R² of the delivered amounts, which the sums of the rewards predict.

        With one amount for each episode these are the returns. 1 is perfect; the mean of the
        amounts has 0.
        """
        self._check_fitted()
        paid = [episode for episode in episodes if episode.delivered.any()]
        true = [episode.segments()[2].astype(np.float64) for episode in paid]
        predicted = [self.predict_amounts(episode, self.discount)[0] for episode in paid]
        return r_squared(np.concatenate(predicted), np.concatenate(true))

    def examine(self, episodes: EpisodeSet) -> tuple[list[Finding], dict[str, Any]]:
        """Examine what the episodes can and cannot tell about the rewards. Returns findings and
        numbers."""
        return [], {}

    def __repr__(self) -> str:
        usual, given = self._find_defaults(), self.get_params()
        changed = [f"{name}={given[name]!r}" for name in given if given[name] != usual[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "function_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=False),
        )

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"{type(self).__name__} is not fitted yet: call fit first")


def predict_sums(
    function: RewardFunction, episode: Episode, discount: float
) -> tuple[Array, Array | None]:
    """What a function says of each amount that the episode delivers, see `predict_amounts`."""
    starts, stops, _ = episode.segments()
    weights = discount ** np.arange(stops[-1], dtype=np.float64)
    steps = StepBatch.from_episode(episode)[: int(stops[-1])]
    return function.predict_sums(steps, weights=weights, starts=starts)


def are_all_equal(episodes: EpisodeSet, discount: float) -> bool:
    """Whether there are several episodes, of one length and one return."""
    if len(episodes) < 2 or episodes.preferences is not None or np.ptp(episodes.lengths) > 0:
        return False
    returns = (episode.compute_return(discount) for episode in episodes)
    first = next(returns)
    return all(bool(np.isclose(one, first, rtol=DOUBLE_RESOLUTION, atol=0)) for one in returns)
