"""Typed answers of a model: request a strict JSON schema, find the JSON in the text, validate it,
and ask again once if it is not valid. The order of attempts is that of spec 4 (REQ-REFL-008).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast
from uuid import UUID

import json_repair
from pydantic import BaseModel, ValidationError

from memory_api.core.isolated_work import WorkTimeout, run_isolated
from memory_api.core.json_input import replace_unstorable
from memory_api.llm.errors import LLMRefused, LLMTruncated, LLMUnparseable
from memory_api.llm.port import LLM, JsonSchema, LLMReply, LLMRequest, Message

MAX_ANSWER_CHARACTERS = 200_000
"""A longer answer is not read: a provider need not respect `max_tokens`."""
MAX_INLINE_REPAIR_CHARACTERS = 1_000
"""json-repair takes quadratic time: hostile texts of this length up to 0.3 s."""
REPAIR_SECONDS = 5.0
MAX_WORDS = 10
MAX_WORD_LENGTH = 64
_FENCE = "```"
# An object starts with a key or is empty. A brace in prose, as in "{x, y}", does not match.
_OBJECT_START = re.compile(r'\{\s{0,64}["}]')
_DAMAGED_OBJECT_START = re.compile(r"\{\s{0,64}(?:[\"'}]|\w{1,64}\s{0,8}:)")
_BRACE_OR_QUOTE = re.compile(r'[{}"]')
_STRING_END = re.compile(r'(?:[^"\\]++|\\.)*+"', re.DOTALL)


def parse_json(text: str) -> Any:
    """Return the first of these that is valid JSON: a block fenced as json, a block with a bare
    fence, an object with balanced braces, the whole text.

    Raises ValueError if there is none. Takes linear time.
    """
    for value in json_candidates(text):
        return value
    raise ValueError("The text contains no JSON.")


def json_candidates(text: str) -> Iterator[Any]:
    """All values that are valid JSON, in the order of `parse_json`. A value may occur twice."""
    for candidate in _candidate_texts(text):
        try:
            yield strict_loads(candidate)
        except (ValueError, RecursionError):
            continue


def strict_loads(text: str) -> Any:
    """Parse JSON without NaN and Infinity, and replace NUL and lone surrogates by U+FFFD.

    Raises ValueError, or RecursionError for too many levels.
    """
    return _sanitize(json.loads(text, parse_constant=_raise_for_constant))


def repair_json(text: str) -> dict[str, Any] | None:
    """Repair a damaged JSON object with json-repair. None if the text contains no object.

    Also None for a truncated text, whose object does not close: json-repair would invent the
    missing part.
    """
    start = _DAMAGED_OBJECT_START.search(text)
    if start is None or _is_truncated(text, start.start()):
        return None
    try:
        value: Any = json_repair.loads(text)
    except (ValueError, RecursionError):
        return None
    return _sanitize(value) if isinstance(value, dict) and value else None


def _is_truncated(text: str, start: int) -> bool:
    return _find_object_end(text, start) is None and not text.rstrip("` \n\r\t").endswith("}")


def _raise_for_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON.")


def _candidate_texts(text: str) -> Iterator[str]:
    blocks = list(_fenced_blocks(text))
    yield from (body for label, body in blocks if label == "json")
    yield from (body for label, body in blocks if not label)
    yield from _balanced_objects(text)
    yield text


def _fenced_blocks(text: str) -> Iterator[tuple[str, str]]:
    """(label in lower case, content) of each fenced block."""
    pieces = text.split(_FENCE)
    for block in pieces[1:-1:2]:
        label, newline, body = block.partition("\n")
        if newline and label.strip().isalnum():
            yield label.strip().lower(), body
        elif label.lower().startswith("json"):
            yield "json", block[4:]
        else:
            yield "", block


def _balanced_objects(text: str) -> Iterator[str]:
    """Each outermost `{…}`. Stops at an object that does not close, because a part of it is not the
    answer.
    """
    start = _OBJECT_START.search(text)
    while start is not None:
        end = _find_object_end(text, start.start())
        if end is None:
            return
        yield text[start.start() : end]
        start = _OBJECT_START.search(text, end)


def _find_object_end(text: str, start: int) -> int | None:
    """The position after the brace that closes the brace at `start`. Ignores braces in strings."""
    depth, position = 0, start
    while match := _BRACE_OR_QUOTE.search(text, position):
        position = match.end()
        if match.group() == '"':
            string = _STRING_END.match(text, position)
            if string is None:
                return None
            position = string.end()
        elif match.group() == "{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return position
    return None


def _sanitize(value: Any) -> Any:
    if isinstance(value, str):
        return replace_unstorable(value)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {_sanitize(key): _sanitize(item) for key, item in pairs}
    if isinstance(value, list):
        return [_sanitize(item) for item in cast("list[Any]", value)]
    return value


M = TypeVar("M", bound=BaseModel)

# The strict modes of both vendors accept these. Limits go to the description, and pydantic checks
# them.
_STRICT_KEYWORDS = ("$ref", "type", "enum", "const", "description")
_LIMIT_DESCRIPTIONS = {
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
_MAX_LISTED_ERRORS = 10


async def request_structured(
    llm: LLM,
    model_class: type[M],
    request: LLMRequest,
    *,
    omit: frozenset[str] = frozenset(),
    find_problem: Callable[[M], str] | None = None,
) -> tuple[M, LLMReply]:
    """Ask for a `model_class` and return it with its reply. The fields in `omit`, of the class and
    of those in it, need defaults and are not asked for.

    If the answer is not valid, asks again once, with the error in the prompt. If it was truncated,
    asks again once with twice the tokens. `find_problem` returns what a valid answer should do
    better, or "": then, too, it asks again once, and returns the first answer if the second one is
    not valid. Raises LLMRefused, LLMTruncated or LLMUnparseable with
    the last reply, and any error of `llm`.
    """
    request = replace(request, schema=json_schema_of(model_class, omit))
    reply = await llm.complete(request)
    value, problem = await _parse_reply(model_class, reply, request.tenant_id)
    if value is not None:
        problem = find_problem(value) if find_problem else ""
        if not problem:
            return value, reply
    first, first_reply = value, reply
    reply = await llm.complete(_correction_request(request, reply, problem))
    value, problem = await _parse_reply(model_class, reply, request.tenant_id)
    if value is not None:
        return value, reply
    if first is not None:
        return first, first_reply
    if reply.finish_reason == "length":
        raise LLMTruncated(problem, reply=reply, request_id=reply.request_id)
    raise LLMUnparseable(problem, reply=reply, request_id=reply.request_id)


async def _parse_reply(
    model_class: type[M], reply: LLMReply, tenant_id: UUID | None
) -> tuple[M | None, str]:
    """Return (value, "") or (None, problem). Raises LLMRefused."""
    if reply.finish_reason == "refusal":
        raise LLMRefused(
            f"The model refused to answer: {reply.text or 'no reason given'}"[:1000], reply=reply
        )
    if reply.finish_reason == "length":
        return None, "The answer was cut off by the token limit."
    if len(reply.text) > MAX_ANSWER_CHARACTERS:
        return None, f"The answer is longer than {MAX_ANSWER_CHARACTERS:,} characters."
    problem = "The answer contains no JSON object."
    for candidate in await _parsed_values(reply.text, tenant_id):
        try:
            return model_class.model_validate(candidate), ""
        except ValidationError as error:
            problem = _explain(error)
    return None, problem


async def _parsed_values(text: str, tenant_id: UUID | None) -> list[Any]:
    values = list(json_candidates(text))
    if values:
        return values
    try:
        repaired = await run_isolated(
            partial(repair_json, text),
            len(text),
            tenant_id,
            max_inline_size=MAX_INLINE_REPAIR_CHARACTERS,
            seconds=REPAIR_SECONDS,
        )
    except WorkTimeout:  # as a text that cannot be repaired; the model is asked again
        return []
    return [] if repaired is None else [repaired]


def _correction_request(request: LLMRequest, reply: LLMReply, problem: str) -> LLMRequest:
    if reply.finish_reason == "length":
        return replace(request, max_tokens=request.max_tokens * 2)
    correction = Message(
        "user",
        f"Your answer is not valid. {problem}\n"
        "Answer again with one JSON object of the requested schema and nothing else.",
    )
    # Anthropic rejects an empty message.
    is_shown = bool(reply.text.strip()) and len(reply.text) <= MAX_ANSWER_CHARACTERS
    answer = (Message("assistant", reply.text),) if is_shown else ()
    return replace(request, messages=(*request.messages, *answer, correction))


def _explain(error: ValidationError) -> str:
    """One line per invalid field."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"- {'.'.join(str(part) for part in item['loc']) or 'the object'}: {item['msg']}"
        for item in errors[:_MAX_LISTED_ERRORS]
    ]
    return "These fields are not valid:\n" + "\n".join(lines)


@lru_cache(64)
def json_schema_of(model_class: type[BaseModel], omit: frozenset[str] = frozenset()) -> JsonSchema:
    """The schema of a class, without the fields in `omit`, for `LLMRequest.schema`."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", model_class.__name__)[:64]
    schema = strict_schema(model_class)
    definitions: dict[str, Any] = schema.pop("$defs", {})
    kept = {name: _without_fields(part, omit) for name, part in definitions.items()}
    asked = _without_fields(schema, omit)
    used = _used_definitions(asked, kept)
    return JsonSchema(name, asked | ({"$defs": used} if used else {}))


def _without_fields(schema: Mapping[str, Any], omit: frozenset[str]) -> dict[str, Any]:
    """The strict schema of an object without some of its properties."""
    properties = {k: v for k, v in schema["properties"].items() if k not in omit}
    return {**schema, "properties": properties, "required": list(properties)}


def _used_definitions(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that the schema refers to, and those that these refer to."""
    used: dict[str, Any] = {}
    text = json.dumps(schema)
    while new := {n: p for n, p in definitions.items() if n not in used and f'/{n}"' in text}:
        used |= new
        text = json.dumps(new)
    return used


@lru_cache(64)
def schema_text(model_class: type[BaseModel]) -> str:
    """The strict schema of a class as one line of JSON, for a prompt."""
    return json.dumps(strict_schema(model_class), ensure_ascii=False)


def strict_schema(model_class: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a class in the subset that the strict modes of OpenAI and Anthropic share.

    No additional properties, all properties required, no defaults. Limits become part of the
    description, because neither vendor supports all of them. Raises ValueError for a field that the
    subset cannot express, such as a dict with arbitrary keys.
    """
    schema = model_class.model_json_schema()
    definitions: dict[str, Any] = schema.pop("$defs", {})
    enums = {f"#/$defs/{name}": part for name, part in definitions.items() if "enum" in part}
    strict = _strict(_inline(schema, enums), model_class.__name__)
    classes = {name: part for name, part in definitions.items() if "enum" not in part}
    if classes:
        strict["$defs"] = {name: _strict(_inline(p, enums), name) for name, p in classes.items()}
    return strict


def _inline(schema: Any, enums: Mapping[str, Any]) -> Any:
    """The schema with enums in place of references to them, so that a field with an enum can have
    its own description.
    """
    if isinstance(schema, list):
        return [_inline(part, enums) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {key: _inline(part, enums) for key, part in cast("dict[str, Any]", schema).items()}
    enum = enums.get(parts["$ref"]) if isinstance(parts.get("$ref"), str) else None
    return parts if enum is None else enum | {k: v for k, v in parts.items() if k != "$ref"}


def _strict(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    strict: dict[str, Any] = {key: schema[key] for key in _STRICT_KEYWORDS if key in schema}
    limits = [
        f"{words} {schema[key]}" for key, words in _LIMIT_DESCRIPTIONS.items() if key in schema
    ]
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
            raise ValueError(f"A strict schema cannot express {where}, a dict with arbitrary keys.")
        properties: Mapping[str, Any] = schema["properties"]
        strict["properties"] = {k: _strict(v, f"{where}.{k}") for k, v in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    if not strict.keys() & {"type", "anyOf", "enum", "const"}:
        raise ValueError(f"A strict schema cannot express {where}, which has no type.")
    return strict


def clean_words(value: Any) -> list[str]:
    """Tags or keywords, each once and shortened: an index of the database has no long ones."""
    words = (item.strip(" #\"'")[:MAX_WORD_LENGTH].strip() for item in to_list(value))
    return list(dict.fromkeys(word for word in words if word))[:MAX_WORDS]


def to_list(value: Any) -> list[str]:
    """The texts of a list, of a printed Python list, or of a text with commas."""
    if isinstance(value, str):
        return to_list(_parse_printed_list(value))
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return [str(item) for item in items if isinstance(item, str | int | float)]
    return []


def _parse_printed_list(text: str) -> list[Any]:
    if text.strip().startswith("["):
        try:
            value: Any = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
        if isinstance(value, list):
            return cast("list[Any]", value)
    return [part for part in re.split("[,、，]", text.strip(" []")) if part.strip()]
