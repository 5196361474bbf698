"""The reward as a sum of effects: predictions, gradients, curves, storage."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from grd_offline.core.steps import StepBatch
from grd_offline.rewards.effects import EffectModel


def make_model(
    rng: np.random.Generator, next_state: bool = False, columns: tuple[int, ...] | None = None
) -> EffectModel:
    effects = ((0,), (1,), (0, 1), (1, 2), (0, 1, 2))
    sizes = (5, 4, 4, 5, 3)
    weights = sum(size ** len(effect) for size, effect in zip(sizes, effects, strict=True))
    grid = np.linspace(-1, 1, 65)
    tables = np.stack([np.stack([np.cos(k * grid + i) for k in range(1, 6)], 1) for i in range(3)])
    return EffectModel(
        observation_names=("s0", "s1", "s2"),
        action_names=("a0",),
        columns=np.array(columns or [0, 3, 7 if next_state else 2]),
        low=np.array([-1.0, -2.0, 100.0]),
        high=np.array([1.0, 2.0, 104.0]),
        tables=tables,
        effects=effects,
        sizes=sizes,
        constant=0.7,
        weights=rng.normal(size=weights),
        centres=rng.normal(size=weights) * 0.1,
        factor=rng.normal(size=(weights, 6)) * 0.1,
        residual_variance=0.01,
        constant_variance=0.02,
        noise_variance=0.5,
        inflation=1.2,
        shares=np.array([0.3, 0.2, 0.2, 0.2, 0.1]),
    )


def make_steps(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shift, scale = np.array([0, 0, 102.0]), np.array([1.5, 1.0, 2.5])
    observations = rng.uniform(-1, 1, (count, 3)) * scale + shift
    following = rng.uniform(-1, 1, (count, 3)) * scale + shift
    return observations, rng.uniform(-2.5, 2.5, (count, 1)), following


def features_by_hand(model: EffectModel, inputs: np.ndarray) -> np.ndarray:
    """Interpolation and products written out with loops."""
    grid = model.tables.shape[1]
    columns = []
    for effect, size in zip(model.effects, model.sizes, strict=True):
        product = np.ones((len(inputs), 1))
        for i in effect:
            points = np.linspace(model.low[i], model.high[i], grid)
            values = [np.interp(inputs[:, i], points, model.tables[i, :, k]) for k in range(size)]
            product = np.einsum("na,bn->nab", product, np.array(values)).reshape(len(inputs), -1)
        columns.append(product)
    return np.concatenate(columns, 1)


def test_predict_equals_the_explicit_expansion() -> None:
    rng = np.random.default_rng(0)
    model = make_model(rng)
    observations, actions, _ = make_steps(rng, 5000)
    inputs = np.stack([observations[:, 0], actions[:, 0], observations[:, 2]], 1)
    features = features_by_hand(model, inputs) - model.centres
    np.testing.assert_allclose(
        model.predict(StepBatch(observations, actions)), 0.7 + features @ model.weights, atol=1e-9
    )
    variance = ((features @ model.factor) ** 2).sum(1) + 0.03
    np.testing.assert_allclose(
        model.predict_std(StepBatch(observations, actions), noise=False),
        1.2 * np.sqrt(variance),
        rtol=5e-6,
    )
    np.testing.assert_allclose(
        model.predict_std(StepBatch(observations, actions)),
        1.2 * np.sqrt(variance + 0.5),
        rtol=5e-6,
    )


def test_both_at_once_equal_one_after_the_other() -> None:
    rng = np.random.default_rng(0)
    model = make_model(rng)
    observations, actions, _ = make_steps(rng, 9000)
    rewards, std = model.predict_both(StepBatch(observations, actions))
    np.testing.assert_array_equal(rewards, model.predict(StepBatch(observations, actions)))
    np.testing.assert_array_equal(std, model.predict_std(StepBatch(observations, actions)))


def test_std_holds_where_the_factor_has_more_columns_than_weights() -> None:
    rng = np.random.default_rng(5)
    model = make_model(rng)
    count = len(model.weights)
    wide = replace(model, factor=rng.normal(size=(count, count + 40)) * 0.1)
    observations, actions, _ = make_steps(rng, 300)
    inputs = np.stack([observations[:, 0], actions[:, 0], observations[:, 2]], 1)
    features = features_by_hand(wide, inputs) - wide.centres
    variance = ((features @ wide.factor) ** 2).sum(1) + 0.03
    found = wide.predict_std(StepBatch(observations, actions), noise=False)
    np.testing.assert_allclose(found, 1.2 * np.sqrt(variance), rtol=5e-6)


def test_next_observations_are_used_and_asked_for() -> None:
    rng = np.random.default_rng(1)
    model = make_model(rng, next_state=True)
    observations, actions, following = make_steps(rng, 20)
    changed = model.predict(StepBatch(observations, actions, following[::-1]))
    assert not np.allclose(model.predict(StepBatch(observations, actions, following)), changed)
    assert [one.name for one in model.inputs] == ["s0", "a0", "s2'"]
    with pytest.raises(ValueError, match="next_observations"):
        model.predict(StepBatch(observations, actions))
    with pytest.raises(ValueError, match=r"actions: expected shape \(20, 1\)"):
        model.predict(StepBatch(observations, actions[:5], following))


def test_midpoints_and_terminations_are_columns_of_their_own() -> None:
    """Against a model of the first two observations and the action, which is given their values."""
    rng = np.random.default_rng(1)
    observations, actions, following = make_steps(rng, 60)
    terminations = rng.random(60) < 0.3
    # 3 observations, 1 action: terminated is 4, next observations begin at 5, midpoints at 8.
    model = make_model(np.random.default_rng(2), columns=(8, 4, 10))
    assert (model.needs_next, model.at_midpoint, model.needs_termination) == (True, True, True)
    plain = make_model(np.random.default_rng(2), columns=(0, 3, 2))
    assert (plain.needs_next, plain.at_midpoint, plain.needs_termination) == (False,) * 3
    given = (observations + following) / 2, terminations[:, None].astype(np.float64)
    steps = (observations, actions, following, terminations)
    np.testing.assert_allclose(
        model.predict(StepBatch(*steps)), plain.predict(StepBatch(*given)), rtol=1e-12
    )
    np.testing.assert_allclose(
        model.predict_std(StepBatch(*steps)), plain.predict_std(StepBatch(*given)), rtol=1e-6
    )
    for found, expected in zip(
        model.predict_both(StepBatch(*steps)), plain.predict_both(StepBatch(*given)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    where = {"weights": rng.random(60), "starts": np.array([0, 10, 40])}
    for found, expected in zip(
        model.predict_sums(StepBatch(*steps), **where),
        plain.predict_sums(StepBatch(*given), **where),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    tensors = [torch.tensor(part) for part in steps]
    module = model.torch(torch.float64)
    np.testing.assert_allclose(
        module(StepBatch(*tensors)), plain.predict(StepBatch(*given)), rtol=1e-10
    )
    curves = zip(model.explain().effects, plain.explain().effects, strict=True)
    assert all(np.array_equal(one.mean, other.mean) for one, other in curves)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ((8, 4, 10), ("s0", "terminated", "s2")),
        ((0, 8, 9), ("s0", "s0 (midpoint)", "s1")),
        ((3, 7, 10), ("a0", "s2'", "s2 (midpoint)")),
        ((4, 5, 8), ("terminated", "s0'", "s0 (midpoint)")),
    ],
)
def test_names_of_inputs(columns: tuple[int, ...], names: tuple[str, ...]) -> None:
    model = make_model(np.random.default_rng(0), columns=columns)
    assert tuple(one.name for one in model.inputs) == names


def test_only_what_a_column_needs_is_asked_for() -> None:
    rng = np.random.default_rng(1)
    observations, actions, following = make_steps(rng, 9)
    terminations = np.zeros(9, np.bool_)
    ends = make_model(rng, columns=(0, 3, 4))
    assert (ends.needs_next, ends.needs_termination) == (False, True)
    assert ends.predict(StepBatch(observations, actions, None, terminations)).shape == (9,)
    with pytest.raises(ValueError, match="terminations: missing, but this reward depends"):
        ends.predict(StepBatch(observations, actions, following))
    with pytest.raises(ValueError, match=r"terminations: expected shape \(9,\), got \(9, 1\)"):
        ends.predict(StepBatch(observations, actions, None, terminations[:, None]))
    middle = make_model(rng, columns=(8, 3, 10))
    assert (middle.needs_next, middle.needs_termination) == (True, False)
    assert middle.predict(StepBatch(observations, actions, following)).shape == (9,)
    with pytest.raises(ValueError, match="next_observations: missing, but this reward depends"):
        middle.predict(StepBatch(observations, actions, None, terminations))


@pytest.mark.parametrize("columns", [(8, 4, 10), (0, 8, 9), (3, 7, 10), (0, 5, 8), (2, 3, 6)])
def test_steps_are_drawn_within_the_tables(columns: tuple[int, ...]) -> None:
    model = make_model(np.random.default_rng(0), columns=columns)
    rows = model.draw_inputs(np.random.default_rng(1), 300)
    assert rows.shape == (300, 8)
    inputs = model.select_inputs(StepBatch(rows[:, :3], rows[:, 3:4], rows[:, 4:7], rows[:, 7]))
    known = np.array(columns) != 4
    if columns == (0, 5, 8):  # both ends are inputs, and the midpoint is what they make it
        known[2] = False
    assert (inputs[:, known] >= model.low[known] - 1e-12).all()
    assert (inputs[:, known] <= model.high[known] + 1e-12).all()
    assert set(rows[:, 7]) == ({0.0, 1.0} if 4 in columns else {0.0})


def test_steps_that_terminate_are_less_certain() -> None:
    rng = np.random.default_rng(4)
    model = make_model(rng, columns=(0, 3, 4))
    steps = make_steps(rng, 40)
    terminations = np.arange(40) % 3 == 0
    before = model.predict_std(StepBatch(*steps, terminations))
    wider = replace(model, ended_variance=0.25)
    expected = np.sqrt(before**2 + 1.2**2 * 0.25 * terminations)
    np.testing.assert_allclose(wider.predict_std(StepBatch(*steps, terminations)), expected)
    np.testing.assert_allclose(wider.predict_both(StepBatch(*steps, terminations))[1], expected)


SINCE_2 = ("hidden_variance",)
SINCE_3 = ("lasting_share", "shared_variance", "whole_variance")
SINCE_5 = ("ended_variance", "base")


@pytest.mark.parametrize("next_state", [False, True])
def test_files_of_the_first_version_are_read(next_state: bool) -> None:
    """They had no terminations and no midpoints: next observations came after actions."""
    rng = np.random.default_rng(3)
    model = make_model(rng, next_state)
    config, tensors = model.config(), model.tensors()
    config["format_version"] = 1
    for name in (*SINCE_2, *SINCE_3, *SINCE_5, "outcome"):
        del config[name]
    tensors["columns"] = np.array([0, 3, 6 if next_state else 2])
    again = EffectModel.from_parts(json.loads(json.dumps(config)), tensors)
    steps = make_steps(rng, 10)
    np.testing.assert_array_equal(
        again.predict(StepBatch(*steps)), model.predict(StepBatch(*steps))
    )
    assert again.config()["format_version"] == 6


def test_files_of_the_second_version_are_read() -> None:
    """All noise was noise of single steps."""
    rng = np.random.default_rng(3)
    model = make_model(rng, next_state=True)
    config = {**model.config(), "format_version": 2}
    for name in (*SINCE_3, *SINCE_5, "outcome"):
        del config[name]
    again = EffectModel.from_parts(json.loads(json.dumps(config)), model.tensors())
    steps = make_steps(rng, 10)
    np.testing.assert_array_equal(
        again.predict_std(StepBatch(*steps)), model.predict_std(StepBatch(*steps))
    )


@pytest.mark.parametrize("next_state", [False, True])
def test_torch_equals_numpy_and_has_gradients(next_state: bool) -> None:
    rng = np.random.default_rng(2)
    model = make_model(rng, next_state)
    steps = make_steps(rng, 400)
    arrays = steps if next_state else steps[:2]
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        module = model.torch(dtype)
        kind = np.float64 if dtype is torch.float64 else np.float32
        expected = model.predict(StepBatch(*[array.astype(kind) for array in arrays]))
        tensors = [torch.tensor(array, dtype=dtype).reshape(20, 20, -1) for array in arrays]
        found = module(StepBatch(*tensors))
        assert found.shape == (20, 20)
        np.testing.assert_allclose(found.numpy().ravel(), expected, atol=tolerance, rtol=tolerance)
    expected = model.predict(StepBatch(*arrays))
    action = torch.tensor(steps[1], requires_grad=True)
    states = [torch.tensor(array) for array in (steps[0], *arrays[2:])]
    model.torch(torch.float64)(StepBatch(states[0], action, *states[1:])).sum().backward()
    inside = np.abs(steps[1][:, 0]) < 2
    assert action.grad is not None
    step = 1e-6
    moved = model.predict(StepBatch(steps[0], steps[1] + step, *arrays[2:]))
    slope = (moved - expected) / step
    close = np.isclose(action.grad.numpy()[:, 0], slope, atol=1e-3)
    assert close[inside].mean() > 0.99
    assert np.all(action.grad.numpy()[~inside] == 0)


def test_parts_round_trip() -> None:
    rng = np.random.default_rng(3)
    model = make_model(rng)
    again = EffectModel.from_parts(json.loads(json.dumps(model.config())), model.tensors())
    observations, actions, _ = make_steps(rng, 10)
    np.testing.assert_array_equal(
        model.predict(StepBatch(observations, actions)),
        again.predict(StepBatch(observations, actions)),
    )
    np.testing.assert_array_equal(
        model.predict_std(StepBatch(observations, actions)),
        again.predict_std(StepBatch(observations, actions)),
    )


def test_tampered_parts_are_refused() -> None:
    model = make_model(np.random.default_rng(4))
    config, tensors = model.config(), model.tensors()
    wrong_tensors = {
        "weights": tensors["weights"][:-1],
        "low": tensors["low"].astype(np.float32),
        "tables": np.where(tensors["tables"] > 0.9, np.nan, tensors["tables"]),
        "columns": tensors["columns"] + 10,
        "high": tensors["low"],
    }
    for name, value in wrong_tensors.items():
        with pytest.raises(ValueError, match=name):
            EffectModel.from_parts(config, tensors | {name: value})
    with pytest.raises(ValueError, match="extra: not known"):
        EffectModel.from_parts(config, tensors | {"extra": np.zeros(1)})
    with pytest.raises(ValueError, match="shares: missing"):
        EffectModel.from_parts(config, {k: v for k, v in tensors.items() if k != "shares"})
    wrong_config = {
        "format_version": 9,
        "effects": [[0], [1], [1, 0], [1, 2], [0, 1, 2]],
        "sizes": [9] * 5,
        "noise_variance": -1.0,
        "constant": float("nan"),
        "inflation": "2",
        "action_names": "a0",
    }
    for name, entry in wrong_config.items():
        with pytest.raises(ValueError, match=name):
            EffectModel.from_parts(config | {name: entry}, tensors)


def test_curves_add_up_to_the_prediction() -> None:
    model = make_model(np.random.default_rng(5))
    curves = model.explain().effects
    assert [curve.inputs for curve in curves][:3] == [("s0",), ("a0",), ("s0", "a0")]
    corner = sum(curve.mean.ravel()[0] for curve in curves)
    reward = model.predict(StepBatch(np.array([[-1.0, 0.0, 100.0]]), np.array([[-2.0]])))
    assert corner + model.constant == pytest.approx(reward[0])
    assert all((curve.std >= 0).all() and curve.std.shape == curve.mean.shape for curve in curves)
