"""A run read once, front to back: every call with its response, the messages around them, the
language."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.memory_api.traces.arguments import (
    Arguments,
    as_mapping,
    parse,
    shown,
)
from apps.memory_api.traces.quotes import (
    cut,
    first_line,
    language_of,
    without_greeting,
)
from apps.memory_api.traces.schemas import Event, EventType

_STARTS = re.compile(
    r"^\W{0,4}(?:\w+ = [\"'])?(?:error\b|exception\b|traceback \(|failed\b|failure\b|fatal:"
    r"|invalid action|エラー|失敗)",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"command not found|no such file|could not find|^no results\.?$|^found 0 matches"
    r"|permission denied"
    r"|timed out|^wrong \w+!?$|見つかりません|存在しません",
    re.IGNORECASE,
)
_LAST_LINE = re.compile(r"(?:^|\n)((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b[^\n]{0,300})\s*$")
_VERDICT = re.compile(
    r"\b(?:answer|solution|result)\b[^.\n]{0,12}\b(?P<ok>in?correct|correct|wrong)\b"
    r"|(?P<ja>不正解|正解)(?:です|でした)?",
    re.IGNORECASE,
)
_WORDS_NO = re.compile(
    r"できませんでした|できかねます|見つかりません|見当たりません|満席|満室"
    r"|お取りすることができ|取れませんでした|ご予約不可"
    r"|ございませんでした|\bcould(?:n't| not)\b|\bunable to\b|\bfully booked\b|\bno availability\b"
)
_WRITE = re.compile(
    r"(?:^|[_\W])(?:book|booking|cancel|update|modify|return|exchange|send|create|delete|remove"
    r"|write|edit|insert|submit"
    r"|pay|purchase|order|add|set|post|put|patch|transfer|merge|deploy|reserve|change"
    r"|refund)(?:[_\W]|$)",
    re.IGNORECASE,
)
_READ = re.compile(
    r"^(?:get|find|search|list|look|read|fetch|query|calculate|think|open|show|view|check)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Step:
    """One call. `failure` is the message when it failed, else ''; `verdict` what the environment
    said of an answer."""

    at: int
    event: str
    tool: str
    content: str
    args: Arguments
    response_at: int | None = None
    response: str = ""
    failure: str = ""
    stated: str = "tool"
    verdict: bool | None = None
    seconds: float | None = None
    _call: str = ""

    @property
    def call(self) -> str:
        if not self._call:
            self._call = shown(self.tool, self.content, self.args)
        return self._call

    @property
    def key(self) -> tuple[str, str]:
        """Two calls with the same key are the same call."""
        return self.tool, "\x1f".join(f"{k}={v.strip()}" for k, v in sorted(self.args.items()))

    @property
    def writes(self) -> bool:
        """Whether the tool's name says that it changes something."""
        return bool(_WRITE.search(self.tool)) and not _READ.match(self.tool)


@dataclass(slots=True)
class Run:
    """The run as steps and messages; positions are indexes into `events`."""

    events: Sequence[Event]
    ids: list[str]
    steps: list[Step] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    crashes: list[int] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    lessons: list[int] = field(default_factory=list)
    language: str = "en"
    task: str = ""

    def text(self, at: int) -> str:
        return self.events[at].content

    def before(self, positions: list[int], at: int) -> int | None:
        """The last of `positions` before `at`."""
        found = None
        for position in positions:
            if position >= at:
                break
            found = position
        return found


def read(events: Sequence[Event], task: str | None = None, goal: str | None = None) -> Run:
    """Pairs calls with responses (by call id, else in order) in one pass."""
    run = Run(events, [e.event_id or f"e{n:04d}" for n, e in enumerate(events)])
    waiting: dict[str, Step] = {}
    queue: deque[Step] = deque()
    for at, event in enumerate(events):
        kind = event.event_type
        if kind is EventType.TOOL_CALL:
            step = _step(run.ids[at], at, event)
            run.steps.append(step)
            queue.append(step)
            if call_id := _call_id(event):
                waiting[call_id] = step
        elif kind is EventType.TOOL_RESPONSE:
            _answer(event, at, waiting, queue)
        elif kind is EventType.USER_MESSAGE:
            run.users.append(at)
        elif kind is EventType.ERROR_EVENT:
            run.crashes.append(at)
        elif kind is EventType.LLM_RESPONSE:
            run.said.append(at)
            _answer_in_words(event.content, at, queue)
        elif kind is EventType.SYSTEM_EVENT:
            _system(run, event, at)
    run.language = language_of(_prose(run, task))
    run.task = _task(run, task, goal)
    return run


def _step(event_id: str, at: int, event: Event) -> Step:
    content, tool = event.content, event.tool_name or ""
    if not tool:
        name = re.match(r"\s*([\w.\-]{1,40})(?=[\[(\s]|$)", content)
        tool = name.group(1) if name and event.tool_name is None and len(content) < 4_000 else ""
        tool = _named(event.metadata) or (
            tool if tool and re.match(r"\s*[\w.\-]+[\[(]", content) else ""
        )
    step = Step(at, event_id, tool, content, parse(content, tool), seconds=_seconds(event))
    if event.error:
        step.failure = message_of(event.error) or cut(content)
    return step


def _named(metadata: dict[str, Any]) -> str:
    name = metadata.get("tool") or metadata.get("tool_name")
    return name[:60] if isinstance(name, str) else ""


def _call_id(event: Event) -> str | None:
    value = event.metadata.get("call_id") or event.metadata.get("tool_call_id")
    return value if isinstance(value, str) else None


def _seconds(event: Event) -> float | None:
    for name, scale in (("duration_s", 1.0), ("duration_ms", 1e-3), ("latency_ms", 1e-3)):
        value = event.metadata.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9:
            return value * scale
    return None


def _answer(event: Event, at: int, waiting: dict[str, Step], queue: deque[Step]) -> None:
    call_id = _call_id(event)
    step = waiting.pop(call_id, None) if call_id else None
    if step is None:
        while queue and queue[0].response_at is not None:
            queue.popleft()
        step = queue.popleft() if queue else None
    if step is None or step.response_at is not None:
        return
    step.response_at, step.response = at, event.content
    step.seconds = _seconds(event) if _seconds(event) is not None else step.seconds
    step.verdict = _verdict(event.content)
    if step.verdict is None:
        step.failure = step.failure or failure_in(event)
    elif step.verdict is False and event.error:
        step.failure = message_of(event.error)


def _answer_in_words(text: str, at: int, queue: deque[Step]) -> None:
    """A call that got no response of its own is answered by the next message."""
    while queue and queue[0].response_at is not None:
        queue.popleft()
    if not queue:
        return
    step = queue.pop()
    queue.clear()
    step.response_at, step.response, step.stated = at, "", "words"
    hit = _WORDS_NO.search(text[:1_500])
    if hit:
        step.failure = _sentence_around(text[:1_500], hit.start())


def _sentence_around(text: str, at: int) -> str:
    start = max(text.rfind(mark, 0, at) for mark in ("。", "\n", ". ", "！")) + 1
    ends = [text.find(mark, at) for mark in ("。", "\n", ". ")]
    end = min((e for e in ends if e >= 0), default=len(text))
    return cut(text[start : end + 1])


def _verdict(text: str) -> bool | None:
    if len(text) > 120:
        return None
    hit = _VERDICT.search(text.strip())
    if not hit:
        return None
    word = (hit.group("ok") or hit.group("ja") or "").casefold()
    return word in {"correct", "正解"}


def message_of(error: dict[str, Any]) -> str:
    """The message of an event's `error`, whichever field it stands in."""
    for name in ("message", "error_message", "error", "detail", "code", "type", "category"):
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return best_line(value)
    return cut(json.dumps(error, ensure_ascii=False, default=str)[:600]) if error else ""


def failure_in(event: Event) -> str:
    """The failure a response reports: its `error` field, else what its text says; '' when it went
    well."""
    if event.error:
        return message_of(event.error) or best_line(event.content)
    text = event.content
    head = text[:400].strip()
    if _STARTS.match(head):
        return best_line(text)
    if len(text) < 400 and _SHORT.search(head):
        return best_line(text)
    if head[:1] == "{" and '"error"' in head[:60] and len(text) < 20_000:
        return _json_error(text)
    last = _LAST_LINE.search(text[-800:])
    return cut(last.group(1)) if last and "Traceback" in text[:4_000] else ""


def _json_error(text: str) -> str:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    error = as_mapping(value).get("error")
    if isinstance(error, str) and error:
        return cut(error)
    return message_of(as_mapping(error))


def best_line(text: str) -> str:
    """The line of an error text that says what is wrong: the exception of a traceback, the item
    after ERRORS:."""
    if len(text) > 60:
        last = _LAST_LINE.search(text[-800:])
        if last:
            return cut(last.group(1))
        if text.lstrip().startswith("Traceback"):
            lines = [x for x in text[:20_000].splitlines() if x.strip()]
            named = [x for x in lines if re.match(r"(?:\w+\.)*\w*(?:Error|Exception)\b", x)]
            return cut((named or lines)[-1])
        item = re.search(r"ERRORS?:?\s*\n\s*-\s*([^\n]{5,200})", text[:3_000])
        if item:
            return cut(item.group(1))
    return first_line(text)


def _system(run: Run, event: Event, at: int) -> None:
    kind = str(event.metadata.get("kind", ""))
    if event.error:
        run.crashes.append(at)
    elif kind in {"reflection", "lesson", "playbook", "memory"}:
        run.lessons.append(at)
    elif kind not in {"exit", "result"} and len(event.content) > 80:
        run.rules.append(at)


def _prose(run: Run, task: str | None) -> list[str]:
    texts = [task] if task else []
    texts += [run.text(at) for at in run.users[:15]] + [run.text(at) for at in run.said[:15]]
    return texts or [run.text(at) for at in range(min(10, len(run.events)))]


def _task(run: Run, task: str | None, goal: str | None) -> str:
    said = [run.text(at) for at in run.users[:3]]
    for text in (task, *said, goal):
        rest = without_greeting(text) if text else ""
        if len(rest) >= 10:
            return first_line(rest, 180)
    return first_line(task or (said[0] if said else "") or goal or "", 180)
