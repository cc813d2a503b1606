"""Checks the facts of a trace against the recorded events, by definitions of their own.

A statement is a part of a fact that the recorded events confirm or contradict. Nothing of the
service's code is used: an event is a mapping as it was recorded.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Raw = dict[str, Any]
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class StatedFact(Protocol):
    """A fact as `analyze_trace` returns it."""

    @property
    def kind(self) -> str: ...
    @property
    def event_ids(self) -> Sequence[str]: ...
    @property
    def values(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Statement:
    """A checked part of a fact."""

    kind: str
    text: str
    is_true: bool


def check_facts(
    facts: Iterable[StatedFact], raw: Raw, attempts: Sequence[Raw] = ()
) -> Iterator[Statement]:
    """All statements that can be checked against a recorded trace and earlier attempts."""
    run = _Run(raw, attempts)
    for fact in facts:
        for event_id in fact.event_ids:
            yield Statement("event ID", event_id, event_id in run.positions)
        if all(event_id in run.positions for event_id in fact.event_ids):
            check = _CHECKS.get(str(fact.kind))
            for is_true in check(run, fact) if check else ():
                text = f"{list(fact.event_ids)} {dict(fact.values)}"
                yield Statement(str(fact.kind), text[:300], is_true)


class _Run:
    def __init__(self, raw: Raw, attempts: Sequence[Raw]) -> None:
        self.raw, self.attempts = raw, attempts
        self.events: list[Raw] = raw["events"]
        self.positions = {event["event_id"]: n for n, event in enumerate(self.events)}
        self.calls = [e for e in self.events if e["event_type"] == "tool_call"]

    def event(self, event_id: str) -> Raw:
        return self.events[self.positions[event_id]]

    def response(self, event_id: str) -> Raw:
        """The event after a call that answers it; {} if the next event is another call."""
        rest = self.events[self.positions[event_id] + 1 :]
        answers = ("tool_response", "error_event")
        found: list[Raw] = [e for e in rest[:1] if e["event_type"] in answers]
        return found[0] if found else {}


def _quotes(text: str | None, *sources: Any) -> bool:
    """Whether each part of an excerpt occurs in one of the sources."""
    folded = _fold("\n".join(str(source) for source in sources))
    return all(part in folded for part in map(_fold, (text or "").split("…")))


def _fold(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).replace("\\n", " ").replace('\\"', '"')
    return re.sub(r"[\s*#`>\\\u200b\u2028]+", "", plain).casefold()


def _counts(run: _Run, fact: StatedFact) -> Iterator[bool]:
    yield fact.values["events"] == len(run.events)
    yield fact.values["calls"] == len(run.calls)
    kinds = [event["event_type"] for event in run.events]
    yield fact.values["user_messages"] == kinds.count("user_message")
    yield fact.values["agent_messages"] == kinds.count("llm_response")


def _has_envelope(event: Raw) -> bool:
    """Whether an event is reported as an error, apart from its text."""
    metadata: Raw = event.get("metadata") or {}
    status: Any = next((metadata[k] for k in ("status_code", "http_status") if k in metadata), 0)
    return bool(
        event.get("error")
        or event.get("event_type") == "error_event"
        or metadata.get("is_error")
        or (isinstance(status, int) and status >= 400)
        or metadata.get("exit_code") not in (None, 0)
    )


def _failed_call(run: _Run, fact: StatedFact) -> Iterator[bool]:
    for event_id in fact.event_ids:
        response = run.response(event_id)
        if response:
            yield _has_envelope(response) or _has_envelope(run.event(event_id))
    if fact.values["is_last"]:
        yield run.events[-1].get("event_type") not in ("llm_response", "user_message")


def _corrected_call(run: _Run, fact: StatedFact) -> Iterator[bool]:
    worked, failed = (run.event(event_id) for event_id in fact.event_ids[:2])
    yield worked.get("tool_name") == failed.get("tool_name")
    if run.response(fact.event_ids[0]):
        yield not _has_envelope(run.response(fact.event_ids[0]))
    if fact.values["changes"]:
        yield _values(worked) != _values(failed)
    else:
        yield _folded_values(worked) == _folded_values(failed)


def _retried_call(run: _Run, fact: StatedFact) -> Iterator[bool]:
    worked, *failed = fact.event_ids
    keys = {(run.event(i).get("tool_name"), _values(run.event(i))) for i in fact.event_ids}
    yield len(keys) == 1
    yield bool(failed) and fact.values["attempts"] > len(failed)
    if run.response(worked):
        yield not _has_envelope(run.response(worked))


def _values(event: Raw) -> str:
    content = event["content"]
    try:
        return json.dumps(json.loads(content), sort_keys=True)
    except ValueError:
        return content.strip()


def _folded_values(event: Raw) -> list[str]:
    """The values without spaces, letter case and the order of lists."""
    return sorted(re.sub(r'\\[nt]|[\[\],"]', " ", _values(event)).casefold().split())


def _repeated_call(run: _Run, fact: StatedFact) -> Iterator[bool]:
    keys = {(run.event(i).get("tool_name"), _values(run.event(i))) for i in fact.event_ids}
    yield len(keys) == 1
    same = [c for c in run.calls if (c.get("tool_name"), _values(c)) in keys]
    yield 1 < fact.values["count"] <= len(same)


def _quotation(run: _Run, fact: StatedFact) -> Iterator[bool]:
    event_id = fact.event_ids[0]
    yield _quotes(fact.values["text"], run.event(event_id)["content"], _texts(run))


def _texts(run: _Run) -> str:
    return "\n".join(str(event["content"]) for event in run.events)


def _error(run: _Run, fact: StatedFact) -> Iterator[bool]:
    sources = [event for event in run.events if _has_envelope(event)]
    yield _quotes(fact.values["message"], run.raw.get("error"), *sources)


def _unsourced(run: _Run, fact: StatedFact) -> Iterator[bool]:
    end = run.positions[fact.event_ids[0]]
    earlier = [str(event["content"]) for event in run.events[:end]]
    known = {
        number
        for text in [*earlier, str(run.raw.get("task_description"))]
        for number in map(_to_number, _NUMBER.findall(text))
    }
    for number in fact.values["numbers"]:
        yield _to_number(number) not in known


def _to_number(text: str) -> float | str:
    """1,250.50 as 1250.5; what cannot be read stays as it is."""
    try:
        return float(re.sub(r",(?=\d{3}(?!\d))", "", text))
    except ValueError:
        return text


def _expectation(run: _Run, fact: StatedFact) -> Iterator[bool]:
    values = fact.values
    truth = run.raw.get("ground_truth")
    if values["what"] == "answer":
        yield _quotes(values["expected"], truth)
        given, expected = _words(values["given"] or ""), _words(values["expected"])
        if values["met"] is not None and "…" not in f"{values['given']}{values['expected']}":
            yield values["met"] == (given == expected)
    if values["what"] == "call" and values["deviation"] == "missing":
        actions: list[Raw] = list(run.raw["ground_truth"]["actions"])
        yield values["tool"] in [action["name"] for action in actions]
    if values["what"] == "output" and values["met"] is False:
        said = " ".join(e["content"] for e in run.events if e["event_type"] == "llm_response")
        yield _fold(values["expected"]) not in _fold(said)


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    words = re.sub(r"[^\w\s]|_", " ", plain).split()
    return [word for word in words if word not in {"the", "a", "an"}]


def _difference(run: _Run, fact: StatedFact) -> Iterator[bool]:
    values = fact.values
    if values["aspect"] != "tool":
        return
    sides = {"successful": 0, "failed": 0}
    for raw in (*run.attempts, run.raw):
        side = {"success": "successful", "failure": "failed", "timeout": "failed"}
        if raw["outcome"] in side:
            used = any(e.get("tool_name") == values["tool"] for e in raw["events"])
            sides[side[raw["outcome"]]] += used
    other = "failed" if values["side"] == "successful" else "successful"
    yield sides[values["side"]] == values[values["side"]]
    yield sides[other] == 0


def _user_rule(run: _Run, fact: StatedFact) -> Iterator[bool]:
    said, *before = (run.event(event_id) for event_id in fact.event_ids)
    yield said["event_type"] == "user_message"
    yield all(event["event_type"] == "llm_response" for event in before)
    yield " ".join(said["content"].split()) == fact.values["text"]


def _exit_code(run: _Run, fact: StatedFact) -> Iterator[bool]:
    """Where the response has a code in its metadata."""
    for event_id in fact.event_ids:
        metadata: Raw = run.response(event_id).get("metadata") or {}
        if "exit_code" in metadata:
            yield metadata["exit_code"] == fact.values["code"]


def _test(run: _Run, fact: StatedFact) -> Iterator[bool]:
    """A failed test is in the report by its name, with a failure or an error."""
    report = str(run.raw.get("test_report"))
    yield re.split(r"[.:]+", fact.values["name"])[-1] in report
    yield fact.values["failed"] == len(re.findall(r"<(?:failure|error)\b", report))
    yield fact.values["executed"] <= len(re.findall(r"<testcase\b", report))


_CHECKS = {
    "exit_code": _exit_code,
    "test": _test,
    "counts": _counts,
    "failed_call": _failed_call,
    "corrected_call": _corrected_call,
    "retried_call": _retried_call,
    "repeated_call": _repeated_call,
    "quotation": _quotation,
    "error": _error,
    "unsourced": _unsourced,
    "expectation": _expectation,
    "difference": _difference,
    "user_rule": _user_rule,
}
