"""Detects where the final answer of a run of several agents came from, statements without a source,
and parts of the task that no later step mentions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory_api.text.excerpts import excerpt, fold_for_comparison
from memory_api.trace_analysis.structure import (
    AnswerOrigin,
    OmittedConstraint,
    UnsupportedStatement,
)
from memory_api.trace_analysis.team import AgentStep, Role, author_of, output_body
from memory_api.trace_analysis.values import (
    FoldedText,
    missing_values,
    names_in,
    numbers_in,
    specific_values,
)
from memory_api.trace_analysis.vocabulary import Vocabulary

_EMPHASIS = re.compile(r"\\boxed\{([^{}\n]{1,120})\}|\*\*([^*\n]{1,120})\*\*|\"([^\"\n]{1,120})\"")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MAX_ANSWER = 200
_MAX_LISTED = 4
_MAX_STATED = 8
_LAST_STEPS = 8


class Conversation:
    """The steps of a run of several agents, prepared for searches for values."""

    def __init__(self, steps: Sequence[AgentStep], task: str) -> None:
        self.steps = list(steps)
        self.task = FoldedText(
            task + "\n" + "\n".join(s.text for s in steps if s.role is Role.TASK)
        )
        self.texts = [FoldedText(step.text) for step in steps]
        self.spoken = [
            FoldedText(_CODE.sub(" ", step.text)) if step.code else text
            for step, text in zip(steps, self.texts, strict=True)
        ]

    def first_with(self, value: str) -> AgentStep | None:
        """The first step after the task that contains a value outside its code. Failed outputs are
        left out: their numbers are line numbers and codes.
        """
        for step, text in zip(self.steps, self.spoken, strict=True):
            if step.role is Role.TASK or (step.role is Role.OUTPUT and step.exit_code):
                continue
            if text.contains(value):
                return step
        return None

    def before(self, step: AgentStep) -> list[FoldedText]:
        """The texts of all steps before a step, and the task."""
        return [self.task, *self.texts[: step.position]]


def find_answer_origin(run: Conversation, vocabulary: Vocabulary) -> AnswerOrigin | None:
    """Where the value of the final answer first occurs; None if the run gave no answer or the task
    contains its value.
    """
    answer = final_answer(run.steps, vocabulary)
    if answer is None:
        return None
    step, text = answer
    value = _searchable(text, run)
    if value is None:
        return None
    first = run.first_with(value)
    if first is None:
        return None
    author = author_of(run.steps, first) if first.role is Role.OUTPUT else first
    output = next(
        (
            later
            for later, folded in zip(run.steps, run.texts, strict=True)
            if _is_source(later) and folded.contains(value)
        ),
        None,
    )
    kind = "output" if first.role is Role.OUTPUT else "message"
    return AnswerOrigin(
        kind="report" if kind == "message" and is_report(first.text) else kind,
        answer=excerpt(text, 120),
        value=excerpt(value, 80),
        answer_event_id=step.event_id,
        first_event_id=first.event_id,
        author_event_id=author.event_id,
        author=author.agent,
        output_event_id=output.event_id if output else None,
        mention_count=sum(
            folded.contains(value)
            for other, folded in zip(run.steps, run.texts, strict=True)
            if other.role is not Role.TASK
        ),
    )


def _is_source(step: AgentStep) -> bool:
    """Whether a step is an output without an error, or the report of a page or file."""
    if step.role is Role.OUTPUT:
        return not step.exit_code
    return step.role is Role.WORKER and not step.code and is_report(step.text)


def final_answer(
    steps: Sequence[AgentStep], vocabulary: Vocabulary
) -> tuple[AgentStep, str] | None:
    """The last step that states an answer, and the answer: the text after a word that introduces an
    answer, else an emphasized text, else the last line of the last message.
    """
    latest = [step for step in steps if step.role is not Role.TASK][-_LAST_STEPS:]
    spoken = [step for step in reversed(latest) if step.role in (Role.WORKER, Role.COORDINATOR)]
    for step in spoken:
        matches = list(vocabulary.finditer("answer_intro", step.text[-6_000:]))
        if matches:
            rest = step.text[-6_000:][matches[-1].end() :].strip(" *:\n\t")
            line = rest.split("\n", 1)[0].strip(" *.`$")
            if line:
                return step, line[:_MAX_ANSWER]
    for step in spoken:
        text = _CODE.sub(" ", step.text[-6_000:])
        marked = [match[match.lastindex or 0] for match in _EMPHASIS.finditer(text)]
        if marked:
            return step, marked[-1]
        lines = [line.strip(" *.`") for line in text.splitlines() if re.search(r"\d", line)]
        if lines:
            return step, lines[-1][-_MAX_ANSWER:]
    return None


def _searchable(text: str, run: Conversation) -> str | None:
    """The part of an answer to search for: the whole text if a step before the last contains it,
    else its first number or name that is not in the task.
    """
    is_new = len(fold_for_comparison(text)) > 1 and not run.task.contains(text)
    if is_new and sum(folded.contains(text) for folded in run.texts) > 1:
        return text
    numbers = sorted(numbers_in(text), key=len, reverse=True)
    words = re.findall(r"[^\W\d_][\w'’\-]{3,}", text)
    options = [*numbers, *names_in("a " + text), *([text] if len(text) < 60 else []), *words]
    return next((option for option in options if not run.task.contains(option)), None)


def find_unsupported_statements(run: Conversation) -> tuple[UnsupportedStatement, ...]:
    """Messages without code that state at least two numbers or names that occur in no earlier
    event; at most five. Reports of a page or file are left out: their text is the source.
    """
    results: list[UnsupportedStatement] = []
    for step in run.steps:
        if step.role is not Role.WORKER or step.code or is_report(step.text):
            continue
        missing = missing_values(specific_values(step.text), run.before(step))
        if len(missing) >= 2:
            results.append(
                UnsupportedStatement(
                    step.event_id,
                    step.agent,
                    len(missing),
                    tuple(excerpt(value, 40) for value in missing[:_MAX_STATED]),
                )
            )
    return tuple(results[:5])


_LINK = re.compile(
    r"https?://[^\s)\]>\"']{4,300}|\bfile:///?[^\s)]{2,200}|^(?:Address|Path|URL): ", re.M
)


def is_report(text: str) -> bool:
    """Whether a message reports a page or a file: its first 600 characters contain an address."""
    return bool(_LINK.search(text[:600]))


def page_address(text: str) -> str:
    """The address of the page that a message reports; '' if there is none."""
    match = _LINK.search(text[:600])
    return match.group() if match else ""


def find_omitted_constraint(run: Conversation, task: str) -> OmittedConstraint | None:
    """Numbers and names of the task that no later step mentions. The event is the first step of an
    agent.
    """
    first = next((step for step in run.steps if step.is_blameable), None)
    if first is None:
        return None
    later = [
        text for step, text in zip(run.steps, run.texts, strict=True) if step.role is not Role.TASK
    ]
    missing = missing_values(specific_values(task[:3_000]), later)
    if not missing:
        return None
    return OmittedConstraint(first.event_id, first.agent, tuple(missing[:_MAX_LISTED]))


def is_empty_output(step: AgentStep) -> bool:
    """Whether an output has no text besides its exit code."""
    return step.role is Role.OUTPUT and not output_body(step.text)
