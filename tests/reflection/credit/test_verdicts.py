"""The verdict of an outcome, and how far a model is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hypothesis import given
from hypothesis import strategies as st

from memory_api.core.ids import new_id
from memory_api.playbooks.models import Bullet, VerdictTag
from memory_api.reflection.bullet_usage import UsageKind, UsedBullet
from memory_api.reflection.credit.verdicts import (
    FAILURE_OUTCOMES,
    limit_model_verdicts,
    outcome_verdicts,
)
from memory_api.traces.schemas import OutcomeType
from tests.support.cases import each_case

TRACE = new_id()
WON = OutcomeType.SUCCESS
TAGS: tuple[VerdictTag, ...] = get_args(VerdictTag.__value__)


def used(text: str, how: UsageKind = "cited", key: str = "pat-00001") -> UsedBullet:
    return UsedBullet(key, Bullet(id=key, section="", content=text), how, None, new_id())


@each_case("outcome", list(OutcomeType))
def test_outcome_is_always_recorded(outcome: OutcomeType) -> None:
    bullets = [used("Be kind.", "served"), used("Call get_order.", key="pat-00002")]
    verdict, other = outcome_verdicts(bullets, outcome, trace_id=TRACE)
    expected = (
        "helpful" if outcome is WON else "harmful" if outcome in FAILURE_OUTCOMES else "neutral"
    )
    assert verdict.tag == other.tag == expected
    assert verdict.judge == other.judge == "outcome"
    assert (verdict.key, other.key) == ("pat-00001", "pat-00002")
    assert verdict.evidence == {"outcome": outcome.value, "how": "served"}
    assert verdict.reason is None, "a sentence for each would drown those that say something"


def test_unknown_outcome_is_no_verdict() -> None:
    assert outcome_verdicts([used("Be kind.")], None, trace_id=TRACE) == []


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
