"""The numbers of the episode viewer: rewards, their parts and sums, and inputs along episodes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from grd_offline.core.typing import Array
from grd_offline.report.effects import has_few_values
from grd_offline.report.packing import count_bytes, pack_series
from grd_offline.report.tracks import MOST_INPUTS, Track, Tracks

MOST_DELIVERIES = 64
"""An episode with more deliveries than this is drawn with a curve of them."""
CLOSE_UP_BYTES = 160_000
"""Bytes for each of the worst, the median and the best episode."""


def pack_tracks(tracks: Tracks, budget: int) -> dict[str, Any]:
    """Pack the episodes for the page into about `budget` bytes of text."""
    chosen = tracks.chosen
    dense = any(np.count_nonzero(track.observed) > MOST_DELIVERIES for track in chosen.values())
    spiky, smooth = _list_series(next(iter(chosen.values())), 1, dense)
    counts = len(spiky), len(smooth)
    close_up = find_landmarks(tracks)
    lengths = {index: len(track.rewards) for index, track in chosen.items()}
    whole = [count_bytes(lengths[index], 1, *counts) for index in close_up.values()]
    raw = budget * 3 // 4 - sum(min(count, CLOSE_UP_BYTES) for count in whole)
    width = _find_width(lengths.values(), *counts, raw)
    episodes = []
    for index, track in chosen.items():
        own = width
        if index in close_up.values():
            own = _find_width([lengths[index]], *counts, CLOSE_UP_BYTES)
        episodes.append(_pack_track(index, track, min(own, width), dense))
    return {
        "series": {
            "spiky": list(spiky),
            "smooth": list(smooth),
            "inputs": [one.name for one in tracks.inputs],
            "drawn": min(len(tracks.inputs), MOST_INPUTS),
            "terms": list(tracks.terms),
            "termInputs": [[one.name for one in inputs] for inputs in tracks.term_inputs],
            "few": [one.name for one in tracks.inputs if has_few_values(tracks.sample[one])],
            "labels": [one.name for one in tracks.inputs if one.category is not None],
        },
        "constant": tracks.constant,
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


def _list_series(
    track: Track, width: int, dense: bool
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The series of an episode by name: those whose extremes count, and those that are smooth."""
    starts = np.arange(0, len(track.std), width)
    widest = np.repeat(np.maximum.reduceat(track.std, starts), width)[: len(track.std)]
    spiky = {"reward": track.rewards}
    smooth = {"std": widest, "sum": np.cumsum(track.rewards * track.weights)}
    if track.true is not None:
        spiky |= {"true": track.true, "gap": track.rewards - track.true}
        smooth["trueSum"] = np.cumsum(track.true * track.weights)
    if dense:
        spiky["observed"] = track.observed
    spiky |= {f"input{place}": values for place, values in enumerate(track.inputs)}
    smooth |= {f"term{place}": values for place, values in enumerate(track.terms)}
    return spiky, smooth


def _pack_track(index: int, track: Track, width: int, dense: bool) -> dict[str, Any]:
    spiky, smooth = _list_series(track, width, dense)
    steps = np.flatnonzero(track.observed)
    if not dense and not len(steps):
        steps = np.array([len(track.rewards) - 1])  # a return of zero was delivered too
    return {
        "index": index,
        "label": track.label,
        "length": len(track.rewards),
        "return": track.delivered,
        "sum": track.found,
        "true": None if track.true is None else float(track.true @ track.weights),
        "deliveries": [] if dense else [[int(t), float(track.observed[t])] for t in steps],
        **pack_series(list(spiky.values()), list(smooth.values()), width),
    }
