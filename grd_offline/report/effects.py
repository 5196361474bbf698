"""The section of a decomposition's page that draws its effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.report.few_values import Shape, shape_effect
from grd_offline.report.packing import encode, pack
from grd_offline.rewards.effect_inputs import explain_primes, find_label_column, name_effect

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
    if len(inputs) == 1 or find_label_column(inputs) is not None:
        return name_effect(inputs)
    return f"{page.join_names(inputs)} together"


def shape_effects(effects: Sequence[Effect], sample: Mapping[str, Array]) -> list[Shape]:
    """Shape the largest effects for their drawings.

    `sample` has values of every input, which show where the data lie.
    """
    return [
        shape_effect(effect, [sample[name] for name in effect["inputs"]])
        for effect in effects[:MOST_EFFECTS]
    ]


def pack_effects(effects: Sequence[Effect], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Collect the numbers for the drawings of the largest effects."""
    return [_pack_effect(effect, shape) for effect, shape in zip(effects, shapes, strict=False)]


def _pack_effect(effect: Effect, shape: Shape) -> dict[str, Any]:
    return {
        "inputs": shape.inputs,
        "share": float(effect["share"]),
        "grids": [pack(grid) for grid in shape.grids],
        "ticks": shape.ticks,
        "mean": pack(shape.mean),
        "std": pack(shape.std),
        **_pack_density(shape),
    }


def _pack_density(shape: Shape) -> dict[str, Any]:
    """Pack a histogram for a curve or for bars, and dots for a surface or a cube."""
    if len(shape.inputs) > 1:
        return {"points": pack(np.stack(shape.values, 1)[:MOST_POINTS])}
    (grid,), (values,) = shape.grids, shape.values
    if shape.ticks[0] is None:
        counts = np.histogram(values, BINS, (float(grid[0]), float(grid[-1])))[0]
    else:
        counts = np.array([np.count_nonzero(values == place) for place in grid])
    # A bar that is not empty can be seen.
    heights = np.ceil(255 * counts / max(int(counts.max()), 1)).astype(np.uint8)
    return {"density": encode(heights)}


def tell_effects(
    effects: Sequence[Effect], shapes: Sequence[Shape], fit: str, *, is_folded: bool = False
) -> str:
    """Make the section as HTML. It is folded if the rewards should not be relied on."""
    if not effects:
        lead = f"The fit {escape(fit)} gives a reward that is not a sum of effects."
        return page.make_section("effects", "Effects", lead)
    few = (
        "An input that has few values, such as a label of a category, has bars instead of a curve. "
        "Each label of a category is an input with the values 0 and 1: to compare two labels, add "
        "the bars of all labels of the category. "
        if any(ticks is not None for shape in shapes for ticks in shape.ticks)
        else ""
    )
    lead = (
        "The reward is its mean plus these effects. A curve shows what one input adds to the "
        "reward. A surface shows what two inputs add together, beyond what each of them adds "
        f"alone. {few}The true effect is inside the band with a probability of {page.NINETY}, if "
        "the assumptions of the fit hold. Grey bars and dots show where the data are: an effect is "
        "known best where there are many of them."
    )
    named = [name for effect in effects for name in effect["inputs"]]
    if explained := explain_primes(named):
        lead += f" {escape(explained)}"
    cards = [
        _make_card(index, effect, shape)
        for index, (effect, shape) in enumerate(zip(effects, shapes, strict=False))
        if len(shape.inputs) <= MOST_DRAWN
    ]
    rows = [(name_effect(effect["inputs"]), page.show_share(effect["share"])) for effect in effects]
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
        is_folded=is_folded,
    )


def _make_card(index: int, effect: Effect, shape: Shape) -> str:
    name, mean = name_effect(effect["inputs"]), shape.mean
    kind = {1: "a curve", 2: "a surface", 3: "a cube"}[len(shape.inputs)]
    if shape.ticks[0] is not None and len(shape.inputs) == 1:
        kind = "bars"
    elif shape.ticks.count(None) == 1 and len(shape.inputs) == 2:
        kind = "curves"
    share = page.show_share(effect["share"])
    label = (
        f"Effect of {name} as {kind}: between {page.show_number(mean.min())} and "
        f"{page.show_number(mean.max())}, {share} of the reward's variation"
    )
    width = max(0.0, min(1.0, float(effect["share"]))) * 100
    extra = ""
    if kind == "a cube":
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
