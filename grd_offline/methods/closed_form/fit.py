"""Return decomposition in closed form: the reward as a sum of effects, found by their evidence.

The route of the paper's identifiability proof with functions for its fixed basis. A delivered
amount is linear in the weights of g, since it is a sum of g over its steps:

    R_j = sum_{t in segment j} gamma^t g(x_t, a_t, d_t) + noise,   g = c + sum_p phi_p w_p

Here x_t is the state at some moment of the transition (`moments` chooses it), and d_t says whether
the episode terminated at step t. Each effect (an input, a pair, a triple) is a Gaussian process
with a variance of its own. `inputs` sums features over segments, `evidence` finds the variances,
and `choosing` decides which effects and inputs stay. Where amounts are too few or too noisy for
that, `average` averages over the models that they leave possible. `last_fit` then makes the reward
model, and `hidden` measures what returns cannot tell about it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.outcomes import SUCCESS
from grd_offline.methods.closed_form.choosing import Chosen, EffectChooser
from grd_offline.methods.closed_form.label_fit import are_labels, fit_labels
from grd_offline.methods.closed_form.last_fit import ClosedFormFit, LastFit
from grd_offline.methods.closed_form.moments import (
    AUTO,
    BEFORE,
    BOTH,
    END,
    MIDPOINT,
    NEAR,
    START,
    prefer,
)
from grd_offline.methods.closed_form.motion import find_motion
from grd_offline.methods.closed_form.noise import NoiseKind
from grd_offline.methods.closed_form.outliers import FAR_WEIGHT, FEWEST, FEWEST_EVENTS
from grd_offline.methods.closed_form.settings import ClosedFormSettings
from grd_offline.methods.closed_form.switches import translate_switch

Progress = Callable[[str, float], None]

_CLEAR = 0.95
"""Fraction of left-out labels that must be predicted before they may be taken for numbers."""
_EXACT = 0.98
"""Fraction of their variance that must be explained before they are taken for numbers."""


def fit_closed_form(
    episodes: EpisodeSet,
    settings: ClosedFormSettings,
    rng: np.random.Generator,
    progress: Progress = lambda stage, share: None,
) -> ClosedFormFit:
    """Find effects, variances and weights of the reward behind the outcomes.

    Where outcomes are 0 or 1 they are labels of success. But where a reward explains them exactly
    as numbers, as one that is paid at a goal, they are taken as numbers.
    """
    if episodes.preferences is None and not _has_labels(episodes, settings):
        return _fit_numbers(episodes, settings, rng, progress)
    found = fit_labels(episodes, settings, rng, progress)
    if found.outcome != SUCCESS or settings.outcome == SUCCESS or found.left_out_r2 < _CLEAR:
        return found
    plain = _fit_numbers(episodes, settings, rng, progress)
    return plain if plain.left_out_r2 >= _EXACT else found


def _has_labels(episodes: EpisodeSet, settings: ClosedFormSettings) -> bool:
    asked = settings.outcome
    return asked == SUCCESS or (asked == AUTO and are_labels(episodes))


def _fit_numbers(
    episodes: EpisodeSet,
    settings: ClosedFormSettings,
    rng: np.random.Generator,
    progress: Progress,
) -> ClosedFormFit:
    asked = BOTH if settings.next_state else settings.state_at
    if asked != AUTO:
        chooser = EffectChooser(episodes, asked, settings, rng, progress)
        return LastFit(chooser, chooser.settle_noise(chooser.choose()), rng).run({})
    return _MomentSearch(episodes, settings, rng, progress).run()


class _MomentSearch:
    """A fit at the midpoint, compared with the ends of the transitions.

    Where no row tells the state at its end, see `Motion.start_only`, it is a fit at the start.
    """

    def __init__(
        self,
        episodes: EpisodeSet,
        settings: ClosedFormSettings,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        self.episodes, self.settings, self.rng, self.progress = episodes, settings, rng, progress
        motion = find_motion(episodes)
        self.jumps = motion.jumps
        self.first = START if motion.start_only else MIDPOINT
        self.choosers: dict[str, EffectChooser] = {}
        self.chosen: dict[str, Chosen] = {}
        self.evidence: dict[str, float] = {}

    def run(self) -> ClosedFormFit:
        first = self._choose(self.first)
        has_states = self._has_states(first)
        self._measure(self.first, self.first)
        best = self.first
        if has_states and self.first == MIDPOINT:
            best = self._compare_ends(first)
        if best == START:
            self._measure(BEFORE, START)
        last = self._settle(best)
        if not has_states or not last.found[0].effects:
            return last.run({})
        if last.switches:
            last = self._compare_switches(best, last)
        return last.run(self.evidence)

    def _compare_ends(self, first: Chosen) -> str:
        for moment in (START, END):
            self._measure(moment, MIDPOINT)
        best = prefer(self.evidence, jumps=self.jumps)
        return best if best == MIDPOINT and first.selection.effects else self._search_ends(best)

    def _search_ends(self, best: str) -> str:
        """Search at the ends of the transitions, where states jump and the midpoint is wrong.

        A return that is explained at any of the moments counts in full at all of them: else one
        that the midpoint cannot explain would be no argument for the ends.
        """
        near = [m for m in (START, END) if self.evidence[m] > self.evidence[best] - NEAR]
        for moment in near:
            self._choose(moment)
        searched = {MIDPOINT, *near}
        weights = np.max([self.choosers[moment].data.weights for moment in searched], 0)
        for moment in near:
            if (self.choosers[moment].data.weights != weights).any():
                self.chosen[moment] = self.choosers[moment].choose_again(weights)
            self._measure(moment, moment)
        if (self.choosers[MIDPOINT].data.weights != weights).any():
            self.chosen[MIDPOINT] = self.choosers[MIDPOINT].choose_again(weights)
            for moment in {MIDPOINT, START, END} - set(near):
                self._measure(moment, MIDPOINT)
        candidates = near if best != MIDPOINT else [MIDPOINT, *near]
        known = {moment: self.evidence[moment] for moment in candidates}
        return prefer(known, jumps=self.jumps)

    def _compare_switches(self, best: str, last: LastFit) -> LastFit:
        """Compare the moments again where the reward has thresholds.

        Smooth effects say little about the moment of a jump. Each moment is given the thresholds
        that were found at the best one, and may find others of its own.
        """
        switches, source = list(last.switches), last.data
        noise, weights = source.noise, source.weights
        effects = [e for e in last.found[0].effects if e not in switches and max(e) < source.inputs]
        for moment in self.evidence:
            chooser = self._chooser(moment)
            if chooser.data.noise != noise:
                chooser.data.take_noise(noise)
            if (chooser.data.weights != weights).any():
                chooser.data.reweight(weights)
            known = [chooser.data.translate(effect, source) for effect in effects]
            self.evidence[moment] = chooser.measure_switches(
                [effect for effect in known if effect is not None],
                [translate_switch(chooser.data, effect, source) for effect in switches],
                last.found[0],
            )
        better = prefer(self.evidence, jumps=self.jumps)
        if better == best:
            return last
        if better not in self.chosen:
            self._choose(better)
        if noise != NoiseKind():
            self.chosen[better] = self.choosers[better].choose_again(weights)
        return LastFit(self.choosers[better], self.chosen[better], self.rng)

    def _settle(self, moment: str) -> LastFit:
        """The last fit at a moment, with the kind of noise that its errors show."""
        chooser = self.choosers[moment]
        self.chosen[moment] = chooser.settle_noise(self.chosen[moment])
        return LastFit(chooser, self.chosen[moment], self.rng)

    def _chooser(self, moment: str) -> EffectChooser:
        if moment not in self.choosers:
            self.choosers[moment] = EffectChooser(
                self.episodes, moment, self.settings, self.rng, self.progress
            )
        return self.choosers[moment]

    def _choose(self, moment: str) -> Chosen:
        chooser, weights = self._chooser(moment), self._chooser(self.first).data.weights
        if moment != self.first:
            is_event = (weights < FAR_WEIGHT).sum() >= FEWEST_EVENTS
            chooser.data.reweight(np.ones_like(weights) if is_event else weights)
        self.chosen[moment] = chooser.choose()
        return self.chosen[moment]

    def _measure(self, moment: str, of: str) -> None:
        """Log evidence of the effects that were chosen at one moment, taken at another."""
        self.progress("moments of a step", 0.0)
        selection, source = self.chosen[of].selection, self.choosers[of].data
        chooser = self._chooser(moment)
        if (chooser.data.weights != source.weights).any():
            chooser.data.reweight(source.weights)
        effects = [chooser.data.translate(effect, source) for effect in selection.effects]
        known = [effect for effect in effects if effect is not None]
        self.evidence[moment] = chooser.measure(known, selection)

    def _has_states(self, chosen: Chosen) -> bool:
        """Whether any state is in the model: without one, all moments are alike.

        Where nothing was found, another moment may still find something.
        """
        data = self.choosers[self.first].data
        if not chosen.selection.effects:
            return data.varies and len(data.target) >= FEWEST
        return any(data.column(i) < self.episodes.state_size for i in chosen.selection.inputs)
