"""The final answer: what the environment said of it, how it stands to the expected one, and where
either had been seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from apps.memory_api.evaluation.compare import compare
from apps.memory_api.evaluation.truth import (
    answering,
    answers_with,
    expected_answer,
    given_by,
    untold,
)
from apps.memory_api.reflection.findings.schemas import Answer, Untold
from apps.memory_api.traces.quotes import cut, first_sentence, plain
from apps.memory_api.traces.steps import Run, Step

_NAMES = re.compile(
    r"\"[^\"\n]{3,60}\"|“[^”\n]{3,60}”"
    r"|(?:[A-Z][\w'’.\-]+|[0-9]{4})(?:[ \-](?:of|the|and|de|[A-Z&][\w'’.\-]*))*[ \-][A-Z][\w'’.\-]+"
)
_QUESTION_WORD = re.compile(
    r"^(?:Which|What|Who|When|Where|Are|Is|Was|Were|In|How|Did|Do|The|A|An|On|Of)\b\s*"
)
_COMPARE = re.compile(
    r"\b(?:\w{3,}er|more|less|first|earlier|later|same|most)\b[^?]{0,160} or [^?]{2,80}\?"
    r"|\bboth\b|in common|\bwhich of\b"
    r"|^(?:are|were|do|did|is|was) [^?]{3,80} and |どちら",
    re.IGNORECASE,
)
_RESPONSES = 2_000_000


def find_answer(run: Run, ground_truth: Any) -> Answer | None:
    """The last answering call (or one the environment judged), else the last message when an answer
    was expected."""
    expected = expected_answer(ground_truth)
    step = answering(run.steps)
    if step is None:
        return _spoken(run, expected) if expected else None
    given = given_by(step)
    if not given or (step.verdict is None and expected is None):
        return None
    thought = run.before(run.said, step.at)
    task = run.text(run.users[0])[:600] if run.users else run.task
    return Answer(
        event=step.event,
        given=cut(given, 120),
        verdict=step.verdict,
        reason=_why(run.text(thought)) if thought is not None else "",
        reason_event=run.ids[thought] if thought is not None else None,
        unsearched=_unsearched(task, run.steps),
        comparison=bool(_COMPARE.search(task)),
        **_against(run, given, expected, step.at),
    )


def _spoken(run: Run, expected: str) -> Answer | None:
    at = run.said[-1] if run.said else None
    if at is None or (run.steps and run.steps[-1].at > at):
        return Answer(event=None, given="", **_against(run, "", expected, len(run.events)))
    text = run.text(at)
    return Answer(
        event=run.ids[at], given=first_sentence(text, 120), **_against(run, text, expected, at)
    )


def _against(run: Run, given: str, expected: str | None, at: int) -> dict[str, Any]:
    said = plain(given)
    seen_event, seen_call = _seen(run, said, at)
    known: dict[str, Any] = {"given_event": seen_event, "given_call": seen_call}
    if expected is None:
        return known
    wanted = plain(re.sub(r"\s*\([^)]*\)\s*$", "", expected)) or plain(expected)
    event, call = _seen(run, wanted, len(run.events))
    relation = compare(given, expected).relation
    return known | {
        "expected": cut(expected, 120),
        "relation": relation if said else None,
        "expected_event": event,
        "expected_call": call,
    }


def _seen(run: Run, wanted: str, before: int) -> tuple[str | None, str | None]:
    """The latest response before `before` that contains the words, and its call; short words are
    not looked for."""
    if len(wanted) < 4:
        return None, None
    budget = _RESPONSES
    first = wanted.split()[0]
    for step in reversed(run.steps):
        if (
            step.response_at is None
            or step.at >= before
            or step.verdict is not None
            or step.failure
        ):
            continue
        text = step.response[: min(budget, 20_000)]
        budget -= len(text)
        if budget <= 0:
            break
        if first in text.casefold() and f" {wanted} " in f" {_folded(text)} ":
            return step.event, step.call
    return None, None


def _folded(text: str) -> str:
    return " ".join(plain(text[n : n + 4_000]) for n in range(0, len(text), 4_000))


def _why(thought: str) -> str:
    """The last two sentences before the answer: the step where it was decided."""
    line = cut(thought, 600)
    sentences = re.split(r"(?<=[.。!?])\s+(?=[A-Z\u3040-\u9fff])", line)
    return cut(" ".join(sentences[-2:]) if len(sentences) > 1 else line, 200)


def _unsearched(question: str, steps: Sequence[Step]) -> tuple[str, ...]:
    """Names in the question whose words stand together in no call; at most two."""
    asked = " \n ".join(plain(s.args.get("", "")) for s in steps[:60] if not answers_with(s))
    found: list[str] = []
    for match in _NAMES.findall(question):
        name = _QUESTION_WORD.sub("", match).strip('"“” ?.,')
        key = plain(name)
        if len(key) > 4 and " " in key and key.split()[-1] not in asked and name not in found:
            found.append(cut(name, 60))
    return tuple(found[:2])


def find_untold(run: Run, ground_truth: Any) -> tuple[Untold, ...]:
    """Expected `outputs` that stand in no message of the run; the closest message with a figure is
    shown instead."""
    if not run.said:
        return ()
    found: list[Untold] = []
    for wanted in untold(run, ground_truth):
        at = next((a for a in reversed(run.said) if re.search(r"\d", run.text(a)[:20_000])), None)
        said = _figure(run.text(at)) if at is not None else ""
        found.append(Untold(cut(wanted, 60), run.ids[at] if at is not None else None, said))
    return tuple(found)


def _figure(text: str) -> str:
    """The sentence with the last sum of money or decimal, else the first with a number."""
    sentences = re.split(r"(?<=[.!?])\s+|\n|。", text[:6_000])
    sentences = [s for s in sentences if len(s) > 12]
    money = [s for s in sentences if re.search(r"[$€¥£]\s?\d|\d円|\d\.\d\d", s)]
    return cut(
        (money or [s for s in sentences if re.search(r"\d", s)] or [text])[-1 if money else 0], 140
    )
