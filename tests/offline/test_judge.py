"""Methods judged by what policies reach that are trained on their rewards."""

import csv
import importlib
import json
from types import SimpleNamespace

import numpy as np
import offline_commands
import offline_data
import point_mass
import pytest
from offline_commands import EPISODES, FEW, SMALL, TRUE, make_settings, run_command, write_file
from pages import report_judgement

import grd_offline
from grd_offline import DecomposeSettings, decompose_file, read_truth
from grd_offline.core.errors import DataError
from grd_offline.io.files.results import read_rows
from grd_offline.lab.judge import (
    Found,
    Scores,
    describe_horizon,
    find_rewards,
    find_unsteady,
    judge_sources,
)
from grd_offline.learning.offline.run import load_data
from grd_offline.learning.runs.run import Evaluation

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


@pytest.fixture(scope="module")
def factored(tmp_path_factory):
    return offline_commands.collect_factored(tmp_path_factory.mktemp("factored"))


def test_a_decomposition_is_judged_by_what_it_writes(tmp_path):
    write_file(tmp_path / "data.h5")
    decompose_file(tmp_path / "data.h5", tmp_path / "data-grd", DecomposeSettings(seed=3))
    data = load_data(tmp_path / "data-grd/relabelled.h5")
    assert set(data.rewards) == {"relabelled", "observed", "true"}
    original = load_data(tmp_path / "data.h5")
    np.testing.assert_array_equal(data.rewards["observed"], original.rewards["observed"])
    found = find_rewards(original, "grd", seed=3)
    np.testing.assert_array_equal(found.rewards, data.rewards["relabelled"])
    assert found.about["against_truth"]["pearson"] > 0.95
    with pytest.raises(DataError, match="are relabelled already: judge the original"):
        find_rewards(data, "grd")


@pytest.mark.parametrize("method", ["grd", "grd-next-state", "ircr", "uniform"])
def test_rewards_at_every_step_are_not_given_away(method, tmp_path):
    """Judged or written, a method sees the sum of such rewards alone."""
    episodes, true = offline_data.make_data(20)
    write_file(tmp_path / "data.h5", truth=False, delay="step", episodes=episodes, true=true)
    data, next_state = load_data(tmp_path / "data.h5"), method == "grd-next-state"
    settings = DecomposeSettings(
        method="grd" if next_state else method, next_state=next_state, fit="closed-form", seed=3
    )
    decompose_file(tmp_path / "data.h5", tmp_path / "out", settings)
    written = load_data(tmp_path / "out/relabelled.h5").rewards["relabelled"]
    found = find_rewards(data, method, fit="closed-form", seed=3)
    np.testing.assert_array_equal(found.rewards, written)
    assert np.abs(written - data.rewards["true"]).max() > 0.01


def test_what_a_method_cannot_take_is_refused_before_the_others_begin(tmp_path):
    episodes, true = offline_data.make_data(12)
    write_file(tmp_path / "data.h5", episodes=episodes, true=true, final=False)
    result = run_command(
        tmp_path, "judge", "data.h5", "--env", point_mass.ID, "--methods", "uniform,grd-next-state",
        *FEW,
    )  # fmt: skip
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "grd-next-state: not every episode holds its last observation" in line
    result = run_command(
        tmp_path, "judge", ".", "--env", point_mass.ID, "--methods", "uniform", "--fit", "paper",
        "--seed", 2**60,
    )  # fmt: skip
    warning, error = result.stderr.splitlines()
    assert warning == "warning: --fit is for grd: none of these methods has several fits"
    assert "seed: expected seeds below 2^60" in error


def test_judging_methods(factored, tmp_path):
    result = run_command(
        tmp_path, "judge", factored, *SMALL, *FEW, "--methods", "grd,uniform", "--seeds", 2,
        "--eval-episodes", 3, "--alpha", 4, "--fit", "linear", "--out", "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    verdict = json.loads((tmp_path / "out/judge.json").read_text())
    names = ["true", "observed", "grd", "uniform"]
    assert [one["source"] for one in verdict["verdicts"]] == names
    rows = read_rows(tmp_path / "out/run/evaluations.csv")
    for one in verdict["verdicts"]:
        for seed, score in enumerate(one["scores"]):
            means = [
                float(row["mean_return"])
                for row in rows
                if row["member"] == f"{one['source']}-seed{seed}"
            ]
            assert len(means) == 4
            assert score == pytest.approx(np.mean(means[-3:]))
        assert one["mean_return"] == pytest.approx(np.mean(one["scores"]))
        assert one["std_return"] == pytest.approx(np.std(one["scores"]))
        assert one["source"] in result.stdout
    true = np.concatenate(read_truth(factored))
    uniform = np.repeat(true.reshape(40, 12).mean(1), 12)
    of = {one["source"]: one for one in verdict["verdicts"]}
    assert of["uniform"]["pearson"] == pytest.approx(np.corrcoef(uniform, true)[0, 1], abs=1e-4)
    assert of["true"]["pearson"] == pytest.approx(1.0)
    assert verdict["data_mean_return"] == pytest.approx(true.sum() / 40)
    assert verdict["command"][1] == "judge"
    assert verdict["settings"]["updates"] == 40
    assert verdict["settings"]["alpha"] == 4
    assert "warning: --alpha is an option of td3bc: iql does not use it\n" in result.stderr
    assert verdict["sources"]["grd"]["fit"] == "linear"
    with (tmp_path / "out/judge.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["source"] for row in table] == names
    assert float(table[3]["pearson"]) == of["uniform"]["pearson"]
    assert "look at out/report.html\n" in result.stdout
    page = (tmp_path / "out/report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "data-draw='verdicts'" in page
    assert f"{of['grd']['pearson']:.3f}" in page
    assert not (tmp_path / "out/run/report.html").exists()
    assert "the data are of" not in result.stderr
    assert report_judgement(tmp_path / "out") == page

    refused = run_command(tmp_path, "judge", factored, *SMALL, "--out", "out")
    assert refused.returncode == 2
    assert "out: exists already" in refused.stderr
    # Once more, and with fewer beside them: the same again.
    once_more = run_command(
        tmp_path, "judge", factored, *SMALL, *FEW, "--methods", "uniform", "--no-observed",
        "--seeds", 2, "--eval-episodes", 3, "--out", "again",
    )  # fmt: skip
    assert "has no use for it" not in once_more.stderr
    again = json.loads((tmp_path / "again/judge.json").read_text())
    assert [one["source"] for one in again["verdicts"]] == ["true", "uniform"]
    for one in again["verdicts"]:
        assert one["scores"] == pytest.approx(of[one["source"]]["scores"], rel=1e-3)


def test_judging_without_the_truth_tells_returns_alone(tmp_path):
    episodes, true = offline_data.make_data(12)
    write_file(tmp_path / "data.h5", truth=False, episodes=episodes, true=true)
    result = run_command(
        tmp_path, "judge", "data.h5", "--env", point_mass.ID, "--methods", "uniform",
        "--no-observed", "--out", "out", *FEW,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (
        "the data hold no true rewards, so methods are compared by their returns" in result.stderr
    )
    (verdict,) = json.loads((tmp_path / "out/judge.json").read_text())["verdicts"]
    assert verdict["source"] == "uniform"
    assert verdict["pearson"] is verdict["share_of_true"] is verdict["share_of_gain"] is None
    assert "The data contain no true rewards" in (tmp_path / "out/report.html").read_text()


def test_shares_of_what_the_truth_reaches(tmp_path):
    write_file(tmp_path / "data.h5")
    data = load_data(tmp_path / "data.h5")
    settings = make_settings(rewards=("true", "other"))
    found = {
        "true": Found(TRUE, {"against_truth": {"pearson": 1.0}}),
        "other": Found(TRUE, {"against_truth": {"pearson": 0.5}}),
    }
    scores = Scores()
    for low in (100.0, -4.0, -6.0, -5.0):  # the first is not among the last three
        returns = np.array([[low], [low], [2 * low], [2 * low + 2]])
        scores.on_result(None, Evaluation(1, np.zeros(1), returns, np.ones((4, 1), int)))
    scores.on_result(None, Evaluation(2, np.zeros(1)))
    true, other = judge_sources(settings, scores.compute(), data, found)
    assert true.scores == (-5.0, -5.0)
    assert other.scores == (-10.0, -8.0)
    assert (other.mean, other.spread, other.pearson) == (-9.0, 1.0, 0.5)
    # A share of a negative return would say nothing; one of the gain over the data does.
    assert other.share_of_true is None
    base = data.behaviour_return
    assert other.share_of_gain == pytest.approx((-9 - base) / (-5 - base))
    assert true.share_of_gain == 1.0
    good = judge_sources(settings, np.array([10.0, 10.0, 4.0, 6.0]), data, found)
    assert good[1].share_of_true == 0.5


def test_seeds_that_lose_what_they_had_gained_are_told(capsys):
    settings, scores = make_settings(rewards=("true", "other"), seed=7), Scores()
    #       best 110; true: steady, lost; other: never better than the data, nearly lost
    for returns in ([110, 110, 9, 110], [90, 90, 8, 90], [80, 60, 7, 78], [80, 30, 6, 70]):
        found = np.array(returns, float)[:, None]
        scores.on_result(None, Evaluation(1, np.zeros(1), found, np.ones((4, 1), int)))
        unsteady = find_unsteady(settings, scores, 10.0)
    assert unsteady == {"true": [8]}
    assert find_unsteady(settings, scores, None) == {}
    importlib.import_module("grd_offline.cli.train")._tell_unsteady(unsteady, 2)
    assert capsys.readouterr().err.startswith("unsteady seeds: 1 of 2 of true. They end")


def test_episodes_of_another_horizon_are_told():
    data = SimpleNamespace(episodes=EPISODES)
    (steps,) = set(EPISODES.lengths.tolist())
    assert describe_horizon(data, steps) is None
    assert f"--max-episode-steps {steps} makes them alike" in describe_horizon(data, 5 * steps)


def test_judge_is_a_function(factored, tmp_path):
    result = grd_offline.judge(
        factored, tmp_path / "out", environment="Factored", methods=("uniform",),
        env_args={"length": 12, "states": 5, "actions": 2}, seeds=2, updates=4, batch=8,
        hidden=(4,), eval_every=2, eval_episodes=1, workers=0, device="cpu",
    )  # fmt: skip
    assert [verdict.source for verdict in result.verdicts] == ["true", "observed", "uniform"]
    assert result.evaluations == 2
    assert result.training.is_complete
    assert set(result.training.policies) == {
        f"{name}-seed{seed}" for name in ("true", "observed", "uniform") for seed in (0, 1)
    }
    assert json.loads((tmp_path / "out/judge.json").read_text())["stopped"] is False
