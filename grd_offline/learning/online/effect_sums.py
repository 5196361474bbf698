"""Weights of chosen effects, solved for again as episodes finish.

    y = c h + Z w + noise,   w_p ~ N(0, v_p I),   c free

A row is an episode, divided by the root of its length. All that is kept of the rows is one matrix
of sums, [h y Z]^T [h y Z], which a finished episode adds one product to. Variances and noise move
by MacKay's fixed point from where they were, as in `additive.evidence`. Every solve is a
Cholesky factor in float64, of all members at once that have equal sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grd_offline.additive.basis import InputBasis
from grd_offline.additive.equations import Segment, sum_features
from grd_offline.core.steps import StepBatch
from grd_offline.learning.online.effect_search import FIRST, Structure
from grd_offline.learning.online.replay import FinishedEpisode

Array = NDArray[np.float64]
STEPS = 2
"""Steps of the fixed point per solve."""
LEAST_COLUMNS, LEAST_EFFECTS = 64, 16
"""Sizes are these or larger powers of two."""
RANGE = 1e6
"""Factor by which a variance may move from where the search put it, up or down."""


def round_up(number: int, least: int) -> int:
    """The smallest power of two times `least` that is not smaller than the number."""
    size = least
    while size < number:
        size *= 2
    return size


class Problem(NamedTuple):
    """The inputs of a solve. All are float64, and members come first if several are solved."""

    sums: Tensor  # (2 + column, 2 + column)
    rows: Tensor  # ()
    belongs: Tensor
    """(column, effect) 1 where a column is one of the effect's."""
    first_variances: Tensor
    """(effect,) the variances that the search found."""
    floor: Tensor  # ()
    variances: Tensor  # (effect,)
    noise: Tensor  # ()
    weights: Tensor  # (column,)
    constant: Tensor  # ()


def make_problem(structure: Structure, device: torch.device) -> Problem:
    """The problem of a structure, before any further episode."""
    columns = round_up(len(structure.kept), LEAST_COLUMNS)
    effects = round_up(len(structure.variances), LEAST_EFFECTS)
    sums = np.zeros((FIRST + columns, FIRST + columns))
    known = len(structure.sums)
    sums[:known, :known] = structure.sums
    belongs = np.zeros((columns, effects))
    belongs[np.arange(len(structure.effect)), structure.effect] = 1
    variances = np.ones(effects)
    variances[: len(structure.variances)] = structure.variances
    weights = np.zeros(columns)
    weights[: len(structure.kept)] = structure.model.weights[structure.kept]
    numbers: dict[str, Any] = {
        "sums": sums,
        "rows": structure.rows,
        "belongs": belongs,
        "first_variances": variances,
        "floor": structure.floor,
        "variances": variances,
        "noise": structure.noise,
        "weights": weights,
        "constant": structure.model.constant - structure.model.centres @ structure.model.weights,
    }
    made = {
        name: torch.tensor(value, dtype=torch.float64, device=device)
        for name, value in numbers.items()
    }
    return Problem(**made)


def sum_episodes(structure: Structure, episodes: Sequence[FinishedEpisode]) -> Array:
    """(episode, 2 + column) the row of each episode."""
    model, nothing = structure.model, np.zeros(0)
    segments = []
    for episode in episodes:
        length, observed = len(episode.actions), episode.observations
        ended = np.arange(length) == length - 1
        inputs = model.select_inputs(
            StepBatch(observed[:-1], episode.actions, observed[1:], ended & episode.terminated)
        )
        weights = np.ones(length)
        segments.append(Segment(inputs, weights, episode.episode_return, nothing, nothing))
    places = np.arange(len(model.columns))
    basis = InputBasis(places, model.low, model.high, model.tables)
    products = np.zeros((len(episodes), len(model.weights)))
    slices = dict(model.effect_slices())
    for size in set(model.sizes):
        mine = [e for e, own in zip(model.effects, model.sizes, strict=True) if own == size]
        sums = sum_features(iter(segments), len(episodes), basis, mine, size, np.float64)
        for effect, value in sums.items():
            products[:, slices[effect]] = value
    lengths = np.array([len(episode.actions) for episode in episodes], np.float64)
    returns = np.array([episode.episode_return for episode in episodes])
    rows = np.column_stack([lengths, returns, products[:, structure.kept]])
    return np.asarray(rows / np.sqrt(lengths)[:, None])


def add_rows(problem: Problem, rows: Array) -> None:
    """Add the rows (episode, 2 + column) of finished episodes to the sums, in place."""
    if not len(rows):
        return
    every = np.zeros((len(rows), len(problem.sums)))
    every[:, : rows.shape[1]] = rows
    sent = torch.from_numpy(every)
    if problem.sums.is_cuda:  # from there it is read without waiting for the device
        sent = sent.pin_memory()
    sent = sent.to(problem.sums.device, non_blocking=True)
    problem.sums.addmm_(sent.T, sent)
    problem.rows.add_(len(rows))


def solve_again(problems: Sequence[Problem]) -> None:
    """Solve the equations in place.

    Members of equal sizes are solved together on an accelerator. On a CPU each is solved alone, so
    that the result does not depend on the others to the last bit.
    """
    groups: dict[Any, list[Problem]] = {}
    for place, problem in enumerate(problems):
        alone = place if problem.sums.device.type == "cpu" else -1
        groups.setdefault((problem.belongs.shape, alone), []).append(problem)
    for group in groups.values():
        stacked = Problem(*(torch.stack(parts) for parts in zip(*group, strict=True)))
        solved = _solve(stacked)
        for place, problem in enumerate(group):
            for name in ("variances", "noise", "weights", "constant"):
                getattr(problem, name).copy_(getattr(solved, name)[place])


def _solve(given: Problem) -> Problem:
    """The posterior of the weights after some steps of the fixed point."""
    length, total = given.sums[:, 0, 0].unsqueeze(1), given.sums[:, 0, 1].unsqueeze(1)
    along = given.sums[:, 0, FIRST:]  # (member, column) products with the constant
    gram = given.sums[:, FIRST:, FIRST:] - along.unsqueeze(2) * (along / length).unsqueeze(1)
    moment = given.sums[:, FIRST:, 1] - along * (total / length)
    power = given.sums[:, 1, 1] - (total * total / length).squeeze(1)
    unused = 1 - given.belongs.sum(2)
    variances, noise, weights = given.variances, given.noise, given.weights
    is_fine = torch.ones_like(noise, dtype=torch.bool)
    for _ in range(STEPS):
        spread = (given.belongs @ variances.unsqueeze(2)).squeeze(2) + unused
        root = spread.sqrt()
        scaled = root / noise.sqrt().unsqueeze(1)
        system = gram * (scaled.unsqueeze(2) * scaled.unsqueeze(1))
        system.diagonal(dim1=1, dim2=2).add_(1)
        factor, failed = torch.linalg.cholesky_ex(system)
        inner = torch.cholesky_inverse(factor)
        pulled = (inner @ (scaled * moment).unsqueeze(2)).squeeze(2)
        weights = scaled * pulled
        known = (1 - inner.diagonal(dim1=1, dim2=2)).clamp(0, 1)
        gap = power - 2 * (weights * moment).sum(1)
        gap = gap + (weights * (gram @ weights.unsqueeze(2)).squeeze(2)).sum(1)
        is_fine &= (failed == 0) & weights.isfinite().all(1)
        variances, noise = _move(given, variances, weights, known, spread, gap)
    constant = (total.squeeze(1) - (along * weights).sum(1)) / length.squeeze(1)
    found = {"variances": variances, "noise": noise, "weights": weights, "constant": constant}
    for name, value in found.items():
        fine = is_fine.view(-1, *[1] * (value.ndim - 1))
        found[name] = torch.where(fine, value, getattr(given, name))
    return given._replace(**found)


def _move(
    given: Problem, variances: Tensor, weights: Tensor, known: Tensor, spread: Tensor, gap: Tensor
) -> tuple[Tensor, Tensor]:
    """Variances and noise one step further."""
    of_effect = given.belongs.transpose(1, 2)
    strength = (of_effect @ ((weights / spread) ** 2).unsqueeze(2)).squeeze(2)
    traces = (of_effect @ (known / spread).unsqueeze(2)).squeeze(2)
    moved = variances * strength / traces.clamp_min(1e-300)
    moved = torch.minimum(moved, given.first_variances * RANGE)
    moved = torch.maximum(moved, given.first_variances / RANGE)
    left = torch.maximum(given.rows - 1 - known.sum(1), 0.1 * given.rows)
    noise = torch.maximum(gap / left, given.floor)
    return moved, noise
