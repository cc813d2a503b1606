"""`run_reflector` and `apply_bullet_tags` (S4)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from memory_api.core.settings import Settings
from memory_api.core.telemetry import failure_fields, get_logger
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLM, LLMWrapper
from memory_api.llm.prompts import load_prompt
from memory_api.llm.registry import open_configured_models
from memory_api.llm.wrappers import FallbackLLM, RetryingLLM
from memory_api.playbooks.formats.key_points import list_key_points
from memory_api.playbooks.retrieval.prompt_block import format_playbook
from memory_api.reflection.rules import fact_text
from memory_api.reflection.transcripts.generate import (
    BUILTIN_PROMPT,
    KEY_POINTS_TEMPLATE,
    PROMPT_NAME,
    analyze_transcript,
    session_context,
)
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.traces.importers.messages import messages_to_events
from memory_api.traces.importers.session_lines import Message, parse_messages
from memory_api.traces.schemas import Event

log = get_logger(__name__)
_RESULT_FIELDS = {"analysis", "bullet_tags"}


async def run_reflector(
    messages: Sequence[Message],
    playbook: Mapping[str, Any],
    cited_ids: Sequence[str],
    *,
    llm: LLM | None = None,
    retry: Callable[[LLM], LLM] = RetryingLLM,
) -> dict[str, Any]:
    """Analyzes a session: `{"analysis": …, "bullet_tags": [{"name", "tag", "rationale"}]}`. Never
    raises; both are empty after an error, which is logged without its message, and if no message
    has a text or a tool call. `playbook` may have
    an older form: plain texts, or a flat list `key_points`.

    With `cited_ids` the model tags these key points, otherwise those that it recognizes in the
    messages. `llm` defaults to the configured model. `retry` wraps a model that has no retries of
    its own; the default calls it at most three times, up to 2 s and 4 s apart. Without a model the
    rules engine writes the analysis and gives no tags.
    """
    try:
        opened = open_configured_models(Settings.load())[:1] if llm is None else []
        try:
            model_session = next(
                (_open_session(model, retry) for model in ([llm] if llm else opened)), None
            )
            return await _reflect(messages, playbook, cited_ids, model_session)
        finally:
            for model in opened:
                await model.aclose()
    except Exception as error:
        log.warning("reflector_failed", **failure_fields(error))
        return {"analysis": "", "bullet_tags": []}


async def _reflect(
    messages: Sequence[Message],
    playbook: Mapping[str, Any],
    cited_ids: Sequence[str],
    model_session: ModelSession | None,
) -> dict[str, Any]:
    events = messages_to_events(parse_messages(messages))
    if not any(event.content.strip() or event.tool_name for event in events):
        return {"analysis": "", "bullet_tags": []}
    if model_session is None:
        return {"analysis": analyze_by_rules(events), "bullet_tags": []}
    key_points = format_playbook(playbook, KEY_POINTS_TEMPLATE)
    prompt = load_prompt(PROMPT_NAME, builtin=BUILTIN_PROMPT)
    analysis = await analyze_transcript(model_session, prompt, events, key_points, cited_ids)
    answer = (
        analysis.answer if key_points else analysis.answer.model_copy(update={"bullet_tags": []})
    )
    return answer.model_dump(include=_RESULT_FIELDS)


def _open_session(llm: LLM, retry: Callable[[LLM], LLM]) -> ModelSession:
    """A model session, with retries unless the model already has them."""
    innermost = llm
    while isinstance(innermost, LLMWrapper) and not isinstance(innermost, RetryingLLM):
        innermost = innermost.inner
    return ModelSession(llm if isinstance(innermost, RetryingLLM | FallbackLLM) else retry(llm))


def analyze_by_rules(events: Sequence[Event]) -> str:
    """The rules engine's analysis of a session; '' if there is none."""
    if not events:
        return ""
    context = session_context(events)
    return fact_text(context, analyze_trace(context))


_COUNTED_TAGS = ("helpful", "harmful")


def apply_bullet_tags(
    playbook: dict[str, Any], bullet_tags: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Increments the counter of each tag `{name, tag, rationale}` in the given playbook and returns
    it (REQ-REFL-007). `neutral` changes nothing. A tag is read in any case.

    Every tag counts, also repeated ones. Unknown names, unknown tags, malformed tags and tags of a
    malformed counter, which does not change, are reported on stderr and skipped. A text without a
    name is found by the name that `format_playbook` shows, and becomes a key point when it is
    counted.
    """
    key_points = {point.name: point for point in list_key_points(playbook)}
    for bullet_tag in cast("Iterable[Any]", bullet_tags):
        if not isinstance(bullet_tag, Mapping):
            _print_error(f"skipped {bullet_tag!r}: not a tag")
            continue
        name, tag = (cast("Mapping[str, Any]", bullet_tag).get(field) for field in ("name", "tag"))
        value = tag.strip().lower() if isinstance(tag, str) else None
        key_point = key_points.get(name) if isinstance(name, str) else None
        if not isinstance(name, str):
            _print_error(f"skipped tag {tag!r}: it has no name")
        elif key_point is None:
            _print_error(f"skipped tag {tag!r}: no key point is named {name!r}")
        elif value in _COUNTED_TAGS:
            try:
                key_point.add_verdict(value)
            except ValueError as error:
                _print_error(f"skipped tag {tag!r} for {name!r}: {error}")
        elif value != "neutral":
            _print_error(f"skipped unknown tag {tag!r} for {name!r}")
    return playbook


def _print_error(message: str) -> None:
    sys.stderr.write(f"apply_bullet_tags: {message}\n")
