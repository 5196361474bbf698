"""Numbers of CSV files with decimal commas and with marks between thousands."""

import numpy as np
import pytest

from grd_offline import from_dataframe
from grd_offline.errors import DataError
from grd_offline.formats import read
from grd_offline.formats.tables.numbers import COMMA, POINT, find_unread, is_number, parse_number


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("1234.5", POINT, 1234.5),
        ("1,234.5", POINT, 1234.5),
        ("-12,345,678", POINT, -12345678),
        ("1'234.50", POINT, 1234.5),
        ("1e3", POINT, 1000),
        ("1.234,5", COMMA, 1234.5),
        ("+1.234", COMMA, 1234),
        ("1\u202f234,5", COMMA, 1234.5),
        ("1 234 567", COMMA, 1234567),
        ("0,125", COMMA, 0.125),
        ("12", COMMA, 12),
    ],
)
def test_a_number_is_read_in_its_form(text, decimal, number):
    assert parse_number(text, decimal) == number


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("12,34", POINT),
        ("0,125", POINT),
        ("1,234,56", POINT),
        ("1,234 567", POINT),
        ("3.75", COMMA),
        ("0.125", COMMA),
        ("1.23,4", COMMA),
        ("1.234.56", COMMA),
        ("1,2,3", COMMA),
        ("10.0.0.1", COMMA),
    ],
)
def test_what_is_no_number_in_that_form_is_not_read(text, decimal):
    assert not is_number(text, decimal)


def read_columns(path, separator, *columns):
    """The inputs of a table with these columns beside an episode and its return."""
    names = ["episode", *"abc"[: len(columns)], "return"]
    rows = [
        separator.join((str(row // 2), *(f'"{cell}"' for cell in cells), "1"))
        for row, cells in enumerate(zip(*columns, strict=True))
    ]
    path.write_text("\n".join([separator.join(names), *rows]) + "\n")
    episodes = read(path)
    return np.concatenate([episode.observations for episode in episodes]).T


@pytest.mark.parametrize(
    ("separator", "columns", "expected"),
    [
        pytest.param(",", [["1,234.5", "7", "8.25", "9"]], [[1234.5, 7, 8.25, 9]], id="US"),
        pytest.param(";", [["1.234,5", "7", "8,25", "9"]], [[1234.5, 7, 8.25, 9]], id="German"),
        pytest.param("\t", [["1 234,5", "7", "8,25", "9"]], [[1234.5, 7, 8.25, 9]], id="French"),
        pytest.param(";", [["1'234.5", "7", "8.25", "9"]], [[1234.5, 7, 8.25, 9]], id="Swiss"),
        # The other column says what a single point or comma means.
        pytest.param(
            ";",
            [["1.234", "7", "8", "9"], ["0,5", "1", "2", "3"]],
            [[1234, 7, 8, 9], [0.5, 1, 2, 3]],
            id="thousands beside decimal commas",
        ),
        pytest.param(
            ";",
            [["1,234", "7", "8", "9"], ["0.5", "1", "2", "3"]],
            [[1234, 7, 8, 9], [0.5, 1, 2, 3]],
            id="thousands beside decimal points",
        ),
        pytest.param(";", [["1,234", "7", "8", "9"]], [[1.234, 7, 8, 9]], id="a comma in doubt"),
        pytest.param(";", [["1.234", "7", "8", "9"]], [[1.234, 7, 8, 9]], id="a point in doubt"),
        pytest.param(
            ";",
            [["1.234", "0.7", "8", "9"], ["0,5", "1", "2", "3"]],
            [[1.234, 0.7, 8, 9], [0.5, 1, 2, 3]],
            id="each column in its own form",
        ),
    ],
)
def test_the_form_follows_from_the_whole_column_and_the_others(
    tmp_path, separator, columns, expected
):
    found = read_columns(tmp_path / "table.csv", separator, *columns)
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_the_form_of_the_first_rows_holds_for_later_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("grd_offline.formats.tables.csv_file.BLOCK_ROWS", 4)
    cells = ["0,5", "1,5", "2,5", "3,5", "1.234", "5", "6", "7"]
    found = read_columns(tmp_path / "table.csv", ";", cells)
    np.testing.assert_array_equal(found[0], np.float32([0.5, 1.5, 2.5, 3.5, 1234, 5, 6, 7]))
    with pytest.raises(DataError, match=r"row 6: '3\.75' is not a number, as other rows are"):
        read_columns(tmp_path / "table.csv", ";", [*cells[:4], "3.75", *cells[5:]])


@pytest.mark.parametrize("separator", [",", ";"])
def test_numbers_that_are_not_read_do_not_become_categories(tmp_path, separator):
    with pytest.raises(DataError, match=r"row 2: '12,5' is a number in a form that is not read"):
        read_columns(tmp_path / "table.csv", separator, ["12,5", "3.75", "1", "2"])
    table = {"episode": [0, 0], "x": ["12,5", "3"], "return": [1, 1]}
    with pytest.raises(DataError, match=r"row 0: '12,5' .* write numbers like 1234\.5"):
        from_dataframe(table)
    assert from_dataframe(table, categories="x").observation_names == ("x=12,5", "x=3")


def test_only_texts_that_are_all_numbers_are_in_doubt():
    assert find_unread(["1", "2.5"]) is None
    assert find_unread(["1", "2,5"]) == 1
    assert find_unread(["2,5", "red"]) is None
