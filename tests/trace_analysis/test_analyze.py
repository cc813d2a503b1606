"""What the findings see in a run: the call behind a failure, loops, what changed, what was offered,
and what is no failure at all."""

from __future__ import annotations

import json

from memory_api.text.excerpts import detect_language, excerpt
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.trace_analysis.arguments import ArgumentChange, diff_arguments, parse_arguments
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.trace_analysis.detectors.answers import find_failed_assertions
from memory_api.trace_analysis.findings import Findings
from memory_api.traces.schemas import ErrorCategory, Event, OutcomeType
from memory_api.traces.tools import ToolDefinition
from tests.support.cases import each_case


def events(*rows: dict[str, object]) -> list[Event]:
    return [Event.model_validate({"event_id": f"e{n}", **row}) for n, row in enumerate(rows)]


def call(tool: str, content: str, response: str, **more: object) -> list[dict[str, object]]:
    return [
        {"event_type": "tool_call", "tool_name": tool, "content": content},
        {"event_type": "tool_response", "tool_name": tool, "content": response, **more},
    ]


TOOLS = [
    ToolDefinition(name="get_user", writes=False),
    *(ToolDefinition(name=name, writes=True) for name in ("book_flight", "cancel_flight")),
]
"""What the traces of these tests state about their tools."""


def seen(
    rows: list[dict[str, object]], outcome: str = "failure", tools: object = TOOLS, **more: object
) -> Findings:
    context = ReflectionContext.model_validate(
        {"events": events(*rows), "outcome": OutcomeType(outcome), "tenant_id": "t", "tools": tools}
    )
    return analyze_trace(context, **more)  # pyright: ignore[reportArgumentType]


def test_failure_is_attributed_to_call_not_response():
    found = seen(call("fetch", '{"url": "a"}', "Error: connection refused"))
    (failure,) = found.failed_calls
    assert (failure.event_id, failure.response_event_id) == ("e0", "e1")
    assert failure.kind == "network"
    assert failure.category is ErrorCategory.NETWORK_ERROR


def test_responses_are_matched_to_calls_by_id():
    rows = [
        {"event_type": "tool_call", "tool_name": "a", "content": '{"x": 1}', "call_id": "1"},
        {"event_type": "tool_call", "tool_name": "b", "content": '{"x": 2}', "call_id": "2"},
        {"event_type": "tool_response", "content": "Error: not found", "call_id": "2"},
        {"event_type": "tool_response", "content": "fine", "call_id": "1"},
    ]
    assert [f.tool for f in seen(rows).failed_calls] == ["b"]


def test_page_mentioning_error_is_no_failure():
    page = "The error function is not found in elementary calculus. " * 20
    assert seen(call("Search", "Search[erf]", page)).failed_calls == ()


def test_repaired_call_has_changed_argument_and_its_origin():
    rows = [
        *call("pay", '{"order": "W1", "method": "card_7334"}', "Error: payment method not found"),
        *call("get_user", '{"id": "u1"}', '{"methods": {"card_9074831": {"last": "7334"}}}'),
        *call("pay", '{"order": "W1", "method": "card_9074831"}', "paid"),
    ]
    (retry,) = seen(rows, "success").repaired_calls
    assert (retry.failed_event_id, retry.event_id) == ("e0", "e4")
    assert retry.argument_changes == (ArgumentChange("method", "card_7334", "card_9074831"),)
    assert (retry.sourced_argument, retry.source_tool) == ("method", "get_user")


def test_value_without_origin_is_ungrounded():
    rows = [
        {"event_type": "user_message", "content": "use the card ending in 7334"},
        *call("pay", '{"order": "W1", "method": "card_7334"}', "Error: payment method not found"),
    ]
    assert seen(rows).failed_calls[0].ungrounded_arguments == ("method=card_7334",)


def test_failure_streak_has_shared_words_and_untried_alternatives():
    answer = "Could not find [{}]. Similar: ['Los Angeles Dodgers', 'Hideo Nomo']"
    rows = [
        row
        for q in ("Dodgers in 2007", "Dodgers rookie in 2007", "Dodgers players 2007")
        for row in call("Search", f"Search[{q}]", answer.format(q))
    ]
    (streak,) = seen(rows, "timeout").failure_streaks
    assert (streak.count, streak.shared_words, streak.event_id) == (3, "Dodgers 2007", "e0")
    assert streak.untried_alternatives == ("Los Angeles Dodgers",)


def test_quotation_marks_hiding_existing_entry_are_detected():
    rows = call("Search", 'Search["Speed"]', "Could not find [\"Speed\"]. Similar: ['Speed']") * 3
    assert seen(rows, "timeout").failure_streaks[0].quoted_argument == '"Speed"'


def test_same_read_after_a_change_is_no_repeat():
    read = call("get_order", '{"id": "W1"}', "pending")
    rows = [*read, *call("cancel_order", '{"id": "W1"}', "ok"), *read]
    tools = [{"name": "cancel_order", "writes": True}]
    assert seen(rows, tools=tools).repeated_calls == ()
    assert seen(rows).repeated_calls[0].event_ids == ("e0", "e4")
    assert seen([*read, *read]).repeated_calls[0].count == 2
    assert seen([*read, *call("get_order", '{"id": "W1"}', "cancelled")]).repeated_calls == ()


def test_wrong_answer_is_compared_with_expected_and_read_text():
    rows = [
        {"event_type": "user_message", "content": "Which film starred both Panabaker sisters?"},
        *call("Search", "Search[Danielle Panabaker]", "Known for Sky High and Read It and Weep."),
        {"event_type": "llm_response", "content": "It was Yours, Mine & Ours."},
        *call("Finish", "Finish[Yours, Mine & Ours]", "Answer is INCORRECT"),
    ]
    answer = seen(rows, ground_truth={"answer": '"Read It and Weep" (2006)'}).final_answer
    assert answer is not None
    assert (answer.event_id, answer.is_correct, answer.relation_to_expected) == (
        "e4",
        False,
        "different",
    )
    assert (answer.expected_answer_event_id, answer.given_answer_event_id) == ("e1", None)


@each_case(
    ("given", "relation"),
    [
        ("The Dark Tower", "same"),
        ("Stephen King's The Dark Tower series", "contains_expected"),
        ("Tower", "part_of_expected"),
        ("Dune", "different"),
    ],
)
def test_relation_of_answer_to_expected(given: str, relation: str):
    rows = call("Finish", f"Finish[{given}]", "Answer is INCORRECT")
    answer = seen(rows, ground_truth="Dark Tower").final_answer
    assert answer is not None
    assert answer.relation_to_expected == relation


def test_actions_that_were_changed_added_or_left_out():
    gold = {
        "actions": [
            {"name": "get_user", "kwargs": {"id": "u"}},
            {"name": "book_flight", "kwargs": {"bags": 0, "flights": [{"no": "A1"}]}},
            {"name": "send_certificate", "kwargs": {"amount": 50}},
            {"name": "update_user", "kwargs": {"id": "u"}},
        ]
    }
    rows = [
        *call("book_flight", '{"bags": 1, "flights": [{"no": "A1"}]}', "ok"),
        *call("cancel_flight", '{"id": "Z"}', "ok"),
        *call("update_user", '{"id": "u"}', "ok"),
    ]
    found = seen(rows, ground_truth=gold).action_deviations
    assert [(d.kind, d.event_id, d.tool) for d in found] == [
        ("changed", "e0", "book_flight"),
        ("extra", "e2", "cancel_flight"),
        ("missing", None, "send_certificate"),
    ]
    assert found[0].changes == (ArgumentChange("bags", "1", "0"),)


def test_next_message_answers_call_without_response():
    rows = [
        {"event_type": "tool_call", "tool_name": "Booking_taxi", "content": '{"hour": 9}'},
        {"event_type": "llm_response", "content": "申し訳ありません。予約ができませんでした。"},
        {"event_type": "tool_call", "tool_name": "Booking_taxi", "content": '{"hour": 10}'},
        {"event_type": "llm_response", "content": "予約が完了しました。"},
    ]
    found = seen(rows, "success")
    assert found.failed_calls[0].failure_source == "message"
    assert found.failed_calls[0].kind == "unavailable"


def test_success_is_contrasted_with_failed_attempt():
    failed = events(*call("Search", 'Search["Nick Park"]', "Could not find [x]. Similar: []"))
    rows = call("Search", "Search[Nick Park]", "Nick Park is an animator.")
    found = seen(rows, "success", attempts=[Attempt(OutcomeType.FAILURE, failed, "t1")])
    assert found.attempt_contrast is not None
    assert found.attempt_contrast.calls_only_in_this == ("Search[Nick Park]",)
    assert found.attempt_contrast.tool_without_quotes == "Search"
    assert found.attempt_contrast.trace_id == "t1"


def test_repeated_attempt_is_detected():
    rows = call("Search", "Search[x y]", "No Results")
    again = seen(
        rows, attempts=[Attempt(OutcomeType.FAILURE, events(*rows), "t1")]
    ).repeated_attempt
    assert again is not None
    assert (again.earlier_count, again.trace_id) == (1, "t1")
    other = [Attempt(OutcomeType.SUCCESS, events(*rows), "t1")]
    assert seen(rows, attempts=other).repeated_attempt is None


def test_crash_has_preceding_call_and_user_frame():
    trace = (
        'Traceback (most recent call last):\n  File "/app/env.py", line 120, in step\n    x\n'
        '  File "/usr/lib/python3.11/site-packages/pydantic/main.py", line 5, in init\n'
        "pydantic.ValidationError: 1 validation error for Response\nobservation\n  Input should be"
        " a valid string [type=string_type, input_value=1.5, input_type=float]"
    )
    rows = [
        {"event_type": "tool_call", "tool_name": "calculate", "content": '{"x": "1+1"}'},
        {"event_type": "error_event", "content": trace},
    ]
    crash = seen(rows, "error").crash
    assert crash is not None
    assert crash.preceding_call_event_id == "e0"
    assert crash.location == "env.py line 120, in step"
    assert (crash.expected_type, crash.actual_type) == ("string", "float")


def test_change_without_required_consent_is_found():
    policy = "Agent policy for changes to orders, to be kept at all times in every conversation."
    rows = [
        {"event_type": "system_event", "content": f"{policy} Obtain explicit user confirmation."},
        {"event_type": "user_message", "content": "Neither of those suits me."},
        *call("book_flight", '{"no": "A1"}', "ok"),
    ]
    assert seen(rows).unconfirmed_changes[0].event_id == "e2"
    rows[1]["content"] = "Yes, book it."
    assert seen(rows).unconfirmed_changes == ()


def test_slowest_call_and_time_share():
    rows = [*call("a", "a x", "1", duration_s=1.0), *call("b", "b y", "2", duration_s=3.0)]
    slow = seen(rows).slowest_call
    assert slow is not None
    assert (slow.event_id, slow.seconds, slow.time_share) == ("e2", 3.0, 0.75)


@each_case(
    ("report", "test", "expected", "actual"),
    [
        ("FAILED tests/a.py::test_x - assert 3 == 4", "tests/a.py::test_x", "4", "3"),
        ("FAIL: test_y (m.T)\nAssertionError: 1 != 2", "test_y", "2", "1"),
        ("not ok 3 - adds\n", "adds", None, None),
        ("  ✕ sums\n  Expected: 5, received: 6", "sums", None, None),
    ],
)
def test_failing_assertions(report: str, test: str, expected: str | None, actual: str | None):
    (found,) = find_failed_assertions(report)
    assert (found.test, found.expected, found.actual) == (test, expected, actual)


def test_green_report_has_no_failing_assertions():
    assert find_failed_assertions("12 passed in 0.3s") == ()
    assert find_failed_assertions(None) == ()


def test_conversation_without_tools():
    rows: list[dict[str, object]] = []
    for user, reply in [
        ("漫画が好きです", "漫画は楽しいですね。どんな漫画ですか？"),
        ("旅行の漫画です", "それがどうした。"),
        ("つまらない返事ですね", "それがどうした。"),
    ]:
        rows += [
            {"event_type": "user_message", "content": user},
            {"event_type": "llm_response", "content": reply},
        ]
    rows += [{"event_type": "llm_response", "content": "それがどうした。"}]
    dialogue = seen(rows, ground_truth={"satisfaction": 1, "coherence": 4}).dialogue
    assert dialogue is not None
    assert dialogue.repeated_phrases == (("それがどうした", 3, "e3"),)
    assert (dialogue.dissatisfied_event_id, dialogue.reply_before_dissatisfaction_event_id) == (
        "e4",
        "e3",
    )
    assert dialogue.ratings[0] == ("satisfaction", 1.0)


@each_case(
    ("content", "expected"),
    [
        ('{"a": 1, "b": {"c": [1, 2]}}', {"a": "1", "b.c": "1, 2"}),
        ("{'item_ids': \"['2', '1']\"}", {"item_ids": "1, 2"}),
        ("Search[x [y]]", {"": "x [y]"}),
        ("ls -la", {"": "-la"}),
        ("", {}),
        ("{not json", {"": "{not json"}),
    ],
)
def test_argument_styles_are_parsed(content: str, expected: dict[str, str]):
    assert (
        parse_arguments(content, content.split(" ")[0] if content.startswith("ls") else "t")
        == expected
    )


def test_free_text_is_compared_by_the_words_that_differ():
    old, new = {"": "The Prince & Me (2004 film)"}, {"": "The Prince & Me"}
    assert diff_arguments(old, new) == (ArgumentChange("", "(2004 film)", ""),)
    assert diff_arguments({"": "a\n  b"}, {"": "a\n    b"}) == (
        ArgumentChange("~whitespace", None, None),
    )


def test_findings_are_json():
    rows = call("fetch", '{"url": "a"}', "Error: timed out")
    as_json = seen(rows).as_json()
    assert json.loads(json.dumps(as_json))["failed_calls"][0]["kind"] == "timeout"


def test_excerpts_are_cut_between_characters():
    assert excerpt("a" * 500).endswith("…")
    assert len(excerpt("a" * 500)) <= 160
    assert excerpt("e\u0301" * 200, 10)[-2] in "e\u0301"
    assert "\ud800" not in excerpt("x\ud800y")
    assert excerpt("👩\u200d👩\u200d👧" * 40, 12).count("…") == 1


def test_language_is_detected_by_kana():
    assert detect_language(["こんにちは、元気ですか"]) == "ja"
    assert detect_language(["plain English text"]) == "en"
    assert detect_language(["中文没有假名"]) == "en"
