"""The closed form as a method: rewards and reward masks, and what the data can and cannot tell.

Returns fix rewards only up to what cancels over an episode. These findings say how well returns
determine what was found, what may be in the rewards without showing in returns, and at which moment
of a step the reward looks at the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from grd_offline.additive.bars import BARS
from grd_offline.additive.hidden import EARLIER, LATER, TIME
from grd_offline.additive.moments import BEFORE, BOTH, END, MIDPOINT, START, weigh
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet, have_same_length
from grd_offline.core.inputs import list_dimensions, name_effect
from grd_offline.core.observer import Progress
from grd_offline.core.outcomes import NUMBER, SUCCESS, Outcome, describe_bands
from grd_offline.core.statistics import soften_chance
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array
from grd_offline.core.words import format_percentage
from grd_offline.methods import contract
from grd_offline.methods.closed_form.fit import ClosedFormFit, fit_closed_form
from grd_offline.methods.contract import CAREFUL, FINE, UNRELIABLE, Decomposer, Finding
from grd_offline.methods.verdict import pick_evenly, settle_findings, suspect
from grd_offline.rewards.contract import EffectCurve, RewardFunction


def bound_correlation(share: float) -> float:
    """Correlation with rewards that differ by something hidden of this share."""
    return float(1 / np.sqrt(1 + share**2))


def measure_share(variance: float, spread: float) -> float:
    """The spread of something as a share of that of the rewards."""
    return float(np.sqrt(variance)) / max(spread, 1e-300)


def show_share(share: float) -> str:
    """A share in per cent, no finer than it deserves."""
    return "less than 1 %" if share < 0.01 else format_percentage(share)


def list_names(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


PLACES = {
    START: "at the start of each step",
    MIDPOINT: "halfway through each step, (s + s')/2",
    END: "at the end of each step",
    BEFORE: "one step earlier",
}


def find_moment(fit: ClosedFormFit, spread: float) -> list[Finding]:
    """Describe the chosen moment and the reason. If returns do not decide, say what depends on
    it."""
    if not fit.moments or fit.state_at == BOTH:
        return []
    if weigh(fit.moments, jumps=fit.jumps).get(BEFORE, 0.0) > 0.5:
        text = (
            "The reward seems to come a step late: the state of the step before explains "
            f"{fit.outcome.plural} better than any moment of the step itself. A function of one "
            "step cannot express that. Move the rewards by one step, or add the previous state to "
            "the observations."
        )
        return [Finding(UNRELIABLE, text, "the reward seems to come a step late")]
    taken, returns = f"The reward looks at the state {PLACES[fit.state_at]}.", fit.outcome.plural
    others = list_open_moments(fit)
    if not others:
        why = f"This explains {returns} clearly better than the other moments."
        if END not in fit.moments:
            why = (
                "No other moment was tried: steps are independent of each other, and the data do "
                "not have the state after the last one."
            )
        return [Finding(FINE, f"{taken} {why}")]
    share = measure_share(fit.moment_variance, spread)
    why = "This moment has the most evidence."
    if fit.state_at == MIDPOINT:
        why = "The midpoint was taken because it errs least where nothing decides."
    places = " or ".join(PLACES[moment] for moment in others)
    undecided = f"{taken} {why} {returns.capitalize()} do not exclude that it looks {places}."
    depends = f"{show_share(share)} of the spread of the rewards"
    if share < BARS.much_hidden:
        return [Finding(FINE, f"{undecided} Only {depends} depends on this choice.")]
    text = (
        f"{undecided} The choice decides {depends}: with another moment the correlation with the "
        f"true rewards may be as low as about {bound_correlation(share):.2f}. The option "
        "--state-at start, midpoint or end fixes it."
    )
    short = f"{returns} do not decide at which moment the reward looks at a state"
    return suspect(share, BARS.much_hidden, text, short, unreliable=BARS.too_much_hidden)


def list_open_moments(fit: ClosedFormFit) -> list[str]:
    """Moments other than the one taken that returns do not exclude."""
    if not fit.moments or fit.state_at == BOTH:
        return []
    chances = weigh(fit.moments, jumps=fit.jumps)
    return [
        moment
        for moment in (START, MIDPOINT, END, BEFORE)
        if moment != fit.state_at and chances.get(moment, 0.0) > BARS.possible
    ]


def measure_step_noise(fit: ClosedFormFit) -> float:
    """Variance of the noise that single steps are said to have, as bands show it."""
    return fit.model.noise_variance * (1 - fit.model.lasting_share) * fit.model.inflation**2


def find_noise_sources(fit: ClosedFormFit, episodes: EpisodeSet, spread: float) -> list[Finding]:
    """Describe where the noise of returns comes from, or what bands assume if nothing shows it."""
    returns = fit.outcome.plural
    if fit.model.shared_variance > fit.model.noise_variance * BARS.shared_noise:
        text = (
            f"Much of the noise of {returns} is shared by all steps of an episode: {returns} of "
            "longer episodes vary more than independent steps would explain. The bands take that "
            "in."
        )
    elif fit.model.whole_variance > 0:
        text = (
            f"Part of the noise belongs to {returns} as a whole: those of short episodes vary as "
            "much as those of long ones. The bands of single steps leave it out."
        )
    elif is_noise_open(fit, episodes, spread):
        share = measure_share(measure_step_noise(fit), spread)
        text = (
            f"The bands of steps hold on one condition: that what {returns} leave unexplained is "
            f"noise of single steps, {show_share(share)} of the spread of the rewards. Episodes of "
            f"one length cannot show that. If it is noise of whole {returns}, or an influence that "
            "lasts over many steps, these bands are too wide."
        )
    else:
        return []
    return [Finding(FINE, text)]


def find_noisy_steps(fit: ClosedFormFit, spread: float) -> list[Finding]:
    """Tell where single steps pay something else than expected, so that few rewards are near it."""
    if fit.outcome != NUMBER:
        return []
    share = measure_share(measure_step_noise(fit), spread)
    text = (
        f"What returns leave unexplained is as large as noise of {show_share(share)} of the spread "
        "of the rewards at every step. These are expected rewards: if that is what it is, their "
        "correlation with what each step really paid is about "
        f"{bound_correlation(share):.2f}. If every return is exactly the sum of what its steps "
        "paid, the option --exact-returns spreads the rest over the steps."
    )
    return suspect(share, BARS.too_much_hidden, text, "single steps are mostly noise")


def is_noise_open(fit: ClosedFormFit, episodes: EpisodeSet, spread: float) -> bool:
    """Whether much noise is shared out over single steps, and nothing shows that it is theirs."""
    model = fit.model
    if model.shared_variance > model.noise_variance * BARS.shared_noise or model.whole_variance > 0:
        return False
    share = measure_share(measure_step_noise(fit), spread)
    return have_same_length(episodes.lengths) and share >= BARS.much_noise


_REMEDIES = {
    EARLIER: "Add what the reward remembers to the observations, for example what was seen or done "
    "one step earlier.",
    LATER: "If a row holds what was done or seen before it, move these columns up by one row.",
    TIME: "Add the step within the episode to the observations.",
}
_MOST = {EARLIER: 1 - 0.8, LATER: 1 - 0.8, TIME: BARS.too_much_hidden**2}
"""Share of the variance of the rewards at which their correlation with the true ones is .8.

What acts late is missing where it acts, and is there where it does not: with a share h, the
correlation is 1 - h.
"""


def find_history(fit: ClosedFormFit, spread: float) -> Iterator[Finding]:
    """Describe what returns show to depend on more than the step itself."""
    for kind, variance in fit.history.items():
        share = measure_share(variance, spread)
        text = (
            f"The reward seems to depend on {kind}: {fit.outcome.plural} are clearly better "
            "explained if an effect that was found does. This comes to "
            f"{show_share(min(share, 1.0))} of the spread of the rewards. A reward of one step "
            f"cannot express it. {_REMEDIES[kind]}"
        )
        short, most = f"the reward seems to depend on {kind}", float(np.sqrt(_MOST[kind]))
        yield from suspect(share, BARS.much_hidden, text, short, unreliable=most)


def find_same(
    fit: ClosedFormFit, episodes: EpisodeSet, rewards: Sequence[tuple[Episode, Array]]
) -> list[Finding]:
    """`rewards` are some of the episodes with the rewards that were found."""
    if _measure_within([found[:, None] for _, found in rewards])[0] >= BARS.same_steps:
        return []
    dimensions = list_dimensions(episodes.observation_names, episodes.action_names)
    inputs = [np.hstack([e.observations[: len(e)], e.actions]) for e, _ in rewards]
    share = dict(zip(dimensions, _measure_within(inputs), strict=True))
    used = [one.at_start for one in fit.correlated if one.at_start in share]
    still = [one for one in used if share[one] < BARS.stays] or used
    if not still:
        return []
    named = ", ".join(one.name for one in still[:3])
    text = (
        f"The reward comes from {named}, and all steps of an episode get nearly the same. So "
        f"{fit.outcome.plural} do not show how the steps of an episode differ. If such an input "
        "became known with the outcome, or follows from it, it hides the causes: leave it out, for "
        f"a table with --columns ignored={still[0].column}."
    )
    return [Finding(CAREFUL, text, f"all steps of an episode get nearly the same, from {named}")]


def _measure_within(values: Sequence[Array]) -> Array:
    """(column,) the share of the variance that lies within episodes; 1 where nothing can differ."""
    every = np.concatenate(values).astype(np.float64)
    total = every.var(0)
    if len(values) > len(every) / 2:  # mostly one step per episode
        return np.ones(every.shape[1])
    within = sum(len(part) * part.astype(np.float64).var(0) for part in values) / len(every)
    return np.where(total > 0, within / np.maximum(total, 1e-300), 1.0)


def list_conditions(fit: ClosedFormFit, episodes: EpisodeSet, spread: float) -> Iterator[str]:
    """Clauses that can follow "The bands hold if"; none where returns decide all that matters."""
    returns = fit.outcome.plural
    if list_open_moments(fit) and measure_share(fit.moment_variance, spread) >= BARS.much_hidden:
        yield f"the reward looks at the state {PLACES[fit.state_at]}, which {returns} do not decide"
    if fit.model.effects and is_noise_open(fit, episodes, spread):
        yield (
            f"what {returns} leave unexplained is noise of single steps, which episodes of one "
            "length cannot show"
        )
    # Whether every return has the same steps, and one sum, so that their times cannot show. An
    # input that tells the time is among the even ones, which are told by themselves.
    is_single = all(int(episode.delivered.sum()) == 1 for episode in episodes)
    is_alike = is_single and episodes.lengths.max() > 1 and have_same_length(episodes.lengths)
    if is_alike and fit.model.effects and fit.outcome == NUMBER and not fit.even_inputs:
        yield (
            "no step is worth more because of its number alone, which episodes of one length "
            "cannot show"
        )
    # Whether what may hide from returns widens the bands more than noise, and noticeably.
    hidden = fit.model.hidden_variance * fit.model.inflation**2
    noise = measure_step_noise(fit) + fit.model.shared_variance * fit.model.inflation**2
    if hidden >= noise and float(np.sqrt(hidden)) >= BARS.noticed * spread:
        yield (
            f"the reward has parts that {returns} do not show (if it has none, the bands are too "
            "wide)"
        )
    if fit.outcome == SUCCESS:
        yield f"no effect was missed, which {returns} often leave open"
    if fit.even_inputs:
        names = list_names(fit.even_inputs)
        yield f"{names} is worth what was found, which {returns} hardly show"


def tell_bands(function: RewardFunction, conditions: Sequence[str]) -> str:
    """Describe the bands of steps."""
    bands = describe_bands(function.outcome, function.knows_std)
    if not function.knows_std:
        return bands
    if len(conditions) < 2:
        return bands + "".join(f" Here they hold if {one}." for one in conditions)
    listed = "; ".join(f"({number}) {one}" for number, one in enumerate(conditions, 1))
    return f"{bands} Here they hold only if all of this is true: {listed}."


_NAMED, _PROBED_STEPS = 5, 20_000


def examine(
    fit: ClosedFormFit, episodes: EpisodeSet, discount: float = 1.0
) -> tuple[list[Finding], dict[str, Any]]:
    """Findings in words, and the numbers behind them."""
    wanted = round(_PROBED_STEPS / max(episodes.total_steps / len(episodes), 1))
    chosen = pick_evenly(episodes, wanted)
    known = [(curve, _measure_known(curve)) for curve in fit.model.explain().effects]
    rewards = [(one, fit.model.predict(StepBatch.from_episode(one))) for one in chosen]
    spread = float(np.concatenate([r for _, r in rewards]).std())
    outliers = _list_outliers(fit, episodes, discount)
    findings = [
        *_find_few(episodes, fit.outcome),
        *_find_outliers(outliers, episodes, discount, fit.outcome),
        *(_find_ends(fit, episodes) if fit.outcome == NUMBER else []),
        *_tell_base(fit),
    ]
    if fit.model.effects:
        findings += [*_find_weak(fit, known), *_find_alike(fit, known)]
        findings += [*_find_more(fit, episodes), *find_moment(fit, spread)]
        findings += [*_find_hidden(fit, spread), *_find_even(fit)]
        findings += find_same(fit, episodes, rewards) + find_noise_sources(fit, episodes, spread)
        findings += [*find_noisy_steps(fit, spread), *find_history(fit, spread)]
    else:
        findings += _explain_nothing(fit, episodes, discount)
    return settle_findings(findings), {
        "equations": _count_returns(episodes),
        "effective_parameters": fit.effective_parameters,
        "pinned_down": {name_effect(curve.references): share for curve, share in known},
        "return_noise_share": 1 - fit.left_out_r2,
        "state_at": fit.state_at,
        "moments": {name: float(value) for name, value in fit.moments.items()},
        "reward_spread": spread,
        "hidden": {name: float(np.sqrt(part)) for name, part in fit.hidden.items()},
        "history": {name: float(np.sqrt(part)) for name, part in fit.history.items()},
        "step_noise": float(np.sqrt(measure_step_noise(fit))),
        "outliers": outliers,
        "conditions": list(list_conditions(fit, episodes, spread)),
    }


def _tell_base(fit: ClosedFormFit) -> list[Finding]:
    """Name the part of the log-odds of success that belongs to no step, and what lengths tell."""
    labels = fit.outcome.plural
    if fit.length_share >= BARS.by_length:
        text = (
            f"The number of steps alone explains {format_percentage(fit.length_share)} of the "
            f"variance of the {labels}. Perhaps episodes end because they failed, or because they "
            f"succeeded. Then {labels} hardly tell which steps led there."
        )
        return [Finding(CAREFUL, text, f"the number of steps alone explains the {labels}")]
    text = (
        f"Every episode has {fit.model.base:+.3g} in its log-odds of success that belongs to none "
        "of its steps, and is not part of the rewards. A negative number is a limit that the sum "
        "of the rewards has to exceed."
    )
    return [Finding(FINE, text)] if fit.model.base else []


def _find_few(episodes: EpisodeSet, outcome: Outcome) -> list[Finding]:
    returns = _count_returns(episodes)
    if returns >= BARS.fewest_returns:
        return []
    short = f"there are only {returns} {outcome.plural}"
    text = (
        f"There are {returns} {outcome.plural}. With fewer than {BARS.fewest_returns}, an effect "
        "cannot be told from chance."
    )
    if returns == 1:
        short = f"there is only one {outcome.singular}"
        text = (
            f"There is one {outcome.singular}. It fixes the mean reward of its steps and says "
            "nothing about how they differ."
        )
    return [Finding(UNRELIABLE, text, short)]


def _find_even(fit: ClosedFormFit) -> list[Finding]:
    if not fit.even_inputs:
        return []
    names = ", ".join(fit.even_inputs[:_NAMED])
    text = (
        f"The values of {names} are nearly the same in every episode. So {fit.outcome.plural} "
        "hardly show what they are worth, alone or together with inputs that stay the same during "
        "an episode. Outcomes of other parts of the same data would show it, such as shorter or "
        "shifted ones."
    )
    return [Finding(CAREFUL, text, f"{fit.outcome.plural} hardly show what {names} is worth")]


def _explain_nothing(fit: ClosedFormFit, episodes: EpisodeSet, discount: float) -> list[Finding]:
    """Why the reward is the same at every step."""
    if _count_returns(episodes) < BARS.fewest_returns:
        return []
    if fit.outcome == NUMBER:
        amounts, lengths, step = _read_amounts(episodes, discount)
        rest = amounts - lengths * amounts.sum() / lengths.sum()
        if np.abs(rest).max() <= step:
            if np.ptp(lengths) == 0:
                return [contract.ALL_EQUAL]
            text = (
                "Every step earns the same: returns follow from the length of an episode alone. "
                f"Differences between returns of less than {step:.1g} would not show."
            )
            return [Finding(FINE, text)]
        if fit.is_rounding:
            text = (
                f"Returns are as large as {np.abs(amounts).max():.2g}, and differ by no more than "
                "the rounding of their numbers. Subtract a constant from every reward before the "
                "returns are summed, or store returns in float64."
            )
            return [Finding(UNRELIABLE, text, "the differences of returns are lost in rounding")]
    elif fit.length_share >= BARS.by_length:
        return []
    text = (
        f"Nothing was found to drive the {fit.outcome.singular}: no input explains it better than "
        "chance. So every step is given the same reward. If a reward belongs to the change from "
        "one step to the next, try --next-state. If it depends on the time, add the number of the "
        "step to the observations."
    )
    return [Finding(UNRELIABLE, text, f"no input explains the {fit.outcome.plural}")]


def _read_amounts(episodes: EpisodeSet, discount: float) -> tuple[Array, Array, float]:
    """All delivered amounts, the (discounted) steps of each, and the step of their rounding."""
    parts = [part for part in (episode.segments() for episode in episodes) if len(part[0])]
    amounts = np.concatenate([part[2] for part in parts]).astype(np.float64)
    lengths = [
        np.add.reduceat(discount ** np.arange(stops[-1], dtype=np.float64), starts)
        for starts, stops, _ in parts
    ]
    is_single = bool((amounts == amounts.astype(np.float32)).all())
    largest = (np.float32 if is_single else np.float64)(np.abs(amounts).max())
    return amounts, np.concatenate(lengths), float(np.spacing(largest))


Known: TypeAlias = Sequence[tuple[EffectCurve, float]]
"""Each effect with the fraction of it that is known: 1 is a curve without a band."""


def _measure_known(curve: EffectCurve) -> float:
    """Variance of the curve over that variance plus the usual variance of its band."""
    size, open_part = float(np.var(curve.mean)), float(np.median(curve.std)) ** 2
    return size / max(size + open_part, 1e-300)


def _find_weak(fit: ClosedFormFit, known: Known) -> list[Finding]:
    returns = fit.outcome.plural
    weak = [
        name_effect(curve.references)
        for curve, share in known
        if share < BARS.weak and abs(curve.share) > BARS.negligible
    ]
    if not weak:
        text = f"If the reward is a sum of the effects found, {returns} determine all that matter."
        return [Finding(FINE, text)]
    text = (
        f"The {returns} do not determine the shape of {len(weak)} of {len(known)} effects "
        f"({list_names(weak)}). Look at the bands of these curves."
    )
    return [Finding(CAREFUL, text, f"the shape of {list_names(weak)} is not determined")]


def _find_alike(fit: ClosedFormFit, known: Known) -> list[Finding]:
    correlation, inputs = np.abs(fit.sum_correlation), fit.correlated
    open_curves = [curve for curve, share in known if share < BARS.well_known]
    loose = {one.at_start for curve in open_curves for one in curve.references}
    is_loose = [one.at_start in loose for one in inputs]
    pairs = [
        f"{inputs[i].name} and {inputs[j].name}"
        for i in range(len(inputs))
        for j in range(i)
        if correlation[i, j] > (BARS.alike if is_loose[i] or is_loose[j] else BARS.nearly_equal)
    ]
    if not pairs:
        return []
    more = f", and {len(pairs) - 3} more pairs of inputs" if len(pairs) > 3 else ""
    text = (
        f"{', '.join(pairs[:3])}{more} rise and fall together from episode to episode. "
        f"{fit.outcome.plural.capitalize()} can hardly tell which of them is rewarded."
    )
    return [Finding(CAREFUL, text, f"{pairs[0]} can hardly be told apart")]


def _find_more(fit: ClosedFormFit, episodes: EpisodeSet) -> list[Finding]:
    rows, used = _count_returns(episodes), fit.effective_parameters
    returns = fit.outcome.plural
    numbers = f"{used:.0f} number{'s' if round(used) != 1 else ''}"
    if rows >= BARS.comfortable * used:
        text = f"{rows:,} {returns} determine about {numbers}, which is enough."
        return [Finding(FINE, text)]
    wanted = round(BARS.comfortable * used)
    text = (
        f"{rows:,} {returns} have to determine about {numbers}. At least {wanted:,} {returns} are "
        f"needed for that, and more to be sure. {returns.capitalize()} of shorter pieces help as "
        "much as more episodes."
    )
    return [Finding(CAREFUL, text, f"{rows:,} {returns} are few for {numbers}")]


def _find_outliers(
    outliers: Sequence[int], episodes: EpisodeSet, discount: float, outcome: Outcome
) -> list[Finding]:
    if not outliers:
        return []
    shown = list_names([str(index) for index in outliers], _NAMED)
    one, total = len(outliers) == 1, _count_returns(episodes)
    count = f"{len(outliers)} of {total:,} {outcome.plural} {'is' if one else 'are'}"
    text = (
        f"{count} far from what any reward explains, and count{'s' if one else ''} less. "
        f"Look at {'episode' if one else 'episodes'} {shown} (the first is 0)."
    )
    returns = np.array([episode.compute_return(discount) for episode in episodes])
    squares = (returns - np.delete(returns, outliers).mean()) ** 2
    share = float(squares[list(outliers)].sum() / max(squares.sum(), 1e-300))
    if share > BARS.much_of_spread:
        errors = f"these {outcome.plural} are errors"
        errors = f"this {outcome.singular} is an error" if one else errors
        text += (
            f" {'It accounts' if one else 'They account'} for {format_percentage(share)} of how "
            f"{outcome.plural} differ. The rewards are right only if {errors}: what causes "
            f"{'it' if one else 'them'} otherwise, such as a rare fault that no input shows, is "
            "missing."
        )
    if len(outliers) <= BARS.many_outliers * total and share <= BARS.much_of_spread:
        return [Finding(FINE, text)]
    return [Finding(CAREFUL, text, f"{count} far from what any reward explains")]


def _list_outliers(fit: ClosedFormFit, episodes: EpisodeSet, discount: float) -> list[int]:
    """List the episodes of returns that hardly count and have a large error."""
    is_far = fit.weights < BARS.outlier
    counts = [int(episode.delivered.sum()) for episode in episodes]
    if not is_far.any() or is_far.all() or len(is_far) != sum(counts):
        return []
    owners = np.repeat(np.arange(len(counts)), counts)
    amounts = _read_amounts(episodes, discount)[0]
    found = {
        int(i): contract.predict_sums(fit.model, episodes[int(i)], discount) for i in owners[is_far]
    }
    predicted = [found[i][0] if i in found else np.zeros(n) for i, n in enumerate(counts)]
    is_off = np.abs(amounts - np.concatenate(predicted)) > BARS.far_off * amounts[~is_far].std()
    return [int(index) for index in owners[is_far & is_off]]


def _find_ends(fit: ClosedFormFit, episodes: EpisodeSet) -> list[Finding]:
    """A reward for terminating shows only where some episodes do not, or lengths differ."""
    lengths = episodes.lengths
    is_terminated = all(bool(episode.terminations[-1]) for episode in episodes)
    if not is_terminated or lengths.max() < 2:
        return []
    if have_same_length(lengths):
        text = (
            f"All episodes terminate after about the same number of steps ({lengths.mean():.0f}). "
            "So returns cannot tell a reward for terminating from a reward that every step earns."
        )
        return [Finding(CAREFUL, text, "a reward for terminating would not show")]
    is_open = fit.left_out_r2 < BARS.nearly_equal and not fit.model.needs_termination
    text = (
        "All episodes terminate, and the rewards that were found do not depend on it. Returns can "
        "hardly tell a reward for terminating from what every episode earns once."
    )
    short = "a reward for terminating may be hidden"
    return [Finding(CAREFUL, text, short)] if is_open and fit.model.effects else []


def _find_hidden(fit: ClosedFormFit, spread: float) -> list[Finding]:
    """Find what may be in the reward but does not show in returns, apart from the choice of the
    moment."""
    parts = {name: part for name, part in fit.hidden.items() if name != "moment"}
    if not parts:
        return []
    share, returns = measure_share(sum(parts.values()), spread), fit.outcome.plural
    if share < BARS.much_hidden:
        text = (
            f"Little can hide from the {returns}. Terms that cancel between steps, and effects of "
            f"other inputs, come to {show_share(share)} of the spread of the rewards, if they are "
            "smooth in one input each, and no larger than the effects that were found."
        )
        return [Finding(FINE, text)]
    said = " and ".join(
        _HIDDEN_WORDS.get(name, name)
        for name, part in sorted(parts.items(), key=lambda item: -item[1])
        if part > 0.2 * sum(parts.values())
    )
    text = (
        f"{returns.capitalize()} do not exclude {said}. This may come to {show_share(share)} of "
        "the spread of the rewards, and the correlation with the true rewards may be as low as "
        f"about {bound_correlation(share):.2f}. The bands include it. All of this is so if such a "
        "part is smooth in single inputs."
    )
    short = f"much of the reward may not show in {returns}"
    return suspect(share, BARS.much_hidden, text, short, unreliable=BARS.too_much_hidden)


_HIDDEN_WORDS = {
    "interactions left out": "effects of several inputs together that were not found",
    "potentials": "terms that cancel between steps, h(next state) - h(state)",
    "effects left out": "effects of inputs that were left out",
}


def _count_returns(episodes: EpisodeSet) -> int:
    """Returns, or preferences where these are what a fit learns from."""
    if episodes.preferences is not None:
        return len(episodes.preferences)
    return sum(int(episode.delivered.sum()) for episode in episodes)


class ClosedForm(Decomposer, settings=ClosedFormSettings):
    """The reward as a sum of effects, each kept by its evidence; see `closed_form`.

    After `fit`, `fit_` says how well the data pin the reward down.

    Examples
    --------
    >>> from grd_offline import read
    >>> model = ClosedForm(order=2).fit(read("datasets/sample.h5"))
    >>> model.masks_["state_to_reward"].sum()
    np.int64(1)
    """

    fit_: ClosedFormFit

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Find effects, variances and weights."""
        self.fit_ = fit_closed_form(episodes, self.settings, rng, progress)
        self.function_ = self.fit_.model
        names, fit = ("state_to_reward", "action_to_reward"), self.fit_
        self.masks_ = {name: getattr(fit, name) for name in names}
        self.scores_ = dict(zip(names, (fit.state_score, fit.action_score), strict=True))

    def predict_amounts(self, episode: Episode, discount: float) -> tuple[Array, Array | None]:
        """Mean and standard deviation of each amount; of labels, those of the chance of success."""
        mean, std = super().predict_amounts(episode, discount)
        if self.function_.outcome != SUCCESS or std is None:
            return mean, std
        chances = soften_chance(mean + self.function_.base, std)
        return chances, np.sqrt(chances * (1 - chances))

    def examine(self, episodes: EpisodeSet) -> tuple[list[Finding], dict[str, Any]]:
        """Examine how strongly the episodes determine each effect, and what could hide from
        them."""
        self._check_fitted()
        return examine(self.fit_, episodes, self.discount)
