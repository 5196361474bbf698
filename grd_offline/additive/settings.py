"""The settings of the closed form."""

from __future__ import annotations

from dataclasses import dataclass

from grd_offline.additive.bars import BARS
from grd_offline.additive.moments import AUTO, CHOICES
from grd_offline.additive.search import SearchRules
from grd_offline.core.outcomes import CHOICES as OUTCOMES
from grd_offline.core.settings import COUNT, RATE, Settings, setting


@dataclass(frozen=True)
class ClosedFormSettings(Settings):
    """Settings of the search of the closed form. The defaults worked on every task that was
    tried."""

    next_state: bool = False
    """Offer states and next states as separate inputs."""
    state_at: str = setting(AUTO, names=CHOICES)
    """The moment of a transition at which the reward looks at the state: see `moments`."""
    outcome: str = setting(AUTO, names=OUTCOMES)
    """Whether outcomes are numbers, or 1 for success and 0 for failure."""
    discount: float = setting(1.0, **RATE)
    """Discount factor: step t, counted from the start of the episode, has the weight discount^t."""
    order: int = setting(4, at_least=1, at_most=4)
    """Largest number of inputs in one effect, 1 to 4."""
    basis: int = setting(8, **COUNT)
    """Number of features per input during the search."""
    final_basis: int = setting(14, **COUNT)
    """Number of features per input in the last fit."""
    rough_basis: int = 28
    """Number of features per input with corners and jumps, which the last fit offers."""
    triple_basis: int = setting(5, **COUNT)
    """Number of features per input in effects of three inputs."""
    quadruple_basis: int = setting(3, **COUNT)
    """Number of features per input in effects of four inputs."""
    sample: int = setting(50_000, **COUNT)
    """Number of steps that are kept to find ranges, quantiles and scales."""
    memory: int = setting(400_000_000, **COUNT)
    """Bytes that the columns of candidate pairs may take. Beyond it, the search uses a smaller
    basis."""
    search_floor: float = 1e-3
    """Smallest noise variance while effects are chosen, as a share of the returns' variance."""
    noise_floor: float = 1e-6
    """Smallest noise variance in the last fit, as a fraction of the variance of the returns."""
    add_gain: float = 1.0
    """Log evidence that an effect has to gain to be added."""
    new_input: float = 1.5
    """Further log evidence that an effect has to gain for each input that no other effect has
    yet."""
    drop_loss: float = 1.0
    """Log evidence that an effect has to carry to stay."""
    gain_share: float = 0.003
    """Both thresholds are at least this fraction of the evidence gained so far."""
    input_loss: float = 4.0
    """Smallest log evidence that an input has to carry to stay."""
    input_share: float = 0.015
    """Log evidence that an input has to carry, as a fraction of all evidence gained, if that is
    more (at most 20)."""
    joint_gain: float = 20.0
    """Log evidence that an effect of three or four inputs has to gain."""
    few: int = 150
    """With fewer amounts, effects are averaged over models instead of chosen."""
    decided: float = 0.95
    """Effects are also averaged if less than this fraction of the variance of left-out amounts is
    explained."""
    sweeps: int = setting(40, at_least=4)
    """Number of sweeps of the sampler that draws the models."""
    rank: int = setting(128, **COUNT)
    """Number of columns of the factor of the posterior covariance."""
    most_paired: int = 1_000_000
    """With more inputs than this, pairs are looked for among the chosen main effects alone."""
    switches: bool = True
    """Whether the fit looks for thresholds."""
    hasty: bool = False
    """Take short cuts where there are many columns or many inputs."""
    reach: float = setting(0.0, at_least=0, below=10)
    """Part of an input's range by which its grid goes beyond the data, at each end."""

    def find_input_loss(self, gained: float) -> float:
        """Log evidence that an input has to carry, given what all inputs gain."""
        return min(20.0, max(self.input_loss, self.input_share * gained))

    def basis_of(self, order: int) -> int:
        """Features per input of an effect of so many inputs, in the last fit."""
        return {3: self.triple_basis, 4: self.quadruple_basis}.get(order, self.final_basis)

    def rules(self) -> SearchRules:
        """The thresholds of the search."""
        return SearchRules(self, self.search_floor, BARS.add_most)
