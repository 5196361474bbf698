"""The page a person looks at: what it says, what it holds, and that it stays one small file."""

import base64
import hashlib
import re
import struct

import numpy as np
import pytest
from browser import EXPECTED, Browser, is_missing
from decompositions import make_effect, write_decomposition
from judgements import write_judgement, write_offline_run
from pages import (
    find_payload,
    find_text,
    refuse_report,
    report_decomposition,
    report_runs,
)
from run_tables import write_run

from grd_offline.cli import main
from grd_offline.core.errors import DataError
from grd_offline.methods.result import read_decomposition
from grd_offline.report.decomposed import MOST_EPISODES, pack_tracks, read_tracks
from grd_offline.report.film import Film
from grd_offline.report.page import find_extremes, pack, pack_series
from grd_offline.report.training import show_spread


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_decomposition(tmp_path_factory.mktemp("report") / "grd")


@pytest.fixture(scope="module")
def page(folder):
    return report_decomposition(folder)


def unpack(packed):
    levels = np.frombuffer(base64.b64decode(packed["data"]), "<u2").astype(float)
    values = packed["low"] + levels * (packed["high"] - packed["low"]) / 65535
    return values.reshape(packed["shape"])


def test_effects_come_by_share_and_drawings_have_numbers(tmp_path):
    effects = [make_effect(["tilt"], 0.3, -2400, 1700), make_effect(["speed"], 0.7)]
    page = report_decomposition(write_decomposition(tmp_path / "grd", effects=effects))
    text = find_text(page)
    assert "speed drives 70 % of the reward's variation" in text
    assert text.index("speed 70 %") < text.index("tilt 30 %")
    first, second = find_payload(page)["effects"]
    assert (first["inputs"], second["inputs"]) == (["speed"], ["tilt"])
    np.testing.assert_allclose(unpack(second["grids"][0]), np.linspace(-2400, 1700, 65), atol=0.04)
    np.testing.assert_allclose(unpack(first["mean"]), 0.7 * np.linspace(-2, 2, 65), atol=1e-4)
    assert "between -720 and 510" in page


def test_pairs_are_named_as_one(tmp_path):
    effects = [make_effect(["height", "speed"], 1.0)]
    page = report_decomposition(write_decomposition(tmp_path / "grd", effects=effects))
    assert "height and speed together drive the reward's variation." in find_text(page)
    assert unpack(find_payload(page)["effects"][0]["mean"]).shape == (9, 9)


def test_no_single_driver_is_said_so(tmp_path):
    effects = [make_effect([name], 0.5) for name in ("height", "tilt")]
    page = report_decomposition(write_decomposition(tmp_path / "grd", effects=effects))
    assert "Most of the reward's variation comes from height and tilt ." in find_text(page)


def test_a_fit_without_effects_names_its_inputs_and_says_why_there_are_no_curves(tmp_path):
    page = report_decomposition(write_decomposition(tmp_path / "grd", effects=[], fit="rrd"))
    text = find_text(page)
    assert "speed and push drive the reward." in text
    assert "The fit rrd gives a reward that is not a sum of effects." in text


def test_a_folder_without_returns_held_out_says_so(tmp_path):
    more = {"held_out": None, "calibration": {"levels": [0.5]}, "held_out_return_r2": None}
    page = report_decomposition(write_decomposition(tmp_path / "grd", **more))
    text = find_text(page)
    assert "All returns were part of the fit; none was held out." in text
    assert "it is not known how well the rewards predict the returns of other episodes" in text
    assert "data-draw='calibration'" not in page


def test_a_page_of_labels_speaks_of_labels(tmp_path):
    folder = write_decomposition(tmp_path / "grd", outcome="success", base=0.5)
    page = report_decomposition(folder)
    text = find_text(page)
    assert text.startswith("data.h5: label decomposition Label decomposition")
    assert "variance of the labels of held-out episodes" in text
    assert "Labels do not determine everything" in text
    assert "a step of reward 1 multiplies the odds of success by 2.72" in text
    assert "of the variance of 2 held-out labels explained (R²)" in text
    assert find_payload(page)["outcome"]["paid"] == "Outcome, known at the last step"
    assert find_payload(page)["reward"] == "log-odds"


def test_the_headline_says_how_sure_and_how_much(page):
    text = find_text(page)
    assert "The rewards explain 98.8 % of the variance of the returns of held-out episodes." in text
    assert "Use these rewards with care: not all is known." in text
    assert "2 of 4 dimensions drive the reward" in text
    assert "2 of 3 state dimensions in the compact state" in text


def test_findings_settings_versions_and_the_command_are_there(page):
    text = find_text(page)
    for part in (
        "Careful Not all is known.",
        "Note Something is known.",
        "These bands rest on assumptions.",
        "grd-offline decompose data.h5",
    ):
        assert part in text
    assert "python 3.11" in text
    assert "h(next state) - h(state) 0.5 25 %" in text
    # A finding has the figure of the moment, so the table has no second one.
    assert "A finding above says how much depends on the moment of a step." in text


def test_the_table_of_what_may_hide_has_the_total_of_the_finding(tmp_path):
    found = {"findings": [], "reward_spread": 10.0, "hidden": {"potentials": 3.0, "other": 4.0}}
    text = find_text(
        report_decomposition(write_decomposition(tmp_path / "d", identifiability=found))
    )
    assert "other 4 40 %" in text
    assert "all of them together 5 50 %" in text
    assert "moment of a step" not in text


def test_numbers_are_large_only_below_a_good_verdict(tmp_path):
    for level in ("fine", "careful", "unreliable"):
        verdict = {"level": level, "text": f"So it is {level}."}
        page = report_decomposition(write_decomposition(tmp_path / level, verdict=verdict))
        assert (f"<p class='verdict {level}'>So it is {level}.</p>") in page
        assert page.index("class='verdict") < page.index("<dl class='facts")
        assert ("<dl class='facts'>" in page) == (level == "fine")
        assert ("should not be relied on" in page) == (level == "unreliable")
        assert ("drives 90" in find_text(page)) == (level != "unreliable")
        # Three sections show what drives the reward.
        assert page.count("<details class='doubtful'>") == 3 * (level == "unreliable")
        assert ("dimensions drive the reward" in page) == (level != "unreliable")


def test_a_fit_that_predicts_nothing_is_no_decomposition(tmp_path):
    page = report_decomposition(write_decomposition(tmp_path / "grd", held_out_return_r2=-0.34))
    text = find_text(page)
    assert "No reliable decomposition. Use these rewards with care" in text
    assert "drives 90" not in text
    assert "no better than the mean return does" in text
    assert "-0.34 R² of 2 held-out returns" in text
    assert "class='verdict unreliable'" in page


def test_a_folder_without_a_verdict_is_used_with_care(tmp_path):
    page = report_decomposition(write_decomposition(tmp_path / "grd", verdict=None))
    assert "Use these rewards with care: an earlier version made them" in page
    assert "class='facts small'" in page


def test_episodes_are_exact_where_they_are_short(folder, page):
    viewer = find_payload(page)["viewer"]
    assert viewer["series"] == {
        "spiky": ["reward", "true", "gap", "input0", "input1"],
        "smooth": ["std", "sum", "trueSum"],
        "inputs": ["speed", "push"],
        "drawn": 2,
        "terms": [],
        "termInputs": [],
        "few": [],
        "labels": [],
    }
    assert [episode["length"] for episode in viewer["episodes"]] == list(range(50, 56))
    tracks = read(folder).chosen
    for episode in viewer["episodes"]:
        track = tracks[episode["index"]]
        assert episode["width"] == 1
        assert episode["return"] == pytest.approx(track.observed.sum())
        assert episode["deliveries"] == [[episode["length"] - 1, episode["return"]]]
        assert episode["sum"] == pytest.approx(track.rewards.sum())
        levels = np.frombuffer(base64.b64decode(episode["data"]), "<u2").reshape(8, -1)
        values = [track.rewards, track.true, track.rewards - track.true]
        values += [*track.inputs, track.std]
        values += [track.rewards.cumsum(), track.true.cumsum()]
        for found, (low, high), true in zip(levels, episode["ranges"], values, strict=True):
            np.testing.assert_allclose(
                low + found * ((high - low) / 65535), true, atol=1e-4 * (1 + np.ptp(true))
            )


def read(folder):
    return read_tracks(read_decomposition(folder))


def test_terminations_and_midpoints_are_shown_along_an_episode(tmp_path):
    names = ("terminated", "speed (midpoint)", "speed'", "speed")
    effects = [make_effect([name], share) for share, name in zip((4, 3, 2, 1), names, strict=True)]
    tracks = read(write_decomposition(tmp_path / "grd", effects=effects))
    assert tuple(one.name for one in tracks.inputs) == names
    ended, middle, following, speed = tracks.chosen[0].inputs
    assert not ended.any()  # truncated, which is no termination
    assert ended.shape == speed.shape
    np.testing.assert_array_equal(following[:-1], speed[1:])
    np.testing.assert_allclose(middle, (speed + following) / 2, atol=1e-6)


def test_landmarks_are_the_best_the_median_and_the_worst(folder, page):
    landmarks = find_payload(page)["viewer"]["landmarks"]
    returns = [track.observed.sum() for track in read(folder).chosen.values()]
    assert landmarks["best"] == int(np.argmax(returns))
    assert landmarks["worst"] == int(np.argmin(returns))
    assert landmarks["median"] == int(np.argsort(returns)[2])


def test_long_series_keep_their_extremes_where_they_stand():
    values = np.zeros(100)
    values[37], values[38] = 5.0, -7.0
    steps, kept = find_extremes(values, 8)
    assert kept.shape == (13, 2)
    assert dict(zip(steps[4], kept[4], strict=True)) == {37: 5.0, 38: -7.0}
    assert steps.max() <= 99
    packed = pack_series([values], [values.cumsum()], 8)
    data = base64.b64decode(packed["data"])
    assert len(data) == 2 * (26 + 13) + 13
    place = data[2 * (26 + 13) + 4]
    assert (32 + (place >> 4), 32 + (place & 15)) == (37, 38)
    (last,) = struct.unpack_from("<H", data, 2 * (26 + 12))
    low, high = packed["ranges"][1]
    assert low + last * (high - low) / 65535 == pytest.approx(-2.0, abs=1e-3)


def test_thinning_fits_the_budget_and_spares_the_landmarks(tmp_path):
    tracks = read(write_decomposition(tmp_path / "grd", episodes=20, steps=900))
    packed = pack_tracks(tracks, 120_000)
    assert packed["width"] > 1
    widths = {e["index"]: e["width"] for e in packed["episodes"]}
    assert {widths[index] for index in packed["landmarks"].values()} == {1}
    assert set(widths.values()) == {1, packed["width"]}
    assert sum(len(episode["data"]) for episode in packed["episodes"]) <= 121_000


@pytest.mark.long
def test_of_many_episodes_some_are_shown_evenly_by_return(tmp_path):
    tracks = read(write_decomposition(tmp_path / "grd", episodes=MOST_EPISODES + 20, steps=2))
    assert len(tracks.chosen) == MOST_EPISODES
    order = np.argsort(tracks.returns[:, 0])
    assert {order[0], order[-1]} <= set(tracks.chosen)
    assert len(tracks.returns) == MOST_EPISODES + 20


def test_rewards_of_every_step_are_shown_as_the_return_that_was_used(tmp_path):
    settings = {"gamma": 0.5, "truth": "rewards", "step_rewards": False}
    folder = write_decomposition(tmp_path / "grd", settings=settings, delay="step")
    track = read(folder).chosen[0]
    last = track.true[-1]  # the helper delivers at the last step only
    assert np.flatnonzero(track.observed).tolist() == [49]
    assert track.delivered == pytest.approx(last * 0.5**49)


def test_numbers_become_levels_and_come_back():
    values = np.random.default_rng(0).normal(size=(7, 3))
    np.testing.assert_allclose(unpack(pack(values)), values, atol=np.ptp(values) / 65535)
    assert unpack(pack([2.0, 2.0])).tolist() == [2.0, 2.0]


def test_only_the_two_scripts_may_run(page):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-(.*?)'", policy) == hashes
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert re.findall(r"<(?:link|img|script|iframe)[^>]*(?:src|href)=\"(?!data:)", page) == []


def test_drawings_say_what_is_seen(page):
    labels = re.findall(r"data-draw='(\w+)' role='img' aria-label='(.*?)'", page)
    assert {kind for kind, _ in labels} == {
        *("importance", "viewer", "effect", "graph", "maps", "returns", "calibration"),
        *("pinned",),
    }
    assert all(len(label) > 20 for _, label in labels)
    said = dict(labels)
    assert "driven by speed and push; the compact state has 2 dimensions" in said["graph"]
    assert "the least of push, 30\N{NO-BREAK SPACE}%" in said["pinned"]


@pytest.mark.parametrize("name", ["metrics", "masks", "effects"])
def test_broken_folders_are_one_line(tmp_path, name, capsys):
    folder = write_decomposition(tmp_path / "grd")
    for text, message in (("{}", "do not fit together"), ("{", "cannot be read"), ("[]", "object")):
        (folder / f"{name}.json").write_text(text)
        with pytest.raises(DataError, match=message):
            report_decomposition(folder)
    with pytest.raises(SystemExit) as stopped:
        main(["report", str(folder)])
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (folder / "report.html").exists()


@pytest.mark.long
def test_the_command_writes_a_page_of_either_kind(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_decomposition(tmp_path / "grd")
    write_run(tmp_path / "one")
    write_run(tmp_path / "two", groups=("rrd",))
    write_judgement(tmp_path / "judge")
    for arguments, written in (
        (["grd"], "grd/report.html"),
        (["one"], "one/report.html"),
        (["judge"], "judge/report.html"),
        (["judge/run"], "judge/run/report.html"),
        (["one", "two", "-o", "both.html"], "both.html"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["report", *arguments])
        assert stopped.value.code == 0
        assert capsys.readouterr().out == f"wrote {written}\n"
        assert (tmp_path / written).read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (
            ["grd", "one"],
            "expected one decomposition, one judgement, one sweep, or one or more runs",
        ),
        (
            ["judge", "one"],
            "expected one decomposition, one judgement, one sweep, or one or more runs",
        ),
        (["one", "--video", "--env", "Hopper"], "only a decomposition has episodes"),
        (["judge", "--video", "--env", "Hopper"], "only a decomposition has episodes"),
        (["grd", "--video"], "--video and --env go together"),
        (["grd", "--env", "Hopper"], "--video and --env go together"),
        (["grd", "--video", "--env", "Hoper"], "did you mean Hopper"),
    ],
)
def test_refusals_are_one_line(tmp_path, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_decomposition(tmp_path / "grd")
    write_run(tmp_path / "one")
    write_judgement(tmp_path / "judge")
    refuse_report(arguments, message, capsys)


def test_a_page_of_runs_has_curves_masks_rewards_and_speed(tmp_path):
    page = report_runs([write_run(tmp_path / "run")])
    payload, text = find_payload(page), find_text(page)
    returns = payload["metrics"][0]
    assert [curve["label"] for curve in returns["curves"]] == ["ircr", "grd-quadratic", "oracle"]
    assert returns["curves"][1]["means"] == [2.5, 4.5, 6.5, 8.5, 10.5]
    assert returns["curves"][1]["lines"][1] == {
        "seed": "1", "steps": [1000, 2000, 3000, 4000, 5000], "values": [3, 5, 7, 9, 11]
    }  # fmt: skip
    assert "Two seeds are too few to name a best method on Some-v0." in text
    assert "oracle reaches 15.5 ± 0.5" in text
    (masks,) = payload["masks"]
    assert [moment["step"] for moment in masks["moments"]] == [1000, 2000, 3000, 4000, 5000]
    mask = base64.b64decode(masks["moments"][0]["masks"]["state_to_state"])
    assert np.frombuffer(mask, np.uint8).reshape(4, 4).tolist() == np.eye(4).tolist()
    ircr, grd = payload["episodes"]
    assert (ircr["label"], grd["label"]) == ("ircr-seed0", "grd-quadratic-seed1")
    assert grd["moments"][-1]["match"] == "correlation 1.00"
    assert grd["moments"][-1]["scaled"]


def test_a_run_whose_page_fails_is_still_a_run(tmp_path, capsys):
    from grd_offline.cli.results import leave_report

    leave_report(tmp_path)
    assert (
        capsys.readouterr().err == f"warning: no report: {tmp_path}: not a run: no settings.json\n"
    )
    leave_report(write_run(tmp_path / "run"))
    assert capsys.readouterr().out == f"look at {tmp_path / 'run' / 'report.html'}\n"
    assert (tmp_path / "run" / "report.html").stat().st_size < 2_000_000


def test_a_page_of_an_offline_run_speaks_of_updates(tmp_path):
    page = report_runs([write_offline_run(tmp_path / "run")])
    payload, text = find_payload(page), find_text(page)
    assert "Two seeds are too few to name a best method on Some-v0." in text
    assert (
        "after 4,000 updates: mean and standard deviation over 2 seeds. grd has 292 ± 11." in text
    )
    assert "With the true reward, policies reach 301 ± 10." in text
    assert "run, from data.h5" in text
    assert "run 10 4,000 30 s 1,333 cpu" in text
    assert "steps" not in text[: text.index("Make it again run")]
    assert payload["unit"] == "updates"
    assert [metric["key"] for metric in payload["metrics"]] == ["return"]
    assert "data-draw='run-masks'" not in page
    assert "data-draw='rewards'" not in page
    both = report_runs([write_run(tmp_path / "online"), tmp_path / "run"])
    assert find_payload(both)["unit"] == "environment steps or updates"


@pytest.mark.parametrize(
    ("mean", "spread", "seeds", "text"),
    [
        (288.2, 3.76, 3, "288 ± 4"),
        (22.81, 29.89, 3, "22.8 ± 29.9"),
        (6670.4, 315.2, 5, "6,670 ± 315"),
        (30.0, 10.0, 2, "30 ± 10"),
        (0.1234, 0.00451, 2, "0.123 ± 0.005"),
        (-250.0, 0.02, 2, "-250 ± 0.02"),
        (0.0, 0.0, 2, "0"),
        (288.2, 0.0, 1, "288"),
    ],
)
def test_means_and_spreads_have_as_many_places(mean, spread, seeds, text):
    assert show_spread(mean, spread, seeds).replace("\N{NO-BREAK SPACE}", " ") == text


def test_a_video_that_fails_is_told_on_the_terminal_too(tmp_path, monkeypatch, capsys):
    folder = write_decomposition(tmp_path / "grd")
    monkeypatch.setattr(
        "grd_offline.report.decomposed.make_film", lambda *_: Film("No video: of that.")
    )
    with pytest.raises(SystemExit) as end:
        main(["report", str(folder), "--video", "--env", "HalfCheetah"])
    assert end.value.code == 0
    assert capsys.readouterr().err == "warning: No video: of that.\n"
    assert "No video: of that." in (folder / "report.html").read_text()


def test_a_browser_that_is_expected_and_missing_is_a_failure(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(EXPECTED, raising=False)
    assert is_missing()
    monkeypatch.setenv(EXPECTED, "1")
    assert not is_missing()
    with pytest.raises(AssertionError, match="no browser on the PATH"):
        Browser()
