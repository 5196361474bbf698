"""Make the package's environments known to Gymnasium without importing Gymnasium.

`import grd_offline` must stay light, and Gymnasium has no plugin entry points, so registration
waits: it happens at once if Gymnasium is loaded already, and otherwise right after Gymnasium's
registry is first imported. Either way `gymnasium.make("grd/Factored-v0")` works.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_REGISTRY_MODULE = "gymnasium.envs.registration"

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "grd/Factored-v0": {"entry_point": "grd_offline.worlds.environments:FactoredEnv"},
    "grd/PaddedAnt-v0": {
        "entry_point": "grd_offline.worlds.environments:PaddedAntEnv",
        "max_episode_steps": 1000,
    },
}
"""Environment ids and what Gymnasium is told about each."""


def register_environments() -> None:
    """Register now if Gymnasium is loaded, else as soon as it is. Calling again does nothing."""
    module = sys.modules.get(_REGISTRY_MODULE)
    if module is not None:
        _register(module)
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())


def _register(module: ModuleType) -> None:
    for name, options in ENVIRONMENTS.items():
        if name not in module.registry:
            module.register(id=name, **options)


class _GymnasiumFinder:
    """Finds one module the ordinary way, and registers once that module has run.

    A base class of `importlib.abc` would take a third of the time of `import grd_offline`.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _REGISTRY_MODULE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            _register(module)

        # On this one loader object, so that the module's spec and loader stay what they were.
        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
