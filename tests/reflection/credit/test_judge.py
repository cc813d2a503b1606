"""Verdicts without a model, and how far a model is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from hypothesis import given
from hypothesis import strategies as st

from memory_api.core.ids import new_id
from memory_api.playbooks.models import Bullet, VerdictTag
from memory_api.playbooks.verdicts.record import NewVerdict
from memory_api.reflection.bullet_usage import UsageKind, UsedBullet
from memory_api.reflection.context import Evidence
from memory_api.reflection.credit.bullet_advice import parse_bullet_advice
from memory_api.reflection.credit.judge import (
    FAILURE_OUTCOMES,
    judge_by_rules,
    limit_model_verdicts,
)
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.traces.schemas import Event, EventType, OutcomeType
from memory_api.traces.tools import ToolDefinition
from tests.support.cases import each_case
from tests.support.junit import junit

TRACE = new_id()
NAMES = ("get_order", "cancel_order", "send_refund", "Search", "Booking_hotel")
WON, LOST = OutcomeType.SUCCESS, OutcomeType.FAILURE
TAGS: tuple[VerdictTag, ...] = get_args(VerdictTag.__value__)


@each_case(
    ("text", "calls", "avoids"),
    [
        ("Always call get_order before cancel_order.", "get_order", ""),
        ("Do not call cancel_order before get_order.", "", "cancel_order"),
        ("When preparing cancel_order, call get_order first.", "get_order", ""),
        ("When a request leads towards cancel_order, check the rules.", "", ""),
        ("Use get_order instead of cancel_order.", "get_order", "cancel_order"),
        ("Never use cancel_order or send_refund here.", "", "cancel_order send_refund"),
        ("Search for the name first.", "", ""),
        ("Use `Search` with the plain name.", "Search", ""),
        ("get_order is slow.", "", ""),
        ("Call get_order. Never call get_order.", "", ""),
        ("Call get_orders.", "", ""),
        ("Booking_hotel を呼ぶ前に get_order を呼ぶ。", "get_order", ""),
        ("cancel_order を使わないこと。", "", "cancel_order"),
        ("Booking_hotel に進むときは、確認する。", "", ""),
    ],
)
def test_tools_recommended_by_bullet(text: str, calls: str, avoids: str) -> None:
    advice = parse_bullet_advice(text, NAMES)
    assert (advice.calls, advice.avoids) == (set(calls.split()), set(avoids.split()))


@given(st.text(max_size=200), st.lists(st.text(max_size=12), max_size=5))
def test_any_bullet_text_is_analyzed(text: str, names: list[str]) -> None:
    advice = parse_bullet_advice(text, names)
    assert not advice.calls & advice.avoids
    assert advice.calls | advice.avoids <= set(names)


def used(text: str, how: UsageKind = "cited", key: str = "pat-00001") -> UsedBullet:
    return UsedBullet(key, Bullet(id=key, section="", content=text), how, None, new_id())


def verdicts(
    outcome: OutcomeType,
    calls: str,
    *bullets: UsedBullet,
    failing: str = "",
    attempts: tuple[Attempt, ...] = (),
    **evidence: Any,
) -> dict[str, NewVerdict]:
    """Verdicts by judge (and key, of several bullets) on a run of these calls, each `tool` or
    `tool:argument`.
    """
    context = ReflectionContext(
        events=events(calls, failing),
        outcome=outcome,
        tenant_id="t",
        task_description="A refund",
        tools=[ToolDefinition(name=name, writes=not name.startswith("get")) for name in NAMES],
    )
    known = Evidence(attempts, **evidence)
    found = analyze_trace(context, attempts=attempts, **evidence)
    told = judge_by_rules(bullets, context, known, found, trace_id=TRACE)
    one = len(bullets) == 1
    return {v.judge if one else f"{v.key} {v.judge}": v for v in told}


def events(calls: str, failing: str = "") -> list[Event]:
    made = [Event(event_type=EventType.USER_MESSAGE, content="Please refund order 7")]
    for call in calls.split():
        tool, _, argument = call.partition(":")
        content = f'{{"id": "{argument or 7}"}}'
        made.append(Event(event_type=EventType.TOOL_CALL, tool_name=tool, content=content))
        error = {"message": "it is not possible"} if tool in failing.split() else None
        made.append(Event(event_type=EventType.TOOL_RESPONSE, tool_name=tool, error=error))
    return made


def truth(*actions: str) -> dict[str, Any]:
    return {"actions": [{"name": name, "kwargs": {"id": "7"}} for name in actions]}


@each_case(
    ("text", "outcome", "calls", "expected", "tag"),
    [
        ("Call send_refund.", WON, "get_order send_refund", ["send_refund"], "helpful"),
        ("Call cancel_order.", LOST, "cancel_order", ["send_refund"], "harmful"),
        ("Never call send_refund.", LOST, "get_order", ["send_refund"], "harmful"),
        ("Call send_refund.", LOST, "get_order", ["send_refund"], "neutral"),
        ("Never call cancel_order.", LOST, "cancel_order", [], "neutral"),
        ("Be polite.", LOST, "cancel_order", ["send_refund"], None),
        ("Call get_order.", LOST, "get_order cancel_order", ["send_refund"], None),
        ("Call cancel_order. Call send_refund.", LOST, "cancel_order", ["send_refund"], None),
    ],
)
def test_ground_truth_identifies_call(
    text: str, outcome: OutcomeType, calls: str, expected: list[str], tag: str | None
) -> None:
    told = verdicts(outcome, calls, used(text, "served"), ground_truth=truth(*expected))
    assert (told["test"].tag if "test" in told else None) == tag
    assert "rules" not in told


def test_wrong_arguments_do_not_blame_tool_advice() -> None:
    told = verdicts(
        LOST, "send_refund:9", used("Call send_refund."), ground_truth=truth("send_refund")
    )
    assert "test" not in told


def test_a_failing_test_that_names_a_tool_is_no_verdict() -> None:
    report = junit(2, test_total="AssertionError: parse_date gave no zone")
    told = verdicts(LOST, "parse_date", used("Use parse_date."), test_report=report)
    assert set(told) == {"outcome"}


def test_one_contrasting_attempt_is_no_verdict() -> None:
    """One success and one failure are not certain, nor is a call that failed once."""
    better = Attempt(WON, events("get_order send_refund"), "e", True)
    told = verdicts(LOST, "send_refund", used("Never call get_order."), attempts=(better,))
    assert set(told) == {"outcome"}
    earlier = Attempt(LOST, events("send_refund"), "e", True)
    told = verdicts(WON, "get_order send_refund", used("Call get_order."), attempts=(earlier,))
    assert set(told) == {"outcome"}
    told = verdicts(LOST, "cancel_order", used("Call cancel_order."), failing="cancel_order")
    assert set(told) == {"outcome"}


@each_case(
    ("text", "outcome", "calls", "expected"),
    [
        ("Call get_order.", WON, "get_order send_refund", ("helpful", "followed_right")),
        ("Never call get_order.", LOST, "send_refund", ("harmful", "kept_from")),
        ("Call get_order.", LOST, "send_refund", ("neutral", "broken")),
    ],
)
def test_certain_contrast_is_a_verdict(
    text: str, outcome: OutcomeType, calls: str, expected: tuple[str, str]
) -> None:
    attempts = (
        *(Attempt(WON, events("get_order send_refund"), "e", True) for _ in range(4)),
        *(Attempt(LOST, events("send_refund"), "e", True) for _ in range(4)),
    )
    told = verdicts(outcome, calls, used(text), attempts=attempts)
    assert (told["rules"].tag, told["rules"].evidence["why"]) == expected
    assert set(verdicts(outcome, calls, used(text, "served"), attempts=attempts)) == {"outcome"}


@each_case("outcome", list(OutcomeType))
def test_outcome_is_always_recorded(outcome: OutcomeType) -> None:
    told = verdicts(outcome, "get_order", used("Be kind.", "served"), used("Hm.", key="pat-00002"))
    assert set(told) == {"pat-00001 outcome", "pat-00002 outcome"}
    expected = (
        "helpful" if outcome is WON else "harmful" if outcome in FAILURE_OUTCOMES else "neutral"
    )
    verdict = told["pat-00001 outcome"]
    assert verdict.tag == expected
    assert verdict.evidence == {"outcome": outcome.value, "how": "served"}
    assert verdict.reason is None, "a sentence for each would drown those that say something"


def test_reasons_are_in_the_language_of_the_run() -> None:
    asked = Event(event_type=EventType.USER_MESSAGE, content="注文をキャンセルしてください。")
    context = ReflectionContext(
        events=[asked, *events("cancel_order")[1:]], outcome=LOST, tenant_id="t"
    )
    known = Evidence(ground_truth=truth("send_refund"))
    facts = analyze_trace(context, ground_truth=known.ground_truth)
    bullets = [used("send_refund を呼ばないこと。")]
    told = judge_by_rules(bullets, context, known, facts, trace_id=TRACE)
    (reason,) = [verdict.reason for verdict in told if verdict.judge == "test"]
    assert reason
    assert "助言" in reason


@dataclass(frozen=True)
class Said:
    key: str
    tag: VerdictTag
    reason: str = "because"


@given(
    st.lists(st.builds(Said, st.sampled_from(["a-1", "b-2", "zz"]), st.sampled_from(TAGS))),
    st.sampled_from(list(OutcomeType)),
    st.sampled_from(["named", "cited", "served"]),
)
def test_model_verdicts_are_limited_by_evidence(
    said: list[Said], outcome: OutcomeType, how: Literal["named", "cited", "served"]
) -> None:
    bullets = [used("x", how, "a-1"), used("y", how, "b-2")]
    told = limit_model_verdicts(said, bullets, outcome, trace_id=TRACE)
    assert len({verdict.key for verdict in told}) == len(told)
    for verdict in told:
        assert verdict.judge == "llm"
        assert verdict.key in {"a-1", "b-2"}
        first = next(one for one in said if one.key == verdict.key)
        assert verdict.tag in (first.tag, "neutral")
        if verdict.tag == "helpful":
            assert outcome not in FAILURE_OUTCOMES
        if verdict.tag == "harmful":
            assert outcome is not WON
            assert how != "served"
        if verdict.tag != first.tag:
            assert verdict.evidence["said"] == first.tag
