"""Names of columns with letters that mean something in `--columns`."""

import csv

import numpy as np
import pytest
from click.testing import CliRunner

from grd_offline import DataError
from grd_offline.cli.program import cli
from grd_offline.io.tables.columns import Columns, parse_columns, split_names

ODD = ("tool age (min, total)", "a+b", 'the "new" one', " blank", 'width 5"', "load [kg]", "x=1")


def test_any_name_comes_back_from_its_text():
    columns = Columns(episode="a,b", observations=ODD, actions=('"', '""'), returns="cost, EUR")
    given = parse_columns(str(columns))
    assert given == {
        "episode": ("a,b",),
        "observations": ODD,
        "actions": ('"', '""'),
        "returns": ("cost, EUR",),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("episode=trip,,step=minute,", {"episode": ("trip",), "step": ("minute",)}),
        ("actions=,return=fuel", {"actions": (), "returns": ("fuel",)}),
        ('observations= a + "b, c" ', {"observations": ("a", "b, c")}),
        ('observations=width 5"+height 6"', {"observations": ('width 5"', 'height 6"')}),
        ('observations="a+b', {"observations": ('"a', "b")}),
    ],
)
def test_blanks_and_quotes(text, expected):
    assert parse_columns(text) == expected


@pytest.mark.parametrize("text", ["image, sound", "image+sound", '"image",sound,'])
def test_lists_of_names(text):
    assert split_names(text) == ["image", "sound"]
    assert split_names('"load, kg",image') == ["load, kg", "image"]


@pytest.mark.parametrize("text", ["trip", "speed=trip", 'observations="a,b"c', "=trip"])
def test_anything_else_is_refused(text):
    with pytest.raises(DataError, match="expected ROLE=NAME or ROLE="):
        parse_columns(text)


def test_a_table_with_odd_names_goes_all_the_way(tmp_path):
    rng = np.random.default_rng(0)
    names = ["batch", *ODD, "cost, EUR", "truth, EUR"]
    with open(tmp_path / "shop.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for batch in range(20):
            inputs = rng.normal(size=(5, len(ODD))).round(3)
            costs = inputs[:, 0].round(3)
            for row, cost in zip(inputs, costs, strict=True):
                writer.writerow([batch, *row, costs.sum().round(3), cost])
    table = tmp_path / "shop.csv"
    columns = 'return="cost, EUR",truth="truth, EUR"'
    for command in (
        ["decompose", table, "--columns", columns, "--fit", "linear"],
        ["relabel", table, "--model", tmp_path / "shop-grd"],
        ["evaluate", tmp_path / "shop-grd", "--data", table, "--truth", "truth, EUR"],
    ):
        done = CliRunner().invoke(cli, [str(part) for part in command])
        assert done.exit_code == 0, (done.output, done.exception)
