"""One file that opens offline: a template, the style, the scripts and the numbers of the drawings.

Jinja2 escapes every text that came from data, and `embed` every number for a drawing. A policy in
the page's head lets nothing run but the two scripts that were put in, and lets nothing be loaded.

Numbers take few bytes, and extremes are kept. A long series is cut into stretches of equal width;
of each, the smallest and the largest value are kept where they stand, so that a spike of one step
is still seen. Values become 16 bits between the smallest and the largest of their series, as base64
text. Colours are Okabe and Ito's, which all people can tell apart; figures use them too.
"""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.typing import AnyArray, Array, IntArray
from grd_offline.core.words import format_share

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE_BYTES = 5_800_000
"""Size of a whole page; the episodes get what the other sections leave."""
LIBRARY = "vendor/plotly-cartesian.min.js"
PIECES = "base viewer effects graph quality runs verdicts start"
SCRIPTS = tuple(f"page.{piece}.js" for piece in PIECES.split())
"""Our own script in pieces; each may use names of the pieces before it."""


def render_page(template: str, payload: Mapping[str, Any], /, **context: Any) -> str:
    """Render a page from its template, the numbers of its drawings and what its text speaks of.

    Every template has a tab, a kind, a nav (titles of sections by their names), the numbers, and
    its own names.
    """
    from jinja2 import UndefinedError
    from markupsafe import Markup

    trusted = {**_load_parts(), "payload": embed(payload)}
    texts = {name: Markup(text) for name, text in trusted.items()}
    try:
        return _make_environment().get_template(template).render({**payload, **context, **texts})
    except UndefinedError as error:  # an entry of a file that the template needs
        raise KeyError(error.message) from None


@cache
def _make_environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from jinja2.runtime import Macro

    environment = Environment(
        loader=PackageLoader("grd_offline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # folding constants takes longer than a page takes without it
    )
    environment.globals |= {"NINETY": show_share(0.9), "level": "fine", "verdict": ""}
    environment.globals |= {"facts": (), "source": ()}
    environment.filters.update(joined=join_names, number=show_number, share=show_share)
    environment.filters.update(value=show_value, command=lambda words: shlex.join(map(str, words)))
    known = vars(environment.get_template("macros.html").module)
    environment.globals |= {n: macro for n, macro in known.items() if isinstance(macro, Macro)}
    return environment


def embed(payload: Mapping[str, Any]) -> str:
    """Write JSON that cannot close the script element around it."""
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _load_parts() -> dict[str, str]:
    """Load what is the same on all pages: the style, the scripts, and the policy about them."""
    library, style, *pieces = (
        files("grd_offline.report").joinpath(name).read_text("utf-8")
        for name in (LIBRARY, "page.css", *SCRIPTS)
    )
    # Nothing outside of our script can reach its names.
    script = '"use strict";\n(() => {\n' + "\n".join(pieces) + "})();\n"
    hashes = [encode(sha256(one.encode()).digest()) for one in (library, script)]
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in palette.items())
        for palette in (LIGHT, DARK)
    )
    scheme = "@media (prefers-color-scheme: dark)"
    return {
        "policy": "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}'",
        "style": f":root{{{light}}}\n{scheme}{{:root:not([data-print]){{{dark}}}}}\n{style}",
        "library": library,
        "script": script,
    }


def count_steps(about: Mapping[str, Any]) -> tuple[str, str]:
    """Say how many episodes and steps the data have."""
    return f"{about['episodes']:,} episodes", f"{about['steps']:,} steps"


def show_value(value: Any) -> str:
    """Write a setting as a person would."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(show_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={show_value(item)}" for name, item in value.items()) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_number(value: float) -> str:
    """Write a number with three digits, or in full from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def show_share(share: float) -> str:
    """Write a share in per cent on one line, as all other texts do."""
    return format_share(share).replace(" ", "\N{NO-BREAK SPACE}")


def join_names(names: Iterable[str]) -> str:
    """Join names like this: a, b and c."""
    *others, last = list(names) or [""]
    return f"{', '.join(others)} and {last}" if others else last


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


LEVELS = 65535


def pack(values: ArrayLike) -> dict[str, Any]:
    """Pack an array of finite numbers as its shape, its range and 16-bit levels."""
    array = np.asarray(values, np.float64)
    levels, low, high = quantise(array)
    return {"shape": list(array.shape), "low": low, "high": high, "data": encode(levels)}


def quantise(values: Array) -> tuple[NDArray[np.uint16], float, float]:
    """Round to 65,536 levels between the smallest and the largest value; return all three."""
    if not values.size:
        return np.zeros(0, np.uint16), 0.0, 0.0
    low, high = float(values.min()), float(values.max())
    scale = LEVELS / (high - low) if high > low else 0.0
    return np.rint((values - low) * scale).astype("<u2"), low, high


def encode(contents: AnyArray | bytes) -> str:
    """Write the bytes of an array, or of a file, as text."""
    contents = contents if isinstance(contents, bytes) else np.ascontiguousarray(contents).tobytes()
    return b64encode(contents).decode()


def find_extremes(values: Array, width: int) -> tuple[IntArray, Array]:
    """Find the smallest and the largest value of each stretch of `width` steps.

    Gives (stretch, 2) the steps and the values; where both are the same step it stands twice.
    """
    count = -(-len(values) // width)
    # What fills up the last stretch repeats its last value, and so is never an extreme of its own.
    filled = np.concatenate([values, np.repeat(values[-1:], count * width - len(values))])
    stretches = filled.reshape(count, width)
    places = np.sort([stretches.argmin(1), stretches.argmax(1)], axis=0).T
    rows = np.arange(count)[:, None]
    steps = rows * width + places
    return steps, stretches[rows, places]


def count_bytes(length: int, width: int, spiky: int, smooth: int) -> int:
    """Count the bytes that `pack_series` gives for one episode, before base64."""
    if width == 1:
        return 2 * length * (spiky + smooth)
    stretches = -(-length // width)
    return stretches * (5 * spiky + 2 * smooth)


def pack_series(spiky: list[Array], smooth: list[Array], width: int) -> dict[str, Any]:
    """Pack series of one episode: extremes of spiky ones, ends of stretches of smooth ones.

    The data are all 16-bit levels, series after series, then for each spiky one a byte per stretch:
    where its two values stand, in sixteenths of the stretch.
    """
    numbers: list[AnyArray] = []
    places: list[AnyArray] = []
    ranges = []
    for index, values in enumerate([*spiky, *smooth]):
        if width == 1:
            kept = values
        elif index < len(spiky):
            steps, extremes = find_extremes(values, width)
            kept = extremes.ravel()
            offsets = (steps % width) * 16 // width if width > 16 else steps % width
            places.append((offsets[:, 0] * 16 + offsets[:, 1]).astype(np.uint8))
        else:
            kept = values[np.minimum(np.arange(width, len(values) + width, width), len(values)) - 1]
        levels, low, high = quantise(kept)
        numbers.append(levels)
        ranges.append([float(f"{end:.7g}") for end in (low, high)])
    data = b"".join(part.tobytes() for part in (*numbers, *places))
    return {"width": width, "ranges": ranges, "data": encode(data)}
