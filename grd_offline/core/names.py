"""Models that had another name in an earlier version.

A name stands for one model, offline and online. Old names are still taken on the command line, and
what earlier versions wrote is read under the new names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OFFLINE = {"neural": "pair-net"}
"""Fits of `decompose` and `judge`: the old name, and the new one."""
RENAMED_ONLINE = {"neural": "joint-net"}
"""Fits of `train-online` on the command line: the old name, and the new one."""
ONLINE = {"closed-form": "quadratic", **RENAMED_ONLINE}
"""Fits in runs of version 1, whose closed form was the quadratic: the old name, and the new one."""


def rename_member(name: str) -> str:
    """The name of a member, or of a group of members, of a run of version 1."""
    match = re.match(r"(grd(?:-no-compact)?-)(closed-form|neural)(?=-|$)", name)
    return name if match is None else f"{match[1]}{ONLINE[match[2]]}{name[match.end() :]}"


def rename_run(about: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of the `settings.json` of a run of version 1."""
    renamed = dict(about)
    settings = about.get("settings")
    if isinstance(settings, Mapping) and isinstance(settings.get("fits"), list):
        fits = [ONLINE.get(fit, fit) if isinstance(fit, str) else fit for fit in settings["fits"]]
        renamed["settings"] = {**settings, "fits": fits}
    if isinstance(about.get("members"), list):
        renamed["members"] = [_rename_about(one, ONLINE) for one in about["members"]]
    return renamed


def rename_row(row: Mapping[str, str]) -> dict[str, str]:
    """A row of a table of a run of version 1."""
    return {n: rename_member(v) if n in ("member", "group") else v for n, v in row.items()}


def find_member_folder(run: Path, member: str) -> Path:
    """The folder of a member, which has its old name if an earlier version wrote it."""
    place = run / "members" / member
    for old, new in ONLINE.items():
        former = place.with_name(re.sub(rf"-{new}(?=-|$)", f"-{old}", member, count=1))
        if not place.exists() and former.is_dir() and rename_member(former.name) == member:
            return former
    return place


def rename_result(contents: Any) -> Any:
    """Rename the fits in results that `decompose` and `judge` wrote."""
    if isinstance(contents, list):
        return [rename_result(part) if isinstance(part, dict) else part for part in contents]
    if not isinstance(contents, dict):
        return contents
    parts = {n: rename_result(v) if isinstance(v, dict | list) else v for n, v in contents.items()}
    return _rename_about(parts, OFFLINE)


def rename_model(about: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Rename the fits in the description of a saved reward model, of a member of a run or of a
    decomposition.

    A sum of effects, its `kind` tells, is of the closed form that has this name now.
    """
    if "member" not in about:
        return dict(_rename_about(about, OFFLINE))
    return dict(about if kind == "effects" else _rename_about(about, ONLINE))


def _rename_about(about: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(about, Mapping):
        return about
    renamed = dict(about)
    for field, value in about.items():
        if field in ("fit", "chosen_fit") and isinstance(value, str):
            renamed[field] = names.get(value, value)
        elif field in ("name", "group", "member") and isinstance(value, str) and names is ONLINE:
            renamed[field] = rename_member(value)
        elif field == "reason" and isinstance(value, str) and names is OFFLINE:
            renamed[field] = re.sub(r"\bneural\b", OFFLINE["neural"], value)
    return renamed
