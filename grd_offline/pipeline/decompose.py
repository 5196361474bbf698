"""A whole decomposition: from a dataset to a folder of results, all or nothing.

The folder holds `relabelled.h5`, `reward_model/`, `dynamics_model/`, `effects.json`, `masks.json`,
`metrics.json` and `report.html`.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.endings import find_signs
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.evaluate import LEVELS, compare_all_masks, compute_calibration
from grd_offline.core.graph import compact_closure, compact_one_hop
from grd_offline.core.outcomes import NUMBER
from grd_offline.core.pieces import attach_preferences
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.versions import find_versions
from grd_offline.io.datasets import (
    Data,
    Record,
    Recording,
    as_episodes,
    find_delay,
    name_data,
    open_recording,
    write_dataset,
)
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.decomposition import (
    RELABELLED,
    is_replaceable,
    read_decomposition,
    write_decomposition,
)
from grd_offline.io.files.models import DYNAMICS_FOLDER, REWARD_FOLDER
from grd_offline.io.files.storage import check_folder, create_file, replace_folder
from grd_offline.io.formats.record import KeptRecords
from grd_offline.io.formats.relabelled import OBSERVED
from grd_offline.io.tables.columns import Given, Outcomes, name_truth
from grd_offline.io.tables.results import (
    ENDINGS,
    find_columns,
)
from grd_offline.methods.choose import Choice, choose, draw_episodes
from grd_offline.methods.closed_form.findings import tell_bands
from grd_offline.methods.contract import Finding, Progress
from grd_offline.methods.relabelling import (
    Tally,
    check_width,
    choose_layout,
    find_truth,
    keep_table,
    relabel_records,
    relabelled_header,
)
from grd_offline.methods.result import Decomposition
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.methods.transitions import Dynamics, learn_dynamics
from grd_offline.methods.verdict import gather_findings, reach_verdict
from grd_offline.report import make_decomposition_page
from grd_offline.rewards.effect_inputs import name_effect
from grd_offline.rewards.model import RewardModel

Array = NDArray[np.float64]
_KEPT_BYTES = 50_000_000  # relabelled data that the report need not read back
_MASKS = ("state_to_reward", "action_to_reward", "state_to_state", "action_to_state")


@one_numpy_thread()
def decompose(
    source: Data,
    out: str | os.PathLike[str],
    settings: DecomposeSettings | None = None,
    *,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    preferences: Any = None,
    video: str | None = None,
    progress: Progress = lambda stage, share: None,
    on_data: Callable[[EpisodeSet, EpisodeSet], None] = lambda episodes, fitted: None,
) -> Decomposition:
    """Decompose the returns of a dataset and write the results into the folder `out`.

    This is what `grd-offline decompose` does. `source` is a file or folder that
    `grd_offline.open_recording` can read, or episodes, for example those of `from_dataframe`.
    `columns` and `returns` are for tables. `preferences` are learned from instead of returns: a
    `Preferences`, a table with the columns first, second and preferred, or the file of one.
    `progress` hears of each stage and the fraction of it that is done. Before the first fit,
    `on_data` gets all episodes, and those that models are fitted to. `video` names the environment
    in which the report films a few episodes.

    >>> result = decompose("datasets/sample.h5", "sample-uniform", DecomposeSettings("uniform"))
    >>> result.metrics["episodes"], result.relabelled.name
    (80, 'relabelled.h5')
    """
    settings = settings if settings is not None else DecomposeSettings()
    if settings.truth is not None:
        columns, truth = name_truth(source, columns, settings.truth)
        settings = replace(settings, truth=truth)
    start = time.perf_counter()
    check_folder(out, is_replaceable=is_replaceable)
    opened = open_recording(
        source,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
        needs_outcome=preferences is None,
    )
    with opened:
        run = _Run(opened, source, settings, progress, preferences)
        run.video = video
        run.preferences = _name_file(preferences)
        run.returns = _name_file(returns)
        on_data(run.episodes, run.fitted)
        run.fit()
        with replace_folder(out, is_replaceable=is_replaceable) as folder:
            return run.write(folder, Path(out), start)


def _name_file(given: Any) -> str | None:
    """The name of a file, where one is given."""
    return Path(given).name if isinstance(given, str | os.PathLike) else None


decompose_file = decompose


class _Run:
    """One decomposition: first the data, then the fits, then the files."""

    def __init__(
        self,
        recording: Recording,
        source: Data,
        settings: DecomposeSettings,
        progress: Progress,
        preferences: Any = None,
    ) -> None:
        self.recording, self.source, self.settings, self.progress = (
            recording,
            source,
            settings,
            progress,
        )
        self.video: str | None = None
        self.returns: str | None = None
        self.preferences: str | None = None
        self.learned: list[Dynamics] = []
        self.name = name_data(source)
        self.columns = find_columns(recording)
        self.rng = np.random.default_rng(settings.seed)
        progress("reading the data", 0.0)
        self.delay = find_delay(recording)
        episodes = as_episodes(recording, source, delay=self.delay)
        given = settings.gamma
        self.discount = given if given is not None else recording.header.discount
        if preferences is None and isinstance(source, EpisodeSet):
            preferences = source.preferences
        if preferences is not None:
            from grd_offline.io.tables.pairs import read_preferences

            episodes = attach_preferences(episodes, read_preferences(preferences, episodes))
        elif self.delay == "step" and not settings.step_rewards:
            recording.warn(
                "rewards come with every step: they were summed into one return per episode, and "
                "only that was used (--step-rewards uses them as they are)"
            )
            episodes = episodes.delivered_at_end(self.discount)
        first = recording.load(0)
        if OBSERVED in first.extras:
            raise DataError("is relabelled already: decompose the original")
        if settings.truth is not None and settings.truth != "rewards":
            find_truth(first, settings.truth, source)
        is_table = recording.header.provenance is not None
        if is_table and len(episodes) == 1 and not settings.step_rewards:
            raise DataError(
                "the table holds one episode, and one return says nothing about single steps: "
                "is the right column taken for episodes?"
            )
        check_width(episodes)
        self.episodes = episodes
        self.fitted = draw_episodes(episodes, self._count_deliveries(), self.rng)
        """The episodes that models are fitted to: those of large datasets are drawn at random."""
        if len(self.fitted) < len(episodes):
            recording.warn(
                f"the models are fitted to {len(self.fitted):,} of {len(episodes):,} episodes, "
                "drawn at random; every episode gets its rewards"
            )

    def _count_deliveries(self) -> int:
        """Deliveries that a fit sees, by the delay alone."""
        if self.delay == "step" and self.settings.step_rewards:
            return self.episodes.total_steps
        if isinstance(self.delay, int):
            return int((-(-self.episodes.lengths // self.delay)).sum())
        return len(self.episodes)

    def fit(self) -> None:
        """Fit the reward, then the dynamics. If the last fit of the reward runs in a second
        process, the dynamics come first."""
        settings = self.settings
        names = ("next_state", "state_at", "outcome", "device")
        options = {name: getattr(settings, name) for name in names}
        options["discount"] = self.discount
        self.choice = choose(
            self.fitted,
            settings.method,
            settings.fit,
            options,
            self.rng,
            self.progress,
            meanwhile=lambda: self._learn_dynamics({}),
        )
        outcome = self.choice.decomposer.function_.outcome
        if settings.exact_returns and outcome != NUMBER:
            raise DataError(
                f"--exact-returns is for outcomes that are numbers; these are taken for {outcome}"
            )
        self.masks, self.scores = self._complete_masks(self.choice)
        self.model = self._make_model(self.choice)

    def _learn_dynamics(self, given: dict[str, Any]) -> None:
        """Learn the dynamics, unless that was done while the last fit ran: both have random
        numbers of their own, so that their order changes no result."""
        if not self.learned:
            own = self.rng.spawn(1)[0]
            self.learned.append(learn_dynamics(self.fitted, given, own, self.progress))

    def _complete_masks(self, choice: Choice) -> tuple[dict[str, Any], dict[str, Any]]:
        """Complete the four masks: those of the fit, and those of the dynamics if the fit has
        none."""
        states, actions = self.episodes.state_size, self.episodes.action_size
        masks: dict[str, Any] = dict(choice.decomposer.masks_ or {})
        scores: dict[str, Any] = dict(choice.decomposer.scores_ or {})
        masks.setdefault("state_to_reward", np.ones(states, np.int64))
        masks.setdefault("action_to_reward", np.ones(actions, np.int64))
        self._learn_dynamics(masks)
        self.dynamics = self.learned[0]
        masks |= self.dynamics.masks
        scores |= self.dynamics.scores
        # Where episodes terminate, a policy also needs what tells that the end is near.
        parents = np.asarray(masks["state_to_reward"]) | find_signs(self.fitted)
        graph = parents, masks["state_to_state"]
        masks["compact"] = {"one_hop": compact_one_hop(*graph), "closure": compact_closure(*graph)}
        for name in _MASKS:
            scores.setdefault(name, np.asarray(masks[name], np.float64))
        return masks, scores

    def _make_model(self, choice: Choice) -> RewardModel:
        winner = choice.winner
        about: dict[str, Any] = {
            "data": self.name,
            "environment": self.episodes.environment,
            "episodes": len(self.episodes),
            "steps": self.episodes.total_steps,
            "method": self.settings.method,
            "fit": choice.fit,
            "discount": self.discount,
            **({} if self.columns is None else {"columns": self.columns}),
            **(winner.describe() if winner else {}),
            "grd_offline": version("grd-offline"),
        }
        return RewardModel(
            function=choice.decomposer.function_,
            observation_names=self.episodes.observation_names,
            action_names=self.episodes.action_names,
            state_mask=np.asarray(self.masks["state_to_reward"], np.int64),
            action_mask=np.asarray(self.masks["action_to_reward"], np.int64),
            compact_mask=self.masks["compact"][self.settings.compact],
            step_std=choice.step_std,
            about=about,
        )

    def write(self, folder: Path, out: Path, start: float) -> Decomposition:
        """Write everything into an empty folder."""
        layout = choose_layout(self.recording)
        name = RELABELLED[layout == "minari"]
        tally = Tally(self.model.function.outcome, self.model.function.base)
        header = relabelled_header(self.recording.header, self._settings())
        ending = ENDINGS.get(self.recording.layout)
        table = None if ending is None else f"relabelled{ending}"
        place = None if table is None else folder / table
        kept = KeptRecords(_KEPT_BYTES)
        relabelled = kept.pass_on(self._relabel(tally))
        with keep_table(place, header, relabelled, fresh=True) as passing:
            write_dataset(
                folder / name, header, passing, layout=layout, lengths=self.recording.lengths
            )
        self.progress("writing the results", 0.0)
        findings, numbers = self._examine(tally)
        verdict = reach_verdict(findings)
        self.model = replace(
            self.model, about={**(self.model.about or {}), "verdict": verdict.text}
        )
        for target, model in ((REWARD_FOLDER, self.model), (DYNAMICS_FOLDER, self.dynamics.model)):
            model.save(folder / target)
        effects = self._describe_effects()
        metrics = self._measure(tally, findings, numbers)
        metrics["seconds"] = round(time.perf_counter() - start, 2)
        masks = self._describe_masks()
        write_decomposition(folder, metrics=metrics, masks=masks, effects=effects)
        self.progress("making the report", 0.0)
        record = read_decomposition(folder)
        page = make_decomposition_page(
            record,
            name=out.name,
            video=self.video,
            relabelled=kept.open(layout, header),
            warn=self.recording.warn,
        )
        with create_file(folder / REPORT_FILE) as output:
            output.write(page.encode())
        shares = [(name_effect(e["inputs"]), float(e["share"])) for e in effects["effects"]]
        return Decomposition(
            folder=out,
            relabelled=out / name,
            model=self.model,
            dynamics=self.dynamics.model,
            masks=masks,
            metrics=metrics,
            findings=findings,
            shares=sorted(shares, key=lambda item: -item[1]),
            warnings=list(self.recording.warnings),
            columns=self.columns,
            table=None if table is None else out / table,
        )

    def _settings(self) -> dict[str, Any]:
        return {
            **asdict(self.settings),
            "gamma": self.discount,
            "chosen_fit": self.choice.fit,
            "grd_offline": version("grd-offline"),
        }

    def _command(self) -> str:
        """The command that makes the decomposition again."""
        parts = ["grd-offline", "decompose", self.name]
        for field in fields(DecomposeSettings):
            value, option = getattr(self.settings, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default:
                parts += [option] if value is True else [option, str(value)]
        parts += ["--video", "--env", self.video] if self.video is not None else []
        parts += ["--columns", self.columns] if self.columns is not None else []
        parts += ["--returns", self.returns] if self.returns is not None else []
        parts += ["--preferences", self.preferences] if self.preferences is not None else []
        return shlex.join(parts)

    def _relabel(self, tally: Tally) -> Iterator[Record]:
        return relabel_records(
            self.recording,
            self.source,
            self.model,
            decomposer=self.choice.decomposer,
            delay=self.delay,
            discount=self.discount,
            folded=self.delay == "step" and not self.settings.step_rewards,
            exact=self.settings.exact_returns,
            truth=self.settings.truth,
            tally=tally,
            progress=lambda share: self.progress("computing step rewards", share),
        )

    def _examine(self, tally: Tally) -> tuple[list[Finding], dict[str, Any]]:
        winner, truth = self.choice.winner, tally.compare() if tally.true else None
        held_out = winner.describe() if winner else None
        return gather_findings(self.choice.decomposer, self.fitted, held_out, truth)

    def _describe_effects(self) -> dict[str, Any]:
        explanation = self.choice.decomposer.function_.explain()
        return {
            "effects": [
                {
                    "inputs": list(curve.inputs),
                    "grids": [grid.tolist() for grid in curve.grids],
                    "mean": curve.mean.tolist(),
                    "std": curve.std.tolist(),
                    "share": float(curve.share),
                }
                for curve in explanation.effects
            ],
            "constant": explanation.constant,
        }

    def _describe_masks(self) -> dict[str, Any]:
        return {
            **{name: np.asarray(self.masks[name]).tolist() for name in _MASKS},
            "compact": {name: mask.tolist() for name, mask in self.masks["compact"].items()},
            "score": {name: np.asarray(self.scores[name]).tolist() for name in _MASKS},
            "state_names": list(self.episodes.observation_names),
            "action_names": list(self.episodes.action_names),
        }

    def _measure(
        self, tally: Tally, findings: list[Finding], numbers: dict[str, Any]
    ) -> dict[str, Any]:
        winner = self.choice.winner
        chosen = winner.describe() if winner else {}
        metrics: dict[str, Any] = {
            "method": self.settings.method,
            "fit": self.choice.fit,
            "reason": self.choice.reason,
            "alternatives": [one.describe() for one in self.choice.candidates],
            **{name: value for name, value in chosen.items() if name != "fit"},
            "outcome": self.model.function.outcome,
            "base": self.model.function.base,
            "returns_kept_r2": tally.return_r2(),
            "dynamics_held_out_log_likelihood": self.dynamics.likelihoods,
            "verdict": reach_verdict(findings)._asdict(),
            "bands": tell_bands(self.model.function, numbers.get("conditions", [])),
            "identifiability": {"findings": [f._asdict() for f in findings], **numbers},
            "episodes": len(self.episodes),
            "steps": self.episodes.total_steps,
            "environment": self.episodes.environment,
            "data": self.name,
            "warnings": list(self.recording.warnings),
            "settings": self._settings(),
            "delay": self.delay,
            "command": self._command(),
            "versions": find_versions(),
        }
        calibration: dict[str, Any] = {"levels": list(LEVELS)}
        if winner is not None and len(winner.true):
            metrics["held_out"] = winner.list_returns()
            calibration["held_out_returns"] = compute_calibration(
                winner.predicted, winner.std, winner.true
            )
        if tally.true:
            calibration["true_rewards"] = tally.calibrate()
        metrics["calibration"] = calibration
        if tally.true:
            metrics["truth"] = tally.compare()
            true_masks = self.recording.header.truth.get("masks")
            if isinstance(true_masks, Mapping):
                metrics["true_masks"] = compare_all_masks(self.masks, true_masks)
        return metrics
