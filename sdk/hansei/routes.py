"""Every route of the service as a function from arguments to a `Request`. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from hansei.answers import (
    Brought,
    Evaluation,
    Json,
    LessonFields,
    LessonFilter,
    Lessons,
    Link,
    Memory,
    MemoryChanges,
    MemoryFields,
    Outcome,
    Page,
    Reflect,
    Reflected,
    Revision,
    Run,
    RunOptions,
    Sent,
    Trace,
    TraceDetail,
    Verdict,
)
from hansei.finding import Hits, SearchOptions
from hansei.request import API, Id, Request, ask, given, one, read, write

PAGE = 200
"""The longest page of a list that the service gives."""

T = TypeVar("T")


def health() -> Request[Json]:
    """Whether the process is alive."""
    return read("/health")


def ready() -> Request[Json]:
    """Whether the service can work: `status`, and that of its database, queue and embedder."""
    return Request("GET", "/health/ready", fine=503)


def generate_reflection(
    events: Sequence[Mapping[str, Any]],
    outcome: Outcome,
    *,
    wait: bool = True,
    **options: Unpack[RunOptions],
) -> Request[Reflected]:
    """Reflect on one run. With `wait=False` a worker does it: see `Hansei.wait`."""
    body = {"events": list(events), "outcome": outcome, **given(options)}
    headers = {} if wait else {"Prefer": "respond-async"}
    return write("POST", f"{API}/reflections/generate", body, headers=headers)


def bring_reflection(reflection_text: str, **fields: Unpack[LessonFields]) -> Request[Brought]:
    """Store a reflection of your own; no model is called."""
    body = {"reflection_text": reflection_text, **given(fields)}
    return write("POST", f"{API}/reflections", body)


def query_reflections(
    query_text: str | None = None, **options: Unpack[LessonFilter]
) -> Request[Lessons]:
    """The lessons that matter for a task, best first; without a text, the most useful ones."""
    return ask(f"{API}/reflections/query", given({"query_text": query_text, **options}))


def send_trace(
    trace: Mapping[str, Any], *, reflect: Reflect = "auto", project_id: str | None = None
) -> Request[Sent]:
    """Store one trace and, as `reflect` says, queue a reflection on it."""
    body = dict(trace) | given({"project_id": project_id})
    return write("POST", f"{API}/traces", body, params={"reflect": reflect})


def add_events(trace_id: Id, events: Iterable[Mapping[str, Any]]) -> Request[Trace]:
    """More events of an open trace, in order."""
    return write("POST", one("traces", trace_id, "events"), {"events": list(events)})


def tell_outcome(trace_id: Id, outcome: Outcome, **verdict: Unpack[Verdict]) -> Request[Sent]:
    """How a run turned out, when that is known later."""
    body = {"outcome": outcome, **given(verdict)}
    return write("POST", one("traces", trace_id, "outcome"), body)


def close_trace(
    trace_id: Id,
    outcome: Outcome | None = None,
    *,
    error: Json | str | None = None,
    reflect: Reflect | None = None,
) -> Request[Sent]:
    """The end of an open trace, which is then reflected on."""
    body = given({"outcome": outcome, "error": error, "reflect": reflect})
    return write("POST", one("traces", trace_id, "close"), body)


def traces(
    *,
    project_id: str | None = None,
    outcome: Outcome | None = None,
    state: str | None = None,
    task_key: str | None = None,
    playbook: str | None = None,
    limit: int = PAGE,
) -> Request[Page[Trace]]:
    """All traces, newest first; `limit` is the length of a page."""
    return read(
        f"{API}/traces",
        project_id=project_id,
        outcome=outcome,
        state=state,
        task_key=task_key,
        playbook=playbook,
        limit=limit,
    )


def trace(trace_id: Id) -> Request[TraceDetail]:
    """One trace with its events and its evidence."""
    return read(one("traces", trace_id))


def evaluations(trace_id: Id) -> Request[Page[Evaluation]]:
    """How a run went, by each evaluator and criterion, with reasons."""
    return read(one("traces", trace_id, "evaluations"))


def bring_memory(content: str, **fields: Unpack[MemoryFields]) -> Request[Memory]:
    """Store a memory of your own; no model is called."""
    return write("POST", f"{API}/memories", {"content": content, **given(fields)})


def memories(
    *,
    project_id: str | None = None,
    kind: Sequence[str] = (),
    layer: Sequence[str] = (),
    status: str | None = None,
    tag: Sequence[str] = (),
    trace_id: Id | None = None,
    limit: int = PAGE,
) -> Request[Page[Memory]]:
    """All memories, newest first. Several kinds, layers or tags mean any of them."""
    return read(
        f"{API}/memories",
        project_id=project_id,
        kind=list(kind),
        layer=list(layer),
        status=status,
        tag=list(tag),
        trace_id=trace_id,
        limit=limit,
    )


def memory(memory_id: Id) -> Request[Memory]:
    """One memory."""
    return read(one("memories", memory_id))


def update(memory_id: Id, **changes: Unpack[MemoryChanges]) -> Request[Memory]:
    """Change the fields of a memory that are given; each change is a revision."""
    return write("PATCH", one("memories", memory_id), changes)


def forget(memory_id: Id, *, reason: str | None = None) -> Request[None]:
    """Forget a memory. It is found no more; its history stays."""
    return write("DELETE", one("memories", memory_id), params={"reason": reason})


def revisions(memory_id: Id) -> Request[Page[Revision]]:
    """How a memory came to say what it says, oldest first."""
    return read(one("memories", memory_id, "revisions"))


def links(memory_id: Id) -> Request[Page[Link]]:
    """What a memory was derived from, what it supports, what supports it."""
    return read(one("memories", memory_id, "links"))


def search(query_text: str, **options: Unpack[SearchOptions]) -> Request[Hits]:
    """Hybrid search over the memories of a project."""
    return ask(f"{API}/search", {"query_text": query_text, **given(options)})


def runs(
    *,
    state: Sequence[str] = (),
    kind: str | None = None,
    project_id: str | None = None,
    trace_id: Id | None = None,
    parent_id: Id | None = None,
    limit: int = PAGE,
) -> Request[Page[Run]]:
    """All work, newest first; `state=["dead"]` are the dead letters with their cause. `parent_id`
    gives the steps that followed a run.
    """
    return read(
        f"{API}/runs",
        state=",".join(state) or None,
        kind=kind,
        project_id=project_id,
        trace_id=trace_id,
        parent_id=parent_id,
        limit=limit,
    )


def run(run_id: Id) -> Request[Run]:
    """One piece of work."""
    return read(one("runs", run_id))


def retry_run(run_id: Id) -> Request[Run]:
    """Queue a dead or failed run again."""
    return write("POST", one("runs", run_id, "retry"))
