"""Folders as `decompose` leaves them, written here: nothing is fitted."""

import json

import numpy as np

from grd_offline import RewardModel
from grd_offline.core.episodes import read_names
from grd_offline.core.inputs import InputRef, list_dimensions
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset
from grd_offline.rewards.effects import EffectModel

STATES, ACTIONS = ("height", "speed", "tilt"), ("push",)
MEAN = 0.25
"""The reward where the effects of `write_model` are 0."""


def make_effect(inputs, share, low=-2.0, high=2.0):
    """Of one to three inputs, zero in the middle of its range."""
    size = {1: 65, 2: 9, 3: 5}[len(inputs)]
    grid = np.linspace(low, high, size)
    mean = sum(np.meshgrid(*[grid] * len(inputs), indexing="ij")) * share
    return {
        "inputs": list(inputs),
        "grids": [grid.tolist()] * len(inputs),
        "mean": mean.tolist(),
        "std": np.full(mean.shape, 0.1).tolist(),
        "share": share,
    }


def refer(names, states=STATES, actions=ACTIONS):
    """The inputs that these names stand for, of any moment of the step."""
    states, actions = read_names(states), read_names(actions)
    known = [InputRef("terminated", 0, "terminated"), *list_dimensions(states, actions)]
    for moment, mark in (("midpoint", " (midpoint)"), ("end", "'")):
        known += [InputRef.make("state", i, states, moment, mark) for i in range(len(states))]
    by_name = {one.name: one for one in known}
    return tuple(by_name[name] for name in names)


def write_decomposition(
    folder, *, states=STATES, actions=ACTIONS, effects=None, episodes=6, steps=50, seed=0, **more
):
    """The reward is the second state; one episode is a step longer than the one before."""
    folder.mkdir(parents=True)
    (folder / "reward_model").mkdir()
    rng = np.random.default_rng(seed)
    if effects is None:
        effects = [make_effect([states[1]], 0.9), make_effect([actions[0]], 0.1)]
    for effect in effects:
        inputs = refer(effect["inputs"], states, actions)
        effect["references"] = [one.to_json() for one in inputs]
    lengths = np.arange(steps, steps + episodes)
    records = [_make_record(rng, len(states), len(actions), length) for length in lengths]
    header = Header(
        observation_leaves=(Leaf("", (len(states),), "float32"),),
        action_leaves=(Leaf("", (len(actions),), "float32"),),
        observation_names=tuple(states),
        action_names=tuple(actions),
        delay="step",
    )
    write_dataset(folder / "relabelled.h5", header, records, lengths=lengths)
    metrics = {**_make_metrics(states, actions, lengths), **more}
    to_state = np.eye(len(states), dtype=int)
    to_state[2, 1] = 1
    masks = {
        "state_to_reward": [int(i == 1) for i in range(len(states))],
        "action_to_reward": [1] * len(actions),
        "state_to_state": to_state.tolist(),
        "action_to_state": np.ones((len(actions), len(states)), int).tolist(),
        "state_names": list(states),
        "action_names": list(actions),
        "references": [one.to_json() for one in refer([*states, *actions], states, actions)],
        "compact": {"one_hop": [0, 1, 1], "closure": [0, 1, 1] + [0] * (len(states) - 3)},
    }
    masks["score"] = {name: masks[name] for name in list(masks)[:4]}
    for name, contents in (
        ("metrics", metrics),
        ("masks", masks),
        ("effects", {"effects": effects, "constant": 0.0}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(contents))
    return folder


def write_model(folder, states=STATES, actions=ACTIONS):
    """Add the model of the rewards: the second state, and nothing of the first action."""
    function = EffectModel(
        observation_names=states,
        action_names=actions,
        columns=np.array([1, len(states)]),
        low=np.full(2, -1000.0),
        high=np.full(2, 1000.0),
        tables=np.array([[[-1000.0], [1000.0]]] * 2),
        effects=((0,), (1,)),
        sizes=(1, 1),
        constant=MEAN,
        weights=np.array([1.0, 0.0]),
        centres=np.array([MEAN, 0.0]),
        factor=np.zeros((2, 0)),
        residual_variance=0.0,
        constant_variance=0.0,
        noise_variance=0.01,
        inflation=1.0,
        shares=np.array([0.9, 0.1]),
    )
    one = np.eye(len(states), dtype=np.int64)[1]
    model = RewardModel(function, states, actions, one, np.ones(len(actions), np.int64), one)
    (folder / "reward_model").rmdir()
    model.save(folder / "reward_model")
    effects = json.loads((folder / "effects.json").read_text())
    (folder / "effects.json").write_text(json.dumps({**effects, "constant": MEAN}))
    return folder


def _make_metrics(states, actions, lengths):
    return {
        "method": "grd",
        "fit": "closed-form",
        "reason": "closed-form was asked for",
        "alternatives": [],
        "held_out_return_r2": 0.9876,
        "held_out_return_coverage_90": 0.9,
        "held_out_returns": 2,
        "verdict": {"level": "careful", "text": "Use these rewards with care: not all is known."},
        "bands": "These bands rest on assumptions.",
        "identifiability": {
            "findings": [
                {"level": "careful", "text": "Not all is known.", "short": "not all is known"},
                {"level": "note", "text": "Something is known.", "short": ""},
            ],
            "pinned_down": {states[1]: 0.9, actions[0]: 0.3},
            "reward_spread": 2.0,
            "hidden": {"moment": 0.1, "potentials": 0.5, "effects left out": 0.0},
        },
        "episodes": len(lengths),
        "steps": int(lengths.sum()),
        "environment": "Some-v0",
        "data": "data.h5",
        "warnings": [],
        "settings": {"gamma": 1.0, "truth": "true_rewards", "step_rewards": False},
        "delay": "end",
        "command": "grd-offline decompose data.h5",
        "versions": {"python": "3.11"},
        "held_out": {"observed": [1.0, 2.0], "predicted": [1.1, 1.9], "std": [0.1, 0.1]},
        "calibration": {"levels": [0.5, 0.9], "held_out_returns": [0.5, 1.0]},
        "seconds": 1.5,
    }


def _make_record(rng, states, actions, length):
    observations = rng.normal(size=(length + 1, states)).cumsum(0).astype(np.float32)
    last = np.arange(length) == length - 1
    rewards = observations[:-1, 1].astype(np.float64)
    true = rewards + rng.normal(size=length) * 0.1
    return Record(
        observations={"": observations},
        actions={"": rng.normal(size=(length, actions)).astype(np.float32)},
        rewards=rewards,
        terminations=np.zeros(length, np.bool_),
        truncations=last,
        extras={
            "reward_std": np.full(length, 0.1, np.float32),
            "observed_rewards": last * true.sum(),
            "true_rewards": true,
        },
    )
