"""One file that opens offline: template, style and scripts put together, and pieces of HTML.

Every text that came from data passes through `escape`, every number for a drawing through `embed`.
A policy in the page's head lets nothing run but the two scripts that were put in, and lets nothing
be loaded.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from grd_offline.core.words import format_share
from grd_offline.report.colours import DARK, LIGHT

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


def make_page(title: str, body: str, payload: Mapping[str, Any]) -> str:
    """Put a page together from its body and the numbers of its drawings."""
    library, script = _load(LIBRARY), _join_scripts()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src {_hash(library)} {_hash(script)}"
    )
    parts = {
        "title": escape(title),
        "policy": policy,
        "style": _make_style(),
        "body": body,
        "payload": embed(payload),
        "library": library,
        "script": script,
    }
    return fill("page.html", **parts)


def fill(template: str, **parts: str) -> str:
    """Put parts into the places of a template that have their names."""
    # In one pass, so that nothing inside a part is taken for a place of the template.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _load(template))


def count_fixed_bytes() -> int:
    """Count the bytes of a page without contents."""
    parts = (_load("page.html"), _make_style(), _join_scripts(), _load(LIBRARY))
    return sum(len(part) for part in parts)


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


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def make_section(name: str, title: str, lead: str, *parts: str, is_folded: bool = False) -> str:
    """Make a section whose heading can be linked to; `lead` and `parts` are HTML.

    What is in a folded section should not be relied on. It is hidden until a reader asks for it.
    """
    lead = f"<p class='lead'>{lead}</p>" if lead else ""
    body = lead + "".join(parts)
    return (
        f"<section id='{name}' aria-labelledby='{name}-title'>"
        f"<h2 id='{name}-title'>{escape(title)}</h2>{fold_doubtful(body) if is_folded else body}"
        "</section>"
    )


def fold_doubtful(html: str) -> str:
    """Fold up and grey what should not be relied on."""
    return (
        "<details class='doubtful'><summary>The verdict says not to rely on these rewards, so this "
        f"is hidden. Show it.</summary><div>{html}</div></details>"
    )


def make_chart(kind: str, label: str, **data: object) -> str:
    """Make a place for a drawing; `label` describes the drawing for screen readers."""
    extra = "".join(f" data-{name}='{escape(str(value))}'" for name, value in data.items())
    return (
        f"<div class='chart {kind}' data-draw='{kind}' role='img' aria-label='{escape(label)}'"
        f"{extra}></div>"
    )


def make_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], label: str, numbers: Sequence[int] = ()
) -> str:
    """Make a table that scrolls in a box; columns in `numbers` are aligned to the right."""

    def cell(tag: str, place: int, value: object) -> str:
        kind = " class='number'" if place in numbers else ""
        scope = " scope='col'" if tag == "th" else ""
        return f"<{tag}{scope}{kind}>{escape(str(value))}</{tag}>"

    top = "".join(cell("th", i, title) for i, title in enumerate(head))
    lines = "".join(
        f"<tr>{''.join(cell('td', i, value) for i, value in enumerate(row))}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
    return make_scroll(table, label)


def make_scroll(html: str, label: str) -> str:
    """Make a box that scrolls by mouse and by keys."""
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(label)}'>{html}</div>"
    )


def make_details(summary: str, html: str) -> str:
    """Make contents that unfold below their summary."""
    return f"<details><summary>{summary}</summary>{html}</details>"


def make_figure(caption: str, chart: str) -> str:
    """Put a caption above a drawing."""
    return f"<figure><figcaption>{caption}</figcaption>{chart}</figure>"


def make_options(options: Iterable[tuple[object, str]]) -> str:
    """Make the entries of a picker from their values and texts."""
    return "".join(
        f"<option value='{escape(str(value))}'>{escape(text)}</option>" for value, text in options
    )


def make_tabs(name: str, tabs: Sequence[tuple[str, str]]) -> str:
    """Make panels of which one is visible; arrow keys move between the tabs."""
    buttons, panels = [], []
    for index, (title, html) in enumerate(tabs):
        chosen = index == 0
        buttons.append(
            f"<button type='button' role='tab' id='{name}-tab-{index}' "
            f"aria-controls='{name}-panel-{index}' aria-selected='{str(chosen).lower()}' "
            f"tabindex='{0 if chosen else -1}'>{escape(title)}</button>"
        )
        panels.append(
            f"<div role='tabpanel' id='{name}-panel-{index}' aria-labelledby='{name}-tab-{index}'"
            f"{'' if chosen else ' hidden'}>{html}</div>"
        )
    return f"<div class='tabs' role='tablist'>{''.join(buttons)}</div>{''.join(panels)}"


def make_settings(values: Mapping[str, Any], label: str) -> str:
    """Make a table of names and their values."""
    return make_table(("name", "value"), ((n, show_value(v)) for n, v in values.items()), label)


def make_code(text: str) -> str:
    """Show a command line or code, with a button that copies it."""
    return (
        f"<div class='code'><pre class='scroll' tabindex='0'><code>{escape(text)}</code></pre>"
        "<button type='button' class='copy'>Copy</button></div>"
    )


def make_headline(
    kind: str,
    title: str,
    said: Sequence[str],
    facts: Iterable[tuple[str, str]],
    source: str,
    verdict: tuple[str, str] | None = None,
) -> str:
    """Make the top of a page; `title` and `source` are HTML, `facts` numbers and their meaning.

    `verdict` has a level and a sentence, which comes before all numbers. They are small unless the
    level is "fine".
    """
    level, sentence = verdict if verdict is not None else ("fine", "")
    banner = f"<p class='verdict {escape(level)}'>{escape(sentence)}</p>" if sentence else ""
    size = "facts" if level == "fine" else "facts small"
    items = "".join(
        f"<div><dd>{escape(number)}</dd><dt>{escape(what)}</dt></div>" for number, what in facts
    )
    return (
        f"<header class='hero'><p class='eyebrow'>{kind}</p><h1>{title}</h1>{banner}"
        f"<p class='lead'>{escape(' '.join(said))}</p><dl class='{size}'>{items}</dl>"
        f"<p class='source'>{source}</p></header>"
    )


def list_source(*parts: str) -> str:
    """Join the parts that describe the source of a page; empty parts are left out."""
    return " · ".join(escape(part) for part in parts if part)


def make_body(headline: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """Join the headline, links, and sections; a section has a name, a title and HTML."""
    items = "".join(
        f"<li><a href='#{name}'>{escape(title)}</a></li>" for name, title, _ in sections
    )
    return (
        f"{headline}<nav aria-label='Sections'><ul>{items}</ul></nav>"
        f"<main>{''.join(html for _, _, html in sections)}</main>"
    )


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


def join_names(names: Sequence[str]) -> str:
    """Join names like this: a, b and c."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


NINETY = show_share(0.9)
