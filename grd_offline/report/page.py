"""One file that opens offline: a template, the style, the scripts and the numbers of the drawings.

Jinja2 escapes every text that came from data, and `embed` every number for a drawing. A policy in
the page's head lets nothing run but the two scripts that were put in, and lets nothing be loaded.
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

from grd_offline.core.words import format_share
from grd_offline.report.colours import DARK, LIGHT

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE_BYTES = 5_800_000
"""Size of a whole page; the episodes get what the other sections leave."""
LIBRARY = "vendor/plotly-cartesian.min.js"
SCRIPTS = tuple(
    f"page.{name}.js"
    for name in (
        *("base", "viewer", "waterfall", "importance", "effects", "graph", "masks", "quality"),
        *("runs", "verdicts", "start"),
    )
)
"""Our own script in pieces; each may use names of the pieces before it."""


def render_page(template: str, payload: Mapping[str, Any], /, **context: Any) -> str:
    """Render a page from its template, the numbers of its drawings and what its text speaks of.

    Every template has a tab, a kind, a nav (titles of sections by their names) and its own names.
    """
    from jinja2 import UndefinedError
    from markupsafe import Markup

    library, script = _load(LIBRARY), _join_scripts()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src {_hash(library)} {_hash(script)}"
    )
    ours = {
        "policy": policy,
        "style": _make_style(),
        "payload": embed(payload),
        "library": library,
        "script": script,
    }
    trusted = {name: Markup(text) for name, text in ours.items()}
    try:
        return _make_environment().get_template(template).render(**trusted, **context)
    except UndefinedError as error:  # an entry of a file that the template needs
        raise KeyError(error.message) from None


@cache
def _make_environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("grd_offline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "NINETY": NINETY,
        "facts": (),
        "level": "fine",
        "source": (),
        "verdict": "",
    }
    environment.filters["command"] = lambda words: shlex.join(map(str, words))
    environment.filters["joined"] = join_names
    environment.filters["number"] = show_number
    environment.filters["share"] = show_share
    environment.filters["value"] = show_value
    return environment


def embed(payload: Mapping[str, Any]) -> str:
    """Write JSON that cannot close the script element around it."""
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _load(name: str) -> str:
    return files("grd_offline.report").joinpath(name).read_text("utf-8")


@cache
def _join_scripts() -> str:
    """Join the pieces into one script, whose names nothing outside of it can reach."""
    return '"use strict";\n(() => {\n' + "\n".join(map(_load, SCRIPTS)) + "})();\n"


@cache
def _make_style() -> str:
    """Make the style sheet, which begins with the colours."""
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in palette.items())
        for palette in (LIGHT, DARK)
    )
    scheme = "@media (prefers-color-scheme: dark)"
    return f":root{{{light}}}\n{scheme}{{:root:not([data-print]){{{dark}}}}}\n{_load('page.css')}"


@cache
def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


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
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def show_share(share: float) -> str:
    """Write a share in per cent on one line, as all other texts do."""
    return format_share(share).replace(" ", "\N{NO-BREAK SPACE}")


def join_names(names: Iterable[str]) -> str:
    """Join names like this: a, b and c."""
    names = list(names)
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


NINETY = show_share(0.9)
