"""The causal graph of a decomposition: strengths of its edges, and the nodes that are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.typing import Array
from grd_offline.io.files.results import MASKS
from grd_offline.methods.result import Decomposition
from grd_offline.report.importance import TERMINATED, Importance
from grd_offline.report.packing import encode

MOST_NODES = 24
"""This many states and this many actions are in the drawing; the heat maps have all."""
PROBABILITIES = ("paper", "pair-net")
"""Fits whose scores of edges between states are probabilities."""


def describe_graph(masks: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the graph for who cannot see it: what drives the reward, and shares of edges."""
    driving = [
        name
        for kind in ("state", "action")
        for name, on in zip(masks[f"{kind}_names"], masks[f"{kind}_to_reward"], strict=True)
        if on
    ]
    return {
        "driving": [*driving[:6], *(["others"] if len(driving) > 6 else [])],
        "compact": sum(map(bool, masks["compact"]["closure"])),
        "shares": [
            f"{name.replace('_', ' ')} {np.mean(masks[name]):.0%}"
            for name, _ in MASKS
            if np.size(masks[name])  # data without actions have two masks without edges
        ],
    }


def measure_edges(record: Decomposition, importance: Sequence[Importance]) -> dict[str, Array]:
    """Measure the strength of every edge from 0 to 1, by the name of its mask.

    Into the reward it is the importance of the input. Into a next state it is the part of the
    variance left by all other parents that this parent explains. The fits in `PROBABILITIES` give
    the probability of the edge instead. Where there is no edge, the strength is 0.
    """
    masks, score = record.masks, record.masks["score"]
    total = {one.name: one.total for one in importance}
    edges = {}
    for kind in ("state", "action"):
        names = masks[f"{kind}_names"]
        on = np.asarray(masks[f"{kind}_to_reward"], bool)
        known = np.array([total.get(name, 0.0) for name in names])
        # Where nothing is known of importance, an edge is an edge.
        edges[f"{kind}_to_reward"] = np.where(on, known if total else 1.0, 0.0)
        strength = np.maximum(np.asarray(score[f"{kind}_to_state"], np.float64), 0.0)
        if record.metrics["fit"] not in PROBABILITIES:
            strength = 1.0 - np.exp(-2.0 * strength)  # scores are information in nats
        on = np.asarray(masks[f"{kind}_to_state"], bool)
        edges[f"{kind}_to_state"] = np.where(on, np.minimum(strength, 1.0), 0.0)
    return edges


def pack_graph(
    masks: Mapping[str, Any], edges: Mapping[str, Array], importance: Sequence[Importance]
) -> dict[str, Any]:
    """Pack the strengths of the four masks, and choose the nodes of the drawing."""
    levels = {name: _grade(masks[name], edges[name]) for name, _ in MASKS}
    closure = np.asarray(masks["compact"]["closure"])
    of_actions = levels["action_to_state"].reshape(-1, len(closure))  # [] where there are none
    leaving = levels["state_to_state"].astype(np.float64) @ closure + np.asarray(closure)
    rank_states = 1e6 * levels["state_to_reward"] + 1e5 * closure + leaving
    rank_actions = 1e6 * levels["action_to_reward"] + of_actions @ closure
    ended = [one.total for one in importance if one.name == TERMINATED]
    return {
        "states": list(masks["state_names"]),
        "actions": list(masks["action_names"]),
        "compact": closure.tolist(),
        "masks": {name: encode(levels[name]) for name in ("state_to_state", "action_to_state")},
        "reward": {
            "state": _list_strengths(masks["state_to_reward"], edges["state_to_reward"]),
            "action": _list_strengths(masks["action_to_reward"], edges["action_to_reward"]),
            "terminated": round(ended[0], 5) if ended else None,
        },
        "shown_states": _top(rank_states),
        "shown_actions": _top(rank_actions),
    }


def _grade(mask: Any, strength: Any) -> NDArray[np.uint8]:
    """Grade edges from 1 to 255 by the root of their strength; 0 means no edge."""
    on, root = np.asarray(mask, bool), np.sqrt(np.asarray(strength, np.float64))
    return np.where(on, 1 + np.rint(254 * root), 0).astype(np.uint8)


def _list_strengths(mask: Any, strength: Array) -> list[float | None]:
    """List the strengths of edges; None means no edge."""
    return [round(float(s), 5) if on else None for on, s in zip(mask, strength, strict=True)]


def _top(rank: Any) -> list[int]:
    return sorted(np.argsort(-np.asarray(rank, np.float64), kind="stable")[:MOST_NODES].tolist())
