"""Tables of many episodes: a flat file of results, and models that are fitted to some of them."""

import h5py
import numpy as np
import pytest
import trips

import grd_offline
from grd_offline import DecomposeSettings, decompose, read, relabel
from grd_offline.io.datasets import as_recording, open_recording, write_dataset
from grd_offline.io.formats import layouts
from grd_offline.methods import choose, relabelling

COLUMNS = "returns=fuel,actions=throttle,step=minute"
UNIFORM = DecomposeSettings(method="uniform")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "trips.csv").write_text(trips.as_csv(trips.make_trips(trips=12)))
    return tmp_path / "trips.csv"


def test_many_episodes_are_written_flat_and_read_the_same(table, tmp_path, monkeypatch):
    grouped = decompose(table, tmp_path / "grouped", UNIFORM, columns=COLUMNS)
    monkeypatch.setattr(relabelling, "MANY_EPISODES", 5)
    flat = decompose(table, tmp_path / "flat", UNIFORM, columns=COLUMNS)
    with h5py.File(flat.relabelled) as file:
        assert "observations" in file
        assert "episode_0" not in file
    assert flat.table.read_bytes() == grouped.table.read_bytes()
    assert list(flat.rewards_) == list(grouped.rewards_)
    for name, column in grouped.rewards_.items():
        np.testing.assert_array_equal(flat.rewards_[name], column)
    for ours, theirs in zip(read(flat.relabelled), read(grouped.relabelled), strict=True):
        assert ours.label == theirs.label
        for field in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
    again = relabel(table, tmp_path / "flat", tmp_path / "again.h5")
    rows = [path.read_text().splitlines() for path in (again.table, grouped.table)]
    assert [row.split(",")[:2] for row in rows[0]] == [row.split(",")[:2] for row in rows[1]]
    with open_recording(again.path) as recording:
        assert recording.layout == "d4rl"


def test_episodes_that_do_not_end_stay_in_groups(tmp_path, monkeypatch):
    """A flat file could not tell where they end."""
    made = trips.make_trips(trips=12)
    made["truncated"] = np.zeros(len(made["trip"]), np.int64)
    (tmp_path / "trips.csv").write_text(trips.as_csv(made))
    monkeypatch.setattr(relabelling, "MANY_EPISODES", 5)
    done = decompose(tmp_path / "trips.csv", tmp_path / "out", UNIFORM, columns=COLUMNS)
    with open_recording(done.relabelled) as recording:
        assert (recording.layout, len(recording)) == ("own", 12)


def test_models_are_fitted_to_some_of_many_episodes(table, tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "MOST_FITTED", 10)
    done = decompose(table, tmp_path / "out", UNIFORM, columns=COLUMNS)
    assert any("fitted to 10 of 12 episodes, drawn at random" in text for text in done.warnings)
    assert done.metrics["episodes"] == len(read(done.relabelled)) == 12


def test_some_episodes_are_drawn_by_their_deliveries():
    episodes = grd_offline.from_arrays(list(np.zeros((30, 4, 1))), returns=np.arange(30.0))
    rng = np.random.default_rng(0)
    assert choose.draw_episodes(episodes, 5_000, rng) is episodes
    assert len(choose.draw_episodes(episodes, 10_000, rng)) == 15
    drawn = choose.draw_episodes(episodes, 10**9, rng)
    returns = drawn.compute_returns()
    assert len(drawn) == len(set(returns)) == choose.FEWEST
    assert set(returns) <= set(range(30))


def test_names_of_many_episodes_have_room_in_a_flat_file(table, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "ATTRIBUTE_BYTES", 10)
    episodes = read(table, columns=COLUMNS)
    recording = as_recording(episodes)
    write_dataset(
        tmp_path / "flat.h5", recording.header, recording, layout="d4rl", lengths=episodes.lengths
    )
    with open_recording(tmp_path / "flat.h5") as found:
        assert [record.attributes["episode"] for record in found] == [f"T{k}" for k in range(12)]
