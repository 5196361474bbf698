"""A collection in parts: which episodes each part has, and the command that makes it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

from grd_offline.core.errors import DataError
from grd_offline.core.settings import describe_settings
from grd_offline.io.files.parts import MOST_PARTS, Manifest, name_part
from grd_offline.lab.sweep.parts import PartsPlan, make_part_job
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.collecting.runner import EpisodeRunner
from grd_offline.learning.collecting.settings import CollectSettings


def plan_collection(settings: CollectSettings, parts: int) -> PartsPlan:
    """The parts of a collection, which share its episodes as evenly as can be.

    The environment and the policies are tried first, so that a mistake is told once.
    """
    most = min(MOST_PARTS, settings.episodes)
    if not 1 <= parts <= most:
        raise DataError(
            f"expected at least 1 and at most {most:,} for {settings.episodes:,} episodes, got "
            f"{parts:,}",
            field="parts",
        )
    runner = EpisodeRunner(settings)
    runner.close()
    made = dict(json.loads(json.dumps(runner.header.settings)))
    versions = made.pop("versions")
    made["parts"] = parts
    count, more = divmod(settings.episodes, parts)
    jobs, first = [], settings.first_episode
    for number in range(parts):
        size = count + (number < more)
        one = replace(settings, episodes=size, first_episode=first, workers=1)
        jobs.append(make_part_job(name_part(number), _make_collect_command(one)))
        first += size
    names = tuple(str(job.file) for job in jobs)
    return PartsPlan(tuple(jobs), Manifest("collect", names, made, versions))


def _make_collect_command(settings: CollectSettings) -> list[str]:
    """The command that collects a part; it leaves nothing behind if it is stopped."""
    command = ["collect", "--no-partial"]
    for name, described in describe_settings(CollectSettings).items():
        option = described.setting.option or f"--{name.replace('_', '-')}"
        value = getattr(settings, name)
        if name == "policy" and value not in EXPLORATIONS:
            value = os.path.abspath(value)
        if isinstance(value, Mapping):
            for key, inner in value.items():
                command += [option, f"{key}={json.dumps(inner)}"]
        elif value is True:
            command.append(option)
        elif name == "workers" or (value != described.default and value is not None):
            command += [option, str(value)]
    return command
