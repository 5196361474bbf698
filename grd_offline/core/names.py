"""Names of dimensions, and of those that stand for one label of a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class LabelName(str):
    """The name of a dimension that is 1 where a column has one label: weather=rain.

    It is a text for everybody who only shows it.
    """

    column: str
    label: str

    def __new__(cls, column: str, label: object) -> LabelName:
        """Make the name from the column and its label."""
        name = super().__new__(cls, f"{column}={label}")
        name.column, name.label = column, str(label)
        return name

    def __reduce__(self) -> tuple[type[LabelName], tuple[str, str]]:
        return LabelName, (self.column, self.label)


def read_names(
    names: Iterable[str], columns: Sequence[str | None] | None = None
) -> tuple[str, ...]:
    """Names from a file or a user; those of labels become `LabelName`.

    `columns` has the column of each label, and None for all other names; see `list_label_columns`.
    Without it, names are labels if they are spelled column=label.
    """
    texts = tuple(names)
    if any(isinstance(text, LabelName) for text in texts):
        return texts
    if columns is None:
        columns = [text.partition("=")[0] if "=" in text[1:-1] else None for text in texts]
    return tuple(
        LabelName(column, text[len(column) + 1 :])
        if column is not None and text.startswith(f"{column}=")
        else text
        for text, column in zip(texts, columns, strict=True)
    )


def list_label_columns(names: Sequence[str]) -> list[str | None] | None:
    """The column of each name that is a label, for a file. None where no name could be one."""
    if not any("=" in name for name in names):
        return None
    return [name.column if isinstance(name, LabelName) else None for name in names]
