"""Requests about traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    write_request,
)
from hansei.types import (
    Json,
    MatchRule,
    OutcomeType,
    Page,
    ReflectMode,
    ToolDefinition,
    Trace,
    TraceEvaluation,
    TraceEvent,
    TraceReceipt,
    TraceWithEvents,
    UpdatedTrace,
)


class RecordOutcomeOptions(TypedDict, total=False):
    error: Json | str | None
    ground_truth: Any
    match: MatchRule | None
    test_report: str | None
    reflect: ReflectMode | None


def create_trace(
    trace: Mapping[str, Any], *, reflect: ReflectMode = "auto", project_id: str | None = None
) -> Request[TraceReceipt]:
    """Store a trace. `reflect` decides whether the service learns from it."""
    body = dict(trace) | drop_none({"project_id": project_id})
    return write_request("POST", f"{API}/traces", body, params={"reflect": reflect})


def list_traces(
    *,
    project_id: str | None = None,
    outcome: OutcomeType | None = None,
    state: str | None = None,
    task_key: str | None = None,
    playbook: str | None = None,
    external_id: str | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[Trace]]:
    """List traces, newest first. `limit` is the page size."""
    return get_request(
        f"{API}/traces",
        project_id=project_id,
        outcome=outcome,
        state=state,
        task_key=task_key,
        playbook=playbook,
        external_id=external_id,
        limit=limit,
    )


def get_trace(trace_id: Id) -> Request[TraceWithEvents]:
    """Get a trace with its evidence and its first 200 events."""
    return get_request(api_path("traces", trace_id))


def delete_trace(trace_id: Id, *, reason: str | None = None) -> Request[None]:
    """Delete a trace for good. The lessons learned from it stay."""
    return write_request("DELETE", api_path("traces", trace_id), params={"reason": reason})


def list_trace_events(trace_id: Id, *, limit: int = MAX_PAGE_SIZE) -> Request[Page[TraceEvent]]:
    """List the events of a trace in order. `limit` is the page size."""
    return get_request(api_path("traces", trace_id, "events"), limit=limit)


def append_events(
    trace_id: Id,
    events: Iterable[Mapping[str, Any]],
    *,
    tools: Iterable[ToolDefinition | Json | str] | None = None,
) -> Request[UpdatedTrace]:
    """Append events to an open trace, and add `tools` to those that the agent could call."""
    body = {"events": list(events), **drop_none({"tools": None if tools is None else list(tools)})}
    return write_request("POST", api_path("traces", trace_id, "events"), body)


def record_outcome(
    trace_id: Id, outcome: OutcomeType, **options: Unpack[RecordOutcomeOptions]
) -> Request[TraceReceipt]:
    """Record the outcome of a trace that was sent earlier."""
    body = {"outcome": outcome, **drop_none(options)}
    return write_request("POST", api_path("traces", trace_id, "outcome"), body)


def close_trace(
    trace_id: Id,
    outcome: OutcomeType | None = None,
    *,
    error: Json | str | None = None,
    reflect: ReflectMode | None = None,
) -> Request[TraceReceipt]:
    """Close an open trace. The service then learns from it."""
    body = drop_none({"outcome": outcome, "error": error, "reflect": reflect})
    return write_request("POST", api_path("traces", trace_id, "close"), body)


def list_trace_evaluations(trace_id: Id) -> Request[Page[TraceEvaluation]]:
    """List the scores of a trace by evaluator and criterion, with reasons."""
    return get_request(api_path("traces", trace_id, "evaluations"))
