"""Check a site that was built: every link leads somewhere, and nothing is loaded from a network."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

IDS = re.compile(r'\b(?:id|name)="([^"]+)"')
LINKS = re.compile(r'<(\w+)\b[^>]*?\b(href|src)="([^"]*)"')
LOADED = ("script", "img", "link", "source", "iframe", "video")
"""Elements whose target a browser loads by itself."""


def read_ids(page: Path, known: dict[Path, set[str]]) -> set[str]:
    """The places in a page that a link can name."""
    if page not in known:
        known[page] = set(IDS.findall(page.read_text(errors="replace")))
    return known[page]


def check_page(page: Path, known: dict[Path, set[str]]) -> list[str]:
    """What is wrong with the links of one page."""
    problems = []
    for element, _, link in LINKS.findall(page.read_text(errors="replace")):
        if re.match(r"(https?:)?//", link):
            if element in LOADED:
                problems.append(f"{page}: loads {link} from a network")
            continue
        if re.match(r"(mailto|data|javascript):", link):
            continue
        path, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / unquote(path.partition("?")[0])))
        target = target if path else page
        if not target.exists():
            problems.append(f"{page}: {link} leads nowhere")
        elif anchor and target.suffix == ".html" and unquote(anchor) not in read_ids(target, known):
            problems.append(f"{page}: {link} names a place that is not there")
    return problems


def find_problems(site: Path) -> list[str]:
    """What is wrong with the pages of a site. Reports are pages of their own, with other tests."""
    pages = [page for page in sorted(site.rglob("*.html")) if "reports" not in page.parts]
    known: dict[Path, set[str]] = {}
    problems = [problem for page in pages for problem in check_page(page, known)]
    for style in site.rglob("*.css"):
        loaded = re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", style.read_text())
        problems += [f"{style}: loads {link} from a network" for link in loaded]
    return problems
