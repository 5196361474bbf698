"""Inputs with few values: bars and curves for each value, labels under their column."""

import numpy as np
import pytest
from decompositions import make_effect, refer, write_decomposition
from pages import find_payload, find_text, report_decomposition

from grd_offline.core.inputs import explain_marks, name_effect
from grd_offline.methods.result import read_decomposition
from grd_offline.report.decomposed import measure_importance, read_tracks, shape_effect

LABELS = ("weather=rain", "weather=snow", "weather=sun")
STATES = ("speed", "load", "lights", "x", "a=1", "a=2", "b=1", *LABELS)
RAIN, SNOW, SUN = np.eye(3)[np.array([0, 0, 1, 2, 2, 2])].T


def make_one(inputs, function):
    """An effect on the grid 0, 0.5, 1 of each input."""
    grid = [0.0, 0.5, 1.0]
    mean = function(*np.meshgrid(*[grid] * len(inputs), indexing="ij"))
    std = np.full(mean.shape, 0.1)
    grids = [grid] * len(inputs)
    references = refer(inputs, STATES)
    return {"references": references, "grids": grids, "mean": mean, "std": std, "share": 1}


def test_two_values_have_two_bars():
    shape = shape_effect(make_one(["lights"], lambda x: 3 * x - 1), [np.array([0.0, 1.0, 1.0])])
    assert (shape.ticks, shape.mean.tolist()) == ([["0", "1"]], [-1, 2])
    assert shape.std.tolist() == [0.1, 0.1]
    shape = shape_effect(make_one([LABELS[0]], lambda x: x), [RAIN])
    assert shape.ticks == [["not rain", "rain"]]


def test_many_values_keep_their_curve():
    shape = shape_effect(make_one(["speed"], lambda x: x), [np.linspace(-1, 2, 50)])
    assert (shape.ticks, len(shape.grids[0])) == ([None], 3)
    assert shape.values[0].max() == 1  # inside the grid


def test_a_pair_is_cut_at_the_values_of_one_input():
    values = [RAIN, np.linspace(0, 1, 6)]
    shape = shape_effect(make_one([LABELS[0], "speed"], lambda x, y: x * y), values)
    assert shape.ticks == [["not rain", "rain"], None]
    assert shape.mean.tolist() == [[0, 0, 0], [0, 0.5, 1]]


def test_labels_of_one_column_are_one_input():
    effect = make_one(list(LABELS[:2]), lambda x, y: 2 * x + y)
    shape = shape_effect(effect, [RAIN, SNOW])
    assert (shape.inputs, shape.ticks) == (["weather"], [["rain", "snow", "another"]])
    assert shape.mean.tolist() == [2, 1, 0]
    assert shape.values[0].tolist() == [0, 0, 1, 2, 2, 2]
    # At midpoints, a step may be half of two labels.
    shape = shape_effect(effect, [np.array([0.5, 1]), np.array([0.5, 0])])
    assert shape.ticks == [["rain", "0.5 rain + 0.5 snow"]]
    assert shape.mean.tolist() == [2, 1.5]


@pytest.mark.parametrize(
    ("inputs", "name"),
    [(["speed"], "speed"), (["speed", "load"], "speed x load"), ([LABELS[0]], "weather=rain"),
     (LABELS[:2], "weather (rain, snow)"), (["a=1'", "a=2'"], "a' (1, 2)"),
     (["a=1", "a=2'"], "a=1 x a=2'"), (["a=1", "b=1"], "a=1 x b=1")],
)  # fmt: skip
def test_names_of_effects(inputs, name):
    assert name_effect(refer(inputs, STATES)) == name


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["speed", "push"], ""),
        (["speed'"], "A prime means the end of the step: speed' is speed in the next state."),
        (["x (midpoint)"], "x (midpoint) is the mean of the values at the start and the end of "
         "the step."),
    ],
)  # fmt: skip
def test_names_of_next_states_are_explained(names, text, tmp_path):
    assert explain_marks(refer(names, STATES)) == text
    effects = [make_effect([name.replace("x", "speed")], 1.0) for name in names]
    page = find_text(report_decomposition(write_decomposition(tmp_path / "grd", effects=effects)))
    # Below the episodes, and again below the effects.
    assert page.count(text.replace("x (", "speed (")) == 2 if text else "prime" not in page


def test_a_category_has_one_bar_in_the_report(tmp_path):
    states = ("height", *LABELS[:2])
    effects = [
        make_effect(["height"], 0.5),
        make_effect(LABELS[:1], 0.2),
        make_effect(LABELS[:2], 0.2),
        make_effect(["weather=snow", "push"], 0.1),
    ]
    folder = write_decomposition(tmp_path / "grd", states=states, effects=effects)
    record = read_decomposition(folder)
    tracks = read_tracks(record)
    found = {one.name: (one.alone, one.joint) for one in measure_importance(record, tracks)}
    assert found == {
        "height": (0.5, 0), "weather": (pytest.approx(0.4), 0.1), "push": (0, 0.1)
    }  # fmt: skip
    single = {one.name: one.total for one in measure_importance(record, tracks, by_column=False)}
    assert single["weather=rain"] == pytest.approx(0.4)
    page = report_decomposition(folder)
    assert "weather (rain, snow)" in find_text(page)
    assert "weather=rain x weather=snow" not in find_text(page)
    series = find_payload(page)["viewer"]["series"]
    assert series["labels"] == ["weather=rain", "weather=snow"]
