"""`grd-offline decompose` from end to end, and the commands around it."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
import worlds
from forked import run

from grd_offline import (
    DataError,
    DecomposeSettings,
    DynamicsModel,
    RewardModel,
    collect,
    decompose_episodes,
    decompose_file,
    read,
    read_decomposition,
    save_decomposition,
)
from grd_offline.io.datasets import open_recording, write_dataset
from grd_offline.methods.relabelling import compare_with_truth
from grd_offline.report import make_decomposition_page

CLOSED = DecomposeSettings(fit="closed-form")
LINEAR = DecomposeSettings(fit="linear")
UNIFORM = DecomposeSettings(method="uniform")


@pytest.fixture(scope="module")
def world():
    return worlds.make_world()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, world):
    folder = tmp_path_factory.mktemp("decomposition")
    worlds.write_world(folder / "data.h5", world, 120)
    done = run("decompose", "data.h5", "--truth", "true_rewards", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "output").write_text(done.stdout)
    (folder / "progress").write_text(done.stderr)
    return folder


def test_everything_is_written_where_it_belongs(folder):
    names = {entry.name for entry in (folder / "data-grd").iterdir()}
    assert names == {
        *("relabelled.h5", "reward_model", "dynamics_model", "effects.json", "masks.json"),
        *("metrics.json", "report.html"),
    }
    for model in ("reward_model", "dynamics_model"):
        files = {entry.name for entry in (folder / "data-grd" / model).iterdir()}
        assert files == {"config.json", "model.safetensors", "README.md"}


def test_the_report_is_that_of_the_folder(folder):
    """It is made of episodes that were kept in memory, not read back."""
    page = make_decomposition_page(read_decomposition(folder / "data-grd"))
    assert (folder / "data-grd" / "report.html").read_text() == page


def test_a_decomposition_in_memory_is_the_one_that_is_saved(folder, tmp_path):
    """`decompose` reads, decomposes in memory and saves; nothing is lost on the way."""
    settings = DecomposeSettings(fit="linear")
    episodes = read(folder / "data.h5")
    found = decompose_episodes(episodes, settings)
    assert found.folder is None
    assert repr(found).startswith("Decomposition(in memory: linear, ")
    saved = save_decomposition(found, tmp_path / "saved")
    written = decompose_file(folder / "data.h5", tmp_path / "written", settings)
    again = read_decomposition(tmp_path / "saved")
    for other in (saved, written, again):
        np.testing.assert_array_equal(np.concatenate(other.rewards), np.concatenate(found.rewards))
        assert other.effects == found.effects
        assert other.masks == found.masks
        assert (other.verdict, other.findings) == (found.verdict, found.findings)
    np.testing.assert_allclose(again.spreads[0], found.spreads[0], rtol=1e-6)
    assert again.model.about == found.model.about
    assert again.dynamics.predict(*_first_step(episodes)).shape == (1, 5)
    np.testing.assert_array_equal(again.rewards_["reward"], found.rewards_["reward"])
    with pytest.raises(DataError, match="is not in memory: it was read from its folder"):
        save_decomposition(again, tmp_path / "twice")


def _first_step(episodes):
    return episodes[0].observations[:1], episodes[0].actions[:1]


def test_the_known_graph_is_found(folder, world):
    masks = json.loads((folder / "data-grd" / "masks.json").read_text())
    for name, true in world.masks.items():
        np.testing.assert_array_equal(masks[name], true)
        assert np.shape(masks["score"][name]) == true.shape
    assert set(masks["compact"]) == {"closure", "one_hop"}
    assert masks["state_names"] == ["s0", "s1", "s2", "s3", "s4"]


def test_metrics_say_how_good_it_is(folder):
    metrics = json.loads((folder / "data-grd" / "metrics.json").read_text())
    assert metrics["method"] == "grd"
    assert metrics["fit"] == "closed-form"
    assert metrics["held_out_return_r2"] > 0.9
    assert 0.6 <= metrics["held_out_return_coverage_90"] <= 1
    assert metrics["truth"]["pearson"] > 0.98
    assert 0.8 <= metrics["truth"]["coverage_90"] <= 0.99
    assert metrics["true_masks"]["state_to_reward"]["f1"] == 1
    likelihood = metrics["dynamics_held_out_log_likelihood"]
    assert likelihood["masked"] > likelihood["unmasked"] - 0.05
    assert metrics["identifiability"]["findings"]


def test_the_relabelled_data_keep_everything_else(folder):
    with (
        open_recording(folder / "data.h5") as before,
        open_recording(folder / "data-grd" / "relabelled.h5") as after,
    ):
        model = RewardModel.load(folder / "data-grd")
        assert after.header.delay == "step"
        assert after.header.settings["decompose"]["chosen_fit"] == "closed-form"
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(new.observations[""], old.observations[""])
            np.testing.assert_array_equal(new.extras["observed_rewards"], old.rewards)
            np.testing.assert_array_equal(new.extras["true_rewards"], old.extras["true_rewards"])
            expected = model.predict(old.observations[""][:-1], old.actions[""])
            np.testing.assert_allclose(new.rewards, expected, rtol=1e-9)
            assert (new.extras["reward_std"] > 0).all()


def test_the_verdict_comes_first_and_bands_say_what_they_assume(folder):
    metrics = json.loads((folder / "data-grd" / "metrics.json").read_text())
    output = " ".join((folder / "output").read_text().split())
    assert output.startswith(metrics["verdict"]["text"])
    assert "proves nothing about single steps" in output
    assert "up to the size of the effects" in metrics["bands"]
    assert metrics["verdict"]["text"] in (folder / "data-grd/reward_model/README.md").read_text()


def test_effects_are_curves_with_bands_and_shares(folder, world):
    effects = json.loads((folder / "data-grd" / "effects.json").read_text())["effects"]
    parents = {f"s{i}" for i in np.flatnonzero(world.masks["state_to_reward"])}
    parents |= {f"a{i}" for i in np.flatnonzero(world.masks["action_to_reward"])}
    assert {name for effect in effects for name in effect["inputs"]} == parents
    assert sum(effect["share"] for effect in effects) == pytest.approx(1, abs=1e-3)
    for effect in effects:
        shape = tuple(len(grid) for grid in effect["grids"])
        assert np.shape(effect["mean"]) == np.shape(effect["std"]) == shape


def test_the_dynamics_are_a_product_too(folder):
    model = DynamicsModel.load(folder / "data-grd")
    episode = read(folder / "data.h5")[0]
    predicted = model.predict(episode.observations[:-1], episode.actions)
    assert predicted.shape == (len(episode), 5)
    drawn = model.sample(episode.observations[:-1], episode.actions, np.random.default_rng(0))
    assert np.isfinite(drawn).all()


def test_the_closing_table_and_the_progress(folder):
    out = (folder / "output").read_text()
    for text in ("drives the reward", "compact state", "held-out returns", "data-grd/report.html"):
        assert text in out
    assert "computing step rewards" in (folder / "progress").read_text()


def test_evaluate_on_other_data(folder, world):
    worlds.write_world(folder / "other.h5", world, 20, seed=7)
    done = run(
        "evaluate",
        "data-grd",
        "--truth",
        "true_rewards",
        "--data",
        "other.h5",
        "--json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["rewards"]["pearson"] > 0.98
    assert result["masks"]["action_to_reward"]["f1"] == 1
    own = run("evaluate", "data-grd", "--truth", "true_rewards", cwd=folder)
    assert "pearson" in own.stdout
    assert "compact_closure" in own.stdout


def write_labels(path, source):
    """The same episodes; each tells only whether its return is above the median."""
    with open_recording(source) as recording:
        records = list(recording)
        returns = np.array([record.rewards.sum() for record in records])
        wins = returns > np.median(returns)
        labelled = [
            replace(record, rewards=(record.rewards != 0) * float(won))
            for record, won in zip(records, wins, strict=True)
        ]
        write_dataset(path, recording.header, labelled)


def test_evaluate_tells_of_labels_what_decompose_told(folder, tmp_path):
    """Log-odds have a unit of their own: bands are compared in the units of the true rewards."""
    write_labels(tmp_path / "labels.h5", folder / "data.h5")
    settings = DecomposeSettings(truth="true_rewards")
    told = decompose_file(tmp_path / "labels.h5", tmp_path / "out", settings).metrics
    assert told["outcome"] == "success"
    assert told["truth"]["coverage_90"] > 0.5
    for data in (None, tmp_path / "labels.h5"):
        again = compare_with_truth(tmp_path / "out", "true_rewards", data)["rewards"]
        assert again == pytest.approx(told["truth"], rel=1e-6)


def test_relabel_gives_the_model_s_rewards_to_other_data(folder, world):
    worlds.write_world(folder / "more.h5", world, 10, seed=8)
    done = run("relabel", "more.h5", "--model", "data-grd", "--out", "new.h5", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote new.h5: 10 episodes")
    model = RewardModel.load(folder / "data-grd")
    for old, new in zip(read(folder / "more.h5"), read(folder / "new.h5"), strict=True):
        expected = model.predict(old.observations[:-1], old.actions)
        np.testing.assert_allclose(new.rewards, expected, rtol=1e-5, atol=1e-6)


def test_exact_returns_hold(world, tmp_path):
    source = worlds.write_world(tmp_path / "data.h5", world, 15)
    settings = DecomposeSettings(fit="linear", exact_returns=True)
    decompose_file(source, tmp_path / "exact", settings)
    with open_recording(tmp_path / "exact" / "relabelled.h5") as recording:
        for record in recording:
            assert record.rewards.sum() == pytest.approx(
                record.extras["observed_rewards"][-1], rel=1e-6
            )


@pytest.mark.parametrize("layout", ["minari", "d4rl"])
def test_the_layout_stays(layout, folder, world, tmp_path):
    source = worlds.write_world(tmp_path / "source", world, 15, layout=layout)
    result = decompose_file(source, tmp_path / "out", LINEAR)
    with open_recording(result.relabelled) as recording:
        assert recording.layout == layout
        assert "observed_rewards" in recording.load(0).extras
    if layout == "minari":
        minari = pytest.importorskip("minari")
        assert minari.MinariDataset(result.relabelled / "data").total_episodes == 15


@pytest.mark.parametrize("method", ["ircr", "uniform"])
def test_other_methods_leave_the_same_files(method, folder, world, tmp_path):
    source = worlds.write_world(tmp_path / "data.h5", world, 15)
    result = decompose_file(source, tmp_path / "out", DecomposeSettings(method=method))
    assert result.metrics["method"] == method
    assert (tmp_path / "out" / "report.html").exists()
    if method == "uniform":
        episode = read(result.relabelled)[0]
        total = read(source)[0].compute_return()
        np.testing.assert_allclose(episode.rewards, total / len(episode), rtol=1e-5)


@pytest.mark.long
def test_rewards_at_every_step_are_summed_unless_asked(world, tmp_path):
    source = worlds.write_world(tmp_path / "dense.h5", world, 8, dense=True)
    summed = decompose_file(source, tmp_path / "summed", LINEAR)
    assert any("summed into one return" in warning for warning in summed.warnings)
    settings = DecomposeSettings(fit="closed-form", step_rewards=True, truth="rewards")
    used = decompose_file(source, tmp_path / "used", settings)
    assert used.metrics["truth"]["pearson"] > 0.99
    assert not any("summed" in warning for warning in used.warnings)


def test_odd_data_are_handled_and_said(world, tmp_path):
    source = worlds.write_world(tmp_path / "two.h5", world, 2)
    result = decompose_file(source, tmp_path / "two", CLOSED)
    assert "only 2 episodes" in result.metrics["reason"]
    with open_recording(source) as recording:
        records = list(recording)
        for record in records:
            record.rewards[:] = 0
        write_dataset(tmp_path / "zero.h5", recording.header, records * 10)
    result = decompose_file(tmp_path / "zero.h5", tmp_path / "zero", CLOSED)
    assert "All returns are equal" in result.findings[0].text
    assert not np.any(result.masks["state_to_reward"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decompose", "none.h5"], "none.h5: no such file"),
        (["decompose", "data.h5", "--truth", "nonsense"], "nonsense: no such field"),
        (["decompose", "data.h5", "--gamma", "2"], "gamma: expected more than 0"),
        (["decompose", "data-grd/relabelled.h5"], "is relabelled already"),
        (["decompose", "data.h5", "--out", "precious"], "holds something else"),
        (
            ["decompose", "data.h5", "--fit", "pair-net", "--next-state"],
            "next_state: pair-net does not take the next state",
        ),
        (["relabel", "data.h5", "--model", "precious"], "expected the folder of"),
        (
            ["relabel", "wide.h5", "--model", "data-grd"],
            "6 state and 2 action dimensions, the model",
        ),
        (["evaluate", "data-grd", "--truth", "nonsense"], "nonsense: no such field"),
        (["evaluate", "data-grd", "--truth", "rewards"], "rewards: are those of the decomposition"),
        (
            ["evaluate", "data-grd", "--truth", "true_rewards", "--data", "wide.h5"],
            "6 state and 2 action dimensions, the model",
        ),
        (["evaluate", "precious", "--truth", "true_rewards"], "expected the folder of"),
    ],
)
def test_mistakes_end_in_one_line(arguments, message, folder):
    (folder / "precious").mkdir(exist_ok=True)
    (folder / "precious" / "thesis.tex").write_text("...")
    if "wide.h5" in arguments:
        worlds.write_world(folder / "wide.h5", worlds.make_world(states=6), 3)
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("grd-offline: error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_names_from_the_data_are_escaped_in_the_report(world, tmp_path):
    source = worlds.write_world(tmp_path / "data.h5", world, 15)
    with open_recording(source) as recording:
        names = tuple(f"<script>alert({i})</script>" for i in range(5))
        header = replace(recording.header, observation_names=names)
        write_dataset(tmp_path / "evil.h5", header, recording)
    decompose_file(tmp_path / "evil.h5", tmp_path / "out", LINEAR)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>alert" not in page
    assert "alert(0)</script>" not in page
    assert "&lt;script&gt;alert(" in page
    assert "\\u003cscript\\u003ealert(" in page


def test_metrics_hold_what_the_report_shows(folder):
    metrics = json.loads((folder / "data-grd" / "metrics.json").read_text())
    held, calibration = metrics["held_out"], metrics["calibration"]
    observed, predicted = np.array(held["observed"]), np.array(held["predicted"])
    assert len(observed) == metrics["held_out_returns"] == 24
    left = ((observed - predicted) ** 2).sum() / ((observed - observed.mean()) ** 2).sum()
    assert metrics["held_out_return_r2"] == pytest.approx(1 - left)
    at = calibration["levels"].index(0.9)
    assert calibration["held_out_returns"][at] == metrics["held_out_return_coverage_90"]
    assert calibration["true_rewards"][at] == pytest.approx(metrics["truth"]["coverage_90"])
    assert sorted(calibration["true_rewards"]) == calibration["true_rewards"]
    assert metrics["command"] == "grd-offline decompose data.h5 --truth true_rewards"
    assert metrics["delay"] == "end"
    assert {"python", "torch", "grd-offline"} <= set(metrics["versions"])


def test_the_report_is_the_same_when_made_again_from_the_folder(folder):
    report = folder / "data-grd" / "report.html"
    before = report.read_bytes()
    report.unlink()
    done = run("report", "data-grd", cwd=folder)
    assert done.stdout == "wrote data-grd/report.html\n"
    assert report.read_bytes() == before


def test_a_failure_leaves_the_old_result(world, tmp_path, monkeypatch):
    source = worlds.write_world(tmp_path / "data.h5", world, 15)
    decompose_file(source, tmp_path / "out", UNIFORM)
    before = (tmp_path / "out" / "metrics.json").read_bytes()

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grd_offline.pipeline.decompose.make_decomposition_page", fail)
    with pytest.raises(OSError, match="No space left"):
        decompose_file(source, tmp_path / "out", UNIFORM)
    assert (tmp_path / "out" / "metrics.json").read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"data.h5", "out"}


def test_judge_needs_a_decomposition(tmp_path):
    with pytest.raises(DataError):
        compare_with_truth(tmp_path, "true_rewards")


def test_the_relabelled_file_is_plain_hdf5(folder):
    with h5py.File(folder / "data-grd" / "relabelled.h5") as file:
        assert file["episode_0/rewards"].dtype == np.float64
        assert set(file["episode_0"]) >= {"rewards", "observed_rewards", "reward_std"}


@pytest.mark.long
def test_the_next_state_may_be_an_input(world, tmp_path):
    worlds.write_world(tmp_path / "data.h5", world, 15)
    settings = DecomposeSettings(fit="closed-form", next_state=True)
    done = decompose_file(tmp_path / "data.h5", tmp_path / "out", settings)
    assert done.model.needs_next_observations
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_folder_with_files_of_others_is_not_replaced(folder, world, tmp_path):
    worlds.write_world(tmp_path / "data.h5", world, 10)
    out = tmp_path / "out"
    shutil.copytree(folder / "data-grd", out)
    (out / "notes.txt").write_text("mine")
    done = run("decompose", "data.h5", "--fit", "closed-form", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "out: cannot be written: exists and holds something else" in done.stderr
    assert (out / "notes.txt").read_text() == "mine"


def test_a_decomposition_s_folder_stands_for_its_data(folder):
    data, relabelled = read(folder / "data-grd"), read(folder / "data-grd" / "relabelled.h5")
    np.testing.assert_array_equal(data[3].rewards, relabelled[3].rewards)


@pytest.mark.long
def test_what_explains_little_of_other_returns_is_said_first(tmp_path):
    sizes = {**worlds.SMALL, "states": 6, "min_length": 30, "length": 40}
    collect("grd/Factored-v0", tmp_path / "few.h5", episodes=20, policy="random", env_args=sizes)
    done = decompose_file(tmp_path / "few.h5", tmp_path / "out", CLOSED)
    assert done.metrics["held_out_return_r2"] < 0
    assert done.findings[0].level == "unreliable"
    assert "explain nothing of how returns of episodes held out differ" in done.findings[0].text
    assert done.metrics["verdict"]["text"].startswith("Do not rely on these rewards: they explain")
    assert done.metrics["verdict"]["text"] in (tmp_path / "out/reward_model/README.md").read_text()
