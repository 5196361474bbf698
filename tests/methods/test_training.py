"""Training of several members at once: updates that are not finite, schedules, optimisers."""

from __future__ import annotations

import pytest
import torch

from grd_offline.methods.training import Trainer, make_adam
from grd_offline.networks.members.optimiser import Adam, step_together


class Point(torch.nn.Module):
    """Two members of some numbers each."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(torch.tensor([numbers, numbers]))


def make_trainer(point: Point) -> tuple[Trainer, Adam]:
    adam = make_adam(point, 0.1)
    return Trainer([adam], torch.Generator()), adam


def test_a_bad_step_is_left_out_as_if_it_had_not_been() -> None:
    results = []
    for factors in ([1.0, torch.nan, 2.0, torch.inf], [1.0, 2.0]):
        point = Point(1.0, -2.0)
        trainer, adam = make_trainer(point)
        for factor in factors:
            adam.step(factor * point.values.square().sum(1))
        results.append(point.values.detach().clone())
    assert torch.equal(*results)
    assert trainer.skipped == 0


def test_a_bad_step_of_one_member_leaves_the_others_alone() -> None:
    point = Point(1.0)
    trainer, adam = make_trainer(point)
    adam.step(point.values.sum(1) * torch.tensor([1.0, torch.nan]))
    assert point.values.flatten().tolist() == pytest.approx([0.9, 1.0])
    assert trainer.skipped == 1


def test_too_many_bad_steps_end_the_run() -> None:
    point = Point(1.0)
    trainer, adam = make_trainer(point)
    with pytest.raises(RuntimeError, match="training: 24 of 24 updates gave a loss or gradient"):
        trainer.run(lambda: adam.step(point.values.sum(1) * torch.nan), 40, every=24)
    assert point.values.flatten().tolist() == [1.0, 1.0]


def test_a_gradient_alone_can_be_bad() -> None:
    point = Point(0.0)
    trainer, adam = make_trainer(point)
    adam.step(point.values.sqrt().sum(1))  # value 0, slope infinite
    assert (trainer.skipped, point.values.flatten().tolist()) == (1, [0.0, 0.0])


def test_schedule_scales_the_rate() -> None:
    point = Point(0.0)
    trainer, adam = make_trainer(point)
    trainer.run(lambda: adam.step(point.values.sum(1)), 4, schedule=lambda done: float(done < 0.5))
    # Adam moves by the rate
    assert point.values.flatten().tolist() == pytest.approx([-0.2] * 2, abs=1e-5)


def test_optimisers_can_step_together() -> None:
    """Each moves its own numbers, as if it had been alone with the others' as they are."""
    ends = []
    for together in (True, False):
        points = [Point(1.0, 2.0), Point(3.0, 0.5)]
        adams = [make_trainer(point)[1] for point in points]
        losses = (points[0].values * points[1].values.square()).sum(1)
        if together:
            step_together(adams, losses)
        else:
            for adam in adams:
                gradients = torch.autograd.grad(losses.sum(), adam.wanted, retain_graph=True)
                adam.apply(gradients, losses.detach())
        ends.append([point.values.detach().clone() for point in points])
    for one, two in zip(*ends, strict=True):
        assert torch.equal(one, two)
    assert not torch.equal(ends[0][0], Point(1.0, 2.0).values)
