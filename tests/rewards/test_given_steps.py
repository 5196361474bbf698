"""Steps that a user gives to a model: wrong columns are named, and data frames are understood."""

import numpy as np
import pytest

from grd_offline import DataError
from grd_offline.core.episodes import read_names
from grd_offline.rewards.model import read_columns

NAMES = read_names(("speed", "weather=rain", "weather=sun"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 0.0]], "observations: expected shape (N, 3), got (1, 2); the model expects the "
         "columns: speed, weather=rain, weather=sun"),
        ([1.0, 0.0, 1.0], "expected shape (N, 3), got (3,)"),
        ([["1", "rain", "x"]], "expected numbers, got <U4; the model expects the columns: speed"),
    ],
)  # fmt: skip
def test_wrong_arrays_are_told_the_columns(values, message):
    with pytest.raises(DataError) as caught:
        read_columns("observations", values, NAMES)
    assert message in str(caught.value)


def test_frames_may_have_their_columns_in_any_order_and_labels_as_text():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"weather": ["sun", "rain"], "more": 1, "speed": [3, 4]})
    wanted = [[3, 0, 1], [4, 1, 0]]
    assert read_columns("observations", frame, NAMES).tolist() == wanted
    dummies = pandas.get_dummies(frame, columns=["weather"], prefix_sep="=")
    assert read_columns("observations", dummies, NAMES).tolist() == wanted
    assert read_columns("actions", frame, ()).shape == (2, 0)
    assert read_columns("actions", frame["speed"], ("speed",)).tolist() == [[3], [4]]
    assert read_columns("actions", [0.5, 1], ("speed",)).tolist() == [[0.5], [1]]
    for wrong, message in (
        (pandas.get_dummies(frame), "there is no column 'weather=rain'; the model expects the "
         "columns: speed, weather=rain, weather=sun; got: more, speed, weather_rain"),
        (frame.assign(weather="hail"), "column weather: 'hail' is not among the known categories: "
         "rain, sun"),
        (frame.assign(speed="fast"), "column speed: expected numbers"),
    ):  # fmt: skip
        with pytest.raises(DataError) as caught:
            read_columns("observations", wrong, NAMES)
        assert message in str(caught.value)


def test_numbers_that_are_labels():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"gear": [1.0, 2.0]})
    assert np.array_equal(
        read_columns("actions", frame, read_names(("gear=1", "gear=2"))), np.eye(2)
    )
