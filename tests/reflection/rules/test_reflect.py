"""What the rules engine writes: particular, honest, in the language of the trace, or nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.reflection.rules.reflect import reflect
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.trace_analysis.scores import (
    EVIDENCE_WEIGHTS,
    EvidenceCounts,
    calculate_confidence,
    calculate_importance,
)
from memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, EventType, OutcomeType
from tests.support.cases import each_case

QUESTION = "Kam Heskin plays Paige Morgan in a 2004 film directed by who?"


def context(rows: list[dict[str, Any]], outcome: str = "failure", **more: Any) -> ReflectionContext:
    return ReflectionContext(
        events=[Event.model_validate(r) for r in rows],
        outcome=OutcomeType(outcome),
        tenant_id="t",
        **more,
    )


def call(tool: str, content: str, response: str) -> list[dict[str, Any]]:
    return [
        {"event_type": "tool_call", "tool_name": tool, "content": content},
        {"event_type": "tool_response", "tool_name": tool, "content": response},
    ]


def said_by(text: str, agent: str | None = None) -> dict[str, Any]:
    return {"event_type": "llm_response", "content": text, "agent": agent}


def said(result: ReflectionResult | None) -> ReflectionResult:
    assert result is not None
    return result


def test_example_of_the_specification():
    rows: list[dict[str, Any]] = [
        {
            "event_id": "e1",
            "event_type": "tool_call",
            "content": "Called database query with complex JOIN",
            "metadata": {"tool": "postgres_query"},
        },
        {
            "event_id": "e2",
            "event_type": "error_event",
            "content": "Query timeout after 30 seconds",
            "error": {"message": "Timeout", "code": "QUERY_TIMEOUT"},
        },
    ]
    error = ErrorInfo(
        error_category=ErrorCategory.TIMEOUT_ERROR, error_message="Query execution exceeded limit"
    )
    session = uuid4()
    result = said(
        reflect(
            context(
                rows,
                "timeout",
                error=error,
                task_description="Fetch customer order history",
                session_id=session,
            )
        )
    )
    assert "Query timeout after 30 seconds" in result.reflection_text
    assert "complex JOIN" in result.reflection_text
    assert result.strategy_text is not None
    assert "timeout" in result.tags
    assert result.error_category is ErrorCategory.TIMEOUT_ERROR
    assert result.source_event_ids[0] == "e1"
    assert result.metadata["session_id"] == str(session)
    assert result.metadata["event_count"] == 2
    assert result.metadata["task_description"] == "Fetch customer order history"


def test_message_of_the_last_error_and_of_the_last_failed_call_is_quoted_once():
    rows = [
        {"event_type": "tool_call", "tool_name": "query", "content": '{"sql": "select"}'},
        {"event_type": "error_event", "content": "Query timeout after 30 s"},
    ]
    text = said(reflect(context(rows, "error"))).reflection_text
    assert text.count("Query timeout after 30 s") == text.count("query(sql=select)") == 1
    again = said(reflect(context([*rows, said_by("I give up.")], "error"))).reflection_text
    assert again.count("Query timeout after 30 s") == 1
    assert "`query(sql=select)` (e0000) failed: “Query timeout after 30 s”. No later" in again
    assert "last error event" not in again


def test_error_event_without_call_is_reported():
    rows = [{"event_type": "error_event", "content": "Timeout", "event_id": "x"}]
    result = said(reflect(context(rows)))
    assert "The trace contains no tool call before this event." in result.reflection_text
    assert result.source_event_ids == ["x"]


def test_repaired_search_names_dropped_words():
    rows = [
        {"event_type": "user_message", "content": QUESTION},
        *call("Search", "Search[The Prince & Me (2004 film)]", "Could not find [x]."),
        *call("Search", "Search[The Prince & Me]", "A film directed by Martha Coolidge."),
        *call("Finish", "Finish[Martha Coolidge]", "Answer is CORRECT"),
    ]
    result = said(reflect(context(rows, "success")))
    assert "“(2004 film)” was removed" in result.reflection_text
    assert result.strategy_text is not None
    assert "drop the addition" in result.strategy_text
    assert result.error_category is None
    assert "recovered" in result.tags


def test_changed_quotation_marks_are_described():
    rows = [
        *call("submit", "submit flag{a b}", "Wrong flag!"),
        *call("submit", "submit 'flag{a b}'", "flag{a b}"),
    ]
    result = said(reflect(context(rows, "success")))
    assert "quotation marks around the argument were added" in result.reflection_text
    assert "~" not in result.reflection_text
    assert result.strategy_text is not None
    assert "quotation marks" in result.strategy_text


def test_repeated_success_gives_no_strategy():
    rows = [
        *call("Search", "Search[Marktown]", "A community of 1917."),
        *call("Finish", "Finish[1917]", "Answer is CORRECT"),
    ]
    before = Attempt(OutcomeType.SUCCESS, context(rows).events)
    assert reflect(context(rows, "success")) is not None
    assert reflect(context(rows, "success"), attempts=[before]) is None


def test_repeated_failure_is_reported_with_other_strategy():
    rows = call("Search", "Search[VIVA Media AG]", "No Results")
    before = Attempt(OutcomeType.FAILURE, context(rows).events)
    result = said(reflect(context(rows), attempts=[before]))
    assert (
        "1 earlier attempt made the same calls in the same order with the same outcome."
        in result.reflection_text
    )
    assert result.strategy_text is not None
    assert "Search[VIVA Media AG]" in result.strategy_text


def test_reflection_claims_only_what_trace_shows():
    rows = call("book_flight", '{"no": "A1"}', "booked")
    result = said(reflect(context(rows)))
    assert result.reflection_text == (
        "Outcome: failure. The trace ends with tool call 1, `book_flight(no=A1)` (e0000); "
        "no message or answer follows."
    )
    assert result.strategy_text is None
    assert result.confidence < 0.5


@each_case("outcome", list(OutcomeType))
def test_nothing_found_is_no_reflection(outcome: OutcomeType):
    rows = [*call("book_flight", '{"no": "A1"}', "booked"), said_by("Done.")]
    assert reflect(context(rows, outcome.value)) is None


def test_last_call_of_a_session_says_nothing() -> None:
    commit = (
        "[main 5f2c9ab] Add hello world\n 1 file changed, 12 insertions(+)\n create mode 100644"
    )
    rows = [
        {"event_type": "user_message", "content": "Create a hello world function."},
        {"event_type": "tool_call", "tool_name": "bash", "content": "git commit -m hello"},
        {"event_type": "tool_response", "tool_name": "bash", "content": commit},
    ]
    for more in ([], [said_by("Done.")]):
        known = context([*rows, *more], "failure")
        assert reflect(known) is not None
        assert reflect(known.model_copy(update={"outcome_is_known": False})) is None


def test_plain_conversation_success_gives_no_strategy():
    rows = [
        {"event_type": "user_message", "content": "What is two and two?"},
        {"event_type": "llm_response", "content": "Four."},
    ]
    assert reflect(context(rows, "success")) is None


def test_failing_assertions_are_reported():
    result = said(reflect(context([]), test_report="FAILED t.py::test_sum - assert 3 == 4"))
    assert "t.py::test_sum" in result.reflection_text
    assert "expected `4`, got `3`" in result.reflection_text
    assert result.error_category is ErrorCategory.VALIDATION_ERROR


def test_japanese_is_answered_in_japanese():
    rows = [
        {"event_type": "user_message", "content": "タクシーを9時に予約してください。"},
        {
            "event_type": "tool_call",
            "tool_name": "Booking_taxi",
            "content": '{"c": "仙台", "h": 9}',
        },
        {"event_type": "tool_response", "tool_name": "Booking_taxi", "content": "Error: full"},
        {"event_type": "llm_response", "content": "その条件では予約ができませんでした。"},
        {
            "event_type": "tool_call",
            "tool_name": "Booking_taxi",
            "content": '{"c": "仙台", "h": 10}',
        },
        {"event_type": "tool_response", "tool_name": "Booking_taxi", "content": "booked"},
        {"event_type": "llm_response", "content": "予約が完了いたしました。"},
    ]
    result = said(reflect(context(rows, "success")))
    assert "h=9" in result.reflection_text
    assert "h=10" in result.reflection_text
    assert "`h=10` に変えた呼び出し" in result.reflection_text
    assert result.strategy_text is not None
    assert result.strategy_text.endswith("。")


def test_other_languages_are_quoted_in_english_text():
    rows = [
        {"event_type": "user_message", "content": "请帮我查一下北京的天气预报"},
        *call("weather", '{"city": "北京"}', "Error: 城市 not found"),
    ]
    result = said(reflect(context(rows)))
    assert "Task: 请帮我查一下北京的天气预报" in result.reflection_text
    assert "城市" in result.reflection_text


def test_events_without_id_are_named_by_their_position():
    result = said(reflect(context(call("fetch", "fetch a", "Error: timed out"))))
    assert result.source_event_ids[0] == "e0000"


def test_reflection_is_deterministic():
    rows = call("fetch", "fetch a", "Error: timed out")
    first, second = said(reflect(context(rows))), said(reflect(context(rows)))
    assert first.model_dump(exclude={"generated_at"}) == second.model_dump(exclude={"generated_at"})


@each_case("outcome", list(OutcomeType))
def test_trace_without_events(outcome: OutcomeType):
    result = reflect(context([], outcome.value))
    assert result is None


counts = st.integers(0, 60)
evidence = st.builds(EvidenceCounts, **dict.fromkeys(EVIDENCE_WEIGHTS, counts))
outcomes = st.sampled_from(OutcomeType)


@settings(max_examples=100)
@given(evidence, outcomes, st.sampled_from(list(EVIDENCE_WEIGHTS)), st.integers(1, 20))
def test_scores_never_fall_when_evidence_grows(
    e: EvidenceCounts, outcome: OutcomeType, name: str, more: int
):
    values = {field: getattr(e, field) for field in EVIDENCE_WEIGHTS}
    grown = EvidenceCounts(**(values | {name: values[name] + more}))
    assert 0 <= calculate_importance(outcome, e) <= calculate_importance(outcome, grown) <= 1
    assert 0 <= calculate_confidence(e) <= calculate_confidence(grown) <= 1


@given(evidence)
def test_failure_is_at_least_as_important_as_success(e: EvidenceCounts):
    ranked = [calculate_importance(o, e) for o in (OutcomeType.SUCCESS, OutcomeType.PARTIAL)]
    assert ranked[0] <= ranked[1] <= calculate_importance(OutcomeType.FAILURE, e)


texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=80),
    st.sampled_from(
        ["", "{", "{}", "{x}", "[[[[", "Error: {0}", "Search[a]", '{"a": {"b": [1]}}', "Finish[x]"]
    ),
)
rows = st.builds(
    lambda kind, content, tool, error: {
        "event_type": kind,
        "content": content,
        "tool_name": tool or None,
        "error": error,
    },
    st.sampled_from([k.value for k in EventType]),
    texts,
    st.sampled_from(["", "Search", "book_flight", "a{b}"]),
    st.sampled_from([None, None, None, "boom {x}"]),
)
truths = st.one_of(
    st.none(),
    texts,
    st.builds(lambda t: {"answer": t}, texts),
    st.builds(lambda t: {"actions": [{"name": "book_flight", "kwargs": t}], "outputs": [t]}, texts),
    st.just({"a": 1, "b": float("nan")}),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, max_size=14), outcomes, truths, st.lists(rows, max_size=6), texts)
def test_any_run_can_be_reflected_on(
    raw: list[dict[str, Any]],
    outcome: OutcomeType,
    truth: object,
    other: list[dict[str, Any]],
    report: str,
):
    before = [
        Attempt(o, context(other).events, "x") for o in (OutcomeType.FAILURE, OutcomeType.SUCCESS)
    ]
    run = context(raw, outcome.value)
    result = reflect(run, attempts=before, ground_truth=truth, test_report=report)
    if result is None:
        return
    ids = {e.event_id or f"e{n:04d}" for n, e in enumerate(run.events)}
    assert result.reflection_text.strip()
    assert set(result.source_event_ids) <= ids
    assert len(result.source_event_ids) <= 5
    assert len(result.source_event_ids) == len(set(result.source_event_ids))
    result.model_dump_json().encode()


def test_ten_thousand_events_and_five_megabytes():
    many = call("search", '{"q": "x"}', "Error: not found") * 5_000
    assert len(said(reflect(context(many))).reflection_text) < 2_000
    for text in ("Error: " + "\n" * 4_000_000, "あ" * 1_700_000, '["a",' * 1_000_000):
        big = [{"event_type": "user_message", "content": text}, *call("t", text, text)]
        result = said(reflect(context(big, task_description=text), test_report=text))
        assert len(result.model_dump_json()) < 100_000
