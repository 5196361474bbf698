"""Offline runs from start to end: policies that beat their data, files, commands."""

import json
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import offline_commands
import offline_data
import point_mass
import pytest
from offline_commands import EPISODES, FEW, SMALL, TRUE, make_settings, run_command, write_file
from online_runs import Keeper, Warned, start_command, train_while, wait_for_rows

import grd_offline
from grd_offline import DecomposeSettings, decompose_file, open_recording
from grd_offline.cli import display
from grd_offline.cli.display import RunDisplay, describe_speed, draw_panel
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import Observers
from grd_offline.io.files.results import EVALUATION_COLUMNS, read_rows, read_run
from grd_offline.learning.agents.actors import load_actor_about
from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.learning.offline.run import (
    OfflineFolder,
    OfflineRun,
    describe_other_environment,
    load_data,
)
from grd_offline.learning.settings import OfflineSettings
from grd_offline.report.figures import draw_run

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


BEHAVIOUR, BETTER_HALF = -23.7, -8.6
"""Mean return of the data, and of the half that acts with some sense."""


@pytest.mark.parametrize("algorithm", list_offline())
def test_policies_beat_the_better_half_of_their_data(algorithm):
    returns = [float(r.sum()) for r in np.split(TRUE, np.cumsum(EPISODES.lengths)[:-1])]
    assert np.mean(returns) == pytest.approx(BEHAVIOUR, abs=0.1)
    assert np.mean(returns[1::2]) == pytest.approx(BETTER_HALF, abs=0.1)
    keeper = Keeper()
    settings = make_settings(algorithm=algorithm)
    with OfflineRun(settings, EPISODES, {"true": TRUE}, workers=0, observer=keeper) as run:
        run.train()
    assert [checkpoint.step for checkpoint in keeper.evaluations] == [300, 600]
    assert keeper.evaluations[-1].returns.shape == (2, 20)
    assert keeper.evaluations[-1].returns.mean(1).max() < 0
    assert keeper.evaluations[-1].returns.mean(1).min() > -7.0


def test_rewards_that_do_not_fit_the_data_are_refused():
    for rewards, words in (
        ({}, "no rewards called 'true'; there are: none"),
        ({"true": TRUE[1:]}, r"true: expected shape \(2000,\), one for every step"),
        ({"true": np.full(len(TRUE), np.nan)}, "true: nan or infinite"),
    ):
        with pytest.raises(DataError, match=words):
            OfflineRun(make_settings(), EPISODES, rewards, workers=0)
    with pytest.raises(DataError, match="Pendulum-v1: expected 2 numbers, as in the data, got 3"):
        OfflineRun(make_settings(environment="Pendulum-v1"), EPISODES, {"true": TRUE}, workers=0)


def test_a_run_that_is_stopped_keeps_its_policies(tmp_path):
    files, keeper = OfflineFolder(tmp_path / "run"), Keeper()
    observers = Observers([files, keeper])
    settings = make_settings(seeds=1, environment=None)
    with OfflineRun(settings, EPISODES, {"true": TRUE}, observer=observers) as run:
        files.data = {}
        files.create(run, command=["x"], workers=0, device="cpu")
        train_while(run, lambda: run.step >= 340)
    assert [checkpoint.step for checkpoint in keeper.evaluations] == [300, 340]
    folder = tmp_path / "run" / "members" / "true-seed0" / "policies"
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000300", "step-000000340"]
    actor, about = load_actor_about(folder / "step-000000340")
    np.testing.assert_array_equal(actor.weights, keeper.evaluations[-1].weights[0])
    assert about["mean_return"] is None
    # Without an environment actions reach as far as those of the data.
    actions = np.concatenate([episode.actions for episode in EPISODES])
    assert actor.spec.low == tuple(actions.min(0).tolist())
    with pytest.raises(DataError, match="exists already"):
        files.check_free()
    with pytest.raises(StorageError, match=r"cannot be written: .* is not a folder"):
        OfflineFolder(folder / "step-000000340" / "config.json" / "run").check_free()


def test_batches_have_a_limit():
    with pytest.raises(DataError, match="batch: expected at most 65,536, got 10,000,000"):
        OfflineSettings(batch=10_000_000)


def test_the_sources_that_a_file_holds(tmp_path):
    write_file(tmp_path / "data.h5")
    data = load_data(tmp_path / "data.h5")
    np.testing.assert_allclose(data.rewards["true"], TRUE)
    observed = np.concatenate([episode.rewards for episode in EPISODES])
    np.testing.assert_allclose(data.rewards["observed"], observed)
    assert data.behaviour_return == pytest.approx(BEHAVIOUR, abs=0.1)
    with pytest.raises(DataError, match="not relabelled: decompose them first; there are: observ"):
        data.find("relabelled")
    write_file(tmp_path / "untrue.h5", truth=False)
    with pytest.raises(DataError, match="no true rewards: collect them with --keep-true-rewards"):
        load_data(tmp_path / "untrue.h5").find("true")


def test_rewards_at_every_step_are_the_truth(tmp_path):
    write_file(tmp_path / "steps.h5", truth=False, delay="step")
    data = load_data(tmp_path / "steps.h5")
    np.testing.assert_allclose(data.find("true"), TRUE, rtol=1e-6)
    np.testing.assert_allclose(
        data.find("observed"), np.concatenate([e.rewards for e in EPISODES]), rtol=1e-5
    )
    assert not data.episodes[0].delivered[:-1].any()
    assert "the true ones here" in data.warnings[0]
    # And so they are after a decomposition.
    decompose_file(tmp_path / "steps.h5", tmp_path / "out", DecomposeSettings(method="uniform"))
    again = load_data(tmp_path / "out/relabelled.h5")
    assert set(again.rewards) == {"relabelled", "observed", "true"}
    for name in ("observed", "true"):
        np.testing.assert_allclose(again.rewards[name], data.rewards[name], rtol=1e-5)
    assert "the true ones here" in again.warnings[0]


@pytest.fixture(scope="module")
def relabelled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_file(folder / "data.h5")
    decompose_file(folder / "data.h5", folder / "data-grd", DecomposeSettings(seed=3))
    return folder / "data-grd" / "relabelled.h5"


@pytest.fixture(scope="module")
def factored(tmp_path_factory):
    return offline_commands.collect_factored(tmp_path_factory.mktemp("factored"))


def test_the_command_leaves_a_run_that_other_commands_use(factored, tmp_path):
    result = run_command(
        tmp_path, "train-offline", factored, *SMALL, *FEW, "--rewards", "observed,true",
        "--algo", "td3bc", "--eval-episodes", 2, "--out", "run",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "wrote run: 40 updates of 2 members" in result.stdout
    assert "update 40  true (1 seed): return" in result.stderr
    settings = json.loads((tmp_path / "run/settings.json").read_text())
    assert settings["settings"]["algorithm"] == "td3bc"
    assert settings["environment"] == "grd/Factored-v0"
    assert settings["command"][:2] == ["grd-offline", "train-offline"]
    assert settings["versions"]["torch"]
    rows = read_rows(tmp_path / "run/evaluations.csv")
    assert list(rows[0]) == list(EVALUATION_COLUMNS)
    assert [(row["step"], row["member"]) for row in rows[-2:]] == [
        ("40", "observed-seed0"), ("40", "true-seed0"),
    ]  # fmt: skip
    assert float(rows[-1]["correlation"]) == pytest.approx(1.0)
    assert abs(float(rows[-2]["correlation"])) < 0.5
    best = max(float(row["mean_return"]) for row in rows if row["group"] == "true")
    _, about = load_actor_about(tmp_path / "run/members/true-seed0/policies/best")
    assert about["mean_return"] == pytest.approx(best)

    assert "look at run/report.html\n" in result.stdout
    assert "Training from data" in (tmp_path / "run/report.html").read_text()

    record = read_run(tmp_path / "run")
    (axes,) = draw_run(record, "return")["return"].axes
    assert axes.get_xlabel() == "updates"
    assert run_command(tmp_path, "plot", "run").stdout == "wrote run/plots/return.png\n"

    collected = run_command(
        tmp_path, "collect", *SMALL, "--policy", "run/members/true-seed0", "--checkpoints", "last",
        "--episodes", 2, "--out", "more.h5",
    )  # fmt: skip
    assert collected.returncode == 0, collected.stderr
    with open_recording(tmp_path / "more.h5") as recording:
        episode = recording.load(1)
    actor, _ = load_actor_about(tmp_path / "run/members/true-seed0/policies/step-000000040")
    np.testing.assert_allclose(
        episode.actions[""], actor.act_many(episode.observations[""][:-1]), atol=1e-5
    )


def test_without_an_environment_nothing_is_evaluated(relabelled, tmp_path):
    result = run_command(
        tmp_path, "train-offline", relabelled, "--seeds", 1, "--updates", 20, "--eval-every", 20,
        "--batch", 8,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "(--env): policies are trained and saved, not evaluated" in result.stderr
    run = tmp_path / "runs" / "data-grd-iql"
    assert result.stdout == f"wrote {run.relative_to(tmp_path)}: 20 updates of 1 member\n"
    assert read_rows(run / "evaluations.csv") == []
    assert (run / "members/relabelled-seed0/policies/step-000000020/model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train-offline", "data.h5"), "data.h5: rewards: the data are not relabelled"),
        (("train-offline", "data.h5", "--env", "Hoper"), "did you mean Hopper-v5"),
        (
            ("train-offline", "data.h5", "--rewards", "true", "--env", "CartPole-v1"),
            "CartPole-v1: expected continuous ones, as in the data, got discrete ones",
        ),
        (("train-offline", "data.h5", "--rewards", "best"), "expected relabelled, observed, true"),
        (("train-offline", "none.h5"), "none.h5"),
        (("judge", "data.h5"), "Missing option '--env'"),
        (("judge", "data.h5", "--env", "Hopper"), "Hopper-v5: expected 5 numbers, as in the data"),
        (("judge", "data.h5", "--env", "Hopper", "--methods", "magic"), "got 'magic'"),
        (("judge", "data.h5", "--env", "Hopper", "--methods", "grd,grd"), "none twice"),
        (("judge", "data.h5", "--env", "Hopper", "--updates", "0"), "updates: expected a whole"),
    ],
)
def test_mistakes_end_in_one_line(factored, arguments, words):
    result = run_command(factored.parent, *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (factored.parent / "runs").exists()


def test_ctrl_c_keeps_what_there_is(factored, tmp_path):
    process = start_command(
        tmp_path, "train-offline", factored, *SMALL, "--rewards", "true", "--seeds", "1",
        "--updates", "1000000", "--batch", "16", "--eval-every", "10", "--workers", "0",
        "--eval-episodes", "1", "--out", "run",
    )  # fmt: skip
    wait_for_rows(process, tmp_path / "run/evaluations.csv")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=480)
    assert process.returncode == 130
    assert "stopped at update" in output
    step = int(output.split("stopped at update ")[1].split(":")[0].replace(",", ""))
    folder = tmp_path / "run/members/true-seed0/policies"
    assert (folder / f"step-{step:09d}").is_dir()
    assert (folder / "best").is_dir()


def test_the_panel_shows_every_source(tmp_path):
    from rich.console import Console

    settings = make_settings(rewards=("true", "other"), seeds=1, updates=40, eval_every=20)
    files = OfflineFolder(tmp_path / "run")
    rewards, observers = {"true": TRUE, "other": -TRUE}, Observers([])
    with OfflineRun(settings, EPISODES, rewards, workers=0, observer=observers) as run:
        files.data = {}
        files.create(run, command=[], workers=0, device="cpu")
        state = RunDisplay(run, files)
        observers.all.append(state)
        run.train()
        console = Console(width=80, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
        with console.file:
            console.print(draw_panel(state, 80, 40))
    text = console.export_text()
    assert "update 40 of 40" in text
    assert "corr." not in text
    for group in state.groups:
        (line,) = [line for line in text.splitlines() if f"│ {group.name} " in line]
        assert f"{group.last.mean:.2f}"[:4] in line
        assert len(group.curve) == 2


def test_time_left_does_not_count_what_comes_before_the_first_updates(monkeypatch, tmp_path):
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(display, "time", clock)
    (tmp_path / "evaluations.csv").write_text("step\n")
    run = SimpleNamespace(
        title="x", unit="update", states=2, total=1000, members=[], step=0, phase="",
        measure=lambda: None, learner=SimpleNamespace(updates=0),
    )  # fmt: skip
    state = RunDisplay(run, OfflineFolder(tmp_path))
    assert describe_speed(state) == "measuring speed"
    for run.step in (20, 40, 60):
        run.learner.updates = run.step
        state.on_progress("", 0.0)
        clock.now += 10.0
    clock.now -= 10.0
    assert describe_speed(state) == "2 updates/s, 7 min 50 s left"


@pytest.mark.parametrize(
    ("environment", "env_args", "words"),
    [
        ("Factored", {"states": 5}, ""),
        (None, {}, ""),
        ("Factored", {}, "the data are of grd/Factored-v0 with --env-arg states=5, evaluations"),
        ("Pendulum-v1", {"g": 2}, "the data are of grd/Factored-v0, evaluations of Pendulum-v1"),
    ],
)
def test_another_environment_is_told(environment, env_args, words):
    data = SimpleNamespace(
        episodes=SimpleNamespace(environment="grd/Factored-v0"), env_args={"states": 5}
    )
    settings = make_settings(environment=environment, env_args=env_args)
    told = describe_other_environment(settings, data)
    assert (words in told) if words else (told is None)


def test_actions_that_no_policy_can_take_are_told(tmp_path):
    episodes, true = offline_data.make_data(12)
    wide = [replace(episode, actions=3 * episode.actions) for episode in episodes]
    write_file(tmp_path / "wide.h5", episodes=EpisodeSet.from_episodes(wide), true=true)
    write_file(tmp_path / "fits.h5", episodes=episodes, true=true)
    shares = []
    for name in ("wide", "fits"):
        done = run_command(
            tmp_path, "train-offline", f"{name}.h5", "--env", point_mass.ID, "--rewards", "true",
            *FEW, "--out", name,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        shares.append([line for line in done.stderr.splitlines() if "actions are outside" in line])
    actions = np.concatenate([episode.actions for episode in wide])
    expected = (np.abs(actions) > 1.002).any(1).mean()
    assert shares[0] == [
        f"warning: {100 * expected:.1f} % of the data's actions are outside of what the "
        "environment takes: policies cannot take them either"
    ]
    assert not shares[1]


def test_train_offline_is_a_function(tmp_path):
    episodes, true = offline_data.make_data(12)
    write_file(tmp_path / "data.h5", episodes=episodes, true=true)
    small = {"updates": 4, "batch": 8, "hidden": (4,), "eval_every": 2, "seeds": 1}
    result = grd_offline.train_offline(
        tmp_path / "data.h5", tmp_path / "run", rewards={"mine": -true, "true": true},
        environment=point_mass.ID, eval_episodes=1, workers=0, device="cpu", **small,
    )  # fmt: skip
    assert (result.step, result.is_complete) == (4, True)
    assert [(row["step"], row["member"]) for row in result.evaluations] == [
        (step, member) for step in (2, 4) for member in ("mine-seed0", "true-seed0")
    ]
    assert [round(row["correlation"]) for row in result.evaluations[:2]] == [-1, 1]
    warned = Warned()
    result = grd_offline.train_offline(
        tmp_path / "data.h5", tmp_path / "blind", rewards=("true",), device="cpu",
        observer=warned, **small,
    )  # fmt: skip
    assert result.evaluations == []
    assert result.policies["true-seed0"].name == "step-000000004"
    assert "not evaluated" in warned.told[0]
