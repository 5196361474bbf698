"""`train-offline` and `judge` on a table, whose columns are named as for `decompose`."""

import csv
import json

import offline_data
import point_mass
import pytest
from offline_commands import FEW, run_command

COLUMNS = "episode=flight,observations=place+noise,actions=push"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Twelve episodes of the point mass as steps.csv, and their outcomes as scores.csv."""
    point_mass.register()
    place = tmp_path_factory.mktemp("tables")
    episodes, _ = offline_data.make_data(12)
    steps, scores = [["flight", "place", "noise", "push", "note"]], [["flight", "score"]]
    for name, episode in enumerate(episodes):
        states, actions = episode.observations[:-1].tolist(), episode.actions[:, 0].tolist()
        rows = zip(states, actions, strict=True)
        steps += [[name, *state, action, "calm"] for state, action in rows]
        scores.append([name, episode.compute_return()])
    for file, lines in (("steps.csv", steps), ("scores.csv", scores)):
        with open(place / file, "w", newline="") as opened:
            csv.writer(opened).writerows(lines)
    return place


def test_policies_learn_from_a_table(folder):
    given = ("--columns", COLUMNS, "--returns", "scores.csv")
    done = run_command(
        folder, "train-offline", "steps.csv", *given, "--rewards", "observed", *FEW,
        "--env", point_mass.ID, "--out", "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "run" / "evaluations.csv").exists()
    settings = json.loads((folder / "run" / "settings.json").read_text())
    assert COLUMNS in " ".join(settings["command"])


def test_methods_are_judged_on_a_table(folder):
    given = ("--columns", COLUMNS, "--returns", "scores.csv", "--methods", "uniform")
    done = run_command(
        folder, "judge", "steps.csv", *given, *FEW, "--env", point_mass.ID, "--out", "judged"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "judged" / "judge.json").read_text())
    assert set(found["sources"]) == {"observed", "uniform"}


@pytest.mark.parametrize("command", ["train-offline", "judge"])
def test_a_table_without_outcomes_is_refused_in_one_line(folder, command):
    given = ("--columns", COLUMNS, "--env", point_mass.ID)
    done = run_command(folder, command, "steps.csv", *given)
    assert done.returncode == 2
    assert "no column holds rewards or outcomes" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
