"""Names of earlier versions: taken, told and read."""

import json

import pytest
from click.testing import CliRunner

from grd_offline.cli.program import cli
from grd_offline.core.names import find_member_folder, rename_member, rename_model, rename_result


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("grd-closed-form-seed0", "grd-quadratic-seed0"),
        ("grd-no-compact-neural-seed12", "grd-no-compact-joint-net-seed12"),
        ("grd-closed-form", "grd-quadratic"),
        ("grd-neural-learning_rate=0.001-seed1", "grd-joint-net-learning_rate=0.001-seed1"),
        ("grd-paper-seed0", "grd-paper-seed0"),
        ("rrd-seed0", "rrd-seed0"),
        ("grd-neuralgic-seed0", "grd-neuralgic-seed0"),
    ],
)
def test_members_of_runs(tmp_path, old, new):
    assert rename_member(old) == new
    assert rename_member(new) == new
    (tmp_path / "members" / old).mkdir(parents=True)
    assert find_member_folder(tmp_path, new).name == old
    (tmp_path / "members" / new).mkdir(exist_ok=True)
    assert find_member_folder(tmp_path, new).name == new


def test_results_and_models():
    metrics = {
        "fit": "neural",
        "reason": "neural was asked for",
        "alternatives": [{"fit": "closed-form"}, {"fit": "neural"}],
        "settings": {"fit": "neural", "chosen_fit": "neural"},
    }
    assert rename_result(metrics) == {
        "fit": "pair-net",
        "reason": "pair-net was asked for",
        "alternatives": [{"fit": "closed-form"}, {"fit": "pair-net"}],
        "settings": {"fit": "pair-net", "chosen_fit": "pair-net"},
    }
    assert rename_model({"fit": "neural", "method": "grd"}, "network")["fit"] == "pair-net"
    about = {"fit": "closed-form", "member": "grd-closed-form-seed0"}
    renamed = {"fit": "quadratic", "member": "grd-quadratic-seed0"}
    assert rename_model(about, "quadratic") == renamed
    assert rename_model(about, "effects") == about


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["decompose", "none.h5", "--fit", "neural"], "--fit neural is now called pair-net"),
        (
            ["judge", "none.h5", "--env", "Hopper", "--fit", "neural"],
            "--fit neural is now called pair-net",
        ),
        (
            ["train-online", "--env", "Hopper", "--fit", "paper,neural", "--steps", "0"],
            "--fit neural is now called joint-net",
        ),
    ],
)
def test_old_names_are_taken_and_told(command, told):
    done = CliRunner().invoke(cli, command)
    assert done.exit_code != 0
    assert done.stderr.count(f"warning: {told}\n") == 1
    assert "expected one of" not in done.stderr
    assert "is not one of" not in done.stderr


def test_a_run_of_an_earlier_version_is_read(tmp_path):
    from run_folders import write_online_run

    from grd_offline.io.files.runs import choose_member, read_masks, read_run

    run = write_online_run(tmp_path / "run")
    for file in ("settings.json", "evaluations.csv"):
        text = (run / file).read_text()
        text = text.replace("quadratic", "closed-form").replace('"version": 2', '"version": 1')
        (run / file).write_text(text)
    (run / "members" / "grd-quadratic-seed0").rename(run / "members" / "grd-closed-form-seed0")
    found = read_run(run)
    assert {row["group"] for row in found.rows} >= {"grd-quadratic"}
    assert choose_member(found, "masks") == "grd-quadratic-seed0"
    assert read_masks(found, "grd-quadratic-seed0")
    assert "closed-form" not in json.dumps(found.about)
