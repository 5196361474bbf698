"""Results in notebooks: a headline, and bars for what drives the reward, without a script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from grd_offline.core.words import DO_NOT_RELY, format_share

MOST_BARS = 8


def show_result(headline: str, shares: Sequence[tuple[str, float]], note: str) -> str:
    """A result as HTML: one sentence, the bars, and one more sentence.

    Bars that should not be relied on are folded up.
    """
    first, bars, last = escape(headline), draw_shares(shares), escape(note)
    if headline.startswith(DO_NOT_RELY):
        bars = f"<details><summary>Show what drives these rewards</summary>{bars}</details>"
    return f"<div><p><b>{first}</b></p>{bars}<p>{last}</p></div>"


def draw_shares(shares: Sequence[tuple[str, float]]) -> str:
    """A bar for the share of each effect in the variation of the reward, largest first."""
    if not shares:
        return "<p>Nothing was found to drive the reward.</p>"
    rows = "".join(_draw_bar(name, share) for name, share in shares[:MOST_BARS])
    more = f"<p>and {len(shares) - MOST_BARS} more</p>" if len(shares) > MOST_BARS else ""
    title = "Share of the reward's variation"
    return f"<table><caption>{title}</caption>{rows}</table>{more}"


def _draw_bar(name: str, share: float) -> str:
    width = 200 * min(max(share, 0.0), 1.0)
    bar = (
        "<svg width='200' height='12' role='img'>"
        f"<rect width='{width:.1f}' height='12' fill='#0b6e99'/></svg>"
    )
    return (
        f"<tr><td style='text-align:left'>{escape(name)}</td><td>{bar}</td>"
        f"<td>{format_share(share)}</td></tr>"
    )
