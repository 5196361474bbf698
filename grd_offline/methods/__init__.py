"""The methods of return decomposition, behind one contract.

`make_decomposer(method, fit, ...)` gives an estimator: `fit`, `predict`, `relabel`, `score`.
"""

from __future__ import annotations

from grd_offline.methods.registry import make_decomposer

__all__ = ["make_decomposer"]
