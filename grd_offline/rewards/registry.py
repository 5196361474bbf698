"""Every kind of reward function by its name.

A kind is imported when it is first asked for, so that a model of effects needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TypeVar

from grd_offline.rewards.contract import RewardFunction

Kind = TypeVar("Kind", bound=type[RewardFunction])

_KINDS: dict[str, tuple[str, str] | type[RewardFunction]] = {
    "effects": ("grd_offline.rewards.effects", "EffectModel"),
    "network": ("grd_offline.rewards.network", "NetworkFunction"),
    "quadratic": ("grd_offline.rewards.quadratic", "QuadraticFunction"),
    "constant": ("grd_offline.rewards.constant", "ConstantFunction"),
}


def register_kind(kind: Kind) -> Kind:
    """Add a kind of another package, so that its models can be loaded; usable as a decorator."""
    if _KINDS.setdefault(kind.kind, kind) is not kind:
        raise ValueError(f"kind: there is another reward function called {kind.kind!r}")
    return kind


def find_kind(name: object) -> type[RewardFunction]:
    """The class of the kind with this name."""
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"kind: expected {', '.join(_KINDS)}, got {name!r:.40}")
    found = _KINDS[name]
    if isinstance(found, tuple):
        module, attribute = found
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, type)
        _KINDS[name] = found
    return found
