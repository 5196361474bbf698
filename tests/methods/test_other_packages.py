"""The method that CONTRIBUTING.md adds, in a package of its own: installed, and run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.long

COMMAND = str(Path(sys.executable).with_name("grd-offline"))
ENV = (
    *("--env", "grd/Factored-v0", "--env-arg", "length=10", "--env-arg", "states=5"),
    *("--env-arg", "actions=2"),
)
SMALL = ("--seeds", "1", "--updates", "20", "--batch", "16", "--eval-every", "10")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder to put on the path, with the package in it."""
    folder = tmp_path_factory.mktemp("package")
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code, project = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("python", "toml")
    )
    (folder / "second_half.py").write_text(code)
    (folder / "pyproject.toml").write_text(project)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--target", folder / "site", folder),
        ],
        check=True,
    )
    return folder / "site"


def run(folder, installed, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [COMMAND, *arguments], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_method_of_another_package_joins(installed, tmp_path):
    told = " ".join(run(tmp_path, installed, "decompose", "--help").split())
    assert "uniform, second-half." in told
    data = ("--episodes", "12", "--workers", "1", "--keep-true-rewards", "--out", "data.h5")
    run(tmp_path, installed, "collect", *ENV, *data)
    told = run(tmp_path, installed, "decompose", "data.h5", "--method", "second-half")
    assert "second-half does not look for masks" in " ".join(told.split())
    metrics = json.loads((tmp_path / "data-grd" / "metrics.json").read_text())
    assert (metrics["method"], metrics["fit"]) == ("second-half", "second-half")
    assert metrics["returns_kept_r2"] == pytest.approx(1.0)
    assert "second-half" in (tmp_path / "data-grd" / "report.html").read_text()
    run(
        tmp_path, installed, "judge", "data.h5", *ENV, *SMALL,
        "--methods", "second-half", "--eval-episodes", "1", "--workers", "0", "--device", "cpu",
    )  # fmt: skip
    judged = json.loads((tmp_path / "data-judge" / "judge.json").read_text())
    assert [one["source"] for one in judged["verdicts"]] == ["true", "observed", "second-half"]
    run(tmp_path, installed, "report", "data-judge", "-o", "page.html")
    assert "second-half" in (tmp_path / "page.html").read_text()


def test_a_method_that_cannot_be_loaded_is_named(installed, tmp_path):
    broken = tmp_path / "broken.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text(
        "[grd_offline.methods]\nlost = no_such_module:METHOD\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [COMMAND, "decompose", ROOT / "datasets" / "sample.h5", "--method", "lost"],
        cwd=tmp_path, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "lost: cannot be loaded from broken: No module named 'no_such_module'" in done.stderr
