"""The site: its reference is complete, its pages are reached, and its links lead somewhere."""

import re
import sys
from importlib import import_module

import pytest
from places import ROOT

import grd_offline
from grd_offline import interop
from grd_offline.cli.program import cli
from grd_offline.methods.registry import BUILT_IN

pytestmark = pytest.mark.long

DOCS = ROOT / "docs"
PATTERNS = ("docs/*.md", "docs/*/*.md", "*.md", "benchmarks/research/*.md")
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def load(monkeypatch):
    """Import a module of docs/site, which is no package."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    yield import_module
    for name in ("check", "mathml", "mirror", "reference"):
        sys.modules.pop(name, None)


def find_anchors(page):
    """The anchors of the headings of a page, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in find_anchors(target), f"{page.name}: {link}"


def test_every_page_is_reached_from_the_first(load, tmp_path):
    mirror = load("mirror")
    mirror.copy_pages(tmp_path)
    (tmp_path / "new-page.md").write_text("# New")
    mirror.list_others(tmp_path)
    lists = re.findall(r"```\{toctree\}(.*?)```", (tmp_path / "index.md").read_text(), re.DOTALL)
    listed = set(re.findall(r"[\w/-]+", " ".join(lists)))
    assert {page.stem for page in tmp_path.glob("*.md")} - {"index"} <= listed
    assert "new-page" in lists[-1]


def test_every_public_name_is_in_the_reference():
    page = (DOCS / "reference" / "python.md").read_text()
    listed = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    assert listed == {*grd_offline.__all__, *interop.__all__}


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_a_page_with_its_options(name, load, tmp_path):
    reference = load("reference")
    reference.write_commands(tmp_path)
    text = (tmp_path / f"{name}.md").read_text()
    assert text.startswith(f"# grd-offline {name}\n")
    for parameter in cli.commands[name].params:
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert option in text
    assert "No description" not in text


def test_every_method_has_a_card():
    text = (DOCS / "methods.md").read_text()
    for method in BUILT_IN:
        called = f"{method.name} --fit {method.fit}" if method.fit else method.name
        assert f"\n## {called}\n" in text
        assert f"[`{called}`](" in text


def test_links_that_leave_the_pages_are_turned_to_copies(load, tmp_path):
    mirror = load("mirror")
    mirror.copy_pages(tmp_path)
    text = (tmp_path / "sweeps.md").read_text()
    assert "(repository/benchmarks/research/statistics.md)" in text
    assert "](../" not in text
    research = (tmp_path / "repository" / "benchmarks" / "research" / "online.md").read_text()
    assert research.startswith("# ")
    fenced = "```sh\n[a](../README.md)\n```\n"
    source, page = DOCS / "sweeps.md", tmp_path / "sweeps.md"
    turned = mirror.turn_links(fenced + "[b](../README.md#install) [c](#own)", source, page)
    assert turned == fenced + "[b](repository/README.md#install) [c](#own)"


def test_wrong_links_of_a_built_site_are_found(load, tmp_path):
    check = load("check")
    (tmp_path / "two.html").write_text('<h1 id="here">Two</h1>')
    (tmp_path / "one.html").write_text('<a href="two.html#here">x</a><img src="data:,">')
    assert check.find_problems(tmp_path) == []
    (tmp_path / "one.html").write_text(
        '<a href="two.html#there">x</a><a href="three.html">x</a><script src="https://a.b/c.js">'
    )
    (tmp_path / "site.css").write_text("@font-face { src: url(https://a.b/font.woff2) }")
    problems = check.find_problems(tmp_path)
    assert len(problems) == 4
    assert any("two.html#there" in problem for problem in problems)


def test_an_index_stands_beside_a_letter_with_an_accent(load):
    pytest.importorskip("docutils")
    pytest.importorskip("sphinx")
    mathml = load("mathml")
    assert "<msub>" in mathml.place_indices(mathml.tex2mathml(r"\hat r_t", as_block=False))
