"""What a client relies on in an OpenAPI document, as sorted lines: operations, what they take, and
what they answer. `breaks` compares two documents in this form (docs/api-stability.md).

    python -m tests.api.signatures    freeze the document that the service has now
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sdk.generator.schemas import expanded, operations, parameters, ref_name, references
from tests.support.paths import ROOT

FROZEN = Path(__file__).with_name("v1.txt")
Json = dict[str, Any]


def signatures(document: Json) -> list[str]:
    """Lines such as `GET /api/v1/runs takes query state: RunState (optional)`."""
    document = expanded(document)
    lines = {line for each in operations(document) for line in _of_operation(document, *each)}
    taken, answered = _sides(document)
    for side, names in (("takes", taken), ("answers", answered)):
        for name in names:
            schema = document["components"]["schemas"][name]
            lines |= set(_of_fields(f"{name} {side}", schema))
    return sorted(lines)


def _of_operation(document: Json, method: str, path: str, operation: Json) -> Iterator[str]:
    call = f"{method} {path}"
    yield f"{call} is {operation['operationId']}"
    for each in parameters(document, operation):
        place = f"{each['in']} {each['name']}"
        yield f"{call} takes {place}: {_type(each['schema'])}{_need(each.get('required', False))}"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"{call} takes body {kind}: {_type(content.get('schema', {}))}"
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items() if status < "300" else ():
            yield f"{call} answers {status} {kind}: {_type(content.get('schema', {}))}"


def _of_fields(prefix: str, schema: Json) -> Iterator[str]:
    required = schema.get("required", [])
    for value in schema.get("enum", ()):
        yield f"{prefix} value {json.dumps(value)}"
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix} field {name}: {_type(field)}{_need(name in required)}"


def _need(is_required: bool) -> str:
    return " (required)" if is_required else " (optional)"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return ref_name(schema["$ref"])
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " | ".join(sorted(map(_type, schema[union])))
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return f"{kind} {schema['format']}" if "format" in schema else kind


def _sides(document: Json) -> tuple[set[str], set[str]]:
    """The schemas behind requests, and those behind answers."""
    taken: list[Any] = []
    answered: list[Any] = []
    for _, _, operation in operations(document):
        taken += [parameters(document, operation), operation.get("requestBody", {})]
        answered += [each for status, each in operation["responses"].items() if status < "300"]
    return references(document, *taken), references(document, *answered)


def breaks(before: list[str], now: list[str]) -> list[str]:
    """The changes that can break a client: a line that is gone, and a new required input of an
    operation or a schema that existed.
    """
    old, new = set(before), set(now)
    gone = [f"gone: {line}" for line in before if line not in new and not _is_relaxed(line, new)]
    owners = {line.split(" takes ")[0] for line in before}
    added = [
        f"now required: {line}"
        for line in now
        if line not in old and line.endswith("(required)") and " takes " in line
        if line.split(" takes ")[0] in owners
    ]
    return gone + added


def _is_relaxed(line: str, new: set[str]) -> bool:
    """Whether an input that was required is optional now, or a field that an answer may have is
    always there now.
    """
    if " takes " in line:
        return line.replace("(required)", "(optional)") in new
    return line.replace("(optional)", "(required)") in new


def main() -> None:
    document = json.loads((ROOT / "openapi.json").read_text("utf-8"))
    FROZEN.write_text("\n".join(signatures(document)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
