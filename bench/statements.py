"""Checks the sentences of the rules engine against the recorded events, without the engine's code.

A statement is a part of a text that the trace confirms or contradicts: an event ID, a quotation, a
count, "no response contains …", "failed", a changed argument. Parts that no check covers are not
counted.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]
_EVENT_ID = re.compile(r"(?<![\w`“])e\d{2,6}(?!\w)")
_QUOTATION = re.compile(r"“([^”]{4,400})”|「([^」]{4,400})」")
_REPEATED = re.compile(r"was sent (\d+) times unchanged|同じ内容で(\d+)回実行")
_CALL_COUNT = re.compile(r"The run made (\d+) tool calls?|呼び出しは(\d+)回：")
_NOWHERE = re.compile(r"No tool response contains the given or the expected answer word for word")
_CONTAINS = re.compile(
    r"The response to `.+?` \((e\d+)\) contains (this answer|the expected answer|the given answer)"
)
_FAILED = re.compile(r"`[^`]+` \((e\d+)\) failed|`（(e\d+)）が失敗した")
_ENDS = re.compile(r"The trace ends with tool call (\d+),|トレースは(\d+)回目の呼び出し")
_CHANGED = re.compile(r"`([\w.\[\]]+)` changed from `([^`…]+)` to `([^`…]+)`")
_VERDICT = re.compile(r"judged the answer “[^”]*” \((e\d+)\) (correct|wrong)")
_ANSWER = re.compile(r"(?:[Tt]he answer (?:was )?|回答は?)[“「]([^”」]{1,200})[”」]")


@dataclass(frozen=True)
class Statement:
    """A checked part of a text."""

    kind: str
    text: str
    is_true: bool


def check_statements(text: str, raw: Raw, known_texts: Iterable[str] = ()) -> Iterator[Statement]:
    """All statements of `text` that can be checked against a recorded trace. `known_texts`: other
    texts that may be quoted (earlier attempts, a test report).
    """
    events: list[Raw] = raw["events"]
    by_id = {event["event_id"]: n for n, event in enumerate(events)}
    calls = [event for event in events if event["event_type"] == "tool_call"]
    for event_id in _EVENT_ID.findall(text):
        yield Statement("event ID", event_id, event_id in by_id)
    sources = _fold(
        "\n".join(
            [*(str(e["content"]) for e in events), *(_plain(e) for e in events), *known_texts]
            + [str(raw.get(key)) for key in ("task_description", "task_goal", "ground_truth")]
            + [str(e.get("error")) for e in events if e.get("error")]
        )
    )
    for groups in _QUOTATION.findall(text):
        quoted = next(filter(None, groups))
        parts = [_fold(part) for part in quoted.split("…")]
        yield Statement("quotation", quoted, all(part in sources for part in parts if part))
    for match in _CALL_COUNT.finditer(text):
        yield Statement("count of calls", match.group(), int(_first(match)) == len(calls))
    for match in _REPEATED.finditer(text):
        counts = [sum(_key(c) == _key(other) for other in calls) for c in calls]
        yield Statement("repetition", match.group(), int(_first(match)) in counts)
    for match in _ENDS.finditer(text):
        at_end = events[-1]["event_type"] in ("tool_call", "tool_response", "system_event")
        yield Statement("end", match.group(), at_end and int(_first(match)) == len(calls))
    for match in _FAILED.finditer(text):
        position = by_id.get(_first(match), -1)
        yield Statement("failure", match.group(), position >= 0 and _has_failed(events, position))
    for match in _VERDICT.finditer(text):
        response = _response(events, by_id.get(match[1], len(events)))
        is_correct = "INCORRECT" not in response and "不正解" not in response
        yield Statement("verdict", match.group(), is_correct == (match[2] == "correct"))
    for match in _CHANGED.finditer(text):
        values = {_fold(match[2]), _fold(match[3])}
        contents = _fold("\n".join(_plain(call) for call in calls))
        yield Statement("changed argument", match.group(), all(v in contents for v in values))
    yield from _check_answers(text, raw, by_id)


def _check_answers(text: str, raw: Raw, by_id: dict[str, int]) -> Iterator[Statement]:
    events: list[Raw] = raw["events"]
    truth = raw.get("ground_truth")
    expected = str(truth.get("answer", "")) if isinstance(truth, dict) else str(truth or "")
    given = next((m[1] for m in _ANSWER.finditer(text)), "")
    responses = [
        _words(e["content"])
        for e in events
        if e["event_type"] == "tool_response" and not e["content"].startswith("Answer is")
    ]
    if _NOWHERE.search(text):
        found = any(
            f" {_words(answer).strip()} " in response
            for answer in (given, re.sub(r"\s*\([^)]*\)\s*$", "", expected))
            for response in responses
            if _words(answer).strip()
        )
        yield Statement("no response contains", given, not found)
    for match in _CONTAINS.finditer(text):
        answer = expected if match[2] == "the expected answer" else given
        words = _words(re.sub(r"\s*\([^)]*\)\s*$", "", answer)).strip().rstrip("…")
        response = _words(_response(events, by_id.get(match[1], len(events))))
        yield Statement("response contains", match.group(), bool(words) and words in response)


def _first(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()))


def _fold(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).replace("\\n", " ")
    return re.sub(r"[\s*#`>\u200b\u2028]+", "", plain).casefold()


def _words(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    words = re.sub(r"[^\w\s]|_", " ", plain).split()
    return f" {' '.join(w for w in words if w not in {'the', 'a', 'an'})} "


def _plain(event: Raw) -> str:
    """The values of a call's arguments, as they would be printed."""
    content = event["content"]
    if event["event_type"] != "tool_call" or content[:1] not in "{[":
        return content
    try:
        value = json.loads(content)
    except ValueError:
        try:
            value = ast.literal_eval(content)
        except (ValueError, SyntaxError):
            return content
    return "\n".join(_values(value))


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _values(item)
    elif isinstance(value, list):
        yield ", ".join(sorted(str(item) for item in value))
        for item in value:
            yield from _values(item)
    elif isinstance(value, bool) or value is None:
        yield str(value).lower()
    else:
        yield str(value)
        if isinstance(value, str) and value[:1] == "[":
            try:
                yield from _values(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                return


def _key(call: Raw) -> tuple[str | None, str]:
    return call.get("tool_name"), "".join(str(call["content"]).split())


def _response(events: list[Raw], position: int) -> str:
    for event in events[position + 1 :]:
        if event["event_type"] in ("tool_response", "error_event"):
            return event["content"]
    return ""


def _has_failed(events: list[Raw], position: int) -> bool:
    if events[position].get("error"):
        return True
    for event in events[position + 1 :]:
        if event["event_type"] in ("tool_response", "error_event"):
            return bool(
                event.get("error")
                or event["event_type"] == "error_event"
                or re.match(
                    r"\W{0,3}(?:error|exception|traceback|\w*Error:|fatal)", event["content"], re.I
                )
                or "Traceback" in event["content"]
            )
    return False
