import numpy as np
import pytest
from scipy import stats

from grd_offline.core.statistics import (
    LEVELS,
    affine_error,
    compare_all_masks,
    compare_masks,
    compare_rewards,
    compute_calibration,
    compute_coverage,
    pearson,
    r_squared,
    spearman,
)


def test_correlations_agree_with_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=50).round(1), rng.normal(size=50).round(1)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert pearson(x, np.ones(50)) == 0


def test_the_error_does_not_see_an_affine_change():
    rng = np.random.default_rng(0)
    true, noise = rng.normal(size=500), rng.normal(size=500)
    predicted = 3 * (true + noise) - 7
    slope, offset = np.polyfit(predicted, true, 1)
    expected = np.mean((true - slope * predicted - offset) ** 2) / true.var()
    assert affine_error(predicted, true) == pytest.approx(expected)


def test_r_squared_of_the_mean_is_zero():
    y = np.array([1.0, 2.0, 6.0])
    assert r_squared(np.full(3, 3.0), y) == 0
    assert r_squared(y, y) == 1


def test_within_episodes_ignores_differences_between_them():
    true = [np.array([1.0, 2.0, 3.0]), np.array([11.0, 12.0, 13.0])]
    predicted = [np.array([2.0, 4.0, 6.0]), np.array([-1.0, 0.0, 1.0])]
    result = compare_rewards(predicted, true)
    assert result["pearson_within_episodes"] == pytest.approx(1)
    assert result["pearson"] < 0


def test_coverage_of_a_normal_variable():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=100_000)
    assert compute_coverage(np.zeros(100_000), np.ones(100_000), errors) == pytest.approx(
        0.9, abs=0.005
    )


def test_masks():
    scores = compare_masks([1, 1, 0, 0], [1, 0, 1, 0])
    assert scores == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert compare_masks([0, 0], [0, 0])["f1"] == 1
    assert compare_masks([0, 0], [1, 0])["f1"] == 0
    with pytest.raises(ValueError, match="expected shape"):
        compare_masks([1], [1, 0])


def test_the_true_compact_state_follows_from_the_true_graph():
    true = {"state_to_reward": [1, 0, 0], "state_to_state": [[1, 0, 0], [1, 1, 0], [0, 0, 1]]}
    found = {**true, "compact": {"closure": [1, 1, 0], "one_hop": [1, 0, 0]}}
    scores = compare_all_masks(found, true)
    assert scores["compact_closure"]["f1"] == 1
    assert scores["compact_one_hop"]["recall"] == 0.5


def test_calibration_counts_by_quantiles_of_the_normal():
    error = stats.norm.ppf((1 + np.linspace(0.005, 0.995, 100)) / 2)  # one for each per cent
    found = compute_calibration(np.zeros(100), np.full(100, 2.0), 2.0 * error)
    assert found == pytest.approx(LEVELS)
    assert compute_calibration([0.0], [1.0], [50.0]) == [0.0] * len(LEVELS)
