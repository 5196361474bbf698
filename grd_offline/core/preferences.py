"""Preferences: which of two pieces of episodes was better.

A piece is an episode from one step to another, or the whole of it. The answers of a person or of a
program are 1 where the first piece was preferred, 0 where the second was, and 1/2 where both were
found alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.typing import IntArray


@dataclass(frozen=True, eq=False)
class Preferences:
    """Pairs of pieces of episodes, and which piece of each pair was preferred.

    Examples
    --------
    >>> Preferences.between([0, 1], [2, 0], [1, 0.5])
    Preferences(2 pairs)
    """

    first: IntArray
    """(pair, 3) episode, first step, and the step after the last; -1 for the episode's end."""
    second: IntArray
    """(pair, 3) the same numbers of the second piece."""
    preferred: NDArray[np.float64]
    """(pair,) 1 for the first, 0 for the second, 1/2 for neither."""

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            pieces = np.asarray(getattr(self, name), np.int64)
            if pieces.ndim != 2 or pieces.shape[1] != 3:
                raise DataError(f"expected shape (pairs, 3), got {pieces.shape}", field=name)
            object.__setattr__(self, name, pieces)
        preferred = np.asarray(self.preferred, np.float64)
        if not len(self.first) == len(self.second) == len(preferred):
            raise DataError("expected as many first pieces as second ones and answers")
        wrong = np.flatnonzero(~((preferred >= 0) & (preferred <= 1)))
        if wrong.size:
            raise DataError(
                f"expected 0 to 1, got {preferred[wrong[0]]:.4g} in pair {wrong[0]}",
                field="preferred",
            )
        object.__setattr__(self, "preferred", preferred)

    @classmethod
    def between(cls, first: ArrayLike, second: ArrayLike, preferred: ArrayLike) -> Preferences:
        """Make pairs.

        Parameters
        ----------
        first, second
            Whole episodes, by their index, or pieces (episode, start, stop).
        preferred
            1 where the first was preferred, 0 for the second, 1/2 for neither.

        Returns
        -------
        Preferences
            The pairs.
        """
        return cls(_as_pieces(first), _as_pieces(second), np.asarray(preferred, np.float64))

    def __len__(self) -> int:
        return len(self.preferred)

    def __repr__(self) -> str:
        return f"Preferences({len(self):,} pairs)"

    def __getitem__(self, chosen: IntArray) -> Preferences:
        """Return some of the pairs."""
        return Preferences(self.first[chosen], self.second[chosen], self.preferred[chosen])


def _as_pieces(pieces: ArrayLike) -> IntArray:
    """Whole episodes as pieces of all their steps."""
    given = np.asarray(pieces, np.int64)
    if given.ndim != 1:
        return given
    return np.stack([given, np.zeros_like(given), np.full_like(given, -1)], 1)
