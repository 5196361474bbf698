"""Collecting with trained policies: which are found, which act, and what the data say of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import forked
import gymnasium as gym
import numpy as np
import pytest
import samples

from grd_offline import DataError, open_recording, write_dataset
from grd_offline.io.datasets import Header, Record
from grd_offline.learning.agents.actors import (
    Actor,
    ActorSpec,
    count_weights,
    load_actor,
    load_policies,
    save_actor,
)
from grd_offline.learning.collecting.dataset import run_episodes
from grd_offline.learning.settings import CollectSettings

COMMAND = str(Path(sys.executable).with_name("grd-offline"))
WORLD = {"length": 12, "states": 5, "actions": 2}


def save_policy(folder: Path, seed: int, observations: int = 5, **about: Any) -> None:
    spec = ActorSpec("gaussian", (observations, 8, 4), (-1.0, -1.0), (1.0, 1.0))
    weights = np.random.default_rng(seed).standard_normal(count_weights(spec))
    folder.parent.mkdir(parents=True, exist_ok=True)
    save_actor(folder, Actor(spec, weights), about)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Two members with three checkpoints each."""
    run = tmp_path / "hc"
    for member in range(2):
        policies = run / "members" / f"grd-{member}" / "policies"
        for step in (9000, 10_000, 200_000):
            save_policy(policies / f"step-{step:09d}", seed=step + member)
        save_policy(policies / "best", seed=10_000 + member, step=10_000)
    (run / "config.json").write_text('{"format": "something else"}')
    return run


def collect_with(policy: Path, **settings: Any) -> tuple[Header, list[Record]]:
    values = {"env_args": WORLD, "episodes": 3, "workers": 1, **settings}
    header, records = run_episodes(CollectSettings("Factored", policy=str(policy), **values))
    return header, list(records)


def test_which_policies_are_chosen(run_folder: Path) -> None:
    def names(folder: Path, checkpoints: str) -> list[str]:
        return [policy.name for policy in load_policies(folder, checkpoints)]

    both = ["members/grd-0/policies", "members/grd-1/policies"]
    assert names(run_folder, "best") == [f"{folder}/best" for folder in both]
    assert names(run_folder, "last") == [f"{folder}/step-000200000" for folder in both]
    assert len(names(run_folder, "all")) == 6
    member = run_folder / "members" / "grd-1"
    assert names(member, "all") == [
        *("policies/step-000009000", "policies/step-000010000", "policies/step-000200000")
    ]
    assert [policy.step for policy in load_policies(member, "9001:200000")] == [10_000, 200_000]
    assert [policy.step for policy in load_policies(member, ":10000")] == [9000, 10_000]
    assert [policy.step for policy in load_policies(member, "10001:")] == [200_000]
    (single,) = load_policies(member / "policies" / "best")
    assert (single.name, single.step) == ("best", 10_000)


@pytest.mark.parametrize("noise", ["sampled", "deterministic"])
def test_actions_are_those_of_the_policy(run_folder: Path, noise: str) -> None:
    policy = run_folder / "members" / "grd-0" / "policies" / "best"
    _, records = collect_with(policy, policy_noise=noise)
    actor = load_actor(policy)
    env = gym.make("grd/Factored-v0", disable_env_checker=True, **WORLD)
    for record in records:
        observations, actions = record.observations[""], record.actions[""]
        greedy = np.stack([actor.act(observation) for observation in observations[:-1]])
        assert np.array_equal(actions, greedy) == (noise == "deterministic")
        observation, _ = env.reset(seed=int(record.attributes["seed"]))
        for t, action in enumerate(actions):
            np.testing.assert_array_equal(observations[t], observation)
            observation = env.step(action)[0]
    assert not np.array_equal(records[0].actions[""], records[1].actions[""])


@pytest.mark.long
def test_same_mixture_whatever_the_number_of_workers(run_folder: Path, tmp_path: Path) -> None:
    settings = {"checkpoints": "all", "episodes": 24, "seed": 3}
    header, records = collect_with(run_folder, **settings)
    other_header, others = collect_with(run_folder, workers=2, **settings)
    assert header == other_header
    for record, other in zip(records, others, strict=True):
        samples.assert_same_record(record, other)
    assert {str(record.attributes["policy"]) for record in records} == {
        policy["name"] for policy in header.settings["policies"]
    }
    write_dataset(tmp_path / "a.h5", header, records)
    with open_recording(tmp_path / "a.h5") as recording:
        assert recording.header.settings == header.settings
        assert recording.load(5).attributes["policy"] == records[5].attributes["policy"]


def test_settings_tell_which_policies_but_not_where(run_folder: Path) -> None:
    header, _ = collect_with(run_folder, checkpoints="9000:10000", policy_noise="deterministic")
    settings = header.settings
    assert (settings["policy"], settings["checkpoints"]) == ("hc", "9000:10000")
    assert settings["policy_noise"] == "deterministic"
    assert [(p["name"], p["step"]) for p in settings["policies"]] == [
        (f"members/grd-{member}/policies/step-{step:09d}", step)
        for member in range(2)
        for step in (9000, 10_000)
    ]
    assert len({policy["weights"] for policy in settings["policies"]}) == 4
    assert str(run_folder) not in str(settings)
    header, _ = run_episodes(CollectSettings("Factored", policy="random"))
    assert "policies" not in header.settings


def test_mujoco_with_a_trained_policy(tmp_path: Path) -> None:
    spec = ActorSpec("deterministic", (17, 16, 6), (-1.0,) * 6, (1.0,) * 6, noise=0.1)
    weights = np.random.default_rng(0).standard_normal(count_weights(spec))
    save_actor(tmp_path / "p", Actor(spec, weights))
    settings = CollectSettings("HalfCheetah", policy=str(tmp_path / "p"), episodes=2, workers=1,
                               max_episode_steps=40)  # fmt: skip
    _, records = run_episodes(settings)
    shapes = [record.actions[""].shape for record in records]
    assert shapes == [(40, 6), (40, 6)]


def test_policies_that_do_not_fit(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="best is for 5 observations and 2 actions, grd/Factored-v0 has 6 and 2"
    ):
        collect_with(run_folder, env_args={**WORLD, "states": 6})
    spec = ActorSpec("gaussian", (5, 8, 4), (-2.0, -1.0), (1.0, 1.0))
    save_actor(tmp_path / "p", Actor(spec, np.zeros(count_weights(spec))))
    with pytest.raises(DataError, match="policy: p acts from -2 to 1, grd/Factored-v0 takes Box"):
        collect_with(tmp_path / "p")


@pytest.mark.long
def test_collect_on_the_command_line(run_folder: Path) -> None:
    result = run_command(run_folder, "--policy", "hc", "--checkpoints", "all", "--out", "a.h5")
    assert result.returncode == 0, result.stderr
    with open_recording(run_folder.parent / "a.h5") as recording:
        assert len(recording.header.settings["policies"]) == 6
        assert recording.header.settings["policy_noise"] == "sampled"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "randm"], ("policy: expected random, explore or the folder", "'randm'")),
        (["--policy", "empty"], ("empty: holds no policies", "members/, policies/")),
        (["--policy", "hc", "--checkpoints", "best of all"], ("checkpoints: expected best, last",)),
        (["--policy", "hc", "--checkpoints", "9:3"], ("the first step before the last", "9:3")),
        (
            ["--policy", "hc", "--checkpoints", "1:10"],
            ("hc/members/grd-0/policies: no checkpoints 1:10: there are steps 9000 to 200000",),
        ),
        (
            ["--policy", "unjudged"],
            ("no checkpoints best: there are steps 10 to 10, none", "--checkpoints last"),
        ),
        (["--checkpoints", "last"], ("checkpoints: expected a trained policy", "explore")),
        (["--policy", "hc", "--policy-noise", "loud"], ("--policy-noise", "loud")),
        (
            ["--policy", "hc", "--env-arg", "states=7"],
            ("for 5 observations", "has 7 and 2", "grd/Factored-v0"),
        ),
        (["--policy", "one", "--checkpoints", "last"], ("one: is a single policy",)),
        (["--policy", "broken"], ("broken/config.json: is not JSON",)),
    ],
)
def test_mistakes_are_one_line(
    run_folder: Path, arguments: list[str], words: tuple[str, ...]
) -> None:
    (run_folder.parent / "empty").mkdir()
    save_policy(run_folder.parent / "one", seed=0)
    (run_folder.parent / "unjudged" / "policies").mkdir(parents=True)
    save_policy(run_folder.parent / "unjudged" / "policies" / "step-000000010", seed=0)
    save_policy(run_folder.parent / "broken", seed=0)
    (run_folder.parent / "broken" / "config.json").write_text("{")
    result = run_command(run_folder, *arguments, "--out", "a.h5")
    assert result.returncode == 2, result
    (line,) = result.stderr.splitlines()
    for word in ("grd-offline: error: ", *words):
        assert word in line
    assert not (run_folder.parent / "a.h5").exists()


def run_command(run_folder: Path, *arguments: str) -> forked.Done:
    world = [f"--env-arg={name}={value}" for name, value in WORLD.items()]
    given = ("--env", "Factored", *world, "--episodes", "4", *arguments)
    return forked.run("collect", *given, cwd=run_folder.parent)


def test_some_episodes_act_at_random(run_folder: Path) -> None:
    header, records = collect_with(run_folder, episodes=60, random_share=0.25)
    names = [str(record.attributes["policy"]) for record in records]
    assert header.settings["random_share"] == 0.25
    assert 5 <= names.count("random") <= 25
    assert {name for name in names if name != "random"} == {
        f"members/grd-{member}/policies/best" for member in range(2)
    }
    drawn = np.concatenate([r.actions[""] for r in records if r.attributes["policy"] == "random"])
    assert abs(float(drawn.mean())) < 0.1
    assert float(drawn.var()) == pytest.approx(1 / 3, abs=0.05)
    _, everything = collect_with(run_folder, random_share=1.0)
    assert {record.attributes["policy"] for record in everything} == {"random"}
    with pytest.raises(DataError, match="random_share: expected a trained policy to go with it"):
        CollectSettings("Factored", policy="explore", random_share=0.5)
    with pytest.raises(DataError, match="random_share: expected at least 0 and at most 1, got 2"):
        CollectSettings("Factored", policy=str(run_folder), random_share=2.0)


def test_who_acts_is_drawn_anew_within_an_episode(run_folder: Path) -> None:
    """Four stretches each; what a policy did is told by acting again on what it saw."""
    settings = {"checkpoints": "last", "random_share": 0.5, "policy_noise": "deterministic"}
    length = WORLD["length"]
    stretch = -(-length // 4)
    header, records = collect_with(run_folder, episodes=20, switch_every=stretch, **settings)
    assert header.settings["switch_every"] == stretch
    policies = load_policies(run_folder, "last")
    seen = set()
    for record in records:
        names = set()
        for start in range(0, length, stretch):
            part = slice(start, min(start + stretch, length))
            states, actions = record.observations[""][part], record.actions[""][part]
            fits = [
                policy.name
                for policy in policies
                if all(
                    np.array_equal(policy.actor.act_with_noise(state, None), action)
                    for state, action in zip(states, actions, strict=True)
                )
            ]
            names |= set(fits or ["random"])
        seen |= names
        expected = names.pop() if len(names) == 1 else "several"
        assert record.attributes["policy"] == expected
    assert seen == {"random", *(policy.name for policy in policies)}


def test_switching_needs_policies_and_whole_steps(run_folder: Path) -> None:
    with pytest.raises(DataError, match="switch_every: expected a trained policy to go with it"):
        CollectSettings("Factored", policy="random", switch_every=5)
    with pytest.raises(DataError, match="switch_every: expected a whole number of at least 1"):
        CollectSettings("Factored", policy=str(run_folder), switch_every=0)
    _, once = collect_with(run_folder, random_share=0.25)
    _, rarely = collect_with(run_folder, random_share=0.25, switch_every=10**6)
    for one, other in zip(once, rarely, strict=True):
        np.testing.assert_array_equal(one.actions[""], other.actions[""])
