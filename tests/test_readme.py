"""Every snippet of the README and of the pages on training online and reports runs, in order."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from grd_offline.decompose.paper import LAMBDAS
from grd_offline.online.settings import BACKBONES, FITS, METHODS, OnlineSettings
from grd_offline.online.settings import LAMBDAS as LAMBDA_NAMES

ROOT = Path(__file__).parent.parent
ONLINE = (ROOT / "docs" / "online.md").read_text()
REPORT = (ROOT / "docs" / "report.md").read_text()


def run_snippet(language, snippet, folder):
    """In a folder, with the commands of this environment."""
    shell = ["bash", "-e", "-c"] if language == "sh" else [sys.executable, "-c"]
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": commands}
    done = subprocess.run(
        [*shell, snippet], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, f"{snippet}\n{done.stderr}"


def test_snippets_run(tmp_path):
    (tmp_path / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", tmp_path / "datasets")
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"`(grd-offline decompose datasets/sample.h5 .*?)`", text)
    run_snippet("sh", command, tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) >= 3
    for snippet in snippets:
        run_snippet("python", snippet, tmp_path)
    # The page on reports goes on with the decomposition of the README.
    snippets = re.findall(r"```(sh|python)\n(.*?)```", REPORT, re.DOTALL)
    assert len(snippets) >= 2
    for language, snippet in snippets:
        run_snippet(language, snippet, tmp_path)


def test_snippets_on_training_online_run(tmp_path):
    snippets = re.findall(r"```(sh|python)\n(.*?)```", ONLINE, re.DOTALL)
    assert len(snippets) >= 5
    for language, snippet in snippets:
        run_snippet(language, snippet, tmp_path)
    assert len(list(tmp_path.glob("runs/small/plots/*.png"))) == 4


def rows(text):
    """The cells of a page's tables, row by row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_tables_on_training_online_are_complete():
    first = [row[0] for row in rows(ONLINE)]
    for name in (*METHODS, *FITS, *BACKBONES):
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
