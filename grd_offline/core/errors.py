"""The one error a user of this package has to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

File = str | PathLike[str] | None
"""The file that an error is about, if there is one."""


def printable(text: str) -> str:
    """Text from a file of unknown origin, without what would steer a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def clean_text(text: str) -> str:
    """Text that can be written to a file: lone surrogates, which JSON can name, cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


class DataError(ValueError):
    """Data that cannot be used: says where (file, episode, field), what was expected, what came.

    Parameters
    ----------
    reason
        What was expected, and what came.
    file, episode, field
        Where, as far as it is known.

    Examples
    --------
    >>> print(DataError("expected a number, got 'high'", file="trips.csv", field="speed"))
    trips.csv: speed: expected a number, got 'high'
    """

    def __init__(
        self,
        reason: str,
        *,
        file: File = None,
        episode: int | None = None,
        field: str | None = None,
    ) -> None:
        self.reason = reason
        self.file = None if file is None else str(file)
        self.episode = episode
        self.field = field
        super().__init__(reason)

    def __str__(self) -> str:
        episode = None if self.episode is None else f"episode {self.episode}"
        parts = (self.file, episode, self.field, self.reason)
        line = ": ".join(part for part in parts if part is not None)
        return printable(line)[:1000]

    def at(
        self, *, file: File = None, episode: int | None = None, field: str | None = None
    ) -> DataError:
        """Return the same error, with places filled in that were not known where it arose."""
        return type(self)(
            self.reason,
            file=self.file if self.file is not None else file,
            episode=self.episode if self.episode is not None else episode,
            field=self.field if self.field is not None else field,
        )


@contextmanager
def located(
    *, file: File = None, episode: int | None = None, field: str | None = None
) -> Iterator[None]:
    """Errors that are raised inside say where they arose, as far as they did not know it."""
    try:
        yield
    except DataError as error:
        raise error.at(file=file, episode=episode, field=field) from None


class StorageError(OSError):
    """A file could not be written: what was there before is untouched.

    Examples
    --------
    >>> print(StorageError("data.h5: No space left on device"))
    data.h5: No space left on device
    """
