"""Calls that failed, who said so, what the response offered instead, and arguments nobody had
mentioned."""

from __future__ import annotations

import ast
import re

from apps.memory_api.reflection.findings.kinds import kind_of
from apps.memory_api.reflection.findings.schemas import Crash, Failure
from apps.memory_api.traces.arguments import as_items
from apps.memory_api.traces.quotes import cut
from apps.memory_api.traces.schemas import ErrorCategory
from apps.memory_api.traces.steps import Run, Step, best_line, message_of

MOST = 40
_OFFERS = re.compile(
    r"(?:similar|did you mean|suggestions?|available(?: \w+)?|candidates?|valid \w+ are|候補"
    r"|もしかして)\W{0,3}[:：]\s*",
    re.IGNORECASE,
)
_TWO_CALLS = re.compile(r"^\s*(\w+)\[[^\[\]]*\]\s*(?:and|then|,|;|&)?\s*\w+\[")
_SEARCHED = 400_000
_IDENTIFIER = re.compile(r"^(?=.*[\d_#@/])[\w#@./\-]{5,60}$")
_LIBRARY = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python|miniconda|[/\\]Lib[/\\]|<frozen"
)
_FRAME = re.compile(r'File "([^"\n]{1,300})", line (\d+)(?:, in ([\w<>.]{1,80}))?')
_PYDANTIC = re.compile(
    r"(?:Input )?should be an? (?:valid )?(?P<want>[\w ]{2,30}?)(?: \[|,"
    r"|$).*?input_type=(?P<got>\w+)",
    re.S,
)


def find_failures(run: Run) -> tuple[Failure, ...]:
    """At most `MOST` failed calls in order. A wrong answer is no failed call: see `answers`."""
    failed = [s for s in run.steps if s.failure]
    last_ok = {s.tool: s.at for s in run.steps if not s.failure and s.verdict is not False}
    return tuple(_failure(run, s, last_ok.get(s.tool, -1) > s.at) for s in failed[:MOST])


def _failure(run: Run, step: Step, repaired: bool) -> Failure:
    kind, category = kind_of(step.failure)
    if _TWO_CALLS.match(step.content[:2_000]):
        kind = "double"
    where = None if step.response_at is None else run.ids[step.response_at]
    return Failure(
        event=step.event,
        response_event=where,
        tool=step.tool,
        call=step.call,
        kind=kind,
        message=cut(brief(step.failure)),
        category=category,
        stated=step.stated,
        offered=offers(step.response),
        invented=invented(run, step),
        repaired=repaired,
    )


def brief(message: str) -> str:
    """The message without the list of alternatives, which is kept apart."""
    hit = _OFFERS.search(message)
    return message[: hit.start()].rstrip(" .,;") if hit and hit.start() > 12 else message


def offers(response: str) -> tuple[str, ...]:
    """Alternatives a response lists ("Similar: ['A', 'B']"); at most ten."""
    hit = _OFFERS.search(response[:2_000])
    if not hit:
        return ()
    rest = response[hit.end() : hit.end() + 3_000].lstrip()
    if rest[:1] == "[":
        return tuple(cut(x, 80) for x in _listed(rest) if x.strip())[:10]
    line = rest.split("\n", 1)[0]
    parts = [p.strip(" .'\"`") for p in re.split(r",|、| or |;", line)]
    return tuple(cut(p, 80) for p in parts if 0 < len(p) < 80)[:10]


def _listed(text: str) -> list[str]:
    end = text.rfind("]")
    while end > 0:
        try:
            value = ast.literal_eval(text[: end + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            end = text.rfind("]", 0, end) if len(text) - end < 400 else -1
            continue
        return [x for x in as_items(value) if isinstance(x, str)]
    return re.findall(r"'([^'\n]{2,80})'", text)


def invented(run: Run, step: Step) -> tuple[str, ...]:
    """Arguments that look like an identifier and stand in no earlier event: `name=value`, at most
    three."""
    values = [(n, v) for n, v in step.args.items() if n and _IDENTIFIER.match(v)]
    if not values:
        return ()
    found: list[str] = []
    for name, value in values[:8]:
        if not _mentioned(run, value, step.at):
            found.append(f"{name}={value}")
    return tuple(found[:3])


def _mentioned(run: Run, value: str, before: int) -> bool:
    budget = _SEARCHED
    for at in range(before - 1, -1, -1):
        text = run.events[at].content
        if value in text[:budget]:
            return True
        budget -= len(text)
        if budget <= 0:
            return True
    return False


def find_crash(run: Run) -> Crash | None:
    """The last error event, with the call before it as the step that led there."""
    if not run.crashes:
        return None
    at = run.crashes[-1]
    event = run.events[at]
    stated = message_of(event.error) if event.error else ""
    message = best_line(event.content) if event.content.strip() else ""
    if stated and (not message or message.startswith(("Traceback", "File "))):
        message = stated
    raw = event.content + "\n" + str((event.error or {}).get("message", ""))
    sample = raw[:6_000] + raw[-4_000:] if len(raw) > 10_000 else raw
    kind, category = kind_of(f"{message}\n{stated}")
    cause = next((s for s in reversed(run.steps) if s.at < at), None)
    shape = _PYDANTIC.search(sample)
    return Crash(
        event=run.ids[at],
        message=cut(_summary(message, sample)),
        place=_place(sample),
        kind=kind,
        category=ErrorCategory.UNKNOWN_ERROR if kind == "failed" and not message else category,
        cause_event=cause.event if cause else None,
        cause_call=cause.call if cause else None,
        wanted=shape.group("want").strip() if shape else None,
        got=shape.group("got") if shape else None,
    )


def _summary(message: str, sample: str) -> str:
    shape = re.search(
        r"(\d+ validation errors? for (\w+)\s+(\w[\w.]*)\s+[^\n\[]{4,120}\[[^\]\n]{0,160})", sample
    )
    return shape.group(1) + "]" if shape else message


def _place(sample: str) -> str:
    """`file.py line n, in f` of the innermost frame outside libraries; '' without a traceback."""
    own = [f for f in _FRAME.findall(sample) if not _LIBRARY.search(f[0])]
    if not own:
        return ""
    path, line, function = own[-1]
    name = re.split(r"[/\\]", path)[-1]
    return f"{name} line {line}" + (f", in {function}" if function else "")
