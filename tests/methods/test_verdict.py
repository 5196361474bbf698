"""One line says whether rewards can be used, and nothing better than the worst finding."""

from __future__ import annotations

import pytest

from grd_offline.methods.contract import CAREFUL, FINE, NOTE, UNRELIABLE, Finding
from grd_offline.methods.verdict import (
    check_examined,
    check_held_out,
    check_truth,
    reach_verdict,
    settle_findings,
)

GOOD = Finding(FINE, "All is well.")
CARE = Finding(CAREFUL, "Something is odd here.", "something is odd")
BAD = Finding(UNRELIABLE, "All is lost here.", "all is lost")


def describe(r2: float, inside: float = 0.9, count: int = 40) -> dict[str, float]:
    return {
        "held_out_return_r2_without_outliers": r2,
        "held_out_return_coverage_90": inside,
        "held_out_returns": count,
    }


@pytest.mark.parametrize(
    ("findings", "level", "text"),
    [
        ([GOOD], FINE, "These rewards can be used: no finding calls for care."),
        ([GOOD, CARE], CAREFUL, "Use these rewards with care: something is odd."),
        ([CARE, BAD, GOOD], UNRELIABLE, "Do not rely on these rewards: all is lost."),
        ([CARE] * 5, CAREFUL, f"Use these rewards with care: {'something is odd; ' * 3}2 more."),
    ],
)
def test_the_worst_finding_decides(findings, level, text) -> None:
    assert reach_verdict(findings) == (level, text)


def test_findings_come_worst_first_and_none_is_fine_beside_care() -> None:
    settled = settle_findings([GOOD, CARE, BAD])
    assert [finding.level for finding in settled] == [UNRELIABLE, CAREFUL, NOTE]
    assert settle_findings([GOOD, GOOD]) == [GOOD, GOOD]
    assert settle_findings(settled) == settled
    assert settle_findings([GOOD, *settled[1:]])[-1].level == NOTE


def test_a_finding_names_the_figure_of_tables_where_outliers_change_it() -> None:
    (finding,) = check_held_out({**describe(0.95), "held_out_return_r2": 0.3})
    assert "with them it is 30 %." in finding.text
    (finding,) = check_held_out({**describe(0.95), "held_out_return_r2": 0.9501})
    assert "with them" not in finding.text


def test_too_few_episodes_are_told_how_many_would_do() -> None:
    finding = check_held_out(describe(0.95, count=2))[0]
    assert finding.text.endswith("About 100 episodes are a good start.")


@pytest.mark.parametrize(
    ("r2", "level", "words"),
    [
        (-0.2, UNRELIABLE, "explain nothing of how"),
        (0.3, UNRELIABLE, "explain only 30 % of how"),
        (0.7, CAREFUL, "explain 70 % of how"),
        (0.95, FINE, "explain 95 % of how"),
        (0.9997, FINE, "explain 99.97 % of how"),
        (1.0, FINE, "explain 100 % of how"),
    ],
)
def test_what_is_explained_of_returns_held_out(r2, level, words) -> None:
    (finding,) = check_held_out(describe(r2))
    assert finding.level == level
    assert words in finding.text
    assert bool(finding.short) == (level != FINE)


@pytest.mark.parametrize(
    ("r2", "possible", "level"),
    [
        (0.46, 0.5, CAREFUL),  # labels that are half chance, with chances that are right
        (0.46, 0.9, UNRELIABLE),  # predictions that are too sure of themselves
        (0.1, 0.1, UNRELIABLE),
        (0.46, None, UNRELIABLE),  # numbers
        (0.95, 0.95, FINE),
    ],
)
def test_labels_that_are_partly_chance(r2, possible, level):
    (finding,) = check_held_out({**describe(r2), "held_out_chance_r2": possible})
    assert finding.level == level
    assert ("chances are about right" in finding.text) == (level == CAREFUL)


@pytest.mark.parametrize(
    ("inside", "count", "level"),
    [
        (0.02, 40, UNRELIABLE),
        (0.75, 40, CAREFUL),
        (0.85, 40, None),
        (0.85, 400, CAREFUL),
        (0.89, 400, None),
        (1.0, 400, None),
    ],
)
def test_intervals_that_fail_on_returns_held_out(inside, count, level) -> None:
    """Only where chance does not explain it."""
    found = [f for f in check_held_out(describe(0.99, inside, count)) if "narrow" in f.text]
    assert [finding.level for finding in found] == ([] if level is None else [level])


def test_too_few_returns_held_out_prove_nothing() -> None:
    assert check_held_out(None)[0].level == CAREFUL


@pytest.mark.parametrize(("r2", "level"), [(0.99, CAREFUL), (0.9, UNRELIABLE)])
def test_narrow_bands_of_rewards_that_are_right_call_for_care_alone(r2, level):
    """Episodes of one step show how good single rewards are, so only the bands are wrong."""
    held_out = describe(r2, 0.05, 40)
    (narrow,) = [one for one in check_held_out(held_out, of_steps=True) if "narrow" in one.text]
    assert narrow.level == level
    (narrow,) = [one for one in check_held_out(held_out) if "narrow" in one.text]
    assert narrow.level == UNRELIABLE
    (equal,) = check_held_out({**describe(0.0), "held_out_returns_differ": False})
    assert (equal.level, "all equal" in equal.text) == (CAREFUL, True)
    first, *_ = check_held_out(describe(1.0, count=4))
    assert (first.level, first.short) == (CAREFUL, "only 4 returns were held out")
    assert all(finding.level == FINE for finding in check_held_out(describe(1.0, count=10)))


@pytest.mark.parametrize(("pearson", "level"), [(0.5, UNRELIABLE), (0.85, CAREFUL), (0.97, FINE)])
def test_the_truth_counts_where_it_is_known(pearson, level) -> None:
    (finding,) = check_truth({"pearson": pearson, "coverage_90": 0.9})
    assert finding.level == level
    assert f"{pearson:.2f}" in finding.text
    assert check_truth(None) == []


def test_bands_that_miss_the_truth_call_for_care() -> None:
    *_, finding = check_truth({"pearson": 0.99, "coverage_90": 0.4})
    assert finding.level == CAREFUL
    assert "90 % bands hold 40 % of the true rewards" in finding.text


def test_a_fit_that_was_not_examined_is_used_with_care() -> None:
    assert check_examined([])[0].level == CAREFUL
    assert check_examined([GOOD]) == []
