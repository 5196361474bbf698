"""Types of arrays. Every module takes them from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]
Values = TypeVar("Values", AnyArray, "Tensor")
"""Numbers that are all arrays of numpy, or all tensors of torch."""
