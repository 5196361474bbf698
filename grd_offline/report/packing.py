"""Numbers for a page: few bytes, the extremes kept.

A long series is cut into stretches of equal width; of each, the smallest and the largest value are
kept where they stand, so that a spike of one step is still seen. Values become 16 bits between the
smallest and the largest of their series, as base64 text.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.typing import AnyArray, Array, IntArray

LEVELS = 65535


def pack(values: ArrayLike) -> dict[str, Any]:
    """Pack an array of finite numbers as its shape, its range and 16-bit levels."""
    array = np.asarray(values, np.float64)
    levels, low, high = quantise(array)
    return {"shape": list(array.shape), "low": low, "high": high, "data": encode(levels)}


def quantise(values: Array) -> tuple[NDArray[np.uint16], float, float]:
    """Round to 65,536 levels between the smallest and the largest value; return all three."""
    if not values.size:
        return np.zeros(0, np.uint16), 0.0, 0.0
    low, high = float(values.min()), float(values.max())
    scale = LEVELS / (high - low) if high > low else 0.0
    return np.rint((values - low) * scale).astype("<u2"), low, high


def encode(array: AnyArray) -> str:
    """Write the bytes of an array as text."""
    return b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def find_extremes(values: Array, width: int) -> tuple[IntArray, Array]:
    """Find the smallest and the largest value of each stretch of `width` steps.

    Gives (stretch, 2) the steps and the values; where both are the same step it stands twice.
    """
    count = -(-len(values) // width)
    # What fills up the last stretch repeats its last value, and so is never an extreme of its own.
    filled = np.concatenate([values, np.repeat(values[-1:], count * width - len(values))])
    stretches = filled.reshape(count, width)
    places = np.sort([stretches.argmin(1), stretches.argmax(1)], axis=0).T
    rows = np.arange(count)[:, None]
    steps = rows * width + places
    return steps, stretches[rows, places]


def count_bytes(length: int, width: int, spiky: int, smooth: int) -> int:
    """Count the bytes that `pack_series` gives for one episode, before base64."""
    if width == 1:
        return 2 * length * (spiky + smooth)
    stretches = -(-length // width)
    return stretches * (5 * spiky + 2 * smooth)


def pack_series(spiky: list[Array], smooth: list[Array], width: int) -> dict[str, Any]:
    """Pack series of one episode: extremes of spiky ones, ends of stretches of smooth ones.

    The data are all 16-bit levels, series after series, then for each spiky one a byte per stretch:
    where its two values stand, in sixteenths of the stretch.
    """
    numbers: list[NDArray[np.uint16]] = []
    places: list[NDArray[np.uint8]] = []
    ranges = []
    for index, values in enumerate([*spiky, *smooth]):
        if width == 1:
            kept = values
        elif index < len(spiky):
            steps, extremes = find_extremes(values, width)
            kept = extremes.ravel()
            offsets = (steps % width) * 16 // width if width > 16 else steps % width
            places.append((offsets[:, 0] * 16 + offsets[:, 1]).astype(np.uint8))
        else:
            kept = values[np.minimum(np.arange(width, len(values) + width, width), len(values)) - 1]
        levels, low, high = quantise(kept)
        numbers.append(levels)
        ranges.append([_shorten(low), _shorten(high)])
    data = b"".join([part.tobytes() for part in numbers] + [part.tobytes() for part in places])
    return {"width": width, "ranges": ranges, "data": b64encode(data).decode("ascii")}


def _shorten(value: float) -> float:
    return float(f"{value:.7g}")
