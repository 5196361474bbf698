"""The page of a judgement: what it says of policies trained on the rewards."""

import pytest
from judgements import SCORES, write_judgement
from pages import find_payload, find_text, refuse_report, report_judgement

from grd_offline.report.training import find_rivals, is_clearly_better


def test_a_verdict_says_what_policies_reach(tmp_path):
    page = report_judgement(write_judgement(tmp_path / "judge"))
    payload, text = find_payload(page), find_text(page)
    # By hand: means 300, 29, 291, 210 and 210; the data have -100.
    said = [
        "Two seeds are too few to name a best method.",
        "Each method has only 2 seeds. Differences between the means may be chance.",
        "IQL trained 2 policies on the rewards of each source, with 4,000 updates",
        "do not show that it is better than uniform, ircr and observed.",
        "210 ± 10 true return with the rewards of uniform",
        "291 ± 11 true return with the rewards of grd",
        "300 ± 10 with the true rewards",
        "-100 mean return of the data",
        "grd 291 ± 11 97 % 98 % 0.995",
        "observed 29 ± 9 10 % 32 % 0.030",
        "uniform and ircr have the same returns, so their lines coincide.",
        "grd grd-fit 0.876 12.3 grd was asked for",
        "grd-offline judge data.h5 --env Some-v0",
        "torch 2.13.0",
    ]
    assert [line for line in said if line not in text] == []
    assert [one["source"] for one in payload["verdicts"]] == [
        "true", "grd", "uniform", "ircr", "observed"
    ]  # fmt: skip
    assert payload["seeds"] == [5, 6]
    assert payload["unit"] == "updates"
    assert (payload["true"], payload["data"]) == (300.0, -100.0)
    near = {point["source"]: (point["pearson"], point["mean"]) for point in payload["nearness"]}
    assert near == {"true": (1, 300), "grd": (0.995, 291), "uniform, ircr": (0.45, 210),
                    "observed": (0.03, 29)}  # fmt: skip
    (returns,) = payload["metrics"]  # a correlation that never changes is not drawn
    assert [curve["label"] for curve in returns["curves"]][:2] == ["true", "grd"]
    assert returns["curves"][1]["means"] == [241, 290, 291, 292]
    # The best method has the first colour, and the same one on each drawing.
    looks = {curve["label"]: curve["look"] for curve in returns["curves"]}
    assert looks["grd"] == 0
    assert all(one["look"] == looks[one["source"]] for one in payload["verdicts"])


def test_a_verdict_without_the_truth_has_no_shares(tmp_path):
    scores = {name: values for name, values in SCORES.items() if name != "true"}
    page = report_judgement(write_judgement(tmp_path / "judge", scores=scores))
    payload, text = find_payload(page), find_text(page)
    assert "Two seeds are too few to name a best method." in text
    assert "The data contain no true rewards." in text
    assert "of true" not in text
    assert "Pearson" not in text
    assert payload["nearness"] == []
    assert "id='scale'" not in page
    assert "data-draw='nearness'" not in page


@pytest.mark.parametrize(
    ("scores", "data_mean", "words"),
    [
        # No share of a return that is not above 0; of the gain there is.
        (
            {"true": (-100.0,), "grd": (-120.0,)},
            -200.0,
            "found by grd gain 80 % of what the true rewards gain over the data.",
        ),
        # The truth gains 5 over the data and spreads by 10: shares of that are chance.
        (
            {"true": (-105.0, -85.0), "grd": (-80.0, -70.0)},
            -100.0,
            "found by grd reach -75 ± 5 on Some-v0.",
        ),
        (
            {"true": (-105.0, -85.0), "grd": (-80.0, -70.0)},
            -100.0,
            "Policies trained on the true rewards do not clearly reach more than the data.",
        ),
        # Worse than nothing: a negative share says less than the return.
        ({"true": (10.0,), "grd": (-5.0,)}, 0.0, "found by grd reach -5 on Some-v0."),
        (
            {"true": (10.0,), "grd": (-5.0,)},
            0.0,
            "Each method has only 1 seed. Differences between the means may be chance.",
        ),
        ({"true": (10.0, 10.0), "grd": (11.0, 12.0)}, 0.0, "reach 115 % of what"),
        # Three seeds that do not overlap are clear; three that do are not.
        (
            {"true": (9.0, 10.0, 11.0), "grd": (7.0, 8.0, 9.0), "uniform": (1.0, 2.0, 3.0)},
            0.0,
            "Policies trained on rewards found by grd reach 80 % of what the true rewards reach.",
        ),
        (
            {"true": (9.0, 10.0, 11.0), "grd": (2.0, 8.0, 9.0), "uniform": (1.0, 2.5, 3.0)},
            0.0,
            "No method is clearly the best. Each method has only 3 seeds.",
        ),
        (
            {"observed": (9.0, 9.0), "uniform": (3.0, 3.0)},
            0.0,
            "No method reaches more than the delayed rewards as they are.",
        ),
    ],
)
def test_the_headline_of_a_verdict_fits_the_numbers(tmp_path, scores, data_mean, words):
    folder = write_judgement(tmp_path / "judge", scores=scores, data_mean=data_mean)
    assert words in find_text(report_judgement(folder))


def test_a_verdict_without_a_known_return_of_the_data(tmp_path):
    scores = {"uniform": (3.0, 5.0)}
    folder = write_judgement(tmp_path / "j", scores=scores, data_mean=None, stopped=True)
    page = report_judgement(folder)
    assert "The training was stopped early." in find_text(page)
    assert "mean return of the data" not in find_text(page)
    assert find_payload(page)["data"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "judge.json: is not a grd-offline judge"),
        ({"version": 2}, "judge.json: version: expected 1, got 2"),
        ({"verdicts": []}, "judge.json: expected a verdict on at least one method"),
        (
            {"verdicts": [{"source": "grd"}]},
            "judge.json: verdicts[0]: object missing required field scores",
        ),
        ({"data": None}, "judge.json: cannot be read as verdicts: TypeError"),
        ({"settings": {}}, "judge.json: cannot be read as verdicts: KeyError"),
    ],
)
def test_broken_verdicts_are_one_line(tmp_path, change, message, capsys):
    folder = write_judgement(tmp_path / "judge", **change)
    refuse_report([str(folder)], message, capsys)


def test_seeds_decide_whether_there_is_a_best():
    high, low = [5.0, 6.0, 7.0, 8.0, 9.0], [0.0, 1.0, 2.0, 3.0, 5.5]
    assert not is_clearly_better(high[:2], low[:2])  # two seeds never are enough
    assert is_clearly_better(high[:3], low[:3])
    assert is_clearly_better(high, low)
    assert not is_clearly_better(low, high)
    assert not is_clearly_better(high, high)
    assert is_clearly_better(high * 3, low * 3)  # too many splits to try all of them
    assert find_rivals({"a": high, "b": low, "c": high[:2]}, "a") == ["c"]
