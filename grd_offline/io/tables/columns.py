"""Roles of the columns of a table: as the user says, or as the names of the columns suggest."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from grd_offline.core.episodes import TRUTH, shorten
from grd_offline.core.errors import DataError

NUMBER, FLAG, TEXT, TIME, VECTOR = "number", "flag", "text", "time", "vector"
"""The kinds of columns that a table can have."""
IMAGE = "image"
"""A column that is there, and that nothing can be done with."""
_NUMBERED = r"(_?(id|index|nr|no|number))?"
_NAMES = {
    "episode": r"(episode|trajectory|traj|rollout|trip|run|trial|batch|game|session|conversation)"
    + _NUMBERED,
    "step": rf"(step|t|time|timestamp|datetime|frame|turn){_NUMBERED}",
    "rewards": r"rewards?",
    "returns": r"(episode_)?returns?|outcome|score|success|total_reward",
    "terminated": r"terminated|terminations?|terminals?|done|dones",
    "truncated": r"truncated|truncations?|timeouts?",
    "truth": r"true_rewards?",
    "actions": r"actions?([._\[ ].*|\d+)?",
}
"""Names that tell by themselves, in small letters."""
_ALIASES = {
    "reward": "rewards",
    "return": "returns",
    "outcome": "returns",
    "observation": "observations",
    "action": "actions",
    "category": "categories",
    "ignore": "ignored",
    "embedding": "embed",
}
_INDEX = re.compile(r"|index|unnamed: ?\d+|__index_level_\d+__")
"""Names of the row numbers that data frames write beside their columns."""
_NAME = re.compile(r'\s*"(?:[^"]|"")*"\s*(?=[,+]|$)|[^,+]+')
"""A name of a column in `--columns`; quotes are needed if it holds a comma or a plus."""
_PART = re.compile(rf"[^=,]*=(?:(?:{_NAME.pattern})?(?:\+|(?=,|$)))*")
_WORDS = {"decimal": ("point", "comma")}
"""Roles of the whole table, which name no column, and what they can be."""
_MANY = ("observations", "actions", "categories", "embed", "ignored")
_MARKS = ("categories", "embed")
"""Roles that say more about columns which are observations or actions."""

Embedder = Callable[[Any], Any]
"""Makes a vector of numbers of what stands in a cell."""
Given = str | Mapping[str, Sequence[str]]
"""Columns by their role, or the text of `--columns`."""
Outcomes = str | os.PathLike[str] | Mapping[Any, float]
"""Outcomes by episode, or the file that holds them."""
ENDINGS = (".csv", ".tsv", ".xlsx", ".parquet", ".pq", ".jsonl", ".ndjson")
"""Endings of files that hold tables."""
LEROBOT = Path("meta") / "info.json"
"""What a LeRobot folder is known by."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are used."""

    episode: str
    observations: tuple[str, ...]
    actions: tuple[str, ...] = ()
    step: str | None = None
    """Numbers or timestamps that give the order of an episode's rows."""
    rewards: str | None = None
    """The column with one number per step."""
    returns: str | None = None
    """A number per episode: in all of its rows, or in one of them."""
    terminated: str | None = None
    truncated: str | None = None
    truth: str | None = None
    """True rewards, which no fit sees."""
    categories: tuple[str, ...] = ()
    """Columns of numbers that stand for categories."""
    embed: tuple[str, ...] = ()
    """Columns with an embedding in each row: a list of numbers, which may stand there as text."""
    ignored: tuple[str, ...] = ()
    """Columns that are left out."""
    decimal: str | None = None
    """The decimal mark of a CSV file, point or comma, where numbers such as 1.234 leave a doubt."""

    def __str__(self) -> str:
        """The text that `--columns` takes for the same."""
        parts = []
        for role, value in vars(self).items():
            if value or role == "actions":
                names = [value] if isinstance(value, str) else value
                parts.append(f"{role}={'+'.join(map(quote_name, names))}")
        return ",".join(parts)

    def list_used(self) -> list[str]:
        """List all names that are used, each of them once."""
        single = (self.episode, self.step, self.rewards, self.returns, self.terminated,
                  self.truncated, self.truth)  # fmt: skip
        return list(dict.fromkeys([*filter(None, single), *self.observations, *self.actions]))


def quote_name(name: str) -> str:
    """A name as `--columns` takes it: in quotes if its letters would mean something else there."""
    is_plain = name == name.strip() and not set(name) & set(',+"')
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def parse_columns(text: str) -> dict[str, tuple[str, ...]]:
    """`episode=trip,observations=speed+"load, kg"` as names by role."""
    roles: dict[str, tuple[str, ...]] = {}
    known = [field.name for field in fields(Columns)]
    begin = 0
    while begin < len(text):
        match = _PART.match(text, begin)
        part = match[0] if match else text[begin:].partition(",")[0]
        begin += len(part) + 1
        if not part:
            continue
        given, equals, names = part.partition("=")
        role = _ALIASES.get(given.strip(), given.strip())
        if not equals or role not in known:
            raise DataError(
                f"--columns: expected ROLE=NAME or ROLE=NAME+NAME with a role among "
                f"{', '.join(known)}, got {part!r}; put a name with a comma or a plus in quotes: "
                'ROLE="NAME"'
            )
        roles[role] = tuple(split_names(names))
        if roles[role] and not set(roles[role]) <= set(_WORDS.get(role, roles[role])):
            known_words = " or ".join(_WORDS[role])
            raise DataError(f"--columns: {role}: expected {known_words}, got {names!r}")
        if role not in _MANY and len(roles[role]) > 1:
            raise DataError(f"--columns: {role}: expected one column, got {names!r}")
    return roles


def parse_given(
    columns: str | Mapping[str, str | Sequence[str]] | None,
) -> dict[str, tuple[str, ...]]:
    """Columns by their role, from the text of `--columns` or a mapping."""
    if columns is None or isinstance(columns, str):
        return parse_columns(columns or "")
    if not isinstance(columns, Mapping):
        raise DataError(
            'columns: expected a text such as "episode=trip,step=minute", or a mapping from roles '
            f"to names, got {type(columns).__name__}"
        )
    return {
        _ALIASES.get(role, role): (names,) if isinstance(names, str) else tuple(names)
        for role, names in columns.items()
    }


def split_names(text: str) -> list[str]:
    """Names that commas or pluses separate, such as `image,"load, kg"`."""
    names = [name.strip() for name in _NAME.findall(text)]
    quoted = [len(name) > 1 and name[0] == name[-1] == '"' for name in names]
    plain = [n[1:-1].replace('""', '"') if q else n for n, q in zip(names, quoted, strict=True)]
    return list(filter(None, plain))


def choose_columns(
    kinds: Mapping[str, str],
    given: Mapping[str, Sequence[str]],
    *,
    has_returns: bool = False,
    needs_outcome: bool = True,
) -> Columns:
    """Choose the role of each column. `has_returns` means that the outcomes come from elsewhere."""
    words = {role: names for role, names in given.items() if role in _WORDS}
    found: dict[str, Any] = {
        role: expand_names(role, names, kinds) for role, names in given.items() if role not in words
    }

    def list_free() -> list[str]:
        taken = {name for role, names in found.items() if role not in _MARKS for name in names}
        return [name for name in kinds if name not in taken]

    for role in _NAMES:
        is_told = role in ("rewards", "returns") and _has_outcome(found, has_returns)
        matches = find_names(role, [name for name in list_free() if _suits(role, kinds[name])])
        if matches and role not in found and not is_told:
            found[role] = tuple(matches) if role in _MANY else (matches[0],)
    if not found.get("step"):
        times = [name for name in list_free() if kinds[name] == TIME]
        found["step"] = tuple(times) if len(times) == 1 else ()
    if needs_outcome and not _has_outcome(found, has_returns):
        # Outcomes that are texts by mistake are refused with their row where they are read.
        texts = [name for name in list_free() if kinds[name] == TEXT]
        found["returns"] = tuple(find_names("returns", texts)[:1])
    _check(found, kinds, has_returns, needs_outcome)
    if "observations" not in found:
        free = [name for name in list_free() if kinds[name] not in (TIME, IMAGE)]
        found["observations"] = tuple(name for name in free if not _is_left_out(name))
    free = list_free()
    found["observations"] += tuple(name for name in found.get("embed", ()) if name in free)
    images = [name for name in kinds if kinds[name] == IMAGE]
    if not found["observations"] and images:
        raise refuse_image(images[0])
    if not found["observations"]:
        raise DataError(f"no column is left for observations; {_list(kinds)}")
    chosen: dict[str, Any] = {role: tuple(found.get(role, ())) for role in _MANY}
    for role, names in [*found.items(), *words.items()]:
        if role not in _MANY and names:
            chosen[role] = names[0]
    return Columns(**chosen)


def refuse_image(name: str, shape: tuple[int, ...] | None = None) -> DataError:
    """The one line that says what to do about images."""
    shown = "" if shape is None else f" of shape {shape}"
    return DataError(
        f"images{shown} are not supported, only vectors of numbers: put embeddings of them in "
        "their place (--embed NAME, or embed= in Python)",
        field=f"column {name}",
    )


def find_names(role: str, names: Iterable[str]) -> list[str]:
    """The names that tell this role by themselves."""
    return [name for name in names if re.fullmatch(_NAMES[role], _plain(name))]


def _suits(role: str, kind: str) -> bool:
    """Whether a column of this kind can be what its name says."""
    if role == "episode":
        return kind not in (VECTOR, IMAGE)
    if role == "step":
        return kind in (NUMBER, TIME)
    return kind not in (TIME, IMAGE) if role == "actions" else kind in (NUMBER, FLAG)


def _has_outcome(found: Mapping[str, Any], elsewhere: bool) -> bool:
    return elsewhere or bool(found.get("rewards") or found.get("returns"))


def _is_left_out(name: str) -> bool:
    """Whether a column is a row number, or would give the outcome away to a fit."""
    return bool(_INDEX.fullmatch(name.lower())) or any(
        find_names(role, [name]) for role in ("rewards", "returns", "truth")
    )


def _check(
    found: Mapping[str, Any], kinds: Mapping[str, str], has_returns: bool, needs_outcome: bool
) -> None:
    if not found.get("episode"):
        raise DataError(
            "no column tells the episodes apart: name it with --columns episode=NAME "
            f"(episode=NAME in Python); {_list(kinds)}"
        )
    if needs_outcome and not _has_outcome(found, has_returns):
        raise DataError(
            "no column holds rewards or outcomes: name it with --columns reward=NAME or "
            "return=NAME, or give --returns FILE (rewards= or returns= in Python); "
            f"{_list(kinds)}"
        )
    if has_returns and (found.get("rewards") or found.get("returns")):
        name = (found.get("rewards") or found["returns"])[0]
        raise DataError(
            f"outcomes are given twice: as column {name} of the table, and with --returns "
            "(returns= in Python); leave one of them out"
        )
    seen: dict[str, str] = {}
    for role, names in found.items():
        for name in names if role not in _MARKS else ():
            if name in seen:
                raise DataError(f"column {name} is given twice: as {seen[name]} and as {role}")
            seen[name] = role


def expand_names(role: str, names: Iterable[str], kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Names with their wildcards filled in; a name that is not there is refused."""
    found: list[str] = []
    for name in names:
        matches = [name] if name in kinds else [one for one in kinds if fnmatchcase(one, name)]
        if not matches:
            same = [one for one in kinds if one.lower() == name.lower()]
            near = same or difflib.get_close_matches(name, kinds, n=1)
            hint = f"did you mean {near[0]}?" if near else _list(kinds)
            raise DataError(f"{role}: there is no column {name!r}; {hint}")
        found += matches
    return tuple(dict.fromkeys(found))


def _plain(name: str) -> str:
    """A name in small letters; LeRobot calls what follows a frame next.reward and the like."""
    return re.sub(r"[\s\-]+", "_", name.strip()).lower().removeprefix("next.")


def _list(kinds: Mapping[str, str]) -> str:
    return f"columns: {shorten(list(kinds))}"


def name_truth(path: Any, columns: Given | None, truth: str) -> tuple[Given | None, str]:
    """Let `--truth` name a column of a table: the columns with this role, and the field to read.

    Other data, and columns that have a role for the truth already, stay as they are.
    """
    is_field = truth in ("rewards", TRUTH)
    if is_field or not isinstance(path, str | os.PathLike) or not is_table(Path(path)):
        return columns, truth
    given = parse_given(columns)
    return {"truth": (truth,), **given}, TRUTH


class Expected(NamedTuple):
    """Facts that a model knows about its tables."""

    observation_names: Sequence[str]
    action_names: Sequence[str]
    columns: str | None = None
    """The columns of the table that it was fitted to."""
    needs_outcome: bool = False
    """Whether the outcomes of episodes are needed, too."""
    needed_roles: Sequence[str] = ()
    """Roles whose columns the rewards depend on, where the table that it was fitted to had them."""


def is_table(path: Path) -> bool:
    """Whether a file or folder holds a table."""
    is_lerobot = (path / LEROBOT).is_file() and (path / "data").is_dir()
    return has_table_ending(path) or is_lerobot


def has_table_ending(path: Path) -> bool:
    """Whether a file has the ending of a table."""
    return path.suffix.lower() in ENDINGS


def list_names(frame: Any) -> list[Any]:
    """The names of the columns of a table."""
    if isinstance(frame, Mapping):
        return list(frame)
    names = getattr(frame, "column_names", None)
    return list(frame.columns if names is None else names)


def find_library(frame: Any) -> str | None:
    """The library that results for this frame are tables of, None for plain arrays."""
    top = type(frame).__module__.partition(".")[0]
    return top if top in ("pandas", "polars", "pyarrow") else None
