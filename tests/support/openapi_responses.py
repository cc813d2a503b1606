"""The OpenAPI document with each status of an operation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def with_statuses(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the statuses that `default` of an operation stands for."""
    document = deepcopy(document)
    components = document["components"]
    for operation in (each for path in document["paths"].values() for each in path.values()):
        default = operation["responses"].pop("default", None)
        if default is None:
            continue
        (content,) = components["responses"][default["$ref"].split("/")[-1]]["content"].items()
        for code, example in content[1]["examples"].items():
            status = str(components["examples"][code]["value"]["status"])
            response = {"description": code, "content": {content[0]: content[1] | {"examples": {}}}}
            found = operation["responses"].setdefault(status, response)
            if "$ref" not in found:
                found["content"][content[0]]["examples"][code] = example
    return document
