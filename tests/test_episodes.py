import dataclasses

import numpy as np
import pytest

from grd_offline import DataError, Episode, EpisodeSet


def make(steps=4, **changes):
    fields = {
        "observations": np.arange((steps + 1) * 2, dtype=np.float32).reshape(steps + 1, 2),
        "actions": np.zeros((steps, 1)),
        "rewards": np.array([0.0] * (steps - 1) + [3.0]),
        "terminations": np.zeros(steps, np.bool_),
        "truncations": np.arange(steps) == steps - 1,
        "delivered": np.arange(steps) == steps - 1,
    }
    return Episode(**{**fields, **changes})


def test_arrays_are_float32_but_for_rewards_and_read_only():
    episode = make()
    assert episode.observations.dtype == episode.actions.dtype == np.float32
    assert episode.rewards.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        episode.observations[0, 0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        episode.rewards = np.zeros(4)


def test_the_callers_array_stays_writable():
    observations = np.zeros((5, 2), np.float32)
    make(observations=observations)
    observations[0, 0] = 1
    assert observations[0, 0] == 1


def test_observations_with_and_without_the_last_one():
    assert make().has_final_observation
    assert not make(observations=np.zeros((4, 2))).has_final_observation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros((6, 2))}, "observations: expected 4 or 5 rows, got 6"),
        ({"observations": np.zeros(5)}, r"observations: expected 2 dimensions, got shape \(5,\)"),
        ({"rewards": np.zeros((4, 1))}, r"rewards: expected 1 dimensions, got shape \(4, 1\)"),
        ({"rewards": np.array([0, 0, np.nan, 1])}, "rewards: nan at step 2"),
        (
            {"actions": np.full((4, 1), 1e300)},
            "actions: 1e\\+300, too large for float32, at step 0",
        ),
        ({"terminations": np.array([0, 1, 0, 0])}, "terminations: set at step 1, before the last"),
        ({"truncations": np.array([0, 0, 0, 2])}, "truncations: expected 0 or 1, got 2 at step 3"),
        ({"rewards": np.array([1.0, 0, 0, 0])}, "rewards: expected 0 at step 0, where no"),
        ({"actions": np.zeros((0, 1))}, "actions: no steps"),
    ],
)
def test_what_is_wrong_is_refused_and_named(changes, message):
    with pytest.raises(DataError, match=message):
        make(**changes)


def test_not_a_number_is_found_at_its_place():
    observations = np.zeros((5, 2))
    observations[3, 1] = np.inf
    with pytest.raises(DataError, match="observations: inf at step 3, dimension 1"):
        make(observations=observations)


def test_values_whose_sum_overflows_are_finite_all_the_same():
    big = np.full((5, 2), np.finfo(np.float32).max, np.float32)
    assert make(observations=big).observations[0, 0] == big[0, 0]


@pytest.mark.parametrize("reward", [1e6 + 0.123456789, 1e300, 5e-324, -1e12 + 1])
def test_rewards_of_any_finite_size_keep_their_digits(reward):
    episode = make(rewards=np.array([0, 0, 0, reward]))
    assert episode.compute_return() == reward
    assert episode.segments()[2][0] == reward
    assert episode.delivered_at_end().rewards[-1] == reward


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_rewards_of_other_types_keep_their_values(dtype):
    rewards = np.array([0, 0, 0, 7]).astype(dtype) / dtype(3 if dtype == np.float32 else 1)
    assert make(rewards=rewards).rewards[-1] == rewards[-1]


def test_return_of_step_rewards_is_discounted_and_of_a_delivered_sum_is_not():
    rewards = np.array([1.0, 2.0, 3.0, 4.0])
    stepwise = make(rewards=rewards, delivered=np.ones(4, np.bool_))
    assert stepwise.compute_return() == 10
    assert stepwise.compute_return(0.5) == 1 + 1 + 0.75 + 0.5
    assert make().compute_return(0.5) == 3
    folded = stepwise.delivered_at_end(0.5)
    assert folded.rewards.tolist() == [0, 0, 0, 3.25]
    assert folded.delivered.tolist() == [False, False, False, True]


def test_segments_cover_the_steps_since_the_last_delivery():
    episode = make(
        rewards=np.array([0, 5.0, 0, 7.0]), delivered=np.array([False, True, False, True])
    )
    starts, stops, amounts = episode.segments()
    assert starts.tolist() == [0, 2]
    assert stops.tolist() == [2, 4]
    assert amounts.tolist() == [5, 7]


def test_an_episode_without_any_delivery_has_no_segment():
    episode = make(rewards=np.zeros(4), delivered=np.zeros(4, np.bool_))
    assert [len(part) for part in episode.segments()] == [0, 0, 0]
    assert not episode.delivered_at_end().delivered.any()


def test_a_set_indexes_without_loading():
    episodes = [make(steps) for steps in (2, 3, 4)]
    loaded = []

    def load(index):
        loaded.append(index)
        return episodes[index]

    whole = EpisodeSet(np.array([2, 3, 4]), load, ("x", "y"), ("a",))
    part = whole[np.array([2, 0])]
    assert loaded == []
    assert part.lengths.tolist() == [4, 2]
    assert len(part[0]) == 4
    assert loaded == [2]
    assert len(whole[-1]) == 4
    assert [len(episode) for episode in whole[1:]] == [3, 4]
    assert whole.total_steps == 9
    with pytest.raises(IndexError):
        whole[3]


def test_a_set_names_its_dimensions_and_refuses_a_mixture():
    episodes = EpisodeSet.from_episodes([make(2), make(3)], action_names=["torque"])
    assert episodes.observation_names == ("s0", "s1")
    assert episodes.action_names == ("torque",)
    assert episodes.compute_returns().tolist() == [3, 3]
    other = make(observations=np.zeros((5, 3)))
    with pytest.raises(DataError, match="episode 1: 3 state and 1 action dimensions"):
        EpisodeSet.from_episodes([make(), other])
    with pytest.raises(DataError, match="2 names for 1 dimensions"):
        EpisodeSet.from_episodes([make()], action_names=["a", "b"])
    with pytest.raises(DataError, match="no episodes"):
        EpisodeSet.from_episodes([])
