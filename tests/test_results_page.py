"""The page of results comes from committed files, and the files of experiments/ are sound."""

import json
import tomllib

import pytest
from places import ROOT

from grd_offline.cli import main
from grd_offline.lab.sweep.plan import read_plan

EXPERIMENTS = sorted((ROOT / "experiments").glob("*.toml"))


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results_page

    return results_page


def test_the_page_is_up_to_date(page):
    text = (ROOT / "docs" / "results.md").read_text()
    assert text == page.make_page(), "run python benchmarks/results_page.py"
    assert all(task.removesuffix("-v5") in text for task in page.TASKS)


def test_what_no_file_has_is_named_as_missing(page, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    source = ROOT / "benchmarks" / "results" / "online" / "HalfCheetah-v5-1000000"
    target = tmp_path / "online" / "run"
    target.mkdir(parents=True)
    for name in ("settings.json", "evaluations.csv"):
        (target / name).write_bytes((source / name).read_bytes())
    made = page.make_page()
    assert "2 of 88 cells have five seeds and all steps" in " ".join(made.split())
    assert "| Ant-v5 | missing | 5,850 | missing | 6,500 (highest of the curve) |" in made
    # At one step for all seeds; the mean of each seed's own highest is 10,533.
    assert "| HalfCheetah-v5 | 10,498\xa0±\xa0548 | 12,139 | missing | 15,000" in made
    assert "| 0 | ours | missing | missing | missing | missing | missing | missing |" in made
    correlations = made.split("## Correlation")[1].split("## Masks")[0]
    assert correlations.count("| HalfCheetah-v5 |") == 1  # the oracle learns no reward
    assert "## Masks of Ant and Swimmer\n\nThere is no result yet." in made
    noise = "group,seed,step,noise,mean_return\ngrd,0,9,0,10\ngrd,1,9,0,20\ngrd,0,9,1,5\n"
    (tmp_path / "noise.csv").write_text(noise)
    made = page.make_page()
    assert "| grd | 15 (10 to 20) | 5 |" in made
    assert "are the same" not in made
    (tmp_path / "noise.csv").write_text(f"{noise}other,0,9,0,10\nother,1,9,0,21\nother,0,9,1,5\n")
    made = " ".join(page.make_page().split())
    assert "the policies of grd and other with seed 0 are the same" in made


def test_correlations_and_masks_are_those_of_the_step(page, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    source = ROOT / "benchmarks" / "results" / "online" / "Swimmer-v5-1000000-closed-form"
    run = tmp_path / "online" / "run"
    run.mkdir(parents=True)
    (run / "settings.json").write_bytes((source / "settings.json").read_bytes())
    lines = ["step,seconds,member,group,seed,mean_return,correlation,compact_states"]
    for step, correlation, states in ((10_000, 0.1, 3), (100_000, 0.5, 5), (1_000_000, 0.9, 8)):
        for seed in (0, 1, 2):
            mine = f"grd-closed-form-seed{seed},grd-closed-form,{seed}"
            lines.append(f"{step},1,{mine},9,{correlation - seed / 100},{states - seed}")
    (run / "evaluations.csv").write_text("\n".join(lines) + "\n")
    made = page.make_page()
    row = "| Swimmer-v5 | grd-closed-form | 0.49 (0.48) | 0.49 (0.48) | 0.49 (0.48) | 0.89 (0.88) |"
    assert row in made
    assert "| Swimmer-v5 | 2 (1 to 3) | 4 (3 to 5) | missing | 7 (6 to 8) |" in made


def test_a_run_that_stopped_early_is_shown_with_its_step_and_not_counted(
    page, monkeypatch, tmp_path
):
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    source = ROOT / "benchmarks" / "results" / "online" / "HalfCheetah-v5-1000000"
    rows = (source / "evaluations.csv").read_text().splitlines(keepends=True)
    for name, last in (("half", 600_000), ("little", 400_000)):
        run = tmp_path / "online" / name
        run.mkdir(parents=True)
        settings = (source / "settings.json").read_text()
        if name == "little":
            settings = settings.replace("HalfCheetah-v5", "Ant-v5")
        (run / "settings.json").write_text(settings)
        kept = [row for row in rows[1:] if int(row.split(",", 1)[0]) <= last]
        (run / "evaluations.csv").write_text("".join([rows[0], *kept]))
    made = page.make_page()
    assert "0 of 88 cells have five seeds and all steps" in " ".join(made.split())
    assert made.count(", 600,000 steps |") == 2
    assert "400,000" not in made
    assert "## Over tasks" not in made


def test_each_row_of_table_1_is_from_its_longest_run(page, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    source = ROOT / "benchmarks" / "results" / "online" / "Swimmer-v5-paper"
    settings = json.loads((source / "settings.json").read_text())
    run = tmp_path / "online" / "all"
    run.mkdir(parents=True)
    (run / "settings.json").write_text(json.dumps(settings))
    (run / "evaluations.csv").write_bytes((source / "evaluations.csv").read_bytes())
    settings["settings"]["sets"] = {"lambda_state_reward": [5e-6]}
    settings["members"] = [{"name": "a", "group": "grd-paper"}]
    longer = tmp_path / "online" / "one"
    longer.mkdir()
    (longer / "settings.json").write_text(json.dumps(settings))
    lines = ["step,seconds,member,group,seed,mean_return"]
    lines += [f"{step},1,a,grd-paper,0,{step / 1000}" for step in (100_000, 300_000)]
    (longer / "evaluations.csv").write_text("\n".join(lines) + "\n")
    made = page.make_page()
    assert "| 5e-06 | ours | 100 | 100 | 300 | missing | missing | missing |" in made
    assert "| 5e-05 | ours | 244\xa0±\xa070 | 289\xa0±\xa061 | missing" in made


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_a_sound_sweep(path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(path), "--dry-run", "--scale", "0.001"])
    assert end.value.code == 0, capsys.readouterr().err
    plan = read_plan(path)
    assert plan.about.startswith(("Figure", "Table"))
    assert len(capsys.readouterr().out.splitlines()) == len(plan.jobs)


def test_experiments_have_the_numbers_of_the_paper():
    table = tomllib.loads((ROOT / "experiments" / "table1.toml").read_text())["paper"]["numbers"]
    assert len(table) == 24
    assert {number["step"] for number in table} == {
        *(100_000, 200_000, 300_000, 500_000, 800_000, 1_000_000)
    }
    listed = (ROOT / "experiments" / "README.md").read_text()
    assert all(f"({path.name})" in listed for path in EXPERIMENTS)
