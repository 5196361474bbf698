"""The numbers of the episode viewer: rewards, their sums, and inputs along every episode."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.errors import DataError
from grd_offline.files.decomposition import DecompositionRecord
from grd_offline.formats import Header, Record, as_episode, locate, open_recording
from grd_offline.formats.relabelled import OBSERVED, STD
from grd_offline.report.packing import count_bytes, pack_series

Array = NDArray[np.float64]
MOST_EPISODES = 500
"""Of more episodes, this many are shown, chosen evenly by their return."""
MOST_INPUTS = 8
MOST_DELIVERIES = 64
"""An episode with more deliveries than this is drawn with a curve of them."""
CLOSE_UP_BYTES = 120_000
"""Bytes for each of the worst, the median and the best episode."""


@dataclass(frozen=True, eq=False)
class Track:
    """The parts of one episode that are shown."""

    rewards: Array
    std: Array
    observed: Array
    """The reward delivered at each step, or zero."""
    true: Array | None
    inputs: list[Array]
    discount: float

    @property
    def weights(self) -> Array:
        return np.asarray(self.discount ** np.arange(len(self.rewards)))

    @property
    def delivered(self) -> float:
        """The observed return."""
        return float(self.observed.sum())

    @property
    def found(self) -> float:
        """The sum of the rewards found."""
        return float(self.rewards @ self.weights)


@dataclass(frozen=True, eq=False)
class Tracks:
    """The episodes that are shown, and the returns of all episodes."""

    chosen: Mapping[int, Track]
    returns: Array
    """(episode, 2) observed return, and the sum of the rewards found; of all episodes."""
    inputs: Sequence[str]


def read_tracks(decomposition: DecompositionRecord) -> Tracks:
    """Read the relabelled episodes one by one, and keep what is shown."""
    folder, inputs = decomposition.path, decomposition.inputs[:MOST_INPUTS]
    columns = _find_columns(decomposition.masks, inputs)
    with open_recording(folder) as recording:

        def load(index: int) -> Track:
            with locate(folder, index):
                record = recording.load(index)
                return _make_track(record, recording.header, decomposition.metrics, columns)

        count = len(recording)
        kept: dict[int, Track] = {}
        returns = np.zeros((count, 2))
        for index in range(count):
            track = load(index)
            returns[index] = track.delivered, track.found
            if count <= MOST_EPISODES:
                kept[index] = track
        if count > MOST_EPISODES:
            order = np.argsort(returns[:, 0], kind="stable")
            places = np.linspace(0, count - 1, MOST_EPISODES).round().astype(int)
            kept = {int(index): load(int(index)) for index in np.sort(order[places])}
    return Tracks(kept, returns, inputs)


def pack_tracks(tracks: Tracks, budget: int) -> dict[str, Any]:
    """Pack the episodes for the page into about `budget` bytes of text."""
    chosen = tracks.chosen
    first = next(iter(chosen.values()))
    spiky, smooth = 1 + len(tracks.inputs) + (first.true is not None), 2 + (first.true is not None)
    dense = any(np.count_nonzero(track.observed) > MOST_DELIVERIES for track in chosen.values())
    spiky += dense
    close_up = find_landmarks(tracks)
    lengths = {index: len(track.rewards) for index, track in chosen.items()}
    whole = [count_bytes(lengths[index], 1, spiky, smooth) for index in close_up.values()]
    raw = budget * 3 // 4 - sum(min(count, CLOSE_UP_BYTES) for count in whole)
    width = _find_width(lengths.values(), spiky, smooth, raw)
    episodes = []
    for index, track in chosen.items():
        own = width
        if index in close_up.values():
            own = _find_width([lengths[index]], spiky, smooth, CLOSE_UP_BYTES)
        episodes.append(_pack_track(index, track, min(own, width), dense))
    return {
        "series": {
            "true": first.true is not None,
            "observed": dense,
            "inputs": list(tracks.inputs),
        },
        "width": width,
        "total": len(tracks.returns),
        "landmarks": close_up,
        "episodes": episodes,
    }


def find_landmarks(tracks: Tracks) -> dict[str, int]:
    """Find the episodes with the highest, the median and the lowest return."""
    order = sorted(tracks.chosen, key=lambda index: float(tracks.returns[index, 0]))
    return {"best": order[-1], "median": order[(len(order) - 1) // 2], "worst": order[0]}


def _find_width(lengths: Collection[int], spiky: int, smooth: int, most: int) -> int:
    """Find the least width of stretches that packs episodes of these lengths into `most` bytes."""
    width = 1
    while width < max(lengths) and (
        sum(count_bytes(length, width, spiky, smooth) for length in lengths) > most
    ):
        width += 1
    return width


def _pack_track(index: int, track: Track, width: int, dense: bool) -> dict[str, Any]:
    starts = np.arange(0, len(track.std), width)
    widest = np.repeat(np.maximum.reduceat(track.std, starts), width)[: len(track.std)]
    spiky, smooth = [track.rewards], [widest, np.cumsum(track.rewards * track.weights)]
    if track.true is not None:
        spiky.append(track.true)
        smooth.append(np.cumsum(track.true * track.weights))
    if dense:
        spiky.append(track.observed)
    steps = np.flatnonzero(track.observed)
    if not dense and not len(steps):
        steps = np.array([len(track.rewards) - 1])  # a return of zero was delivered too
    return {
        "index": index,
        "length": len(track.rewards),
        "return": track.delivered,
        "sum": track.found,
        "true": None if track.true is None else float(track.true @ track.weights),
        "deliveries": [] if dense else [[int(t), float(track.observed[t])] for t in steps],
        **pack_series([*spiky, *track.inputs], smooth, width),
    }


def _make_track(
    record: Record, header: Header, metrics: Mapping[str, Any], columns: Sequence[tuple[str, int]]
) -> Track:
    settings = metrics["settings"]
    for name in (STD, OBSERVED):
        if name not in record.extras:
            raise DataError("missing: is this relabelled data?", field=name)
    # Flags of when rewards were delivered speak of the observed ones.
    episode = as_episode(replace(record, extras={}), header, "step")
    steps, discount = len(episode), float(settings["gamma"])
    observed = np.asarray(record.extras[OBSERVED], np.float64)
    by_step = metrics.get("delay", "step" if np.count_nonzero(observed) > 0.5 * steps else "")
    if by_step == "step":
        observed = observed * discount ** np.arange(steps)
        if not settings["step_rewards"]:  # only their sum was used
            observed = np.concatenate([np.zeros(steps - 1), [observed.sum()]])
    field = settings.get("truth")
    true = None
    if field is not None:
        stored = record.extras.get(OBSERVED if field == "rewards" else field)
        if stored is None or stored.shape != observed.shape:
            raise DataError("no such field with a number per step", field=str(field))
        true = np.asarray(stored, np.float64)
    sources = {
        "now": episode.observations[:steps],
        "action": episode.actions,
        "next": np.concatenate([episode.observations[1:], episode.observations[-1:]])[:steps],
        "end": episode.terminations[:, None],
    }
    sources["middle"] = 0.5 * sources["now"] + 0.5 * sources["next"]
    return Track(
        rewards=np.asarray(record.rewards, np.float64),
        std=np.asarray(record.extras[STD], np.float64),
        observed=observed,
        true=true,
        inputs=[sources[kind][:, column].astype(np.float64) for kind, column in columns],
        discount=discount,
    )


def _find_columns(masks: Mapping[str, Any], inputs: Sequence[str]) -> list[tuple[str, int]]:
    """Find the column of each input; a name with a prime is of the next state."""
    states, actions = masks["state_names"], masks["action_names"]
    places: dict[str, tuple[str, int]] = {"terminated": ("end", 0)}
    places |= {f"{name}'": ("next", i) for i, name in enumerate(states)}
    places |= {f"{name} (midpoint)": ("middle", i) for i, name in enumerate(states)}
    places |= {name: ("action", i) for i, name in enumerate(actions)}
    places |= {name: ("now", i) for i, name in enumerate(states)}
    return [places[name] for name in inputs]
