"""Evaluations record success wherever an environment tells it."""

import csv

import gymnasium
import numpy as np
import point_mass
import pytest
from fleets import make_fleet, make_weights

import grd_offline
from grd_offline.comparison.compare import collect_scores
from grd_offline.io.files.results import read_run
from grd_offline.learning.fleet.fleet import Fleet

ID = "tests/Reach-v0"


class Reach(point_mass.PointMass):
    """A success is to have been right of 0, for a step at least; later steps do not undo it."""

    def step(self, action):
        *rest, info = super().step(action)
        return (*rest, {**info, "success": float(self.time == 3 and self.start > 0)})

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        self.start = self.place
        return result


@pytest.fixture(scope="module", autouse=True)
def environment():
    if ID not in gymnasium.registry:
        gymnasium.register(ID, entry_point=Reach)


def test_a_success_at_any_step_counts():
    with Fleet(ID, [0, 1], workers=0, hidden=(4,)) as fleet:
        fleet.start_evaluation(1, make_weights(fleet), 12)
        successes = fleet.finish_evaluation().successes
    assert successes.shape == (2, 12)
    assert set(np.unique(successes)) == {0.0, 1.0}


def test_nothing_is_told_where_nothing_is_known():
    with make_fleet(seeds=[0]) as fleet:
        fleet.start_evaluation(1, make_weights(fleet), 2)
        assert np.isnan(fleet.finish_evaluation().successes).all()


def test_a_run_writes_the_share_of_successes(tmp_path):
    settings = {"steps": 60, "warmup": 40, "eval_every": 30, "hidden": (4,), "round_updates": 1}
    grd_offline.train_online(
        ID, tmp_path / "run", methods=("oracle",), round_steps=20, workers=0, **settings
    )
    with (tmp_path / "run" / "evaluations.csv").open() as file:
        rates = [float(row["success_rate"]) for row in csv.DictReader(file)]
    assert rates
    assert all(0 <= rate <= 1 for rate in rates)
    (score,) = collect_scores([read_run(tmp_path / "run")], metric="success", last=1)
    assert score.values == (rates[-1],)
