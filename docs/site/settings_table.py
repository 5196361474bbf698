"""A directive that lists the settings of a class, with their defaults and meaning, from the code."""

import importlib
from dataclasses import MISSING
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from grd_offline.settings import Described, describe_settings


def format_default(value: Any) -> str:
    """A default as Python writes it."""
    return "required" if value is MISSING else repr(value)


def describe(described: Described) -> str:
    """What a setting means, and which values it takes."""
    setting = described.setting
    text = setting.text
    if setting.names:
        text += f" One of: {', '.join(setting.names)}."
    elif setting.describe_range():
        text += f" Range: {setting.describe_range()}."
    return text


class SettingsTable(SphinxDirective):
    """`{settings} module:Class`, followed by the names of fields to leave out."""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        settings = describe_settings(getattr(importlib.import_module(module), name))
        table = nodes.definition_list(classes=["settings"])
        for field, described in settings.items():
            if field in self.arguments[1:]:
                continue
            term = nodes.term()
            term += nodes.literal(text=field)
            term += nodes.Text(" ")
            term += nodes.inline(text=f"default {format_default(described.default)}",
                                 classes=["default"])  # fmt: skip
            meaning, _ = self.parse_inline(describe(described), lineno=self.lineno)
            paragraph = nodes.paragraph("", "", *meaning)
            entry = nodes.definition_list_item("", term, nodes.definition("", paragraph))
            table += entry
        return [table]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("settings", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
