"""Online runs with discrete actions: they learn, go on exactly, and members stay apart."""

import choices
import gymnasium
import numpy as np
import pytest
import torch
from online_runs import make_settings, train, train_until, weights_of

from grd_offline.learning.online.learner import Learner
from grd_offline.learning.online.replay import separate_truth
from grd_offline.learning.online.run import OnlineFolder, OnlineRun, complete_settings
from grd_offline.learning.settings import DISCRETE, OnlineSettings


@pytest.fixture(autouse=True)
def _register():
    choices.register()


def make_discrete(**changes):
    given = {"environment": choices.ID, "backbone": "dqn", "steps": 1200, "eval_every": 1200,
             "policy_discount": 0.5, "round_updates": 5, "batch": 32,
             "hidden": (16, 16)}  # fmt: skip
    return make_settings(**{**given, **changes})


@pytest.mark.long
@pytest.mark.parametrize("observed", ["dict", "discrete"])
def test_policies_learn_to_choose_from_returns(observed):
    settings = make_discrete(env_args={"observed": observed}, methods=("grd", "oracle"))
    run, evaluations = train(settings)
    final = evaluations[-1].returns.mean(1)
    # A random policy has 2.7, and the best one 8.
    assert (final > 6).all(), dict(zip([m.name for m in run.members], final, strict=True))


def test_what_ends_an_episode_is_seen_though_every_step_pays_the_same():
    """Wrong choices end the episode, so that the return is its length, but for the last step."""
    settings = make_discrete(
        env_args={"observed": "box", "ends": True}, steps=1200, compact_patience=100
    )
    run, evaluations = train(settings)
    assert run.learner.compute_compact()[0].any()
    assert evaluations[-1].returns.mean() > 5  # a random policy has 0.5


def test_updates_look_several_steps_ahead():
    """Sums of true rewards, discounted, to the end of the episode at most."""
    settings = make_discrete(methods=("oracle",), target_steps=3, steps=300, seeds=2)
    batches, rng = [], np.random.default_rng(0)
    learner = Learner(settings, settings.make_members(), states=2, low=np.zeros(3), high=np.ones(3),
                      step_limit=20, device=torch.device("cpu"), is_discrete=True)  # fmt: skip
    paid = rng.normal(size=(2, 4, 9))
    for member, episode in np.ndindex(2, 4):
        place = np.full((10, 1), 9.0 * episode) + np.arange(10)[:, None]
        observations = np.concatenate([place, np.zeros_like(place)], 1).astype(np.float32)
        actions = np.eye(3, dtype=np.float32)[rng.integers(3, size=9)]
        is_over = bool(episode % 2)
        told = separate_truth(observations, actions, paid[member, episode], is_over)
        learner.add(member, *told)
    learner.refresh()
    learner.agent.update = lambda batch, with_actor: batches.append(batch)
    learner.run_updates(1)
    (batch,) = batches
    for member, row in np.ndindex(2, settings.batch):
        # The last observation of an episode has the number of the next one's first.
        rewards = paid[member].ravel()
        at = int(batch.observations[member, row, 0])
        end = min(at + 3, 9 * (at // 9) + 9)
        ahead = {name: part[member, row] for name, part in batch.ahead._asdict().items()}
        assert batch.rewards[member, row].item() == pytest.approx(rewards[at], rel=1e-5)
        expected = sum(0.5**k * rewards[at + k] for k in range(end - at))
        assert ahead["rewards"].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
        each = [rewards[at + k if at + k < end else at] for k in range(3)]
        np.testing.assert_allclose(ahead["each"], each, rtol=1e-5)
        assert ahead["counts"].item() == end - at
        assert ahead["next_observations"][0].item() == end
        assert ahead["terminated"].item() == (end % 9 == 0 and (at // 9) % 2 == 1)


def test_policies_see_states_divided_by_their_sizes(monkeypatch):
    """Policies that leave the learner take states as the environment has them."""
    sizes = np.array([1, 1, 0.1, 1, 0.5, 0.01], np.float32)
    monkeypatch.setattr("grd_offline.learning.fleet.environment.find_sizes", lambda space: sizes)
    with OnlineRun(
        make_discrete(steps=300, methods=("oracle",), scale_states=True), workers=0
    ) as run:
        run.train()
        np.testing.assert_allclose(run.learner.mask, [1 / sizes], rtol=1e-6)
        weights = run.learner.agent.target_critic.weights[0][0].detach().numpy()
        exported = run.learner.export_actors()[0, : weights.size].reshape(weights.shape)
        np.testing.assert_allclose(exported, weights / sizes[:, None], rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("target_steps", [1, 5])
def test_going_on_equals_not_having_stopped(tmp_path, target_steps):
    settings = make_discrete(
        steps=600, round_updates=3, eval_every=300, eval_episodes=2, target_steps=target_steps
    )
    whole, _ = train(settings)
    train_until(tmp_path / "run", settings, lambda run: run.step >= 460)
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=folder) as second:
        assert folder.resume(second) == []
        second.train()
        np.testing.assert_array_equal(weights_of(second), weights_of(whole))
        for ours, theirs in zip(second.learner.endings, whole.learner.endings, strict=True):
            np.testing.assert_equal(ours.state(), theirs.state())


def test_a_member_in_a_group_equals_it_alone():
    settings = OnlineSettings(
        "any", backbone="dqn", methods=("oracle",), seeds=3, steps=500, hidden=(8, 8), batch=16,
        target_steps=3,
    )  # fmt: skip
    members = settings.make_members()

    def make(chosen):
        learner = Learner(settings, chosen, states=2, low=np.zeros(3), high=np.ones(3),
                          step_limit=20, device=torch.device("cpu"), is_discrete=True)  # fmt: skip
        for place, member in enumerate(chosen):
            rng = np.random.default_rng(member.seed)
            for _ in range(4):
                actions = np.eye(3, dtype=np.float32)[rng.integers(3, size=9)]
                observations = rng.normal(size=(10, 2)).astype(np.float32)
                episode = separate_truth(observations, actions, rng.normal(size=9), True)
                learner.add(place, *episode)
        learner.refresh()
        learner.run_updates(10)
        return learner.export_actors()

    together = make(members)
    for place, member in enumerate(members):
        np.testing.assert_allclose(make([member])[0], together[place], rtol=1e-4, atol=1e-6)


def test_defaults_depend_on_the_actions():
    discrete = complete_settings(choices.ID, seeds=2, warmup=77)
    assert (discrete.backbone, discrete.warmup, discrete.seeds) == ("dqn", 77, 2)
    assert discrete.hidden == DISCRETE["hidden"]
    continuous = complete_settings(choices.ID, env_args={"acted": "box"})
    assert continuous == OnlineSettings(choices.ID, env_args={"acted": "box"})


def test_collection_keeps_choices_as_whole_numbers():
    """The environment refuses anything but a member of its space, and so would have failed."""
    settings = make_discrete(steps=60, warmup=20, eval_every=60, round_updates=1, eval_episodes=1)
    run, _ = train(settings)
    assert isinstance(gymnasium.make(choices.ID).action_space, gymnasium.spaces.Discrete)
    assert set(run.learner.replay.actions[0, :8].sum(1).tolist()) == {1.0}
