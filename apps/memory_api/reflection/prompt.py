"""The prompt with a trace in it. Fixed text comes first, so that providers can cache it. Text from
outside is redacted, shortened to a token budget and fenced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memory_api.core.secret_redaction import redact
from memory_api.llm.model_session import ModelSession
from memory_api.llm.prompts import (
    Prompt,
    PromptMessages,
    content_hash,
    load_prompt,
    split_cacheable_prefix,
)
from memory_api.llm.structured_output import schema_text
from memory_api.llm.untrusted_text import distribute_budget, fence_text, fit_text
from memory_api.reflection.attempt_text import fold_attempts, render_attempts
from memory_api.reflection.evidence import Evidence, PromptBullet, PromptLesson
from memory_api.reflection.fact_text import fact_sentences
from memory_api.reflection.model_output import reflection_class
from memory_api.reflection.rules import context_language
from memory_api.reflection.trace_text import (
    ShownContents,
    StatedError,
    called_tools,
    count_tokens,
    error_text,
    event_pieces,
    fit_events,
    recorded_result,
    stated_error,
    to_json,
    tool_lines,
)
from memory_api.text.terms import estimate_tokens
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.calls import agent_steps
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.trace_analysis.ground_truth import states_answer
from memory_api.traces.schemas import OutcomeType

PROMPT_BY_OUTCOME = {
    OutcomeType.FAILURE: "reflection/failure",
    OutcomeType.ERROR: "reflection/failure",
    OutcomeType.TIMEOUT: "reflection/failure",
    OutcomeType.SUCCESS: "reflection/success",
    OutcomeType.PARTIAL: "reflection/partial",
}
DATA_PROMPT = "reflection/data"
"""The section with the run. Appended to a prompt file without the placeholder `{events}`."""
BULLETS_TEMPLATE = """
Bullets of the playbook that the agent had. Give a verdict on each in `verdicts`:
{bullets}
"""
"""Appended to a prompt file with `{events}` but without `{bullets}`, if there are bullets."""

_LANGUAGES = {"ja": "Japanese"}
_SHOWN_KINDS = frozenset(FactKind) - {
    *(FactKind.COUNTS, FactKind.QUOTATION, FactKind.ERROR, FactKind.DIFFERENCE)
}
"""Kinds of facts in the list of facts. The events are shown; the error and the comparison of the
attempts have sections of their own.
"""
_SHORTENED = re.compile(r"\[… |\[the same \d|: the same \d+ events as |omitted")
"""A remark in place of text that was shortened."""
_NONE = "(none)"
"""What a template of an operator shows in place of an empty value."""

_MAX_BULLET_TOKENS = 320
_MIN_TOKENS = 64
_FENCE_TOKENS = 24
"""Upper bound of a fence's tokens."""
_COMPARED_TOKENS = 9_000
"""Size up to which earlier attempts are added to a run, estimated. A reader compares them, and does
not find the difference in more.
"""
_MAX_AGENTS_TOKENS = 500
_MIN_ATTEMPTS_TOKENS = 800
"""What the attempts get also if the run is larger."""
_WEIGHTS = {
    "task_goal": 1,
    "task_description": 2,
    "tools": 2,
    "called_tools": 1,
    "error": 1,
    "ground_truth": 2,
    "recorded_result": 1,
    "test_report": 3,
    "findings": 4,
    "attempts": 6,
    "comparison": 2,
    "task_hints": 1,
    "lessons": 2,
    "bullets": 3,
    "events": 12,
}
"""How the budget is divided if not everything fits. What a part does not use goes to the others."""


def load_reflection_prompt(model: ModelSession, outcome: OutcomeType) -> Prompt:
    """The prompt for runs with this outcome, with the section for the data."""
    prompt = model.prompt(PROMPT_BY_OUTCOME[outcome])
    return prompt if "{events}" in prompt.text else with_data(prompt, model.prompt(DATA_PROMPT))


def with_data(prompt: Prompt, data: Prompt) -> Prompt:
    text = f"{prompt.text.rstrip()}\n\n{data.text}"
    return replace(prompt, text=text, hash=content_hash(text))


def omitted_fields(evidence: Evidence) -> frozenset[str]:
    """The fields of `ModelReflection` that have no meaning for this evidence."""
    unused = {"verdicts": not evidence.bullets, "same_as": not evidence.lessons}
    return frozenset(name for name, is_unused in unused.items() if is_unused)


def lesson_ids(evidence: Evidence) -> dict[str, PromptLesson]:
    """The names of the known lessons in the prompt: L1, L2, …"""
    return {f"L{number}": lesson for number, lesson in enumerate(evidence.lessons, 1)}


def build_messages(
    prompt: Prompt,
    context: ReflectionContext,
    evidence: Evidence,
    facts: Sequence[Fact],
    *,
    budget: int,
) -> PromptMessages:
    """`budget` is how many estimated tokens the trace and the evidence may take."""
    if "{events}" not in prompt.text:
        prompt = with_data(prompt, load_prompt(DATA_PROMPT))
    template = prompt.text
    if evidence.bullets and "{bullets}" not in template:
        template += BULLETS_TEMPLATE
    parts = PromptParts(context, evidence, facts, budget)
    values = parts.values()
    if "{if " not in template:
        values = {name: value or _NONE for name, value in values.items()}
    return split_cacheable_prefix(template, values, parts.bullet_keys)


class PromptParts:
    """The values of the placeholders. Each part is rendered completely, then the budget is
    distributed, and the parts that get less than they need are shortened.
    """

    def __init__(
        self, context: ReflectionContext, evidence: Evidence, facts: Sequence[Fact], budget: int
    ) -> None:
        self.context, self.evidence = context, evidence
        self.error = stated_error(context, facts)
        shown = ShownContents()
        keys = {bullet.key for bullet in evidence.bullets}
        self.events = event_pieces(context.events, shown, bullet_keys=keys)
        attempts = evidence.attempts_in_order
        self.attempts = fold_attempts(attempts, context.events, shown)
        truth = _as_text(evidence.ground_truth)
        is_goal = context.task_description == context.task_goal
        self.texts = {
            "task_goal": context.task_goal or "",
            "task_description": "" if is_goal else context.task_description or "",
            "tools": tool_lines(context.tools),
            "called_tools": "" if context.tools else called_tools(context, evidence),
            "error": error_text(self.error),
            "ground_truth": truth if states_answer(evidence.ground_truth) else "",
            "recorded_result": recorded_result(evidence.ground_truth),
            "test_report": evidence.test_report or "",
            "findings": _fact_lines(f for f in facts if f.kind in _SHOWN_KINDS),
            "comparison": _fact_lines(facts_of(facts, FactKind.DIFFERENCE)),
            "task_hints": "\n".join(f"- {_one_line(hint)}" for hint in evidence.task_hints),
            "lessons": lesson_lines(lesson_ids(evidence)),
        }
        self.texts = {name: redact(text).text for name, text in self.texts.items()}
        self.bullet_lines = bullet_lines(evidence.bullets)
        self.bullet_keys: tuple[str, ...] = ()
        self.budget = self._distribute(budget)

    def _distribute(self, budget: int) -> dict[str, int]:
        sizes = {name: estimate_tokens(text) for name, text in self.texts.items()}
        sizes |= {
            "attempts": sum(item.token_count for item in self.attempts),
            "bullets": sum(estimate_tokens(f"{line}\n") for line in self.bullet_lines.values()),
            "events": count_tokens(self.events),
        }
        others = sum(sizes.values()) - sizes["attempts"]
        sizes["attempts"] = min(
            sizes["attempts"], max(_MIN_ATTEMPTS_TOKENS, _COMPARED_TOKENS - others)
        )
        fences = _FENCE_TOKENS * sum(1 for size in sizes.values() if size)
        return distribute_budget(max(0, budget - fences), sizes, _WEIGHTS)

    def values(self) -> dict[str, str]:
        texts = {name: self._fenced(name) for name in self.texts}
        bullets = self._bullets()
        values = texts | {
            "attempts": render_attempts(
                self.attempts, self.budget["attempts"], self.texts["comparison"]
            ),
            "bullets": fence_text(bullets, label="bullets") if bullets else "",
            "events": fence_text(fit_events(self.events, self.budget["events"]), label="events"),
            "agents": _fence(
                ", ".join(f"{name} ({n})" for name, n in agent_steps(self.context.events).items()),
                "agents",
                _MAX_AGENTS_TOKENS,
            ),
            "schema": schema_text(reflection_class(self.context.outcome)),
            "outcome": self.context.outcome_text,
            "focus": redact(self.evidence.focus or "").text,
            "language": _LANGUAGES.get(context_language(self.context), ""),
        }
        error = self.error or StatedError("", "", {})
        is_shortened = any(_SHORTENED.search(values[name]) for name in ("events", "attempts"))
        return values | {
            "shortened": "yes" if is_shortened else "",
            "unexplained": "yes" if self.is_unexplained else "",
            "error_category": error.category,
            "error_message": _fence(error.message, "error-message", self.budget["error"]),
            "error_context": _fence(
                to_json(error.context) if error.context else "",
                "error-context",
                self.budget["error"],
            ),
        }

    def _fenced(self, name: str) -> str:
        text, budget = self.texts[name], self.budget[name]
        if name in ("lessons", "findings"):
            text = _first_lines(text, budget)
        return _fence(text, _LABELS.get(name, name), budget)

    @property
    def is_unexplained(self) -> bool:
        """Whether only the outcome says that the run did not succeed."""
        evidence = ("error", "ground_truth", "recorded_result", "test_report", "comparison")
        is_failure = self.context.outcome is not OutcomeType.SUCCESS
        return is_failure and not any(self.texts[name] for name in evidence)

    def _bullets(self) -> str:
        """The bullets that fit, in order; the model may judge only bullets that it is shown."""
        text = _first_lines("\n".join(self.bullet_lines.values()), self.budget["bullets"])
        self.bullet_keys = tuple(self.bullet_lines)[: len(text.split("\n"))] if text else ()
        return text


_LABELS = {
    "task_goal": "goal",
    "task_description": "task",
    "ground_truth": "right-answer",
    "recorded_result": "result",
    "test_report": "test-report",
    "comparison": "apart",
    "task_hints": "hints",
    "called_tools": "tools",
}
"""Labels of the fences, where they are not the name of the placeholder."""


def _fact_lines(facts: Iterable[Fact]) -> str:
    """A line for each fact. The sentences quote the trace, so a prompt has to fence them."""
    return "\n".join(f"- {line}" for line in fact_sentences(facts, "en", names_attempts=True))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else to_json(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def lesson_lines(lessons: Mapping[str, PromptLesson]) -> str:
    """`[L1] text` of each lesson."""
    return "\n".join(f"[{name}] {_one_line(lesson.text)}" for name, lesson in lessons.items())


def fenced_lines(text: str, label: str, budget: int) -> str:
    """As many whole lines as fit, redacted and fenced; '' without any."""
    return _fence(_first_lines(redact(text).text, budget), label, budget)


def bullet_lines(bullets: Sequence[PromptBullet]) -> dict[str, str]:
    """`[key] (usage): text` of each bullet, by its key."""
    lines: dict[str, str] = {}
    for bullet in bullets:
        text = _one_line(fit_text(redact(bullet.text).text, _MAX_BULLET_TOKENS))
        lines.setdefault(bullet.key, f"[{bullet.key}] ({bullet.usage}): {text}")
    return lines


def _first_lines(text: str, budget: int) -> str:
    """As many whole lines from the start as fit, at least one."""
    if estimate_tokens(text) <= budget:
        return text
    lines = text.split("\n")
    count = 0
    for line in lines:
        budget -= estimate_tokens(f"{line}\n")
        if budget < 0 and count:
            break
        count += 1
    return "\n".join(lines[:count])


def _fence(text: str, label: str, budget: int) -> str:
    return fence_text(fit_text(text, max(_MIN_TOKENS, budget)), label=label) if text else ""
