"""Runs in which a member steps several environments."""

from dataclasses import replace

import numpy as np
import point_mass
import pytest
from online_runs import make_settings, train, train_until, weights_of

from grd_offline.core.errors import DataError
from grd_offline.learning.online.run import OnlineFolder, OnlineRun, complete_settings
from grd_offline.learning.settings import OnlineSettings

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


SMALL = {"steps": 640, "round_updates": 2, "eval_every": 250, "eval_episodes": 2}


def test_each_environment_takes_its_part_of_a_round():
    run, _ = train(make_settings(steps=450, warmup=10_000, round_steps=50, environments=2))
    # Episodes have 20 steps: of 225 steps of each environment, 220 are in finished ones.
    assert run.step == 450
    assert run.learner.replay.layouts[0].steps == 440
    assert [len(np.concatenate(one.rewards)) for one in run.unfinished] == [5, 5]


@pytest.mark.parametrize("overlap", [True, False])
def test_going_on_equals_not_having_stopped(tmp_path, overlap):
    settings = make_settings(environments=2, overlap=overlap, **SMALL)
    whole, _ = train(settings)
    train_until(tmp_path / "run", settings, lambda run: run.step >= 460)
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=folder) as run:
        assert folder.resume(run) == []
        run.train()
        folder.close()
        np.testing.assert_array_equal(weights_of(run), weights_of(whole))
    assert not np.array_equal(
        weights_of(train(replace(settings, environments=1))[0]), weights_of(whole)
    )


def test_a_member_in_a_group_equals_it_alone():
    settings = make_settings(environments=2, seeds=2, **SMALL)
    together, _ = train(settings)
    alone, _ = train(replace(settings, seeds=1, seed=1))
    first, second = together.learner.replay, alone.learner.replay
    np.testing.assert_array_equal(first.layouts[1].steps, second.layouts[0].steps)
    np.testing.assert_allclose(weights_of(together)[1], weights_of(alone)[0], rtol=1e-3, atol=1e-4)


def test_a_task_with_many_states_has_two():
    assert complete_settings("Humanoid").environments == 2
    assert complete_settings("Ant").environments == 1
    assert complete_settings("Humanoid", environments=1).environments == 1
    assert complete_settings("Humanoid", round_steps=75).environments == 1


def test_environments_share_the_steps_of_a_round():
    with pytest.raises(DataError, match="environments: expected a divisor of 100, the steps of a"):
        OnlineSettings("Ant", environments=3)
