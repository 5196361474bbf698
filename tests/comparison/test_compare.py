"""Scores of runs and their statistics, from tables that are written by hand."""

import csv
import gzip
import json

import numpy as np
import pytest

from grd_offline.cli import main
from grd_offline.comparison.compare import (
    collect_scores,
    compare_scores,
    find_runs,
    list_left_out,
    parse_printed,
)
from grd_offline.core.errors import DataError
from grd_offline.io.files.results import EVALUATION_COLUMNS, FORMAT, VERSION, read_run
from grd_offline.learning.settings import OnlineSettings
from grd_offline.report import make_run_page
from grd_offline.report.training import explain, list_totals

STEPS = (1000, 2000, 3000, 4000)


def write_run(folder, returns, *, environment="Hopper-v5", steps=STEPS, **settings):
    """A run in which the members of each group have the same curve, plus a number for the seed."""
    folder.mkdir(parents=True)
    about = {"format": FORMAT, "version": VERSION, "environment": environment}
    about["settings"] = OnlineSettings(environment, **settings).to_json()
    (folder / "settings.json").write_text(json.dumps(about))
    with (folder / "evaluations.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, EVALUATION_COLUMNS, restval="")
        writer.writeheader()
        for place, step in enumerate(steps):
            for group, levels in returns.items():
                for seed, level in enumerate(levels):
                    row = {"step": step, "member": f"{group}-seed{seed}", "group": group}
                    writer.writerow(row | {"seed": seed, "mean_return": level + place})
    return folder


@pytest.fixture
def results(tmp_path):
    """Two tasks; what random actions return is known for one of them."""
    write_run(tmp_path / "a", {"grd": [100, 110, 120], "oracle": [116.67, 116.67, 116.67]})
    other = {"grd": [8, 8, 8], "oracle": [9, 10, 11], "ircr": [0, 1, 2]}
    write_run(tmp_path / "b", other, environment="Other-v0")
    return tmp_path


def test_a_score_is_the_mean_of_the_last_evaluations(results):
    runs = find_runs(results)
    scores = {(s.task.name, s.method): s for s in collect_scores(runs)}
    assert scores["Hopper-v5", "grd"].values == (102, 112, 122)  # plus the mean of 1, 2 and 3
    assert scores["Hopper-v5", "grd"].step == 4000
    one = collect_scores(runs, at=2500, last=1)[0]
    assert (one.values, one.step) == ((101, 111, 121), 2000)
    assert collect_scores(runs, at=5000) == []
    assert collect_scores(runs, metric="success") == []


def test_scores_are_normalised_by_random_actions_and_the_oracle(results):
    found = compare_scores(collect_scores(find_runs(results)))
    assert (found.chosen, found.reference) == ("grd", "oracle")
    # Hopper: random actions return 16.67, so the oracle gains 102. Other: they count as 0.
    assert found.find("Hopper-v5", "grd").share == pytest.approx((112 - 16.67) / 102)
    assert found.find("Other-v0", "grd").share == pytest.approx(10 / 12)
    grd, oracle, ircr = found.totals
    pooled = sorted([*((np.array([102, 112, 122]) - 16.67) / 102), *[10 / 12] * 3])
    assert grd.middle.value == pytest.approx(np.mean(pooled[1:-1]))
    assert grd.share.value == pytest.approx(grd.middle.value / oracle.middle.value)
    # Hopper: 102 and 112 lose against 118.67, 122 wins. Other: 10 loses to 11, 12 and 13.
    assert oracle.improvement.value == pytest.approx((1 / 3 + 0) / 2)
    assert ircr.tasks == ("Other-v0",)
    assert ircr.improvement.value == 1
    assert grd.improvement is None
    assert any("Not every method" in note for note in found.notes)
    assert any(note.endswith("counted as 0, for: Other-v0.") for note in found.notes)


def test_a_task_where_the_oracle_is_no_better_than_chance_is_not_counted(results):
    lost = {"grd": [30, 40, 50], "oracle": [10, 20, 30]}  # random actions have 112.6
    write_run(results / "c", lost, environment="Humanoid-v5")
    found = compare_scores(collect_scores(find_runs(results)))
    grd = found.totals[0]
    assert grd.tasks == ("Hopper-v5", "Other-v0", "Humanoid-v5")
    assert grd.scaled == ("Hopper-v5", "Other-v0")
    assert [row[:2] for row in list_totals(found)] == [
        ("grd", "2 of 3"),
        ("oracle", "2 of 3"),
        ("ircr", "1"),
    ]
    (note,) = (note for note in found.notes if note.startswith("Humanoid-v5"))
    assert note.endswith("the task is left out of means and shares over tasks.")
    assert found.to_json()["methods"][0]["scaled"] == ("Hopper-v5", "Other-v0")


def test_without_an_oracle_there_is_no_common_scale(tmp_path):
    run = read_run(write_run(tmp_path / "run", {"grd": [1, 2], "rrd": [0, 1]}))
    found = compare_scores(collect_scores([run]))
    assert [total.middle for total in found.totals] == [None, None]
    assert found.totals[1].improvement.value == pytest.approx(3.5 / 4)
    with pytest.raises(DataError, match=r"no method 'sac' in the results: expected grd, rrd"):
        compare_scores(collect_scores([run]), chosen="sac")


def test_runs_whose_settings_differ_are_different_methods(tmp_path):
    first = read_run(write_run(tmp_path / "sac", {"grd": [1], "ircr": [0]}))
    second = read_run(write_run(tmp_path / "td3", {"grd": [2]}, backbone="td3"))
    methods = {score.method for score in collect_scores([first, second])}
    assert methods == {"grd backbone=sac", "grd backbone=td3", "ircr"}
    more = read_run(write_run(tmp_path / "more", {"grd": [1]}, seed=7))
    with pytest.raises(DataError, match=r"grd with seed 0 is also in .*: leave one out"):
        collect_scores([first, more])


def test_a_setting_that_differs_on_one_task_is_named_on_all(tmp_path):
    for name, environment, batch in (
        *(("a", "Hopper-v5", 256), ("b", "Hopper-v5", 128)),
        ("c", "Walker2d-v5", 256),
    ):
        write_run(
            tmp_path / name, {"grd": [1], "oracle": [99]}, environment=environment, batch=batch
        )
    found = compare_scores(collect_scores(find_runs(tmp_path)), reference="oracle batch=256")
    assert found.methods == [
        "grd batch=256",
        "oracle batch=256",
        "grd batch=128",
        "oracle batch=128",
    ]
    assert found.totals[0].tasks == ("Hopper-v5", "Walker2d-v5")


def test_seeds_that_ended_at_different_steps_are_told(tmp_path):
    write_run(tmp_path / "long", {"grd": [1]})
    write_run(tmp_path / "short", {"oracle": [1]}, steps=STEPS[:2])
    path = tmp_path / "short" / "evaluations.csv"
    path.write_text(path.read_text().replace("oracle-seed0,oracle,0", "grd-seed1,grd,1"))
    runs = find_runs(tmp_path)
    (score,) = collect_scores(runs)
    assert (score.steps, score.step) == ((4000, 2000), 4000)
    (note, _) = compare_scores([score]).notes
    assert note == (
        "Hopper-v5: some runs end at step 2,000 and others at 4,000. Use --at 2000 to compare them "
        "at the same step."
    )
    left_out = list_left_out([score], collect_scores(runs, at=3000), 3000)
    assert left_out == [
        "Hopper-v5: 1 of 2 seeds of grd got as far as step 3,000. The others do not count."
    ]
    assert "0 of 2 seeds of grd" in list_left_out([score], [], 9000)[0]


def test_environments_of_the_same_name_are_different_tasks(tmp_path):
    for name in ("a/Foo-v0", "b/Foo-v0", "b/Bar-v0"):
        write_run(tmp_path / name.replace("/", "-"), {"grd": [1]}, environment=name)
    names = {score.task.name for score in collect_scores(find_runs(tmp_path))}
    assert names == {"a/Foo-v0", "b/Foo-v0", "Bar-v0"}


def test_folders_that_are_being_written_do_not_count(results):
    write_run(results / ".a.0123456789abcdef.partial", {"grd": [1]})
    assert len(find_runs(results)) == 2


@pytest.mark.long
def test_what_a_paper_prints_is_set_beside_returns_at_its_step_alone(results, capsys):
    paper = results / "paper.toml"
    paper.write_text("[[paper.numbers]]\ntask = 'Hopper-v5'\nmethod = 'grd'\nmean = 87\n")
    for path in results.glob("*/evaluations.csv"):
        head, *rows = path.read_text().splitlines()
        place = head.split(",").index("correlation")
        cells = [row.split(",") for row in rows]
        lines = [",".join([*row[:place], "0.5", *row[place + 1 :]]) for row in cells]
        path.write_text("\n".join([head, *lines]))
    shown = {}
    for more in ([], ["--at", "4000"], ["--metric", "correlation"]):
        with pytest.raises(SystemExit) as end:
            main(["compare", str(results), "--paper", str(paper), *more])
        assert end.value.code == 0
        shown[" ".join(more)] = "87" in capsys.readouterr().out
    assert shown == {"": True, "--at 4000": False, "--metric correlation": False}


def test_names_are_printed_as_they_are(tmp_path, capsys):
    write_run(tmp_path / "run", {"grd": [1, 2, 3]}, environment="Hopper[v2]-v0")
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path)])
    assert "Hopper[v2]-v0" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["env_args", "sets"])
def test_settings_of_the_wrong_kind_are_refused(tmp_path, name):
    path = write_run(tmp_path / "run", {"grd": [1]}) / "settings.json"
    contents = json.loads(path.read_text())
    contents["settings"][name] = [1]
    path.write_text(json.dumps(contents))
    with pytest.raises(DataError, match=f"{name}: expected a table"):
        collect_scores(find_runs(tmp_path))


def test_one_environment_with_several_tasks(tmp_path):
    runs = [
        read_run(write_run(tmp_path / name, {"grd": [1]}, env_args={"env_name": name, "seed": 0}))
        for name in ("door-lock-v3", "push-wall-v3")
    ]
    assert [s.task.name for s in collect_scores(runs)] == ["door-lock-v3", "push-wall-v3"]


def test_compressed_evaluations_are_read(tmp_path):
    folder = write_run(tmp_path / "run", {"grd": [1, 2]})
    plain = read_run(folder)
    table = folder / "evaluations.csv"
    packed = gzip.compress(table.read_bytes())
    table.unlink()
    (folder / "evaluations.csv.gz").write_bytes(packed)
    assert read_run(folder).rows == plain.rows
    (folder / "evaluations.csv.gz").write_bytes(packed[:-20])
    with pytest.raises(DataError, match=r"evaluations.csv.gz: is cut off"):
        read_run(folder)
    (folder / "evaluations.csv.gz").write_bytes(gzip.compress(bytes(9 * 2**20)))
    with pytest.raises(DataError, match="unpacks to more than 8 MB"):
        read_run(folder)


def test_the_command_prints_tables_and_writes_figures(results, capsys):
    paper = results / "paper.toml"
    paper.write_text(
        "[[paper.numbers]]\ntask = 'Hopper-v5'\nmethod = 'grd'\nmean = 87\nstd = 41\nstep = 4000\n"
    )
    out = results / "out"
    command = ["compare", str(results), "--paper", str(paper), "--out", str(out)]
    with pytest.raises(SystemExit) as end:
        main([*command, "--at", "2000,4000", "--last", "1"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "2,000" in printed
    assert "87 ± 41" in printed.replace("\N{NO-BREAK SPACE}", " ")
    assert "P(grd better)" in printed
    names = {path.name for path in out.iterdir()}
    figures = {f"{name}.png" for name in ("tasks", "means", "profiles", "improvement")}
    assert names == {"comparison.json", "scores.csv", "report.html", *figures}
    assert json.loads((out / "comparison.json").read_text())["reference"] == "oracle"
    with (out / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {
        "task": "Hopper-v5",
        "method": "grd",
        "step": "4000",
        "seed": "2",
        "score": "123.0",
    } in rows
    assert (out / "report.html").read_text().count("<img src='data:image/svg") == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["RESULTS", "--at", "9000"], "no true return in any evaluation after 9,000 steps"),
        (["RESULTS", "--at", "many"], "expected steps such as 100000,200000, got 'many'"),
        (["RESULTS", "--metric", "success"], "no success rate in any evaluation"),
        (["RESULTS", "--paper", "none.toml"], "none.toml: no such file"),
        (["RESULTS", "--out", "README.md/tables"], "README.md is not a folder"),
    ],
)
def test_mistakes_end_in_one_line(results, arguments, reason, capsys):
    with pytest.raises(SystemExit) as end:
        main(["compare", *(str(results) if text == "RESULTS" else text for text in arguments)])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(DataError, match="no run with an evaluation in it"):
        find_runs(tmp_path)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"task": "a", "method": "b", "mean": 1, "men": 2}, "unknown key 'men'"),
        ({"task": "a", "mean": 1}, "expected a method"),
        ({"task": "a", "method": "b", "mean": "1"}, "mean: expected a number, got '1'"),
    ],
)
def test_wrong_numbers_of_a_paper_are_refused(tmp_path, entry, reason):
    with pytest.raises(DataError, match=reason):
        parse_printed([entry], tmp_path / "file.toml")


def test_the_page_of_a_run_has_statistics(results):
    page = make_run_page([read_run(results / "b")])
    assert "id='statistics'" in page
    assert "Probability of improvement" in page
    single = write_run(results / "single", {"grd": [1], "oracle": [2]})
    assert "id='statistics'" not in make_run_page([read_run(single)])


def test_the_mean_of_the_oracle_is_no_known_number(tmp_path):
    """Methods that are all alike have intervals all the same, if the oracle's seeds differ."""
    write_run(tmp_path / "a", {"grd": [110, 110, 110], "oracle": [60, 116.67, 170]})
    grd, oracle = compare_scores(collect_scores(find_runs(tmp_path))).totals
    assert grd.middle.low < 0.9 * grd.middle.value < 1.1 * grd.middle.value < grd.middle.high
    assert oracle.middle.low > 0.8  # it is measured by itself
    assert oracle.middle.high < 1.2


def test_nothing_false_is_said_of_random_actions(tmp_path):
    write_run(tmp_path / "a", {"grd": [-52], "oracle": [-7]}, environment="Other-v0")
    found = compare_scores(collect_scores(find_runs(tmp_path)))
    assert found.totals[0].middle is None
    (note,) = (note for note in found.notes if note.startswith("Other-v0"))
    assert "oracle returns less than 0, and what random actions return is not known" in note
    assert "0 is the return of random actions" not in explain(found)


def test_the_choice_among_several_oracles_is_told(tmp_path):
    for backbone in ("sac", "td3"):
        write_run(tmp_path / backbone, {"grd": [100], "oracle": [120]}, backbone=backbone)
    found = compare_scores(collect_scores(find_runs(tmp_path)))
    assert any(
        note.startswith("oracle backbone=sac is the reference") and "oracle backbone=td3" in note
        for note in found.notes
    )


def write_offline(folder, digest, place):
    """A run from data.h5, whose contents have this digest."""
    run = write_run(folder, {"grd": [1, 2]})
    about = json.loads((run / "settings.json").read_text())
    about["data"] = {"file": "data.h5", "digest": digest, "folder": place}
    (run / "settings.json").write_text(json.dumps(about))
    return read_run(run)


def test_files_of_the_same_name_with_other_data_are_other_tasks(tmp_path):
    runs = [write_offline(tmp_path / place, place, place) for place in ("one", "two")]
    names = [score.task.name for score in collect_scores(runs)]
    assert names == ["Hopper-v5 one/data.h5", "Hopper-v5 two/data.h5"]
    runs.append(write_offline(tmp_path / "three", "three", "two"))
    with pytest.raises(DataError, match=r"the data of this run and those of .*two differ"):
        collect_scores(runs)
    same = [write_offline(tmp_path / f"same-{k}", "one", f"place {k}") for k in range(2)]
    with pytest.raises(DataError, match="grd with seed 0 is also in"):
        collect_scores(same)


def test_one_value_of_a_setting_is_named_as_several_are(tmp_path):
    weight, rate = {"lambda_state_reward": (5e-6,)}, {"learning_rate": (1e-3,)}
    levels = {"grd-paper": [1], "grd-quadratic": [2]}
    runs = [
        read_run(write_run(tmp_path / name, levels, sets=sets, fits=("paper", "quadratic")))
        for name, sets in {"a": {}, "b": weight, "c": rate}.items()
    ]
    names = [score.method for score in collect_scores(runs[:1] + runs[2:])]
    assert names == ["grd-paper", "grd-quadratic", "grd-paper-learning_rate=0.001",
                     "grd-quadratic-learning_rate=0.001"]  # fmt: skip
    paper, _ = collect_scores(runs[1:2])
    assert paper.method == "grd-paper-lambda_state_reward=5e-06"
    with pytest.raises(DataError, match="grd-quadratic with seed 0 is also in"):
        collect_scores(runs[:2])  # the weight is of the paper's fit alone
