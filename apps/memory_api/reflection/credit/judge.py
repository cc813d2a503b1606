"""Verdicts on the bullets that a run used, without a model, and limits on those of a model.

    test     the ground truth names a tool that the bullet recommends or advises against
    rules    all successful attempts at the task called a tool that the bullet names and no failed
             one did, or the reverse, with the certainty that the outcome verdicts need
             (`outcome_contrast`)
    outcome  the outcome of the run. Evidence only, until other attempts at the task
             confirm it (`outcome_contrast`)

A bullet that names no such tool, or whose advice was right for one tool and wrong for another, gets
the outcome verdict only.
"""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from memory_api.playbooks.citations import extract_cited_ids, resolve_citations
from memory_api.playbooks.models import VerdictTag
from memory_api.playbooks.state import parse_key
from memory_api.playbooks.verdicts.record import Judge, NewVerdict
from memory_api.reflection.bullet_usage import UsedBullet, bullet_text
from memory_api.reflection.context import Evidence
from memory_api.reflection.credit.bullet_advice import BulletAdvice, parse_bullet_advice
from memory_api.reflection.credit.outcome_contrast import AttemptCounts, outcome_tag
from memory_api.reflection.rules import context_language
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.trace_analysis.ground_truth import expected_actions
from memory_api.trace_analysis.parser import ParsedTrace, parse_trace
from memory_api.traces.schemas import OutcomeType

_REASONS = {
    "en": {
        "test": {
            "followed_right": "The bullet recommends `{tool}`. The run called it, and the ground truth expects this call.",
            "followed_wrong": "The bullet recommends `{tool}`. The run called it, but the ground truth does not expect this call.",
            "kept_from": "The bullet advises against `{tool}`. The run followed it, and the ground truth shows the call was needed.",
            "broken": "The run did not follow the advice on `{tool}`. The ground truth supports the advice.",
        },
        "rules": {
            "followed_right": "The bullet recommends `{tool}`. The run called it and succeeded; attempts at this task with this call succeed more often.",
            "followed_wrong": "The bullet recommends `{tool}`. The run called it and failed; attempts at this task with this call fail more often.",
            "kept_from": "The bullet advises against `{tool}`. The run followed it and failed; attempts at this task with this call succeed more often.",
            "broken": "The run did not follow the advice on `{tool}`. The outcomes of the attempts at this task support the advice.",
        },
    },
    "ja": {
        "test": {
            "followed_right": "このバレットは `{tool}` を推奨している。実行はこの助言に従って呼び出し、正解データもこの呼び出しを期待している。",
            "followed_wrong": "このバレットは `{tool}` を推奨している。実行はこの助言に従って呼び出したが、正解データにない呼び出しだった。",
            "kept_from": "このバレットは `{tool}` を避けるよう助言している。実行はこの助言に従ったが、正解データではこの呼び出しが必要だった。",
            "broken": "実行は `{tool}` についての助言に従わなかった。正解データは助言と一致する。",
        },
        "rules": {
            "followed_right": "このバレットは `{tool}` を推奨している。実行はこの助言に従って成功した。このタスクの試行は、この呼び出しがある場合のほうが多く成功している。",
            "followed_wrong": "このバレットは `{tool}` を推奨している。実行はこの助言に従って失敗した。このタスクの試行は、この呼び出しがある場合のほうが多く失敗している。",
            "kept_from": "このバレットは `{tool}` を避けるよう助言している。実行はこの助言に従って失敗した。このタスクの試行は、この呼び出しがある場合のほうが多く成功している。",
            "broken": "実行は `{tool}` についての助言に従わなかった。このタスクの試行の結果は助言と一致する。",
        },
    },
}  # fmt: skip


def verdict_reason(why: str, tool: str, judge: str, language: str) -> str:
    """The reason in one or two sentences; English if the language is not supported. `judge` is
    `test` or `rules`."""
    return _REASONS.get(language, _REASONS["en"])[judge][why].format(tool=tool)


FAILURE_OUTCOMES = frozenset({OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT})
ACKNOWLEDGED_USES = frozenset({"named", "cited"})
"""Uses that the trace states. A bullet that was only in the prompt may have been ignored."""


class TaggedBullet(Protocol):
    """A model's verdict on one bullet."""

    @property
    def key(self) -> str: ...
    @property
    def tag(self) -> VerdictTag: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class ToolVerdicts:
    """Tools by what the evidence says of their calls.

    `right`: called and expected. `wrong`: called and not expected, or failed. `missing`: expected
    and not called. A tool is in one set only.
    """

    right: frozenset[str] = field(default_factory=frozenset[str])
    wrong: frozenset[str] = field(default_factory=frozenset[str])
    missing: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def names(self) -> frozenset[str]:
        return self.right | self.wrong | self.missing

    def limit_calls(self, called: frozenset[str] | None) -> ToolVerdicts:
        """Without calls of other tools than these. None stands for all tools."""
        if called is None:
            return self
        return ToolVerdicts(self.right & called, self.wrong & called, self.missing)


def judge_by_rules(
    used: Sequence[UsedBullet],
    context: ReflectionContext,
    evidence: Evidence,
    facts: Sequence[Fact],
    *,
    trace_id: UUID,
    run_id: UUID | None = None,
) -> list[NewVerdict]:
    """The verdicts on all used bullets, at most one per judge. `facts` are those of the same
    context and evidence.
    """
    if not used:
        return []
    run = parse_trace(context.events, context.task_description, context.task_goal, context.tools)
    language = context_language(context)
    by_tests = _tools_by_tests(run, evidence, facts)
    by_attempts = _tools_by_attempts(run, context.outcome, facts)
    verdicts: list[NewVerdict] = []
    for bullet in used:
        sources: list[tuple[Judge, ToolVerdicts]] = [("test", by_tests)]
        if bullet.usage in ACKNOWLEDGED_USES:
            sources.append(("rules", by_attempts))
        for judge, tools in sources:
            if bullet.usage == "cited":
                tools = tools.limit_calls(_tools_after_citation(run, bullet.key))
            verdict = _verdict_on(bullet, judge, tools, language, trace_id, run_id)
            if verdict is not None:
                verdicts.append(verdict)
        verdicts.append(outcome_verdict(bullet, context.outcome, trace_id, run_id))
    return verdicts


def outcome_verdict(
    used: UsedBullet, outcome: OutcomeType, trace_id: UUID, run_id: UUID | None = None
) -> NewVerdict:
    """The outcome of the run, as evidence on a bullet."""
    tag: VerdictTag = "neutral"
    if outcome is OutcomeType.SUCCESS:
        tag = "helpful"
    elif outcome in FAILURE_OUTCOMES:
        tag = "harmful"
    return NewVerdict(
        used.key,
        tag,
        "outcome",
        trace_id=trace_id,
        retrieval_id=used.retrieval_id,
        evidence={"outcome": outcome.value, "how": used.usage},
        actor="judge:outcome",
        run_id=run_id,
    )


def limit_model_verdicts(
    model_verdicts: Iterable[TaggedBullet],
    used: Sequence[UsedBullet],
    outcome: OutcomeType,
    *,
    trace_id: UUID,
    run_id: UUID | None = None,
) -> list[NewVerdict]:
    """A model's verdicts, limited to what the run can show: on used bullets only, one each, not
    helpful in a failed run, not harmful in a successful run or on a bullet that was only in the
    prompt. A verdict beyond these limits becomes neutral.
    """
    bullets = {bullet.key: bullet for bullet in used}
    first: dict[str, TaggedBullet] = {}
    for verdict in model_verdicts:
        if verdict.key in bullets:
            first.setdefault(verdict.key, verdict)
    verdicts: list[NewVerdict] = []
    for key, verdict in first.items():
        bullet = bullets[key]
        tag = verdict.tag
        if tag == "helpful" and outcome in FAILURE_OUTCOMES:
            tag = "neutral"
        if tag == "harmful" and (
            outcome is OutcomeType.SUCCESS or bullet.usage not in ACKNOWLEDGED_USES
        ):
            tag = "neutral"
        details = {"how": bullet.usage} | ({"said": verdict.tag} if tag != verdict.tag else {})
        verdicts.append(
            NewVerdict(
                key,
                tag,
                "llm",
                reason=verdict.reason or None,
                trace_id=trace_id,
                retrieval_id=bullet.retrieval_id,
                evidence=details,
                actor="judge:llm",
                run_id=run_id,
            )
        )
    return verdicts


def _tools_by_tests(run: ParsedTrace, evidence: Evidence, facts: Sequence[Fact]) -> ToolVerdicts:
    """Tools by the expected actions of the ground truth."""
    called = {call.tool for call in run.calls if call.tool}
    deviations: dict[str, set[str]] = {}
    for fact in facts_of(facts, FactKind.EXPECTATION):
        if fact.values["what"] == "call":
            deviations.setdefault(fact.values["deviation"], set()).add(fact.values["tool"])
    right: set[str] = set()
    wrong, missing = deviations.get("extra", set()), deviations.get("missing", set())
    expected = expected_actions(evidence.ground_truth)
    if expected:
        right = {action.tool for action in expected if action.tool in called}
        right -= set[str]().union(*deviations.values())
    return _disjoint(right, wrong, missing - called)


def _tools_after_citation(run: ParsedTrace, key: str) -> frozenset[str] | None:
    """The tools called after the agent first cited the bullet: a later citation did not cause a
    call. None if no message of the trace cites it, because the citation is in the answer or in the
    reasoning steps.
    """
    parsed = parse_key(key)
    slugs = [parsed[0]] if parsed else []
    for position in run.reply_positions:
        message = {"role": "assistant", "content": run.content_at(position)}
        if resolve_citations(extract_cited_ids([message], slugs), [key]):
            return frozenset(call.tool for call in run.calls if call.position > position)
    return None


def _tools_by_attempts(
    run: ParsedTrace, outcome: OutcomeType, facts: Sequence[Fact]
) -> ToolVerdicts:
    """Tools that all successful attempts at the task called and no failed one did, or the reverse,
    if there are enough attempts for certainty.
    """
    right: set[str] = set()
    wrong: set[str] = set()
    missing: set[str] = set()
    called = {call.tool for call in run.calls}
    for fact in facts_of(facts, FactKind.DIFFERENCE):
        values = fact.values
        if values["aspect"] != "tool":
            continue
        tool, succeeded, failed = values["tool"], values["successful"], values["failed"]
        if values["side"] == "successful":
            tag = outcome_tag(AttemptCounts(succeeded, succeeded, failed, 0))
        else:
            tag = outcome_tag(AttemptCounts(failed, 0, succeeded, succeeded))
        if tag == "helpful" and outcome is OutcomeType.SUCCESS and tool in called:
            right.add(tool)
        elif tag == "helpful" and outcome in FAILURE_OUTCOMES and tool not in called:
            missing.add(tool)
        elif tag == "harmful" and outcome in FAILURE_OUTCOMES and tool in called:
            wrong.add(tool)
    return _disjoint(right, wrong, missing)


def _disjoint(right: set[str], wrong: set[str], missing: set[str]) -> ToolVerdicts:
    conflicting = (right & wrong) | (right & missing) | (wrong & missing) | {""}
    return ToolVerdicts(*(frozenset(names - conflicting) for names in (right, wrong, missing)))


def _verdict_on(
    used: UsedBullet,
    judge: Judge,
    tools: ToolVerdicts,
    language: str,
    trace_id: UUID,
    run_id: UUID | None,
) -> NewVerdict | None:
    if not tools.names:
        return None
    advice = parse_bullet_advice(bullet_text(used.bullet), tools.names)
    weighed = _weigh(advice, tools)
    if weighed is None:
        return None
    tag, why, tool = weighed
    return NewVerdict(
        used.key,
        tag,
        judge,
        reason=verdict_reason(why, tool, judge, language),
        trace_id=trace_id,
        retrieval_id=used.retrieval_id,
        evidence={"how": used.usage, "step": tool, "why": why},
        actor=f"judge:{judge}",
        run_id=run_id,
    )


def _weigh(advice: BulletAdvice, tools: ToolVerdicts) -> tuple[VerdictTag, str, str] | None:
    """Tag, reason key and tool; None if no tool matches or if the tools disagree."""
    cases: tuple[tuple[VerdictTag, str, frozenset[str]], ...] = (
        ("helpful", "followed_right", advice.calls & tools.right),
        ("harmful", "followed_wrong", advice.calls & tools.wrong),
        ("harmful", "kept_from", advice.avoids & tools.missing),
        ("neutral", "broken", (advice.calls & tools.missing) | (advice.avoids & tools.wrong)),
    )
    matching = [case for case in cases if case[2]]
    if len({tag for tag, _, _ in matching}) != 1:
        return None
    tag, why, names = matching[0]
    return tag, why, min(names)
