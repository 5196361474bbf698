"""The suite of `benchmarks/quality.py`: its data, its peers and its table."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

FOLDER = ROOT / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import families
    import suite
    import suite_table

    return families, suite, suite_table


def test_returns_of_families_are_sums_of_their_true_rewards(modules):
    families, *_ = modules
    disturbed = {"heavy tails", "corrupted returns", "success labels"}
    for name in set(families.FAMILIES) - disturbed:
        data = families.make_family(name, 0, episodes=3)
        discount = families.FAMILIES[name].discount
        sums = [rewards @ discount ** np.arange(len(rewards)) for rewards in data.true]
        np.testing.assert_allclose(data.episodes.compute_returns(discount), sums, rtol=1e-12)


def test_families_terminate_where_they_say(modules):
    families, *_ = modules
    for name, family in families.FAMILIES.items():
        episodes = families.make_family(name, 0, episodes=20).episodes
        ended = [bool(episode.terminations[-1]) for episode in episodes]
        assert any(ended) == family.terminates, name


def test_ridge_is_that_of_scikit_learn(modules):
    from sklearn.linear_model import RidgeCV

    families, suite, _ = modules
    episodes = families.make_family("terminal bonus", 0, episodes=60).episodes
    inputs = [
        np.column_stack([e.observations[:-1], e.actions, np.ones(len(e))]).astype(np.float64)
        for e in episodes
    ]
    sums = np.array([part.sum(0) for part in inputs])
    scaled = (sums - sums.mean(0)) / sums.std(0)
    found = RidgeCV(np.logspace(-6, 6, 49)).fit(scaled, episodes.compute_returns())
    for part, rewards in zip(inputs, suite.fit_ridge(episodes, episodes), strict=True):
        np.testing.assert_allclose(rewards, part @ (found.coef_ / sums.std(0)), atol=1e-9)


def test_files_are_recognised_by_their_task(modules):
    _, suite, _ = modules
    names = ("Hopper-1", "Hopper", "HopperX-1", "InvertedPendulum_2", "bikes")
    found = [suite.find_task(Path(f"{name}.h5")) for name in names]
    assert found == ["Hopper", "Hopper", None, "InvertedPendulum", None]


def test_the_table_marks_what_misses_a_bar(modules):
    *_, suite_table = modules
    own = {"row": "Hopper", "method": "grd", "pearson": 0.7, "within": 0.6, "seconds": 3.0}
    own |= {"step_coverage": 0.5, "fit": "closed-form", "moment": "midpoint"}
    own |= {"findings": [{"level": "fine", "text": ""}], "verdict": {"level": "fine"}}
    peer = {"row": "Hopper", "method": "ridge", "pearson": 0.95}
    failed = {"row": "Ant", "method": "grd", "error": "MemoryError: none left"}
    table = suite_table.make_table([own, peer, failed])
    for text in ("Pearson under 0.995", "bands too narrow", "wrong, but fine", "ridge is better"):
        assert text in table
    assert "Ant, grd: MemoryError: none left" in table
    good = own | {"pearson": 0.999, "step_coverage": 0.9}
    assert "**" not in suite_table.make_table([good, peer])


def test_the_command_keeps_each_result_as_it_comes(tmp_path):
    command = [sys.executable, FOLDER / "quality.py", "--suite", "--only", "success labels"]
    command += ["--methods", "uniform", "ridge", "--seeds", "3", "--json", tmp_path / "rows.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["method"] for row in rows} == {"uniform", "ridge"}
    assert all("error" not in row for row in rows)
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2
