"""How large the package is, and who imports whom.

python benchmarks/size.py                      # lines of code, rooms, floors and arrows
python benchmarks/size.py --draw imports.svg   # the same imports as a picture

A line of code holds something other than a comment or a docstring, be it of a function or of a
field. A room is a part of the package, a folder in grd_offline, or cli. It stands one floor above
the highest room that it imports; imports inside functions count as well.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("grd_offline", "cli")
PAGES = (".js", ".css", ".html")
BARS = {"lines of code": 28_500, "lines of pages": 2_100, "rooms": 28, "floors": 9, "circles": 0}
"""The most that there should be of each."""
EMPTY = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def count_code(text: str) -> int:
    """The lines of a module that hold something other than a comment or a docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str):
            documented.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in EMPTY:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def list_modules() -> dict[str, Path]:
    """Every module by its name."""
    files = [file for place in PLACES for file in sorted((ROOT / place).rglob("*.py"))]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}


def list_pages() -> list[Path]:
    """Scripts, styles and templates of pages; libraries of others are not ours."""
    files = (file for place in PLACES for file in (ROOT / place).rglob("*"))
    return [file for file in files if file.suffix in PAGES and "vendor" not in file.parts]


def name_room(module: str) -> str | None:
    """The room of a module. The face of the package has none, nor have other packages."""
    first, *rest = module.split(".")
    room = rest[0] if first == "grd_offline" and rest else first
    return room if (ROOT / "grd_offline" / room).is_dir() or room == "cli" else None


def find_arrows(modules: dict[str, Path]) -> dict[str, set[str]]:
    """The rooms that each room imports."""
    arrows: dict[str, set[str]] = {room: set() for name in modules if (room := name_room(name))}
    for name, file in modules.items():
        for node in ast.walk(ast.parse(file.read_text())) if (room := name_room(name)) else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    arrows[room] |= {name_room(one) or room} - {room}
    return arrows


def find_floors(arrows: dict[str, set[str]]) -> tuple[dict[str, int], int]:
    """The floor of each room, and how many rooms have none because they import in a circle."""
    floors: dict[str, int] = {}
    while ready := [r for r in arrows if r not in floors and arrows[r] <= floors.keys()]:
        floors |= {room: 1 + max((floors[o] for o in arrows[room]), default=0) for room in ready}
    return floors, len(arrows) - len(floors)


def draw(floors: dict[str, int], arrows: dict[str, set[str]], sizes: dict[str, int], path: str):
    """The rooms on their floors, as wide as their lines of code, with an arrow for each import."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(12, 8))
    middles = {}
    for floor in sorted(set(floors.values())):
        rooms = [room for room in floors if floors[room] == floor]
        for index, room in enumerate(rooms):
            x, y = middles[room] = (index + 0.5) / len(rooms), floor
            box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.4"}
            axes.text(x, y, f"{room}\n{sizes[room]:,}", ha="center", va="center", bbox=box, size=8)
    for room, others in arrows.items():
        for other in others:
            line = {"arrowstyle": "->", "color": "0.8", "shrinkA": 12, "shrinkB": 12}
            axes.annotate("", middles[other], middles[room], arrowprops=line, zorder=0)
    axes.set(xlim=(0, 1), ylim=(0.5, max(floors.values()) + 0.5))
    axes.axis("off")
    figure.savefig(path, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", metavar="FILE", help="Write a picture of the imports.")
    options = parser.parse_args()
    modules = list_modules()
    sizes: dict[str, int] = defaultdict(int)
    for name, file in modules.items():
        sizes[name_room(name) or name] += count_code(file.read_text())
    arrows = find_arrows(modules)
    floors, circles = find_floors(arrows)
    for floor in sorted(set(floors.values()), reverse=True):
        rooms = sorted(room for room in floors if floors[room] == floor)
        print(f"floor {floor}: {', '.join(f'{room} {sizes[room]:,}' for room in rooms)}")
    pages = sum(
        bool(line.strip()) for file in list_pages() for line in file.read_text().splitlines()
    )
    figures = (sum(sizes.values()), pages, len(arrows), max(floors.values()), circles)
    for (what, most), figure in zip(BARS.items(), figures, strict=True):
        print(f"{what}: {figure:,} (at most {most:,}{'' if figure <= most else ', MISSED'})")
    print(f"arrows: {sum(map(len, arrows.values()))}")
    if options.draw:
        draw(floors, arrows, sizes, options.draw)


if __name__ == "__main__":
    main()
