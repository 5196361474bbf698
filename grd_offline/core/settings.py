"""Settings that describe themselves: each field knows its meaning, its bounds and its errors.

    @dataclass(frozen=True)
    class TrainSettings(Settings):
        seeds: int = setting(5, "Number of seeds.", at_least=1, at_most=1000)

The commands make their options from the same fields. This module needs nothing but Python, so
that a command can print its help quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from grd_offline.core.errors import DataError

LARGEST_COUNT = 2**40
"""Upper bound of settings that count something without a bound of their own."""
RATE: dict[str, Any] = {"above": 0, "at_most": 1}
"""Bounds of learning rates and discounts."""
SHARE: dict[str, Any] = {"at_least": 0, "at_most": 1}
COUNT: dict[str, Any] = {"at_least": 1, "at_most": LARGEST_COUNT}
DEFAULT_STEP_LIMIT = 1000
"""The limit of environments that have none: that of Gymnasium's MuJoCo tasks."""
LARGEST_STEP_LIMIT = 1_000_000
"""A higher limit is refused, because the arrays of a whole episode are held in memory."""
Names = tuple[str, ...] | Callable[[], tuple[str, ...]]
"""Names, or a function that lists those of a registry."""


@dataclass(frozen=True)
class Setting:
    """Facts about one field of the settings."""

    text: str = ""
    """The description, in whole sentences."""
    allowed: Names = ()
    """The values that are allowed; empty where any value is."""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    option: str | None = None
    """The command's option, where it has another name than the field."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are allowed now."""
        return self.allowed() if callable(self.allowed) else self.allowed

    def describe_range(self) -> str:
        """The bounds in words; empty where there are none."""
        bounds = {
            "at least {:g}": self.at_least,
            "more than {:g}": self.above,
            "at most {:,}": None if (self.at_most or 0) >= LARGEST_COUNT else self.at_most,
            "less than {:g}": self.below,
        }
        given = {text: bound for text, bound in bounds.items() if bound is not None}
        return " and ".join(text.format(bound) for text, bound in given.items())

    def check(self, name: str, value: Any, kind: Any) -> None:
        """Raise a `DataError` where `value` is not of that kind, or outside of the bounds."""
        if get_origin(kind) is tuple:
            self._check_tuple(name, value, get_args(kind)[0])
        elif self.names:
            if value not in self.names:
                known = ", ".join(self.names)
                raise DataError(f"expected one of {known}, got {value!r:.70}", field=name)
        elif kind is int:
            self._check_whole(name, value)
        elif kind is float:
            self._check_number(name, value)
        elif not isinstance(value, get_origin(kind) or kind):
            raise DataError(f"got {value!r:.40}, which has the wrong type", field=name)

    def _check_tuple(self, name: str, values: Any, kind: Any) -> None:
        if not isinstance(values, tuple):
            raise DataError(f"expected a tuple, got {values!r:.40}", field=name)
        if kind is str and not values:
            raise DataError("expected at least one", field=name)
        if kind is str and len(set(values)) < len(values):
            raise DataError("got the same value twice", field=name)
        for value in values:
            self.check(name, value, kind)

    def _check_whole(self, name: str, value: Any) -> None:
        lowest = 0 if self.at_least is None else self.at_least
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_whole or value < lowest:
            expected = f"expected a whole number of at least {lowest}"
            raise DataError(f"{expected}, got {value!r:.40}", field=name)
        if self.at_most is not None and value > self.at_most:
            raise DataError(f"expected at most {self.at_most:,}, got {value:,}", field=name)

    def _check_number(self, name: str, value: Any) -> None:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number:
            raise DataError(f"expected a number, got {value!r:.40}", field=name)
        fits = value == value  # nan is not
        fits = fits and (self.at_least is None or value >= self.at_least)
        fits = fits and (self.above is None or value > self.above)
        fits = fits and (self.below is None or value < self.below)
        if not fits or (self.at_most is not None and value > self.at_most):
            raise DataError(f"expected {self.describe_range()}, got {value!r}", field=name)


def setting(
    default: Any, text: str = "", *, names: Names = (), factory: Any = MISSING, **bounds: Any
) -> Any:
    """Make a field of a settings class, with the names or `bounds` of a `Setting`.

    A field with the default `MISSING` must be given. A `factory` makes the default anew each time.
    """
    known = {"setting": Setting(text, names, **bounds)}
    fixed = default if factory is MISSING else MISSING
    return field(default=fixed, default_factory=factory, metadata=known)


@dataclass(frozen=True)
class Described:
    """A field of settings with its type and its default."""

    setting: Setting
    kind: Any
    """The type of the field, without `None`."""
    is_optional: bool
    """Whether `None` is a value."""
    default: Any
    """`MISSING` where a value is required."""


def describe_settings(settings: type[Any]) -> dict[str, Described]:
    """Describe the fields of a settings class, by name."""
    hints, found = get_type_hints(settings), {}
    for one in fields(settings):
        kind, arguments = hints[one.name], get_args(hints[one.name])
        if get_origin(kind) is UnionType:  # of several types settings check for themselves
            kinds = [inner for inner in arguments if inner is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else object
        default = one.default if one.default_factory is MISSING else one.default_factory()
        facts = one.metadata.get("setting", Setting())
        found[one.name] = Described(facts, kind, NoneType in arguments, default)
    return found


@dataclass(frozen=True)
class Settings:
    """The base class of all settings. Values of the wrong type, or outside of their bounds, are
    refused."""

    def __post_init__(self) -> None:
        for name, described in describe_settings(type(self)).items():
            value = getattr(self, name)
            if value is not None or not described.is_optional:
                described.setting.check(name, value, described.kind)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a file."""
        plain = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}
