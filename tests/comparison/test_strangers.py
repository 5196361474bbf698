"""Results of a stranger, and outputs that would replace what is there already."""

import csv
import json
import shutil

import pytest
import run_folders

from grd_offline.cli import main
from grd_offline.comparison.compare import (
    Printed,
    _as_text,
    collect_scores,
    compare_scores,
    find_runs,
    is_comparison,
    parse_printed,
    write_scores,
)
from grd_offline.core.errors import DataError
from grd_offline.io.files.results import read_episodes, read_masks, read_run

pytestmark = pytest.mark.long


def end_of(capsys, *arguments):
    """The exit code of `compare`, and what it wrote to stderr."""
    with pytest.raises(SystemExit) as end:
        main(["compare", *map(str, arguments)])
    return end.value.code, capsys.readouterr().err


def change(path, *pairs):
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def write_sweep(folder, *names):
    """A sweep whose jobs have a run each, as far as `compare` reads it."""
    (folder / "jobs").mkdir(parents=True)
    (folder / "sweep.json").write_text(json.dumps({"jobs": [{"name": name} for name in names]}))
    return folder


@pytest.mark.parametrize("name", ["report.html", "scores.csv", "comparison.json"])
def test_a_folder_that_holds_something_else_is_refused(name, tmp_path, capsys):
    run = run_folders.write_online_run(tmp_path / "run")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / name).write_text('{"my": "own"}')
    code, said = end_of(capsys, run, "--out", mine)
    assert (code, said.count("\n")) == (2, 1)
    assert "mine: cannot be written: exists and holds something else" in said
    assert [(path.name, path.read_text()) for path in mine.iterdir()] == [(name, '{"my": "own"}')]
    code, said = end_of(capsys, run, "--out", run)
    assert (code, "holds something else" in said) == (2, True)
    assert not (run / "report.html").exists()


def test_an_earlier_comparison_is_replaced(tmp_path, capsys):
    run, out = run_folders.write_online_run(tmp_path / "run"), tmp_path / "new" / "out"
    assert not is_comparison(out)
    assert end_of(capsys, run, "--out", out)[0] == 0
    (out / "notes.txt").write_text("mine")
    (out / "report.html").write_text("earlier")
    assert is_comparison(out)
    assert end_of(capsys, run, "--out", out)[0] == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "report.html").read_text() != "earlier"


def test_two_members_of_a_run_with_one_group_and_seed_are_refused(tmp_path):
    run = run_folders.write_online_run(tmp_path / "run", groups=("grd", "ircr"))
    change(run / "evaluations.csv", ("ircr-seed0,ircr", "ircr-seed0,grd"))
    with pytest.raises(DataError, match="grd with seed 0 is also in the member grd-seed0 of this"):
        collect_scores([read_run(run)])


@pytest.mark.parametrize("seed", ["=2+3", "-1", "1.5", "", "²", "1" * 21])
def test_a_seed_is_a_whole_number(seed, tmp_path):
    run = run_folders.write_online_run(tmp_path / "run", groups=("grd",))
    change(run / "evaluations.csv", ("grd-seed0,grd,0,", f"grd-seed0,grd,{seed},"))
    with pytest.raises(DataError, match="seed: expected a whole number, got"):
        read_run(run)


@pytest.mark.parametrize("name", ["=1+1", "\tone", "\rone", "one"])
def test_names_are_text_to_a_spreadsheet(name):
    assert _as_text(name) == (name if name == "one" else f"'{name}")


@pytest.mark.parametrize("sign", "=+-@")
def test_no_name_becomes_a_formula_in_a_spreadsheet(sign, tmp_path):
    group, place = f"{sign}1+1", f"{sign}Some-v0"
    run = run_folders.write_online_run(tmp_path / "run", groups=("grd", group))
    change(run / "settings.json", ('"environment": "Some-v0"', f'"environment": "{place}"'))
    write_scores(tmp_path, compare_scores(collect_scores([read_run(run)])))
    with (tmp_path / "scores.csv").open() as file:
        found = [(row["task"], row["method"], row["seed"]) for row in csv.DictReader(file)]
    assert found == [(f"'{place}", "grd", "0"), (f"'{place}", f"'{group}", "0")]


def test_the_numbers_of_a_paper_do_not_steer_the_terminal(tmp_path):
    words = ("task", "method", "note")
    entry = {word: f"\x1b[31m{word}" for word in words}
    assert parse_printed([{**entry, "mean": 1}], tmp_path / "a") == (
        Printed(*(f"\ufffd[31m{word}" for word in words[:2]), mean=1.0, note="\ufffd[31mnote"),
    )


@pytest.mark.parametrize("name", ["jobs", "jobs/a", "jobs/a/result", "sweep.json", "sweep.toml"])
def test_a_link_that_leads_out_of_a_sweep_is_refused(name, tmp_path, capsys):
    sweep = write_sweep(tmp_path / "sweep", "a")
    run_folders.write_online_run(sweep / "jobs" / "a" / "result")
    (sweep / "sweep.toml").write_text("")
    assert len(find_runs(sweep)) == 1
    shutil.move(sweep / name, tmp_path / "outside")
    (sweep / name).symlink_to(tmp_path / "outside")
    code, said = end_of(capsys, sweep)
    assert (code, said.count("\n")) == (2, 1)
    assert f"leads out of {sweep} through a link, which is not followed" in said


def test_a_link_to_the_run_of_a_judgement_is_refused(tmp_path):
    place = run_folders.FOLDERS["judge"](tmp_path / "judge")
    assert len(find_runs(place)) == 1
    shutil.move(place / "run", tmp_path / "outside")
    (place / "run").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match=r"leads out of .*judge through a link"):
        find_runs(place)


READERS = {
    "settings.json": read_run,
    "evaluations.csv": read_run,
    "members": lambda run: read_masks(read_run(run), "grd-quadratic-seed0"),
    "members/grd-quadratic-seed0/masks/step-000002000.json": lambda run: read_masks(
        read_run(run), "grd-quadratic-seed0"
    ),
    "members/grd-quadratic-seed0/episodes": lambda run: read_episodes(
        read_run(run), "grd-quadratic-seed0", 2
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_link_that_leads_out_of_a_run_is_refused(name, tmp_path):
    run = run_folders.write_online_run(tmp_path / "run")
    assert READERS[name](run)
    shutil.move(run / name, tmp_path / "outside")
    (run / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match=r"leads out of .*run through a link"):
        READERS[name](run)


def test_links_of_the_user_and_links_inside_are_followed(tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    sweep = write_sweep(disk / "sweep", "a")
    run = run_folders.write_online_run(sweep / "jobs" / "a" / "result")
    (run / "evaluations.csv").rename(run / "table.csv")
    (run / "evaluations.csv").symlink_to("table.csv")
    (tmp_path / "results").symlink_to(disk)
    (tmp_path / "one").symlink_to("results/sweep/jobs/a/result")
    for given in (tmp_path / "results" / "sweep", tmp_path / "results", tmp_path / "one"):
        assert len(find_runs(given)) == 1, given
    monkeypatch.chdir(tmp_path / "one")
    for given in (".", "../../..", "../../../../../results/sweep"):
        assert len(find_runs(type(tmp_path)(given))) == 1, given
