"""The pages that Sphinx reads: those of docs/, and those of other folders that they refer to.

Pages link to each other by their places in the repository, so that links also work where the
repository itself is read. A link that leaves docs/ is turned to a page under repository/: a copy of
a Markdown or text file, or a list of the files of a folder. Sphinx makes downloads of other files.
"""

import os
import re
import shutil
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PATTERNS = (
    *(
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "benchmarks/**/*.md",
        "benchmarks/**/*.txt",
    ),
    *("experiments/*.md", "examples/*.md", "datasets/*.md"),
)
FOLDERS = ("benchmarks", "experiments", "examples", "datasets")
"""Folders whose files are listed, where a page links to the folder."""
LEFT_OUT = ("_build", "site", "static", "templates", "tutorials", "conf.py", "__pycache__")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence) *$)", re.MULTILINE | re.DOTALL)
INDEX = """# Notes and measurements

Files of the repository that other pages refer to: how figures were measured, what was tried, and
how to contribute.

```{{toctree}}
:maxdepth: 1

{names}
```
"""


@cache
def list_mirrored() -> frozenset[Path]:
    """Files outside of docs/ that become pages."""
    return frozenset(path for pattern in PATTERNS for path in ROOT.glob(pattern))


def find_page(target: Path) -> Path | None:
    """The page of a file or folder of the repository, from the root of the site; or None."""
    if target == DOCS / "tutorials":
        return Path("tutorials", "index.rst")
    if target.parent == DOCS / "tutorials" and target.suffix == ".py":
        return target.relative_to(DOCS).with_suffix(".rst")
    if target.is_relative_to(DOCS) and target.suffix == ".md":
        return target.relative_to(DOCS)
    if target in list_mirrored():
        return Path("repository", target.relative_to(ROOT)).with_suffix(".md")
    if target.is_dir() and target.is_relative_to(ROOT) and target != ROOT:
        for name in ("README.md", "README.txt"):
            if target / name in list_mirrored():
                return find_page(target / name)
        if target.relative_to(ROOT).parts[0] in FOLDERS:
            return Path("repository", target.relative_to(ROOT), "files.md")
    return None


def turn_links(text: str, source: Path, page: Path) -> str:
    """The text of `source` with links that hold where `page` stands; both are absolute paths."""
    site = find_site(page, source)

    def turn(found: re.Match[str]) -> str:
        path, mark, anchor = found[2].partition("#")
        target = Path(os.path.normpath(source.parent / path))
        if not path or re.match(r"[a-z]+:", path) or not target.exists():
            return found[0]
        shown = find_page(target)
        if shown is None and target.is_relative_to(DOCS):
            shown = target.relative_to(DOCS)
        place = site / shown if shown is not None else target
        return f"{found[1]}{os.path.relpath(place, page.parent)}{mark}{anchor}{found[3]}"

    parts = FENCE.split(text)  # each fence adds two parts: itself, and its mark
    turned = [LINK.sub(turn, part) if i % 3 == 0 else part for i, part in enumerate(parts)]
    return "".join(part for i, part in enumerate(turned) if i % 3 != 2)


def find_site(page: Path, source: Path) -> Path:
    """The folder that Sphinx reads, from a page of it."""
    inside = find_page(source if source.exists() else source.parent)
    assert inside is not None
    return page.parents[len(inside.parts) - 1]


def make_listing(folder: Path) -> str:
    """A page with the files of a folder and of the folders in it."""
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    lines = [f"- [{name}]({name})" for name in sorted(files) if "__pycache__" not in name]
    return "\n".join([f"# Files in {folder.relative_to(ROOT).as_posix()}", "", *lines, ""])


def read_page(source: Path) -> str:
    """The text of a file or folder as a page."""
    if source.is_dir():
        return make_listing(source)
    text = source.read_text()
    return text if source.suffix == ".md" else f"# {source.name}\n\n````text\n{text}````\n"


def find_folders(text: str, base: Path) -> list[Path]:
    """Folders that a text links to."""
    targets = [Path(os.path.normpath(base.parent / found[2])) for found in LINK.finditer(text)]
    inside = [target for target in targets if target.is_dir() and target.is_relative_to(ROOT)]
    return [target for target in inside if not target.is_relative_to(DOCS)]


def copy_pages(site: Path) -> None:
    """Write every page to the folder that Sphinx reads, with links that hold there."""
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(DOCS, site, ignore=ignore, dirs_exist_ok=True)
    waiting = [*list_mirrored(), *(DOCS / page.relative_to(site) for page in site.rglob("*.md"))]
    written: set[Path] = set()
    while waiting:
        source = waiting.pop()
        place = find_page(source)
        if place is None or place in written or not source.exists():
            continue
        written.add(place)
        text, base = read_page(source), source / "files.md" if source.is_dir() else source
        waiting += find_folders(text, base)
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        (site / place).write_text(turn_links(text, base, site / place))
    inside = sorted(place.with_suffix("") for place in written if place.parts[0] == "repository")
    names = "\n".join(place.relative_to("repository").as_posix() for place in inside)
    (site / "repository" / "index.md").write_text(INDEX.format(names=names))
    list_others(site)


def list_others(site: Path) -> None:
    """Add the pages that the first page does not list to the end of its list."""
    first = site / "index.md"
    lists = " ".join(re.findall(r"```\{toctree\}(.*?)```", first.read_text(), re.DOTALL))
    listed = {*re.findall(r"[\w/-]+", lists), "index"}
    others = sorted(page.stem for page in site.glob("*.md") if page.stem not in listed)
    if others:
        names = "\n".join(others)
        more = f"\n```{{toctree}}\n:hidden:\n:caption: More\n\n{names}\n```\n"
        first.write_text(first.read_text() + more)
