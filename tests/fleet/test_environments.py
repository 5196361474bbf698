"""Members with several environments each."""

import numpy as np
import pytest
from fleets import SEEDS, assert_same, make_fleet, make_odd, make_weights, run_round

from grd_offline.core.errors import DataError


def test_the_first_environment_does_the_same_however_many_there_are() -> None:
    with make_fleet() as one, make_fleet(environments_each=2) as two:
        for index in range(3):
            both = run_round(two, index)
            assert both.rewards.shape == (2 * len(SEEDS), 25)
            assert_same(both, run_round(one, index), slice(0, None, 2))
            # The second one begins and acts differently.
            assert not np.array_equal(both.observations[0], both.observations[1])
            assert not np.array_equal(both.actions[0], both.actions[1])


@pytest.mark.long
def test_same_rounds_and_evaluations_whoever_does_the_work() -> None:
    def run(workers):
        with make_fleet(environments_each=3, workers=workers) as fleet:
            rounds = [run_round(fleet, index) for index in range(3)]
            fleet.start_evaluation(7, make_weights(fleet, 1), 2)
            return rounds, fleet.finish_evaluation(), fleet.state()

    rounds, evaluation, state = run(0)
    assert evaluation.returns.shape == (len(SEEDS), 2)
    assert state["episodes"].shape == (3 * len(SEEDS),)
    again, other_evaluation, other_state = run(2)
    for one, other in zip(rounds, again, strict=True):
        assert_same(one, other)
    np.testing.assert_array_equal(other_evaluation.returns, evaluation.returns)
    for name, value in state.items():
        np.testing.assert_array_equal(other_state[name], value)


def test_resuming_equals_not_having_stopped() -> None:
    with make_fleet(environments_each=2) as fleet:
        run_round(fleet, 0)
        state = fleet.state()
        expected = [run_round(fleet, index) for index in (1, 2)]
    with make_fleet(environments_each=2) as fleet:
        fleet.restore(state)
        for index, round_ in enumerate(expected, 1):
            assert_same(round_, run_round(fleet, index))
    with make_fleet() as fleet, pytest.raises(DataError, match=r"episodes: expected shape \(4,\)"):
        fleet.restore(state)


def test_an_error_names_the_environment() -> None:
    with (
        make_odd("inf", environments_each=2) as fleet,
        pytest.raises(DataError, match=r"member 0, environment 0, episode 1: rewards: inf"),
    ):
        run_round(fleet, 0)
    with pytest.raises(DataError, match="environments_each: expected at least 1, got 0"):
        make_fleet(environments_each=0)
