"""The verdict: one line that says whether rewards can be used. The terminal and the report show it
first.

The findings of a method say what returns leave open. To these come findings on returns held out,
and on the true rewards where they are known. The worst finding decides the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.words import DO_NOT_RELY, format_share
from grd_offline.methods.checks import find_base, find_copies, find_totals
from grd_offline.methods.contract import (
    CAREFUL,
    FINE,
    NOTE,
    UNRELIABLE,
    Decomposer,
    Finding,
    Verdict,
)

LITTLE, MUCH = 0.5, 0.9
"""R² of returns held out: below the first most is not explained, from the second on enough is."""
LITTLE_OF_LABELS = 0.2
"""The same for labels whose predicted chances are about right."""
_ABOUT_RIGHT = 0.1  # of the variance of the labels
FEWEST_HELD_OUT = 10
"""Fewer returns held out cannot test rewards."""
ENOUGH_EPISODES = 100
"""With so many episodes, most decompositions can be believed; see docs/faq.md."""
_FAILING = 0.5
"""If 90 % intervals hold less than this fraction, the fitted reward did not make these returns."""
_RIGHT = 0.95
"""If so much of how single rewards held out differ is explained, the rewards are right."""
_BAD_CORRELATION, _GOOD_CORRELATION = 0.8, 0.9
_NARROW = 0.8
_ORDER = (UNRELIABLE, CAREFUL, FINE, NOTE)
_MOST_REASONS = 3


def gather_findings(
    decomposer: Decomposer,
    episodes: EpisodeSet,
    held_out: Mapping[str, Any] | None,
    truth: Mapping[str, float] | None = None,
) -> tuple[list[Finding], dict[str, Any]]:
    """Gather all findings on a fit, the worst first, and the numbers behind those of its method.

    `held_out` is what the chosen candidate describes, and `truth` compares with true rewards.
    """
    own, numbers = decomposer.examine(episodes)
    outcome = decomposer.function_.outcome
    findings = [*check_truth(truth), *check_examined(own, outcome), *own]
    findings += find_base(decomposer, episodes)
    findings += [*find_totals(decomposer, episodes), *find_copies(episodes, outcome)]
    # Where no effect was found, the method says so already.
    if not own or decomposer.function_.explain().effects:
        findings += check_held_out(held_out, outcome, of_steps=bool(episodes.lengths.max() == 1))
    return settle_findings(findings), numbers


def reach_verdict(findings: Sequence[Finding]) -> Verdict:
    """Combine all findings into one verdict."""
    for level, start in (
        (UNRELIABLE, DO_NOT_RELY),
        (CAREFUL, "Use these rewards with care"),
    ):
        reasons = [finding.short or finding.text for finding in findings if finding.level == level]
        if reasons:
            more = len(reasons) - _MOST_REASONS
            shown = [*reasons[:_MOST_REASONS], *([f"{more} more"] if more > 0 else [])]
            return Verdict(level, f"{start}: {'; '.join(shown)}.")
    return Verdict(FINE, "These rewards can be used: no finding calls for care.")


def settle_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Sort the findings, the worst first. No finding is called fine beside one that calls for
    care."""
    good = FINE if all(finding.level == FINE for finding in findings) else NOTE
    levels = {FINE: good}
    settled = [one._replace(level=levels.get(one.level, one.level)) for one in findings]
    return sorted(settled, key=lambda finding: _ORDER.index(finding.level))


def check_examined(findings: Sequence[Finding], outcome: Outcome = NUMBER) -> list[Finding]:
    """A finding where the method says nothing about what returns leave open."""
    if findings:
        return []
    text = (
        f"This fit cannot say what {outcome.plural} leave open, because only the closed form can. "
        f"A fit may explain all {outcome.plural} and still be wrong at single steps."
    )
    return [Finding(CAREFUL, text, f"this fit cannot say what {outcome.plural} leave open")]


def check_held_out(
    held_out: Mapping[str, Any] | None, outcome: Outcome = NUMBER, *, of_steps: bool = False
) -> list[Finding]:
    """Findings on returns that the fit had not seen; `held_out` is what a candidate describes.

    `of_steps` says that each return is the reward of a single step.
    """
    if held_out is None:
        text = (
            f"No {outcome.plural} were held out, so it is not known how well the rewards predict."
        )
        return [Finding(CAREFUL, text, f"no {outcome.plural} were held out")]
    count = int(held_out["held_out_returns"])
    if count < FEWEST_HELD_OUT:
        text = (
            f"{outcome.plural.capitalize()} held out: {count}. Fewer than {FEWEST_HELD_OUT} cannot "
            f"test how well the rewards predict. About {ENOUGH_EPISODES} episodes are a good start."
        )
        short = f"only {count} {outcome.plural} were held out"
        few = [Finding(CAREFUL, text, short)] if count else []
        return few + (_check_explained(held_out, outcome) if count > 1 else [])
    intervals = _check_intervals(held_out, outcome, count, of_steps)
    return [*_check_explained(held_out, outcome), *intervals]


def _check_explained(held_out: Mapping[str, Any], outcome: Outcome) -> list[Finding]:
    returns = outcome.plural
    r2 = float(held_out["held_out_return_r2_without_outliers"])
    if not held_out.get("held_out_returns_differ", True):
        short = f"the {returns} held out are all equal, and cannot test them"
        text = f"The {returns} held out are all equal: no test of the rewards."
        return [Finding(CAREFUL, text, short)]
    if _is_chance(held_out, r2):
        text = (
            f"The rewards explain {format_share(r2)} of how {returns} of episodes held out differ. "
            "The predicted chances are about right, so the rest is chance, or depends on something "
            "that was not found."
        )
        return [Finding(CAREFUL, text, f"they explain {format_share(r2)} of how {returns} differ")]
    if r2 < LITTLE:
        told, rest = (
            ("nothing", "The differences") if r2 <= 0 else (f"only {format_share(r2)}", "The rest")
        )
        short = f"they explain {told} of how {returns} held out differ"
        rest = f"{_tell_outliers(held_out, outcome, r2)}{rest}"
        verbs = "are noise, or depend" if r2 <= 0 else "is noise, or depends"
        text = (
            f"The rewards explain {told} of how {returns} of episodes held out differ. {rest} "
            f"{verbs} on something that was not found."
        )
        return [Finding(UNRELIABLE, text, short)]
    if r2 < MUCH:
        text = (
            f"The rewards explain {format_share(r2)} of how {returns} of episodes held out differ. "
            f"{_tell_outliers(held_out, outcome, r2)}The other differences are noise, or depend on "
            "something that was not found."
        )
        return [Finding(CAREFUL, text, f"they explain {format_share(r2)} of how {returns} differ")]
    text = (
        f"The rewards explain {format_share(r2)} of how {returns} of episodes held out differ. "
        f"{_tell_outliers(held_out, outcome, r2)}"
    )
    return [Finding(FINE, text.rstrip())]


def _is_chance(held_out: Mapping[str, Any], r2: float) -> bool:
    """Whether labels are hard to predict, and the predicted chances are right all the same."""
    possible = held_out.get("held_out_chance_r2")
    is_right = possible is not None and abs(float(possible) - r2) < _ABOUT_RIGHT
    return is_right and LITTLE_OF_LABELS <= r2 < MUCH


def _tell_outliers(held_out: Mapping[str, Any], outcome: Outcome, r2: float) -> str:
    """Say how much is explained with outliers, which tables and headlines have, if it differs."""
    every = float(held_out.get("held_out_return_r2", r2))
    if format_share(max(every, 0.0)) == format_share(max(r2, 0.0)):
        return ""
    told = "nothing" if every <= 0 else format_share(every)
    far = f"{outcome.plural} that are far from all others"
    return f"This leaves out {far}; with them it is {told}. "


def _check_intervals(
    held_out: Mapping[str, Any], outcome: Outcome, count: int, of_steps: bool
) -> list[Finding]:
    """Whether fewer returns lie inside 90 % intervals than chance explains.

    If returns are rewards of steps and nearly all of their differences is explained, the bands are
    wrong, but not the rewards.
    """
    inside = float(held_out["held_out_return_coverage_90"])
    if inside >= 0.9 - 2 * float(np.sqrt(0.9 * 0.1 / count)):
        return []
    text = (
        f"The bands are too narrow: 90 % intervals hold {format_share(inside)} of {count} "
        f"{outcome.plural} held out. Something that moves {outcome.plural} is not in the rewards."
    )
    is_right = of_steps and float(held_out["held_out_return_r2_without_outliers"]) >= _RIGHT
    level = UNRELIABLE if inside < _FAILING and not is_right else CAREFUL
    short = f"90 % intervals hold {format_share(inside)} of {outcome.plural} held out"
    return [Finding(level, text, short)]


def check_truth(truth: Mapping[str, float] | None) -> list[Finding]:
    """Findings on the true rewards of the steps, where they are known."""
    if truth is None:
        return []
    correlation, inside = float(truth["pearson"]), float(truth["coverage_90"])
    short = f"correlation with the true rewards is {correlation:.2f}"
    level = UNRELIABLE if correlation < _BAD_CORRELATION else CAREFUL
    level = FINE if correlation >= _GOOD_CORRELATION else level
    found = [Finding(level, f"The {short}.", f"the {short}")]
    if inside < _NARROW:
        narrow = f"90 % bands hold {format_share(inside)} of the true rewards"
        found.append(Finding(CAREFUL, f"The {narrow}, so they are too narrow.", narrow))
    return found
