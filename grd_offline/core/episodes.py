"""Episodes whose reward arrives late. Every other part of the package passes them on.

Step t takes `actions[t]` in `observations[t]`. `rewards[t]` is what was handed out at step t, and
`delivered[t]` says whether anything was: a delivered number is the sum of the step rewards since
the delivery before it. One number at the end, one every K steps, and one at each step are all
this. The true step rewards, where a dataset has them, are not part of an episode at all: they
come from `grd_offline.io.datasets.read_truth`, so that a fit cannot see them.

Beside the episodes stand the names of their dimensions, the table that they came from, so that
results can be joined to it, and preferences between two pieces of them. A piece is an episode from
one step to another, or the whole of it. The answers of a person or of a program are 1 where the
first piece was preferred, 0 where the second was, and 1/2 where both were found alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from html import escape
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.typing import Array, BoolArray, IntArray, SingleArray


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


EPISODE, STEP, ROW, TRUTH = "episode", "step", "row", "true_rewards"
"""What records of a table have under these names: the name of the episode among the attributes, and
among the further fields the steps, the rows that they stand in and the true rewards."""


@dataclass(frozen=True)
class Provenance:
    """The table that episodes came from."""

    columns: str = ""
    """The role of each column, in the form of `--columns`."""
    episode: str = EPISODE
    """The name of the column of episodes."""
    step: str = STEP
    """The name of the column of steps."""
    step_type: str = ""
    """The type of steps where they are no numbers: datetime64[us], or a style of texts."""
    library: str = ""
    """The library whose tables results are given as; plain arrays where there is none."""

    @classmethod
    def from_json(cls, stored: Any) -> Provenance | None:
        """What a file says, of unknown origin; None if it says nothing."""
        if not isinstance(stored, Mapping):
            return None
        known = {field.name for field in fields(cls)}
        return cls(**{name: str(text) for name, text in stored.items() if name in known})

    def to_json(self) -> dict[str, str]:
        """What a file keeps of it."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Origin:
    """The rows of a table that one episode came from."""

    label: int | float | str | None = None
    """What the table calls the episode."""
    steps: NDArray[Any] | None = None
    """(T,) the steps as the table has them: numbers, or microseconds since 1970."""
    rows: NDArray[np.int64] | None = None
    """(T,) the rows that the steps stand in. None: rows follow each other."""


@dataclass(frozen=True, eq=False)
class Preferences:
    """Pairs of pieces of episodes, and which piece of each pair was preferred.

    Examples
    --------
    >>> Preferences.between([0, 1], [2, 0], [1, 0.5])
    Preferences(2 pairs)
    """

    first: IntArray
    """(pair, 3) episode, first step, and the step after the last; -1 for the episode's end."""
    second: IntArray
    """(pair, 3) the same numbers of the second piece."""
    preferred: NDArray[np.float64]
    """(pair,) 1 for the first, 0 for the second, 1/2 for neither."""

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            pieces = np.asarray(getattr(self, name), np.int64)
            if pieces.ndim != 2 or pieces.shape[1] != 3:
                raise DataError(f"expected shape (pairs, 3), got {pieces.shape}", field=name)
            object.__setattr__(self, name, pieces)
        preferred = np.asarray(self.preferred, np.float64)
        if not len(self.first) == len(self.second) == len(preferred):
            raise DataError("expected as many first pieces as second ones and answers")
        wrong = np.flatnonzero(~((preferred >= 0) & (preferred <= 1)))
        if wrong.size:
            reason = f"expected 0 to 1, got {preferred[wrong[0]]:.4g} in pair {wrong[0]}"
            raise DataError(reason, field="preferred")
        object.__setattr__(self, "preferred", preferred)

    @classmethod
    def between(cls, first: ArrayLike, second: ArrayLike, preferred: ArrayLike) -> Preferences:
        """Make pairs.

        Parameters
        ----------
        first, second
            Whole episodes, by their index, or pieces (episode, start, stop).
        preferred
            1 where the first was preferred, 0 for the second, 1/2 for neither.

        Returns
        -------
        Preferences
            The pairs.
        """
        return cls(_as_pieces(first), _as_pieces(second), np.asarray(preferred, np.float64))

    def __len__(self) -> int:
        return len(self.preferred)

    def __repr__(self) -> str:
        return f"Preferences({len(self):,} pairs)"

    def __getitem__(self, chosen: IntArray) -> Preferences:
        """Return some of the pairs."""
        return Preferences(self.first[chosen], self.second[chosen], self.preferred[chosen])


def _as_pieces(pieces: ArrayLike) -> IntArray:
    """Whole episodes as pieces of all their steps."""
    given = np.asarray(pieces, np.int64)
    if given.ndim != 1:
        return given
    return np.stack([given, np.zeros_like(given), np.full_like(given, -1)], 1)


Matrix = ArrayLike
"""(N, column) numbers, in any form that numpy takes."""
Several = slice | Sequence[int] | NDArray[np.integer]
"""Which episodes of a set are chosen."""
LARGEST = 1e18
"""Largest number that is accepted. The squares of larger numbers leave the range of float32."""
SAME_LENGTH = 0.05
"""Standard deviation of the lengths of episodes, as a share of their mean, up to which they count
as the same."""
SMALLEST = 1e-45
"""Smallest reward that is not taken for zero. Networks use float32, where smaller numbers are
zero."""


DOUBLE_RESOLUTION = 1e-13
"""The share of their size below which differences between float64 sums are rounding."""


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode. It is read-only and checked when it is made. Rewards are float64, and other
    numbers are float32.

    Examples
    --------
    >>> from grd_offline import read
    >>> episode = read("datasets/sample.h5")[0]
    >>> episode.observations.shape, episode.actions.shape
    ((14, 11), (13, 3))
    """

    observations: SingleArray
    """(T + 1, state), or (T, state) where the source does not hold the last one."""
    actions: SingleArray
    """(T, action); one-hot where actions are discrete."""
    rewards: Array
    """(T,) the reward that was delivered at each step. It is zero if nothing was delivered."""
    terminations: BoolArray
    """(T,) whether the task ended at this step."""
    truncations: BoolArray
    """(T,) whether the episode was cut off at this step, for example by a time limit."""
    delivered: BoolArray
    """(T,) whether a reward was delivered at this step, for all steps since the last delivery."""
    origin: Origin = field(default_factory=Origin)
    """The rows of a table that the episode came from."""

    def __post_init__(self) -> None:
        steps = len(self.actions)
        if steps == 0:
            raise DataError("no steps", field="actions")
        _set_array(self, "observations", 2, np.float32, (steps, steps + 1))
        _set_array(self, "actions", 2, np.float32, (steps,))
        _set_array(self, "rewards", 1, np.float64, (steps,))
        for name in ("terminations", "truncations", "delivered"):
            _set_array(self, name, 1, np.bool_, (steps,))
        for name in ("terminations", "truncations"):
            early = np.flatnonzero(getattr(self, name)[:-1])
            if early.size:
                reason = f"set at step {early[0]}, before the last of {steps} steps"
                raise DataError(reason, field=name)
        stray = np.flatnonzero((self.rewards != 0) & ~self.delivered)
        if stray.size:
            reason = f"expected 0 at step {stray[0]}, where no reward is delivered"
            raise DataError(reason, field="rewards")

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        name = "" if self.label is None else f"{self.label}: "
        sizes = f"{self.observations.shape[1]} states, {self.actions.shape[1]} actions"
        return f"Episode({name}{len(self)} steps, {sizes}, return {self.compute_return():.4g})"

    @property
    def label(self) -> int | float | str | None:
        """The name of the episode in its table."""
        return self.origin.label

    @property
    def steps(self) -> NDArray[Any] | None:
        """(T,) the steps as its table has them."""
        return self.origin.steps

    @property
    def rows(self) -> NDArray[np.int64] | None:
        """(T,) the rows of its table that the steps stand in. None: rows follow each other."""
        return self.origin.rows

    @property
    def has_final_observation(self) -> bool:
        """Whether the observation after the last action is known."""
        return len(self.observations) == len(self) + 1

    @property
    def next_observations(self) -> SingleArray:
        """(T, state) the observation after each step. If the last one is not known, the one before
        is repeated."""
        if self.has_final_observation:
            return self.observations[1:]
        return np.concatenate([self.observations[1:], self.observations[-1:]])

    def compute_return(self, discount: float = 1.0) -> float:
        """Compute the return R of the episode.

        With a reward at every step this is sum_t discount^t r_t. A number delivered for several
        steps is their sum already, its discount inside it, and counts as it is.
        """
        rewards = self.rewards
        if self.delivered.all():
            rewards = rewards * discount ** np.arange(len(self))
        return float(rewards.sum())

    def segments(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """List the start, stop and amount of each delivery. The amount is the sum of the step
        rewards in [start, stop)."""
        stops = np.flatnonzero(self.delivered) + 1
        starts = np.concatenate([[0], stops[:-1]]).astype(np.int64)[: len(stops)]
        return starts, stops, self.rewards[stops - 1]

    def delivered_at_end(self, discount: float = 1.0) -> Episode:
        """Return the same episode with one delivery: its return, at the last step."""
        is_last = np.arange(len(self)) == len(self) - 1
        delivered = is_last & self.delivered.any()
        rewards = np.where(delivered, self.compute_return(discount), 0.0)
        return replace(self, rewards=rewards, delivered=delivered)


def _set_array(
    episode: Episode, field: str, ndim: int, dtype: type[np.generic], lengths: tuple[int, ...]
) -> None:
    array = np.asarray(getattr(episode, field))
    if array.ndim != ndim:
        raise DataError(f"expected {ndim} dimensions, got shape {array.shape}", field=field)
    if len(array) not in lengths:
        expected = " or ".join(str(n) for n in lengths)
        raise DataError(f"expected {expected} rows, got {len(array)}", field=field)
    if dtype is np.bool_:
        array = array if array.dtype == dtype else as_flags(array, field)
    else:
        with np.errstate(over="ignore"):
            converted = array.astype(dtype, copy=False)
        check_finite(converted, field, array)
        array = converted
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    object.__setattr__(episode, field, array)


def as_flags(array: NDArray[Any], field: str) -> BoolArray:
    """Turn 0/1 numbers of any type into booleans. Anything else is refused."""
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if wrong.size:
        raise DataError(f"expected 0 or 1, got {array[wrong[0]]} at step {wrong[0]}", field=field)
    return array.astype(np.bool_)


def check_finite(
    array: NDArray[Any], field: str, original: NDArray[Any], largest: float = np.inf
) -> None:
    """Refuse nan, infinity, what became infinite in the array's type, and what is larger than
    `largest`, naming the first place."""
    # Two reductions are far quicker than testing each entry; nan fails both comparisons.
    most = min(largest, float(np.finfo(_find_float(array.dtype)).max))
    if array.size == 0 or (float(array.max()) <= most and float(array.min()) >= -most):
        return
    wrong = np.argwhere(~(np.abs(array) <= most))
    place = f"at step {wrong[0][0]}"
    if array.ndim > 1:
        place += f", dimension {', '.join(str(i) for i in wrong[0][1:])}"
    value = describe_number(original[tuple(wrong[0])], array.dtype)
    raise DataError(f"{value} {place}", field=field)


def check_rewards(rewards: NDArray[Any]) -> None:
    """Refuse an episode's rewards if one is too large to compute with, or if all are too small."""
    check_finite(rewards, "rewards", rewards, LARGEST)
    if rewards.any() and not (np.abs(rewards) >= SMALLEST).any():
        step = int(np.flatnonzero(rewards)[0])
        found = f"{rewards[step]:.4g}, smaller than {SMALLEST:.0e} (use larger units),"
        raise DataError(f"{found} at step {step}", field="rewards")


def describe_number(value: Any, dtype: DTypeLike) -> str:
    """A number that is refused, and why: it may be too large for the type it is kept in."""
    if not np.isfinite(value):
        return f"{value:.4g}"
    kept_in = _find_float(np.dtype(dtype))
    if abs(value) > np.finfo(kept_in).max:
        return f"{value:.4g}, too large for {kept_in},"
    return f"{value:.4g}, larger than {LARGEST:.0e} (use smaller units),"


def _find_float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type whose range counts: float32, or float64 for all other types."""
    return dtype if dtype == np.float32 else np.dtype(np.float64)


def find_resolution(amounts: NDArray[Any]) -> float:
    """The share of their size below which differences between amounts are rounding.

    Amounts that float32 holds, up to the last bit of float64, come from a float32 source, whose
    rounding is coarser.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = amounts.astype(np.float32)
        is_single = bool(np.isclose(single, amounts, rtol=1e-15, atol=0).all())
    return 1e-6 if is_single else DOUBLE_RESOLUTION


ROOM = 2**30
"""Bytes of the episodes of one dataset that are kept in memory."""


def have_same_length(lengths: NDArray[Any]) -> bool:
    """Whether episodes have about the same number of steps, so that lengths tell nothing."""
    return bool(lengths.std() <= SAME_LENGTH * lengths.mean())


class KeptEpisodes:
    """Loads episodes, and keeps those that were loaded first, as long as there is room for them.

    A fit goes over its episodes many times, and reading and checking them takes far longer than
    anything that it does with them.
    """

    def __init__(self, load: Callable[[int], Episode], room: int = ROOM) -> None:
        self._load, self._left = load, room
        self._kept: dict[int, Episode] = {}

    def __call__(self, index: int) -> Episode:
        if index in self._kept:
            return self._kept[index]
        episode = self._load(index)
        size = sum(part.nbytes for part in vars(episode).values() if isinstance(part, np.ndarray))
        if size <= self._left:
            self._kept[index] = episode
            self._left -= size
        return episode


@dataclass(frozen=True, eq=False)
class EpisodeSet(Sequence[Episode]):
    """Episodes of one dataset, loaded one at a time. A set may be larger than memory.

    Indexing with an integer loads an episode; with a slice or an array of indices it gives a
    smaller set and loads nothing.

    Examples
    --------
    >>> from grd_offline import read
    >>> episodes = read("datasets/sample.h5")
    >>> len(episodes), episodes.total_steps, len(episodes[:10])
    (80, 1418, 10)
    """

    lengths: NDArray[np.int64]
    """(episode,) steps in each episode."""
    load: Callable[[int], Episode]
    """Loads the episode with that index."""
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    discrete_actions: bool = False
    """Whether actions are one-hot codes of discrete choices."""
    environment: str | None = None
    provenance: Provenance | None = None
    """The table that the episodes came from."""
    preferences: Preferences | None = None
    """Preferences, which a fit uses instead of returns."""

    @classmethod
    def from_episodes(
        cls,
        episodes: Sequence[Episode],
        *,
        observation_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        discrete_actions: bool = False,
        environment: str | None = None,
    ) -> EpisodeSet:
        """Make a set of episodes that are in memory already."""
        if not isinstance(episodes, Sequence) or isinstance(episodes, str):
            raise DataError(
                f"expected episodes, got {type(episodes).__name__}: make them of a table with "
                "grd_offline.from_dataframe, or of a file with grd_offline.read"
            )
        if not episodes:
            raise DataError("no episodes")
        every = [(one.observations.shape[1], one.actions.shape[1]) for one in episodes]
        sizes = every[0]
        for index, found in enumerate(every):
            if found != sizes:
                reason = f"{found[0]} state and {found[1]} action dimensions, the first episode has"
                raise DataError(f"{reason} {sizes[0]} and {sizes[1]}", episode=index)
        return cls(
            lengths=np.array([len(episode) for episode in episodes], np.int64),
            load=list(episodes).__getitem__,
            observation_names=_names(observation_names, "s", sizes[0]),
            action_names=_names(action_names, "a", sizes[1]),
            discrete_actions=discrete_actions,
            environment=environment,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        sizes = f"{self.state_size} states, {self.action_size} actions"
        return f"EpisodeSet({len(self):,} episodes, {self.total_steps:,} steps, {sizes})"

    def _repr_html_(self) -> str:
        rows = {
            "episodes": f"{len(self):,} of {self.lengths.min():,} to {self.lengths.max():,} steps",
            "states": shorten(self.observation_names),
            "actions": shorten(self.action_names) or "none",
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in rows.items()
        )
        return f"<table>{cells}</table>"

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: Several) -> EpisodeSet: ...
    def __getitem__(self, index: int | Several) -> Episode | EpisodeSet:
        chosen = np.arange(len(self))[index]
        if np.ndim(chosen) == 0:
            return self.load(int(chosen))
        lengths, load = self.lengths[chosen], self.load
        return replace(self, lengths=lengths, load=lambda i: load(int(chosen[i])), preferences=None)

    def __iter__(self) -> Iterator[Episode]:
        return (self.load(index) for index in range(len(self)))

    @property
    def state_size(self) -> int:
        """Number of state dimensions."""
        return len(self.observation_names)

    @property
    def action_size(self) -> int:
        """Number of action dimensions."""
        return len(self.action_names)

    @property
    def total_steps(self) -> int:
        """Number of steps in all episodes together."""
        return int(self.lengths.sum())

    def load_all(self) -> EpisodeSet:
        """Return the same episodes, all in memory."""
        return replace(self, load=list(self).__getitem__)

    def compute_returns(self, discount: float = 1.0) -> NDArray[np.float64]:
        """Compute the return of each episode: (episode,). See `Episode.compute_return`."""
        return np.array([episode.compute_return(discount) for episode in self], np.float64)

    def delivered_at_end(self, discount: float = 1.0) -> EpisodeSet:
        """Return the same episodes with one delivery each: their return, at the last step."""
        load = self.load
        kept = KeptEpisodes(lambda i: load(i).delivered_at_end(discount))
        return replace(self, load=kept)


def shorten(names: Sequence[str], most: int = 12) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _names(given: Sequence[str] | None, prefix: str, count: int) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{prefix}{i}" for i in range(count))
    if len(given) != count:
        raise DataError(f"{len(given)} names for {count} dimensions")
    return read_names(given)


def attach_preferences(episodes: EpisodeSet, preferences: Preferences) -> EpisodeSet:
    """Return the episodes with these preferences, from which a fit then learns.

    Parameters
    ----------
    episodes
        The episodes whose pieces are compared.
    preferences
        Pairs of pieces, and which of each pair was preferred. A piece that does not lie in an
        episode is refused.

    Returns
    -------
    EpisodeSet
        The same episodes. A fit learns from the preferences instead of the returns.

    Examples
    --------
    >>> from grd_offline import Preferences, attach_preferences, read
    >>> pairs = Preferences.between([0, 1], [2, 3], [1, 0])
    >>> attach_preferences(read("datasets/sample.h5"), pairs).preferences
    Preferences(2 pairs)
    """
    checked = {}
    for name in ("first", "second"):
        pieces = getattr(preferences, name).copy()
        for row, (episode, start, stop) in enumerate(pieces.tolist()):
            if not 0 <= episode < len(episodes):
                reason = f"no episode {episode} (there are {len(episodes):,}) in pair {row}"
                raise DataError(reason, field=name)
            length = int(episodes.lengths[episode])
            end = length if stop == -1 else stop
            if not 0 <= start < end <= length:
                place = f"episode {episode} of {length} steps, in pair {row}"
                raise DataError(f"steps {start} to {stop} do not lie in {place}", field=name)
            pieces[row, 2] = end
        checked[name] = pieces
    if not len(preferences):
        raise DataError("no pairs", field="preferences")
    return replace(episodes, preferences=replace(preferences, **checked))


def cut_pieces(episodes: EpisodeSet) -> tuple[EpisodeSet, IntArray, IntArray]:
    """Cut every piece once, as an episode of its own, and list which pieces each pair compares."""
    preferences = episodes.preferences
    assert preferences is not None
    every = np.concatenate([preferences.first, preferences.second])
    pieces, places = np.unique(every, axis=0, return_inverse=True)
    places = places.reshape(-1)

    def load(index: int) -> Episode:
        episode, start, stop = (int(one) for one in pieces[index])
        return _cut(episodes[episode], start, stop)

    lengths = np.asarray(pieces[:, 2] - pieces[:, 1])
    cut = replace(episodes, lengths=lengths, load=KeptEpisodes(load), preferences=None)
    return cut, places[: len(preferences)], places[len(preferences) :]


def _cut(episode: Episode, start: int, stop: int) -> Episode:
    last = np.arange(stop - start) == stop - start - 1
    return Episode(
        observations=episode.observations[start : stop + 1],
        actions=episode.actions[start:stop],
        rewards=np.zeros(stop - start),
        terminations=episode.terminations[start:stop],
        truncations=episode.truncations[start:stop],
        delivered=last,
    )
