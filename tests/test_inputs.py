"""An input is identified by what it is. Its name is for readers, and nothing reads a name back."""

import copy
import json
import pickle
import re

import numpy as np
import pytest
from decompositions import refer
from places import ROOT

import grd_offline
from grd_offline.core.episodes import LabelName, list_label_columns, read_names
from grd_offline.core.inputs import InputRef, explain_marks, list_inputs, name_effect
from grd_offline.methods.result import read_decomposition
from grd_offline.report.decomposed import measure_importance, read_tracks

MARKS = r"""["']('|=| x | \(midpoint\)|\\')["']|chr\(39\)"""
READ = re.compile(
    r"\.(split|rsplit|partition|rpartition|endswith|removesuffix|strip|rstrip|find|index)"
    rf"\([^)]*({MARKS})|({MARKS}) in "
)
"""A call that takes a text apart at one of the marks that names of inputs have."""
OTHERS = {
    "grd_offline/core/episodes.py": 3,  # names that files of users and of version 0.2 hold
    "grd_offline/io/tables/columns.py": 1,  # --columns role=NAME
    "grd_offline/learning/settings.py": 1,  # --set name=value
    "cli/options.py": 1,  # name=value
}
"""How many such calls a file has that read something else."""


def test_no_module_reads_a_name_back():
    found = {
        str(file.relative_to(ROOT)): count
        for folder in ("grd_offline", "cli")
        for file in (ROOT / folder).rglob("*.py")
        if (count := len(READ.findall(file.read_text())))
    }
    assert found == OTHERS


def test_what_an_input_is_survives_a_file():
    for one in refer(["speed", "speed'", "speed (midpoint)", "push", "terminated"]):
        again = InputRef.from_json(json.loads(json.dumps(one.to_json())))
        assert (again, again.name) == (one, one.name)
    rain = LabelName("weather", "rain")
    for name in (copy.deepcopy(rain), pickle.loads(pickle.dumps(rain))):
        assert (name, name.column, name.label) == ("weather=rain", "weather", "rain")
    names = (rain, "p=0.5", LabelName("a=b", "c=d"))
    again = read_names([str(name) for name in names], list_label_columns(names))
    assert [type(name) for name in again] == [LabelName, str, LabelName]
    assert (again[2].column, again[2].label) == ("a=b", "c=d")


def test_inputs_of_one_name_are_not_one_input():
    """s' is a column, and also the name of s in the next state."""
    own, later = list_inputs([0, 5], ("s'", "s"), ("a",))
    assert (own.name, later.name) == ("s'", "s'")
    assert own != later
    assert explain_marks([own]) == ""
    assert explain_marks([own, later]).startswith("A prime means the end of the step: s' is s in")
    assert name_effect(list_inputs([0, 1], ("p=1", "p=2"), ())) == "p=1 x p=2"
    assert name_effect(list_inputs([0, 1], read_names(["p=1", "p=2"]), ())) == "p (1, 2)"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table whose columns have the names that would be taken for something else."""
    rng, file = np.random.default_rng(0), tmp_path_factory.mktemp("names") / "trips.csv"
    rows = ["trip,minute,load',a x b,p=0.5,p=1,q (midpoint),in=out,pay"]
    for trip in range(80):
        values, sign = rng.normal(size=(6, 5)).round(3), rng.integers(0, 2, 6)
        pay = (values[:, 0] + 2 * values[:, 2] - values[:, 4] + 3 * sign).sum().round(4)
        rows += [
            f"{trip},{m},{','.join(map(str, values[m]))},{('up', 'down=x')[sign[m]]},{pay}"
            for m in range(6)
        ]
    file.write_text("\n".join(rows))
    return file


def test_columns_may_be_called_anything(table):
    columns = "episode=trip,step=minute,return=pay"
    result = grd_offline.decompose(table, table.parent / "out", columns=columns)
    record = read_decomposition(result.folder)
    found = {one.name: one.total for one in measure_importance(record, read_tracks(record))}
    assert set(found) >= {"load'", "p=0.5", "q (midpoint)", "in=out"}
    assert "p" not in found
    (label, *_) = [one for one in record.inputs if one.category is not None]
    assert (label.column, label.category) in {("in=out", "up"), ("in=out", "down=x")}
    model = grd_offline.RewardModel.load(result.folder)
    names = model.observation_names
    assert [name for name in names if isinstance(name, LabelName)] == [
        "in=out=down=x",
        "in=out=up",
    ]
    again = grd_offline.relabel(table, model, table.parent / "again.h5", columns="step=minute")
    episodes = grd_offline.read(again.path)
    assert [type(name) for name in episodes.observation_names] == [type(name) for name in names]
