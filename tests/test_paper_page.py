"""docs/paper.md: what it names is there, and the equations are marked in the code."""

import importlib
import re

import pytest
from places import ROOT

from grd_offline.methods.paper import LAMBDAS

PAGE = (ROOT / "docs" / "paper.md").read_text()
ROOMS = ("networks.losses", "core.graph", "networks.members.nn")


@pytest.mark.parametrize("number", [1, 2, 4, 5, 6, 7, 8, *range(20, 26)])
def test_the_equation_is_marked_in_the_code(number):
    texts = [file.read_text() for file in sorted((ROOT / "grd_offline").rglob("*.py"))]
    marks = [mark for text in texts for mark in re.findall(r"Eq\. (\d+)(?: and (\d+))?", text)]
    assert str(number) in {part for mark in marks for part in mark}
    rows = re.findall(r"^\| (\d+)(?:(,| to) (\d+))? \|", PAGE, re.MULTILINE)
    listed = {n for first, _, last in rows for n in range(int(first), int(last or first) + 1)}
    assert number in listed


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_the_file_is_there(name):
    assert (ROOT / "grd_offline" / name).exists() or (ROOT / name).exists()


@pytest.mark.parametrize(
    "name",
    sorted(
        set(
            re.findall(
                r"`((?:networks\.losses|core\.graph|networks\.members\.nn)\.\w+(?:\.\w+)?)`", PAGE
            )
        )
    ),
)
def test_the_name_is_there(name):
    room = next(room for room in ROOMS if name.startswith(f"{room}."))
    found = importlib.import_module(f"grd_offline.{room}")
    for part in name.removeprefix(f"{room}.").split("."):
        found = getattr(found, part)
    assert callable(found)


def test_the_table_has_the_eight_tasks_of_the_paper():
    assert len(LAMBDAS) == 8
