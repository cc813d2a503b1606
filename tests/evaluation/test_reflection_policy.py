"""Whether to reflect, and how important it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from memory_api.evaluation.reflection_policy import (
    MIN_EARLIER_SUCCESSES,
    Routine,
    decide_reflection,
    effective_outcome,
    find_conflict,
)
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationResults,
    EvaluatorResult,
    ReflectionDecision,
)
from memory_api.traces.schemas import OutcomeType
from tests.support.cases import each_case

S, F, P = OutcomeType.SUCCESS, OutcomeType.FAILURE, OutcomeType.PARTIAL
BAD = (OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT, OutcomeType.PARTIAL)
NOTHING = EvaluationResults()


def evaluation(
    verdict: OutcomeType | None = None, *, declared: bool = False, **scores: float
) -> EvaluationResults:
    found = EvaluatorResult(
        tuple(CriterionScore(Criterion(name), value, ()) for name, value in scores.items())
    )
    return EvaluationResults({"deterministic": found}, verdict, declared, declared)


def asked(
    outcome: OutcomeType | None, found: EvaluationResults = NOTHING, **how: Any
) -> ReflectionDecision:
    return decide_reflection(
        found, outcome, **{"asked": "auto", "mode": "full", "earlier_failed": False} | how
    )


@each_case("outcome", BAD)
@each_case("mode", ["lite", "full"])
def test_failures_are_always_reflected_on(outcome: OutcomeType, mode: str) -> None:
    decision = asked(outcome, mode=mode)
    assert decision.reflect
    assert decision.reason == f"The outcome is {outcome.value}."


def test_unknown_outcome_is_called_unknown() -> None:
    undecided = asked(None)
    assert (undecided.reflect, undecided.reason) == (False, "The outcome is unknown.")
    wanted = asked(None, asked="always")
    assert (wanted.reflect, wanted.reason) == (True, "The outcome is unknown.")
    assert asked(None, evaluation(F)).reason == "The outcome is failure."


@each_case(
    ("how", "reflect"),
    [
        ({"mode": "full"}, True),
        ({"mode": "lite"}, False),
        ({"mode": "lite", "earlier_failed": True}, True),
        ({"mode": "lite", "asked": "always"}, True),
        ({"mode": "full", "asked": "never"}, False),
    ],
)
def test_successes_are_reflected_on_by_policy(how: dict[str, Any], reflect: bool) -> None:
    decision = asked(S, **how)
    assert decision.reflect is reflect
    assert (decision.importance is not None) is reflect


@each_case(
    ("outcome", "check", "effective", "importance"),
    [(S, F, F, 0.95), (S, P, F, 0.95), (F, S, S, 0.55)],
)
def test_declared_check_wins_over_the_reported_outcome(
    outcome: OutcomeType, check: OutcomeType, effective: OutcomeType, importance: float
) -> None:
    found = evaluation(check, declared=True)
    reason = f"A declared check contradicts the reported {outcome.value}."
    assert asked(outcome, found, mode="lite") == ReflectionDecision(True, importance, reason)
    assert effective_outcome(found, outcome) is effective
    conflict = find_conflict(found, outcome)
    assert conflict is not None
    assert (conflict.reported, conflict.check) == (outcome, effective)


@each_case("outcome", [S, F])
def test_nothing_else_overrides_the_client(outcome: OutcomeType) -> None:
    other = F if outcome is S else S
    found = EvaluationResults({}, other, proven=True)
    assert find_conflict(found, outcome) is None
    assert effective_outcome(found, outcome) is outcome
    assert not asked(S, evaluation(F), mode="lite").reflect


@each_case(
    ("outcome", "check"),
    [(S, S), (F, F), (F, P), (P, S), (P, F), (OutcomeType.TIMEOUT, S), (OutcomeType.ERROR, S)],
)
def test_outcome_that_a_check_does_not_contradict(outcome: OutcomeType, check: OutcomeType) -> None:
    found = evaluation(check, declared=True)
    assert find_conflict(found, outcome) is None
    assert effective_outcome(found, outcome) is outcome


def test_conflict_shows_what_the_check_found() -> None:
    score = CriterionScore(Criterion.CORRECTNESS, 0.0, ("x" * 500, "b"), True, True)
    found = EvaluationResults({"deterministic": EvaluatorResult((score,))}, F, True, True)
    conflict = find_conflict(found, S)
    assert conflict is not None
    assert len(conflict.reasons[0]) <= 400
    assert conflict.reasons[1] == "b"


@each_case(("verdict", "reflect"), [(None, False), (F, True), (P, True), (S, False)])
def test_missing_outcome_comes_from_evaluation(verdict: OutcomeType | None, reflect: bool) -> None:
    assert asked(None, evaluation(verdict), mode="lite").reflect is reflect


@each_case(
    ("outcome", "found", "how", "importance"),
    [
        (F, NOTHING, {}, 0.7),
        (OutcomeType.ERROR, NOTHING, {}, 0.7),
        (OutcomeType.TIMEOUT, NOTHING, {}, 0.6),
        (P, NOTHING, {}, 0.5),
        (S, NOTHING, {}, 0.3),
        (S, NOTHING, {"earlier_failed": True}, 0.45),
        (F, evaluation(F, declared=True), {}, 0.8),
        (F, evaluation(F, efficiency=0.5), {}, 0.75),
        (F, evaluation(F, safety=0.0), {}, 0.9),
        (F, evaluation(F, declared=True, safety=0.0, efficiency=0.0), {}, 1.0),
    ],
)
def test_importance_is_documented_sum(
    outcome: OutcomeType, found: EvaluationResults, how: dict[str, Any], importance: float
) -> None:
    assert asked(outcome, found, **how).importance == importance


def test_model_scores_do_not_change_importance() -> None:
    opinion = EvaluatorResult((CriterionScore(Criterion.SAFETY, 0.0, ()),), prompt_hash="abc")
    found = EvaluationResults({"deterministic": EvaluatorResult(), "llm": opinion}, F)
    assert asked(F, found).importance == asked(F).importance


UNIT = st.floats(0, 1)


@given(
    st.sampled_from([None, *OutcomeType]),
    st.sampled_from([None, *OutcomeType]),
    st.booleans(),
    st.dictionaries(st.sampled_from([c.value for c in Criterion]), UNIT),
    st.sampled_from(["auto", "always", "never"]),
    st.sampled_from(["lite", "full"]),
    st.booleans(),
)
def test_decision_has_every_field(
    outcome: OutcomeType | None,
    verdict: OutcomeType | None,
    declared: bool,
    scores: dict[str, float],
    ask: str,
    mode: str,
    earlier_failed: bool,
) -> None:
    found = evaluation(verdict, declared=declared and verdict is not None, **scores)
    decision = asked(outcome, found, asked=ask, mode=mode, earlier_failed=earlier_failed)
    assert decision.reason
    if decision.reflect:
        assert decision.importance is not None
        assert 0.3 <= decision.importance <= 1.0
    else:
        assert decision.importance is None
    is_unknown = outcome is None and verdict is None
    assert decision.reflect or ask == "never" or (ask == "auto" and (mode == "lite" or is_unknown))


def routine(earlier: int, share: float, trace_id: UUID | None = None) -> Routine:
    return Routine(trace_id or uuid4(), earlier, share)


@each_case(
    ("how", "reflect"),
    [
        ({}, False),
        ({"routine": routine(MIN_EARLIER_SUCCESSES - 1, 0.0)}, True),
        ({"routine": routine(MIN_EARLIER_SUCCESSES, 1.0)}, True),
        ({"routine": None}, True),
        ({"earlier_failed": True}, True),
        ({"asked": "always"}, True),
    ],
)
def test_routine_success_is_skipped(how: dict[str, Any], reflect: bool) -> None:
    decision = asked(S, **({"routine": routine(MIN_EARLIER_SUCCESSES, 0.0)} | how))
    assert decision.reflect is reflect


@each_case("outcome", BAD)
def test_failure_is_no_routine(outcome: OutcomeType) -> None:
    assert asked(outcome, routine=routine(9, 0.0)).reflect


def test_conflict_is_no_routine() -> None:
    for outcome, check in ((S, F), (F, S)):
        found = evaluation(check, declared=True)
        assert asked(outcome, found, routine=routine(9, 0.0)).reflect


def test_share_of_routine_successes_is_drawn_by_trace_id() -> None:
    ids = [uuid4() for _ in range(2_000)]
    drawn = [asked(S, routine=routine(9, 0.1, trace_id)).reflect for trace_id in ids]
    assert 140 < sum(drawn) < 260
    assert drawn == [asked(S, routine=routine(9, 0.1, trace_id)).reflect for trace_id in ids]
    more = [asked(S, routine=routine(9, 0.3, trace_id)).reflect for trace_id in ids]
    assert all(late for early, late in zip(drawn, more, strict=True) if early)
