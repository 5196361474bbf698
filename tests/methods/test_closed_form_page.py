"""docs/concepts/closed-form.md: its equations, computed again in plain numpy, and its names."""

import re
from dataclasses import fields, is_dataclass
from functools import reduce
from importlib import import_module

import numpy as np
import pytest
from places import ROOT

from grd_offline.additive.equations import ColumnSource
from grd_offline.additive.hidden import compute_features
from grd_offline.additive.moments import ADVANTAGE
from grd_offline.additive.search import EvidenceProblem, Selection
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet

PAGE = (ROOT / "docs" / "concepts" / "closed-form.md").read_text()
PACKAGES = ("grd_offline.additive", "grd_offline.methods.closed_form")
DISCOUNT, VARIANCES, NOISE = 0.9, np.array([0.7, 0.2]), 0.05


def make_episodes(rng):
    """Episodes of two states with few values, so that a short basis holds the whole kernel."""
    made = []
    for length in rng.integers(3, 8, 12):
        states = rng.integers(0, 5, (length + 1, 2)) * [1.0, 0.5]
        last = np.arange(length) == length - 1
        amount = rng.normal() + (DISCOUNT ** np.arange(length) * states[:-1, 0]).sum()
        flags = {"terminations": np.zeros(length, bool), "truncations": last, "delivered": last}
        actions = np.zeros((length, 0))
        made.append(Episode(states, actions, rewards=last * amount, **flags))
    return EpisodeSet.from_episodes(made)


def center_kernel(steps, others):
    """The centred kernel of the page between two sets of values, over the values of `steps`."""
    middle, spread = steps.mean(), steps.std()

    def kernel(left, right):
        left, right = (left - middle) / spread, (right - middle) / spread
        distance = np.sqrt(5) * np.abs(left[:, None] - right) / 2
        return np.outer(left, right) + (1 + distance + distance**2 / 3) * np.exp(-distance)

    whole = kernel(steps, steps)
    means = kernel(others, steps).mean(1), kernel(others, steps).mean(1)
    return kernel(others, others) - means[0][:, None] - means[1] + whole.mean()


@pytest.fixture(scope="module")
def problem():
    """What the code computes, and the same steps and amounts as plain arrays."""
    episodes = make_episodes(np.random.default_rng(0))
    data = ColumnSource(
        episodes,
        state_at="start",
        discount=DISCOUNT,
        sample=10_000,
        sizes=(8, 2),
        rng=np.random.default_rng(0),
    )
    effects = [(0,), (1,)]
    bank = data.build_bank(effects, 8)
    columns = np.concatenate([bank[effect].columns for effect in effects], 1)
    fit = EvidenceProblem(columns, (8, 8), data.target).solve(VARIANCES, NOISE)
    steps = np.concatenate([episode.observations[:-1] for episode in episodes]).astype(float)
    return data, bank, Selection(tuple(effects), fit), steps


def solve_by_hand(problem):
    """y, h, the covariance C without the constant removed, and rows of weights of the steps."""
    data, _, _, steps = problem
    weights = np.zeros((len(data.episodes), len(steps)))
    amounts, start = np.zeros(len(weights)), 0
    for j, episode in enumerate(data.episodes):
        weights[j, start : start + len(episode)] = DISCOUNT ** np.arange(len(episode))
        amounts[j], start = episode.rewards[-1], start + len(episode)
    sizes = np.sqrt((weights**2).sum(1))
    rows = weights / sizes[:, None]
    kernels = []
    for place in (0, 1):
        kernel = center_kernel(steps[:, place], steps[:, place])
        kernels.append(kernel / np.diag(kernel).mean())  # kappa squared
    prior = np.tensordot(VARIANCES, np.stack(kernels), 1)  # of the reward of each step
    covariance = NOISE * np.eye(len(rows)) + rows @ prior @ rows.T
    return amounts / sizes, rows.sum(1), covariance, rows, prior


def remove_constant(h):
    """(row, row - 1) an orthonormal basis of what does not contain the constant."""
    return np.linalg.svd(h[:, None])[0][:, 1:]


def test_the_evidence_is_that_of_returns_with_the_constant_integrated_out(problem):
    _, _, selection, _ = problem
    y, h, covariance, _, _ = solve_by_hand(problem)
    free = remove_constant(h)
    y, covariance = free.T @ y, free.T @ covariance @ free
    y = y / np.sqrt((y**2).mean())
    determinant, quadratic = np.linalg.slogdet(covariance)[1], y @ np.linalg.solve(covariance, y)
    by_hand = -0.5 * (len(y) * np.log(2 * np.pi) + determinant + quadratic)
    assert selection.fit.evidence == pytest.approx(by_hand, rel=1e-5)


def test_rewards_and_their_spread_are_those_of_a_gaussian_process(problem):
    data, bank, selection, steps = problem
    y, h, covariance, rows, prior = solve_by_hand(problem)
    free = remove_constant(h)
    unit = np.sqrt(((free.T @ y) ** 2).mean())
    gain = prior @ rows.T @ free @ np.linalg.inv(free.T @ covariance @ free) @ free.T
    mean = gain @ y / unit
    spread = prior - gain @ rows @ prior
    # The constant is what the other effects leave of the weighted average of the amounts.
    average = (h @ rows) / (h @ h)  # of the steps, so that m = average @ features
    mean = mean - average @ mean + h @ y / (h @ h) / unit
    centre = np.eye(len(steps)) - average
    spread = centre @ spread @ centre.T
    width = data.episodes.state_size + 1
    inputs = np.concatenate([steps, np.zeros((len(steps), width - 2))], 1)
    features = compute_features(data, bank, selection.effects, inputs)
    found = features @ selection.fit.weights + data.mean
    np.testing.assert_allclose(found, mean, atol=1e-5)
    variances = (features * selection.fit.apply_covariance(features.T).T).sum(1)
    np.testing.assert_allclose(variances, np.diag(spread), atol=1e-5)


def find_names():
    """Names of functions on the page: a module of the package, a dot, and what is in it."""
    modules = {
        path.stem: f"{package}.{path.stem}"
        for package in PACKAGES
        for path in (ROOT / package.replace(".", "/")).glob("*.py")
    }
    names = re.findall(r"`([a-z_]+)\.([\w.]+)`", PAGE)
    return sorted({(modules[one], name) for one, name in names if one in modules and name != "py"})


def test_the_page_names_functions_that_exist():
    names = find_names()
    assert len(names) > 25
    for module, name in names:
        *path, last = name.split(".")
        owner = reduce(getattr, path, import_module(module))
        known = {field.name for field in fields(owner)} if is_dataclass(owner) else set()
        assert hasattr(owner, last) or last in known, f"{module}.{name}"


def test_the_page_has_the_thresholds_of_the_code():
    settings = ClosedFormSettings()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    for name, value in rows:
        assert getattr(settings, name) == float(value)
    for moment, advantage in ADVANTAGE.items():
        assert f"b_{{\\text{{{moment}}}}} = {advantage:.0f}" in " ".join(PAGE.split())
