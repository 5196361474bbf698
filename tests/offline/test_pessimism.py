"""`--pessimism`: rewards less some of their standard deviations."""

import json

import numpy as np
import offline_data
import point_mass
import pytest
from click.testing import CliRunner
from offline_commands import run_command, write_file

from grd_offline import DataError, DecomposeSettings, decompose
from grd_offline.cli.program import cli
from grd_offline.lab.judge import find_rewards
from grd_offline.learning.offline.run import load_data

SMALL = ("--updates", "2", "--batch", "8", "--eval-every", "2", "--eval-episodes", "1",
         "--seeds", "1", "--workers", "0")  # fmt: skip


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("pessimism")
    episodes, true = offline_data.make_data(30)
    write_file(place / "data.h5", episodes=episodes, true=true)
    settings = DecomposeSettings(fit="closed-form")
    decompose(place / "data.h5", place / "data-grd", settings)
    return place


def test_relabelled_rewards_are_less_by_their_spread(folder):
    data = load_data(folder / "data-grd" / "relabelled.h5")
    assert data.spread is not None
    assert (data.spread > 0).all()
    np.testing.assert_array_equal(data.find("relabelled"), data.rewards["relabelled"])
    expected = data.rewards["relabelled"] - 2 * data.spread
    np.testing.assert_allclose(data.find("relabelled", 2.0), expected)
    np.testing.assert_array_equal(data.find("observed", 2.0), data.rewards["observed"])


def test_judge_takes_the_same_off(folder):
    data = load_data(folder / "data.h5")
    plain = find_rewards(data, "grd", fit="closed-form")
    less = find_rewards(data, "grd", fit="closed-form", pessimism=1.5)
    relabelled = load_data(folder / "data-grd" / "relabelled.h5")
    difference = plain.rewards - less.rewards
    np.testing.assert_allclose(difference, 1.5 * relabelled.spread, rtol=1e-3)
    assert less.about["against_truth"] == plain.about["against_truth"]
    # Without a spread per step, it is the same for all steps.
    even = (
        find_rewards(data, "uniform").rewards - find_rewards(data, "uniform", pessimism=1).rewards
    )
    assert np.ptp(even) < 1e-9 < even[0]


def test_the_run_remembers_it(folder, tmp_path):
    data = folder / "data-grd" / "relabelled.h5"
    given = ("--pessimism", "1.5", "--out", "run")
    done = run_command(tmp_path, "train-offline", data, *SMALL, *given)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["settings"]["pessimism"] == 1.5


def test_rewards_without_a_spread_are_refused(folder):
    data = load_data(folder / "data-grd" / "relabelled.h5")
    data.spread[3] = np.nan
    with pytest.raises(DataError, match="pessimism: the spread of the rewards is not known"):
        data.find("relabelled", 1.0)


@pytest.mark.parametrize("command", ["train-offline", "judge"])
def test_the_help_tells_of_it(command):
    shown = CliRunner().invoke(cli, [command, "--help"]).output
    assert "--pessimism" in shown
    assert "standard deviations" in shown
