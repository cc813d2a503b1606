"""A typed answer from a model: strict schema, lenient reading, validation, one re-ask, then a
visible failure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from apps.memory_api.llm.errors import LLMRefused, LLMTruncated, LLMUnparseable
from apps.memory_api.llm.parsing import parse_json, parsed, repaired
from apps.memory_api.llm.port import LLM, JsonSchema, LLMReply, LLMRequest, Message

__all__ = ["ask", "parse_json", "schema_text", "strict_schema"]

M = TypeVar("M", bound=BaseModel)

# Both vendors' strict modes accept these; the rest is said in words and checked by pydantic.
_KEPT = ("$ref", "type", "enum", "const", "description")
_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "pattern": "matching",
}
_MAX_ERRORS = 10


async def ask(llm: LLM, model_class: type[M], request: LLMRequest) -> tuple[M, LLMReply]:
    """Ask for a `model_class` and get one, with the reply that held it.

    An answer that cannot be read is asked for once more with the error shown; one that was cut,
    once more with twice the tokens. Raises LLMRefused, LLMTruncated or LLMUnparseable with the last
    reply, and whatever the model raises.
    """
    request = replace(request, schema=schema_of(model_class))
    reply = await llm.complete(request)
    value, problem = _read(model_class, reply)
    if value is not None:
        return value, reply
    reply = await llm.complete(_again(request, reply, problem))
    value, problem = _read(model_class, reply)
    if value is not None:
        return value, reply
    if reply.finish_reason == "length":
        raise LLMTruncated(problem, reply=reply, request_id=reply.request_id)
    raise LLMUnparseable(problem, reply=reply, request_id=reply.request_id)


def _read(model_class: type[M], reply: LLMReply) -> tuple[M | None, str]:
    """(the value, "") or (None, what is wrong). Raises LLMRefused."""
    if reply.finish_reason == "refusal":
        raise LLMRefused(
            f"the model refused: {reply.text or 'no reason given'}"[:1000], reply=reply
        )
    if reply.finish_reason == "length":
        return None, "The answer was cut by its token limit."
    problem = "The answer holds no JSON object."
    for candidate in _readings(reply.text):
        try:
            return model_class.model_validate(candidate), ""
        except ValidationError as error:
            problem = _explain(error)
    return None, problem


def _readings(text: str) -> list[Any]:
    strict = list(parsed(text))
    if strict:
        return strict
    mended = repaired(text)
    return [] if mended is None else [mended]


def _again(request: LLMRequest, reply: LLMReply, problem: str) -> LLMRequest:
    if reply.finish_reason == "length":
        return replace(request, max_tokens=request.max_tokens * 2)
    correction = Message(
        "user",
        f"That answer cannot be used. {problem}\n"
        "Answer once more with one JSON object of the asked shape and nothing else.",
    )
    # An empty turn is refused by Anthropic.
    said = (Message("assistant", reply.text),) if reply.text.strip() else ()
    return replace(request, messages=(*request.messages, *said, correction))


def _explain(error: ValidationError) -> str:
    """One line per wrong field."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"- {'.'.join(str(part) for part in item['loc']) or 'the object'}: {item['msg']}"
        for item in found[:_MAX_ERRORS]
    ]
    return "These fields are wrong:\n" + "\n".join(lines)


@lru_cache(64)
def schema_of(model_class: type[BaseModel]) -> JsonSchema:
    """The class as what a request asks for."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", model_class.__name__)[:64]
    return JsonSchema(name, strict_schema(model_class))


@lru_cache(64)
def schema_text(model_class: type[BaseModel]) -> str:
    """The strict schema as a prompt shows it: JSON on one line."""
    return json.dumps(strict_schema(model_class), ensure_ascii=False)


def strict_schema(model_class: type[BaseModel]) -> dict[str, Any]:
    """A JSON schema in the subset that OpenAI's and Anthropic's strict modes share: every object
    closed, every property required, no defaults; limits become part of the description, because
    neither vendor takes all of them.

    Raises ValueError for a field that subset cannot express (a dict with free keys).
    """
    schema = model_class.model_json_schema()
    strict = _strict(schema, model_class.__name__)
    if "$defs" in schema:
        strict["$defs"] = {name: _strict(part, name) for name, part in schema["$defs"].items()}
    return strict


def _strict(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    strict: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    limits = [f"{words} {schema[key]}" for key, words in _LIMITS.items() if key in schema]
    if limits:
        strict["description"] = "; ".join(filter(None, [strict.get("description"), *limits]))
    if "$ref" in strict:
        return {"$ref": strict["$ref"]}
    if "anyOf" in schema:
        strict["anyOf"] = [_strict(part, where) for part in schema["anyOf"]]
    if schema.get("type") == "array":
        strict["items"] = _strict(schema.get("items", {}), f"{where}[]")
    if schema.get("type") == "object":
        if "properties" not in schema:
            raise ValueError(f"a strict schema cannot express the free object {where}")
        properties: Mapping[str, Any] = schema["properties"]
        strict["properties"] = {k: _strict(v, f"{where}.{k}") for k, v in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    if not strict.keys() & {"type", "anyOf", "enum", "const"}:
        raise ValueError(f"a strict schema cannot express {where}: it has no type")
    return strict
