"""What a person sees of a run while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from grd_offline.online.run import Evaluation, Run


class Lines:
    """A line per group of members and evaluation."""

    def on_round(self, run: Run) -> None:
        """Nothing: rounds are too many."""

    def on_evaluation_start(self, run: Run) -> None:
        """Nothing yet."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """One line per member."""
        for member, returns in zip(run.members, evaluation.returns, strict=True):
            click.echo(f"step {evaluation.step:,}  {member.name}  {returns.mean():.1f}", err=True)


@contextmanager
def show_run(run: Run) -> Iterator[None]:
    """Show how the run does."""
    run.observers.append(Lines())
    yield
