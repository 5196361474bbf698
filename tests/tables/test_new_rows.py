"""Rewards of a saved model for new rows of a data frame."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forked import run
from trips import make_trips

import grd_offline
from grd_offline.errors import DataError

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
