"""A new kind of reward function is one class and one registration, as CONTRIBUTING.md says."""

import numpy as np
import pytest
import torch
from reward_models import ACTION_NAMES, ACTIONS, STATE_NAMES, STATES, make_steps

from grd_offline import DataError, RewardModel
from grd_offline.core.steps import StepBatch
from grd_offline.rewards import contract
from grd_offline.rewards.contract import ConfigReader, RewardFunction, check_tensors
from grd_offline.rewards.export import export_model


class Progress(RewardFunction):
    """r = w . (s' - s)"""

    kind = "progress"
    description = "a weighted sum of the changes of state"
    far_from_data = "the reward goes on in proportion"
    needs_next = True

    def __init__(self, weights, actions):
        self.weights, self.states, self.actions = np.asarray(weights), len(weights), actions

    def predict(self, batch):
        return (batch.next_observations - batch.observations) @ self.weights

    def torch(self):
        return Module(torch.tensor(self.weights, dtype=torch.float32))

    def tensors(self):
        return {"weights": self.weights}

    @classmethod
    def expected_tensors(cls, config, shapes):
        states, _ = ConfigReader(config, cls.kind).read_sizes()
        return {"weights": ("float64", (states,))}

    @classmethod
    def from_parts(cls, config, tensors):
        check_tensors(cls.expected_tensors(config, {}), tensors)
        return cls(tensors["weights"], config["actions"])


class Module(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, batch):
        return (batch.next_observations - batch.observations) @ self.weights


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(contract, "_KINDS", dict(contract._KINDS))
    contract.register_kind(Progress)
    return RewardModel(
        function=Progress(np.linspace(-1, 1, STATES), ACTIONS),
        observation_names=STATE_NAMES,
        action_names=ACTION_NAMES,
        state_mask=np.ones(STATES, np.int64),
        action_mask=np.zeros(ACTIONS, np.int64),
        compact_mask=np.ones(STATES, np.int64),
        step_std=0.25,
    )


def test_it_is_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model")
    again = RewardModel.load(tmp_path / "model")
    assert isinstance(again.function, Progress)
    observations, _, next_observations, _ = steps = make_steps()
    expected = ((next_observations - observations) * np.linspace(-1, 1, STATES)).sum(1)
    np.testing.assert_allclose(again.predict(*steps), expected, atol=1e-6)
    rewards, std = again.predict_both(*steps)
    np.testing.assert_array_equal(rewards, again.predict(*steps))
    np.testing.assert_array_equal(std, np.full(50, 0.25))
    np.testing.assert_array_equal(again.uncertainty(*steps), std)
    with pytest.raises(ValueError, match="next_observations: missing"):
        again.predict(*steps[:2])


def test_it_is_exported(model, tmp_path):
    done = export_model(model, tmp_path / "reward.pt2", "torch-export")
    assert done.inputs == {"observations": STATES, "actions": ACTIONS, "next_observations": STATES}
    steps = [torch.from_numpy(part) for part in make_steps(7)[:3]]
    names = ("observations", "actions", "next_observations")
    rewards = torch.export.load(done.path).module()(**dict(zip(names, steps, strict=True)))
    np.testing.assert_allclose(rewards, model.predict(*make_steps(7)), atol=1e-5)


def test_it_has_a_card(model, tmp_path):
    model.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "a weighted sum of the changes of state." in card
    assert "the reward goes on in proportion." in card
    assert "model.predict(observations, actions, next_observations)" in card


def test_what_it_does_not_know_has_a_default(model):
    function, steps = model.function, StepBatch(*make_steps(6))
    assert function.explain().effects == ()
    assert function.predict_std(steps) is None
    weights, starts = np.array([1.0, 0.5, 0.25, 1.0, 1.0, 2.0]), np.array([0, 3])
    sums, std = function.predict_sums(steps, weights=weights, starts=starts)
    rewards = function.predict(steps) * weights
    np.testing.assert_allclose(sums, [rewards[:3].sum(), rewards[3:].sum()])
    assert std is None


def test_a_name_is_given_once(model):
    assert contract.register_kind(Progress) is Progress
    for name in ("progress", "effects"):
        other = type("Other", (Progress,), {"kind": name})
        with pytest.raises(ValueError, match=f"another reward function called '{name}'"):
            contract.register_kind(other)


def test_a_kind_that_is_not_registered_is_refused(model, tmp_path, monkeypatch):
    model.save(tmp_path / "model")
    monkeypatch.delitem(contract._KINDS, "progress")
    with pytest.raises(DataError, match=r"kind: expected effects, .*, got 'progress'"):
        RewardModel.load(tmp_path / "model")


def test_a_kind_that_lacks_a_method_cannot_be_made():
    half = type("Half", (RewardFunction,), {"kind": "half"})
    with pytest.raises(TypeError, match="abstract method"):
        half()


@pytest.mark.parametrize("name", ["effects", "network", "quadratic", "constant"])
def test_every_kind_is_registered_under_its_own_name(name):
    kind = contract.find_kind(name)
    assert kind.kind == name
    assert RewardFunction in kind.__mro__
    assert kind.description
    assert kind.far_from_data
