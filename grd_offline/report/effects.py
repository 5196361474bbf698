"""The section of a decomposition's page that draws its effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

import grd_offline.report.page as page
from grd_offline.report.packing import pack

MOST_EFFECTS = 24
MOST_DRAWN = 3  # inputs of an effect; one of four stands in the table alone
"""This many effects are drawn; the table has all of them."""
Effect = Mapping[str, Any]


def name_together(inputs: Sequence[str]) -> str:
    """Name an effect; several inputs act together."""
    return inputs[0] if len(inputs) == 1 else f"{page.join_names(inputs)} together"


def pack_effects(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Collect the numbers for the drawings of the largest effects."""
    return [
        {
            "inputs": list(effect["inputs"]),
            "share": float(effect["share"]),
            "grids": [pack(grid) for grid in effect["grids"]],
            "mean": pack(effect["mean"]),
            "std": pack(effect["std"]),
        }
        for effect in effects[:MOST_EFFECTS]
    ]


def tell_effects(effects: Sequence[Effect], fit: str) -> str:
    """Make the section as HTML."""
    if not effects:
        lead = f"The reward of a fit by {escape(fit)} is not a sum of effects that could be drawn."
        return page.make_section("effects", "Effects", lead)
    lead = (
        "The reward is a sum of these. Each says what its input adds to the reward, over the "
        f"range that the data have; the band is where {page.NINETY} of its posterior lies."
    )
    cards = [
        _make_card(index, effect)
        for index, effect in enumerate(effects[:MOST_EFFECTS])
        if len(effect["inputs"]) <= MOST_DRAWN
    ]
    rows = [(" x ".join(effect["inputs"]), f"{effect['share']:.1%}") for effect in effects]
    table = page.make_table(
        ("effect", "share of the reward's variance"), rows, "Shares of the effects", (1,)
    )
    more = "Every effect and its share" if len(rows) > 1 else "Its share"
    below = ""
    if any(effect["share"] < 0 for effect in effects):
        below = "<p class='note'>A share below 0: the effect mostly works against the others.</p>"
    return page.make_section(
        "effects",
        "What each input adds to the reward",
        lead,
        f"<div class='cards'>{''.join(cards)}</div>",
        page.make_details(more, table + below),
    )


def _make_card(index: int, effect: Effect) -> str:
    name = " x ".join(effect["inputs"])
    mean = np.asarray(effect["mean"], np.float64)
    kind = {1: "curve", 2: "surface", 3: "cube"}[len(effect["inputs"])]
    share = page.show_share(effect["share"])
    label = (
        f"Effect of {name} as a {kind}: between {page.show_number(mean.min())} and "
        f"{page.show_number(mean.max())}, {share} of the reward's variance"
    )
    width = max(0.0, min(1.0, float(effect["share"]))) * 100
    extra = ""
    if kind == "cube":
        third = escape(effect["inputs"][2])
        extra = (
            f"<label class='wide'>{third} <input type='range' class='slice' min='0' "
            f"max='{mean.shape[2] - 1}' value='{mean.shape[2] // 2}'></label>"
        )
    return (
        f"<figure class='card'><figcaption><span class='name'>{escape(name)}</span>"
        f"<span class='share'>{share}</span></figcaption>"
        f"<span class='meter'><span style='width:{width:.1f}%'></span></span>"
        f"{page.make_chart('effect', label, index=index)}{extra}</figure>"
    )
