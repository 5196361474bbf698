"""The dynamics model: what it predicts, that it stays within its masks, and what it refuses."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from grd_offline import StorageError
from grd_offline.additive.dynamics import (
    DynamicsModel,
    DynamicsModelSettings,
    compare_masks,
    draw_transitions,
    fit_dynamics_model,
)
from grd_offline.core.episodes import Episode, EpisodeSet

STATES = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
ACTIONS = np.array([[1, 0, 0], [0, 1, 0]])


def step(s, a, rng):
    """s0 from s0, s1, a0, with a product; s1 with noise of two peaks; s2 on its own."""
    noise = 0.1 * rng.standard_normal(s.shape)
    noise[:, 1] += rng.choice([-0.4, 0.4], len(s))
    mean = [0.5 * s[:, 0] + s[:, 1] * a[:, 0], 0.8 * np.sin(s[:, 1]) + a[:, 1], 0.9 * s[:, 2]]
    return np.stack(mean, axis=1) + noise


@pytest.fixture(scope="module")
def episodes():
    rng = np.random.default_rng(0)
    observations = np.empty((60, 51, 3))
    observations[:, 0] = rng.standard_normal((60, 3))
    actions = rng.uniform(-1, 1, (60, 50, 2))
    for t in range(50):
        observations[:, t + 1] = step(observations[:, t], actions[:, t], rng)
    ends = np.arange(50) == 49
    return EpisodeSet.from_episodes(
        [
            Episode(o, a, np.zeros(50), ends & False, ends, ends)
            for o, a in zip(observations, actions, strict=True)
        ],
        observation_names=("x", "y|`", "z"),
    )


@pytest.fixture(scope="module")
def model(episodes):
    return fit_dynamics_model(episodes, STATES, ACTIONS, rng=np.random.default_rng(0))


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def fresh(count=500, seed=1):
    rng = np.random.default_rng(seed)
    return 0.5 * rng.standard_normal((count, 3)), rng.uniform(-1, 1, (count, 2))


def test_predictions_are_the_mean(model):
    observations, actions = fresh()
    s, a = observations, actions
    truth = [0.5 * s[:, 0] + s[:, 1] * a[:, 0], 0.8 * np.sin(s[:, 1]) + a[:, 1], 0.9 * s[:, 2]]
    error = model.predict(observations, actions) - np.stack(truth, axis=1)
    assert np.sqrt((error**2).mean(axis=0)) == pytest.approx([0, 0, 0], abs=0.08)


def test_only_parents_matter(model):
    observations, actions = fresh()
    before = model.predict(observations, actions)
    for column in range(3):
        moved = observations.copy()
        moved[:, column] += 0.7
        changed = (model.predict(moved, actions) != before).any(axis=0)
        assert (changed == (STATES[column] == 1)).all()
    for column in range(2):
        moved = actions.copy()
        moved[:, column] += 0.7
        changed = (model.predict(observations, moved) != before).any(axis=0)
        assert (changed == (ACTIONS[column] == 1)).all()


def test_samples_have_the_residuals_shape(model):
    observations, actions = np.zeros((20_000, 3)), np.zeros((20_000, 2))
    draws = model.sample(observations, actions, np.random.default_rng(0))
    mean = model.predict(observations[:1], actions[:1])[0]
    assert draws.mean(axis=0) == pytest.approx(mean, abs=0.02)
    assert draws.std(axis=0) == pytest.approx([0.1, np.hypot(0.1, 0.4), 0.1], rel=0.12)
    # Two peaks: hardly anything falls between them.
    assert (np.abs(draws[:, 1] - mean[1]) < 0.15).mean() < 0.05
    assert (model.mixture_weights[1] > 0.2).sum() >= 2


def test_log_likelihood_is_a_density_in_the_data_units(model):
    """It integrates to one over a dimension, and matches the formula where there is one peak."""
    observation, action = np.zeros((1, 3)), np.zeros((1, 2))
    mean = model.predict(observation, action)[0]
    grid = np.linspace(-3, 3, 4001)
    points = np.tile(mean, (len(grid), 1))
    points[:, 1] = grid
    values = model.log_likelihood(
        np.repeat(observation, len(grid), 0), np.repeat(action, len(grid), 0), points
    )
    others = 0.0
    for state in (0, 2):
        assert model.mixture_weights[state].tolist() == [1, 0, 0]
        std = model.mixture_stds[state, 0] * model.target_scale[state]
        others -= np.log(std * np.sqrt(2 * np.pi))
    assert np.exp(values - others).sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-3)


def test_far_outside_the_data_it_stays_finite(model):
    for size in (1e3, 1e30, 3e38):
        observations, actions = np.full((2, 3), size), np.full((2, 2), -size)
        assert np.isfinite(model.predict(observations, actions)).all()
        assert np.isfinite(model.sample(observations, actions, np.random.default_rng(0))).all()


def test_masks_are_worth_something_and_wrong_ones_cost(episodes):
    right = compare_masks(episodes, STATES, ACTIONS)
    assert right["masked"] > right["unmasked"] - 0.02
    wrong = compare_masks(episodes, np.eye(3), ACTIONS)
    assert wrong["masked"] < wrong["unmasked"] - 0.1
    assert right["unmasked"] == wrong["unmasked"]


def test_no_parents_is_a_model_too(episodes):
    model = fit_dynamics_model(episodes, np.zeros((3, 3)), np.zeros((2, 3)))
    seen = np.concatenate([episode.observations[1:] for episode in episodes])
    mean = model.predict(np.ones((1, 3)), np.ones((1, 2)))[0]
    assert mean == pytest.approx(seen.mean(axis=0), abs=0.1)


def test_a_state_that_hardly_moves_is_no_worse_than_its_mean():
    """Rare spikes at random: a regression on them would do worse than none."""
    rng = np.random.default_rng(0)
    ends = np.arange(30) == 29
    spikes = [rng.standard_normal((31, 4)) * (rng.random((31, 4)) < 0.03) for _ in range(40)]
    episodes = EpisodeSet.from_episodes(
        [Episode(s, np.zeros((30, 1)), np.zeros(30), ends & False, ends, ends) for s in spikes]
    )
    for seed in range(3):
        settings = DynamicsModelSettings(held_out=0.3)
        generator = np.random.default_rng(seed)
        model = fit_dynamics_model(episodes, np.ones((4, 4)), np.ones((1, 4)), settings, generator)
        assert min(model.metrics["held_out_r2"]) > -0.1


def test_transitions_are_spread_over_all_episodes(episodes):
    transitions = draw_transitions(episodes, 600, np.random.default_rng(0))
    assert 500 <= len(transitions) <= 700
    assert len(np.unique(transitions.episodes)) == 60
    everything = draw_transitions(episodes, 10**6, np.random.default_rng(0))
    assert len(everything) == 3000
    row = 17
    source = episodes[int(everything.episodes[row])]
    place = np.flatnonzero((source.observations == everything.inputs[row, :3]).all(axis=1))[0]
    assert (source.observations[place + 1] == everything.targets[row]).all()
    assert (source.actions[place] == everything.inputs[row, 3:]).all()


@pytest.mark.parametrize(
    ("masks", "match"),
    [
        ((np.ones((3, 2)), ACTIONS), r"state_to_state: expected shape \(3, 3\), got \(3, 2\)"),
        ((STATES, ACTIONS.T), r"action_to_state: expected shape \(2, 3\), got \(3, 2\)"),
        ((STATES * 2, ACTIONS), "state_to_state: expected 0 and 1"),
    ],
)
def test_wrong_masks_are_refused(episodes, masks, match):
    with pytest.raises(ValueError, match=match):
        fit_dynamics_model(episodes, *masks)


def test_wrong_inputs_are_refused(model):
    with pytest.raises(ValueError, match=r"observations: expected shape \(N, 3\), got \(3,\)"):
        model.predict(np.zeros(3), np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"actions: expected shape \(4, 2\), got \(1, 2\)"):
        model.predict(np.zeros((4, 3)), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="observations: nan at step 1, dimension 2"):
        model.predict([[0, 0, 0], [0, 0, np.nan]], np.zeros((2, 2)))
    with pytest.raises(ValueError, match="held_out"):
        DynamicsModelSettings(held_out=1.0)


def test_saved_and_loaded_is_the_same(model, saved, tmp_path):
    observations, actions = fresh()
    (tmp_path / "decomposition").mkdir()
    shutil.copytree(saved, tmp_path / "decomposition" / "dynamics_model")
    for folder in (saved, str(saved), tmp_path / "decomposition"):
        loaded = DynamicsModel.load(folder)
        for method in ("predict", "log_likelihood"):
            extra = (observations,) if method == "log_likelihood" else ()
            mine = getattr(loaded, method)(observations, actions, *extra)
            assert (mine == getattr(model, method)(observations, actions, *extra)).all()
        assert loaded.state_names == model.state_names
        assert loaded.metrics == model.metrics
        assert loaded.settings == model.settings
        assert (loaded.state_to_state == STATES).all()
    assert sorted(path.name for path in saved.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    card = (saved / "README.md").read_text()
    assert "y|`" not in card
    assert "DynamicsModel.load" in card


def test_saving_replaces_a_model_and_nothing_else(model, saved, tmp_path):
    model.save(saved)
    assert DynamicsModel.load(saved).state_size == 3
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(StorageError, match="something else"):
        model.save(other)
    assert (other / "thesis.tex").read_text() == "precious"
    assert not list(tmp_path.glob(".*partial*"))


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": 2}, "version: expected 1, got 2"),
        ({"format": "other"}, "not a grd-offline dynamics model"),
        ({"features": 10**9}, "features: expected a whole number"),
        ({"terms": True}, "terms: expected a whole number"),
        ({"terms": 10**12}, "terms: expected a whole number"),
        ({"state_names": ["x", "y"]}, r"state_to_state: expected U8 of shape \(2, 2\)"),
        ({"state_names": [1, 2, 3]}, "state_names: expected a list of strings"),
        ({"state_names": []}, "state_names: expected at least one"),
        ({"metrics": 1}, "metrics"),
        ({"settings": {"features": -1}}, "settings"),
        ({"settings": {"surprise": 1}}, "settings"),
    ],
)
def test_a_changed_config_is_refused(saved, changes, match):
    change_config(saved, **changes)
    with pytest.raises(ValueError, match=match):
        DynamicsModel.load(saved)


def set_entry(name, value):
    def change(tensors):
        tensors[name].flat[0] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("weights"), "weights: tensor missing"),
        (lambda t: t.update(extra=np.zeros(1)), "extra: tensor not expected"),
        (lambda t: t.update(weights=t["weights"][:-1]), "weights: expected F64 of shape"),
        (lambda t: t.update(weights=t["weights"].astype(np.float32)), "weights: .* got F32"),
        (set_entry("weights", np.nan), "weights: nan or infinite"),
        (set_entry("feature_values", np.inf), "feature_values: nan or infinite"),
        (set_entry("state_to_state", 2), "state_to_state: expected 0 and 1"),
        (set_entry("target_scale", 0.0), "target_scale: expected numbers above 0"),
        (set_entry("mixture_stds", -1.0), "mixture_stds: expected numbers above 0"),
        (set_entry("mixture_weights", 0.5), "mixture_weights: expected shares"),
        (set_entry("feature_nodes", 1e9), "feature_nodes: expected increasing"),
        (set_entry("feature_counts", 99), "feature_counts: expected at most"),
        (set_entry("terms", -1), "terms: a term refers"),
        (set_entry("terms", 2), "terms: expected terms ordered"),
        (lambda t: t["terms"].__setitem__((0, 1), 10**6), "terms: a term refers"),
    ],
)
def test_changed_tensors_are_refused(saved, change, match):
    tensors = {
        name: tensor.copy() for name, tensor in load_file(saved / "model.safetensors").items()
    }
    change(tensors)
    save_file(tensors, saved / "model.safetensors")
    with pytest.raises(ValueError, match=match):
        DynamicsModel.load(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff\xfe", None])
def test_broken_files_are_refused_in_one_line(saved, name, content):
    (saved / name).unlink()
    if content is not None:
        (saved / name).write_bytes(content)
    with pytest.raises(ValueError, match=name) as refusal:
        DynamicsModel.load(saved)
    assert "\n" not in str(refusal.value)
