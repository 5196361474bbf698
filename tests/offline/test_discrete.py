"""Policies for discrete actions from a dataset alone."""

import choices
import pytest
from online_runs import Keeper

import grd_offline
from grd_offline.core.errors import DataError
from grd_offline.learning.offline.run import OfflineRun, load_data
from grd_offline.learning.settings import OfflineSettings


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    choices.register()
    file = tmp_path_factory.mktemp("data") / "data.h5"
    grd_offline.collect(
        choices.ID, file, episodes=80, policy="random", workers=1, keep_true_rewards=True
    )
    return load_data(file)


def make_settings(**changes):
    given = {
        "rewards": ("true",), "environment": choices.ID, "seeds": 2, "updates": 300, "batch": 32,
        "hidden": (16, 16), "learning_rate": 3e-3, "discount": 0.5, "eval_every": 300,
    }  # fmt: skip
    return OfflineSettings(**{**given, **changes})


@pytest.mark.long
def test_iql_learns_to_choose_from_random_choices(data):
    keeper = Keeper()
    rewards = {"true": data.rewards["true"]}
    with OfflineRun(make_settings(), data.episodes, rewards, workers=0, observer=keeper) as run:
        run.train()
        assert run.spec.kind == "categorical"
        assert run.spec.first_choice == 1
    # A random policy has 2.7, and the best one 8.
    assert keeper.evaluations[-1].returns.mean() > 7


def test_without_an_environment_a_policy_is_trained_all_the_same(data):
    settings = make_settings(environment=None, updates=5, eval_every=5, seeds=1)
    with OfflineRun(settings, data.episodes, {"true": data.rewards["true"]}, workers=0) as run:
        run.train()
        assert run.spec.action_size == 3


def test_what_does_not_fit_is_refused(data):
    rewards = {"true": data.rewards["true"]}
    with pytest.raises(DataError, match="algorithm: td3bc is for continuous actions"):
        OfflineRun(make_settings(algorithm="td3bc"), data.episodes, rewards, workers=0)
    other = make_settings(env_args={"acted": "box"})
    with pytest.raises(DataError, match="expected discrete ones, as in the data, got continuous"):
        OfflineRun(other, data.episodes, rewards, workers=0)
