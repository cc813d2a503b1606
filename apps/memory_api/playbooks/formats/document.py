"""S2's JSON document of a playbook: text in, `Playbook` or `CorruptPlaybook` out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from memory_api.core.errors import field_problem
from memory_api.core.json_input import MalformedJson, unique_names
from memory_api.playbooks.models import CorruptPlaybook, Playbook


def decode(text: str | bytes) -> str:
    """The text without a byte order mark. Raises CorruptPlaybook if it is empty or not UTF-8."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptPlaybook(f"byte {error.start}", "not UTF-8") from error
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise CorruptPlaybook("line 1", "the file is empty")
    return text


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object. Raises CorruptPlaybook."""
    try:
        value = json.loads(text, object_pairs_hook=unique_names)
    except MalformedJson as error:
        raise CorruptPlaybook("line 1", error.detail) from error
    except json.JSONDecodeError as error:
        location = f"line {error.lineno} column {error.colno}"
        raise CorruptPlaybook(location, f"not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise CorruptPlaybook("line 1", f"JSON cannot be parsed: {error}") from error
    if not isinstance(value, dict):
        raise CorruptPlaybook("line 1", "JSON, but not an object")
    return cast("dict[str, Any]", value)


def to_playbook(data: Mapping[str, Any]) -> Playbook:
    """The playbook of a document. Raises CorruptPlaybook, which names the field."""
    try:
        return Playbook.model_validate(data)
    except ValidationError as error:
        field, message = field_problem(error.errors(include_url=False)[0])
        raise CorruptPlaybook(field or "line 1", message) from error
