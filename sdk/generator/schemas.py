"""The OpenAPI document as types of Python."""

# pyright: basic
# The document is JSON of any form.

from __future__ import annotations

from typing import Any

from sdk.generator.names import ALSO_TEXT

Schema = dict[str, Any]
PREFIX = "#/components/schemas/"
WITHOUT_MEANING = frozenset(
    ("title", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "pattern",
     "format", "examples", "additionalProperties")
)  # fmt: skip
"""What the service checks and a type does not say."""


def expanded(document: Schema) -> Schema:
    """The document with the fields of its base in each schema that extends one, and with `anyOf`
    for a type that may be null.
    """
    schemas = document["components"]["schemas"]
    whole = {name: _with_base(document, schema) for name, schema in schemas.items()}
    return _with_unions(document | {"components": document["components"] | {"schemas": whole}})


def _with_base(document: Schema, schema: Schema) -> Schema:
    if "allOf" not in schema:
        return schema
    base = _with_base(document, resolve(document, schema["allOf"][0]))
    return base | {
        **{key: value for key, value in schema.items() if key != "allOf"},
        "properties": base["properties"] | schema["properties"],
        "required": [*base.get("required", ()), *schema.get("required", ())],
    }


def _with_unions(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_unions(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _with_unions(item) for key, item in value.items()}
    match schema.get("type"):
        case [kind, "null"]:
            about = {key: schema.pop(key) for key in ("description", "default") if key in schema}
            return {"anyOf": [schema | {"type": kind}, {"type": "null"}]} | about
        case _:
            return schema


def resolve(document: Schema, schema: Schema) -> Schema:
    """A schema, or another component of the document, behind a reference."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    kind, name = reference.split("/")[-2:]
    return document["components"][kind][name]


def ref_name(reference: str) -> str:
    return reference.removeprefix(PREFIX)


def parameters(document: Schema, operation: Schema) -> list[Schema]:
    return [resolve(document, each) for each in operation.get("parameters", [])]


def references(document: Schema, *roots: object) -> set[str]:
    """The names of all schemas that the roots use, directly or through others."""
    found: set[str] = set()
    pending = list(roots)
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            reference = value.get("$ref", "")
            if reference.startswith(PREFIX) and ref_name(reference) not in found:
                found.add(ref_name(reference))
                pending.append(resolve(document, value))
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return found


def operations(document: Schema) -> list[tuple[str, str, Schema]]:
    """Each operation with its method and path."""
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def request_body(document: Schema, operation: Schema) -> Schema:
    """The schema of a JSON body; empty without one."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    choices = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return resolve(document, choices[0])


def response_schema(operation: Schema, *, status: str | None = None) -> Schema | None:
    """The schema of a successful JSON response; None for text and for no content."""
    responses = operation["responses"]
    chosen = status or next(code for code in ("201", "200", "202", "204") if code in responses)
    return responses[chosen].get("content", {}).get("application/json", {}).get("schema")


def cleaned(value: Any, *, is_properties: bool = False) -> Any:
    """A schema without what a type does not say. Values of `const` and `enum` stay."""
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: cleaned(item, is_properties=name == "properties" and not is_properties)
        for name, item in value.items()
        if is_properties or name not in WITHOUT_MEANING or _is_free(name, item)
    }


def _is_free(name: str, item: object) -> bool:
    return name == "additionalProperties" and item is not False


def _union(document: Schema, schema: Schema) -> list[str]:
    if "anyOf" in schema:
        return [name for each in schema["anyOf"] for name in _union(document, each)]
    if "$ref" not in schema:
        return [input_type(document, schema)]
    name = ref_name(schema["$ref"])
    if "enum" in resolve(document, schema):
        return [name]
    return [*(["str"] if name in ALSO_TEXT else ()), f"params.{name}", "Mapping[str, Any]"]


def input_type(document: Schema, schema: Schema) -> str:
    """The type of an argument."""
    if "$ref" in schema or "anyOf" in schema:
        return " | ".join(dict.fromkeys(_union(document, schema)))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return f"Literal[{', '.join(map(repr, values))}]"
    if schema.get("type") == "array":
        return f"Sequence[{input_type(document, schema.get('items', {}))}]"
    if schema.get("type") == "string":
        return {"uuid": "Id", "date-time": "str | datetime"}.get(schema.get("format", ""), "str")
    names = {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}
    return names.get(schema.get("type", ""), "Mapping[str, Any]" if "type" in schema else "Any")
