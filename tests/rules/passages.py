"""Public text of the project as passages: paragraphs of documents and prompts, messages of code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rules.configuration import BEGIN, END
from tests.rules.sources import ROOT

DOCUMENTS = (
    "*.md",
    "sdk/*.md",
    "prompts/README.md",
    "deploy/citus/README.md",
    "sdk/typescript/*.md",
    "docs/**/*.md",
    "docs/*.txt",
    "examples/*.md",
    "bench/README.md",
)
PROMPTS = ("prompts/**/*.txt",)

ROUTE_METHODS = {"get", "post", "put", "patch", "delete"}
COMMANDS = {"command", "callback"}
TEXT_KEYWORDS = {
    "detail",
    "description",
    "help",
    "message",
    "summary",
    "title",
    "short_help",
    "epilog",
}
PRINTS = {"echo", "secho", "print", "say", "fail"}
LOGS = {"debug", "info", "warning", "error", "exception"}
STORED_TEXT = re.compile(r"reflection/(rules|findings/words)/|reflection/credit/")
"""Files whose texts become reflections, strategies and reasons of verdicts."""


@dataclass(frozen=True)
class Passage:
    """A piece of public text. `line` counts from 1."""

    path: Path
    line: int
    text: str

    @property
    def name(self) -> str:
        return (
            self.path.relative_to(ROOT).as_posix() if ROOT in self.path.parents else str(self.path)
        )


def documents() -> list[Path]:
    """The documents of the project, without generated reports."""
    return sorted({path for pattern in DOCUMENTS for path in ROOT.glob(pattern)})


def prompts() -> list[Path]:
    return sorted({path for pattern in PROMPTS for path in ROOT.glob(pattern)})


def passages(path: Path) -> list[Passage]:
    """The public text of a file, by its kind."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [Passage(path, line, message) for line, message in messages(ast.parse(text), path)]
    return paragraphs(path, prose(text))


def prose(text: str) -> str:
    """Markdown with everything blanked that is not prose: code, comments, addresses, and the table
    that is made from `Settings` (its text is checked in the code). Line numbers stay.
    """
    text = re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", _blank, text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL)
    text = re.sub(r"^( *)```.*?^ *```", _blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?<=\n\n)(?: {4}\S[^\n]*\n)+", _blank, text)
    text = re.sub(r"\]\([^)\n]*\)", "]", text)
    text = re.sub(r"https?://\S+", "", text)
    text = re.sub(r"`[^`\n]+`", "‹code›", text)
    return re.sub(r"^(#+ .*)$", r"\1.", text, flags=re.MULTILINE)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found.group().count("\n")


def paragraphs(path: Path, text: str) -> list[Passage]:
    """Lines that belong together; a row of a table and an item of a list are each their own."""
    found: list[Passage] = []
    start, lines = 0, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], 1):
        begins = not line.strip() or bool(re.match(r"\s*(\||#|[-*] |\d+\. )", line))
        if begins and lines:
            found.append(Passage(path, start, " ".join(lines)))
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line.strip())
    return found


def messages(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """What a user can see of a Python file: errors, descriptions, help, docstrings of routes,
    commands and wire models, printed text, names of log events; and stored text.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call() as call):
                yield from _texts(call.args[:1])
            case ast.Call():
                yield from _texts(_shown_arguments(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_public(node):
                yield from _docstring(node)
            case ast.ClassDef():
                if path.name == "schemas.py":
                    yield from _docstring(node)
                yield from _texts(_class_texts(node))
            case _:
                pass
    if STORED_TEXT.search(path.as_posix()):
        yield from _sentences(tree)


def _shown_arguments(call: ast.Call) -> list[ast.expr]:
    name = _name(call.func)
    shown = [keyword.value for keyword in call.keywords if keyword.arg in TEXT_KEYWORDS]
    if name.endswith(("Error", "Exception")) or name in PRINTS:
        shown += call.args[:1]
    if name in LOGS and call.args and isinstance(event := call.args[0], ast.Constant):
        words = str(event.value).replace("_", " ")
        shown.append(ast.copy_location(ast.Constant(words), event))
    return shown


def _class_texts(node: ast.ClassDef) -> list[ast.expr]:
    """`detail = "…"` and the like in the body of a class."""
    return [
        inner.value
        for inner in node.body
        if isinstance(inner, ast.Assign | ast.AnnAssign)
        and inner.value is not None
        and any(_name(target) in TEXT_KEYWORDS for target in _targets(inner))
    ]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _is_public(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a route or a command: its docstring is in the API document or in `--help`."""
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(function, ast.Attribute) and function.attr in ROUTE_METHODS | COMMANDS:
            return True
    return False


def _docstring(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
) -> Iterator[tuple[int, str]]:
    text = ast.get_docstring(node)
    if text:
        yield node.lineno, _plain(text)


def _texts(nodes: list[ast.expr]) -> Iterator[tuple[int, str]]:
    """The texts of expressions; fields of an f-string become `…`."""
    read: Callable[[ast.expr], str] = _text
    for node in nodes:
        if text := read(node):
            yield node.lineno, _plain(text)


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(
                _text(value) if isinstance(value, ast.Constant) else "…" for value in values
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_text(body)} / {_text(orelse)}"
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return _text(value)
        case _:
            return ""


def _sentences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """All strings with at least four words that are no docstrings."""
    skipped = {id(inner) for node in ast.walk(tree) for inner in _parts(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in skipped:
            text = _text(node)
            if len(text.split()) >= 4:
                yield node.lineno, _plain(text)


def _parts(node: ast.AST) -> list[ast.expr]:
    """A docstring, or the parts of an f-string."""
    match node:
        case ast.Expr(value=ast.Constant() as text):
            return [text]
        case ast.JoinedStr(values=values):
            return values
        case _:
            return []


def _plain(text: str) -> str:
    return re.sub(r"`[^`\n]+`", "‹code›", " ".join(text.split()))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
