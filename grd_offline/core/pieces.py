"""The pieces of episodes that preferences compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grd_offline.core.episodes import Episode, EpisodeSet, KeptEpisodes
from grd_offline.core.errors import DataError
from grd_offline.core.preferences import Preferences
from grd_offline.core.typing import IntArray


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
                raise DataError(
                    f"no episode {episode} (there are {len(episodes):,}) in pair {row}", field=name
                )
            length = int(episodes.lengths[episode])
            end = length if stop == -1 else stop
            if not 0 <= start < end <= length:
                raise DataError(
                    f"steps {start} to {stop} do not lie in episode {episode} of {length} steps, "
                    f"in pair {row}",
                    field=name,
                )
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

    cut = replace(
        episodes,
        lengths=np.asarray(pieces[:, 2] - pieces[:, 1]),
        load=KeptEpisodes(load),
        preferences=None,
    )
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
