"""`collect --parts` and `relabel` of a folder of parts."""

import json
import sys

import numpy as np
import pytest
import reward_models
from places import HELPERS

import grd_offline
from grd_offline.cli import main
from grd_offline.cli.data import collect as collect_command
from grd_offline.cli.options import pick_settings
from grd_offline.io.datasets import find_parts, read_manifest
from grd_offline.lab.sweep import folder as jobs_module
from grd_offline.lab.sweep.parts import plan_collection
from grd_offline.learning.agents.actors import Actor, ActorSpec, count_weights, save_actor
from grd_offline.learning.settings import CollectSettings

pytestmark = pytest.mark.long

WORLD = ("--env", "Factored", "--env-arg", "length=9", "--env-arg", 'family="hard"', "--seed", 3)


def call(capsys, *arguments):
    """The exit code of a command, and what it printed."""
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    return end.value.code, capsys.readouterr()


def read_all(folder):
    return {path.name: path.read_bytes() for path in find_parts(folder)}


@pytest.fixture(scope="module", autouse=True)
def quick_jobs(quick_program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs_module, "PROGRAM", quick_program)
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A collection of eight episodes in three parts, and the same in one file."""
    folder = tmp_path_factory.mktemp("work")
    options = ("--episodes", 8, "--keep-true-rewards")
    for more in (("--parts", 3, "--out", folder / "parts"), ("--out", folder / "whole.h5")):
        with pytest.raises(SystemExit) as end:
            main([str(part) for part in ("collect", *WORLD, *options, *more)])
        assert end.value.code == 0
    return folder


def collect(capsys, out, *options):
    given = (*WORLD, "--episodes", 8, "--keep-true-rewards", "--parts", 3, "--out", out)
    return call(capsys, "collect", *given, *options)


def test_the_parts_together_are_the_single_file(work):
    assert [len(grd_offline.read(path)) for path in find_parts(work / "parts")] == [3, 3, 2]
    for name in ("parts", "whole.h5"):
        recording = grd_offline.open_recording(work / name)
        with recording:
            grd_offline.write_dataset(work / f"{name}-again", recording.header, recording)
    assert (work / "parts-again").read_bytes() == (work / "whole.h5-again").read_bytes()
    assert sorted(path.name for path in (work / "parts").iterdir()) == [
        *("jobs", "part-00000.h5", "part-00001.h5", "part-00002.h5", "parts.json"),
    ]


def test_commands_of_parts_have_all_settings(tmp_path, monkeypatch):
    spec = ActorSpec("gaussian", (5, 8, 4), (-1.0, -1.0), (1.0, 1.0))
    save_actor(tmp_path / "policy", Actor(spec, np.ones(count_weights(spec))), {})
    monkeypatch.chdir(tmp_path)
    settings = CollectSettings(
        environment="Factored",
        env_args={"length": 12, "states": 5, "actions": 2, "family": "hard"},
        episodes=7,
        first_episode=30,
        policy="policy",
        policy_noise="deterministic",
        random_share=0.25,
        switch_every=4,
        seed=9,
        delay=3,
        discount=0.99,
        keep_true_rewards=True,
        max_episode_steps=11,
    )
    plan = plan_collection(settings, 2)
    for job, first, count in zip(plan.jobs, (30, 34), (4, 3), strict=True):
        name, *arguments = job.command
        options = collect_command.make_context(name, [*arguments, "--out", "a.h5"]).params
        found = pick_settings(CollectSettings, options)
        expected = vars(settings) | {"first_episode": first, "episodes": count, "workers": 1}
        assert found == expected | {"policy": str(tmp_path / "policy")}
        assert not options["keep_partial"]
    before = plan.manifest.settings
    save_actor(tmp_path / "policy", Actor(spec, np.zeros(count_weights(spec))), {})
    after = plan_collection(settings, 2).manifest.settings
    assert {name for name in before if before[name] != after[name]} == {"policies"}


def test_the_number_of_workers_does_not_matter(work, tmp_path, capsys):
    assert collect(capsys, tmp_path / "one", "--workers", 1)[0] == 0
    assert read_all(tmp_path / "one") == read_all(work / "parts")


def test_what_is_there_is_skipped_and_what_is_gone_is_made_again(work, capsys):
    folder = work / "parts"
    before = read_all(folder)
    (folder / "part-00001.h5").unlink()
    kept = (folder / "part-00000.h5").stat().st_mtime_ns
    code, printed = collect(capsys, folder)
    assert code == 0
    assert "2 of 3 parts had finished before" in printed.err
    assert "repeating part-00001: its result is gone" in printed.err
    assert read_all(folder) == before
    assert (folder / "part-00000.h5").stat().st_mtime_ns == kept
    code, printed = collect(capsys, folder)
    assert (code, "3 of 3 parts had finished before" in printed.err) == (0, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seed", 4), "parts: seed: was begun with 3, not with 4: choose another folder"),
        (("--parts", 4), "parts: parts: was begun with 3, not with 4"),
        (("--delay", 2), "parts: delay: was begun with 'end', not with 2"),
        (("--parts", 9), "parts: expected at least 1 and at most 8 for 8 episodes, got 9"),
        (("--address", "auto"), "--address is for --runner ray"),
        (("--runner", "ray", "--address", "auto", "--workers", 2), "--workers is for this machine"),
        (("--env", "Nowhere"), "Nowhere"),
    ],
)
def test_other_settings_are_refused(work, capsys, options, words):
    folder = work / "parts"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, printed = collect(capsys, folder, *options)
    assert code == 2
    assert words in printed.err
    assert len(printed.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_other_folders_and_files_are_left_alone(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    (tmp_path / "file").touch()
    for name, words in (
        ("full", "exists and holds something else: choose another name"),
        ("file", "is a file, expected the name of a folder"),
        ("new.h5", "expected the name of a folder, because of --parts"),
    ):
        code, printed = collect(capsys, tmp_path / name)
        assert (code, words in printed.err) == (2, True), printed.err
    code, printed = call(capsys, "collect", *WORLD, "--runner", "ray", "--out", tmp_path / "a.h5")
    assert (code, "need --parts" in printed.err) == (2, True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "mine.txt"]


def test_a_full_disk_costs_one_part_and_no_other(work, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jobs_module, "PROGRAM", (sys.executable, str(HELPERS / "full_disk.py")))
    code, printed = collect(capsys, tmp_path / "out", "--tries", 1)
    assert code == 2
    assert printed.err.splitlines()[-1].startswith(
        "grd-offline: error: 1 of 3 parts are missing, the first is part-00001: exit code 2: "
        f"{tmp_path / 'out' / 'part-00001.h5'}: cannot be written: No space left on device"
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("jobs", "part-00000.h5", "part-00002.h5", "parts.json"),
    ]
    with grd_offline.open_recording(tmp_path / "out") as recording:
        assert "1 of 3 parts are not there yet, the first is part-00001.h5" in recording.warnings[0]
    (tmp_path / "out" / "room").touch()
    code, printed = collect(capsys, tmp_path / "out")
    assert (code, "repeating part-00001: exit code 2: " in printed.err) == (0, True)
    assert read_all(tmp_path / "out") == read_all(work / "parts")


@pytest.fixture(scope="module")
def model(work):
    """A decomposition of the collection."""
    options = ("--method", "uniform", "--out", work / "grd")
    with pytest.raises(SystemExit) as end:
        main([str(part) for part in ("decompose", work / "parts", *options)])
    assert end.value.code == 0
    return work / "grd"


def test_each_part_is_relabelled(work, model, tmp_path, capsys):
    code, printed = call(capsys, "relabel", f"{work / 'parts'}/", "--model", model)
    assert (code, printed.out) == (0, f"wrote {work / 'parts-relabelled'}: 3 parts\n")
    whole = tmp_path / "whole.h5"
    assert call(capsys, "relabel", work / "whole.h5", "--model", model, "--out", whole)[0] == 0
    ours, theirs = grd_offline.read(work / "parts-relabelled"), grd_offline.read(whole)
    assert [episode.rewards.tolist() for episode in ours] == [
        episode.rewards.tolist() for episode in theirs
    ]
    code, printed = call(capsys, "relabel", work / "parts", "--model", model)
    assert (code, "3 of 3 parts had finished before" in printed.err) == (0, True)


def test_parts_that_are_new_or_have_changed_are_relabelled(work, model, tmp_path, capsys):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for number in (0, 1):
        name = f"part-0000{number}.h5"
        (data / name).write_bytes((work / "parts" / name).read_bytes())
    given = ("relabel", data, "--model", model, "--out", out, "--workers", 1)
    assert call(capsys, *given)[0] == 0
    changed = (work / "parts" / "part-00002.h5").read_bytes()
    for number in (1, 2):
        (data / f"part-0000{number}.h5").write_bytes(changed)
    code, printed = call(capsys, *given)
    assert code == 0
    assert "1 of 3 parts had finished before" in printed.err
    assert "repeating part-00001: its data have changed" in printed.err
    assert [len(grd_offline.read(path)) for path in find_parts(out)] == [3, 2, 2]
    assert len(read_manifest(out).parts) == 3


def test_relabelling_refuses_what_does_not_fit(work, model, tmp_path, capsys):
    out = tmp_path / "out"
    given = ("relabel", work / "parts", "--model", model, "--out", out)
    assert call(capsys, *given)[0] == 0
    reward_models.make_model("quadratic").save(tmp_path / "other")
    for arguments, words in (
        ((*given, "--exact-returns"), "exact_returns: was begun with False, not with True"),
        ((*given[:3], tmp_path / "other", *given[4:]), "dimensions, the model expects"),
        ((*given[:-1], work / "parts"), "IN and OUT are the same"),
        ((*given[:-1], tmp_path / "a.h5"), "expected the name of a folder, because FILE is one"),
        ((*given, "--columns", "episode=a"), "--columns and --returns are for tables"),
        (("relabel", work / "whole.h5", *given[2:4], "--runner", "ray"), "are for a folder of"),
        (("relabel", tmp_path / "no", *given[2:4]), "no such file"),
    ):
        code, printed = call(capsys, *arguments)
        assert (code, words in printed.err) == (2, True), printed.err


def test_another_model_is_refused(work, model, tmp_path, capsys):
    out = tmp_path / "out"
    given = ("relabel", work / "parts", "--out", out, "--model")
    assert call(capsys, *given, model)[0] == 0
    config = json.loads((model / "reward_model" / "config.json").read_text())
    loaded = grd_offline.RewardModel.load(model)
    loaded.save(tmp_path / "other")
    changed = tmp_path / "other" / "config.json"
    changed.write_text(json.dumps({**config, "step_std": 9.0}))
    code, printed = call(capsys, *given, tmp_path / "other")
    assert (code, "model: was begun with" in printed.err) == (2, True), printed.err


def test_versions_that_changed_are_told(work, capsys):
    path = work / "parts" / "parts.json"
    path.write_text(path.read_text().replace('"mujoco": "', '"mujoco": "9'))
    code, printed = collect(capsys, work / "parts")
    assert (code, "the first parts were made with mujoco 9" in printed.err) == (0, True)
