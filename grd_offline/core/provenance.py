"""Where episodes came from, if they came from a table, so that results can be joined to it.

Readers of tables make these objects, and the writers of tables of rewards use them. Methods do not
know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

EPISODE, STEP, ROW, TRUTH = "episode", "step", "row", "true_rewards"
"""What records of a table have under these names: the name of the episode among the attributes, and
among the further fields the steps, the rows that they stand in and the true rewards."""


@dataclass(frozen=True)
class Provenance:
    """The table that episodes came from."""

    columns: str = ""
    """The role of each column, in the form of `--columns`."""
    episode: str = EPISODE
    """The name of the column of episodes."""
    step: str = STEP
    """The name of the column of steps."""
    step_type: str = ""
    """The type of steps where they are no numbers: datetime64[us], or a style of texts."""
    library: str = ""
    """The library whose tables results are given as; plain arrays where there is none."""

    @classmethod
    def from_json(cls, stored: Any) -> Provenance | None:
        """What a file says, of unknown origin; None if it says nothing."""
        if not isinstance(stored, Mapping):
            return None
        known = {field.name for field in fields(cls)}
        return cls(**{name: str(text) for name, text in stored.items() if name in known})

    def to_json(self) -> dict[str, str]:
        """What a file keeps of it."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Origin:
    """The rows of a table that one episode came from."""

    label: int | float | str | None = None
    """What the table calls the episode."""
    steps: NDArray[Any] | None = None
    """(T,) the steps as the table has them: numbers, or microseconds since 1970."""
    rows: NDArray[np.int64] | None = None
    """(T,) the rows that the steps stand in. None: rows follow each other."""
