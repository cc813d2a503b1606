"""Failed calls: whose error an error event is, what repaired a call, and which values have no
source."""

from __future__ import annotations

from typing import Any

from memory_api.trace_analysis.analyze import source_events
from memory_api.traces.schemas import OutcomeType
from tests.support.cases import each_case
from tests.support.runs import Row, call, findings, says, user


def failing(tool: str, arguments: str, error: str, **event: Any) -> list[Row]:
    return [
        {"event_type": "tool_call", "tool_name": tool, "content": arguments},
        {"event_type": "error_event", "content": error, **event},
    ]


def test_error_of_a_call_is_a_crash_only_at_the_end() -> None:
    rows = failing("grip", '{"force": 20}', "gripper timed out")
    crash = findings(rows, "error").crash
    assert crash is not None
    assert (crash.is_of_call, crash.preceding_call_event_id) == (True, "e0")
    for later in ([says("I stop here.")], call("grip", '{"force": 10}', "held")):
        found = findings([*rows, *later], "error")
        assert found.crash is None
        assert [failure.message for failure in found.failed_calls] == ["gripper timed out"]


def test_error_after_a_response_is_not_of_the_call() -> None:
    rows = [*call("read", '{"path": "a"}', "text"), {"event_type": "error_event", "content": "No."}]
    crash = findings(rows, "error").crash
    assert crash is not None
    assert (crash.is_of_call, crash.preceding_call_event_id) == (False, "e0")


def test_error_belongs_to_the_call_with_its_id() -> None:
    rows: list[Row] = [
        {
            "event_type": "tool_call",
            "tool_name": name,
            "content": f'{{"q": "{name}"}}',
            "metadata": {"call_id": name},
        }
        for name in ("north", "south")
    ]
    rows.append({"event_type": "error_event", "content": "down", "metadata": {"call_id": "north"}})
    assert [failure.event_id for failure in findings(rows).failed_calls] == ["e0"]


@each_case(
    ("task", "arguments", "expected"),
    [
        ("Cancel it.", {"id": "R-5512", "ref": "R-5512"}, ("id=R-5512",)),
        ("Cancel R-5512.", {"id": "R-5512"}, ()),
        ("Cancel it.", {"day": "2024-05-03", "month": "2024-05", "price": "12.50"}, ()),
        ("Cancel it.", {"type": "one_way", "format": "text/csv"}, ()),
        (
            "Tell Ann.",
            {"to": ["ann@a.example", "bo@a.example"]},
            ("to=ann@a.example", "to=bo@a.example"),
        ),
    ],
)
def test_values_without_a_source(
    task: str, arguments: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """The task may be in no event."""
    found = findings(call("cancel", arguments, {"error": "no"}), task_description=task)
    assert found.failed_calls[0].ungrounded_arguments == expected


def test_repetition_of_a_failed_call_is_no_source() -> None:
    once = call("cancel", {"id": "R-5512"}, {"error": "R-5512 does not exist"})
    rows = [user("Cancel my booking."), *once, says("R-5512 does not exist?"), *once]
    last = findings(rows).failed_calls[-1]
    assert last.ungrounded_arguments == ("id=R-5512",)
    assert (last.event_id, last.ungrounded_event_id) == ("e4", "e1")
    created = call("create", {"id": "R-5512"}, "ok")
    assert findings([rows[0], *created, *once]).failed_calls[-1].ungrounded_arguments == ()


def test_same_call_later_is_a_repair_although_the_tool_succeeded_in_between() -> None:
    alter = {"query": "alter table invoices add column archived_at timestamptz"}
    rows = [
        *call("sql", alter, "ERROR: lock timeout"),
        *call("sql", {"query": "select pg_terminate_backend(812)"}, "t"),
        *call("sql", alter, "ALTER TABLE"),
    ]
    (repaired,) = findings(rows, "success").repaired_calls
    assert (repaired.failed_event_id, repaired.event_id) == ("e0", "e4")
    assert repaired.argument_changes == ()


def test_repeated_failure_has_the_last_message() -> None:
    rows = [*call("click", {"ref": 31}, "Error: busy"), *call("click", {"ref": 31}, "Error: stale")]
    assert findings(rows).repeated_calls[0].message == "Error: stale"


def test_timeout_names_the_slow_call_first() -> None:
    rows = [
        *call("move", {"to": "pallet"}, "there", metadata={"duration_s": 3}),
        *call("scan", {"target": "pallet"}, "0 labels", metadata={"duration_s": 118}),
        *call("lift", {"height": 4}, "lifted", metadata={"duration_s": 2}),
    ]
    found = findings(rows, "timeout")
    assert source_events(found, OutcomeType.TIMEOUT)[0] == "e2"
    assert source_events(found, OutcomeType.FAILURE)[0] != "e2"


def test_object_in_use_is_no_invalid_input() -> None:
    found = findings(call("delete", {"id": 7}, "Error: the subnet cannot be deleted"))
    assert found.failed_calls[0].kind == "failed"
    found = findings(call("delete", {"id": 7}, "Error: the name cannot be empty"))
    assert found.failed_calls[0].kind == "invalid"


@each_case(
    "response",
    [
        '{"error": null, "rows": 3}',
        '{"error": false, "data": 1}',
        '{"error": "", "data": 1}',
        '{"error": "none"}',
        '{"error_code": "0", "message": "done"}',
        '{"errmsg": "ok", "errcode": 0}',
        '{"error_log": "/var/log/app.log"}',
        '{"ok": true, "errors": ["a test that was skipped"]}',
        '{"job": 7, "status": "error", "message": "out of memory"}',
        '{"status": "failed", "reason": "out of memory"}',
        "Errors: 0",
        "error: 0 found",
        "Exception: none",
    ],
)
def test_response_that_names_no_error_is_no_failure(response: str) -> None:
    assert findings(call("look", {"at": "it"}, response)).failed_calls == ()


@each_case(
    ("response", "message"),
    [
        ('{"errorMessage": "no such row"}', "no such row"),
        ('{"errors": [{"message": "field is unknown"}]}', "field is unknown"),
        ('{"errors": ["first", "second"]}', "first"),
        ('{"status": "error", "message": "out of memory"}', "out of memory"),
        ('{"success": false, "reason": "bulb offline"}', "bulb offline"),
        ('{"error": {"code": 404, "message": "not there"}}', "not there"),
        ("KeyError: 0", "KeyError: 0"),
        ("error: none of the hosts answers", "error: none of the hosts answers"),
    ],
)
def test_error_of_a_response_is_quoted(response: str, message: str) -> None:
    (failed,) = findings(call("look", {"at": "it"}, response)).failed_calls
    assert (failed.message, failed.failure_source) == (message, "tool")
