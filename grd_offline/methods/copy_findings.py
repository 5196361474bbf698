"""Episodes that are exact copies of others: a merge went wrong, or a log was written twice."""

from __future__ import annotations

import hashlib

import numpy as np

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.words import count
from grd_offline.methods.contract import CAREFUL, Finding

_MOST_READ = 2000
_MANY = 0.02
"""Share of the episodes that may be copies: with discrete states a few are equal by chance."""


def find_copies(episodes: EpisodeSet, outcome: Outcome = NUMBER) -> list[Finding]:
    """Copies are in both parts when episodes are held out, so the test looks better than it is."""
    total = min(len(episodes), _MOST_READ)
    copies = total - len({_hash(episodes[index]) for index in range(total)})
    if copies <= _MANY * total:
        return []
    text = (
        f"{copies:,} of {count(total, 'episode')} are exact copies of others. They tell nothing "
        f"new, and the test on {outcome.plural} held out is worth little, because it has seen "
        "copies of them. Leave the copies out."
    )
    return [Finding(CAREFUL, text, f"{copies:,} episodes are copies of others")]


def _hash(episode: Episode) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for part in (episode.observations, episode.actions, episode.rewards):
        made.update(np.ascontiguousarray(part).tobytes())
    return made.digest()
