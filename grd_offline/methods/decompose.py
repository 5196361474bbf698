"""A decomposition in memory: read, choose, fit, examine, decide. It opens and writes no file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from grd_offline.additive.dynamics import (
    DynamicsModel,
    compare_masks,
    fit_dynamics,
    fit_dynamics_model,
)
from grd_offline.core.endings import find_signs
from grd_offline.core.episodes import EpisodeSet, attach_preferences
from grd_offline.core.errors import DataError
from grd_offline.core.graph import compact_closure, compact_one_hop
from grd_offline.core.inputs import list_dimensions
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.outcomes import NUMBER, PREFERENCE
from grd_offline.core.packages import find_versions
from grd_offline.core.statistics import LEVELS, compare_all_masks, compute_calibration, r_squared
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.typing import Array
from grd_offline.io import datasets
from grd_offline.io.datasets import Data, Recording
from grd_offline.io.formats.record import OBSERVED
from grd_offline.io.tables.results import find_columns
from grd_offline.methods import relabelling
from grd_offline.methods.choose import Choice, choose, draw_episodes, judge_fitted
from grd_offline.methods.closed_form.estimator import tell_bands
from grd_offline.methods.contract import Decomposer, Finding
from grd_offline.methods.registry import AUTO, find_by_estimator
from grd_offline.methods.result import Decomposition, Fitted, rank_effects
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.methods.verdict import gather_findings, reach_verdict
from grd_offline.rewards.contract import EffectCurve
from grd_offline.rewards.model import RewardModel

MASKS = ("state_to_reward", "action_to_reward", "state_to_state", "action_to_state")


class Dynamics(NamedTuple):
    """A model of the dynamics, and how well it predicts held-out transitions."""

    model: DynamicsModel
    scores: dict[str, Any]
    """Empty where the masks were given."""
    likelihoods: Any


def learn_dynamics(
    episodes: EpisodeSet, given: Mapping[str, Any], rng: np.random.Generator, progress: Progress
) -> Dynamics:
    """Fit the dynamics. Their masks are found, unless a fit of the rewards has given its own."""
    scores: dict[str, Any] = {}
    if MASKS[2] in given:
        states, actions = (given[name] for name in MASKS[2:])
        model = fit_dynamics_model(episodes, states, actions, rng=rng, progress=progress)
    else:
        found = fit_dynamics(episodes, rng=rng, progress=progress)
        model = found.model
        scores = dict(zip(MASKS[2:], (found.state_score, found.action_score), strict=True))
    masks = model.state_to_state, model.action_to_state
    return Dynamics(model, scores, compare_masks(episodes, *masks, rng=rng, progress=progress))


Observe = Callable[[EpisodeSet, EpisodeSet], None]
"""Gets all episodes, and those that models are fitted to, before the first fit."""
MANY_COLUMNS = 400  # more than these need more steps than columns


def decompose_episodes(
    episodes: EpisodeSet,
    settings: DecomposeSettings | None = None,
    *,
    preferences: Any = None,
    progress: Progress = NOBODY.on_progress,
) -> Decomposition:
    """Decompose the returns of episodes in memory. Nothing is written.

    Parameters
    ----------
    episodes : EpisodeSet
        Episodes, for example those of `read`, `from_dataframe` or `from_arrays`.
    settings : DecomposeSettings, optional
        How to decompose. The defaults are right for most data.
    preferences : optional
        `Preferences`, or a table of them, that are learned from instead of returns.
    progress : callable, optional
        Hears of each stage, and the fraction of it that is done.

    Returns
    -------
    Decomposition
        Rewards and their spreads, masks, effects, models, findings and the verdict.

    Examples
    --------
    >>> from grd_offline import DecomposeSettings, decompose_episodes, read
    >>> found = decompose_episodes(read("datasets/sample.h5"), DecomposeSettings("uniform"))
    >>> len(found.rewards), found.verdict.level
    (80, 'unreliable')
    """
    given, recording = settings or DecomposeSettings(), datasets.as_recording(episodes)
    return decompose_recording(
        recording, episodes, given, preferences=preferences, progress=progress
    )


@one_numpy_thread()
def decompose_recording(
    recording: Recording,
    source: Data,
    settings: DecomposeSettings,
    *,
    preferences: Any = None,
    progress: Progress = NOBODY.on_progress,
    on_data: Observe = lambda episodes, fitted: None,
) -> Decomposition:
    """Decompose the returns of a dataset that is open. `source` names it in errors."""
    start, rng = time.perf_counter(), np.random.default_rng(settings.seed)
    data = _read(recording, source, settings, preferences, rng, progress)
    on_data(data.episodes, data.fitted)
    choice, dynamics = _fit(data, rng, progress)
    return _conclude(data, choice, dynamics, start, progress)


def decompose_fitted(decomposer: Decomposer, episodes: EpisodeSet) -> Decomposition:
    """Decompose the returns of episodes with an estimator that was fitted to them.

    As in `decompose`, a fresh estimator is fitted to a part of the episodes and tested on the
    returns of the others, and the dynamics are learned.
    """
    start, rng = time.perf_counter(), np.random.default_rng(decomposer.random_state)
    settings = DecomposeSettings(
        gamma=decomposer.discount, step_rewards=True, seed=decomposer.random_state
    )
    name, method = type(decomposer).__name__, find_by_estimator(decomposer)
    if method is not None:
        name = method.fit or method.name
        settings = replace(settings, method=method.name, fit=method.fit or AUTO)
    recording = datasets.as_recording(episodes)
    delay = datasets.find_delay(recording)
    data = _Data(recording, episodes, settings, episodes, episodes, decomposer.discount, delay)
    choice = judge_fitted(decomposer, name, episodes, rng)
    given = decomposer.masks_ or {}
    dynamics = learn_dynamics(episodes, given, rng.spawn(1)[0], NOBODY.on_progress)
    return _conclude(data, choice, dynamics, start, NOBODY.on_progress)


def _conclude(
    data: _Data, choice: Choice, dynamics: Dynamics, start: float, progress: Progress
) -> Decomposition:
    """Compute the rewards, examine them, decide how far they can be trusted."""
    recording = data.recording
    rewards, spreads, kept = _compute_rewards(data, choice, progress)
    findings, measured = _examine(data, choice, rewards, spreads)
    verdict = reach_verdict(findings)
    masks = _complete_masks(data, choice, dynamics)
    true_masks = recording.header.truth.get("masks")
    if isinstance(true_masks, Mapping) and "truth" in measured:
        measured["true_masks"] = compare_all_masks(masks, true_masks)
    explanation = choice.decomposer.function_.explain()
    made = asdict(data.settings) | {"gamma": data.discount, "chosen_fit": choice.fit}
    made |= {"grd_offline": version("grd-offline")}
    return Decomposition(
        metrics={
            "method": data.settings.method,
            **choice.describe(),
            **measured,
            "returns_kept_r2": kept,
            "dynamics_held_out_log_likelihood": dynamics.likelihoods,
            "verdict": verdict._asdict(),
            **data.describe(),
            "warnings": list(recording.warnings),
            "delay": data.delay,
            "settings": made,
            "versions": find_versions(),
            "seconds": round(time.perf_counter() - start, 2),
        },
        masks=masks,
        effects=rank_effects([_describe_effect(curve) for curve in explanation.effects]),
        constant=explanation.constant,
        warnings=recording.warnings,
        fitted=Fitted(
            relabelling.relabel_recording(
                recording, lambda i, record: (rewards[i], spreads[i]), made
            ),
            rewards,
            spreads,
            _make_model(data, choice, masks, verdict.text),
            dynamics.model,
            recording.layout,
        ),
        columns=data.columns,
    )


@dataclass(frozen=True, eq=False)
class _Data:
    """Episodes, and what is known about them before any fit."""

    recording: Recording
    source: Data
    settings: DecomposeSettings
    episodes: EpisodeSet
    """All episodes, as a fit may see them."""
    fitted: EpisodeSet
    """The episodes that models are fitted to: those of large datasets are drawn at random."""
    discount: float
    delay: int | str

    @property
    def columns(self) -> str | None:
        """For tables: the role of each column, in the form of `--columns`."""
        return find_columns(self.recording)

    def describe(self) -> dict[str, Any]:
        """Describe the data for `metrics.json` and the model."""
        return {
            "episodes": len(self.episodes),
            "steps": self.episodes.total_steps,
            "environment": self.episodes.environment,
            "data": datasets.name_data(self.source),
        }


def _read(
    recording: Recording,
    source: Data,
    settings: DecomposeSettings,
    preferences: Any,
    rng: np.random.Generator,
    progress: Progress,
) -> _Data:
    """Read the episodes as a fit may see them, and refuse those that cannot be decomposed."""
    progress("reading the data", 0.0)
    delay = datasets.find_delay(recording)
    episodes = datasets.as_episodes(recording, source, delay=delay)
    discount = settings.gamma if settings.gamma is not None else recording.header.discount
    if preferences is None and isinstance(source, EpisodeSet):
        preferences = source.preferences
    if preferences is not None:
        from grd_offline.io.tables.build import read_preferences

        pairs = read_preferences(preferences, episodes)
        episodes = attach_preferences(episodes, pairs)
    elif delay == "step" and not settings.step_rewards:
        recording.warn(
            "rewards come with every step: they were summed into one return per episode, and "
            "only that was used (--step-rewards uses them as they are)"
        )
        episodes = episodes.delivered_at_end(discount)
    first = recording.load(0)
    if OBSERVED in first.extras:
        raise DataError("is relabelled already: decompose the original")
    if settings.truth is not None and settings.truth != "rewards":
        relabelling.find_truth(first, settings.truth, source)
    is_table = recording.header.provenance is not None
    if is_table and len(episodes) == 1 and not settings.step_rewards:
        raise DataError(
            "the table holds one episode, and one return says nothing about single steps: "
            "is the right column taken for episodes?"
        )
    columns = episodes.state_size + episodes.action_size
    if columns > MANY_COLUMNS and columns > episodes.total_steps:
        # No fit can separate so many. Hours would be spent on them.
        raise DataError(
            f"{columns:,} columns in {episodes.total_steps:,} steps: a fit of so many columns "
            "needs more steps than columns"
        )
    deliveries = len(episodes)  # that a fit sees, by the delay alone
    if delay == "step" and settings.step_rewards:
        deliveries = episodes.total_steps
    elif isinstance(delay, int):
        deliveries = int((-(-episodes.lengths // delay)).sum())
    fitted = draw_episodes(episodes, deliveries, rng)
    if len(fitted) < len(episodes):
        recording.warn(
            f"the models are fitted to {len(fitted):,} of {len(episodes):,} episodes, "
            "drawn at random; every episode gets its rewards"
        )
    return _Data(recording, source, settings, episodes, fitted, discount, delay)


def _fit(data: _Data, rng: np.random.Generator, progress: Progress) -> tuple[Choice, Dynamics]:
    """Choose and fit the reward, and learn the dynamics.

    If the last fit of the reward runs in a second process, the dynamics are learned meanwhile.
    Both have random numbers of their own, so that their order changes no result.
    """

    @cache
    def learn_graph() -> Dynamics:
        return learn_dynamics(data.fitted, {}, rng.spawn(1)[0], progress)

    choice = choose(data.fitted, data.settings, data.discount, rng, progress, learn_graph)
    outcome, given = choice.decomposer.function_.outcome, choice.decomposer.masks_ or {}
    if data.settings.exact_returns and outcome != NUMBER:
        raise DataError(
            f"--exact-returns is for outcomes that are numbers; these are taken for {outcome}"
        )
    if "state_to_state" in given:
        return choice, learn_dynamics(data.fitted, given, rng.spawn(1)[0], progress)
    return choice, learn_graph()


def _compute_rewards(
    data: _Data, choice: Choice, progress: Progress
) -> tuple[list[Array], list[Array], float | None]:
    """Compute the rewards of every episode, and their standard deviations.

    The number is R² of the returns, or of labels of success, as the sums of the rewards predict
    them; None for preferences, which have neither.
    """
    rewards, spreads, returns = [], [], []
    for index in range(len(data.episodes)):
        with datasets.locate(data.source, index):
            episode = data.episodes[index]
            found, spread = choice.relabel_episode(episode)
            if data.settings.exact_returns:
                found = relabelling.spread_remainder(found, episode, data.discount)
        total = float(found @ data.discount ** np.arange(len(found)))
        rewards.append(found)
        spreads.append(spread)
        returns.append((total, episode.compute_return(data.discount)))
        progress("computing step rewards", (index + 1) / len(data.episodes))
    function = choice.decomposer.function_
    if function.outcome == PREFERENCE:
        return rewards, spreads, None
    predicted, observed = np.array(returns).T
    kept = r_squared(function.outcome.predict(predicted, function.base), observed)
    return rewards, spreads, kept


def _examine(
    data: _Data, choice: Choice, rewards: list[Array], spreads: list[Array]
) -> tuple[list[Finding], dict[str, Any]]:
    """Gather all findings, and everything that was measured."""
    function, winner = choice.decomposer.function_, choice.winner
    calibration: dict[str, Any] = {"levels": list(LEVELS)}
    measured: dict[str, Any] = {"outcome": function.outcome, "base": function.base}
    if winner is not None and len(winner.true):
        measured["held_out"] = winner.list_returns()
        held_out = winner.predicted, winner.std, winner.true
        calibration["held_out_returns"] = compute_calibration(*held_out)
    if (field := data.settings.truth) is not None:
        truth = [relabelling.find_truth(record, field, data.source) for record in data.recording]
        both = relabelling.compare_truth(function.outcome, rewards, spreads, truth)
        measured["truth"], calibration["true_rewards"] = both
    tested = winner.describe() if winner else None
    findings, numbers = gather_findings(
        choice.decomposer, data.fitted, tested, measured.get("truth")
    )
    measured["calibration"] = calibration
    measured["bands"] = tell_bands(function, numbers.get("conditions", []))
    measured["identifiability"] = {"findings": [f._asdict() for f in findings], **numbers}
    return findings, measured


def _complete_masks(data: _Data, choice: Choice, dynamics: Dynamics) -> dict[str, Any]:
    """The four masks and their scores, those of the fit and of the dynamics, as plain values."""
    states, actions = data.episodes.observation_names, data.episodes.action_names
    masks: dict[str, Any] = {
        "state_to_reward": np.ones(len(states), np.int64),
        "action_to_reward": np.ones(len(actions), np.int64),
        **(choice.decomposer.masks_ or {}),
        **{name: getattr(dynamics.model, name) for name in MASKS[2:]},
    }
    scores = {**masks, **(choice.decomposer.scores_ or {}), **dynamics.scores}
    # Where episodes terminate, a policy also needs what tells that the end is near.
    parents = masks["state_to_reward"] | find_signs(data.fitted)
    graph = parents, masks["state_to_state"]
    compact = {"one_hop": compact_one_hop(*graph), "closure": compact_closure(*graph)}
    return {
        **{name: masks[name].tolist() for name in MASKS},
        "compact": {name: mask.tolist() for name, mask in compact.items()},
        "score": {name: np.asarray(scores[name], np.float64).tolist() for name in MASKS},
        "state_names": list(states),
        "action_names": list(actions),
        "references": list_dimensions(states, actions),
    }


def _describe_effect(curve: EffectCurve) -> dict[str, Any]:
    return {
        "inputs": list(curve.inputs),
        "references": curve.references,
        "grids": [grid.tolist() for grid in curve.grids],
        "mean": curve.mean.tolist(),
        "std": curve.std.tolist(),
        "share": float(curve.share),
    }


def _make_model(data: _Data, choice: Choice, masks: Mapping[str, Any], verdict: str) -> RewardModel:
    episodes = data.episodes
    about: dict[str, Any] = {
        **data.describe(),
        "method": data.settings.method,
        "fit": choice.fit,
        "discount": data.discount,
        **({} if data.columns is None else {"columns": data.columns}),
        **(choice.winner.describe() if choice.winner else {}),
        "grd_offline": version("grd-offline"),
        "verdict": verdict,
    }
    return RewardModel(
        function=choice.decomposer.function_,
        observation_names=episodes.observation_names,
        action_names=episodes.action_names,
        state_mask=np.asarray(masks["state_to_reward"], np.int64),
        action_mask=np.asarray(masks["action_to_reward"], np.int64),
        compact_mask=np.asarray(masks["compact"][data.settings.compact], np.int64),
        step_std=choice.step_std,
        about=about,
    )
