"""The closed form of labels: success of episodes, or preferences between pieces of them.

The moments of the transitions compete as they do for returns (`moments`). The last fit is that of
the parabola that `labels` puts in the place of the likelihood, so that bands, and what may hide
from the labels, are measured as for returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import SAME_LENGTH, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.evaluate import give_chance
from grd_offline.core.outcomes import PREFERENCE, SUCCESS
from grd_offline.core.pieces import cut_pieces
from grd_offline.methods.closed_form.choosing import Chosen, EffectChooser
from grd_offline.methods.closed_form.hidden import (
    compute_features,
    find_even,
    measure_hidden,
    spread_moments,
)
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.label_search import search_labels, shake_inputs
from grd_offline.methods.closed_form.labels import LabelBank, LabelSelection
from grd_offline.methods.closed_form.last_fit import ClosedFormFit, LastFit
from grd_offline.methods.closed_form.moments import (
    AUTO,
    BEFORE,
    BOTH,
    END,
    MIDPOINT,
    START,
    prefer,
)
from grd_offline.methods.closed_form.motion import find_motion
from grd_offline.methods.closed_form.outliers import find_errors
from grd_offline.methods.closed_form.search import (
    EffectBank,
    SearchRules,
    Selection,
    search_backward,
)
from grd_offline.methods.closed_form.settings import ClosedFormSettings

Array = NDArray[np.float64]
Progress = Callable[[str, float], None]

_PAIR_SIZE = 6
_ADDED = 3  # effects added per round
_KEPT = 0.9999  # of a block's squared norm, by the columns that stand for it
_FEW = 40  # inputs of which all pairs are candidates
BY_LENGTH = 0.8
"""Share of the variance of labels from which on their episodes' lengths tell too much."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Episodes or pieces of them, and what is known of them."""

    episodes: EpisodeSet
    labels: Array
    combine: Callable[[NDArray[np.floating]], NDArray[np.floating]]
    """Makes one row per label of one row per piece."""
    counts: Array
    """(label,) the steps of its episode, or of both its pieces."""
    outcome: str


def are_labels(episodes: EpisodeSet) -> bool:
    """Whether every episode has one outcome, 0 or 1, and both occur."""
    seen = set()
    for episode in episodes:
        amounts = episode.segments()[2]
        if len(amounts) != 1 or not episode.delivered[-1] or amounts[0] not in (0.0, 1.0):
            return False
        seen.add(float(amounts[0]))
    return len(seen) == 2


def read_labels(episodes: EpisodeSet) -> Labelled:
    """The labels of success, or the preferences, where the episodes have some."""
    if episodes.preferences is not None:
        pieces, first, second = cut_pieces(episodes)
        preferred = episodes.preferences.preferred
        counts = (pieces.lengths[first] + pieces.lengths[second]).astype(np.float64)
        return Labelled(
            pieces, preferred, lambda sums: sums[first] - sums[second], counts, PREFERENCE
        )
    if not are_labels(episodes):
        raise DataError("expected one outcome per episode, 0 or 1, and both of them")
    amounts = np.array([episode.rewards[-1] for episode in episodes], np.float64)
    counts = episodes.lengths.astype(np.float64)
    return Labelled(episodes, amounts, lambda sums: sums, counts, SUCCESS)


def fit_labels(
    episodes: EpisodeSet,
    settings: ClosedFormSettings,
    rng: np.random.Generator,
    progress: Progress,
) -> ClosedFormFit:
    """Find effects, variances and weights of the reward behind labels."""
    given = read_labels(episodes)
    asked = BOTH if settings.next_state else settings.state_at
    motion = find_motion(given.episodes)
    tried = (START,) if motion.start_only else (MIDPOINT, START, END)
    moments = tried if asked == AUTO else (asked,)
    searches: dict[str, _MomentOfLabels] = {}
    for moment in moments:
        first = next(iter(searches.values()), None)
        searches[moment] = _MomentOfLabels(given, moment, settings, rng, progress, first)
        searches[moment].search()
    evidence = {moment: one.found.fit.evidence for moment, one in searches.items()}
    preferred = prefer(evidence, firmly=False, jumps=motion.jumps)
    best = searches[preferred if asked == AUTO else asked]
    best.refine()
    if asked == AUTO:
        evidence[best.data.state_at] = best.found.fit.evidence
        if best.data.state_at == START:
            before = _MomentOfLabels(given, BEFORE, settings, rng, progress)
            evidence[BEFORE] = before.measure(best)
    return _LabelFit(best, rng).finish(evidence if asked == AUTO else {})


class _MomentOfLabels:
    """The search for effects behind labels, with states at one moment of the transitions."""

    def __init__(
        self,
        given: Labelled,
        moment: str,
        settings: ClosedFormSettings,
        rng: np.random.Generator,
        progress: Progress,
        first: _MomentOfLabels | None = None,
    ) -> None:
        """The search begins with the effects that another one found first."""
        self.first = first
        self.given, self.settings, self.progress = given, settings, progress
        self.chooser = EffectChooser(
            given.episodes, moment, settings, rng, progress, combine=given.combine
        )
        self.data = self.chooser.data
        self.found: Selection
        self.scores: dict[int, float] = {}
        self.pair_size = min(_PAIR_SIZE, self.chooser.find_search_size(self.data.inputs))

    @property
    def rules(self) -> SearchRules:
        """The thresholds of the search; no effect is kept without evidence."""
        return replace(self.chooser.rules, add_most=_ADDED, kept=frozenset())

    @cached_property
    def length_share(self) -> float | None:
        """Share of the variance of labels that the lengths of episodes explain by themselves.

        None if a base could not be told from a constant reward, because lengths hardly differ.
        """
        labels, totals = self.given.labels, self.data.totals
        if self.given.outcome != SUCCESS or not totals.any():
            return None
        apart = 1 - totals * (totals.sum() / (totals @ totals))
        if float(np.sqrt((apart**2).mean())) <= SAME_LENGTH:
            return None
        alone = LabelBank({}, labels, totals, has_base=True).fit([], {}, 1.0, self.rules)
        errors = labels - give_chance(alone.logits)
        return 1 - float(errors @ errors) / float(((labels - labels.mean()) ** 2).sum())

    @property
    def has_base(self) -> bool:
        """Whether a part of eta belongs to no step.

        Where the length tells the label by itself, it is rather a consequence: episodes end because
        they failed, or because they succeeded. Then a base would leave nothing to explain.
        """
        return self.length_share is not None and self.length_share < BY_LENGTH

    @cached_property
    def bank(self) -> LabelBank:
        """The columns of the candidate effects."""
        inputs = list(range(self.data.inputs))
        mains = [(i,) for i in inputs]
        bank = self.build(mains)
        if self.settings.order < 2:
            return bank
        if len(inputs) > _FEW:
            chosen = search_labels(bank, list(bank.columns), self.rules)
            inputs = self.data.expand_inputs(chosen.effects)
        bank.join(self.build(list(combinations(self.data.find_joint(inputs), 2))))
        return bank

    def build(self, effects: Sequence[Effect]) -> LabelBank:
        """Columns of these effects, for labels: few that stand for all."""
        bank = LabelBank({}, self.given.labels, self.data.totals, has_base=self.has_base)
        bank.join(self.build_scaled(effects, plain=True))
        bank.columns = {
            effect: _compress(block, bank.fixed) for effect, block in bank.columns.items()
        }
        return bank

    def build_scaled(self, effects: Sequence[Effect], *, plain: bool = False) -> EffectBank:
        """Columns of these effects, by default for the amounts that the source now holds."""
        mains = [effect for effect in effects if len(effect) == 1]
        pairs = [effect for effect in effects if len(effect) == 2]
        bank = self.data.build_bank(mains, self.settings.basis, plain=plain)
        bank.join(self.data.build_bank(pairs, self.pair_size, plain=plain))
        return bank

    def search(self) -> None:
        """Find the effects, and leave out the inputs that carry little."""
        self.progress("effects", 0.0)
        start = [] if self.first is None else self.translate(self.first)
        candidates = list(self.bank.columns)
        self._settle(search_labels(self.bank, candidates, self.rules, start=start))

    def refine(self) -> None:
        """Search again among more effects."""
        self.progress("other effects", 0.0)
        candidates = list(self.bank.columns)
        self._settle(shake_inputs(self.bank, self.found, candidates, self.rules))

    def _settle(self, found: Selection) -> None:
        gained = found.fit.evidence - self.bank.null_evidence
        threshold = self.settings.find_input_loss(gained)
        self.found, self.scores = search_backward(
            self.bank, found, self.rules, threshold, self.data.column
        )

    def translate(self, other: _MomentOfLabels) -> list[Effect]:
        """The effects that were found at another moment, as effects of this one."""
        known = [self.data.translate(e, other.data) for e in other.found.effects]
        return [effect for effect in known if effect is not None]

    def measure(self, other: _MomentOfLabels) -> float:
        """Log evidence here of the effects that were found at another moment."""
        effects = self.translate(other)
        guesses, noise = other.found.start()
        return self.build(effects).fit(effects, guesses, noise, self.rules).fit.evidence


def _compress(block: NDArray[np.floating], fixed: Array) -> NDArray[np.floating]:
    """The directions of a block's weights that move labels, as columns."""
    directions = np.linalg.qr(fixed)[0]
    free = block - directions @ (directions.T @ block)
    squares, rotation = np.linalg.eigh((free.T @ free).astype(np.float64))
    shares = np.cumsum(np.maximum(squares[::-1], 0.0))
    count = int(np.searchsorted(shares, _KEPT * shares[-1])) + 1
    return np.asarray(block @ rotation[:, ::-1][:, :count].astype(block.dtype))


class _LabelFit(LastFit):
    """The last fit, to the parabola in the place of the likelihood of the labels."""

    def __init__(self, search: _MomentOfLabels, rng: np.random.Generator) -> None:
        chosen = Chosen(search.found, search.bank, search.bank.null_evidence, False)
        super().__init__(search.chooser, chosen, rng)
        self.search = search
        assert isinstance(search.found, LabelSelection)
        self.logits, self.base = search.found.logits, search.found.base

    @cached_property
    def found(self) -> tuple[Selection, EffectBank, dict[int, float], int]:
        """The effects found, as a fit to amounts with known noise."""
        amounts, root = self.search.bank.find_parabola(self.logits)
        self.data.take_amounts(amounts - self.base, root**2)
        selection = self.search.found
        bank = self.search.build_scaled(selection.effects)
        if not self.search.bank.has_constant:
            self._centre(bank)
        guesses, _ = selection.start()
        power = self.data.unit**2
        scaled = {effect: variance / power for effect, variance in guesses.items()}
        last = bank.fit(
            list(selection.effects), scaled, 1 / power, self.rules, free=False, iterations=0
        )
        return last, bank, self.search.scores, 0

    def _centre(self, bank: EffectBank) -> None:
        """Let rewards have mean 0 over the data, where labels say nothing about their level."""
        for effect in bank.columns:
            features = compute_features(self.data, bank, [effect], self.data.probe)
            bank.averages[effect] = bank.averages[effect] + features.mean(0)

    def finish(self, evidence: dict[str, float]) -> ClosedFormFit:
        """The reward model, and how well labels pin it down."""
        result = self.run(evidence)
        labels, outcome = self.search.given.labels, self.search.given.outcome
        left_out = self._leave_out()
        power = max(float(((labels - labels.mean()) ** 2).sum()), 1e-300)
        errors = [
            float(((labels - give_chance(eta)) ** 2).sum()) for eta in (self.logits, left_out)
        ]
        return replace(
            result,
            model=replace(
                result.model,
                outcome=outcome,
                base=self.base,
                noise_variance=0.0,
                lasting_share=0.0,
            ),
            evidence=self.search.found.fit.evidence,
            noise=0.0,
            return_r2=1 - errors[0] / power,
            left_out_r2=1 - errors[1] / power,
            even_inputs=find_even(self.data, self.search.given.counts),
            outcome=outcome,
            length_share=self.search.length_share or 0.0,
        )

    def _leave_out(self) -> Array:
        """(row,) the logit of each label if it is left out of the last fit."""
        amounts, root = self.search.bank.find_parabola(self.logits)
        errors = find_errors(self.found[0].fit, self.data.equations)
        return np.asarray(amounts - errors * self.data.unit / root)

    def _find_history(self, last: Selection, bank: EffectBank) -> dict[str, float]:
        """Labels say too little about the past and the time."""
        return {}

    def _find_hidden(
        self, last: Selection, bank: EffectBank, evidence: Mapping[str, float]
    ) -> tuple[dict[str, Array], float]:
        """Find what labels cannot exclude. Their noise is chance, not an error of the reward."""
        hidden = measure_hidden(self.data, last, bank, evidence)
        moment = spread_moments(self.data, last, bank, evidence, firmly=False)
        return {**hidden, "moment": moment * self.data.unit**2}, 0.0
