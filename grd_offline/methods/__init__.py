"""The methods of return decomposition, behind one contract.

`make_decomposer(method, fit, ...)` gives an estimator: `fit`, `predict`, `relabel`.
"""

from __future__ import annotations

from typing import Any

from grd_offline.methods.contract import Decomposer

METHODS = ("grd", "rrd", "rrd-unbiased", "ircr", "uniform")
FITS = ("auto", "closed-form", "masked-net", "pair-net", "paper")

__all__ = ["FITS", "METHODS", "Decomposer", "make_decomposer"]


def make_decomposer(
    method: str,
    fit: str = "closed-form",
    *,
    discount: float = 1.0,
    next_state: bool = False,
    device: str = "cpu",
    **settings: Any,
) -> Decomposer:
    """An estimator that is not fitted yet; further `settings` go to the method's own dataclass."""
    if method == "grd" and fit == "closed-form":
        from grd_offline.methods.closed_form.estimator import ClosedForm
        from grd_offline.methods.closed_form.fit import ClosedFormSettings

        return ClosedForm(ClosedFormSettings(discount=discount, next_state=next_state, **settings))
    if next_state:
        raise ValueError("next_state: only the closed form takes the next state as an input")
    if method == "grd" and fit == "masked-net":
        from grd_offline.methods.masked_net import MaskedNet, MaskedNetSettings

        return MaskedNet(MaskedNetSettings(discount=discount, device=device, **settings))
    if method == "grd" and fit == "pair-net":
        from grd_offline.methods.pair_net import PairNet, PairNetSettings

        return PairNet(PairNetSettings(discount=discount, device=device, **settings))
    if method == "grd" and fit == "paper":
        from grd_offline.methods.paper import Paper, PaperSettings

        return Paper(PaperSettings(discount=discount, device=device, **settings))
    if method in ("rrd", "rrd-unbiased"):
        from grd_offline.methods.rrd import Rrd, RrdSettings

        unbiased = method == "rrd-unbiased"
        return Rrd(RrdSettings(discount=discount, device=device, unbiased=unbiased, **settings))
    if method in ("ircr", "uniform"):
        from grd_offline.methods.baselines import BaselineSettings, Ircr, Uniform

        chosen = Ircr if method == "ircr" else Uniform
        return chosen(BaselineSettings(discount=discount, **settings))
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    raise ValueError(f"fit: expected one of {', '.join(FITS)}, got {fit!r}")
