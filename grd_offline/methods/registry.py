"""All methods of return decomposition, with facts about each.

The command line, `judge`, `train-online`, the documentation and the tests take their lists from
here. A method of another package joins by an entry point of the group `grd_offline.methods`, whose
name is that of the method and whose value is a `Method`. This module imports no method: a class is
imported when it is asked for.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from grd_offline.core.errors import DataError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from grd_offline.methods.contract import Decomposer

GROUP = "grd_offline.methods"
"""Entry points of methods of other packages."""
AUTO = "auto"
"""The fit that is chosen by returns of episodes that are held out; see `choose`."""
NEXT_STATE = "-next-state"
"""Ending that `judge` adds to the name of a method that gets the next state as a further input."""


@dataclass(frozen=True)
class Method:
    """A method of return decomposition, with the facts that are known before it is imported.

    Examples
    --------
    >>> Method("mine", "The last step earns the whole return.", "my_module:Mine").name
    'mine'
    """

    name: str
    """Name of the method for `--method`."""
    about: str
    """One line that describes it."""
    estimator: str = ""
    """Class of the method as "module:name", a `Decomposer`. It is empty if the method only runs
    online."""
    fit: str | None = None
    """Name of the fit for `--fit`, if the method has several."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the class that make this method."""
    takes_next_state: bool = False
    """Whether the reward can depend on the next state, if the parameter `next_state` is set."""
    has_masks: bool = False
    """Whether it finds a causal graph."""
    sees_whole_episodes: bool = False
    """Whether the reward of a step depends on its whole episode."""
    online: bool = False
    """Whether `train-online` offers the method."""

    @property
    def offline(self) -> bool:
        """Whether `decompose` and `judge` have it."""
        return bool(self.estimator)

    def load(self) -> type[Decomposer]:
        """Import the class of the method."""
        found: type[Decomposer] = pkgutil.resolve_name(self.estimator)
        return found

    def make(self, **parameters: Any) -> Decomposer:
        """Make an estimator that is not fitted yet.

        `device`, `next_state`, `state_at` and `outcome` are left out if the method has no such
        parameter.
        """
        if parameters.get("next_state") and not self.takes_next_state:
            called = self.fit or self.name
            raise ValueError(f"next_state: {called} does not take the next state as an input")
        known = {parameter.name for parameter in fields(self.load().settings_class)}
        given = {n: v for n, v in parameters.items() if n in known or n not in _COMMON}
        return self.load()(**{**self.parameters, **given})


_COMMON = ("device", "next_state", "state_at", "outcome")
_HERE = "grd_offline.methods"
# fmt: off
BUILT_IN = (
    Method("grd", "The reward is a sum of smooth effects of one to four inputs.",
           f"{_HERE}.closed_form.estimator:ClosedForm", fit="closed-form",
           takes_next_state=True, has_masks=True, online=True),
    Method("grd", "The reward is linear in every input.", f"{_HERE}.linear:Linear", fit="linear"),
    Method("grd", "Networks on the inputs that the closed form finds.",
           f"{_HERE}.pair_net:MaskedNet", fit="masked-net", has_masks=True),
    Method("grd", "Networks of pairs of inputs that find their own masks, in stages.",
           f"{_HERE}.pair_net:PairNet", fit="pair-net", has_masks=True),
    Method("grd", "The reward is a quadratic of state and action, solved for exactly.",
           fit="quadratic", has_masks=True, online=True),
    Method("grd", "The paper's model with scaled inputs and a price for each edge.",
           fit="joint-net", has_masks=True, online=True),
    Method("grd", "The paper's model as it is printed.",
           f"{_HERE}.paper:Paper", fit="paper", has_masks=True, online=True),
    Method("grd-no-compact", "The same as grd, but the policy sees every dimension of the state.",
           has_masks=True, online=True),
    Method("rrd", "A network, trained on random steps of each episode.",
           f"{_HERE}.rrd:Rrd", online=True),
    Method("rrd-unbiased", "The same as rrd, without the variance that comes from drawing steps.",
           f"{_HERE}.rrd:Rrd", parameters={"unbiased": True}, online=True),
    Method("ircr", "Each step gets the return of its episode, scaled to lie between 0 and 1.",
           f"{_HERE}.baselines:Ircr", sees_whole_episodes=True, online=True),
    Method("uniform", "Each step gets an equal share of the return of its episode.",
           f"{_HERE}.baselines:Uniform", sees_whole_episodes=True),
    Method("none", "The delayed reward as it is.", online=True),
    Method("oracle", "The true reward.", online=True),
)
# fmt: on


@cache
def _find_others() -> dict[str, EntryPoint]:
    """Methods of other packages by name. Names that are taken already are left out."""
    from importlib.metadata import entry_points  # slow for a help text

    taken = {method.name for method in BUILT_IN}
    return {one.name: one for one in entry_points(group=GROUP) if one.name not in taken}


def _load_other(point: EntryPoint) -> Method:
    package = point.dist.name if point.dist is not None else point.value
    try:
        method = point.load()
    except Exception as error:  # whatever the module of another package raises
        raise DataError(f"cannot be loaded from {package}: {error}", field=point.name) from error
    if not isinstance(method, Method) or method.name != point.name or not method.offline:
        raise DataError(
            f"{package}: expected a Method of this name, with an estimator", field=point.name
        )
    return method


def list_methods() -> tuple[Method, ...]:
    """List all methods and fits. Those of other packages come last."""
    return (*BUILT_IN, *(_load_other(point) for point in _find_others().values()))


def list_names(*, online: bool = False) -> tuple[str, ...]:
    """List the values of `--method`."""
    if online:
        return tuple(dict.fromkeys(method.name for method in BUILT_IN if method.online))
    names = dict.fromkeys(method.name for method in BUILT_IN if method.offline)
    return (*names, *_find_others())


def list_fits(*, online: bool = False) -> tuple[str, ...]:
    """List the values of `--fit`."""
    fits = [method.fit for method in BUILT_IN if (method.online if online else method.offline)]
    found = tuple(fit for fit in fits if fit is not None)
    return found if online else (AUTO, *found)


def list_judged() -> tuple[str, ...]:
    """List the values of `judge --methods`: every method, and again with the next state."""
    twice = dict.fromkeys(method.name for method in list_methods() if method.takes_next_state)
    return (*list_names(), *(f"{name}{NEXT_STATE}" for name in twice))


def find_method(name: str, fit: str | None = None) -> Method:
    """Find the method of that name that `decompose` has. `auto` begins with the closed form."""
    if name in _find_others():
        return _load_other(_find_others()[name])
    found = [method for method in BUILT_IN if method.name == name and method.offline]
    if not found:
        raise ValueError(f"method: expected one of {', '.join(list_names())}, got {name!r}")
    if fit in (None, AUTO) or found[0].fit is None:
        return found[0]
    if chosen := next((method for method in found if method.fit == fit), None):
        return chosen
    raise ValueError(f"fit: expected one of {', '.join(list_fits())}, got {fit!r}")


def find_by_estimator(decomposer: Decomposer) -> Method | None:
    """Find the method that an estimator is of; None for a class that is not registered."""
    kind, parameters = type(decomposer), decomposer.get_params()
    name = f"{kind.__module__}:{kind.__qualname__}"
    found = [
        method
        for method in list_methods()
        if method.estimator == name and method.parameters.items() <= parameters.items()
    ]
    return max(found, key=lambda method: len(method.parameters), default=None)


def make_decomposer(method: str, fit: str | None = None, **parameters: Any) -> Decomposer:
    """Make an estimator of that method that is not fitted yet, for example:

    >>> make_decomposer("grd", "paper", updates=100)
    Paper(updates=100)
    """
    return find_method(method, fit).make(**parameters)
