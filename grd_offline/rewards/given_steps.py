"""Steps that a user gives to a model: arrays, or data frames with the columns of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.names import LabelName
from grd_offline.core.typing import Array

_SHOWN = 20


def read_columns(field: str, values: ArrayLike, names: Sequence[str]) -> NDArray[Any]:
    """(step, input) numbers from an array or a data frame; DataError says what was expected.

    Where there is one input, (step,) numbers will do. A data frame may have its columns in any
    order. A column of labels, such as weather, gives all of its inputs, such as weather=rain.
    """
    columns = getattr(values, "columns", None)
    if columns is not None:
        return _select(field, values, [str(name) for name in columns], names)
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"expected numbers, got {array.dtype}; {_list(names)}", field=field)
    if array.ndim == 1 and len(names) == 1:
        return array[:, None]
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"expected shape (N, {len(names)}), got {array.shape}; {_list(names)}", field=field
        )
    return array


def _select(field: str, frame: Any, given: Sequence[str], names: Sequence[str]) -> NDArray[Any]:
    """Columns of a data frame in the order of the names."""
    found, missing = [], []
    for name in names:
        if name in given:
            found.append(_as_numbers(field, frame[name], name))
        elif isinstance(name, LabelName) and name.column in given:
            found.append(_mark_label(field, frame[name.column], name, names))
        else:
            missing.append(name)
    if missing:
        raise DataError(
            f"there is no column {missing[0]!r}; {_list(names)}; got: {_join(given)}", field=field
        )
    return np.stack(found, 1) if found else np.zeros((len(frame), 0))


def _as_numbers(field: str, column: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(column, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"column {name}: expected numbers", field=field) from None


def _mark_label(field: str, column: Any, name: LabelName, names: Sequence[str]) -> Array:
    """1 where a column has this label, and 0 where it has another label that the model knows."""
    texts = np.asarray([_name(value) for value in np.asarray(column)], object)
    labels = [other for other in names if isinstance(other, LabelName)]
    known = [other.label for other in labels if other.column == name.column]
    strange = [text for text in texts if text not in known]
    if strange:
        raise DataError(
            f"column {name.column}: {strange[0]!r} is not among the known categories: "
            f"{_join(known)}",
            field=field,
        )
    return np.asarray(texts == name.label, np.float64)


def _name(value: Any) -> str:
    """A label as text: 3 for 3.0."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def _list(names: Sequence[str]) -> str:
    return f"the model expects the columns: {_join(names)}" if names else "the model expects none"


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
