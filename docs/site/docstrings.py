"""Settings, signatures and docstrings as the reference shows them.

The directive `{settings}` lists the settings of a class with their defaults and meaning. Signatures
have the types that the source names. Docstrings hold plain text: code that is indented in them is
shown as code, and classes that have settings get the list of them.
"""

import importlib
import inspect
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature


def read_default(field: Field[Any]) -> str:
    """The default of a field as Python writes it."""
    value = field.default if field.default_factory is MISSING else field.default_factory()
    return "required" if value is MISSING else repr(value)


def describe_fields(settings: type[Any]) -> dict[str, tuple[str, str]]:
    """The default and the meaning of each field of a settings class."""
    analyzer = ModuleAnalyzer.for_module(settings.__module__)
    analyzer.analyze()
    found = {}
    for field in fields(settings):
        if "setting" in field.metadata:
            setting = field.metadata["setting"]
            text = setting.text.strip().removesuffix(".") + "."
            if setting.names:
                text += f" One of: {', '.join(setting.names)}."
            elif setting.describe_range():
                text += f" Range: {setting.describe_range()}."
        else:
            text = " ".join(analyzer.attr_docs[settings.__qualname__, field.name]).strip()
        found[field.name] = (read_default(field), text)
    return found


class SettingsList(SphinxDirective):
    """`{settings} module:Class`, followed by the names of fields to leave out."""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        settings = getattr(importlib.import_module(module), name)
        shown = nodes.definition_list(classes=["settings"])
        for field, (default, text) in describe_fields(settings).items():
            if field in self.arguments[1:]:
                continue
            value = nodes.inline(text=f" = {default}", classes=["default"])
            term = nodes.term("", "", nodes.literal(text=field), value)
            meaning, _ = self.parse_inline(text, lineno=self.lineno)
            paragraph = nodes.paragraph("", "", *meaning)
            shown += nodes.definition_list_item("", term, nodes.definition("", paragraph))
        return [shown]


def show_code(lines: list[str]) -> list[str]:
    """The docstring with a mark before each indented block, so that it is shown as code."""
    shown: list[str] = []
    for i, line in enumerate(lines):
        starts = line.startswith("    ") and i and not lines[i - 1].strip()
        before = next((earlier for earlier in reversed(lines[:i]) if earlier.strip()), "")
        if starts and not before.startswith("    "):
            shown += [".. code-block:: python", ""]
        shown.append(line)
    return shown


def find_settings(found: Any) -> type[Any] | None:
    """The settings of a class: of an estimator its own, of settings themselves."""
    settings = getattr(found, "settings_class", found) if inspect.isclass(found) else None
    is_settings = is_dataclass(settings) and settings.__name__.endswith("Settings")
    return settings if is_settings else None


def process(app: Sphinx, kind: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Change a docstring before it is read."""
    lines[:] = show_code(lines)
    settings = find_settings(found)
    if settings is not None:
        place = f"{settings.__module__}:{settings.__qualname__}"
        lines += ["", ".. rubric:: Parameters", "", f".. settings:: {place}", ""]


def sign(
    app: Sphinx, kind: str, name: str, found: Any, options: Any, given: str, result: str
) -> tuple[str, str] | None:
    """The signature with types as the source writes them, and without defaults nobody can read."""
    if kind not in ("class", "function", "method"):
        return None
    if find_settings(found) is not None:
        return "(**parameters)", ""
    signature = inspect.signature(found)
    parameters = list(signature.parameters.values())
    if kind == "method" and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    plain = [p.replace(default=...) if repr(p.default).startswith("<function") else p
             for p in parameters]  # fmt: skip
    written = stringify_signature(signature.replace(parameters=plain)).replace("Ellipsis", "...")
    arguments, arrow, returned = written.rpartition(" -> ")
    return (arguments, returned) if arrow and kind != "class" else (arguments or written, "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the steps."""
    app.add_directive("settings", SettingsList)
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
