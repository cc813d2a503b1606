"""Short runs of one playbook share a reflection call: it costs less, and a convention shows only
across runs.

The run that starts first asks the model about itself and the short runs that wait. The answer about
each run is stored as a reply of that run, which then goes on by itself and saves its own
reflection. So each run counts once, whatever happens to the others: a run without a usable part of
the answer asks the model alone, and a worker that dies leaves the others in the queue.

The text of one run may mislead the model about the others. So the call is one witness: a rule that
repeats text of a run is a rule of the runs with that text, a bullet gets one verdict of the call,
and reports show text of any of the runs in quotation marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import structlog
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import NotFound
from memory_api.core.secret_redaction import redact
from memory_api.core.statements import fetch_column, fetch_value, load_statement
from memory_api.llm.errors import LLMRefused, LLMTruncated, LLMUnparseable
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLMReply
from memory_api.llm.prompts import load_prompt
from memory_api.llm.structured_output import request_structured
from memory_api.playbooks.models import VerdictTag
from memory_api.reflection.batches.prompt import (
    BatchMember,
    BatchPrompt,
    BatchReflection,
    BatchRule,
    RunReflection,
    build_batch_prompt,
    name_of_run,
    reflections_by_run,
)
from memory_api.reflection.context import (
    ReflectionInput,
    find_related_lessons,
    load_reflection_input,
)
from memory_api.reflection.credit.verdicts import limit_model_verdicts
from memory_api.reflection.evidence import analyze
from memory_api.reflection.model_output import (
    ModelReflection,
    ModelVerdict,
    SharedReflection,
    validate_verdicts,
)
from memory_api.reflection.outside_text import OutsideTexts, outside_texts_of, quote_reports
from memory_api.reflection.prompt import DATA_PROMPT, PROMPT_BY_OUTCOME
from memory_api.run_queue.port import Ticket
from memory_api.runs.chain import PLAYBOOK
from memory_api.runs.lifecycle import RunBusy
from memory_api.runs.queries import get_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.trace_analysis.facts import Fact

TAKE_WAITING_RUNS = load_statement("reflection/batches/queries.sql", "take_waiting_runs")
SHARED_REPLY = load_statement("reflection/batches/queries.sql", "shared_reply")
SHARE_REPLIES = load_statement("reflection/batches/queries.sql", "share_replies")
BATCH_RUN_ID = "batch_run_id"
"""Input of a REFLECT run: the run that asks the model about it, too. PLAYBOOK is in the input of
every run that may share a call.
"""
log = structlog.get_logger()


class BatchBusy(RunBusy):
    """Another run asks the model about this one, and delivers it when the answer is there."""

    retry_seconds = (5.0, 10.0)


async def find_shared_reflection(
    runtime: Runtime, input: ReflectionInput, facts: Sequence[Fact], model: ModelSession
) -> SharedReflection | None:
    """The part of a batch's answer that is about this run. Asks the model if other short runs wait.
    None if the run is to be reflected on alone. Raises `BatchBusy` while another run asks about
    this one, and the model's `LLMError` if the model cannot be asked at all.
    """
    run = input.run
    playbook: str | None = run.input.get(PLAYBOOK)
    if playbook is None or _has_own_prompts(model):
        return None
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        parameters = {"tenant": run.tenant_id, "run": run.id}
        if text := await fetch_value(session, SHARED_REPLY, parameters):
            return _parse(text)
        if leader_id := run.input.get(BATCH_RUN_ID):
            leader = await get_run(session, UUID(leader_id))
            if leader is not None and leader.state in ("queued", "running"):
                raise BatchBusy(f"Run {leader_id} reflects on this trace, too.")
            return None
        others = await _take_waiting_runs(
            session, run, playbook, runtime.settings.reflection_batch_size - 1
        )
    if not others:
        return None
    members = [await _member(runtime, input, facts)]
    members += [await _member(runtime, other, None) for other in others]
    inputs = [input, *others]
    prompt = build_batch_prompt(model, members)
    request = model.request(
        prompt.messages.messages,
        cache_prefix=prompt.messages.cache_prefix,
        purpose="reflect",
        prompt_hash=prompt.hash,
    )
    try:
        answer, reply = await request_structured(
            model.llm, BatchReflection, request, omit=prompt.omit
        )
    except (LLMRefused, LLMTruncated, LLMUnparseable) as error:
        log.warning("batch_not_answered", run_count=len(inputs), code=error.code)
        return None
    trusted = runtime.settings.trusted_feedback
    outside = [
        outside_texts_of(each.context, each.evidence, each.trace, trusted=trusted)
        for each in inputs
    ]
    rules = [_with_quoted_runs(rule, outside) for rule in answer.rules]
    await _quote_reports(answer, outside)
    shared = _divide(answer, rules, inputs, prompt, reply)
    await _store(runtime, run, shared, reply)
    log.info("batch_reflected", run_count=len(inputs), answered_count=len(shared))
    return shared.get(run.id)


async def _take_waiting_runs(
    session: AsyncSession, run: RunRow, playbook: str, limit: int
) -> list[ReflectionInput]:
    """Add up to `limit` waiting short runs of the playbook to the batch of `run`, without those
    whose trace was erased.
    """
    parameters = {
        "tenant": run.tenant_id,
        "project": run.project_id,
        "playbook": playbook,
        "leader": str(run.id),
        "max": limit,
    }
    inputs: list[ReflectionInput] = []
    for run_id in sorted(await fetch_column(session, TAKE_WAITING_RUNS, parameters)):
        taken = await get_run(session, run_id)
        assert taken is not None, "just locked"
        try:
            inputs.append(await load_reflection_input(session, taken))
        except NotFound:
            continue
    return inputs


async def _member(
    runtime: Runtime, input: ReflectionInput, facts: Sequence[Fact] | None
) -> BatchMember:
    found = await analyze(input.context, input.trace_evidence) if facts is None else facts
    related = await find_related_lessons(runtime, input)
    return BatchMember(input.context, replace(input, related_lessons=related).evidence, found)


def _has_own_prompts(model: ModelSession) -> bool:
    """Whether the operator wrote the prompts for single runs. The batch has other ones."""
    names = {*PROMPT_BY_OUTCOME.values(), DATA_PROMPT}
    return any(model.prompt(name).hash != load_prompt(name).hash for name in names)


def _with_quoted_runs(rule: BatchRule, outside: Sequence[OutsideTexts]) -> BatchRule:
    """A rule that repeats text of a trace is a rule of the traces with that text: there, it waits
    for confirmation. The text of one trace gets no support by another one.
    """
    sentence = rule.to_sentence()
    quoted = [
        name_of_run(number)
        for number, texts in enumerate(outside)
        if texts.quotations_in([sentence])()[sentence]
    ]
    if not quoted:
        return rule
    return rule.model_copy(update={"runs": [name for name in rule.runs if name in quoted]})


async def _quote_reports(answer: BatchReflection, outside: Sequence[OutsideTexts]) -> None:
    """Put what the reports repeat of any of the runs into quotation marks."""
    items = [*answer.runs, *(verdict for run in answer.runs for verdict in run.verdicts)]
    reports = {text for item in items for text in _reports_of(item).values()}
    texts = [text for each in outside for text in each.texts]
    quoted = await quote_reports(reports, replace(outside[0], texts=texts))
    for item in items:
        for name, text in _reports_of(item).items():
            setattr(item, name, quoted[text])


def _reports_of(item: RunReflection | ModelVerdict) -> dict[str, str]:
    names = ("root_cause", "explanation", "task_hint", "reason")
    return {name: text for name in names if (text := getattr(item, name, None))}


def _divide(
    answer: BatchReflection,
    rules: Sequence[BatchRule],
    inputs: Sequence[ReflectionInput],
    prompt: BatchPrompt,
    reply: LLMReply,
) -> dict[UUID, SharedReflection]:
    """The parts of the answer by run ID."""
    outcomes = {name_of_run(n): input.context.outcome for n, input in enumerate(inputs)}
    reflections = reflections_by_run(answer, outcomes, rules)
    _keep_one_verdict_per_bullet(reflections, inputs, prompt.messages.variable_text)
    shared: dict[UUID, SharedReflection] = {}
    for number, input in enumerate(inputs):
        reflection = reflections.get(name_of_run(number))
        if reflection is None:
            continue
        named = (prompt.lessons.get(name.upper()) for name in reflection.same_as)
        confirmed = [lesson.memory_id for lesson in named if lesson is not None]
        shared[input.run.id] = SharedReflection(
            answer=reflection,
            confirmed_lessons=confirmed,
            model=reply.model,
            prompt_hash=prompt.hash,
        )
    return shared


def _keep_one_verdict_per_bullet(
    reflections: Mapping[str, ModelReflection], inputs: Sequence[ReflectionInput], shown: str
) -> None:
    """Of the verdicts on a bullet, keep the first with the tag that more runs have, helpful or
    harmful; with none of these more often, the first neutral one.
    """
    tags: dict[str, dict[str, VerdictTag]] = {}
    for number, input in enumerate(inputs):
        reflection = reflections.get(name := name_of_run(number))
        if reflection is None:
            continue
        used = input.used_bullets
        keys = [bullet.key for bullet in used]
        reflection.verdicts = validate_verdicts(reflection.verdicts, keys, shown)
        for verdict in limit_model_verdicts(
            reflection.verdicts, used, input.context.outcome, trace_id=input.trace.id
        ):
            tags.setdefault(verdict.key, {})[name] = verdict.tag
    kept = {key: _first_with_common_tag(tags_by_run) for key, tags_by_run in tags.items()}
    for name, reflection in reflections.items():
        reflection.verdicts = [v for v in reflection.verdicts if kept.get(v.key) == name]


def _first_with_common_tag(tags: Mapping[str, VerdictTag]) -> str | None:
    counts = Counter(tags.values())
    common: VerdictTag = "neutral"
    if counts["helpful"] != counts["harmful"]:
        common = "helpful" if counts["helpful"] > counts["harmful"] else "harmful"
    return next((name for name, tag in tags.items() if tag == common), None)


async def _store(
    runtime: Runtime, run: RunRow, shared: dict[UUID, SharedReflection], reply: LLMReply
) -> None:
    """Store each part for its run, and deliver the other runs now."""
    texts = {run_id: redact(part.model_dump_json()).text for run_id, part in shared.items()}
    parameters = {
        "tenant": run.tenant_id,
        "provider": reply.provider,
        "model": reply.model,
        "runs": list(texts),
        "texts": list(texts.values()),
    }
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        stored = await fetch_column(session, SHARE_REPLIES, parameters)
        waiting = [run_id for run_id in stored if run_id != run.id]
        await runtime.queue.enqueue(session, [Ticket(run.tenant_id, each) for each in waiting])


def _parse(text: str) -> SharedReflection | None:
    """None if redaction has damaged the text: then the run asks the model alone."""
    try:
        return SharedReflection.model_validate_json(text)
    except ValidationError:
        return None
