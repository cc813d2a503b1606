"""Responses as classes and parts of requests as typed dicts, by datamodel-code-generator."""

# pyright: basic
# The document is JSON of any form.

from __future__ import annotations

import json
import re
from typing import Any

from datamodel_code_generator import (
    Formatter,
    InputFileType,
    LiteralType,
    OpenAPIScope,
    PythonVersion,
    generate,
)
from datamodel_code_generator.config import GenerateConfig
from datamodel_code_generator.enums import DataModelType

from sdk.generator.schemas import (
    Schema,
    cleaned,
    operations,
    ref_name,
    references,
    request_body,
    resolve,
)

HEADER = '"""{title}\n\nGenerated from `openapi.json` by `make client`; do not edit.\n"""\n\n'
_ALIAS = re.compile(r'^(\w+) = TypeAliasType\(\s*"\w+",\s*(Literal\[.*?\]),?\s*\)', re.M | re.S)
_KEYWORD = re.compile(r"(\w+_): (\w+) = Field\(\.\.\., alias='\w+'\)")


def generate_models(document: Schema) -> str:
    """All that the service sends. Each field is required, because the service sends each; only the
    document of a playbook omits what has its default.
    """
    names = _response_names(document) | _enum_names(document)
    schemas = _schemas(document, names)
    for schema in schemas.values():
        if "properties" in schema:
            schema["required"] = list(schema["properties"])
    text = _generate(schemas, DataModelType.PydanticV2BaseModel, base="hansei._model.Model")
    text = _KEYWORD.sub(r"\1: \2", _ALIAS.sub(r"\1: TypeAlias = \2", text))
    return _with_header("What the service answers, as objects with attributes.", text)


def generate_params(document: Schema) -> str:
    """Objects inside of requests. The fields of a body are arguments of a method."""
    bodies = [request_body(document, operation) for _, _, operation in operations(document)]
    names = references(document, *bodies) - _enum_names(document)
    schemas = _inline_enums(document, _schemas(document, names))
    text = _generate(schemas, DataModelType.TypingTypedDict)
    return _with_header("Objects inside of requests, as typed dicts.", text)


def _inline_enums(document: Schema, value: Any) -> Any:
    if isinstance(value, list):
        return [_inline_enums(document, item) for item in value]
    if not isinstance(value, dict):
        return value
    if ref_name(value.get("$ref", "")) in _enum_names(document):
        return cleaned(resolve(document, value)) | {
            name: text for name, text in value.items() if name == "description"
        }
    return {name: _inline_enums(document, item) for name, item in value.items()}


def _schemas(document: Schema, names: set[str]) -> dict[str, Schema]:
    schemas = document["components"]["schemas"]
    return {name: cleaned(schemas[name]) for name in sorted(names)}


def _response_names(document: Schema) -> set[str]:
    """Pages are not models: `Page` is one class for all of them."""
    responses = [
        response.get("content", {})
        for _, _, operation in operations(document)
        for code, response in operation["responses"].items()
        if code.startswith("2")
    ]
    return {name for name in references(document, *responses) if not name.endswith("Page")}


def _enum_names(document: Schema) -> set[str]:
    schemas = document["components"]["schemas"]
    return {name for name, schema in schemas.items() if "enum" in schema}


def _generate(schemas: dict[str, Schema], kind: DataModelType, base: str = "") -> str:
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Hansei", "version": "1"},
        "paths": {},
        "components": {"schemas": schemas},
    }
    config = GenerateConfig(
        input_file_type=InputFileType.OpenAPI,
        openapi_scopes=[OpenAPIScope.Schemas],
        output_model_type=kind,
        base_class=base,
        target_python_version=PythonVersion.PY_311,
        enum_field_as_literal=LiteralType.All,
        apply_default_values_for_required_fields=True,
        use_schema_description=True,
        use_field_description=True,
        use_single_line_docstring=True,
        use_standard_collections=True,
        use_union_operator=True,
        use_type_alias=True,
        disable_timestamp=True,
        formatters=[Formatter.BUILTIN],
    )
    result = generate(json.dumps(document), config=config)
    return str(result)


def _with_header(title: str, text: str) -> str:
    body = re.sub(r"^(#.*\n)+", "", text.lstrip())
    body = re.sub(r"^from (pydantic|typing_extensions) import .*\n", "", body, flags=re.M)
    return HEADER.format(title=title) + body.replace(
        "from typing import ", "from typing import TypeAlias, ", 1
    )
