"""Short cuts of a search among many inputs."""

from dataclasses import replace

import numpy as np
import pytest

from grd_offline.additive import search
from grd_offline.additive.search import EvidenceProblem, measure_losses
from grd_offline.additive.settings import ClosedFormSettings


@pytest.mark.parametrize("rows", [60, 9])  # more rows than columns, and fewer
def test_joint_losses_are_what_removing_the_columns_costs(rows):
    rng, sizes = np.random.default_rng(rows), [3, 4, 2, 5]
    columns = rng.normal(size=(rows, sum(sizes)))
    target = columns[:, 3:7].sum(1) + 0.3 * rng.normal(size=rows)
    variances, noise = np.array([0.1, 1.0, 0.02, 0.4]), 0.2
    whole = EvidenceProblem(columns, sizes, target).solve(variances, noise)
    owners = np.repeat(np.arange(4), sizes)
    groups = [[0], [1], [0, 2], [1, 3]]
    found = measure_losses(whole, [np.flatnonzero(np.isin(owners, g)) for g in groups])
    for group, loss in zip(groups, found, strict=True):
        kept = [k for k in range(4) if k not in group]
        rest = EvidenceProblem(
            columns[:, np.isin(owners, kept)], [sizes[k] for k in kept], target
        ).solve(variances[kept], noise)
        assert loss == pytest.approx(whole.evidence - rest.evidence, rel=1e-6)


def test_a_hasty_search_finds_the_same_inputs():
    rng, rows, inputs = np.random.default_rng(1), 300, 30
    columns = {(i,): search.Block(rng.normal(size=(rows, 2))) for i in range(inputs)}
    weights = {i: 1.0 / (1 + i) for i in range(16)}
    target = sum(weight * columns[i,].columns[:, 0] for i, weight in weights.items())
    target = target + 0.02 * rng.normal(size=rows)
    found = []
    for hasty in (False, True):
        one = replace(ClosedFormSettings(hasty=hasty).rules(), inputs=inputs)
        bank = search.EffectBank(columns, target / target.std())
        every = bank.fit(list(columns), search.NOWHERE, one)
        chosen, losses = search.search_backward(bank, every, one, 4.0, lambda i: i)
        assert set(losses) == set(chosen.inputs)
        found.append(chosen.inputs)
    assert found[0] == found[1] == tuple(range(16))
