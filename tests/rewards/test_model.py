"""The reward model: every kind of function in numpy and torch, on disk, and its card."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import reward_models
import torch
from places import HELPERS
from reward_models import make_model, make_steps

from grd_offline import DataError, RewardModel
from grd_offline.core.steps import StepBatch
from grd_offline.rewards import model as reward_model

kinds = pytest.mark.parametrize("kind", reward_models.FUNCTIONS)


@kinds
def test_saved_and_loaded_is_the_same(kind, tmp_path):
    model = make_model(kind)
    model.save(tmp_path / "model")
    before = torch.get_rng_state()
    again = RewardModel.load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)
    steps = make_steps()
    np.testing.assert_array_equal(again.predict(*steps), model.predict(*steps))
    np.testing.assert_array_equal(again.uncertainty(*steps), model.uncertainty(*steps))
    for mask in ("state_mask", "action_mask", "compact_mask"):
        np.testing.assert_array_equal(getattr(again, mask), getattr(model, mask))
    assert again.about == model.about
    needed = reward_models.find_needed(kind)
    assert again.needs_next_observations == ("next_observations" in needed)
    assert again.needs_termination == ("terminations" in needed)


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    """Between its config and its weights another model takes its place."""
    first, second = make_model("effects", step_std=1.0), make_model("effects-next", step_std=2.0)
    first.save(tmp_path)
    read, left = reward_model.read_tensors, [3]

    def replace_before(folder, expected):
        if left[0]:
            left[0] -= 1
            (second if left[0] % 2 else first).save(tmp_path)
        return read(folder, expected)

    monkeypatch.setattr(reward_model, "read_tensors", replace_before)
    loaded = RewardModel.load(tmp_path)
    assert loaded.step_std == 1.0
    assert not loaded.needs_next_observations
    left[0] = 1000
    with pytest.raises(DataError, match="is replaced again and again while it is read"):
        RewardModel.load(tmp_path)


@kinds
def test_the_folder_of_a_decomposition_will_do(kind, tmp_path):
    make_model(kind).save(tmp_path / "reward_model")
    assert RewardModel.load(tmp_path).predict(*make_steps()).shape == (50,)


@kinds
def test_the_module_gives_the_same_numbers(kind):
    model, steps = make_model(kind), make_steps()
    expected = model.predict(*steps)
    tensors = [torch.tensor(part) for part in steps]
    rewards = model.torch()(*tensors)
    assert rewards.dtype == torch.float32
    np.testing.assert_allclose(rewards, expected, atol=2e-5, rtol=1e-5)
    np.testing.assert_allclose(model.torch().float()(*tensors), expected, atol=2e-4)
    wide = model.torch()(*(tensor.double() for tensor in tensors))
    np.testing.assert_allclose(wide, expected, atol=2e-5, rtol=1e-5)
    folded = model.torch()(*(tensor.reshape(5, 10, *tensor.shape[1:]) for tensor in tensors))
    np.testing.assert_array_equal(folded.flatten(), rewards)
    assert model.torch()(*(tensor[:0] for tensor in tensors)).shape == (0,)
    one = model.torch()(*(tensor[0] for tensor in tensors))
    torch.testing.assert_close(one, rewards[0])
    used = tensors[: len(reward_models.find_needed(kind))]
    torch.testing.assert_close(torch.func.vmap(model.torch())(*used), rewards)
    assert repr(model).startswith("RewardModel(")
    assert len(repr(model)) < 60


def test_a_quadratic_is_what_it_says():
    function = reward_models.make_quadratic()
    observations, actions, *_ = make_steps(3)
    z = (np.hstack([observations, actions]) - function.mean) / function.std
    expected = [0.3 + function.linear @ row + row @ function.products @ row for row in z]
    np.testing.assert_allclose(make_model("quadratic").predict(observations, actions), expected)


@kinds
def test_gradients_agree_with_finite_differences(kind):
    """Away from the corners of the tables, at which a slope is not defined."""
    module = make_model(kind).torch().double()
    parts = make_steps(4)[: len(reward_models.find_needed(kind))]
    steps = [torch.tensor(part, dtype=torch.float64).requires_grad_() for part in parts[:3]]
    steps += [torch.tensor(part) for part in parts[3:]]
    assert torch.autograd.gradcheck(module, steps)
    observations = steps[0]
    (gradient,) = torch.autograd.grad(module(*steps).sum(), observations)
    assert bool(gradient.abs().sum() > 0) == (kind not in ("constant", "effects-none"))


def test_no_gradient_where_the_reward_does_not_depend():
    observations, actions = (torch.tensor(part) for part in make_steps()[:2])
    observations.requires_grad_()
    make_model("effects").torch()(observations, actions).sum().backward()
    assert (observations.grad.abs().sum(0) > 0).tolist() == [True, False, False, True, False]


@pytest.mark.long
def test_modules_compile():
    """In a process of its own: the checks of shapes that tests switch on cannot be compiled."""
    code = (
        "import numpy as np, torch\nimport reward_models as made\n"
        "steps = [torch.tensor(part) for part in made.make_steps()]\n"
        "for kind in made.FUNCTIONS:\n"
        "    torch.compiler.reset()\n"  # forgets the kinds before: there is a limit to how many
        "    module = made.make_model(kind).torch()\n"
        "    compiled = torch.compile(module, fullgraph=True, backend='eager')\n"
        "    np.testing.assert_allclose(compiled(*steps), module(*steps), atol=1e-6)\n"
        "    print(kind)\n"
    )
    assert run(code, HELPERS).split() == list(reward_models.FUNCTIONS)


@kinds
def test_the_module_is_a_copy(kind):
    model, steps = make_model(kind), make_steps()
    before = model.predict(*steps)
    module = model.torch()
    for tensor in (*module.buffers(), *module.parameters()):
        if tensor.is_floating_point():
            assert not tensor.requires_grad
            tensor.data.fill_(7)
    module.to("meta")
    np.testing.assert_array_equal(model.predict(*steps), before)


@kinds
def test_wrong_shapes_are_refused_with_both_counts(kind):
    model = make_model(kind)
    observations, actions, next_observations, terminations = make_steps()
    for call in (model.predict, model.uncertainty, model.predict_both):
        with pytest.raises(
            ValueError, match=r"observations: expected shape \(N, 5\), got \(50, 2\)"
        ):
            call(actions, actions, next_observations, terminations)
        with pytest.raises(ValueError, match=r"observations: expected shape \(N, 5\), got \(5,\)"):
            call(observations[0], actions[0], next_observations[0], terminations[0])
        with pytest.raises(ValueError, match=r"actions: expected shape \(50, 2\), got \(49, 2\)"):
            call(observations, actions[1:], next_observations, terminations)
        with pytest.raises(ValueError, match=r"next_.*: expected shape \(50, 5\), got \(49, 5\)"):
            call(observations, actions, next_observations[1:], terminations)
        with pytest.raises(
            ValueError, match=r"terminations: expected shape \(50,\), got \(50, 1\)"
        ):
            call(observations, actions, next_observations, terminations[:, None])
    with pytest.raises(DataError, match="observations: nan at step 3, dimension 1"):
        model.predict(
            np.where(np.indices((50, 5))[0] * 5 + np.indices((50, 5))[1] == 16, np.nan, 0),
            actions,
            next_observations,
            terminations,
        )
    large = np.full((50, 5), 1e300)  # infinite in float32
    if kind.startswith("effects"):
        assert np.isfinite(model.predict(large, actions, next_observations, terminations)).all()
    else:
        with pytest.raises(ValueError, match=r"observations: 1e\+300, too large for float32"):
            model.predict(large, actions, next_observations, terminations)
    module, tensors = model.torch(), [torch.tensor(part) for part in make_steps()]
    both = torch.cat(tensors[:2], -1)
    # As many columns as expected, but not the right ones.
    with pytest.raises(ValueError, match=r"observations: expected shape \(50, 5\), got \(50, 6\)"):
        module(both[:, :6], both[:, 6:], *tensors[2:])
    with pytest.raises(ValueError, match=r"actions: expected shape \(50, 2\), got \(1, 2\)"):
        module(tensors[0], tensors[1][:1], *tensors[2:])
    with pytest.raises(ValueError, match=r"terminations: expected shape \(50,\), got \(49,\)"):
        module(*tensors[:3], tensors[3][1:])


@kinds
def test_a_missing_argument_is_told(kind):
    model, steps = make_model(kind), make_steps()
    function = model.function
    sums = {"weights": np.ones(50), "starts": np.array([0, 20])}
    calls = [
        *((call, steps) for call in (model.predict, model.uncertainty, model.predict_both)),
        (lambda *given: function.predict(StepBatch(*given)), steps),
        (lambda *given: function.predict_sums(StepBatch(*given), **sums), steps),
        (model.torch(), [torch.tensor(part) for part in steps]),
    ]
    for name in reward_models.ARGUMENTS[2:]:
        missing = reward_models.ARGUMENTS.index(name)
        for call, given in calls:
            less = [None if i == missing else part for i, part in enumerate(given)]
            if name in reward_models.find_needed(kind):
                with pytest.raises(ValueError, match=f"{name}: missing, but this reward depends"):
                    call(*less)
            else:
                call(*less)


def test_terminations_are_0_or_1():
    model, steps = make_model("effects-midpoint"), make_steps()
    expected = model.predict(*steps)
    numbers = [*steps[:3], steps[3].astype(np.float32)]
    np.testing.assert_array_equal(model.predict(*numbers), expected)
    with pytest.raises(ValueError, match=r"terminations: expected 0 or 1, got 0\.5 at step 7"):
        model.predict(*steps[:3], np.where(np.arange(50) == 7, 0.5, 0))


def test_large_observations_have_a_midpoint():
    """A sum of both would be infinite."""
    model, (_, actions, _, terminations) = make_model("effects-midpoint"), make_steps()
    large = np.full((50, 5), 1.7e308)
    expected = model.predict(np.full((50, 5), 9.0), actions, np.full((50, 5), 9.0), terminations)
    rewards, std = model.predict_both(large, actions, large, terminations)
    np.testing.assert_array_equal(rewards, expected)
    assert np.isfinite(std).all()


def test_it_is_a_reward_function_of_imitation():
    """reward(state, action, next_state, done) -> (batch,), by position or by name."""
    model, (states, actions, next_observations, done) = make_model("effects-midpoint"), make_steps()
    assert list(inspect.signature(model).parameters) == ["state", "action", "next_state", "done"]
    expected = model.predict(states, actions, next_observations, terminations=done)
    assert (expected != model.predict(states, actions, next_observations, ~done)).all()
    np.testing.assert_array_equal(model(states, actions, next_observations, done), expected)
    np.testing.assert_array_equal(model.predict(states, actions, next_observations, done), expected)


def test_what_is_not_known_of_the_spread_is_not_made_up(tmp_path):
    model = make_model("quadratic", step_std=None)
    model.save(tmp_path / "model")
    assert np.isnan(RewardModel.load(tmp_path / "model").uncertainty(*make_steps())).all()
    assert "nan: not known of this model" in (tmp_path / "model" / "README.md").read_text()


FUNCTION_OF = {
    2: "R(s, a): state and action",
    3: "R(s, a, s'): state, action and next state",
    4: "R(s, a, s'), at the midpoint (s + s')/2 of each transition, and whether the episode "
    "terminated at this step",
}


@kinds
def test_the_card_tells_and_names_cannot_break_it(kind, tmp_path, monkeypatch):
    make_model(kind).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "<b>" not in card
    needed = reward_models.find_needed(kind)
    more = ", terminated" if "terminations" in needed else ""
    assert f"| the reward depends on | s0, s3, a0{more} |" in card
    assert f"| the reward is a function of | {FUNCTION_OF[len(needed)]} |" in card
    assert "| the compact state | s0, s2, s3 |" in card
    assert f"| fit | {kind} |" in card
    assert "| R² on the returns of episodes held out | 0.9877 |" in card
    assert ("up to the size of the effects" in card) == make_model(kind).function.knows_std
    code = card.split("```python\n")[1].split("```")[0].replace("this folder", "model")
    monkeypatch.chdir(tmp_path)
    steps = make_steps(3)
    names = dict(zip(needed, steps, strict=False))
    exec(code, names)
    expected = make_model(kind).predict(*steps)
    np.testing.assert_array_equal(names["rewards"], expected)
    assert names["spread"].shape == (3,)


def test_the_card_of_an_online_run_says_so(tmp_path):
    about = {"environment": "Hopper-v5", "member": "grd-seed0", "step": 20000}
    make_model("quadratic", about=about, step_std=None).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| member of an online training run | grd-seed0 |" in card
    assert "| environment steps of training until then | 20,000 |" in card
    assert "By `grd-offline train-online`" in card


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@kinds
def test_the_module_moves_to_a_device(kind):
    model, steps = make_model(kind), make_steps()
    rewards = model.torch().to("cuda")(*(torch.tensor(part, device="cuda") for part in steps))
    np.testing.assert_allclose(rewards.cpu(), model.predict(*steps), atol=2e-5, rtol=1e-5)


def run(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_needs_torch_numpy_and_safetensors_only(tmp_path):
    """In a process in which nothing else can be imported."""
    for kind in reward_models.FUNCTIONS:
        make_model(kind).save(tmp_path / kind)
    run(LOAD.format(blocked=OTHERS, kinds=list(reward_models.FUNCTIONS)), tmp_path)


def test_kinds_made_of_numpy_do_not_need_torch(tmp_path):
    """A process that cannot import torch loads their models and predicts."""
    kinds = [kind for kind in reward_models.FUNCTIONS if not kind.startswith("network")]
    for kind in kinds:
        make_model(kind).save(tmp_path / kind)
    run(LOAD.format(blocked=("torch", *OTHERS), kinds=kinds), tmp_path)


OTHERS = (
    *("gymnasium", "mujoco", "minari", "h5py", "sklearn", "scipy"),
    *("click", "rich", "jaxtyping", "matplotlib"),
)
LOAD = """
import sys
for name in {blocked}:
    sys.modules[name] = None
import numpy as np
from grd_offline import RewardModel
steps = np.zeros((3, 5)), np.zeros((3, 2)), np.zeros((3, 5)), np.zeros(3, bool)
for kind in {kinds}:
    model = RewardModel.load(kind)
    assert model.predict(*steps).shape == (3,)
    assert model.uncertainty(*steps).shape == (3,)
    model.save("again")
    if "torch" not in {blocked}:
        model.torch()
"""
