"""What comes back for a table in memory stands in its order, and what is no table is refused."""

import numpy as np
import pandas as pd
import pytest

from grd_offline import ClosedForm, DataError, DecomposeSettings, decompose, from_dataframe

LINEAR = DecomposeSettings(fit="linear")


@pytest.mark.parametrize("step", [{}, {"step": "minute"}])
def test_rewards_have_the_order_of_the_table(tmp_path, step):
    """Also if its rows are mixed, and if it has no column of steps."""
    rng = np.random.default_rng(0)
    table = {"trip": np.repeat(np.arange(40), 5), "speed": rng.normal(size=200)}
    table["minute"] = np.tile(np.arange(5), 40)
    table["fuel"] = np.repeat(np.add.reduceat(table["speed"], np.arange(0, 200, 5)), 5)
    order = rng.permutation(200)
    table = {name: column[order] for name, column in table.items()}
    ignored = {} if step else {"ignored": "minute"}
    episodes = from_dataframe(table, episode="trip", returns="fuel", **step, **ignored)
    fitted = ClosedForm(order=1).fit(episodes).rewards_
    written = decompose(episodes, tmp_path / "out", LINEAR).rewards_
    for rewards in (fitted, written):
        assert (rewards["trip"] == table["trip"]).all()
        assert np.corrcoef(rewards["reward"], table["speed"])[0, 1] > 0.999


def test_a_table_is_no_episodes():
    with pytest.raises(DataError, match=r"got dict: make them of a table with .*from_dataframe"):
        ClosedForm().fit({"trip": [1, 1], "speed": [1.0, 2.0]})


def test_an_empty_cell_among_texts_is_no_category():
    table = {"trip": [1, 1, 2, 2], "fuel": [1.0, 1.0, 2.0, 2.0]}
    table["weather"] = np.array(["sun", float("nan"), "rain", "sun"], object)
    with pytest.raises(DataError, match="1 empty cell: row 1 of weather"):
        from_dataframe(table, episode="trip", returns="fuel")


def test_returns_may_be_a_column_of_the_frame():
    """Its row numbers are no names of episodes."""
    table = pd.DataFrame({"trip": [1, 1, 2, 2], "x": [1.0, 2, 3, 4], "fuel": [7.0, 7, 11, 11]})
    episodes = from_dataframe(table, returns=table["fuel"])
    assert [episode.rewards.sum() for episode in episodes] == [7, 11]
    assert episodes.observation_names == ("x",)
    with pytest.raises(DataError, match="returns: has a number per row of the table"):
        from_dataframe(table, returns=table["fuel"] * 2, observations="x")
    by_trip = table.groupby("trip").fuel.first()
    episodes = from_dataframe(table, returns=by_trip, observations="x")
    assert [episode.rewards.sum() for episode in episodes] == [7, 11]
    single = table.iloc[::2].reset_index(drop=True).assign(trip=[0, 1])
    episodes = from_dataframe(single, returns=single["fuel"] + 1, observations="x")
    assert [episode.rewards.sum() for episode in episodes] == [8, 12]
