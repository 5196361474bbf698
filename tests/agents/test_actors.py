"""Policies in numpy: what they do against the formulas, and folders that must not be trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import grd_offline
from grd_offline import DataError
from grd_offline.learning.agents.actors import (
    Actor,
    ActorSpec,
    count_weights,
    load_actor,
    save_actor,
)

LOW, HIGH = (-1.0, 0.1), (2.0, 0.3)


def make_spec(kind: str = "gaussian", **changes: Any) -> ActorSpec:
    outputs = 4 if kind == "gaussian" else 2
    values = {"kind": kind, "sizes": (3, 8, 7, outputs), "low": LOW, "high": HIGH, "noise": 0.2}
    return ActorSpec(**{**values, **changes})


def make_actor(kind: str = "gaussian", scale: float = 1.0) -> Actor:
    spec = make_spec(kind)
    return Actor(spec, scale * np.random.default_rng(1).standard_normal(count_weights(spec)))


def run_network(actor: Actor, observation: np.ndarray) -> torch.Tensor:
    """The layers as torch computes them, from the flat vector's layout."""
    flat, begin = torch.from_numpy(actor.weights).double(), 0
    x = torch.from_numpy(observation).double()
    sizes = actor.spec.sizes
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight = flat[begin : begin + inputs * outputs].reshape(inputs, outputs)
        begin += inputs * outputs
        x = x @ weight + flat[begin : begin + outputs]
        begin += outputs
        if layer < len(sizes) - 2:
            x = torch.relu(x)
    assert begin == len(flat) == count_weights(actor.spec)
    return x


def scale_up(action: torch.Tensor) -> np.ndarray:
    low, high = np.array(LOW), np.array(HIGH)
    return (low + high) / 2 + (high - low) / 2 * action.numpy()


@pytest.mark.parametrize("noisy", [False, True])
def test_gaussian_is_the_formula(noisy: bool) -> None:
    actor = make_actor()
    observation = np.array([0.3, -1.2, 0.5], np.float32)
    rng, same = (np.random.default_rng(5) for _ in range(2))
    mean, log_std = run_network(actor, observation).chunk(2)
    if noisy:
        normal = torch.from_numpy(same.standard_normal(2, np.float32))
        mean = mean + log_std.clamp(-20, 2).exp() * normal
    action = actor.act(observation, rng if noisy else None)
    assert action.dtype == np.float32
    np.testing.assert_allclose(action, scale_up(mean.tanh()), rtol=2e-5)


@pytest.mark.parametrize("noisy", [False, True])
def test_deterministic_is_the_formula(noisy: bool) -> None:
    actor = make_actor("deterministic", scale=0.3)
    observation = np.array([0.3, -1.2, 0.5], np.float32)
    rng, same = (np.random.default_rng(5) for _ in range(2))
    expected = run_network(actor, observation).tanh()
    if noisy:
        expected = expected + 0.2 * torch.from_numpy(same.standard_normal(2, np.float32))
    action = actor.act(observation, rng if noisy else None)
    np.testing.assert_allclose(action, scale_up(expected.clamp(-1, 1)), rtol=2e-5)


def test_spread_is_clamped() -> None:
    spec = make_spec(sizes=(3, 4))
    weights = np.zeros(count_weights(spec))
    weights[-2:] = (50.0, -50.0)
    actor = Actor(spec, weights)
    rng, same = (np.random.default_rng(0) for _ in range(2))
    normal = torch.from_numpy(same.standard_normal(2, np.float32)).double()
    expected = normal * torch.tensor([2.0, -20.0]).double().exp()
    np.testing.assert_allclose(actor.act(np.zeros(3), rng), scale_up(expected.tanh()), rtol=1e-5)


@pytest.mark.parametrize("kind", ["gaussian", "deterministic"])
def test_many_is_one_by_one_and_inside_the_bounds(kind: str) -> None:
    actor = make_actor(kind, scale=3.0)
    observations = np.random.default_rng(2).standard_normal((200, 3)).astype(np.float32)
    rng, same = (np.random.default_rng(3) for _ in range(2))
    many = actor.act_many(observations, rng)
    one_by_one = np.stack([actor.act(observation, same) for observation in observations])
    np.testing.assert_allclose(many, one_by_one, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        actor.act_many(observations)[0], actor.act(observations[0]), rtol=1e-4
    )
    for actions in (many, one_by_one):
        assert (actions.astype(np.float64) >= LOW).all()
        assert (actions.astype(np.float64) <= HIGH).all()
    assert np.ptp(many, axis=0).min() > 0


def test_an_action_belongs_to_the_caller() -> None:
    actor = make_actor()
    first = actor.act(np.zeros(3))
    kept = first.copy()
    actor.act(np.ones(3))
    np.testing.assert_array_equal(first, kept)


def test_weights_are_checked() -> None:
    actor = make_actor()
    with pytest.raises(DataError, match=r"weights: expected shape \(127,\), got \(122,\)"):
        actor.load(np.zeros(122))
    with pytest.raises(DataError, match="weights: nan"):
        Actor(actor.spec, np.full(127, np.nan))
    with pytest.raises(DataError, match=r"expected shape \(N, 3\), got \(3,\)"):
        actor.act_many(np.zeros(3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "clever"},
        {"sizes": (3,)},
        {"sizes": (3, 10**9, 4)},
        {"sizes": (3, 0, 4)},
        {"sizes": (3, 2.5, 4)},
        {"sizes": (3, True, 4)},
        {"sizes": (3, 5)},
        {"sizes": (2**16, 2**16, 4)},
        {"sizes": "34"},
        {"sizes": None},
        {"low": (0.0,)},
        {"low": (0.0, np.nan)},
        {"high": (0.0, 10**400)},
        {"high": (-1.0, 0.3)},
        {"noise": -1.0},
        {"noise": None},
    ],
)
def test_specs_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"{next(iter(wrong))}: expected"):
        make_spec(**wrong)


@pytest.mark.parametrize("kind", ["gaussian", "deterministic"])
def test_saved_and_loaded_is_the_same(tmp_path: Path, kind: str) -> None:
    actor = make_actor(kind)
    for step in (10, 20):  # an earlier one is replaced
        save_actor(tmp_path / "p", actor, {"environment": "Hopper-v5", "step": step})
    loaded = grd_offline.load_actor(tmp_path / "p")
    assert loaded.spec == actor.spec
    np.testing.assert_array_equal(loaded.weights, actor.weights)
    assert {path.name for path in tmp_path.rglob("*")} == {
        *("p", "config.json", "model.safetensors", "README.md")
    }
    assert "| step | 20 |" in (tmp_path / "p" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["gaussian", "deterministic"])
def test_the_code_on_the_card_runs(tmp_path: Path, kind: str) -> None:
    actor = make_actor(kind)
    save_actor(tmp_path / "p", actor)
    code = (tmp_path / "p" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    given = {"observation": np.zeros(actor.spec.observation_size, np.float32)}
    exec(code.replace("this folder", str(tmp_path / "p")), given)
    assert given["action"].shape == (actor.spec.action_size,)  # type: ignore[attr-defined]


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "config.json: is not a grd-offline policy"),
        ({"version": 2}, "config.json: version: expected 1, got 2"),
        (
            {"sizes": [3, 10**9, 4]},
            "config.json: sizes: expected at most 65,536, got 1,000,000,000",
        ),
        ({"sizes": [3, 8, 4]}, "model.safetensors: bias_2: tensor not expected"),
        ({"sizes": [3, 8, 6, 4]}, r"weight_1: expected F32 of shape \(8, 6\), got F32 of .*8, 7"),
        ({"noise": float("nan")}, "config.json: noise: expected"),
        ({"high": [1, 2, 3]}, "config.json: high: expected 2 numbers"),
        ({"about": 3}, "config.json: about: expected an object"),
    ],
)
def test_first_mismatch_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    save_actor(tmp_path / "p", make_actor())
    change_config(tmp_path / "p", **changes)
    with pytest.raises(DataError, match=message):
        load_actor(tmp_path / "p")


def test_broken_weights_are_refused(tmp_path: Path) -> None:
    save_actor(tmp_path / "p", make_actor())
    path = tmp_path / "p" / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "bias_1": np.full(7, np.inf, np.float32)}, path)
    with pytest.raises(DataError, match="bias_1: nan or infinite"):
        load_actor(tmp_path / "p")
    save_file({**tensors, "bias_1": np.zeros(7)}, path)
    with pytest.raises(DataError, match="bias_1: expected F32"):
        load_actor(tmp_path / "p")
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match="is not a safetensors file"):
        load_actor(tmp_path / "p")
    path.unlink()
    with pytest.raises(DataError, match=r"model.safetensors: cannot be read"):
        load_actor(tmp_path / "p")
    (tmp_path / "p" / "config.json").write_text("[" * 10**5)
    with pytest.raises(DataError, match=r"config.json: is not JSON"):
        load_actor(tmp_path / "p")
    with pytest.raises(DataError, match=r"nowhere/config.json: is not there: expected"):
        load_actor(tmp_path / "nowhere")


def test_a_folder_with_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "thesis.txt").write_text("years of work")
    with pytest.raises(OSError, match="holds something else"):
        save_actor(tmp_path / "p", make_actor())
    assert (tmp_path / "p" / "thesis.txt").read_text() == "years of work"


def test_neither_torch_nor_gymnasium_is_imported() -> None:
    code = (
        "import sys; from grd_offline.learning.agents.actors import *\n"
        "spec = ActorSpec('gaussian', (2, 4, 2), (-1.0,), (1.0,))\n"
        "Actor(spec, [0.0] * count_weights(spec)).act([0.0, 0.0])\n"
        "assert not {'torch', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
