"""Build the site: `python docs/site/build.py` writes docs/_build/html.

The pages are copied to docs/_build/source first, together with what is made from the code and from
other files of the repository. Sphinx then reads that folder, and the links of what it wrote are
checked.
"""

import shutil
import sys
from pathlib import Path

import check
import mirror
import reference
import reports
from sphinx.cmd.build import main as run_sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD = DOCS / "_build"


def copy_tutorials(folder: Path) -> None:
    """Tutorials run in a folder of their own, in which they can write, beside the sample."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "tutorials", folder)
    (folder / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", folder / "datasets")


def prepare(source: Path) -> None:
    """Make the folder that Sphinx reads. The results of tutorials that did not change are kept."""
    scripts = {path.stem for path in (DOCS / "tutorials").glob("plot_*.py")}
    is_stale = {path.stem for path in source.glob("tutorials/plot_*.py")} != scripts
    for path in source.iterdir() if source.exists() else ():
        if path.name != "tutorials" or is_stale:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    source.mkdir(parents=True, exist_ok=True)
    mirror.copy_pages(source)
    reference.write_commands(source / "reference" / "commands")
    copy_tutorials(BUILD / "tutorials")
    reports.make_reports(BUILD / "extra" / "reports", BUILD / "scratch")


def main(arguments: list[str]) -> int:
    """Build and check; the exit code is 0 if nothing was wrong."""
    prepare(BUILD / "source")
    shutil.rmtree(BUILD / "html", ignore_errors=True)
    options = ["-b", "html", "-W", "--keep-going", "-q", "-c", str(DOCS)]
    folders = [str(BUILD / "source"), str(BUILD / "html")]
    code = run_sphinx([*options, *arguments, *folders])
    if code:
        return code
    problems = check.find_problems(BUILD / "html")
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
