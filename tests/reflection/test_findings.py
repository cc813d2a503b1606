"""What the findings see in a run: the call behind a failure, loops, what changed, what was offered,
and what is no failure at all."""

from __future__ import annotations

import json

import pytest

from apps.memory_api.reflection.findings.assertions import find_assertions
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.findings.schemas import Attempt, Findings
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.arguments import Change, differences, parse
from apps.memory_api.traces.quotes import cut, language_of
from apps.memory_api.traces.schemas import ErrorCategory, Event, OutcomeType


def events(*rows: dict[str, object]) -> list[Event]:
    return [Event.model_validate({"event_id": f"e{n}", **row}) for n, row in enumerate(rows)]


def call(tool: str, content: str, response: str, **more: object) -> list[dict[str, object]]:
    return [
        {"event_type": "tool_call", "tool_name": tool, "content": content},
        {"event_type": "tool_response", "tool_name": tool, "content": response, **more},
    ]


def seen(rows: list[dict[str, object]], outcome: str = "failure", **more: object) -> Findings:
    context = ReflectionContext(
        events=events(*rows), outcome=OutcomeType(outcome), tenant_id="t", task_description=None
    )
    return find(context, **more)  # pyright: ignore[reportArgumentType]


def test_the_call_is_to_blame_not_the_response_that_reports_it():
    found = seen(call("fetch", '{"url": "a"}', "Error: connection refused"))
    (failure,) = found.failures
    assert (failure.event, failure.response_event) == ("e0", "e1")
    assert failure.kind == "network"
    assert failure.category is ErrorCategory.NETWORK_ERROR


def test_responses_find_their_call_by_id_when_they_come_out_of_order():
    rows = [
        {"event_type": "tool_call", "tool_name": "a", "content": '{"x": 1}', "call_id": "1"},
        {"event_type": "tool_call", "tool_name": "b", "content": '{"x": 2}', "call_id": "2"},
        {"event_type": "tool_response", "content": "Error: not found", "call_id": "2"},
        {"event_type": "tool_response", "content": "fine", "call_id": "1"},
    ]
    assert [f.tool for f in seen(rows).failures] == ["b"]


def test_a_page_that_mentions_an_error_is_no_failure():
    page = "The error function is not found in elementary calculus. " * 20
    assert seen(call("Search", "Search[erf]", page)).failures == ()


def test_a_repair_shows_the_argument_that_changed_and_where_its_value_came_from():
    rows = [
        *call("pay", '{"order": "W1", "method": "card_7334"}', "Error: payment method not found"),
        *call("get_user", '{"id": "u1"}', '{"methods": {"card_9074831": {"last": "7334"}}}'),
        *call("pay", '{"order": "W1", "method": "card_9074831"}', "paid"),
    ]
    (retry,) = seen(rows, "success").retries
    assert (retry.failed_event, retry.event) == ("e0", "e4")
    assert retry.changes == (Change("method", "card_7334", "card_9074831"),)
    assert (retry.taken, retry.via) == ("method", "get_user")


def test_a_value_named_nowhere_before_is_called_invented():
    rows = [
        {"event_type": "user_message", "content": "use the card ending in 7334"},
        *call("pay", '{"order": "W1", "method": "card_7334"}', "Error: payment method not found"),
    ]
    assert seen(rows).failures[0].invented == ("method=card_7334",)


def test_a_streak_keeps_the_common_words_and_what_was_offered_but_never_tried():
    answer = "Could not find [{}]. Similar: ['Los Angeles Dodgers', 'Hideo Nomo']"
    rows = [
        row
        for q in ("Dodgers in 2007", "Dodgers rookie in 2007", "Dodgers players 2007")
        for row in call("Search", f"Search[{q}]", answer.format(q))
    ]
    (streak,) = seen(rows, "timeout").streaks
    assert (streak.count, streak.kept, streak.event) == (3, "Dodgers 2007", "e0")
    assert streak.untried == ("Los Angeles Dodgers",)


def test_quotation_marks_that_hide_an_existing_entry_are_noticed():
    rows = call("Search", 'Search["Speed"]', "Could not find [\"Speed\"]. Similar: ['Speed']") * 3
    assert seen(rows, "timeout").streaks[0].unquoted == '"Speed"'


def test_the_same_read_after_a_change_is_no_repeat():
    read = call("get_order", '{"id": "W1"}', "pending")
    rows = [*read, *call("cancel_order", '{"id": "W1"}', "ok"), *read]
    assert seen(rows).repeats == ()
    assert seen([*read, *read]).repeats[0].count == 2


def test_a_wrong_answer_is_set_against_the_expected_one_and_what_had_been_read():
    rows = [
        {"event_type": "user_message", "content": "Which film starred both Panabaker sisters?"},
        *call("Search", "Search[Danielle Panabaker]", "Known for Sky High and Read It and Weep."),
        {"event_type": "llm_response", "content": "It was Yours, Mine & Ours."},
        *call("Finish", "Finish[Yours, Mine & Ours]", "Answer is INCORRECT"),
    ]
    answer = seen(rows, ground_truth={"answer": '"Read It and Weep" (2006)'}).answer
    assert answer is not None
    assert (answer.event, answer.verdict, answer.relation) == ("e4", False, "different")
    assert (answer.expected_event, answer.given_event) == ("e1", None)


@pytest.mark.parametrize(
    ("given", "relation"),
    [
        ("The Dark Tower", "same"),
        ("Stephen King's The Dark Tower series", "wider"),
        ("Tower", "narrower"),
        ("Dune", "different"),
    ],
)
def test_how_an_answer_stands_to_the_expected_one(given: str, relation: str):
    rows = call("Finish", f"Finish[{given}]", "Answer is INCORRECT")
    answer = seen(rows, ground_truth="Dark Tower").answer
    assert answer is not None
    assert answer.relation == relation


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
    found = seen(rows, ground_truth=gold).departures
    assert [(d.kind, d.event, d.tool) for d in found] == [
        ("changed", "e0", "book_flight"),
        ("extra", "e2", "cancel_flight"),
        ("missing", None, "send_certificate"),
    ]
    assert found[0].changes == (Change("bags", "1", "0"),)


def test_calls_without_responses_are_answered_by_the_next_message():
    rows = [
        {"event_type": "tool_call", "tool_name": "Booking_taxi", "content": '{"hour": 9}'},
        {"event_type": "llm_response", "content": "申し訳ありません。予約ができませんでした。"},
        {"event_type": "tool_call", "tool_name": "Booking_taxi", "content": '{"hour": 10}'},
        {"event_type": "llm_response", "content": "予約が完了しました。"},
    ]
    found = seen(rows, "success")
    assert found.failures[0].stated == "words"
    assert found.failures[0].kind == "unavailable"


def test_a_success_is_told_from_the_attempt_that_failed():
    failed = events(*call("Search", 'Search["Nick Park"]', "Could not find [x]. Similar: []"))
    rows = call("Search", "Search[Nick Park]", "Nick Park is an animator.")
    found = seen(rows, "success", attempts=[Attempt(OutcomeType.FAILURE, failed, "t1")])
    assert found.contrast is not None
    assert found.contrast.ours == ("Search[Nick Park]",)
    assert found.contrast.unquoted == "Search"
    assert found.contrast.trace_id == "t1"


def test_a_run_made_over_again_is_recognised():
    rows = call("Search", "Search[x y]", "No Results")
    again = seen(rows, attempts=[Attempt(OutcomeType.FAILURE, events(*rows), "t1")]).again
    assert again is not None
    assert (again.times, again.trace_id) == (1, "t1")
    other = [Attempt(OutcomeType.SUCCESS, events(*rows), "t1")]
    assert seen(rows, attempts=other).again is None


def test_a_crash_names_the_step_before_it_and_the_frame_that_is_not_a_library():
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
    assert crash.cause_event == "e0"
    assert crash.place == "env.py line 120, in step"
    assert (crash.wanted, crash.got) == ("string", "float")


def test_a_change_without_the_consent_the_rules_ask_for():
    policy = "Agent policy for changes to orders, to be kept at all times in every conversation."
    rows = [
        {"event_type": "system_event", "content": f"{policy} Obtain explicit user confirmation."},
        {"event_type": "user_message", "content": "Neither of those suits me."},
        *call("book_flight", '{"no": "A1"}', "ok"),
    ]
    assert seen(rows).unconfirmed[0].event == "e2"
    rows[1]["content"] = "Yes, book it."
    assert seen(rows).unconfirmed == ()


def test_the_slowest_step_and_its_share():
    rows = [*call("a", "a x", "1", duration_s=1.0), *call("b", "b y", "2", duration_s=3.0)]
    slow = seen(rows).slow
    assert slow is not None
    assert (slow.event, slow.seconds, slow.share) == ("e2", 3.0, 0.75)


@pytest.mark.parametrize(
    ("report", "test", "expected", "actual"),
    [
        ("FAILED tests/a.py::test_x - assert 3 == 4", "tests/a.py::test_x", "4", "3"),
        ("FAIL: test_y (m.T)\nAssertionError: 1 != 2", "test_y", "2", "1"),
        ("not ok 3 - adds\n", "adds", None, None),
        ("  ✕ sums\n  Expected: 5, received: 6", "sums", None, None),
    ],
)
def test_failing_assertions(report: str, test: str, expected: str | None, actual: str | None):
    (found,) = find_assertions(report)
    assert (found.test, found.expected, found.actual) == (test, expected, actual)


def test_a_green_report_has_no_failing_assertions():
    assert find_assertions("12 passed in 0.3s") == ()
    assert find_assertions(None) == ()


def test_a_conversation_without_tools():
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
    dialogue = seen(rows, ground_truth={"satisfaction": 1, "coherence": 4}).dialogue
    assert dialogue is not None
    assert (dialogue.replies, dialogue.asked_back, dialogue.taken_up) == (3, 1, 1)
    assert (dialogue.unhappy_event, dialogue.before_event) == ("e4", "e3")
    assert dialogue.ratings[0] == ("satisfaction", 1.0)


@pytest.mark.parametrize(
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
def test_arguments_in_any_style(content: str, expected: dict[str, str]):
    assert parse(content, content.split(" ")[0] if content.startswith("ls") else "t") == expected


def test_free_text_is_compared_by_the_words_that_differ():
    old, new = {"": "The Prince & Me (2004 film)"}, {"": "The Prince & Me"}
    assert differences(old, new) == (Change("", "(2004 film)", ""),)
    assert differences({"": "a\n  b"}, {"": "a\n    b"}) == (Change("~space", None, None),)


def test_findings_are_json():
    rows = call("fetch", '{"url": "a"}', "Error: timed out")
    as_json = seen(rows).as_json()
    assert json.loads(json.dumps(as_json))["failures"][0]["kind"] == "timeout"


def test_quotes_are_cut_between_characters():
    assert cut("a" * 500).endswith("…")
    assert len(cut("a" * 500)) <= 160
    assert cut("e\u0301" * 200, 10)[-2] in "e\u0301"
    assert "\ud800" not in cut("x\ud800y")
    assert cut("👩\u200d👩\u200d👧" * 40, 12).count("…") == 1


def test_language_is_read_off_the_kana():
    assert language_of(["こんにちは、元気ですか"]) == "ja"
    assert language_of(["plain English text"]) == "en"
    assert language_of(["中文没有假名"]) == "en"
