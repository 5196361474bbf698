"""Shorter jobs, to try a sweep file out: fewer steps, updates, evaluations, episodes and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.settings import describe_settings
from grd_offline.learning.offline.settings import OfflineSettings
from grd_offline.learning.online.settings import OnlineSettings

LEAST_STEPS = 200
"""Steps, or updates, of a run that is made shorter."""
LEARNING_STEPS = 100
"""Steps after the warm-up, which is not scaled and would be longer than the run."""
LEAST_UPDATES = 5
"""Updates of a block after 100 steps."""
LEAST_BATCH = 32
LEAST_EPISODE = 50
"""Steps after which episodes are truncated."""
LEAST_EVALUATIONS = 2
LONGEST_EPISODE = 1000
"""Steps of an episode where the file does not say it."""


def scale_options(
    command: str, options: Mapping[str, Any], scale: float
) -> tuple[dict[str, Any], int | None]:
    """The options of a job that is `scale` times as long, and the steps that it has."""
    if not 0 < scale <= 1:
        raise DataError(f"scale: expected more than 0 and at most 1, got {scale:g}")
    if command == "decompose":
        return dict(options), None
    count = "steps" if command == "train-online" else "updates"
    settings = OnlineSettings if command == "train-online" else OfflineSettings
    known = {n.replace("_", "-"): d.default for n, d in describe_settings(settings).items()}
    if scale == 1:
        return dict(options), _read(options, count, None)
    before, every = (_read(options, key, known[key]) for key in (count, "eval-every"))
    total = _shrink(before, scale, LEAST_STEPS)
    evaluations = _shrink(max(1, before // every), scale, LEAST_EVALUATIONS)
    episodes = _read(options, "eval-episodes", known["eval-episodes"])
    longest = _read(options, "max-episode-steps", LONGEST_EPISODE)
    changed = {
        count: total,
        "eval-every": max(1, total // evaluations),
        "eval-episodes": _shrink(episodes, scale, 1),
        "max-episode-steps": _shrink(longest, scale, LEAST_EPISODE),
    }
    if command == "train-online":
        warmup = _read(options, "warmup", known["warmup"])
        changed["warmup"] = min(warmup, max(0, total - LEARNING_STEPS))
        updates = _read(options, "round-updates", known["round-updates"])
        changed["round-updates"] = _shrink(updates, scale, LEAST_UPDATES)
    batch = _read(options, "batch", known["batch"])
    changed["batch"] = _shrink(batch, scale, LEAST_BATCH)
    return {**options, **changed}, total


def scale_seeds(seeds: Sequence[int], scale: float) -> list[int]:
    """The first seeds: at least one."""
    return list(seeds[: _shrink(len(seeds), scale, 1)])


def _read(options: Mapping[str, Any], key: str, default: Any) -> Any:
    value = options.get(key, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        if key == "warmup" and value == 0:
            return value
        raise DataError(f"{key}: expected a whole number of at least 1, got {value!r:.40}")
    return value


def _shrink(value: int, scale: float, least: int) -> int:
    return min(value, max(least, round(value * scale)))
