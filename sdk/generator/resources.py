"""Resources as classes: one method for each operation of the API."""

# pyright: basic
# The document is JSON of any form.

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from sdk.generator.names import EXAMPLES, INTERNAL, POSITIONAL, READS, RESOURCES
from sdk.generator.schemas import (
    Schema,
    input_type,
    operations,
    parameters,
    ref_name,
    request_body,
    response_schema,
)

PACKAGE = Path(__file__).resolve().parents[1] / "hansei"
MODULES = ("_ndjson", "_operations", "_flows")
"""Modules whose functions are methods, and whose names these use."""
HIDDEN = frozenset(("tenant_id", "cursor", "Idempotency-Key", "Prefer", "Last-Event-ID"))
"""Parameters that the client sets itself."""
IMPORTS = """
from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from os import PathLike
from typing import Any, Literal, Unpack

from hansei import _flows, _operations, params
from hansei._request import (
    OMIT, Id, Omit, RequestOptions, api_path, check_options, get_request, list_request,
    read_request, whole_list_request, write_request,
)
from hansei._async_resource import AsyncClient, AsyncPager, AsyncResource
{names}
"""


@dataclass
class Argument:
    name: str
    type: str
    description: str
    place: str  # path, query, body or header
    wire_name: str
    default: str | None = None
    is_positional: bool = False

    def declaration(self) -> str:
        default = f" = {self.default}" if self.default is not None else ""
        return f"{self.name}: {self.type}{default}"


@dataclass
class Method:
    name: str
    arguments: list[Argument]
    description: str
    result: str
    request: str
    kind: str = "request"  # request, list, iterate or run
    has_options: bool = True
    example: str = ""
    raw_signature: str = ""


def generate_resources(document: Schema) -> str:
    """The module of the resources for asyncio."""
    functions, modules = _read_functions()
    found = {item["operationId"]: (verb, path, item) for verb, path, item in operations(document)}
    classes: list[str] = []
    for path, methods in RESOURCES.items():
        described = [
            _from_function(name, *functions[value])
            if value in functions
            else _from_operation(document, path, name, value, *found[value.partition(":")[0]])
            for name, value in methods.items()
        ]
        classes.append(_write_class(path, described))
    text = "\n\n".join(classes) + _write_root()
    modules = dict.fromkeys(document["components"]["schemas"], "hansei.models") | modules
    names = set(re.findall(r"(?<![.\w])[A-Z]\w+", re.sub(r'""".*?"""', "", text, flags=re.S)))
    imports = [f"from {modules[name]} import {name}" for name in sorted(names & modules.keys())]
    header = IMPORTS.format(names="\n".join(imports))
    title = "The resources of `AsyncHansei`."
    note = "Generated from `openapi.json` by `make client`; do not edit."
    return f'"""{title}\n\n{note}\n"""\n{header}\n\n{text}'


def _from_operation(
    document: Schema,
    resource: str,
    name: str,
    value: str,
    method: str,
    path: str,
    operation: Schema,
) -> Method:
    arguments = _arguments(document, method, operation)
    is_enqueued = value.endswith(":async")
    response = response_schema(operation, status="202" if is_enqueued else None)
    model = ref_name(response["$ref"]) if response and "$ref" in response else ""
    kind, result = "request", model or ("str" if _is_text(operation) else "None")
    if model.endswith("Page"):
        item = document["components"]["schemas"][model]["properties"]["items"]["items"]
        kind, result = "list", ref_name(item["$ref"])
    if any(each.name == "limit" for each in arguments) and kind == "list":
        arguments = [each for each in arguments if each.name != "limit"]
        text = "Maximum number of items. Default: all."
        arguments.append(Argument("limit", "int | None", text, "limit", "", "None"))
    request = _request_expression(method, path, operation, arguments, result, kind)
    if is_enqueued:
        request = f"{request[:-1]}, is_enqueued=True)"
    description = operation.get("description") or operation["summary"]
    return Method(
        name,
        arguments,
        description,
        result,
        request,
        kind,
        example=_example(resource, name, arguments, kind),
    )


def _is_text(operation: Schema) -> bool:
    content = operation["responses"].get("200", {}).get("content", {})
    return bool(content) and "application/json" not in content


def _arguments(document: Schema, method: str, operation: Schema) -> list[Argument]:
    found = [
        _parameter(document, parameter)
        for parameter in parameters(document, operation)
        if parameter["name"] not in HIDDEN and not _is_internal(operation, parameter["name"])
    ]
    body = request_body(document, operation)
    required = body.get("required", [])
    for name, schema in body.get("properties", {}).items():
        if name not in HIDDEN and name not in {each.name for each in found}:
            argument = _body_argument(document, name, schema, method == "PATCH")
            found.append(argument if name not in required else _required(argument))
    paths = [each for each in found if each.place == "path"]
    needed = [each for each in found if each.place != "path" and each.default is None]
    rest = [each for each in found if each.default is not None]
    first = [each for each in rest if each.name == POSITIONAL.get(operation["operationId"])]
    for each in (*paths, *needed, *first):
        each.is_positional = True
    return [*paths, *needed, *first, *(each for each in rest if each not in first)]


def _is_internal(operation: Schema, name: str) -> bool:
    """The format of what a method sends or returns is part of the method."""
    return (operation["operationId"], name) in INTERNAL


def _parameter(document: Schema, parameter: Schema) -> Argument:
    name, schema = parameter["name"], parameter["schema"]
    description = parameter.get("description", schema.get("description", ""))
    if name == "If-Match":
        text = "The version that the playbook must be at."
        return Argument("if_match", "int | None", text, "header", name, "None")
    if parameter["in"] == "path":
        kind = "Id" if schema.get("format") == "uuid" else input_type(document, schema)
        return Argument(name, kind, description, "path", name)
    return Argument(
        name,
        _optional(input_type(document, schema)),
        _with_default(description, schema),
        "query",
        name,
        "None",
    )


def _body_argument(document: Schema, name: str, schema: Schema, is_change: bool) -> Argument:
    kind = input_type(document, schema)
    description = _with_default(schema.get("description", ""), schema)
    if is_change:
        return Argument(name, f"{kind} | Omit", description, "body", name, "OMIT")
    return Argument(name, _optional(kind), description, "body", name, "None")


def _required(argument: Argument) -> Argument:
    kind = argument.type.removesuffix(" | Omit").removesuffix(" | None")
    return replace(argument, type=kind, default=None)


def _optional(kind: str) -> str:
    return kind if kind.endswith("None") or kind == "Any" else f"{kind} | None"


def _with_default(description: str, schema: Schema) -> str:
    default = schema.get("default")
    if default in (None, "", [], {}) or "Default" in description:
        return description
    text = default if isinstance(default, str) else repr(default)
    return f"{description} Default: {text}.".strip()


def _request_expression(
    method: str,
    path: str,
    operation: Schema,
    arguments: list[Argument],
    result: str,
    kind: str,
) -> str:
    parts = [
        part[1:-1] if part.startswith("{") else repr(part)
        for part in path.removeprefix("/api/v1/").strip("/").split("/")
    ]
    location = f"api_path({', '.join(parts)})" if path.startswith("/api/v1/") else repr(path)
    query = _mapping(arguments, "query")
    body = _mapping(arguments, "body")
    params = f", params={query}" if query else ""
    if any(each.place == "limit" for each in arguments):
        return f"list_request({location}, {result}, limit{params})"
    if kind == "list":
        body = f", body={body}" if body else ""
        return f"whole_list_request({method!r}, {location}, {result}{body}{params})"
    if method == "GET":
        return f"get_request({location}, {result}{params})"
    if operation["operationId"] in READS:
        return f"read_request({location}, {result}, {body or '{}'}{params})"
    if any(each.place == "header" for each in arguments):
        params += ", if_match=if_match"
    content = f", {body}" if body else ""
    return f"write_request({method!r}, {location}, {result}{content}{params})"


def _mapping(arguments: list[Argument], place: str) -> str:
    items = [f"{each.wire_name!r}: {each.name}" for each in arguments if each.place == place]
    return "{" + ", ".join(items) + "}" if items else ""


def _example(resource: str, name: str, arguments: list[Argument], kind: str) -> str:
    needed = [each for each in arguments if each.is_positional and each.name in EXAMPLES]
    call = f"client.{resource}.{name}({', '.join(EXAMPLES[each.name] for each in needed)})"
    return f"for item in {call}:\n    ..." if kind == "list" else call


def _read_functions() -> tuple[dict[str, tuple[str, ast.FunctionDef]], dict[str, str]]:
    """The functions of the modules, each with its module, and the module of each name that these
    import or define.
    """
    functions: dict[str, tuple[str, ast.FunctionDef]] = {}
    modules: dict[str, str] = {}
    for module in MODULES:
        tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                functions[node.name] = (module, node)
            elif isinstance(node, ast.ClassDef):
                modules[node.name] = f"hansei.{module}"
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                modules[node.targets[0].id] = f"hansei.{module}"
    return functions, modules


_KINDS = {"Request": "request", "Flow": "iterate", "SubFlow": "run"}


def _from_function(name: str, module: str, node: ast.FunctionDef) -> Method:
    """A method with the arguments and the docstring of a function of a module."""
    assert isinstance(node.returns, ast.Subscript)
    kind = _KINDS[ast.unparse(node.returns.value)]
    given = [each.arg for each in node.args.args]
    given += [f"{each.arg}={each.arg}" for each in node.args.kwonlyargs]
    return Method(
        name,
        [],
        ast.get_docstring(node) or "",
        ast.unparse(node.returns.slice),
        f"{module}.{node.name}({', '.join(given)})",
        kind,
        has_options=kind in ("request", "list"),
        raw_signature=ast.unparse(node.args),
    )


def _write_class(path: str, methods: list[Method]) -> str:
    name = _class_name(path)
    lines = [f"class {name}(AsyncResource):"]
    lines.append(f'    """`client.{path}`."""\n')
    for child in _children(path):
        lines += _property(child)
    for method in methods:
        lines += [textwrap.indent(_write_method(method), "    "), ""]
    return "\n".join(lines) + "\n"


def _class_name(path: str) -> str:
    words = path.replace(".", "_").split("_")
    return "Async" + "".join(map(str.capitalize, words)) + "Resource"


def _children(path: str) -> list[str]:
    return [each for each in RESOURCES if each.rpartition(".")[0] == path]


def _property(path: str, client: str = "self._client") -> list[str]:
    name = _class_name(path)
    attribute = path.rpartition(".")[2]
    return [
        "    @cached_property",
        f"    def {attribute}(self) -> {name}:",
        f"        return {name}({client})",
        "",
    ]


def _write_root() -> str:
    lines = ["\n\nclass AsyncResources(AsyncClient):"]
    lines.append('    """All resources, as attributes of `AsyncHansei`."""\n')
    for path in _children(""):
        lines += _property(path, client="self")
    return "\n".join(lines) + "\n"


def _write_method(method: Method) -> str:
    word, returned, call = _forms(method)
    signature = f"self, {method.raw_signature}" if method.raw_signature else _signature(method)
    if method.has_options:
        separator = "" if signature.endswith("self, ") else ", "
        signature = signature.rstrip(", ") + separator + "**options: Unpack[RequestOptions]"
    options = ", options" if method.has_options else ""
    check = f"    check_options(options, self.{method.name})\n" if options else ""
    return (
        f"{word}def {method.name}({signature}) -> {returned}:\n"
        f"{textwrap.indent(_docstring(method), '    ')}\n{check}"
        f"    return {call}({method.request}{options})"
    )


def _forms(method: Method) -> tuple[str, str, str]:
    """`async `, the annotation of the result, and what executes the request."""
    if method.kind == "list":
        return "", f"AsyncPager[{method.result}]", "self._list"
    if method.kind == "iterate":
        return "", f"AsyncGenerator[{method.result}]", "self._iterate"
    function = "self._run" if method.kind == "run" else "self._send"
    return "async ", method.result, f"await {function}"


def _signature(method: Method) -> str:
    positional = [each.declaration() for each in method.arguments if each.is_positional]
    named = [each.declaration() for each in method.arguments if not each.is_positional]
    return ", ".join(["self", *positional, *(["*", *named] if named else [])])


def _docstring(method: Method) -> str:
    paragraphs = [_filled(part) for part in method.description.split("\n\n")]
    described = [each for each in method.arguments if each.description]
    if described:
        lines = [
            textwrap.fill(f"{each.name}: {' '.join(each.description.split())}", 88,
                          initial_indent="    ", subsequent_indent="        ")
            for each in described
        ]  # fmt: skip
        paragraphs.append("\n".join(["Args:", *lines]))
    if method.example:
        word = "async" if method.example.startswith("for ") else "await"
        example = f"{word} {method.example}"
        paragraphs.append("Example:\n" + textwrap.indent(example, "    "))
    text = "\n\n".join(paragraphs).replace("\\", "\\\\")
    return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'


def _filled(paragraph: str) -> str:
    if paragraph.startswith("Args:"):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 86)
