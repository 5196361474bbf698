"""Commands that train small networks: the same steps and files in a tenth of the time.

python tests/helpers/small_networks.py train-online --env ...
"""

import inspect
from contextlib import contextmanager

SMALL = {"batch": 16, "hidden": (16, 16)}


@contextmanager
def small_networks():
    """Change, in this process, the default sizes, which no option of a command changes."""
    from grd_offline.learning.settings import OfflineSettings, OnlineSettings

    functions = (OfflineSettings.__init__, OnlineSettings.__init__)
    before = [function.__defaults__ for function in functions]
    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        given = {one.name: one.default for one in parameters if one.default is not one.empty}
        assert set(SMALL) <= set(given)
        function.__defaults__ = tuple((given | SMALL).values())
    try:
        yield
    finally:
        for function, defaults in zip(functions, before, strict=True):
            function.__defaults__ = defaults


if __name__ == "__main__":
    from grd_offline.cli import main

    with small_networks():
        main()
