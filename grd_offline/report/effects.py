"""The section of a decomposition's page that draws its effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.report.packing import encode, pack

Array = NDArray[np.float64]
Effect = Mapping[str, Any]
MOST_EFFECTS = 24
"""This many effects are drawn; the table has all of them."""
MOST_DRAWN = 3
"""Effects of more inputs than this are in the table, but not drawn."""
BINS = 48
"""The density of the data below a curve has this many bars."""
MOST_POINTS = 300
"""This many steps of the data are dots on a surface."""


def name_together(inputs: Sequence[str]) -> str:
    """Name an effect; several inputs act together."""
    return inputs[0] if len(inputs) == 1 else f"{page.join_names(inputs)} together"


def pack_effects(effects: Sequence[Effect], sample: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Collect the numbers for the drawings of the largest effects.

    `sample` has values of every input, which show where the data lie.
    """
    return [
        {
            "inputs": list(effect["inputs"]),
            "share": float(effect["share"]),
            "grids": [pack(grid) for grid in effect["grids"]],
            "mean": pack(effect["mean"]),
            "std": pack(effect["std"]),
            **_pack_density(effect, [sample[name] for name in effect["inputs"]]),
        }
        for effect in effects[:MOST_EFFECTS]
    ]


def _pack_density(effect: Effect, values: Sequence[Array]) -> dict[str, Any]:
    """Pack a histogram for a curve, and dots for a surface or a cube."""
    ends = [(float(grid[0]), float(grid[-1])) for grid in effect["grids"]]
    inside = [np.clip(one, *limits) for one, limits in zip(values, ends, strict=True)]
    if len(inside) == 1:
        counts = np.histogram(inside[0], BINS, ends[0])[0]
        # A bar that is not empty can be seen.
        heights = np.ceil(255 * counts / max(int(counts.max()), 1)).astype(np.uint8)
        return {"density": encode(heights)}
    return {"points": pack(np.stack(inside, 1)[:MOST_POINTS])}


def tell_effects(effects: Sequence[Effect], fit: str) -> str:
    """Make the section as HTML."""
    if not effects:
        lead = f"The fit {escape(fit)} gives a reward that is not a sum of effects."
        return page.make_section("effects", "Effects", lead)
    lead = (
        "The reward is its mean plus these effects. A curve shows what one input adds to the "
        "reward. A surface shows what two inputs add together. The true effect is inside the band "
        f"with a probability of {page.NINETY}, if the assumptions of the fit hold. Grey bars and "
        "dots show where the data are: an effect is known best where there are many of them."
    )
    cards = [
        _make_card(index, effect)
        for index, effect in enumerate(effects[:MOST_EFFECTS])
        if len(effect["inputs"]) <= MOST_DRAWN
    ]
    rows = [(" x ".join(effect["inputs"]), page.show_share(effect["share"])) for effect in effects]
    table = page.make_table(
        ("effect", "share of the reward's variation"), rows, "Shares of the effects", (1,)
    )
    more = f"Table of all {len(rows)} effects" if len(rows) > 1 else "Table of the effect"
    below = (
        "<p class='note'>The share of an effect is its variance over the data, divided by the sum "
        "of the variances of all effects.</p>"
    )
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
        f"{page.show_number(mean.max())}, {share} of the reward's variation"
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
