"""Tables with success or failure, with preferences, and with several outcomes."""

import json

import numpy as np
import pytest
from trips import as_csv, make_trips

from grd_offline import (
    DataError,
    RewardModel,
    decompose,
    decompose_each,
    from_dataframe,
    relabel,
)
from grd_offline.cli import main
from grd_offline.io.files.results import check_outcomes
from grd_offline.io.tables.build import read_preferences
from grd_offline.methods.result import read_decomposition, read_outcomes
from grd_offline.methods.settings import DecomposeSettings

ROLES = "episode=trip,step=minute,actions=throttle"


@pytest.fixture(scope="module")
def trips():
    """80 trips with the minutes they took, and whether they used little fuel."""
    columns = make_trips(80)
    trip, throttle = np.array(columns["trip"]), np.array(columns["throttle"])
    minutes = 0.5 - 0.2 * throttle
    columns["minutes"] = [round(float(minutes[trip == one].sum()), 4) for one in trip]
    fuel, length = np.array(columns["fuel"]), np.array([(trip == one).sum() for one in trip])
    columns["cheap"] = (fuel / length < np.median(fuel / length)).astype(int).tolist()
    return columns


@pytest.fixture(scope="module")
def answers(trips):
    """Of 300 pairs, the trip that used less fuel is preferred."""
    fuel = dict(zip(trips["trip"], trips["fuel"], strict=True))
    names, rng = list(fuel), np.random.default_rng(0)
    pairs = [rng.choice(names, 2, replace=False) for _ in range(300)]
    return {
        "first": [str(one) for one, _ in pairs],
        "second": [str(other) for _, other in pairs],
        "preferred": ["first" if fuel[a] < fuel[b] else "second" for a, b in pairs],
    }


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    assert ended.value.code == 0


def choose(columns, *names):
    return {name: columns[name] for name in names}


def read_trips(columns):
    kept = choose(columns, "trip", "speed", "fuel")
    return from_dataframe(kept, episode="trip", returns="fuel")


def test_yes_and_no_are_success_and_failure():
    table = {"trip": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]}
    for renewed in (["yes", "yes", "no"], ["True", "True", "FALSE"], [True, True, False]):
        episodes = from_dataframe({**table, "renewed": renewed}, returns="renewed")
        assert episodes.compute_returns().tolist() == [1, 0]
    episodes = from_dataframe(table, returns={"a": "no", "b": "Yes"})
    assert episodes.compute_returns().tolist() == [0, 1]
    with pytest.raises(DataError, match=r"episode a: 'renewed' is not a number; .* write 1 for"):
        from_dataframe(table, returns={"a": "renewed", "b": "cancelled"})


def test_success_from_a_table_to_a_table(trips, tmp_path, capsys):
    kept = choose(trips, "trip", "minute", "speed", "load", "throttle", "cheap", "true_reward")
    (tmp_path / "trips.csv").write_text(as_csv(kept))
    run(
        "decompose", tmp_path / "trips.csv", "--columns", f"{ROLES},return=cheap",
        "--truth", "true_rewards", "--out", tmp_path / "out",
    )  # fmt: skip
    told = capsys.readouterr().out
    assert "held-out labels" in told
    assert "log-odds" in told
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["outcome"] == "success"
    assert metrics["truth"]["pearson"] < -0.8  # fuel is the price, and little of it is a success
    assert 0 < metrics["returns_kept_r2"] < 1
    assert RewardModel.load(tmp_path / "out").function.outcome == "success"
    assert "log-odds" in (tmp_path / "out" / "reward_model" / "README.md").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "held-out labels explained" in page
    assert f'"label":"{trips["trip"][0]}"' in page  # episodes have their names
    assert (tmp_path / "out" / "relabelled.csv").is_file()
    with pytest.raises(DataError, match="for models of numbers; this one is of success"):
        relabel(tmp_path / "trips.csv", tmp_path / "out", exact_returns=True)


def test_preferences_from_a_file(trips, answers, tmp_path):
    """The table itself needs no outcomes."""
    kept = choose(trips, "trip", "minute", "speed", "weather", "throttle", "true_reward")
    (tmp_path / "trips.csv").write_text(as_csv(kept))
    (tmp_path / "answers.csv").write_text(as_csv(answers))
    run(
        "decompose", tmp_path / "trips.csv", "--columns", ROLES,
        "--preferences", tmp_path / "answers.csv", "--truth", "true_rewards",
        "--out", tmp_path / "out",
    )  # fmt: skip
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["outcome"] == "preference"
    assert metrics["returns_kept_r2"] is None
    assert metrics["truth"]["pearson"] < -0.9
    assert "--preferences answers.csv" in metrics["command"]
    assert "held-out preferences explained" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preferred": None}, "found no preferred"),
        ({"first": ["T0", "T999"]}, "row 1: there is no episode T999"),
        ({"preferred": ["first", "perhaps"]}, "row 1: expected 1 or first, 0 or second"),
        ({"preferred": [1, float("nan")]}, "row 1: expected 1 or first"),
        ({"first": ["T0", None]}, "row 1 is empty"),
        ({"first_stop": [2, 2.5]}, "row 1: expected a whole number, got 2.5"),
        ({"first_stop": [2, float("inf")]}, "row 1: expected a whole number, got inf"),
        ({"first": [], "second": [], "preferred": []}, "no rows"),
    ],
)
def test_bad_preferences_end_in_one_line(trips, change, message):
    table = {"first": ["T0", "T1"], "second": ["T2", "T3"], "preferred": [1, 0], **change}
    with pytest.raises(DataError, match=message) as caught:
        read_preferences({k: v for k, v in table.items() if v is not None}, read_trips(trips))
    assert "\n" not in str(caught.value)


def test_methods_without_a_link_do_not_take_success():
    with pytest.raises(DataError, match="rrd can only use outcomes that are numbers"):
        DecomposeSettings("rrd", outcome="success")
    assert DecomposeSettings(outcome="success").fit == "auto"


def test_pieces_and_words_of_a_table_of_preferences(trips):
    table = {
        "First": ["T0", "T1"], "Second": ["T2", "T3"], "Preferred": ["Left", "tie"],
        "first_start": [1, 0], "first_stop": [3, float("nan")],
    }  # fmt: skip
    found = read_preferences(table, read_trips(trips))
    assert found.preferred.tolist() == [1.0, 0.5]
    assert found.first.tolist() == [[0, 1, 3], [1, 0, -1]]
    assert found.second.tolist() == [[2, 0, -1], [3, 0, -1]]


@pytest.mark.long
def test_several_outcomes_are_as_good_as_each_alone(trips, tmp_path):
    kept = choose(trips, "trip", "minute", "speed", "load", "throttle", "fuel", "minutes")
    (tmp_path / "trips.csv").write_text(as_csv(kept))
    run(
        "decompose", tmp_path / "trips.csv", "--columns", ROLES, "--outcomes", "fuel,minutes",
        "--out", tmp_path / "both",
    )  # fmt: skip
    alone = decompose(
        tmp_path / "trips.csv", tmp_path / "one", columns=f"{ROLES},return=fuel,ignored=minutes"
    )
    both, correlation = read_outcomes(tmp_path / "both")
    assert both["fuel"].effects == read_outcome(alone.folder)
    assert [one.name for one in both["minutes"].inputs] == ["throttle"]
    assert correlation.shape == (2, 2)
    assert correlation[0, 1] < 0  # a trip that is quick needs more fuel
    page = (tmp_path / "both" / "report.html").read_text()
    assert "Effects side by side" in page
    assert "href='minutes/report.html'" in page
    run("report", tmp_path / "both", "-o", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == page


def read_outcome(folder):
    return read_decomposition(folder).effects


def test_several_outcomes_of_episodes_in_memory(trips, tmp_path):
    episodes = from_dataframe(
        choose(trips, "trip", "speed", "throttle", "fuel"), episode="trip", returns="fuel",
        actions="throttle",
    )  # fmt: skip
    lengths = episodes.lengths.astype(float)
    settings = DecomposeSettings("uniform")
    given = {"steps": lengths, "twice": 2 * lengths}
    found = decompose_each(episodes, tmp_path / "out", given, settings)
    assert list(found) == ["steps", "twice"]
    rewards = [np.asarray(found[name].rewards_["reward"]) for name in found]
    np.testing.assert_allclose(2 * rewards[0], rewards[1])
    again = decompose_each(episodes, tmp_path / "out", given, settings)  # replaces its own results
    assert again["steps"].relabelled.is_file()
    with pytest.raises(DataError, match="one number for each of 80"):
        decompose_each(episodes, tmp_path / "out", {"a": [1], "b": [2]}, settings)
    with pytest.raises(DataError, match="expected a mapping"):
        decompose_each(episodes, tmp_path / "out", ["a", "b"], settings)


@pytest.mark.parametrize(
    "names", [["a"], ["a", "A"], ["a", "../b"], ["a", ""], ["a", "report.html"]]
)
def test_names_that_cannot_be_folders_are_refused(names):
    with pytest.raises(DataError, match="outcomes"):
        check_outcomes(list(names))


def test_a_second_result_says_that_it_replaced_the_first(trips, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = choose(trips, "trip", "minute", "speed", "fuel")
    (tmp_path / "trips.csv").write_text(as_csv(kept))
    arguments = ("decompose", "trips.csv", "--columns", "step=minute,return=fuel")
    for replaced in (False, True):
        run(*arguments, "--method", "uniform")
        told = " ".join(capsys.readouterr().out.split())
        assert (
            "trips-grd/ (the earlier result was replaced; --out keeps both)" in told
        ) == replaced
    page = (tmp_path / "trips-grd" / "report.html").read_text()
    assert "returns=fuel --out trips-grd<" in page
