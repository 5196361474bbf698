"""Statistics against values that are worked out by hand or by brute force."""

import itertools
import tracemalloc

import numpy as np
import pytest

from grd_offline.core.statistics import (
    RESAMPLES,
    estimate_improvement,
    estimate_mean,
    estimate_share,
    improvement_probability,
    interquartile_mean,
    performance_profile,
    pool,
    profile_band,
    resample,
)

FIRST = [np.array([1.0, 5.0, 3.0]), np.array([10.0, 2.0])]
SECOND = [np.array([3.0, 0.0, 4.0]), np.array([2.0, 1.0])]


def test_interquartile_mean_leaves_out_a_quarter_on_each_side():
    assert interquartile_mean([4, 1, 100, 3, 2]) == 3  # 2, 3 and 4 are left
    assert interquartile_mean([8, 1, 2, 7, 3, 6, 4, -50]) == (2 + 3 + 4 + 6) / 4
    assert interquartile_mean([7.0]) == 7
    assert interquartile_mean([[1, 2, 3], [3, 9, 0]]).tolist() == [2, 4]
    with pytest.raises(ValueError, match="at least one score"):
        interquartile_mean([])


def test_improvement_counts_every_pair_of_seeds():
    # Task 1: 1 beats 0; 5 beats 3, 0 and 4; 3 beats 0 and equals 3: 5.5 of 9.
    # Task 2: 10 beats 2 and 1; 2 beats 1 and equals 2: 3.5 of 4.
    expected = (5.5 / 9 + 3.5 / 4) / 2
    assert improvement_probability(FIRST, SECOND) == pytest.approx(expected)
    assert improvement_probability(SECOND, FIRST) == pytest.approx(1 - expected)
    assert improvement_probability(FIRST, FIRST) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="the same tasks, got 2 and 1"):
        improvement_probability(FIRST, SECOND[:1])


def count_pairs(ours, theirs):
    """The share of wins, pair by pair, with half a win for a tie."""
    gaps = ours[..., :, None] - theirs[..., None, :]
    return ((gaps > 0) + 0.5 * (gaps == 0)).mean(axis=(-2, -1))


@pytest.mark.parametrize(("count", "others"), [(1, 1), (1, 6), (5, 3), (8, 8), (40, 31)])
def test_improvement_is_that_of_all_pairs_to_the_last_bit(count, others):
    rng = np.random.default_rng(count)
    ours = rng.integers(-3, 4, (50, count)) / 7  # with many ties
    theirs = rng.integers(-3, 4, (50, others)) / 7
    ours[0, 0], theirs[1, 0], ours[2, -1], theirs[3, -1] = 0.0, -0.0, np.nan, np.nan
    pairs = ((ours, theirs), (ours[0], theirs[0]), (ours, theirs[1]), (ours[1], theirs))
    for one, other in pairs:
        found = improvement_probability([one, one], [other, other])
        assert np.array_equal(found, count_pairs(one, other))


@pytest.mark.parametrize(("statistic", "most"), [("improvement", 10), ("profile", 4)])
def test_memory_grows_with_the_seeds_alone(statistic, most):
    """Not with the pairs of seeds, which take 400 times the draws here, or the thresholds."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(2, 400))
    tracemalloc.start()
    try:
        if statistic == "improvement":
            estimate_improvement([ours], [theirs], rng)
        else:
            profile_band([ours], np.linspace(0, 1, 61), rng)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most * 8 * RESAMPLES * len(ours)


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    profile = performance_profile(FIRST, [0, 2, 5, 10])
    assert profile.tolist() == [1.0, 3 / 5, 1 / 5, 0.0]


def test_draws_stay_within_their_task():
    drawn = resample(FIRST, np.random.default_rng(0), 500)
    assert [values.shape for values in drawn] == [(500, 3), (500, 2)]
    assert set(drawn[0].ravel()) == {1.0, 3.0, 5.0}
    assert set(drawn[1].ravel()) == {2.0, 10.0}


def all_draws(tasks):
    """Every draw of seeds within tasks, each of which is equally probable."""
    ways = [list(itertools.product(scores, repeat=len(scores))) for scores in tasks]
    return [np.array(one) for one in zip(*itertools.product(*ways), strict=True)]


def test_intervals_agree_with_all_draws():
    exact = np.quantile(interquartile_mean(pool(all_draws(FIRST))), (0.025, 0.975))
    found = estimate_mean(FIRST, np.random.default_rng(1))
    assert found.value == pytest.approx(interquartile_mean(pool(FIRST)))
    assert (found.low, found.high) == pytest.approx(tuple(exact), abs=0.35)
    assert found.low < found.value < found.high


def test_an_interval_of_many_seeds_has_the_width_of_a_normal_mean():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=400)
    found = estimate_mean([scores], rng)
    # The interquartile mean of a normal sample has 0.84 of the efficiency of the mean.
    width = 2 * 1.96 / np.sqrt(400 * 0.84)
    assert found.high - found.low == pytest.approx(width, rel=0.15)


def test_share_and_improvement_with_intervals():
    rng = np.random.default_rng(3)
    share = estimate_share(FIRST, SECOND, rng)
    assert share.value == pytest.approx(
        interquartile_mean([1, 5, 3, 10, 2]) / interquartile_mean([3, 0, 4, 2, 1])
    )
    same = estimate_share([np.full(5, 2.0)], [np.full(5, 4.0)], rng)
    assert (same.value, same.low, same.high) == (0.5, 0.5, 0.5)
    better = estimate_improvement([np.arange(10, 20)], [np.arange(10)], rng)
    assert (better.value, better.low, better.high) == (1, 1, 1)
    unclear = estimate_improvement(FIRST, SECOND, rng)
    assert unclear.low < unclear.value < unclear.high


def test_a_band_surrounds_its_profile():
    thresholds = np.linspace(0, 10, 21)
    low, high = profile_band(FIRST, thresholds, np.random.default_rng(4))
    profile = performance_profile(FIRST, thresholds)
    assert (low <= profile).all()
    assert (profile <= high).all()
    assert (low < high).any()
