"""The section of a decomposition's page that draws its causal graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import grd_offline.report.page as page
from grd_offline.files.runs import MASKS
from grd_offline.report.packing import encode

MOST_NODES = 24
"""This many states and this many actions are in the drawing; the heat maps have all."""


def tell_graph(masks: Mapping[str, Any]) -> str:
    """Make the section as HTML."""
    states, actions = masks["state_names"], masks["action_names"]
    driving = [n for n, on in zip(states, masks["state_to_reward"], strict=True) if on]
    driving += [n for n, on in zip(actions, masks["action_to_reward"], strict=True) if on]
    compact = [n for n, on in zip(states, masks["compact"]["closure"], strict=True) if on]
    lead = (
        "Left: a step's state and action. Right: the reward, and the next state. A line says "
        "that one drives the other, and its thickness how strongly. Filled: the compact state, "
        "from which a path leads to the reward."
    )
    said = page.join_names([*driving[:6], *(["others"] if len(driving) > 6 else [])]) or "nothing"
    label = (
        f"Causal graph of {len(states)} state and {len(actions)} action dimensions: the reward "
        f"is driven by {said}; the compact state has {len(compact)} dimensions"
    )
    controls = (
        "<div class='controls'><label>Show <select id='node'></select></label>"
        "<label class='wide'>Strongest lines <input type='range' id='edges' min='1'>"
        "</label></div>"
    )
    shares = [
        f"{name.replace('_', ' ')} {np.mean(masks[name]):.0%}"
        for name, _ in MASKS
        if np.size(masks[name])  # data without actions have two masks without edges
    ]
    on = page.join_names(shares)
    maps = page.make_chart("maps", f"The four masks as heat maps, edges on: {on}")
    note = (
        "<p class='note'>Rows are causes, columns are effects. Colour: strength against the "
        "strongest of the same map, on a square-root scale; blank where there is no edge.</p>"
    )
    tabs = (
        ("Graph", controls + page.make_chart("graph", label)),
        ("Heat maps", page.make_scroll(maps, "Heat maps") + note),
    )
    return page.make_section("graph", "What drives what", lead, page.make_tabs("drawing", tabs))


def pack_graph(masks: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the strengths of the four masks, and choose the nodes of the drawing."""
    levels = {name: _grade(masks[name], masks["score"][name]) for name, _ in MASKS}
    closure = np.asarray(masks["compact"]["closure"])
    of_actions = levels["action_to_state"].reshape(-1, len(closure))  # [] where there are none
    leaving = levels["state_to_state"].astype(np.float64) @ closure + np.asarray(closure)
    rank_states = 1e6 * levels["state_to_reward"] + 1e5 * closure + leaving
    rank_actions = 1e6 * levels["action_to_reward"] + of_actions @ closure
    return {
        "states": list(masks["state_names"]),
        "actions": list(masks["action_names"]),
        "compact": closure.tolist(),
        "masks": {name: encode(level) for name, level in levels.items()},
        "shown_states": _top(rank_states),
        "shown_actions": _top(rank_actions),
    }


def _grade(mask: Any, score: Any) -> Any:
    """Grade edges from 1 to 255 by the root of their relative strength; 0 means no edge."""
    on, strength = np.asarray(mask, bool), np.maximum(np.asarray(score, np.float64), 0.0)
    largest = float(strength[on].max()) if on.any() else 0.0
    share = np.sqrt(strength / largest) if largest > 0 else np.ones_like(strength)
    return np.where(on, 1 + np.rint(254 * np.minimum(share, 1.0)), 0).astype(np.uint8)


def _top(rank: Any) -> list[int]:
    return sorted(np.argsort(-np.asarray(rank, np.float64), kind="stable")[:MOST_NODES].tolist())
