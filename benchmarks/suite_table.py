"""The table of the suite: means over seeds, and which rows miss a bar.

Bars are those that a release has to reach (`BARS` and the constants below it).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from families import FAMILIES
from suite import TASKS, WORLD_ROWS

Result = dict[str, Any]
BARS = {
    "smooth 200": 0.9908,
    "hard 500": 0.9879,
    "three-way 500": 0.9914,
    "wide 1000": 0.9924,
    "next state": 0.97,
    "terminal bonus": 0.97,
    "terminal penalty": 0.97,
    "rare event": 0.93,
    "rare event of two": 0.93,
    "corrupted returns": 0.98,
    "offset": 0.97,
    "HalfCheetah": 0.97,
    "Hopper": 0.995,
    "Walker2d": 0.995,
    "Swimmer": 0.995,
    "InvertedPendulum": 0.995,
    "InvertedDoublePendulum": 0.995,
    "Reacher": 0.99,
    "Pusher": 0.99,
    "Pendulum": 0.99,
    "Ant": 0.98,
    "Humanoid": 0.9,
}
"""Least Pearson. Of the worlds: what was published before, less .002."""
SECONDS = {"success labels": 20.0, "Ant": 150.0}
"""Most seconds of a whole command on two cores."""
BANDS = 0.85, 0.97
"""Share of the true step rewards that 90 % bands have to hold."""
HARMLESS = 0.05
"""Half the width of 90 % bands, as a share of the spread of the true rewards, up to which they may
hold too much: bands so narrow claim a Pearson of .999, and nobody is misled by a wider one."""
WRONG = 0.8
"""Below this Pearson no decomposition may call itself fine."""
EXACT_MASKS = ("smooth 200", "hard 500")
"""Rows whose masks have to be right on every seed."""
BEHIND = 0.02
"""A row may be so much worse than the best of `RIVALS`."""
RIVALS = ("uniform", "ridge", "rrd")
_MASKS = ("state_to_reward", "action_to_reward")
PEERS = (*RIVALS, "rrd-unbiased")


def find_misses(row: str, own: list[Result], peers: dict[str, float]) -> list[str]:
    """The bars that a row misses, in words."""
    misses = []
    mean = _mean(own, "pearson")
    if round(mean, 4) < BARS.get(row, -1):
        misses.append(f"Pearson under {BARS[row]:g}")
    bands = _mean(own, "step_coverage")
    is_harmless = bands > BANDS[1] and _mean(own, "band") <= HARMLESS
    if not BANDS[0] <= round(bands, 2) <= BANDS[1] and not is_harmless:
        said = ", and said to be conditional" if all(one.get("conditions") for one in own) else ""
        misses.append(f"bands too {'narrow' if bands < BANDS[0] else 'wide'}{said}")
    if any(one["pearson"] < WRONG and one["verdict"]["level"] == "fine" for one in own):
        misses.append("wrong, but fine")
    best = max(
        ((value, name) for name, value in peers.items() if name in RIVALS), default=(-1.0, "")
    )
    if mean < best[0] - BEHIND:
        misses.append(f"{best[1]} is better")
    if _mean(own, "seconds") > SECONDS.get(row, np.inf):
        misses.append(f"over {SECONDS[row]:g} s")
    if row in EXACT_MASKS and any(_mean(own, f"f1_{name}") < 1 for name in _MASKS):
        misses.append("masks")
    return misses


def make_table(results: list[Result]) -> str:
    """All rows in Markdown, and below them what failed."""
    head = ["data", "seeds", "Pearson (worst)", "within", "F1 states, actions"]
    head += ["bands: steps, returns", "s", "fit", "verdict", *PEERS, "misses"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in sorted({result["row"] for result in results}, key=_find_place):
        lines.append(_make_line(row, [r for r in results if r["row"] == row and "error" not in r]))
    for result in results:
        if "error" in result:
            lines.append("")
            lines.append(f"{result['row']}, {result['method']}: {result['error']}")
    return "\n".join(lines)


def _make_line(row: str, results: list[Result]) -> str:
    own = [result for result in results if result["method"] == "grd"]
    peers = {}
    for peer in PEERS:
        those = [result for result in results if result["method"] == peer]
        if those:
            peers[peer] = _mean(those, "pearson")
    cells = [row, str(len(own))]
    misses: list[str] = []
    if own:
        worst = min(result["pearson"] for result in own)
        misses = find_misses(row, own, peers)
        cells += [f"{_show(_mean(own, 'pearson'), 4)} ({_show(worst, 4)})"]
        cells += [_show(_mean(own, "within"), 4)]
        found = [_show(_mean(own, f"f1_{name}"), 2) for name in _MASKS]
        cells += [", ".join(found) if all(found) else ""]
        cells += [
            ", ".join(_percent(_mean(own, f"{name}_coverage")) for name in ("step", "return"))
        ]
        cells += [f"{_mean(own, 'seconds'):.0f}", _describe_fits(own), _describe_verdicts(own)]
    else:
        cells += [""] * 7
    cells += [_show(peers[peer], 3) if peer in peers else "" for peer in PEERS]
    return "| " + " | ".join([*cells, f"**{'; '.join(misses)}**" if misses else ""]) + " |"


def _find_place(row: str) -> tuple[int, str]:
    """Worlds, families and tasks in their order, then other files."""
    known = (*WORLD_ROWS, *FAMILIES, *TASKS)
    return known.index(row) if row in known else len(known), row


def _describe_fits(own: list[Result]) -> str:
    """The moment of the closed form, or the other fit that was chosen."""
    return _list_counts(
        [one.get("moment", "") if one["fit"] == "closed-form" else one["fit"] for one in own]
    )


def _describe_verdicts(own: list[Result]) -> str:
    """The verdicts, and the mean number of findings that call for care."""
    levels = [[finding["level"] for finding in one["findings"]] for one in own]
    worrying = np.mean([sum(level in ("careful", "unreliable") for level in ls) for ls in levels])
    return f"{_list_counts([one['verdict']['level'] for one in own])} ({worrying:.1f})"


def _list_counts(names: list[str]) -> str:
    """Each name, with the number of seeds that have it where they differ."""
    counts = Counter(names)
    if len(counts) == 1:
        return names[0]
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _mean(results: list[Result], name: str) -> float:
    values = [result[name] for result in results if result.get(name) is not None]
    return float(np.mean(values)) if values else float("nan")


def _show(value: float, digits: int) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}".replace("0.", ".", 1)


def _percent(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.0%}"
