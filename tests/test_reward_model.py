"""The reward model on disk: a round trip, gradients, and tampering refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import worlds
from safetensors.numpy import load_file, save_file

from grd_offline import DataError, RewardModel
from grd_offline.decompose import make_decomposer


@pytest.fixture(scope="module")
def episodes():
    return worlds.make_episodes(worlds.make_world(), 40)[0]


def make_model(episodes, fit="closed-form", **settings):
    decomposer = make_decomposer("grd", fit, **settings)
    decomposer.fit(episodes, rng=np.random.default_rng(0))
    return RewardModel(
        function=decomposer.function_,
        observation_names=episodes.observation_names,
        action_names=episodes.action_names,
        state_mask=decomposer.masks_["state_to_reward"],
        action_mask=decomposer.masks_["action_to_reward"],
        compact_mask=np.ones(episodes.state_size, np.int64),
        step_std=0.5,
        about={"data": "<b>x|y</b>", "fit": fit},
    )


@pytest.fixture(scope="module")
def model(episodes):
    return make_model(episodes)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def steps(episodes):
    return episodes[0].observations[:-1], episodes[0].actions


def test_saved_and_loaded_is_the_same(model, saved, episodes):
    again = RewardModel.load(saved)
    np.testing.assert_array_equal(again.predict(*steps(episodes)), model.predict(*steps(episodes)))
    np.testing.assert_array_equal(
        again.uncertainty(*steps(episodes)), model.uncertainty(*steps(episodes))
    )
    np.testing.assert_array_equal(again.state_mask, model.state_mask)
    assert again.about == model.about


def test_a_network_too(episodes, tmp_path):
    model = make_model(
        episodes, "neural", members=2, mask_updates=5, reward_updates=5, dynamics_updates=0
    )
    model.save(tmp_path / "model")
    again = RewardModel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(*steps(episodes)), model.predict(*steps(episodes)))
    assert (again.uncertainty(*steps(episodes)) == 0.5).all()


def test_the_folder_of_a_decomposition_will_do(model, tmp_path, episodes):
    model.save(tmp_path / "reward_model")
    RewardModel.load(tmp_path).predict(*steps(episodes))


def test_the_module_gives_the_same_numbers_and_gradients(model, episodes):
    observations, actions = (torch.tensor(part) for part in steps(episodes))
    observations.requires_grad_()
    rewards = model.torch()(observations, actions)
    np.testing.assert_allclose(
        rewards.detach(), model.predict(*steps(episodes)), atol=1e-4, rtol=1e-4
    )
    rewards.sum().backward()
    used = observations.grad.abs().sum(0) > 0
    assert (used.numpy() <= model.state_mask.astype(np.bool_)).all()
    assert used.any()


def test_the_card_says_how_to_use_it_and_names_cannot_break_it(saved):
    card = (saved / "README.md").read_text()
    assert "RewardModel.load" in card
    assert "<b>" not in card


def test_needs_torch_numpy_and_safetensors_only(saved):
    code = (
        "import sys\n"
        "for name in ('gymnasium', 'mujoco', 'minari', 'h5py', 'sklearn', 'scipy', 'click', 'rich',"
        " 'jaxtyping'):\n    sys.modules[name] = None\n"
        "import numpy as np\nfrom grd_offline import RewardModel\n"
        f"model = RewardModel.load({str(saved)!r})\n"
        "n, m = len(model.observation_names), len(model.action_names)\n"
        "print(model.predict(np.zeros((3, n)), np.zeros((3, m))).shape)\n"
        "model.torch()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(3,)\n", done.stderr


def tamper_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def tamper_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def nan_weight(tensors):
    tensors["weights"][0] = np.nan


def one_weight_more(tensors):
    tensors["weights"] = np.append(tensors["weights"], 0.0)


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda f: tamper_config(f, version=99), "version: expected 1, got 99"),
        (lambda f: tamper_config(f, format="other"), "is not a grd-offline reward model"),
        (lambda f: tamper_config(f, function={"kind": "pickle"}), "kind: expected effects"),
        (lambda f: tamper_config(f, function=[]), "function: expected an object"),
        (lambda f: tamper_config(f, state_mask=[1]), "state_mask: expected 5 times 0 or 1"),
        (lambda f: tamper_config(f, step_std=-1), "step_std: expected a number of at least 0"),
        (lambda f: tamper_tensors(f, nan_weight), "weights: not finite"),
        (lambda f: tamper_tensors(f, one_weight_more), "weights: expected shape"),
        (lambda f: tamper_tensors(f, lambda t: t.pop("weights")), "weights: missing"),
        (lambda f: tamper_tensors(f, lambda t: t.update(x=np.zeros(1))), "x: unknown"),
        (lambda f: (f / "config.json").write_text("{"), "is not JSON"),
        (lambda f: (f / "config.json").unlink(), "cannot be read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "is not a safetensors file"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tamper, message, saved):
    tamper(saved)
    with pytest.raises(DataError, match=message):
        RewardModel.load(saved)
