"""Switches on, for the test run, the shapes written on the signatures of losses and networks.

Tensors in tests are small: more threads than one only wait for each other, and for those of the
other test processes.
"""

from __future__ import annotations

import inspect
import signal
from types import ModuleType
from typing import Any

import beartype
import jaxtyping
import torch

from grd_offline import losses
from grd_offline.agents import agent, ddpg, iql, sac, td3, td3bc
from grd_offline.agents import losses as agent_losses
from grd_offline.members import draws
from grd_offline.members import nn as networks


def check_shapes(module: ModuleType) -> None:
    """Have every function and method defined in `module` check its arguments and result."""
    # The names stand under TYPE_CHECKING there, so that using the package does not need jaxtyping.
    vars(module).update(Bool=jaxtyping.Bool, Float=jaxtyping.Float, Int=jaxtyping.Int)
    for owner in (module, *(v for v in vars(module).values() if _is_own(v, module, type))):
        for name, value in list(vars(owner).items()):
            if inspect.isfunction(value) and _is_own(value, module, object):
                setattr(owner, name, jaxtyping.jaxtyped(value, typechecker=beartype.beartype))


def _is_own(value: Any, module: ModuleType, kind: type) -> bool:
    # A NamedTuple's generated methods have no source to read annotations from.
    named_tuple = isinstance(value, type) and issubclass(value, tuple)
    own = getattr(value, "__module__", None) == module.__name__
    return isinstance(value, kind) and own and not named_tuple


# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
for checked in (networks, losses, draws, agent_losses, agent, sac, td3, ddpg, td3bc, iql):
    check_shapes(checked)
