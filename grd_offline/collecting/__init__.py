"""Policy and environment in, episodes whose reward arrives late out.

Every episode has seeds of its own, made from the run's seed and the episode's number, so the data
do not depend on how many worker processes share the work. The true step rewards leave this module
only where `keep_true_rewards` asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from grd_offline.collecting.runner import EpisodeRunner, deliver
from grd_offline.collecting.settings import CollectSettings
from grd_offline.collecting.workers import collect_here, collect_in_workers
from grd_offline.formats.record import Header, Record

__all__ = ["CollectSettings", "collect", "deliver"]


def collect(
    settings: CollectSettings,
    should_stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda text: None,
) -> tuple[Header, Generator[Record, None, None]]:
    """The header of a new dataset, and its episodes one by one, in order.

    Episodes are made while they are asked for; closing the generator ends the workers. When
    `should_stop` becomes true, episodes that are finished still come, and no more. `warn` hears
    of an environment that hangs.
    """
    runner = EpisodeRunner(settings)
    workers = min(settings.workers, settings.episodes)
    if workers == 1:
        return runner.header, collect_here(runner, should_stop, warn)
    runner.close()
    return runner.header, collect_in_workers(settings, workers, should_stop, warn)
