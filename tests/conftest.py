"""Switches on, for the test run, the shapes that are written on the signatures of the package.

A call is checked if none with arguments of the same shapes and types came before it.

Tensors in tests are small: more threads than one only wait for each other, and for those of the
other test processes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import signal
import sys
from types import ModuleType
from typing import Any

import beartype
import jaxtyping
import numpy as np
import torch
from places import ROOT

from grd_offline.learning.agents import shapes

# A whole number will do where a float is asked for, as everywhere in Python.
CHECKER = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))


def check_shapes(module: ModuleType) -> dict[Any, Any]:
    """Have every function and method defined in `module` check its arguments and result.

    What it gives is the functions before and after.
    """
    replaced = {}
    # The names stand under TYPE_CHECKING there, so that using the package does not need jaxtyping.
    vars(module).update(Bool=jaxtyping.Bool, Float=jaxtyping.Float, Int=jaxtyping.Int)
    vars(module).update({name: value for name, value in vars(shapes).items() if name[0] != "_"})
    for owner in (module, *(v for v in vars(module).values() if _is_own(v, module, type))):
        for name, value in list(vars(owner).items()):
            if inspect.isfunction(value) and _is_own(value, module, object):
                checked = check_once(value, jaxtyping.jaxtyped(value, typechecker=CHECKER))
                setattr(owner, name, checked)
                replaced[value] = checked
    return replaced


def check_once(plain: Any, checked: Any) -> Any:
    """The plain function, but for the first call with arguments of each kind, which is checked."""
    seen = set()

    @functools.wraps(plain)
    def call(*arguments: Any, **named: Any) -> Any:
        kind = (*map(_describe, arguments), *named, *map(_describe, named.values()))
        if kind in seen:
            return plain(*arguments, **named)
        result = checked(*arguments, **named)
        seen.add(kind)
        return result

    return call


def _describe(value: Any) -> Any:
    """What a check can see of an argument; of a list it looks at one entry."""
    kind = type(value)
    if kind is torch.Tensor:
        return value.shape, value.dtype
    if kind is list or kind is tuple:
        return kind, len(value), _describe(value[0]) if value else None
    if isinstance(value, tuple):  # a NamedTuple of tensors
        return kind, *map(_describe, value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return kind, value.shape, value.dtype
    return value if kind in (int, bool, str) else kind


def _is_own(value: Any, module: ModuleType, kind: type) -> bool:
    # A NamedTuple's generated methods have no source to read annotations from.
    named_tuple = isinstance(value, type) and issubclass(value, tuple)
    own = getattr(value, "__module__", None) == module.__name__
    return isinstance(value, kind) and own and not named_tuple


def find_modules() -> list[ModuleType]:
    """Every module of the package that writes shapes on its signatures."""
    files = sorted((ROOT / "grd_offline").rglob("*.py"))
    names = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if re.search("    from (jaxtyping|grd_offline.*shapes) import", file.read_text())
    ]
    return [importlib.import_module(name) for name in names]


def replace_imported(replaced: dict[Any, Any]) -> None:
    """Put the functions that check in the place of those that other modules have imported."""
    for name in [name for name in sys.modules if name.startswith("grd_offline")]:
        for key, value in list(vars(sys.modules[name]).items()):
            if inspect.isfunction(value) and value in replaced:
                setattr(sys.modules[name], key, replaced[value])


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Long tests begin first, so that no core waits for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
for _module in find_modules():
    replace_imported(check_shapes(_module))
