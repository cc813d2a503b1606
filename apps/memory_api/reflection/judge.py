"""Verdicts on the bullets a run used, without a model. Pure.

    test     a test or the ground truth names the step that the bullet told of
    rules    the run itself shows the bullet's advice followed, or broken, at the step to blame
    outcome  how the run ended: evidence, and nothing more until other attempts of the task confirm
             it (`contrast`)

No verdict is better than a guess: a bullet that names no step of the run, or that both helped and
harmed, gets none but the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from apps.memory_api.evaluation.actions import expected_actions
from apps.memory_api.evaluation.evidence import parse_test_report
from apps.memory_api.playbook.evaluate import Judge, Verdict
from apps.memory_api.playbook.schemas import Vote
from apps.memory_api.reflection.advice import Advice, advice_of
from apps.memory_api.reflection.evidence import Evidence
from apps.memory_api.reflection.findings.compose import unrepaired
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.reflection.used import UsedBullet, text_of
from apps.memory_api.reflection.verdict_words import say
from apps.memory_api.traces.schemas import OutcomeType
from apps.memory_api.traces.steps import Run, read

FAILED = frozenset({OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT})
OWNED = frozenset({"named", "cited"})
"""Ways of use that the run itself states; what only stood in the prompt may have been ignored."""
BROKEN = "broken"
"""In a verdict's evidence: the advice was not followed, so the run says nothing against it."""


class Said(Protocol):
    """A model's verdict on one bullet."""

    @property
    def key(self) -> str: ...
    @property
    def tag(self) -> Vote: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class Steps:
    """Tools by what is known of the step that called them, or should have.

    `right`: called, and that was right; `wrong`: called, and that was wrong; `missing`: not called,
    and that was wrong. A tool is in one of them only.
    """

    right: frozenset[str] = field(default_factory=frozenset[str])
    wrong: frozenset[str] = field(default_factory=frozenset[str])
    missing: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def names(self) -> frozenset[str]:
        return self.right | self.wrong | self.missing


def judge(
    used: Sequence[UsedBullet],
    context: ReflectionContext,
    evidence: Evidence,
    found: Findings,
    *,
    trace_id: UUID,
    run_id: UUID | None = None,
) -> list[Verdict]:
    """All verdicts on all used bullets, at most one of each judge; `found` are the rules' findings
    on this very context and evidence.
    """
    if not used:
        return []
    run = read(context.events, context.task_description, context.task_goal)
    tested = _tested(run, context.outcome, evidence, found)
    shown = _shown(run, context.outcome, found)
    verdicts: list[Verdict] = []
    for bullet in used:
        told: list[tuple[Judge, Steps]] = [("test", tested)]
        if bullet.how in OWNED:
            told.append(("rules", shown))
        for who, steps in told:
            verdict = _verdict(bullet, who, steps, found.language, trace_id, run_id)
            if verdict is not None:
                verdicts.append(verdict)
        verdicts.append(outcome_verdict(bullet, context.outcome, trace_id, run_id))
    return verdicts


def outcome_verdict(
    used: UsedBullet, outcome: OutcomeType, trace_id: UUID, run_id: UUID | None = None
) -> Verdict:
    """How the run ended, as evidence on a bullet."""
    tag: Vote = "neutral"
    if outcome is OutcomeType.SUCCESS:
        tag = "helpful"
    elif outcome in FAILED:
        tag = "harmful"
    return Verdict(
        used.key,
        tag,
        "outcome",
        trace_id=trace_id,
        render_id=used.render_id,
        evidence={"outcome": outcome.value, "how": used.how},
        actor="judge:outcome",
        run_id=run_id,
    )


def of_model(
    said: Iterable[Said],
    used: Sequence[UsedBullet],
    outcome: OutcomeType,
    *,
    trace_id: UUID,
    run_id: UUID | None = None,
) -> list[Verdict]:
    """A model's verdicts, held within what the run can show, however the model was talked into
    them: on used bullets only and one each; helpful not in a run that failed; harmful not in one
    that succeeded, nor on a bullet that only stood in the prompt. What goes further is neutral.
    """
    known = {bullet.key: bullet for bullet in used}
    first: dict[str, Said] = {}
    for verdict in said:
        if verdict.key in known:
            first.setdefault(verdict.key, verdict)
    verdicts: list[Verdict] = []
    for key, verdict in first.items():
        bullet = known[key]
        tag = verdict.tag
        if tag == "helpful" and outcome in FAILED:
            tag = "neutral"
        if tag == "harmful" and (outcome is OutcomeType.SUCCESS or bullet.how not in OWNED):
            tag = "neutral"
        about = {"how": bullet.how} | ({"said": verdict.tag} if tag != verdict.tag else {})
        verdicts.append(
            Verdict(
                key,
                tag,
                "llm",
                reason=verdict.reason or None,
                trace_id=trace_id,
                render_id=bullet.render_id,
                evidence=about,
                actor="judge:llm",
                run_id=run_id,
            )
        )
    return verdicts


def _tested(run: Run, outcome: OutcomeType, evidence: Evidence, found: Findings) -> Steps:
    """What the ground truth's list of actions and the messages of failing tests say of steps."""
    called = {step.tool for step in run.steps if step.tool}
    right: set[str] = set()
    wrong = {d.tool for d in found.departures if d.kind == "extra"}
    missing = {d.tool for d in found.departures if d.kind == "missing"}
    expected = expected_actions(evidence.ground_truth)
    if expected:
        right = {name for name, _ in expected if name in called}
        right -= {d.tool for d in found.departures}
    if outcome in FAILED and evidence.test_report:
        messages = " ".join(t.message for t in parse_test_report(evidence.test_report).failing)
        wrong |= {tool for tool in called if _marked(tool) and tool in messages}
    return _apart(right, wrong, missing - called)


def _marked(tool: str) -> bool:
    return len(tool) > 5 and ("_" in tool or "." in tool)


def _shown(run: Run, outcome: OutcomeType, found: Findings) -> Steps:
    """What the run alone shows, beside earlier attempts of its task."""
    right: set[str] = set()
    wrong: set[str] = set()
    missing: set[str] = set()
    worked = {step.tool for step in run.steps if not step.failure and step.verdict is None}
    if outcome is OutcomeType.SUCCESS:
        for retry in found.retries:
            right |= {tool for tool in (retry.via, retry.tool) if tool}
    elif outcome in FAILED:
        last = unrepaired(found)
        wrong |= {streak.tool for streak in found.streaks} - worked
        wrong |= {last.tool} - worked if last else set()
    if found.contrast:
        c = found.contrast
        if c.we_succeeded:
            right |= set(c.tools_ours)
        else:
            missing |= set(c.tools_theirs)
            wrong |= {c.held_back} if c.held_back else set()
    return _apart(right, wrong, missing)


def _apart(right: set[str], wrong: set[str], missing: set[str]) -> Steps:
    torn = (right & wrong) | (right & missing) | (wrong & missing) | {""}
    return Steps(*(frozenset(names - torn) for names in (right, wrong, missing)))


def _verdict(
    used: UsedBullet, who: Judge, steps: Steps, language: str, trace_id: UUID, run_id: UUID | None
) -> Verdict | None:
    if not steps.names:
        return None
    advice = advice_of(text_of(used.bullet), steps.names)
    told = _weigh(advice, steps)
    if told is None:
        return None
    tag, why, tool = told
    return Verdict(
        used.key,
        tag,
        who,
        reason=say(why, tool, who, language),
        trace_id=trace_id,
        render_id=used.render_id,
        evidence={"how": used.how, "step": tool, "why": why},
        actor=f"judge:{who}",
        run_id=run_id,
    )


def _weigh(advice: Advice, steps: Steps) -> tuple[Vote, str, str] | None:
    """Tag, why and the tool; None when the steps say nothing of this advice, or two things."""
    cases: tuple[tuple[Vote, str, frozenset[str]], ...] = (
        ("helpful", "followed_right", advice.calls & steps.right),
        ("harmful", "followed_wrong", advice.calls & steps.wrong),
        ("harmful", "kept_from", advice.avoids & steps.missing),
        ("neutral", BROKEN, (advice.calls & steps.missing) | (advice.avoids & steps.wrong)),
    )
    met = [case for case in cases if case[2]]
    if len({tag for tag, _, _ in met}) != 1:
        return None
    tag, why, tools = met[0]
    return tag, why, min(tools)
