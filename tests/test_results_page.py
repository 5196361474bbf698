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


RUNS = ROOT / "benchmarks" / "results" / "online"


def put_run(results, name, rows, **changes):
    """A run in benchmarks/results whose settings are those of a committed one, with other rows."""
    settings = json.loads((RUNS / changes.pop("like") / "settings.json").read_text())
    settings.update(changes)
    run = results / "online" / name
    run.mkdir(parents=True)
    (run / "settings.json").write_text(json.dumps(settings))
    (run / "evaluations.csv").write_text("\n".join(rows) + "\n")


def test_the_page_is_up_to_date(page):
    text = page.PAGE.read_text()
    assert text == page.fill_page(text, page.make_tables()), "run python benchmarks/results_page.py"
    assert all(task.removesuffix("-v5") in text for task in page.TASKS)
    assert text.count("<!-- table: ") == len(page.make_tables())


def test_what_no_file_has_is_listed_once(page, monkeypatch, tmp_path):
    rows = (RUNS / "HalfCheetah-v5-1000000" / "evaluations.csv").read_text().splitlines()
    put_run(tmp_path, "run", rows, like="HalfCheetah-v5-1000000")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    runs = page.find_runs(tmp_path / "online")
    scores = page.collect_scores(runs, at=page.STEPS)
    main = page._make_main(scores, [])
    assert len(main.splitlines()) == 4  # the head and the two methods that have results
    missing = page._list_missing(scores)
    others = "Ant, Walker2d, Humanoid, Reacher, Swimmer, Hopper, HumanoidStandup"
    assert f"- `experiments/main.toml`, oracle: {others}\n" in missing
    assert "- `experiments/main.toml`, rrd: all tasks\n" in missing
    assert "- `experiments/masks.toml`\n" in missing
    # At one step for all seeds; the mean of each seed's own highest is 10,533.
    published = page._make_published(runs)
    assert "| HalfCheetah-v5 | 10,498\xa0±\xa0548 | 12,139 | - | 15,000" in published
    assert "| Ant-v5 | - | 5,850 | - | 6,500 (highest of the curve) |" in published


def test_noise(page, tmp_path):
    path = tmp_path / "noise.csv"
    path.write_text("group,seed,step,noise,mean_return\ngrd,0,9,0,10\ngrd,1,9,0,20\ngrd,0,9,1,5\n")
    assert "| grd | 15 (10 to 20) | 5 |" in page._make_noise(path)


def test_correlations_and_masks_are_those_of_the_step(page, tmp_path):
    lines = ["step,seconds,member,group,seed,mean_return,correlation,compact_states"]
    for step, correlation, states in ((10_000, 0.1, 3), (100_000, 0.5, 5), (1_000_000, 0.9, 8)):
        for seed in (0, 1, 2):
            mine = f"grd-closed-form-seed{seed},grd-closed-form,{seed}"
            lines.append(f"{step},1,{mine},9,{correlation - seed / 100},{states - seed}")
    put_run(tmp_path, "run", lines, like="Swimmer-v5-1000000-closed-form")
    runs = page.find_runs(tmp_path / "online")
    row = "| Swimmer-v5 | grd-closed-form | 0.49 (0.48) | 0.49 (0.48) | 0.49 (0.48) | 0.89 (0.88) |"
    assert row in page._make_rewards(runs)
    assert "| Swimmer-v5 | 2 (1 to 3) | 4 (3 to 5) | - | 7 (6 to 8) |" in page._make_masks(runs)


def test_a_run_that_stopped_early_is_shown_with_its_step_and_listed(page, tmp_path):
    like = "HalfCheetah-v5-1000000"
    head, *rows = (RUNS / like / "evaluations.csv").read_text().splitlines()
    for name, task, last in (("half", like[:14], 600_000), ("little", "Ant-v5", 400_000)):
        kept = [row for row in rows if int(row.split(",", 1)[0]) <= last]
        put_run(tmp_path, name, [head, *kept], like=like, environment=task)
    found = page.find_runs(tmp_path / "online")
    assert {run.environment for run in found} == {"HalfCheetah-v5", "Ant-v5"}
    short = [run for run in found if page.find_last(run) >= page.STEPS / 2]
    scores = page.collect_scores(short)
    main = page._make_main([], scores)
    assert main.count(", 600,000 steps |") == 2
    assert "400,000" not in main
    assert "oracle: all tasks" in page._list_missing(scores)


def test_each_row_of_table_1_is_from_its_longest_run(page, tmp_path):
    rows = (RUNS / "Swimmer-v5-paper" / "evaluations.csv").read_text().splitlines()
    put_run(tmp_path, "all", rows, like="Swimmer-v5-paper")
    settings = json.loads((RUNS / "Swimmer-v5-paper" / "settings.json").read_text())["settings"]
    settings["sets"] = {"lambda_state_reward": [5e-6]}
    longer = ["step,seconds,member,group,seed,mean_return"]
    longer += [f"{step},1,a,grd-paper,0,{step / 1000}" for step in (100_000, 300_000)]
    members = [{"name": "a", "group": "grd-paper"}]
    put_run(tmp_path, "one", longer, like="Swimmer-v5-paper", settings=settings, members=members)
    made = page._make_swimmer(page.find_runs(tmp_path / "online"))
    assert "| 5e-06 | ours | 100 | 100 | 300 | - | - | - |" in made
    assert "| 5e-05 | ours | 244\xa0±\xa070 | 289\xa0±\xa061 | -" in made


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_a_sound_sweep(path, capsys):
    trusted = ["--env", "metaworld:Meta-World/MT1"]
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(path), "--dry-run", "--scale", "0.001", *trusted])
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
