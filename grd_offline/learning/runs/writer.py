"""Files of a run, written beside the training: a disk that is slow does not keep it waiting."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Writer:
    """Calls functions in a thread of its own, one after the other.

    What one of them raises is raised by the next `submit` or `wait`, which also gives up those that
    have not begun by then.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grd-offline-writer")
        self._under_way: deque[Future[None]] = deque()

    def submit(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function when its turn comes."""
        while self._under_way and self._under_way[0].done():
            self._finish_first()
        self._under_way.append(self._pool.submit(function, *arguments))

    def wait(self) -> None:
        """Wait until all functions have returned."""
        while self._under_way:
            self._finish_first()

    def _finish_first(self) -> None:
        try:
            self._under_way.popleft().result()
        except BaseException:
            for later in self._under_way:
                later.cancel()
            self._under_way.clear()
            raise

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()
