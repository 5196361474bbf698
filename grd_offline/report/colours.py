"""The colours of pages and of figures: Okabe and Ito's, which all people can tell apart."""

GROUPS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#17191C")
"""Colours of methods, on white. If there are more methods, they repeat with another line style."""
DARK_GROUPS = ("#56B4E9", "#EE8A4A", "#3CCF9E", "#E29AC4", "#E6B94D", "#8FB8FF", "#E9EBED")
"""The same on a dark page."""
LIGHT = {
    "paper": "#FDFDFB",
    "card": "#FFFFFF",
    "soft": "#F2F2EE",
    "line": "#DFDFD9",
    "ink": "#17191C",
    "muted": "#5D636B",
    "faint": "#B9BCC0",
    "accent": GROUPS[0],
    "second": GROUPS[1],
    "third": "#00795A",
    "ok": "#00795A",
    "warn": "#9A4A00",
    "bad": "#B3261E",
    **{f"group{place}": colour for place, colour in enumerate(GROUPS)},
}
"""Colours by their role. What was found has `accent`, what is true has `second`, and what was
observed has `third`. Figures use these colours too."""
DARK = {
    "paper": "#111417",
    "card": "#171B1F",
    "soft": "#1F242A",
    "line": "#30363D",
    "ink": "#E9EBED",
    "muted": "#A2A9B1",
    "faint": "#59616A",
    "accent": DARK_GROUPS[0],
    "second": "#F0A04B",
    "third": "#3CCF9E",
    "ok": "#3CCF9E",
    "warn": "#F0A04B",
    "bad": "#FF8A80",
    **{f"group{place}": colour for place, colour in enumerate(DARK_GROUPS)},
}
"""Colours of pages in dark mode."""
