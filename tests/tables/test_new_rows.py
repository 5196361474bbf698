"""Rewards of a saved model for new rows of a data frame."""

import shutil
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forked import run
from trips import as_csv, make_trips

import grd_offline
from grd_offline.core.episodes import Origin, Provenance
from grd_offline.core.errors import DataError
from grd_offline.io.tables.results import Rewarded, is_rewards_table, open_rewards

NEW = ("trip", "minute", "speed", "load", "weather", "throttle")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `decompose` makes of a data frame."""
    path = tmp_path_factory.mktemp("frame") / "trips-grd"
    table = pd.DataFrame(make_trips()).rename(columns={"true_reward": "cost"})
    episodes = grd_offline.from_dataframe(
        table, step="minute", actions="throttle", returns="fuel", ignored="cost"
    )
    grd_offline.decompose(episodes, path)
    return path


@pytest.fixture
def rows():
    """Rows of other trips, in any order, without their outcomes."""
    table = pd.DataFrame(make_trips(8, seed=1))
    return table.sample(frac=1, random_state=0).reset_index(drop=True)


def test_new_rows_get_rewards_in_their_order(folder, rows):
    rewards = grd_offline.compute_rewards(rows[[*NEW]], folder)
    assert list(rewards) == ["trip", "minute", "reward", "spread"]
    assert rewards.trip.tolist() == rows.trip.tolist()
    assert rewards.minute.tolist() == rows.minute.tolist()
    assert np.corrcoef(rewards.reward, rows.true_reward)[0, 1] > 0.99
    again = grd_offline.compute_rewards(rows[[*NEW]], grd_offline.RewardModel.load(folder))
    pd.testing.assert_frame_equal(rewards, again)


def test_the_result_is_a_table_of_the_same_library(folder, rows):
    expected = grd_offline.compute_rewards(rows[[*NEW]], folder)
    found = grd_offline.compute_rewards(pl.from_pandas(rows[[*NEW]]), folder)
    assert isinstance(found, pl.DataFrame)
    np.testing.assert_array_equal(found["reward"], expected.reward)
    plain = grd_offline.compute_rewards({name: rows[name].to_numpy() for name in NEW}, folder)
    assert isinstance(plain, dict)
    np.testing.assert_array_equal(plain["reward"], expected.reward)


def test_rewards_are_those_that_relabel_writes(folder, rows, tmp_path):
    """The folder remembers which column is what, though it was made in Python."""
    rows[[*NEW]].to_csv(tmp_path / "new.csv", index=False)
    done = run("relabel", tmp_path / "new.csv", "--model", folder)
    assert done.returncode == 0, done.stderr
    written = pd.read_csv(tmp_path / "new-relabelled.csv")
    found = grd_offline.compute_rewards(rows[[*NEW]], folder)
    np.testing.assert_allclose(written.reward, found.reward, rtol=1e-5)
    episodes = grd_offline.from_dataframe(rows, step="minute", actions="throttle", returns="fuel",
                                          observations=["speed", "load", "weather"])  # fmt: skip
    again = grd_offline.compute_rewards(episodes, folder)
    np.testing.assert_allclose(again.reward, found.reward, rtol=1e-5)


def test_columns_may_be_called_differently(folder, rows):
    expected = grd_offline.compute_rewards(rows[[*NEW]], folder)
    renamed = rows[[*NEW]].rename(columns={"trip": "journey", "minute": "clock"})
    with pytest.raises(DataError, match="episode"):
        grd_offline.compute_rewards(renamed, folder)
    found = grd_offline.compute_rewards(renamed, folder, columns="episode=journey,step=clock")
    assert list(found) == ["journey", "clock", "reward", "spread"]
    np.testing.assert_array_equal(found.reward, expected.reward)


def test_rows_that_do_not_fit_the_model_are_refused(folder, rows):
    with pytest.raises(DataError, match="the model needs a column 'speed'"):
        grd_offline.compute_rewards(rows[["trip", "minute", "weather", "throttle"]], folder)
    strange = rows[[*NEW]].assign(weather="hail")
    with pytest.raises(DataError, match="'hail' is not among the known categories: rain, snow"):
        grd_offline.compute_rewards(strange, folder)
    with pytest.raises(DataError, match="expected a data frame"):
        grd_offline.compute_rewards("trips.csv", folder)
    with pytest.raises(DataError, match="give rows without outcomes to compute_rewards"):
        grd_offline.relabel(rows, folder)


def test_inputs_are_found_by_their_names(folder, rows):
    expected = grd_offline.compute_rewards(rows[[*NEW]], folder)
    listed = grd_offline.compute_rewards(
        rows[[*NEW]], folder, columns="observations=weather+load+speed"
    )
    np.testing.assert_array_equal(listed.reward, expected.reward)
    for names in (["weather", "load", "speed"], ["load", "speed", "weather"]):
        episodes = grd_offline.from_dataframe(
            rows, step="minute", actions="throttle", returns="fuel", observations=names
        )
        with pytest.raises(DataError, match="inputs are not those of the model, or in another"):
            grd_offline.compute_rewards(episodes, folder)
    aged = grd_offline.from_dataframe(
        rows.rename(columns={"speed": "age"}), step="minute", actions="throttle", returns="fuel",
        observations=["age", "load", "weather"],
    )  # fmt: skip
    with pytest.raises(DataError, match="input 1 is age, and the model has speed there"):
        grd_offline.compute_rewards(aged, folder)


@pytest.mark.long
def test_a_column_that_the_rewards_depend_on_must_be_there(tmp_path):
    """Half of the episodes end with `done`, which costs 5."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"trip": np.repeat(np.arange(200), 5), "x": rng.normal(size=1000)})
    table["done"] = (np.tile(np.arange(5), 200) == 4) & (table.trip % 2 == 0)
    table["score"] = (table.x - 5.0 * table.done).groupby(table.trip).transform("sum")
    grd_offline.decompose(grd_offline.from_dataframe(table, returns="score"), tmp_path / "grd")
    rewards = grd_offline.compute_rewards(table, tmp_path / "grd")
    assert rewards.reward[table.done].mean() < -4
    rest = table.drop(columns=["done", "score"])
    with pytest.raises(DataError, match=r"depend on the column 'done' \(terminated\), which is no"):
        grd_offline.compute_rewards(rest, tmp_path / "grd")
    none = grd_offline.compute_rewards(rest, tmp_path / "grd", columns="terminated=")
    assert none.reward[table.done].mean() > -1
    ends = rest.assign(over=table.done)
    found = grd_offline.compute_rewards(ends, tmp_path / "grd", columns={"terminated": "over"})
    np.testing.assert_array_equal(found.reward, rewards.reward)


def test_episodes_and_steps_come_back_as_they_were(folder, rows):
    ids = [uuid.uuid5(uuid.NAMESPACE_DNS, trip) for trip in rows.trip]
    start = pd.Timestamp("2026-03-01", tz="Europe/Berlin")
    moments = start + pd.to_timedelta(rows.minute, unit="min")
    own = rows[[*NEW]].assign(trip=ids, minute=moments).set_index(rows.index[::-1])
    rewards = grd_offline.compute_rewards(own, folder)
    assert rewards.trip.tolist() == ids
    assert rewards.minute.dtype == own.minute.dtype
    assert len(own.merge(rewards)) == len(own)
    expected = grd_offline.compute_rewards(rows[[*NEW]], folder)
    np.testing.assert_array_equal(rewards.reward, expected.reward)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (pd.Series([1.0]), {}, "expected a data frame.*got Series"),
        (None, {"model": None}, "model: expected a RewardModel or the folder of one, got NoneType"),
        (None, {"columns": 3}, "columns: expected a text such as.*got int"),
        (None, {"model": __file__}, "is a file, expected the folder of a decomposition or model"),
    ],
)
def test_mistakes_are_told_in_a_line(folder, rows, table, options, message):
    given = {"model": folder, **options}
    with pytest.raises(DataError, match=message):
        grd_offline.compute_rewards(rows[[*NEW]] if table is None else table, **given)


def test_a_folder_of_several_outcomes_says_which_models_it_has(folder, rows, tmp_path):
    for name in ("fuel", "time"):
        shutil.copytree(folder, tmp_path / "both" / name)
    with pytest.raises(DataError, match=r"holds several decompositions: name one.*both/fuel"):
        grd_offline.compute_rewards(rows[[*NEW]], tmp_path / "both")


def test_no_table_is_replaced_that_is_not_one_of_rewards(folder, tmp_path):
    """The rewards of trips.csv in trips.h5 would be written into trips.csv."""
    for name in ("trips.csv", "other.csv"):
        (tmp_path / name).write_text(as_csv(make_trips(8)))
    before = (tmp_path / "trips.csv").read_bytes()
    for out in ("trips.h5", "other.h5"):
        with pytest.raises(DataError, match=r"would replace .*csv: choose another name"):
            grd_offline.relabel(tmp_path / "trips.csv", folder, tmp_path / out)
    for _ in range(2):  # what was written together is replaced together
        grd_offline.relabel(tmp_path / "trips.csv", folder, tmp_path / "third.h5")
    assert {(tmp_path / name).read_bytes() for name in ("trips.csv", "other.csv")} == {before}


def test_a_table_beside_a_dataset_of_its_own_is_not_replaced(folder, tmp_path):
    """trips.h5 was made of trips.csv before: its table is the original."""
    for name in ("trips.csv", "more.csv"):
        (tmp_path / name).write_text(as_csv(make_trips(8)))
    before = (tmp_path / "trips.csv").read_bytes()
    grd_offline.relabel(tmp_path / "more.csv", folder, tmp_path / "made.h5")
    shutil.move(tmp_path / "made.h5", tmp_path / "trips.h5")
    with pytest.raises(DataError, match=r"would replace .*csv: choose another name"):
        grd_offline.relabel(tmp_path / "more.csv", folder, tmp_path / "trips.h5")
    assert (tmp_path / "trips.csv").read_bytes() == before


def test_tables_of_rewards_are_known_by_their_columns(tmp_path):
    tables = {
        "a.csv": "trip,minute,reward,spread\n1,2,3,4\n",
        "b.csv": "trip,minute,speed,spread\n1,2,3,4\n",
        "c.csv": "trip,minute,reward,spread,more\n",
        "d.csv": "",
        "e.csv": "\xff\n",
        "a.jsonl": '{"id": 1, "rewards": [3], "spread": [4]}\n',
        "d.jsonl": '{"trip": 1, "minute": 2, "reward": 3, "spread": 4}\n',
        "b.jsonl": "[1, 2]\n",
        "c.jsonl": "no json\n",
        "b.parquet": "no parquet",
    }
    for name, text in tables.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    with open_rewards(tmp_path / "a.parquet", Provenance(episode="trip", step="minute")) as add:
        add(Rewarded(Origin(1), np.zeros(2), np.ones(2)))
    ours = {path.name for path in tmp_path.iterdir() if is_rewards_table(path)}
    assert ours == {"a.csv", "a.jsonl", "a.parquet"}
    assert not is_rewards_table(tmp_path)
