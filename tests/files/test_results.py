"""What belongs to a result, and that what is written is what is read."""

import json

import numpy as np
import pytest
from decompositions import refer
from decompositions import write_decomposition as write_sample
from judgements import write_judgement as write_verdicts
from run_tables import write_run

from grd_offline.core.errors import DataError
from grd_offline.io.files.results import (
    SourceScores,
    find_relabelled,
    is_decomposition,
    is_judgement,
    is_replaceable,
    read_episode,
    read_episodes,
    read_judgement,
    read_masks,
    read_run,
    write_decomposition,
    write_episode,
    write_judgement,
    write_masks,
    write_outcomes,
)
from grd_offline.methods.result import read_decomposition, read_outcomes


def test_a_decomposition_is_replaced_only_if_nothing_else_is_in_its_folder(tmp_path):
    folder = write_sample(tmp_path / "grd")
    assert is_decomposition(folder)
    assert is_replaceable(folder)
    assert find_relabelled(folder) == folder / "relabelled.h5"
    (folder / "thesis.tex").touch()
    assert is_decomposition(folder)
    assert not is_replaceable(folder)
    (folder / "metrics.json").unlink()
    assert not is_decomposition(folder)
    assert find_relabelled(tmp_path) is None


def test_a_decomposition_comes_back_with_its_effects_ranked(tmp_path):
    x, y, push = refer(["x", "y", "push"], ["x", "y"], ["push"])
    metrics = {"fit": "closed-form", "steps": np.float32(2)}
    masks = {"state_names": ["x", "y"], "references": (x, y, push)}
    effects = [
        {"references": inputs, "share": share}
        for inputs, share in (((x,), 0.2), ((y, x), 0.5), ((push,), 0.3))
    ]
    contents = {"effects": effects, "constant": 0.0}
    write_decomposition(tmp_path, metrics=metrics, masks=masks, effects=contents)
    record = read_decomposition(tmp_path)
    assert record.folder == tmp_path
    assert record.metrics == {"fit": "closed-form", "steps": 2.0}
    assert record.masks == masks
    assert [effect["share"] for effect in record.effects] == [0.5, 0.3, 0.2]
    assert record.inputs == [x, y, push]
    assert [effect["references"] for effect in record.effects] == [(y, x), (push,), (x,)]
    assert record.constant == 0


def test_without_effects_the_masks_rank_the_inputs(tmp_path):
    record = read_decomposition(write_sample(tmp_path / "grd", effects=[]))
    assert [one.name for one in record.inputs] == ["speed", "push"]


def test_a_decomposition_of_an_earlier_version_says_what_to_do(tmp_path):
    folder = write_sample(tmp_path / "grd")
    masks = json.loads((folder / "masks.json").read_text())
    del masks["references"]
    (folder / "masks.json").write_text(json.dumps(masks))
    with pytest.raises(DataError, match="by an earlier version: decompose the data again"):
        read_decomposition(folder)


def test_a_missing_file_is_named(tmp_path):
    folder = write_sample(tmp_path / "grd")
    (folder / "masks.json").unlink()
    with pytest.raises(DataError, match=r"grd: not a decomposition: no masks\.json"):
        read_decomposition(folder)


def test_verdicts_come_back_best_first(tmp_path):
    folder = write_verdicts(tmp_path / "judge")
    about = json.loads((folder / "judge.json").read_text())
    verdicts = [
        SourceScores("uniform", (1.0, 3.0), None, None, 0.5),
        SourceScores("true", (4.0, 6.0), 1.0, 1.0, 1.0),
        SourceScores("grd", (4.0, 5.0), 0.9, 0.8, None),
    ]
    left_out = ("format", "version", "verdicts")
    write_judgement(folder, verdicts, {n: v for n, v in about.items() if n not in left_out})
    record = read_judgement(folder)
    assert record.ranking == (verdicts[1], verdicts[2], verdicts[0])
    assert record.methods == [verdicts[2], verdicts[0]]
    assert record.best is record.find("grd")
    assert record.find("rrd") is None
    assert (record.best.mean, record.best.spread) == (4.5, 0.5)
    assert record.sources["grd"]["fit"] == "grd-fit"
    assert record.data_mean == -100.0
    assert (folder / "judge.csv").read_text().splitlines() == [
        "source,mean_return,std_return,share_of_true,share_of_gain,pearson",
        "uniform,2.0,1.0,,,0.5",
        "true,5.0,1.0,1.0,1.0,1.0",
        "grd,4.5,0.5,0.9,0.8,",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version: expected 1, got 2"),
        ({"format": "other"}, "is not a grd-offline judge"),
        ({"verdicts": []}, "expected a verdict on at least one method"),
        (
            {"verdicts": [{"source": "grd"}]},
            r"verdicts\[0\]: object missing required field scores",
        ),
    ],
)
def test_a_judgement_of_another_kind_is_refused(tmp_path, change, message):
    folder = write_verdicts(tmp_path / "judge", **change)
    assert is_judgement(folder)
    assert not is_judgement(tmp_path)
    with pytest.raises(DataError, match=message):
        read_judgement(folder)


def write_pair(folder):
    folder.mkdir()
    write_outcomes(folder, ["speed", "load"], [[1.0, 0.0], [0.0, 1.0]])
    write_sample(folder / "speed")
    write_sample(folder / "load")


@pytest.mark.parametrize(
    ("write", "read", "name"),
    [
        (write_sample, read_decomposition, "metrics.json"),
        (write_sample, read_decomposition, "masks.json"),
        (write_sample, read_decomposition, "effects.json"),
        (write_pair, read_outcomes, "outcomes.json"),
        (write_pair, read_outcomes, "speed"),
        (write_verdicts, read_judgement, "judge.json"),
        (write_verdicts, read_judgement, "run"),
    ],
)
def test_a_link_that_leads_out_of_a_result_is_refused(write, read, name, tmp_path):
    folder = tmp_path / "result"
    write(folder)
    assert read(folder)
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match=r"leads out of .*result through a link"):
        read(folder)


def test_masks_and_rewards_of_a_member_come_back(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    masks = {
        "state_to_reward": [1, 0],
        "action_to_reward": [1],
        "state_to_state": [[1, 0], [1, 1]],
        "action_to_state": [[0, 1]],
    }
    write_masks(run.path, "rrd-seed0", 70, masks, np.array([True, False]))
    (found,) = read_masks(run, "rrd-seed0")
    assert (found["step"], found["compact"]) == (70, 1)
    assert found["state_to_state"].tolist() == masks["state_to_state"]
    (file,) = (run.path / "members" / "rrd-seed0" / "masks").iterdir()
    assert json.loads(file.read_text()) == {"step": 70, **masks, "compact": [1, 0]}
    for step in (9, 10):
        write_episode(run.path, "rrd-seed0", step, np.array([step, 0.5]), np.array([1.0, 2.0]))
    assert [episode.step for episode in read_episodes(run, "rrd-seed0", 2)] == [9, 10]
    episode = read_episode(run, "rrd-seed0")
    assert (episode.found.tolist(), episode.true.tolist()) == ([10, 0.5], [1, 2])
