"""The policies that a training run left behind, found by folder.

    RUN/members/NAME/policies/step-000010000/   a checkpoint of one member
    RUN/members/NAME/policies/best/             its best

A member's folder, or a single policy's, may be named as well as the whole run.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from grd_offline.core.errors import DataError
from grd_offline.learning.agents.actors import Actor, count_weights, load_actor_about

NAMED_CHECKPOINTS = ("best", "last", "all")
MAX_LOADED_WEIGHTS = 2**28
"""All of them together: each process that collects holds them in memory."""


class SavedPolicy(NamedTuple):
    """A policy, and where it stands in its run."""

    name: str
    """Folder, as seen from the one that was named."""
    step: int | None
    """Environment steps of its training, where known."""
    actor: Actor

    def describe(self) -> dict[str, Any]:
        """Plain JSON, for the settings of a dataset."""
        digest = hashlib.sha256(self.actor.weights.tobytes()).hexdigest()[:16]
        return {"name": self.name, "step": self.step, "weights": digest}


def check_checkpoints(choice: str) -> None:
    """Refuse what is neither a name nor a range of steps."""
    if choice not in NAMED_CHECKPOINTS:
        _read_range(choice)


def load_policies(run: str | Path, checkpoints: str = "best") -> list[SavedPolicy]:
    """The chosen policies of a run, a member or a single policy's folder, in order."""
    folder = Path(run)
    if not folder.is_dir():
        raise DataError("there is no such folder", file=folder)
    found: list[SavedPolicy] = []
    total = 0
    for path, step in _find(folder, checkpoints):
        actor, about = load_actor_about(path)
        total += count_weights(actor.spec)
        if total > MAX_LOADED_WEIGHTS:
            raise DataError("too many for the memory: choose fewer checkpoints", file=folder)
        name = path.resolve().name if path == folder else path.relative_to(folder).as_posix()
        found.append(SavedPolicy(name, _step_of(about) if step is None else step, actor))
    return found


def _find(folder: Path, checkpoints: str) -> Iterator[tuple[Path, int | None]]:
    if (folder / "members").is_dir():
        members = sorted(path for path in (folder / "members").iterdir() if path.is_dir())
        if not members:
            raise DataError("there are no members in it", file=folder / "members")
        for member in members:
            yield from _find_in_member(member / "policies", checkpoints)
    elif (folder / "policies").is_dir():
        yield from _find_in_member(folder / "policies", checkpoints)
    elif (folder / "config.json").is_file():
        if checkpoints != "best":
            raise DataError(
                f"is a single policy: there are no checkpoints {checkpoints} in it", file=folder
            )
        yield folder, None
    else:
        raise DataError(
            "holds no policies: expected members/, policies/ or config.json", file=folder
        )


def _find_in_member(folder: Path, checkpoints: str) -> list[tuple[Path, int | None]]:
    matches = [(re.fullmatch(r"step-(\d{1,18})", path.name), path) for path in folder.glob("*")]
    steps = sorted((int(match[1]), path) for match, path in matches if match and path.is_dir())
    if checkpoints == "best" and (folder / "best").is_dir():
        return [(folder / "best", None)]
    chosen: list[tuple[int, Path]] = []
    if checkpoints in ("last", "all"):
        chosen = steps[-1:] if checkpoints == "last" else steps
    elif checkpoints != "best":
        first, last = _read_range(checkpoints)
        chosen = [(step, path) for step, path in steps if first <= step <= last]
    if not chosen:
        there = f"there are steps {steps[0][0]} to {steps[-1][0]}" if steps else "there are none"
        if checkpoints == "best" and steps:
            there += ", none of which was evaluated (--checkpoints last takes the last)"
        raise DataError(f"no checkpoints {checkpoints}: {there}", file=folder)
    return [(path, step) for step, path in chosen]


def _read_range(choice: str) -> tuple[int, float]:
    """FIRST:LAST, both included; either may be left out."""
    match = re.fullmatch(r"(\d{0,18}):(\d{0,18})", choice)
    if match is None:
        raise DataError(
            f"expected {', '.join(NAMED_CHECKPOINTS)} or FIRST:LAST, got {choice!r:.40}",
            field="checkpoints",
        )
    first, last = int(match[1] or 0), float(match[2] or "inf")
    if first > last:
        raise DataError(
            f"expected the first step before the last, got {choice}", field="checkpoints"
        )
    return first, last


def _step_of(about: dict[str, Any]) -> int | None:
    step = about.get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) else None
