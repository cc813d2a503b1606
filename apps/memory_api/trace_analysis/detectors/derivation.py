"""Follows the final answer of several agents back to the steps that made it: the program that
computed it, the message that selected it from an output, the statements that its inputs come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memory_api.text.excerpts import excerpt, sentence_around
from memory_api.trace_analysis.detectors.claims import Conversation, is_report
from memory_api.trace_analysis.detectors.hand_offs import file_names
from memory_api.trace_analysis.structure import AnswerOrigin, Divergence
from memory_api.trace_analysis.team import AgentStep, Role, author_of, output_body
from memory_api.trace_analysis.values import (
    FoldedText,
    missing_values,
    names_in,
    numbers_in,
    specific_values,
)
from memory_api.trace_analysis.vocabulary import Vocabulary

_LIST_NUMBER = re.compile(r"^ *(?:\w{4,8} )?\(?\d{1,2}[.):]+ ", re.MULTILINE)
_NAME = re.compile(r"[^\W\d_][\w\-]*(?: [\w\-]+)*")
_MAX_NUMBERS_IN_LINE = 4
_MAX_OBJECTION_CHARACTERS = 4_000
_MIN_STALLED = 3
_LAST_STEPS = 8
_START_CHARACTERS, _MIN_START_CHARACTERS = 50, 8
_MAX_PER_KIND = 3
_MAX_STATED = 8
_SOURCE = re.compile(
    r"https?://|\bopen\(|\bread_\w+\(|\brequests?\.|\bselect\b.{1,200}\bfrom\b", re.I | re.S
)
_MAX_ARITHMETIC_LINES = 12
_FACTORS = {"360", "365", "1024", "1440", "3600", "86400"}


@dataclass(frozen=True, slots=True)
class AnswerSteps:
    """The steps that made the value of the final answer, as event IDs; None if there is none.

    `computed`: its code printed the value. `is_arithmetic`: this code opens nothing and only
    computes with values that it contains; `inputs` are then the first messages with these values.
    `selected`: the first message with the value after an output that contains it among others, and
    `looked_up` the call with this output. `introduced`: the first message with the value, if no
    earlier output contains it; `is_last`: no other step does. `chosen`: a message with the value
    and another one, which another agent had stated.
    """

    computed: str | None = None
    is_arithmetic: bool = False
    inputs: tuple[str, ...] = ()
    selected: str | None = None
    looked_up: str | None = None
    introduced: str | None = None
    is_last: bool = False
    chosen: str | None = None


def find_answer_steps(run: Conversation, origin: AnswerOrigin | None) -> AnswerSteps:
    """The steps that made the value of `origin`. Failed outputs are left out. A value that only the
    last step contains may be an earlier one, rounded.
    """
    if origin is None:
        return AnswerSteps()
    found = _steps_with(run, origin.value)
    if found.is_last and (longer := _rounded_from(run, origin.value)):
        found = _steps_with(run, longer)
    return replace(found, chosen=_choice(run, origin.value))


def _steps_with(run: Conversation, value: str) -> AnswerSteps:
    outputs = [
        step
        for step, text in zip(run.steps, run.texts, strict=True)
        if step.role is Role.OUTPUT and not step.exit_code and text.contains(value)
    ]
    for output in outputs:
        author = author_of(run.steps, output)
        if author.program and _is_printed(output, value):
            arithmetic = is_arithmetic(author)
            inputs = _inputs(run, author) if arithmetic else ()
            return AnswerSteps(author.event_id, arithmetic, inputs)
    messages = [
        step
        for step, text in zip(run.steps, run.spoken, strict=True)
        if step.is_message and text.contains(value)
    ]
    if not messages:
        return AnswerSteps()
    if not outputs or messages[0].position < outputs[0].position:
        return AnswerSteps(introduced=messages[0].event_id, is_last=len(messages) == 1)
    selected = next(s for s in messages if s.position > outputs[0].position)
    return AnswerSteps(
        selected=selected.event_id, looked_up=author_of(run.steps, outputs[0]).event_id
    )


def _inputs(run: Conversation, program: AgentStep) -> tuple[str, ...]:
    """The first messages before a program with numbers that it contains and the task does not."""
    numbers = [n for n in numbers_in(program.program) if len(n) > 2 and n not in run.task.numbers]
    found: dict[str, int] = {}
    for number in numbers:
        for step, text in zip(run.steps[: program.position], run.spoken, strict=False):
            if step.is_message and text.contains(number):
                found.setdefault(step.event_id, step.position)
                break
    return tuple(sorted(found, key=lambda event_id: found[event_id]))


def _rounded_from(run: Conversation, value: str) -> str | None:
    """A number of an output that rounds to the value, as it stands or times 100."""
    if not re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", value):
        return None
    decimals = len(value.partition(".")[2])
    for step, text in zip(run.steps, run.texts, strict=True):
        if step.role is not Role.OUTPUT or step.exit_code:
            continue
        for number in text.numbers:
            if re.fullmatch(r"\d{1,12}\.\d{1,18}", number) and any(
                round(float(number) * factor, decimals) == float(value) for factor in (1, 100)
            ):
                return number
    return None


def _choice(run: Conversation, value: str) -> str | None:
    """The first message that contains the value and a number that a message of another agent was
    the first event to contain.
    """
    first: dict[str, AgentStep] = {}
    for step, text in zip(run.steps, run.spoken, strict=True):
        if step.is_message and text.contains(value) and value in first:
            others = [
                number
                for number in text.numbers
                if len(number) > 1
                and (author := first.get(number))
                and author.is_message
                and number != value
                and author.agent not in (step.agent, first[value].agent)
            ]
            if others:
                return step.event_id
        for number in text.numbers:
            first.setdefault(number, step)
        if text.contains(value):
            first.setdefault(value, step)
    return None


def _is_printed(output: AgentStep, value: str) -> bool:
    """Whether a line of an output with few numbers contains the value."""
    return any(
        len(numbers_in(line)) <= _MAX_NUMBERS_IN_LINE and FoldedText(line).contains(value)
        for line in output.text[:20_000].splitlines()
    )


def is_arithmetic(step: AgentStep) -> bool:
    """Whether a program is short and opens no file, page or database."""
    program = step.program
    lines = [line for line in program.splitlines() if line.strip()]
    return (
        0 < len(lines) <= _MAX_ARITHMETIC_LINES
        and not file_names(program)
        and not _SOURCE.search(program)
    )


def find_unsupported_inputs(run: Conversation, vocabulary: Vocabulary) -> tuple[Divergence, ...]:
    """Messages with values that occur in no earlier event: those whose values a later call or
    program uses, and those of agents that have made no call yet; at most three of a kind.
    """
    found = [*_used_statements(run)][:_MAX_PER_KIND]
    known = {item.event_id for item in found}
    without = [
        item for item in _statements_without_call(run, vocabulary) if item.event_id not in known
    ]
    return (*found, *without[:_MAX_PER_KIND])


def _used_statements(run: Conversation) -> Iterator[Divergence]:
    stated: dict[str, AgentStep] = {}
    named: set[str] = set()
    for step, text in zip(run.steps, run.texts, strict=True):
        if step.is_call or step.program:
            used = numbers_in(step.program or step.text)
            for statement in {id(s): s for v in used if (s := stated.get(v))}.values():
                values = sorted(v for v in used if stated.get(v) is statement)
                if statement.event_id not in named and statement.event_id != step.event_id:
                    named.add(statement.event_id)
                    yield Divergence(
                        "from_statement",
                        statement.event_id,
                        statement.agent,
                        stated=", ".join(values[:4]),
                        source_event_id=step.event_id,
                    )
        if step.role is Role.OUTPUT or step.is_call:
            for value in text.numbers:
                stated.pop(value, None)
        elif step.is_message and not step.code and not is_report(step.text):
            before = run.before(step)
            numbers = [n for n in numbers_in(step.text) if len(n) > 1 and n not in stated]
            for value in missing_values(numbers, before):
                stated[value] = step


def _statements_without_call(run: Conversation, vocabulary: Vocabulary) -> Iterator[Divergence]:
    """The last step is left out: it reports. Names of agents are no values."""
    acting: set[str] = set()
    agents = " ".join({step.agent for step in run.steps})
    for step in run.steps[:-1]:
        if step.is_call or step.code:
            acting.add(step.agent)
        if step.role is not Role.WORKER or step.agent in acting or is_report(step.text):
            continue
        names = [name for name in names_in(step.text) if _NAME.fullmatch(name)]
        if vocabulary.capitalizes_nouns:
            names = []
        values = [
            *specific_values(step.text),
            *names,
            *sorted(numbers_in(_LIST_NUMBER.sub("", step.text))),
        ]
        values = [value for value in dict.fromkeys(values) if value not in agents]
        missing = missing_values(values, run.before(step))
        others = [
            text
            for later, text in zip(run.steps, run.texts, strict=True)
            if later.position > step.position and later.agent != step.agent
        ]
        is_adopted = len(missing_values(missing, others)) < len(missing)
        if len(missing) >= 2 and is_adopted:
            yield Divergence(
                "without_call",
                step.event_id,
                step.agent,
                stated=", ".join(excerpt(value, 40) for value in missing[:_MAX_STATED]),
            )


def find_passed_over(
    run: Conversation, origin: AnswerOrigin | None, expected: str | None
) -> Divergence | None:
    """The message that gives the final answer although the expected one had occurred: one that
    contains both, else the first one with the answer. None for answers of one character.
    """
    if origin is None or not expected or len(expected) < 2 or run.task.contains(expected):
        return None
    occurs = [s for s, t in zip(run.steps, run.texts, strict=True) if t.contains(expected)]
    if not occurs or FoldedText(origin.answer).contains(expected):
        return None
    later = [
        (step, text)
        for step, text in zip(run.steps, run.spoken, strict=True)
        if step.is_message and step.position > occurs[0].position and text.contains(origin.value)
    ]
    both = [step for step, text in later if text.contains(expected)]
    step = (both or [step for step, _ in later] or [None])[0]
    if step is None:
        return None
    return Divergence(
        "passed_over",
        step.event_id,
        step.agent,
        stated=origin.value,
        found=excerpt(expected, 60),
        source_event_id=occurs[0].event_id,
    )


def find_stalled_call(steps: Sequence[AgentStep]) -> Divergence | None:
    """The first of at least three calls of an agent that are equal, or whose outputs start alike
    apart from digits, if the last one is among the last eight steps.
    """
    groups: dict[tuple[str, str, str], list[AgentStep]] = {}
    starts: dict[str, str] = {}
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if not (step.is_call or step.program):
            continue
        call = " ".join(step.text[:400].split())
        groups.setdefault((step.agent, "call", call), []).append(step)
        if following and following.role is Role.OUTPUT:
            body = " ".join(output_body(following.text)[:400].split())
            start = re.sub(r"\d+", "0", body)[:_START_CHARACTERS]
            if len(start) > _MIN_START_CHARACTERS:
                starts.setdefault(start, body[:_START_CHARACTERS])
                groups.setdefault((step.agent, "output", start), []).append(step)
    for (agent, kind, text), group in groups.items():
        if len(group) >= _MIN_STALLED and group[-1].position >= len(steps) - _LAST_STEPS:
            return Divergence(
                "stalled_call" if kind == "call" else "stalled_output",
                group[0].event_id,
                agent,
                stated=excerpt(text, 60) if kind == "call" else "",
                found=excerpt(starts[text], 60) if kind == "output" else "",
                source_event_id=group[-1].event_id,
            )
    return None


def find_ignored_objection(
    run: Conversation, origin: AnswerOrigin | None, vocabulary: Vocabulary
) -> Divergence | None:
    """The first message that repeats the value of the final answer after another agent had objected
    to it, with no call or program in between. An objection is a message with the value and a phrase
    of the vocabulary.
    """
    if origin is None:
        return None
    objection: tuple[AgentStep, str] | None = None
    for step, text in zip(run.steps, run.spoken, strict=True):
        if step.is_call or step.program:
            objection = None
        elif step.is_message and text.contains(origin.value):
            if objection and objection[0].agent != step.agent:
                source, quote = objection
                return Divergence(
                    "ignored_objection",
                    step.event_id,
                    step.agent,
                    stated=origin.value,
                    found=quote,
                    source_event_id=source.event_id,
                )
            quote = _find_objection(text.text, vocabulary)
            objection = (step, quote) if quote else None
    return None


def _find_objection(text: str, vocabulary: Vocabulary) -> str | None:
    """The first sentence with a phrase of objection that the text does not negate ("nothing is
    wrong").
    """
    start = text[:_MAX_OBJECTION_CHARACTERS]
    negated = [match.span() for match in vocabulary.finditer("no_objection", start)]
    for match in vocabulary.finditer("objection", start):
        if not any(begin <= match.start() < end for begin, end in negated):
            return sentence_around(start, match.start())
    return None


def find_own_values(run: Conversation, event_id: str | None) -> tuple[str, ...]:
    """Numbers of three digits or more in the program of a step that occur in no earlier event.
    Powers of ten and factors of times and percentages are left out.
    """
    step = next((s for s in run.steps if s.event_id == event_id), None)
    if step is None:
        return ()
    numbers = [
        n
        for n in sorted(numbers_in(step.program))
        if len(n.replace(".", "")) > 2 and n.strip("0.") != "1" and n not in _FACTORS
    ]
    return tuple(missing_values(numbers, run.before(step)))
