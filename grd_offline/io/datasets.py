"""Datasets in and out: every common HDF5 layout, recognised from the file alone, and tables.

A dataset may also lie in several files of a folder, which are read as one dataset:

part-00000.h5, part-00001.h5, ...   the data, each file a dataset of its own
parts.json                          how many parts there are to be, and the settings

The parts follow each other in the order of their names. Only a few of them are open at a time, so
that there may be thousands. Datasets of Minari's library (`minari:ID`) are listed and downloaded by
that library, which is imported only when it is needed and never opens one.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import (
    EPISODE,
    ROW,
    STEP,
    Episode,
    EpisodeSet,
    KeptEpisodes,
    Origin,
    as_flags,
    check_finite,
    check_rewards,
)
from grd_offline.core.errors import DataError, located
from grd_offline.core.typing import AnyArray, BoolArray
from grd_offline.core.words import count
from grd_offline.io.files.plain import (
    MISFITS,
    convert,
    folder_errors,
    read_record,
    refuse_outside,
    write_json,
)
from grd_offline.io.files.results import find_relabelled
from grd_offline.io.formats.guard import Budget, SafeGroup, Source, open_handle, probe_file
from grd_offline.io.formats.layouts import (
    Layout,
    find_data_file,
    find_writer,
    list_writable_layouts,
    read_file,
    register_layout,
)
from grd_offline.io.formats.record import (
    Header,
    LazyLeaves,
    Leaf,
    NewFile,
    OpenFile,
    Record,
    Recording,
    as_recording,
    column_names,
    flatten,
)
from grd_offline.io.tables.columns import Expected, Given, Outcomes, has_table_ending, is_table

__all__ = [
    "Data", "Header", "Layout", "Leaf", "NewFile", "OpenFile", "Record", "Recording", "as_episode",
    "as_episodes", "as_recording", "check_ending", "find_delay", "infer_delay", "is_same_place",
    "list_minari_datasets", "list_writable_layouts", "locate", "name_data", "open_recording",
    "read", "read_truth", "register_layout", "write_dataset",
]  # fmt: skip

PREFIX = "minari:"
_MOST_LISTED = 5
MOST_COLUMNS = 100_000
Data = str | os.PathLike[str] | EpisodeSet
"""The path of a dataset, or episodes that are in memory."""


def open_recording(
    path: Data,
    *,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    expected: Expected | None = None,
    needs_outcome: bool = True,
) -> Recording:
    """Open a dataset in any known layout. Close it after use, or use it in a `with` statement.

    Parameters
    ----------
    path
        An HDF5 file, a folder of such files (part-00000.h5 and so on), a Minari folder, or
        `minari:ID` for a dataset of Minari's library, such as `minari:D4RL/door/human-v2`. A
        dataset that is not on this computer is downloaded. It can also be a table with one row per
        step (.csv, .parquet), a LeRobot folder, turns as JSON lines (.jsonl), or episodes that are
        in memory.
    max_episode_steps
        Truncates the episodes of flat files without timeouts.
    max_bytes
        How much the file may claim to hold beyond what is plausible for its size.
    columns
        Which column of a table is what.
    returns
        Where the outcomes of the episodes of a table are.
    expected
        Which inputs a model needs of a table.
    needs_outcome
        Whether a table without outcomes is refused.

    Returns
    -------
    Recording
        A header, and records of episodes that are read one after the other.

    Examples
    --------
    >>> with open_recording("datasets/sample.h5") as recording:
    ...     recording.header.environment
    'Hopper-v5'
    """
    if isinstance(path, EpisodeSet):
        return as_recording(path)
    if not isinstance(path, str | os.PathLike):
        raise DataError(
            f"expected a file, a folder or episodes, got {type(path).__name__}; make episodes with "
            "from_dataframe or from_arrays, or give rows without outcomes to compute_rewards"
        )
    if not os.fspath(path).startswith(PREFIX) and is_table(Path(path)):
        from grd_offline.io.tables.build import open_table

        table = open_table(Path(path), columns, returns, expected, needs_outcome, max_bytes)
        return _located(table, path)
    if columns is not None or returns is not None:
        _refuse_tables(path)
        raise DataError("--columns and --returns are for tables (.csv, .parquet)", file=path)
    limits = (max_episode_steps, max_bytes)
    is_folder = not os.fspath(path).startswith(PREFIX) and find_data_file(Path(path)) is None
    if is_folder and (parts := find_parts(Path(path))):
        for part in parts:
            refuse_outside(part, Path(path))
        return join_parts(Path(path), parts, lambda part: _open_file(part, part, *limits))
    return _open_file(_find_file(path), path, *limits)


def _open_file(
    file: Path, path: str | os.PathLike[str], max_episode_steps: int | None, max_bytes: int | None
) -> Recording:
    """Open an HDF5 file, which errors call `path`."""
    handle, size = open_handle(file)
    with located(file=path), ExitStack() as unless_read:
        unless_read.callback(handle.close)
        budget = Budget(size, max_bytes)
        root = SafeGroup(handle.id, Source(budget, lambda: probe_file(file, budget)))
        with _fitting():
            recording = read_file(OpenFile(root, file, max_episode_steps))
            budget.check_episodes(len(recording))
            _check_columns(recording, budget)
            _names(recording.header)
        return replace(_located(recording, path), close=unless_read.pop_all().close)


def _located(recording: Recording, path: str | os.PathLike[str]) -> Recording:
    """Return the same recording, whose errors say in which file and episode they arose."""

    def load(index: int) -> Record:
        with locate(path, index), _fitting():
            record = recording.load(index)
        if isinstance(record.extras, LazyLeaves):
            record.extras.located = lambda: locate(path, index)
        return record

    def load_rewards(index: int) -> AnyArray:
        with locate(path, index), _fitting():
            return recording.load_rewards(index)

    return replace(recording, load=load, load_rewards=load_rewards)


def read(
    path: str | os.PathLike[str],
    *,
    delay: int | str | None = None,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
) -> EpisodeSet:
    """Read the episodes of a dataset. Each is loaded from the file when it is first used.

    Parameters
    ----------
    path
        Whatever `open_recording` opens.
    delay
        When rewards are delivered ("end", "step", or every K steps), where the file does not say
        and guessing from the zeros would be wrong.
    max_episode_steps, max_bytes, columns, returns
        As `open_recording` has them.

    Returns
    -------
    EpisodeSet
        The episodes. The true rewards of steps are no part of them.

    Examples
    --------
    >>> read("datasets/sample.h5").lengths[:3]
    array([13,  7, 25])
    """
    recording = open_recording(
        path,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
    )
    return as_episodes(recording, path, delay=delay)


def as_episodes(recording: Recording, path: Data, *, delay: int | str | None = None) -> EpisodeSet:
    """The view of a recording as episodes, which is all that a fit gets to see."""
    _note_types(recording)
    header = recording.header
    when = delay if delay is not None else find_delay(recording)

    def load(index: int) -> Episode:
        record = recording.load(index)
        with locate(path, index):
            return as_episode(record, header, when)

    observation_names, action_names = _names(header)
    return EpisodeSet(
        lengths=recording.lengths,
        load=KeptEpisodes(load),
        observation_names=observation_names,
        action_names=action_names,
        discrete_actions=any(leaf.categories for leaf in header.action_leaves),
        environment=header.environment,
        provenance=header.provenance,
    )


def as_episode(
    record: Record, header: Header, delay: int | str, *, any_size: bool = False
) -> Episode:
    """The view of one record as an episode.

    With `any_size`, rewards may also be too large or too small to compute with.
    """
    with _fitting():
        if not any_size:
            check_rewards(record.rewards)
        return Episode(
            observations=flatten(header.observation_leaves, record.observations, "observations"),
            actions=flatten(header.action_leaves, record.actions, "actions"),
            rewards=record.rewards,
            terminations=record.terminations,
            truncations=record.truncations,
            delivered=_delivered(record, delay),
            origin=Origin(
                record.attributes.get(EPISODE),
                record.extras.get(STEP),
                record.extras.get(ROW) if header.provenance is not None else None,
            ),
        )


def find_delay(recording: Recording) -> int | str:
    """Find when rewards are delivered: as the file says, or as the zeros among the rewards show.

    Nothing but zeros before the last step of every episode: "end". Zeros everywhere but at
    multiples of K, and mostly not zero there: K. Anything else: "step".
    """
    if recording.header.delay is not None:
        return recording.header.delay
    return infer_delay(recording.load_rewards(index) for index in range(len(recording)))


def infer_delay(rewards_of_episodes: Iterable[AnyArray]) -> int | str:
    """When rewards are delivered, from the zeros among them; `find_delay` says how."""
    step, hits, slots = 0, 0, 0
    for rewards in rewards_of_episodes:
        inner = np.flatnonzero(rewards[:-1]) + 1
        hits += len(inner)
        slots += len(rewards) - 1
        step = math.gcd(step, *inner.tolist())
    if hits == 0:
        return "end"
    return step if step > 1 and hits > 0.5 * slots / step else "step"


def read_truth(
    path: str | os.PathLike[str], field: str = "true_rewards", *, max_bytes: int | None = None
) -> list[NDArray[np.float64]]:
    """Read the true step rewards of each episode, to check a fit. No fit uses them.

    Parameters
    ----------
    path
        Whatever `open_recording` opens.
    field
        The field or column that holds them.
    max_bytes
        As `open_recording` has it.

    Returns
    -------
    list of array
        (step,) the rewards of each episode.

    Examples
    --------
    >>> len(read_truth("datasets/sample.h5"))
    80
    """
    with open_recording(path, max_bytes=max_bytes) as recording:
        truth = []
        for index, record in enumerate(recording):
            with locate(path, index):
                found = record.rewards if field == "rewards" else record.extras.get(field)
                if found is None:
                    known = ", ".join(sorted(record.extras)) or "none"
                    raise DataError(f"is missing; further fields here: {known}", field=field)
                if found.shape != record.rewards.shape:
                    raise DataError(
                        f"expected shape {record.rewards.shape}, got {found.shape}", field=field
                    )
                check_finite(found, field, found)
                truth.append(found.astype(np.float64))
        return truth


def write_dataset(
    path: str | os.PathLike[str],
    header: Header | EpisodeSet,
    records: Iterable[Record] | None = None,
    *,
    layout: str = "own",
    lengths: NDArray[np.int64] | None = None,
) -> list[str]:
    """Write a dataset in full or not at all, while its episodes arrive.

    Parameters
    ----------
    path
        The file or folder to write.
    header
        The header of the records, or a set of episodes, which needs no records.
    records
        The episodes, in their order.
    layout
        One of `grd_offline.io.formats.layouts.list_writable_layouts()`.
    lengths
        (episode,) The flat layout of D4RL needs the lengths of all episodes beforehand.

    Returns
    -------
    list of str
        What the layout cannot hold, in words.

    Examples
    --------
    >>> write_dataset("first.h5", read("datasets/sample.h5")[:10])
    []
    """
    if isinstance(header, EpisodeSet):
        recording = as_recording(header)
        header, records, lengths = recording.header, recording, recording.lengths
    if records is None:
        raise TypeError("write_dataset: expected the records of the header")
    check_ending(path)
    write = find_writer(layout, has_lengths=lengths is not None)
    if lengths is None:
        lengths = np.zeros(0, np.int64)
    with folder_errors(Path(path), f"cannot be written in the layout {layout}"):
        return write(NewFile(path, header, records, lengths))


def check_ending(path: str | os.PathLike[str]) -> None:
    """Refuse a dataset with the ending of a table: no command could read it."""
    if has_table_ending(Path(path)):
        raise DataError("would be no table, but a dataset: give it the ending .h5", file=path)


def is_same_place(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> bool:
    """Whether both name the same file, or the same Minari dataset."""
    paths = (Path(source), Path(target))
    files = [(find_data_file(path) if path.is_dir() else path) or path for path in paths]
    return files[0].exists() and files[1].exists() and files[0].samefile(files[1])


def name_data(source: Data) -> str:
    """The name of the data in results."""
    return "episodes" if isinstance(source, EpisodeSet) else Path(source).name


def _find_file(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if text.startswith(PREFIX):
        with located(file=path):
            return find_minari_file(text.removeprefix(PREFIX))
    folder = Path(path)
    if folder.is_dir():
        if (found := find_data_file(folder)) is not None:
            refuse_outside(found, folder)
            return found
        if (relabelled := find_relabelled(folder)) is not None:
            return _find_file(relabelled)
        _refuse_tables(path)
        reason = "is a folder without a Minari dataset (main_data.hdf5) or parts (part-00000.h5)"
        raise DataError(reason, file=path)
    return folder


def _refuse_tables(path: str | os.PathLike[str]) -> None:
    """Refuse a folder of tables, and say what to do."""
    folder = Path(path)
    if folder.is_dir() and (tables := sum(is_table(entry) for entry in folder.iterdir())):
        raise DataError(
            f"is a folder with {count(tables, 'table')}: give one file (join several of them "
            "first, for example with pandas.concat)",
            file=path,
        )


def _check_columns(recording: Recording, budget: Budget) -> None:
    """Refuse what is small in the file and large as one column per number or choice."""
    columns = sum(leaf.size for leaves in recording.header.leaves.values() for leaf in leaves)
    if columns > max(MOST_COLUMNS, (budget.max_bytes or 0) // 4):
        raise DataError(f"{columns:,} columns, more than {MOST_COLUMNS:,}")
    budget.check_flat(columns * int(recording.lengths.sum()))


def _names(header: Header) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A name for each column of observations and actions, as given or made up."""
    names, given = [], (header.observation_names, header.action_names)
    for (name, leaves), known in zip(header.leaves.items(), given, strict=True):
        default = column_names(leaves, "s" if name == "observations" else "a")
        if known is not None and len(known) != len(default):
            reason = f"{len(known)} names for {len(default)} columns"
            raise DataError(reason, field=f"{name[:-1]}_names")
        names.append(default if known is None else known)
    return names[0], names[1]


def _note_types(recording: Recording) -> None:
    fields = recording.header.leaves.items()
    wide = [field for field, leaves in fields if any(leaf.dtype == "float64" for leaf in leaves)]
    if wide:
        recording.warn(f"{' and '.join(wide)} in float64: used in float32")


def _delivered(record: Record, delay: int | str) -> BoolArray:
    stored = record.extras.get("delivered")
    if stored is not None:
        return as_flags(stored, "delivered")
    steps = len(record.rewards)
    if delay == "step":
        return np.ones(steps, np.bool_)
    delivered = np.zeros(steps, np.bool_)
    if isinstance(delay, int):
        delivered[delay - 1 :: delay] = True
    # What an episode that just stops would still have been given is not known.
    finished = bool(record.terminations[-1] or record.truncations[-1])
    delivered[-1] |= finished or record.rewards[-1] != 0
    return delivered


def locate(path: Data | None, index: int) -> AbstractContextManager[None]:
    """Errors raised inside say in which file and episode they arose."""
    return located(file=None if isinstance(path, EpisodeSet) else path, episode=index)


@contextmanager
def _fitting() -> Iterator[None]:
    """Arrays of a file that do not fit what is made of them, in one line."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except DataError:
        raise
    except MISFITS as error:
        raise DataError(f"does not fit together: {type(error).__name__}: {error}") from error


def find_minari_file(identifier: str) -> Path:
    """The HDF5 file of the dataset with this id, which is downloaded if it is not there yet."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    datasets = Path(root) if root else Path.home() / ".minari" / "datasets"
    folder = datasets / identifier
    found = find_data_file(folder) if identifier else None
    if found is None:
        if re.fullmatch(r"[-_\w./]*[-_\w.]-v[0-9]+", identifier) is None:
            raise DataError(f"expected an id such as D4RL/door/human-v2{_suggest(identifier)}")
        _download(identifier)
        found = find_data_file(folder)
    if found is None:
        raise DataError(
            f"there is no HDF5 file in {folder}; if a download was interrupted, delete the folder"
        )
    return found


def list_minari_datasets(*, remote: bool = False, prefix: str | None = None) -> list[str]:
    """The ids of Minari's datasets on this computer, or of those on its server.

    With `prefix`, only ids in that namespace are listed, such as `D4RL/door`.
    """
    import minari

    list_datasets = minari.list_remote_datasets if remote else minari.list_local_datasets
    with _quiet():
        return sorted(list_datasets(prefix=prefix))


def _download(identifier: str) -> None:
    import minari

    try:
        with _quiet():
            minari.download_dataset(identifier)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        # The other errors of Minari are those of the network and of missing packages.
        if type(error) is ValueError or type(error).__name__ == "RepositoryNotFoundError":
            raise DataError(f"no Minari dataset has this id{_suggest(identifier)}") from error
        raise DataError(
            f"is not on this computer and cannot be downloaded: {reason:.300}{_suggest(identifier)}"
        ) from error


def _suggest(identifier: str) -> str:
    """The ids that are nearest to one that was not found, as the end of a message."""
    here, there, namespace = list[str](), list[str](), identifier.rpartition("/")[0]
    with suppress(Exception):
        here = list_minari_datasets()
    with suppress(Exception):
        there = list_minari_datasets(remote=True, prefix=namespace) if namespace else []
    near = difflib.get_close_matches(identifier, [*here, *there], n=3)
    if near:
        return f"; did you mean {' or '.join(dict.fromkeys(near))}?"
    if here:
        more = ", ..." if len(here) > _MOST_LISTED else ""
        return f"; on this computer are {', '.join(here[:_MOST_LISTED])}{more}"
    return ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Minari prints what it does. That goes to stderr, because stdout is for results."""
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


PARTS_FORMAT, PARTS_VERSION = "grd-offline parts", 1
MANIFEST_FILE = "parts.json"
MOST_PARTS = 100_000
_NAME = re.compile(r"part-\d{5}\.h5")


def name_part(number: int) -> str:
    """The name of the file of a part."""
    return f"part-{number:05d}.h5"


def find_parts(folder: Path) -> list[Path]:
    """The parts in a folder, in order. Empty if there are none."""
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except (OSError, ValueError):  # a file, nothing at all, or no name for a folder
        return []


@dataclass(frozen=True)
class Manifest:
    """What a folder of parts was made with."""

    command: str
    """The command that makes it: `collect` or `relabel`."""
    parts: tuple[str, ...]
    """The names of the files, once all are there."""
    settings: Mapping[str, Any]
    """Everything that decides what the data are: plain JSON."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Versions of packages that decide the last bits."""
    sources: Mapping[str, list[int]] = field(default_factory=dict)
    """Size and time of change of the file that each part is made from, where there is one."""


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a folder; None if it has none."""
    path = folder / MANIFEST_FILE
    try:
        return convert(read_record(path, (PARTS_FORMAT,), PARTS_VERSION), Manifest, path)
    except FileNotFoundError:
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder in full or not at all."""
    contents = {"format": PARTS_FORMAT, "version": PARTS_VERSION, **vars(manifest)}
    write_json(folder / MANIFEST_FILE, contents)


def check_manifest(folder: Path, manifest: Manifest) -> None:
    """Refuse a folder that holds something else, or was made with other settings."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file, expected the name of a folder", file=folder)
    before = read_manifest(folder)
    if before is None:
        if folder.exists() and any(folder.iterdir()):
            raise DataError("exists and holds something else: choose another name", file=folder)
        return
    now, then = ({"command": m.command, **m.settings} for m in (manifest, before))
    for name in {**then, **now}:
        if now.get(name) != then.get(name):
            raise DataError(
                f"was begun with {then.get(name)!r:.60}, not with {now.get(name)!r:.60}: choose "
                "another folder with --out, or remove this one",
                file=folder,
                field=name,
            )


MOST_OPEN = 64
"""Parts that are open at the same time."""
_SHARED = (
    *("observation_leaves", "action_leaves", "observation_names", "action_names"),
    *("delay", "discount", "provenance"),
)
"""What all parts must have in common."""
_COUNTED = ("episodes", "first_episode")
"""Settings of a collection that say which episodes a part has."""


def join_parts(
    folder: Path, paths: Sequence[Path], open_part: Callable[[Path], Recording]
) -> Recording:
    """One recording of all parts. `open_part` opens one of them."""
    lengths, headers, layouts, warnings = [], [], [], list[str]()
    for path in paths:
        with open_part(path) as recording:
            lengths.append(recording.lengths)
            headers.append(recording.header)
            layouts.append(recording.layout)
            warnings += [text for text in recording.warnings if text not in warnings]
        _check_part(path, paths[0], headers, layouts)
    ends = np.cumsum(list(map(len, lengths)))
    opened: OrderedDict[int, Recording] = OrderedDict()  # those that were used last
    is_closed = False

    def find(index: int) -> tuple[Recording, int]:
        """The part that an episode is in, and its number there."""
        part = int(np.searchsorted(ends, index, side="right"))
        if is_closed:
            raise DataError("the dataset was closed", file=paths[part])
        if part not in opened:
            while len(opened) >= MOST_OPEN:
                opened.popitem(last=False)[1].close()
            opened[part] = open_part(paths[part])
        opened.move_to_end(part)
        return opened[part], index - (int(ends[part - 1]) if part else 0)

    def load(index: int) -> Record:
        recording, inner = find(index)
        record = recording.load(inner)
        warnings.extend([text for text in recording.warnings if text not in warnings])

        def read_extra(name: str) -> AnyArray:
            now, _ = find(index)  # the part may have been closed in the meantime
            return (record if now is recording else now.load(inner)).extras[name]

        extras = LazyLeaves({name: partial(read_extra, name) for name in record.extras})
        return replace(record, extras=extras)

    def load_rewards(index: int) -> AnyArray:
        recording, inner = find(index)
        return recording.load_rewards(inner)

    def close() -> None:
        nonlocal is_closed
        is_closed = True
        while opened:
            opened.popitem()[1].close()

    header, all_lengths = _join_headers(headers), np.concatenate(lengths)
    joined = Recording(layouts[0], header, all_lengths, load, load_rewards, warnings, close)
    for text in _find_gaps(folder, paths, headers):
        joined.warn(text)
    return joined


def _check_part(path: Path, first: Path, headers: list[Header], layouts: list[str]) -> None:
    """Refuse a part that cannot be read together with the first one."""
    if layouts[-1] != layouts[0]:
        reason = f"is in the layout {layouts[-1]}, {first.name} in {layouts[0]}"
        raise DataError(f"{reason}: parts must have the same layout", file=path)
    for name in _SHARED:
        if getattr(headers[-1], name) != getattr(headers[0], name):
            raise DataError(f"differs from that of {first.name}", file=path, field=name)


def _join_headers(headers: Sequence[Header]) -> Header:
    """The header of all parts: what they have in common."""
    first = headers[0]
    settings = _keep_common([header.settings for header in headers])
    counts = [header.settings.get("episodes") for header in headers]
    if all(isinstance(count, int) for count in counts):
        settings["episodes"] = sum(counts)
    # In the order of a single file.
    settings = {name: settings[name] for name in first.settings if name in settings}
    environments = {header.environment for header in headers}
    return replace(
        first,
        environment=first.environment if len(environments) == 1 else None,
        settings=settings,
        truth=_keep_common([header.truth for header in headers]),
        source=_keep_common([header.source for header in headers]),
    )


def _keep_common(tables: Sequence[Any]) -> dict[str, Any]:
    first = tables[0]
    return {
        name: value
        for name, value in first.items()
        if name not in _COUNTED and all(name in t and t[name] == value for t in tables)
    }


def _find_gaps(folder: Path, paths: Sequence[Path], headers: Sequence[Header]) -> list[str]:
    """What is missing, and what differs between parts."""
    found = []
    manifest = read_manifest(folder)
    missing = set(manifest.parts) - {path.name for path in paths} if manifest else set()
    if manifest and missing:
        found.append(
            f"{len(missing)} of {len(manifest.parts)} parts are not there yet, the first is "
            f"{min(missing)}: grd-offline {manifest.command} goes on with them"
        )
    common = _keep_common([header.settings for header in headers])
    names = {name for header in headers for name in header.settings}
    differing = sorted(names - set(common) - set(_COUNTED))
    if differing:
        found.append(f"the parts were made with different settings: {', '.join(differing)[:200]}")
    return found
