"""Number of threads that numpy and scipy use.

The matrices here are small. Threads that share one save about 10 % of a decomposition on an idle
computer, and wait for each other on a busy one (`benchmarks/busy.py`). So both work in one
thread, whatever the environment variables say. Networks are torch's matter: its threads are left
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_numpys(library: str) -> bool:
    """Whether a matrix library at that path is not the one that torch brings along."""
    return Path(library).parts[-3:-1] != ("torch", "lib")


@contextmanager
def one_numpy_thread() -> Iterator[None]:
    """Let numpy's and scipy's matrix libraries use one thread, until the end; also a decorator."""
    # Both load a matrix library, whose threads are meant here.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController()
    paths = [
        library.filepath
        for library in found.lib_controllers
        if library.user_api == "blas" and is_numpys(library.filepath)
    ]
    with found.select(filepath=paths).limit(limits=1):
        yield
