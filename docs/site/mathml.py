"""Equations as MathML, which browsers draw themselves, so that the site needs no network."""

import html
import re
from xml.etree import ElementTree

from docutils.nodes import Element, SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
ACCENTS = frozenset("\u02c6~\u02c9\u02d9\u00a8\u02c7\u00b4\u02d8\u2192^\u00af")
NAMESPACE = "http://www.w3.org/1998/Math/MathML"


def place_indices(text: str) -> str:
    r"""Set an index beside a letter with an accent, as in \hat r_t; docutils sets it below."""
    ElementTree.register_namespace("", NAMESPACE)
    # XML knows only a few of the names that HTML has for characters.
    known = re.sub(r"&(?!(?:lt|gt|amp|quot);)\w+;", lambda found: html.unescape(found[0]), text)
    root = ElementTree.fromstring(known)
    for element in root.iter(f"{{{NAMESPACE}}}munderover"):
        base, index, accent = element
        if accent.text is not None and accent.text.strip() in ACCENTS:
            letter = ElementTree.Element(f"{{{NAMESPACE}}}mover", accent="true")
            letter.extend([base, accent])
            element[:] = [letter, index]
            element.tag = f"{{{NAMESPACE}}}msub"
    return ElementTree.tostring(root, encoding="unicode")


def convert(node: Element, *, is_block: bool) -> str:
    """An equation in LaTeX as MathML; one that cannot be converted is a warning."""
    try:
        return place_indices(tex2mathml(node.astext(), as_block=is_block))
    except MathError as error:
        LOGGER.warning("%s: %s", error, node.astext(), location=node)
        return ""


def visit_math(writer: HTML5Translator, node: Element) -> None:
    """Write an equation inside of a line."""
    writer.body.append(convert(node, is_block=False))
    raise SkipNode


def visit_displayed(writer: HTML5Translator, node: Element) -> None:
    """Write an equation on a line of its own, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS="equation"))
    writer.body.append(convert(node, is_block=True))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({node["number"]})</span>')
    writer.body.append("</div>")
    raise SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
