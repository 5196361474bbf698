"""The bars of the closed form: what its decisions are made by, each with its reason.

`benchmarks/ablate.py` tells what each is worth, on seeds that no choice was made on. Limits of
memory and of time stand beside the code that keeps to them, the prior of the moments in `moments`,
and what a user may change in `settings`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bars:
    """Thresholds and priors, by what they decide."""

    # Basis
    quantile_nodes: int = 64  # quantiles of an input on which its features are built
    even_nodes: int = 32  # even points of its range beside them
    even_share: float = 0.25  # weight of the even points; quantiles alone hardly see far values
    few_values: int = 16  # an input of at most so many values has a node at each
    duplicate: float = 1e-9  # 1 - correlation at which an input repeats another; a few roundings
    # Ends of a grid from the middle 98 %, in their range; 24 cells are left
    far_range: float = 10.0

    # Motion
    jump: float = 0.7  # squared step of rows that are new each time; 1 in the mean, less by chance

    # Effects
    alike_ends: float = 0.05  # share of other ends below which terminating acts alone

    # Search
    free_mains: int = 30  # main effects to choose from without a price
    free_pairs: int = 300  # the same of pairs
    add_share: float = 0.2  # fraction of the best gain of a round that others need
    add_most: int = 6  # effects added in one round
    rounds: int = 15  # in which effects are added
    iterations: int = 60  # of the fixed point in each fit
    joint_tried: int = 6  # effects of three or four inputs that are tried in full

    # Hasty search
    many_columns: int = 300  # columns beyond which fits are shorter
    many_inputs: int = 12  # inputs beyond which they leave several at once
    many_candidates: int = 100  # candidates that are tried again
    far_loss: float = 4.0  # factor of the threshold beyond which no refit is needed

    # Noise
    noise_gain: float = 4.0  # log likelihood that a second kind of noise has to gain
    fewest_for_noise: int = 50  # returns from which on its kind is looked for
    # Ratio of a long episode to a short one from which on lengths can tell
    noise_lengths: float = 1.3
    noisy: float = 0.98  # share of left-out amounts from which on the rest is hardly noise

    # Outliers
    freedom: float = 4.0  # degrees of freedom of Student's t
    fewest_for_tails: int = 30  # with fewer returns the tails of errors are not known
    fewest_events: int = 3  # with fewer of them, nothing can be predicted about them
    far_weight: float = 0.1  # weight of a return at about six usual errors
    far_errors: float = 6.0  # usual errors beyond which there are outliers; 1 in 5e8 by chance
    least_usual: float = 1e-3  # usual error, in the spread of errors, that is no rounding
    better: float = 0.8  # factor of the median error that makes other weights better
    hopeful: float = 0.9  # the same for one more round
    weight_rounds: int = 2  # searches with new weights
    weight_turns: int = 4  # new weights between two searches
    settled_weight: float = 0.1  # change of a weight that asks for no further round

    # Switches
    finer_cuts: int = 12  # thresholds between two of the first
    cut_rounds: int = 2  # times that thresholds are made finer
    cut_width: float = 0.001  # share of an input's range to either side that a grid covers
    switch_inputs: int = 8  # inputs that may have one
    most_switches: int = 4  # of one reward
    switch_tried: int = 4  # fitted in each round
    switch_gain: float = 5.0  # log evidence that one has to gain
    sharp: float = 0.998  # share of left-out amounts explained that needs none

    # Average
    prior_input: float = 0.25  # prior probability that an input matters
    prior_main: float = 0.5  # that one which matters has a main effect
    prior_pairs: float = 0.2  # pairs of inputs that matter, per input
    prior_width: float = 1.5  # octaves by which variances lie about their level
    kept_of_block: float = 0.99995  # squared norm of a block by the directions that stand for it
    most_directions: int = 40  # directions of a block
    rare: float = 0.05  # share of models below which an effect is left out
    fewest_averaged: int = 10  # amounts from which on models are averaged
    most_averaged: int = 400  # and up to which, for time
    average_candidates: int = 120  # effects

    # Labels
    label_close: float = 0.05  # change of the log evidence at which a fit has arrived
    least_precision: float = 1e-4  # of a logit; keeps Newton's steps finite
    largest_logit: float = 64.0  # spread of logits; labels that are never wrong ask for any
    first_logit: float = 2.0  # the same at the start
    hurry: float = 1.5  # power of the fixed point's factors, which alone creep
    most_factor: float = 5.0  # by which one step may change a variance
    sure_loss: float = 2.0  # loss by the parabola beyond which an effect stays without a trial
    swap_tried: int = 2  # effects that may take the place of one
    swap_gain: float = 0.5  # log evidence that a move has to gain
    most_swaps: int = 12  # such moves
    clear_labels: float = 0.95  # share of left-out labels explained before they may be numbers
    exact_numbers: float = 0.98  # share of their variance explained before they are numbers
    label_pair_features: int = 6  # features of an input in a pair
    label_added: int = 3  # effects added per round
    kept_of_label_block: float = 0.9999  # squared norm of a block by the columns that stand for it
    label_paired: int = 40  # inputs of which all pairs are candidates
    by_length: float = 0.8  # share of their variance by length that tells too much

    # Bands
    folds: int = 5  # folds of the test of their width
    unknown_inflation: float = 2.0  # their factor where rows are too few for the test
    held_out_climb: int = 10  # steps by which variances move again without rows left out

    # Hidden
    hidden_features: int = 12  # features of an input that may hide
    even_features: int = 6  # the same where inputs are looked for that are even in all episodes
    even: float = 0.2  # variance of the sums of such an input, in that of independent steps
    still: float = 0.9  # share of one value that makes an input one that hardly moves
    prior_hidden: float = 0.1  # prior probability that a reward has such a part

    # Lasting errors
    cosines: int = 512  # random cosines of their process
    cosine_inputs: int = 3  # inputs of each
    lasting_climb: int = 60  # steps of the fixed point

    # Times
    late_gain: float = 10.0  # log evidence that a late effect has to gain
    little_correlation: float = 0.1  # correlation of rows below which they are drawn anew

    # Findings
    much_hidden: float = 0.15  # share h of the spread that calls for care; correlation .99
    too_much_hidden: float = 0.75  # the same at a correlation 1 / sqrt(1 + h^2) of .8
    possible: float = 0.05  # posterior probability of a moment that is not excluded
    much_noise: float = 0.05  # noise of a step, in the spread of the rewards, that matters
    shared_noise: float = 0.01  # ratio of shared noise that is worth a word
    same_steps: float = 0.05  # variance within episodes below which their steps are alike
    stays: float = 0.1  # the same of an input
    noticed: float = 0.03  # spread of what hides that moves a 90 % band by 5 %
    fewest_returns: int = 10  # with fewer an effect cannot be told from chance
    weak: float = 0.75  # known share of an effect; below it the band is half as wide
    negligible: float = 0.01  # share of the reward that is worth no warning
    well_known: float = 0.9  # known share of an effect that needs no word on its likes
    alike: float = 0.95  # correlation of sums at which inputs are hard to tell apart
    nearly_equal: float = 0.99  # at which they are so even where effects are known
    comfortable: int = 2  # returns per number; errors are at most twice the least
    outlier: float = 0.2  # weight of a return at more than four usual errors
    far_off: float = 0.5  # error of an outlier, in the spread of the other returns
    many_outliers: float = 0.02  # share of the returns that calls for care
    much_of_spread: float = 0.5  # share of the squared spread by which few do

    # Findings of all methods
    fewest_checked: int = 20  # episodes
    base_errors: float = 6.0  # standard errors of a fixed amount; 1 in 5e8 by chance
    base_share: float = 0.2  # share of the squared errors that it accounts for
    base_most: float = 0.5  # the same from which on the rewards are wrong
    least_base: float = 0.02  # share of the spread of the returns that it has to reach
    same_as_returns: float = 0.999  # share of the returns at which an input says the same
    total_share: float = 0.7  # the same of a total that lacks a step
    total_unit: float = 0.2  # how far its unit may be off
    total_steps: float = 1.5  # variance of what it leaves, in that of its steps
    many_copies: float = 0.02  # share of episodes; with discrete states a few are equal by chance


BARS = Bars()
