"""A new layout is one module and one registration. This test adds one, as another package would."""

from pathlib import Path

import forked
import h5py
import numpy as np
import pytest
import samples

from grd_offline import open_recording, read, write_dataset
from grd_offline.io.datasets import (
    Header,
    Layout,
    Leaf,
    Record,
    Recording,
    register_layout,
)
from grd_offline.io.files.storage import replace_file
from grd_offline.io.formats import layouts
from grd_offline.io.formats.layouts import create_hdf5


def is_table(root):
    return set(root.names()) == {"table"}


def read_table(file):
    """Every row is one step: state, action, reward. All episodes have ten steps."""
    rows = file.root.dataset("table").read()
    header = Header((Leaf("", (1,), "float64"),), (Leaf("", (1,), "float64"),))

    def load(index):
        part = rows[10 * index : 10 * index + 10]
        return Record(
            observations={"": np.append(part[:, :1], [[0.0]], axis=0)},
            actions={"": part[:, 1:2]},
            rewards=part[:, 2],
            terminations=np.zeros(10, np.bool_),
            truncations=np.arange(10) == 9,
        )

    lengths = np.full(len(rows) // 10, 10)
    return Recording("table", header, lengths, load, lambda index: load(index).rewards)


def write_table(new):
    parts = [
        np.column_stack([r.observations[""][:-1, :1], r.actions[""][:, :1], r.rewards])
        for r in new.records
    ]
    with replace_file(new.path) as output, create_hdf5(output) as file:
        file["table"] = np.concatenate(parts)
    return []


TABLE = Layout("table", is_table, read_table, write_table)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(layouts, "LAYOUTS", list(layouts.LAYOUTS))
    register_layout(TABLE)


def test_a_registered_layout_is_recognised_read_and_written(registered, tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["table"] = rows
    with open_recording(tmp_path / "data.h5") as recording:
        assert recording.layout == "table"
        write_dataset(tmp_path / "copy.h5", recording.header, recording, layout="table")
        write_dataset(tmp_path / "own.h5", recording.header, recording)
    with h5py.File(tmp_path / "copy.h5") as file:
        np.testing.assert_array_equal(file["table"], rows)
    for name in ("data.h5", "copy.h5", "own.h5"):
        episodes = read(tmp_path / name)
        assert episodes.lengths.tolist() == [10, 10, 10]
        np.testing.assert_array_equal(episodes[1].rewards, rows[10:20, 2])


def test_a_name_stands_for_one_layout(registered):
    with pytest.raises(ValueError, match="there is another layout called 'table'"):
        register_layout(TABLE)


def test_without_the_registration_the_file_is_refused(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["table"] = np.zeros((10, 3))
    with pytest.raises(ValueError, match=r"layout not recognised \(own, minari, .*holds table"):
        open_recording(tmp_path / "data.h5")


def test_a_layout_that_is_only_read_is_not_written(tmp_path):
    for layout in ("d3rlpy", "robomimic", "csv"):
        with pytest.raises(ValueError, match="expected one of own, minari, d4rl, got"):
            write_dataset(tmp_path / "a.h5", samples.make_header(), [], layout=layout)
    with pytest.raises(ValueError, match="the d4rl layout needs the lengths"):
        write_dataset(tmp_path / "a.h5", samples.make_header(), [], layout="d4rl")


def test_convert_writes_a_registered_layout(tmp_path):
    write_dataset(tmp_path / "own.h5", samples.make_header(), samples.make_records())
    script = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from test_layouts import TABLE, register_layout\n"
        "from grd_offline.cli import main\n"
        "register_layout(TABLE)\n"
        "main(['convert', 'own.h5', 'table.h5', '--to', 'table'])\n"
    )
    places = [str(Path(__file__).parent), samples.__file__.rpartition("/")[0]]
    done = forked.run_script(script, *places, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "from own to table" in done.stdout
