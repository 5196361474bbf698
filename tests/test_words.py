"""Plain English: texts are whole sentences, and phrases that had to be read twice stay away."""

import ast
import re

import pytest
from places import ROOT

from grd_offline.core.settings import describe_settings
from grd_offline.core.words import format_share
from grd_offline.learning.settings import CollectSettings, OfflineSettings, OnlineSettings
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.report.page import show_share

HARD = (
    "only ever learn how well", "not on all data are they", "returns are told, shares are not",
    "values have no anchor", "from nothing but how well",
)  # fmt: skip
"""Phrases that readers had to read twice."""
FRAGMENT = re.compile(r"(Of|And|But|Or|Likewise|So many|How many)\b")
SETTINGS = (CollectSettings, DecomposeSettings, OfflineSettings, OnlineSettings)


def list_docstrings(file):
    """The line and the text of each docstring, also of fields and constants."""
    for node in ast.walk(ast.parse(file.read_text())):
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else ():
            value = getattr(part, "value", None)
            if isinstance(part, ast.Expr) and isinstance(value, ast.Constant):
                yield part.lineno, str(value.value).strip()


def test_docstrings_are_no_fragments():
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text[:60]}"
        for file in sorted([*(ROOT / "grd_offline").rglob("*.py"), *(ROOT / "cli").glob("*.py")])
        for line, text in list_docstrings(file)
        if FRAGMENT.match(text) and "report" not in file.parts
    ]
    assert found == []


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.0004, "under 0.1 %"), (0.005, "0.5 %"), (0.0535, "5.3 %"), (0.66, "66 %"),
     (0.956, "95.6 %"), (0.9, "90 %"), (0.99975, "99.98 %"), (1, "100 %"), (None, "-")],
)  # fmt: skip
def test_shares_have_one_precision(share, text):
    assert format_share(share) == text
    if share is not None:
        assert show_share(share).replace("\N{NO-BREAK SPACE}", " ") == text


def test_hard_phrases_are_gone():
    folders = ("grd_offline", "cli", "examples", "experiments")
    files = [file for name in folders for file in (ROOT / name).rglob("*") if file.is_file()]
    files = [file for file in files if file.suffix in (".py", ".md", ".html", ".js", ".toml")]
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files):
        text = " ".join(file.read_text().split())
        assert [phrase for phrase in HARD if phrase in text] == [], file


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.__name__)
def test_settings_are_explained_in_sentences(settings):
    for name, described in describe_settings(settings).items():
        text = described.setting.text
        assert text.endswith("."), name
        assert len(text.split()) >= 3, name
        assert text[0].isupper() or text.startswith(("iql:", "td3bc:")), name
