"""The settings of the closed form."""

from __future__ import annotations

from dataclasses import dataclass

from grd_offline.methods.closed_form.moments import AUTO, CHOICES
from grd_offline.methods.closed_form.search import SearchRules
from grd_offline.outcomes import CHOICES as OUTCOMES


@dataclass(frozen=True)
class ClosedFormSettings:
    """How the closed form searches and what it may spend; the defaults serve every task tried."""

    next_state: bool = False
    """Offer states and next states as separate inputs."""
    state_at: str = AUTO
    """The moment of a transition at which the reward looks at the state: see `moments`."""
    outcome: str = AUTO
    """Whether outcomes are numbers, or 1 for success and 0 for failure."""
    discount: float = 1.0
    """Weight of step t within a delivered amount: discount^t, t from the episode's start."""
    order: int = 4
    """Largest number of inputs in one effect, 1 to 4."""
    basis: int = 8
    """Features per input while searching."""
    final_basis: int = 14
    """Features per input in the last fit."""
    rough_basis: int = 28
    """Features per input with corners and jumps, offered in the last fit."""
    triple_basis: int = 5
    """Features per input in effects of three."""
    quadruple_basis: int = 3
    """Features per input in effects of four."""
    sample: int = 50_000
    """Steps kept to find ranges, quantiles and scales."""
    memory: int = 400_000_000
    """Bytes that columns of candidate pairs may take; a smaller basis is searched beyond it."""
    search_floor: float = 1e-3
    """Smallest noise variance while effects are chosen, as a share of the returns' variance."""
    noise_floor: float = 1e-6
    """The same in the last fit."""
    add_gain: float = 1.0
    """Log evidence an effect has to gain to be added."""
    new_input: float = 1.5
    """And for each of its inputs that no other effect has yet, so much more."""
    drop_loss: float = 1.0
    """Log evidence an effect has to carry to stay."""
    gain_share: float = 0.003
    """Both are at least this share of the evidence gained so far."""
    input_loss: float = 4.0
    """Log evidence an input has to carry to stay, at least."""
    input_share: float = 0.015
    """The same as a share of all evidence gained, where that is more (but not beyond 20)."""
    joint_gain: float = 20.0
    """Evidence an effect of three or four inputs has to gain."""
    few: int = 150
    """With fewer amounts, effects are averaged over models instead of chosen."""
    decided: float = 0.95
    """And where less than this share of left-out amounts' variance is explained."""
    sweeps: int = 40
    """Of the sampler that draws the models."""
    rank: int = 128
    """Columns of the factor that stands for the posterior covariance."""
    most_paired: int = 1_000_000
    """With more inputs than this, pairs are looked for among the chosen main effects alone."""
    switches: bool = True
    """Look for thresholds."""
    hasty: bool = False
    """Take short cuts where there are many columns or many inputs."""
    reach: float = 0.0
    """Part of an input's range by which its grid goes beyond the data, at each end."""

    def __post_init__(self) -> None:
        if self.state_at not in CHOICES:
            expected = ", ".join(CHOICES)
            raise ValueError(f"state_at: expected one of {expected}, got {self.state_at!r}")
        if self.outcome not in OUTCOMES:
            expected = ", ".join(OUTCOMES)
            raise ValueError(f"outcome: expected one of {expected}, got {self.outcome!r}")
        if self.order not in (1, 2, 3, 4):
            raise ValueError(f"order: expected 1, 2, 3 or 4, got {self.order!r}")
        if not 0 < self.discount <= 1:
            raise ValueError(f"discount: expected more than 0, at most 1, got {self.discount!r}")
        for name in (
            "basis",
            "final_basis",
            "triple_basis",
            "quadruple_basis",
            "sample",
            "memory",
            "rank",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)!r}")
        if not 0 <= self.reach < 10:
            raise ValueError(f"reach: expected at least 0, less than 10, got {self.reach!r}")
        if self.sweeps < 4:
            raise ValueError(f"sweeps: expected at least 4, got {self.sweeps!r}")

    def find_input_loss(self, gained: float) -> float:
        """Log evidence an input has to carry, given what all of them gain."""
        return min(20.0, max(self.input_loss, self.input_share * gained))

    def basis_of(self, order: int) -> int:
        """Features per input of an effect of so many inputs, in the last fit."""
        return {3: self.triple_basis, 4: self.quadruple_basis}.get(order, self.final_basis)

    def rules(self) -> SearchRules:
        """The thresholds of the search."""
        return SearchRules(
            add_gain=self.add_gain,
            new_input=self.new_input,
            add_share=0.2,
            add_most=6,
            rounds=15,
            drop_loss=self.drop_loss,
            gain_share=self.gain_share,
            noise_floor=self.search_floor,
            iterations=60,
            hasty=self.hasty,
        )
