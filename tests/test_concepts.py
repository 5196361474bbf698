"""docs/concepts: the pages cite the figures that docs/concepts/pictures.py computes."""

import importlib.util
import re

import pytest
from places import ROOT

FOLDER = ROOT / "docs" / "concepts"


def load_pictures():
    spec = importlib.util.spec_from_file_location("pictures", FOLDER / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES = load_pictures().EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_pages_cite_the_figures_that_are_computed(name):
    page = " ".join((FOLDER / f"{name.partition(',')[0]}.md").read_text().split())
    for what, figure in EXAMPLES[name](draw=False).items():
        percent = f"{100 * float(figure):.1f} %" if figure.startswith("0.9") else figure
        assert figure in page or percent in page, f"{name}: {what} is {figure}"


def test_every_picture_is_shown():
    text = "".join(page.read_text() for page in FOLDER.glob("*.md"))
    for picture in FOLDER.glob("*.svg"):
        assert f"({picture.name})" in text


def test_the_snippet_prints_what_its_comments_say(capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", (FOLDER / "graph.md").read_text(), re.DOTALL)
    exec(snippet, {})
    said = re.findall(r"print\(.*\)  # (.*)", snippet)
    assert len(said) == 2
    assert capsys.readouterr().out.splitlines() == said
