"""Every snippet of the README and of the pages under docs runs, in order."""

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from grd_offline.agents.algorithms import list_online
from grd_offline.methods.choose import GOOD_ENOUGH
from grd_offline.models.sparsity import LAMBDAS
from grd_offline.online.settings import FITS, METHODS, OnlineSettings
from grd_offline.online.settings import LAMBDAS as LAMBDA_NAMES

ONLINE = (ROOT / "docs" / "online.md").read_text()


PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def find_snippets(page):
    """Language and text of each fence that is a program."""
    return re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL)


ONE_BY_ONE = "import sys\nfor text in sys.argv[1:]:\n    exec(text, {'__name__': '__main__'})"
"""Each snippet in a namespace of its own; libraries that take seconds are imported once."""


def run_snippets(language, snippets, folder):
    """In a folder, with the commands of this environment."""
    shell = ["bash", "-e", "-c", "\n".join(snippets)]
    if language == "python":
        shell = [sys.executable, "-c", ONE_BY_ONE, *snippets]
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": commands}
    done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, "\n".join([*snippets, done.stderr])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page, tmp_path):
    """In order, in a folder that holds the sample."""
    (tmp_path / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", tmp_path / "datasets")
    # d3rlpy has an environment of its own; the tests there run its snippet.
    left_out = "d3rlpy" if importlib.util.find_spec("d3rlpy") is None else "\0"
    found = [(kind, text) for kind, text in find_snippets(page) if left_out not in text]
    for language, group in itertools.groupby(found, lambda snippet: snippet[0]):
        run_snippets(language, [text for _, text in group], tmp_path)
    if page.name == "online.md":
        assert len(list(tmp_path.glob("runs/small/plots/*.png"))) == 4


@pytest.mark.parametrize(
    ("name", "least"),
    [("README.md", 4), ("online.md", 5), ("interop.md", 9), ("choosing.md", 3), ("python.md", 3)],
)
def test_pages_have_snippets(name, least):
    (page,) = (page for page in PAGES if page.name == name)
    assert len(find_snippets(page)) >= least


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_figures_on_choosing_stand_in_the_benchmarks():
    """Every figure of two digits or more after the point, as it is printed there."""
    sources = [*(ROOT / "benchmarks").rglob("*.md"), ROOT / "benchmarks/results/quality.txt"]
    known = "\n".join(path.read_text() for path in sources)
    known += str(GOOD_ENOUGH)
    figures = set(re.findall(r"(?<![\w.])\.\d{2,4}\b", (ROOT / "docs/choosing.md").read_text()))
    assert len(figures) > 30
    assert [
        figure for figure in sorted(figures) if not re.search(rf"{re.escape(figure)}\b", known)
    ] == []


def rows(text):
    """The cells of a page's tables, row by row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_tables_on_training_online_are_complete():
    first = [row[0] for row in rows(ONLINE)]
    for name in (*METHODS, *FITS, *list_online()):
        assert name in first


def test_the_papers_settings_are_told_as_they_are():
    table = {row[0]: row[1:] for row in rows(ONLINE)}
    assert table["environment"] == list(LAMBDA_NAMES)
    for environment, weights in LAMBDAS.items():
        assert [float(cell) for cell in table[environment]] == list(weights)
    (part,) = re.findall(r"\| setting \| paper \| default \|\n\|.*?\n(.*?)\n\n", ONLINE, re.DOTALL)
    for names, paper, default in rows(part):
        told = default or paper
        fields = re.findall(r"[a-z_]{3,}", names)
        assert told == ", ".join(tell(getattr(OnlineSettings("any"), name)) for name in fields)


def tell(value):
    """A setting as the page writes it."""
    if isinstance(value, tuple):
        return ", ".join(map(tell, value))
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("0.0003", "3e-4")
