"""Per-step rewards, causal masks and a compact state from nothing but episodic returns.

The public names are those of `__init__.pyi`. They are imported when they are first used, so that
`import grd_offline` is quick.
"""

from grd_offline.core.packages import import_when_used
from grd_offline.worlds.registration import register_environments

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = import_when_used(__name__, __file__)

register_environments()
