"""Hooks of MkDocs: pages that are generated, and links that differ between repository and site.

The reference of HTTP API, command line and SDK comes from the code. CHANGELOG and others are pages
of the site too.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import typer
from mkdocs.structure.files import File, Files

from hansei.cli.main import app, load_server_commands
from hansei.resources import Resources

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "bench/README.md": "benchmarks.md",
    "sdk/typescript/README.md": "reference/typescript.md",
}
"""Files outside docs/ and their pages."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_fix_links(text, source, page)))
    pages = {
        "reference/http.md": http_reference(),
        "reference/cli.md": cli_reference(),
        "reference/sdk.md": sdk_reference(),
    }
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "openapi.json", content=_openapi()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    is_generated = path in PAGES.values() or path.startswith("reference/")
    return markdown if is_generated else _fix_links(markdown, f"docs/{path}", path)


def _fix_links(text: str, source: str, page: str) -> str:
    """Links between files of the repository as links between pages. A link to a file without a page
    becomes the name of the file.
    """

    def replace(match: re.Match[str]) -> str:
        label, (target, _, anchor) = match[1], match[2].partition("#")
        if "://" in target or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        to = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if to is not None and path.endswith("decisions"):
            to += "/README.md"
        if to is None:
            return f"`{path}`" if label.strip("`") == target else f"{label} (`{path}`)"
        link = posixpath.relpath(to, posixpath.dirname(page) or ".")
        return f"[{label}]({link}{'#' if anchor else ''}{anchor})"

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(replace, part) for part in parts)


def _openapi() -> str:
    return (ROOT / "openapi.json").read_text(encoding="utf-8")


def http_reference() -> str:
    """All operations by tag. Bodies and examples are at `/docs` of a running service."""
    document = json.loads(_openapi())
    lines = [
        "# HTTP API",
        "",
        "Every operation with its method and path. A running service shows bodies, examples and"
        " errors at `/docs`. The whole document: [openapi.json](../openapi.json).",
    ]
    operations = [
        (operation["tags"][0], method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if isinstance(operation, dict) and operation.get("tags")
    ]
    for tag in document["tags"]:
        found = [item for item in operations if item[0] == tag["name"]]
        if found:
            lines += ["", f"## {tag['name']}", "", tag["description"], ""]
            lines += ["| operation | request | |", "|---|---|---|"]
            lines += [
                f"| `{operation['operationId']}` | `{method} {path}` | {operation['summary']} |"
                for _, method, path, operation in found
            ]
    return "\n".join(lines) + "\n"


def cli_reference() -> str:
    """All commands of `hansei` with arguments and options."""
    load_server_commands(app)
    root = typer.main.get_command(app)
    lines = ["# Command line", "", "`hansei COMMAND --help` prints the same in the terminal."]
    for name, command in _commands(root, "hansei"):
        lines += ["", f"## {name}", "", (command.help or "").split("\f")[0].strip()]
        rows = [row for row in map(_parameter_row, command.params) if row]
        if rows:
            lines += ["", "| | |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for child in sorted(command.commands):
            yield from _commands(command.commands[child], f"{name} {child}")
    elif not command.hidden:
        yield name, command


def _parameter_row(parameter: Any) -> str:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return ""
    is_argument = parameter.param_type_name == "argument"
    metavar = parameter.metavar or (parameter.name or "").upper()
    names = [metavar] if is_argument else parameter.opts
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    shown = ", ".join(f"`{each}`" for each in names)
    return f"| {shown.replace('|', chr(92) + '|')} | {text} |"


def sdk_reference() -> str:
    """All methods of the client with their arguments, by resource."""
    lines = [
        "# Python SDK",
        "",
        "`Hansei` and `AsyncHansei` have these resources. With `AsyncHansei`, use `await`, and"
        " `async for` for lists.",
    ]
    lines += _resource_reference("client", Resources)
    return "\n".join(lines) + "\n"


def _resource_reference(path: str, resource: type) -> Iterator[str]:
    for name, value in vars(resource).items():
        if isinstance(value, cached_property):
            child: Any = get_type_hints(value.func)["return"]
            yield from _resource_reference(f"{path}.{name}", child)
        elif inspect.isfunction(value) and not name.startswith("_"):
            arguments = (
                str(inspect.signature(value)).replace("(self, ", "(").replace("(self)", "()")
            )
            text = f"```text\n{inspect.getdoc(value)}\n```"
            yield from ("", f"## {path}.{name}", "", f"```python\n{name}{arguments}\n```", "", text)
