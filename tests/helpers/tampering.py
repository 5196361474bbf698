"""Folders changed at random, as a hostile stranger would: one seed, one change."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

ODD_VALUES = [
    None, True, False, -1, 0, 1, 0.5, 1e15, -1e300, 2**70, -(2**70), float("nan"), float("inf"),
    "", "x", "a" * 3000, "\ud800", "\x1b[31m\n", "$\\frac", "<script>", "../../..", "/etc/passwd",
    [], {}, [[]], [None], [0] * 5000, [[0] * 300] * 300, {"a": {"b": []}}, ["x"], [float("nan")],
]  # fmt: skip
ODD_CELLS = [
    "", "x", "-1", "inf", "-inf", "nan", "1e999", "1e308", "²", "٣", "9" * 5000, "9" * 18, "0x10",
    "1_000", "../../..", "/etc", "a" * 400, "a\x00b", '"', "\n", "\ud7ff", "true", "$\\frac",
]  # fmt: skip


def tamper(folder, chance, victim):
    """Change one thing in a folder; says what."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 2**20
    )
    if not files:
        return "nothing is left"
    path = chance.choice(files)
    kind = chance.random()
    if kind < 0.6 and path.suffix in CHANGES:
        try:
            return CHANGES[path.suffix](path, chance)
        except (ValueError, IndexError, RecursionError):  # an earlier change has broken it already
            return change_bytes(path, chance)
    if kind < 0.75:
        return change_bytes(path, chance)
    if kind < 0.95:
        return replace_entry(path, chance, victim)
    return add_entries(folder, chance, victim)


def change_json(path, chance):
    """One value of a JSON file becomes another, is doubled, or is gone."""
    contents = json.loads(path.read_text())
    places = list(_places(contents))
    if not places or chance.random() < 0.03:
        depth = chance.choice([20, 40, 900, 100_000])
        path.write_text("[" * depth + "]" * depth)
        return f"{path.name}: nested {depth} deep"
    holder, key = chance.choice(places)
    kind = chance.random()
    if kind < 0.15:
        del holder[key]
    elif kind < 0.2 and isinstance(holder, list):
        holder *= chance.choice([0, 2, 1000])
    else:
        holder[key] = chance.choice(ODD_VALUES)
    text = json.dumps(contents)
    if chance.random() < 0.1:
        text = text.replace("1", "1e400", 1)
    path.write_text(text)
    return f"{path.name}: {str(key)[:40]}"


def _places(value):
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(min(len(value), 20))
        for key in keys:
            yield value, key
            yield from _places(value[key])


def change_table(path, chance):
    """One cell, column or row of a table is changed."""
    rows = list(csv.reader(io.StringIO(path.read_text())))
    kind = chance.random()
    row = chance.randrange(len(rows))
    column = chance.randrange(len(rows[0]))
    if kind < 0.7:
        rows[row][column] = chance.choice(ODD_CELLS)
    elif kind < 0.8:
        rows = [cells[:column] + cells[column + 1 :] for cells in rows]
    elif kind < 0.9:
        rows[row] = rows[row] * chance.choice([0, 2, 50])
    else:
        rows = rows[:1] + rows[1:] * chance.choice([0, 50])
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue())
    return f"{path.name}: row {row}, column {column}"


CHANGES = {".json": change_json, ".csv": change_table}


def change_bytes(path, chance):
    """Some bytes become others, or the end is cut off."""
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 4, 64])):
        if content:
            content[chance.randrange(len(content))] = chance.randrange(256)
    if chance.random() < 0.2:
        del content[chance.randrange(len(content) + 1) :]
    path.write_bytes(content)
    return f"{path.name}: bytes"


def replace_entry(path, chance, victim):
    """A file becomes something else: gone, a folder, a pipe, a link, a hole."""
    kind = chance.choice(["gone", "folder", "pipe", "zero", "loop", "out", "hole", "empty"])
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "out":
        path.symlink_to(victim)
    elif kind == "hole":
        with path.open("wb") as file:
            file.truncate(2**33)
    elif kind == "empty":
        path.touch()
    return f"{path.name}: {kind}"


def add_entries(folder, chance, victim):
    """Something that does not belong there."""
    folders = [p for p in folder.rglob("*") if p.is_dir() and not p.is_symlink()]
    where = chance.choice([folder, *folders])
    name = chance.choice(["report.html", "plots", "step-x.json", "step-²", "members", ".x.partial"])
    path = where / name
    if path.is_symlink() or path.exists():
        return "nothing"
    path.symlink_to(victim if chance.random() < 0.5 else victim.parent)
    return f"{where.name}/{name}: a link"


def copy(template, target):
    """A fresh copy of a folder; what is there is removed without following links."""
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(target)
    shutil.copytree(template, target, symlinks=True)


def snapshot(folder):
    """What a folder holds: names, links and contents."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
        for path in sorted(Path(folder).rglob("*"))
    }
