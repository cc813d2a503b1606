"""Pages never mark text as safe that is not written in the code: no variable is translated with
`_()`, whose result is markup, and no filter or call turns a variable into markup.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from tests.rules.sources import files, name_of, tree

TEMPLATES = files("apps", suffix=".html")
MODULES = files("apps", suffix=".py")
TRANSLATIONS = {"_", "gettext", "ngettext"}
UNSAFE_FILTERS = {"safe", "xmlattr", "urlize", "format"}
UNQUOTED_VALUE = re.compile(r"<[^<>]*\s[\w-]+=\{\{")
SCRIPT_ATTRIBUTE = re.compile(r"\s(on\w+|hx-[\w-]+|style)=|javascript:", re.IGNORECASE)
"""Attributes that run something, which the Content-Security-Policy of the console blocks."""


def template_faults(source: str) -> list[str]:
    """What in a template could show a text of others as markup."""
    environment = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    parsed = environment.parse(source)
    faults: list[str] = []
    for call in parsed.find_all(nodes.Call):
        name = call.node.name if isinstance(call.node, nodes.Name) else ""
        texts = call.args[: 2 if name == "ngettext" else 1]
        if name in TRANSLATIONS and not all(isinstance(text, nodes.Const) for text in texts):
            faults.append(f"line {call.lineno}: use `| translate` for a variable")
    faults += [
        f"line {found.lineno}: | {found.name}"
        for found in parsed.find_all(nodes.Filter)
        if found.name in UNSAFE_FILTERS
    ]
    for kind in (nodes.ScopedEvalContextModifier, nodes.EvalContextModifier, nodes.MarkSafe):
        faults += [f"line {found.lineno}: autoescape" for found in parsed.find_all(kind)]
    for pattern in (UNQUOTED_VALUE, SCRIPT_ATTRIBUTE):
        faults += [f"{found[0]!r}" for found in pattern.finditer(source)]
    return faults


def module_faults(module: ast.Module) -> list[str]:
    """Calls that make markup of anything but a text in the code."""
    return [
        f"line {call.lineno}: {call.func.id}()"
        for call in ast.walk(module)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and (
            (
                call.func.id == "Markup"
                and not all(
                    isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                    for argument in call.args
                )
            )
            or call.func.id in ("mark_safe", "HTMLString")
        )
    ]


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_template_marks_no_variable_as_safe(path: Path) -> None:
    assert template_faults(path.read_text(encoding="utf-8")) == []


def test_no_module_makes_markup_of_a_variable() -> None:
    faults = {name_of(path): module_faults(tree(path)) for path in MODULES}
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        "{{ ui.notice(_(error.detail)) }}",
        "{{ ngettext('one', many, 2) }}",
        "{{ text | safe }}",
        "{% autoescape false %}{{ text }}{% endautoescape %}",
        "<a href={{ address }}>",
        '<b hx-get="/console">',
        '<b onclick="x()">',
    ],
)
def test_fault_is_found(source: str) -> None:
    assert template_faults(source)


@pytest.mark.parametrize("code", ["Markup(text)", "Markup(f'<b>{text}</b>')"])
def test_fault_of_code_is_found(code: str) -> None:
    assert module_faults(ast.parse(code))
