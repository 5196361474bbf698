"""Tables go in, and tables of rewards come back, from the command line and from Python."""

import csv
import json

import numpy as np
import pytest
import trips
from click.testing import CliRunner

from grd_offline import (
    ClosedForm,
    DataError,
    DecomposeSettings,
    EpisodeSet,
    RewardModel,
    Uniform,
    decompose,
    from_arrays,
    from_dataframe,
    read,
    relabel,
    write_dataset,
)
from grd_offline.cli.program import cli
from grd_offline.io.datasets import open_recording
from grd_offline.io.files.results import is_replaceable
from grd_offline.io.tables.results import find_columns
from grd_offline.methods.relabelling import compare_with_truth

UNIFORM = DecomposeSettings(method="uniform")
COLUMNS = "returns=fuel,actions=throttle,step=minute"


def run(*arguments):
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Trips as a CSV file, decomposed by the command."""
    place = tmp_path_factory.mktemp("trips")
    (place / "trips.csv").write_text(trips.as_csv(trips.make_trips()))
    run("decompose", place / "trips.csv", "--columns", COLUMNS, "--truth", "true_rewards")
    return place


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_becomes_a_table_of_rewards(folder):
    rows, columns = read_rows(folder / "trips-grd" / "relabelled.csv"), trips.make_trips()
    assert list(rows[0]) == ["trip", "minute", "reward", "spread"]
    assert [row["trip"] for row in rows] == columns["trip"]
    assert [int(row["minute"]) for row in rows] == columns["minute"]
    found = [float(row["reward"]) for row in rows]
    assert np.corrcoef(found, columns["true_reward"])[0, 1] > 0.99
    assert all(float(row["spread"]) > 0 for row in rows)


def test_names_survive_to_the_report(folder):
    masks = json.loads((folder / "trips-grd" / "masks.json").read_text())
    expected = ["speed", "load", "weather=rain", "weather=snow", "weather=sun"]
    assert masks["state_names"] == expected
    assert masks["action_names"] == ["throttle"]
    page = (folder / "trips-grd" / "report.html").read_text()
    assert "weather=rain" in page
    assert "--columns episode=trip" in page


def test_more_trips_are_relabelled_without_outcomes(folder, tmp_path):
    """Columns in another order, one category less, and no fuel: the model knows what it needs."""
    table = trips.make_trips(trips=5, seed=1)
    keep = [k for k, weather in enumerate(table["weather"]) if weather != "snow"]
    names = ("weather", "throttle", "load", "speed", "minute", "trip")
    (tmp_path / "more.csv").write_text(
        trips.as_csv({name: [table[name][k] for k in keep] for name in names})
    )
    printed = run("relabel", tmp_path / "more.csv", "--model", folder / "trips-grd")
    assert "step=minute" in printed
    rows = read_rows(tmp_path / "more-relabelled.csv")
    assert [row["trip"] for row in rows] == [table["trip"][k] for k in keep]
    found = [float(row["reward"]) for row in rows]
    assert np.corrcoef(found, [table["true_reward"][k] for k in keep])[0, 1] > 0.99
    assert read(tmp_path / "more-relabelled.h5").observation_names[2] == "weather=rain"


def test_a_table_that_does_not_fit_the_model_is_refused(folder, tmp_path):
    table = trips.make_trips(trips=2, seed=1)
    table["weather"][3] = "hail"
    (tmp_path / "more.csv").write_text(trips.as_csv(table))
    with pytest.raises(DataError, match="row 5: 'hail' is not among the known categories: rain"):
        relabel(tmp_path / "more.csv", folder / "trips-grd")
    del table["speed"]
    (tmp_path / "more.csv").write_text(trips.as_csv(table))
    with pytest.raises(DataError, match="the model needs a column 'speed'"):
        relabel(tmp_path / "more.csv", folder / "trips-grd")


def test_evaluate_reads_the_roles_that_decompose_was_given(folder, tmp_path):
    columns = trips.make_trips(12, seed=7)
    columns["cost"] = columns.pop("true_reward")
    (tmp_path / "same.csv").write_text(trips.as_csv(columns))
    grd, data = folder / "trips-grd", ("--data", tmp_path / "same.csv")
    same = json.loads(run("evaluate", grd, "--truth", "cost", "--json", *data))
    assert same["rewards"]["pearson"] > 0.99
    columns["ride"] = columns.pop("trip")
    (tmp_path / "other.csv").write_text(trips.as_csv(columns))
    arguments = ("--truth", "cost", "--columns", "episode=ride", "--data", tmp_path / "other.csv")
    assert json.loads(run("evaluate", grd, "--json", *arguments)) == same
    with pytest.raises(DataError, match="there is no column 'price'"):
        compare_with_truth(grd, "price", tmp_path / "other.csv", columns="episode=ride")


def test_exact_returns_need_the_outcomes_that_the_model_remembers(folder, tmp_path):
    columns = trips.make_trips(8, seed=7)
    (tmp_path / "more.csv").write_text(trips.as_csv(columns))
    grd = folder / "trips-grd"
    done = relabel(tmp_path / "more.csv", grd, tmp_path / "exact.h5", exact_returns=True)
    sums = {}
    for row in read_rows(done.table):
        sums[row["trip"]] = sums.get(row["trip"], 0.0) + float(row["reward"])
    assert sums == pytest.approx(dict(zip(columns["trip"], columns["fuel"], strict=True)), abs=1e-4)
    del columns["fuel"]
    (tmp_path / "more.csv").write_text(trips.as_csv(columns))
    with pytest.raises(DataError, match="no column holds rewards or outcomes"):
        relabel(tmp_path / "more.csv", grd, tmp_path / "exact.h5", exact_returns=True)


def test_the_truth_may_be_any_column(folder, tmp_path):
    columns = trips.make_trips()
    columns["cost"] = columns.pop("true_reward")
    (tmp_path / "trips.csv").write_text(trips.as_csv(columns))
    settings = DecomposeSettings(method="uniform", truth="cost")
    done = decompose(tmp_path / "trips.csv", tmp_path / "out", settings, columns=COLUMNS)
    assert "truth=cost" in done.columns
    found = compare_with_truth(tmp_path / "out", "cost")["rewards"]
    assert found["pearson"] == pytest.approx(done.metrics["truth"]["pearson"])


def test_results_can_be_made_again_and_judged(folder):
    """The folder with a table in it is an earlier result, which may be replaced."""
    assert is_replaceable(folder / "trips-grd")
    assert "pearson" in run("evaluate", folder / "trips-grd", "--truth", "true_rewards")
    run("report", folder / "trips-grd")


def test_a_parquet_file_goes_the_same_way(folder, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(trips.make_trips()), tmp_path / "trips.parquet")
    result = relabel(tmp_path / "trips.parquet", folder / "trips-grd")
    assert result.table == tmp_path / "trips-relabelled.parquet"
    table = parquet.read_table(result.table).to_pydict()
    assert table["trip"] == trips.make_trips()["trip"]
    from_file = read_rows(folder / "trips-grd" / "relabelled.csv")
    np.testing.assert_allclose(table["reward"], [float(r["reward"]) for r in from_file], 1e-6)
    from_csv = read(folder / "trips.csv", columns=COLUMNS)
    from_parquet = read(tmp_path / "trips.parquet", columns=COLUMNS)
    for one, other in zip(from_csv, from_parquet, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)
    run("convert", tmp_path / "trips.parquet", tmp_path / "t.h5", "--to", "own",
        "--columns", COLUMNS)  # fmt: skip
    assert [e.label for e in read(tmp_path / "t.h5")][:2] == ["T0", "T1"]


def test_inspect_tells_its_guess(folder, tmp_path):
    shown = json.loads(run("inspect", folder / "trips.csv", "--columns", COLUMNS, "--json"))
    assert shown["layout"] == "csv"
    assert shown["columns"] == (
        "episode=trip,observations=speed+load+weather,actions=throttle,step=minute,"
        "returns=fuel,truth=true_reward"
    )
    (tmp_path / "log.csv").write_text(
        "Unnamed: 0,Episode ID,timestamp,x,action_left,action_right,done,reward\n"
        "0,1,2024-01-01T00:00:02,5,0,1,true,2\n1,1,2024-01-01 00:00:01,4,0,1,false,1\n"
    )
    shown = json.loads(run("inspect", tmp_path / "log.csv", "--json"))
    assert shown["columns"] == (
        "episode=Episode ID,observations=x,actions=action_left+action_right,step=timestamp,"
        "rewards=reward,terminated=done"
    )
    (episode,) = read(tmp_path / "log.csv")
    np.testing.assert_array_equal(episode.observations[:, 0], [4, 5])
    np.testing.assert_array_equal(episode.rewards, [1, 2])
    assert episode.terminations.tolist() == [False, True]


def test_outcomes_may_come_from_another_file(folder, tmp_path):
    table = trips.make_trips()
    bills = dict(zip(table["trip"], table["fuel"], strict=True))
    (tmp_path / "bills.csv").write_text(trips.as_csv({"trip": [*bills], "bill": [*bills.values()]}))
    for name in ("fuel", "true_reward"):
        del table[name]
    (tmp_path / "steps.csv").write_text(trips.as_csv(table))
    printed = run("inspect", tmp_path / "steps.csv", "--returns", tmp_path / "bills.csv")
    assert "60 episodes" not in printed
    assert "one per episode" in printed
    episodes = read(tmp_path / "steps.csv", returns=tmp_path / "bills.csv")
    np.testing.assert_array_equal(episodes.compute_returns(), list(bills.values()))


def test_rows_in_any_order_give_the_same_episodes(folder):
    table = trips.make_trips()
    order = np.random.default_rng(0).permutation(len(table["trip"]))
    mixed = {name: [values[k] for k in order] for name, values in table.items()}
    options = {"actions": "throttle", "step": "minute", "returns": "fuel"}
    plain, shuffled = from_dataframe(table, **options), from_dataframe(mixed, **options)
    by_label = {episode.label: episode for episode in shuffled}
    for episode in plain:
        other = by_label[episode.label]
        np.testing.assert_array_equal(episode.observations, other.observations)
        np.testing.assert_array_equal(episode.steps, other.steps)
        np.testing.assert_array_equal(episode.rewards, other.rewards)


def test_kinds_of_columns():
    table = {
        "episode": np.array([7, 7, 8, 8]),
        "when": np.array(["2024-01-02", "2024-01-01", "2024-01-01", "2024-01-02"], "datetime64[D]"),
        "flag": np.array([True, False, True, False]),
        "lane": np.array([3, 1, 2, 1]),
        "size": np.array(["s", "m", "s", "l"]),
        "vector": np.arange(8.0).reshape(4, 2),
        "success": np.array([True, False, False, False]),
    }
    episodes = from_dataframe(table, categories="lane")
    assert episodes.observation_names == (
        *("flag", "lane=1", "lane=2", "lane=3", "size=l", "size=m", "size=s"),
        *("vector[0]", "vector[1]"),
    )
    np.testing.assert_array_equal(
        episodes[0].observations, [[0, 1, 0, 0, 0, 1, 0, 2, 3], [1, 0, 0, 1, 0, 0, 1, 0, 1]]
    )
    assert [episode.label for episode in episodes] == [7, 8]
    np.testing.assert_array_equal(episodes.compute_returns(), [1, 0])
    rewards = Uniform().fit(episodes).rewards_
    assert list(rewards) == ["episode", "when", "reward", "spread"]
    days = rewards["when"].astype("datetime64[D]").astype(str).tolist()
    assert days == ["2024-01-02", "2024-01-01", "2024-01-01", "2024-01-02"]  # as in the table


def test_timestamps_come_back_as_text(tmp_path):
    (tmp_path / "log.csv").write_text(
        "batch no,when,x,open,yield\n"
        "B-01,2024-01-02 00:05,1,yes,\nB-01,2024-01-02 00:00,2,no,3\nB-02,2024-01-03,1,no,1\n"
    )
    columns = "return=yield"
    with open_recording(tmp_path / "log.csv", columns=columns) as recording:
        assert find_columns(recording) == (
            "episode=batch no,observations=x+open,actions=,step=when,returns=yield"
        )
    model = Uniform().fit(read(tmp_path / "log.csv", columns=columns))
    about = {"columns": columns + ",episode=batch no,step=when"}
    sizes = {"state_mask": np.ones(2), "action_mask": np.ones(0), "compact_mask": np.ones(2)}
    saved = RewardModel(model.function_, ("x", "open"), (), **sizes, step_std=0.5, about=about)
    rows = read_rows(relabel(tmp_path / "log.csv", saved).table)
    assert [row["batch no"] for row in rows] == ["B-01", "B-01", "B-02"]
    # In the order of the table; two forms of times become one.
    times = ["2024-01-02T00:05:00", "2024-01-02T00:00:00", "2024-01-03T00:00:00"]
    assert [row["when"] for row in rows] == times
    assert {row["spread"] for row in rows} == {"0.5"}


TIMES = (
    ["2024-01-02 00:05", "2024-01-02 00:00", "2024-01-03 23:59"],
    ["2024-01-02T00:05:10", "2024-01-02T00:05:09", "2024-01-03T00:00:00"],
    ["2024-01-02", "2024-01-01", "2024-01-03"],
    ["2024-01-02 00:05:10.250", "2024-01-02 00:05:10.125", "2024-01-03 00:00:00.000"],
    ["2024-01-02T00:05+02:00", "2024-01-02T00:00+02:00", "2024-01-03T01:00+02:00"],
    ["2024-01-02T00:05:00Z", "2024-01-02T00:00:00Z", "2024-01-03T01:00:00Z"],
)


@pytest.mark.parametrize("times", TIMES)
def test_times_come_back_as_they_were_written(times, tmp_path):
    table = {"day": ["a", "a", "b"], "when": times, "x": [1.0, 2.0, 4.0], "score": [3, 3, 1]}
    (tmp_path / "log.csv").write_text(trips.as_csv(table))
    done = decompose(tmp_path / "log.csv", tmp_path / "out", UNIFORM, columns="episode=day")
    rows = read_rows(done.table)
    assert [(row["day"], row["when"]) for row in rows] == list(zip("aab", times, strict=True))
    assert done.rewards_["when"].tolist() == times
    # The same from Python, where the text is a time as well.
    episodes = from_dataframe(table, episode="day", returns="score")
    assert [one.label for one in episodes] == ["a", "b"]
    np.testing.assert_array_equal(episodes[0].observations[:, 0], [2, 1])
    rewards = Uniform().fit(episodes).rewards_
    assert sorted(rewards["when"].tolist()) == sorted(times)


def test_text_that_is_no_time_is_refused_as_step():
    table = {"episode": [1, 1, 2], "step": ["1. May", "2. May", "3. May"], "x": [1.0, 2.0, 3.0]}
    with pytest.raises(
        DataError, match=r"row 0: '1. May' is not a time that is read: write times as 2024"
    ):
        from_dataframe(table, step="step", returns={1: 1.0, 2: 2.0})
    # Days that tell episodes apart keep their names.
    table = {"day": ["2024-01-02", "2024-01-02", "2024-01-03"], "x": [1.0, 2.0, 3.0]}
    found = from_dataframe(table, episode="day", returns={"2024-01-02": 1.0, "2024-01-03": 2.0})
    assert [one.label for one in found] == ["2024-01-02", "2024-01-03"]


def test_an_only_action_of_whole_numbers_is_a_choice():
    table = {"episode": [1, 1, 2], "x": [1.0, 2.0, 3.0], "action": [2, 0, 1], "reward": [1, 2, 3]}
    episodes = from_dataframe(table)
    assert episodes.discrete_actions
    assert episodes.action_names == ("action=0", "action=1", "action=2")
    np.testing.assert_array_equal(episodes[0].actions, [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_in_gives_a_frame_out(library, tmp_path):
    module = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    frame = make({name: list(values) for name, values in trips.make_trips(trips=12).items()})
    episodes = from_dataframe(frame, actions=["throttle"], step="minute", returns="fuel",
                              observations=["speed", "weather"])  # fmt: skip
    result = decompose(episodes, tmp_path / "out", UNIFORM)
    for table in (result.rewards_, Uniform().fit(episodes[:5]).rewards_):
        assert type(table) is type(frame)
        names = getattr(table, "column_names", None) or list(table.columns)
        assert list(names) == ["trip", "minute", "reward", "spread"]
    assert len(result.rewards_) == len(frame)
    again = relabel(episodes, result.model, tmp_path / "again.h5")
    assert type(again.rewards_) is type(frame)


def test_pandas_categories_timestamps_and_series():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "run": [1, 1, 2],
            "at": pandas.to_datetime(["2024-01-01 10:00", "2024-01-01 09:00", "2024-01-02 08:00"]),
            "mood": pandas.Categorical(["low", "high", "low"], categories=["low", "mid", "high"]),
            "count": pandas.array([1, 2, 3], dtype="Int64"),
        }
    )
    returns = pandas.Series({1: 5.0, 2: 7.0})
    episodes = from_dataframe(frame, returns=returns)
    assert episodes.observation_names == ("mood=low", "mood=mid", "mood=high", "count")
    np.testing.assert_array_equal(episodes[0].observations[:, 3], [2, 1])
    rewards = Uniform().fit(episodes).rewards_
    assert frame.merge(rewards).shape == (3, 6)
    with pytest.raises(DataError, match="1 of 2 episodes has no outcome: 2; add"):
        from_dataframe(frame, returns={1: 5.0})
    with pytest.raises(DataError, match="expected the name of a column, a mapping"):
        from_dataframe(frame, returns=3.0)
    named = frame.assign(run=["a", "a", "b"])
    with pytest.raises(DataError, match=r"none of 2 episodes .* a, b, .* 1, 2; .*set_index"):
        from_dataframe(named, returns=returns)


def test_outcomes_may_be_a_data_frame():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(trips.make_trips(5)).drop(columns="true_reward")
    bills = table.groupby("trip").fuel.first()
    names = {"step": "minute", "ignored": "fuel"}
    expected = from_dataframe(table, returns=bills, **names).compute_returns()
    for frame in (bills.to_frame(), bills.reset_index(), bills.reset_index()[["fuel", "trip"]]):
        found = from_dataframe(table, returns=frame, **names)
        np.testing.assert_array_equal(found.compute_returns(), expected)
    renamed = table.rename(columns={"trip": "ride"})
    frame = bills.reset_index().assign(driver="Ann").rename(columns={"trip": "ride"})
    found = from_dataframe(
        renamed, returns=frame[["driver", "fuel", "ride"]], episode="ride", **names
    )
    np.testing.assert_array_equal(found.compute_returns(), expected)
    with pytest.raises(
        DataError, match=r"returns: 2 columns of numbers, .* columns: trip, fuel, t"
    ):
        from_dataframe(table, returns=bills.reset_index().assign(tax=1.0), **names)
    with pytest.raises(DataError, match="returns: expected the name of a column, a mapping or Ser"):
        from_dataframe(table, returns=3.0, **names)


def test_arrays():
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(steps, 2)) for steps in (3, 5, 4)]
    episodes = from_arrays(states, returns=[1, 2, 3], observation_names=["x", "y"])
    assert isinstance(episodes, EpisodeSet)
    assert [len(episode) for episode in episodes] == [3, 5, 4]
    np.testing.assert_array_equal(episodes.compute_returns(), [1, 2, 3])
    flat = np.concatenate(states)
    labels = np.repeat(["b", "a", "c"], [3, 5, 4])
    choices = rng.integers(0, 3, 12)
    same = from_arrays(flat, choices, rewards=np.ones(12), episode=labels)
    assert [episode.label for episode in same] == ["b", "a", "c"]
    assert same.discrete_actions
    np.testing.assert_array_equal(same.compute_returns(), [3, 5, 4])
    with_final = from_arrays([rng.normal(size=(4, 2))] * 2, [np.zeros((3, 1))] * 2, returns=[1, 2])
    assert with_final[0].has_final_observation
    for wrong, message in (
        ({"returns": [1, 2]}, "returns: 2 for 3 episodes"),
        ({}, "expected either rewards"),
        ({"returns": [1, np.nan, 3]}, "episode 1: returns: nan"),
    ):
        with pytest.raises(DataError, match=message):
            from_arrays(states, **wrong)


def test_episodes_from_python_are_taken_everywhere(tmp_path):
    episodes = from_dataframe(
        trips.make_trips(trips=12), actions="throttle", step="minute", returns="fuel"
    )
    write_dataset(tmp_path / "trips.h5", episodes)
    stored = read(tmp_path / "trips.h5")
    assert stored.observation_names == episodes.observation_names
    np.testing.assert_array_equal(stored.compute_returns(), episodes.compute_returns())
    assert stored[3].label == "T3"
    choices = from_arrays([np.zeros((2, 1))] * 3, [np.array([0, 2])] * 3, returns=[1, 2, 3])
    write_dataset(tmp_path / "minari", choices, layout="minari")
    assert read(tmp_path / "minari").discrete_actions
    made = EpisodeSet.from_episodes(list(episodes))
    result = decompose(made, tmp_path / "out", UNIFORM)
    assert list(result.rewards_) == ["episode", "step", "reward", "spread"]
    assert result.rewards_["episode"][0] == "T0"


def test_what_a_notebook_shows(folder):
    model = RewardModel.load(folder / "trips-grd")
    page = model._repr_html_()
    assert "<svg" in page
    assert "speed" in page
    assert "<script" not in page
    episodes = read(folder / "trips.csv", columns=COLUMNS)
    assert repr(episodes).startswith("EpisodeSet(60 episodes, ")
    assert repr(episodes[0]).startswith("Episode(T0: ")
    assert "weather=rain" in episodes._repr_html_()
    fitted = ClosedForm(order=1).fit(episodes)
    assert repr(fitted) == "ClosedForm(order=1)"
    spread = fitted.rewards_["spread"]
    assert (spread > 0).all()


def test_a_result_shows_its_headline_and_bars(tmp_path):
    episodes = from_dataframe(trips.make_trips(), actions="throttle", step="minute",
                              returns="fuel", observations=["speed", "weather"])  # fmt: skip
    result = decompose(episodes, tmp_path / "out", DecomposeSettings(fit="closed-form"))
    assert repr(result).startswith(f"Decomposition({tmp_path / 'out'}: closed-form, speed ")
    page = result._repr_html_()
    assert result.metrics["verdict"]["text"] in page
    assert page.count("<rect") == len(result.shares)
