"""Random factored MDPs with a known causal graph: the ground truth for return decomposition.

A world has d_s states and d_a actions, no instantaneous effects, and obeys, at every step,

    r_t       = g(C_sr * s_t, C_ar * a_t) + noise
    s_{i,t+1} = f_i(C_ss[:, i] * s_t, C_as[:, i] * a_t) + noise

The masks C are in `FactoredWorld.masks`. Each state has one of three roles: a `direct` parent of
the reward; `indirect`, which reaches the reward only through other states; a `distractor`, which
may be driven by anything, parents of the reward included, but from which no directed path leads to
the reward.

Inside, a world is written in z = (x, sqrt(3) a): x is the state at roughly zero mean and unit
variance, actions are clipped to [-1, 1] and scaled to unit variance under uniform choice. What is
observed is s = scale * x + offset. Reward and dynamics are weighted sums of terms. A term is a
shape (linear, bump, switch, product of sines, ...) of one to three components of z, standardised
to zero mean and unit variance under uniformly random actions.

Reward. Each parent stands in at least one term; weights lie within 0.6 and 1.4; a constant is
added. The family `smooth` draws main effects of many shapes, products and gates, quadratic action
costs, and tracking terms -(a - tanh s)^2. The family `hard` adds threshold switches, products of
sines, actions whose effect changes its sign with a state, and inputs that matter only together
with another. With `order` 3 one term is a three-way interaction. Draws are repeated until no two
terms are close to collinear, per step or summed over an episode, and until randomising any single
parent changes the reward noticeably, so that nothing cancels.

Dynamics. x_i' = decay_i x_i + gain_i * (weighted sum of terms) + process_noise * normal. One state
in five has no self edge (decay 0) but an action among its parents. All terms are bounded and decays
are below one, so that no policy can make a state grow without bound. Gains keep each state near
unit variance; decays are lowered where they would make another parent's contribution to the next
state fall below about 0.15 of the state's standard deviation. Loops through several states are few:
at most two edges, or one per twenty states, run against a random order of the states (those that
connect indirect states to the reward aside).

Everything is drawn from generators seeded by `graph_seed`: equal settings give an equal world.
Initial states are independent standard normals in x, which with persistent dynamics lets returns
differ between episodes.
"""

from __future__ import annotations

from grd_offline.worlds.synthetic.settings import FAMILIES, WorldSettings
from grd_offline.worlds.synthetic.terms import Term
from grd_offline.worlds.synthetic.world import FactoredWorld, Rollout

__all__ = ["FAMILIES", "FactoredWorld", "Rollout", "Term", "WorldSettings"]
