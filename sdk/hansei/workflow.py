"""The workflow: a query answered with the help of a playbook."""

from __future__ import annotations

from typing import TypedDict

from hansei.request import Request, given, write


class Answered(TypedDict):
    """The answer; `trace_id` is what `tell_outcome` takes once it is known how it turned out."""

    llm_response: str
    search_results_count: int
    shown_keys: list[str]
    render_id: str | None
    trace_id: str
    run_id: str
    engine: str
    degraded: bool


def run_workflow(
    query: str,
    dataset: str = "appworld",
    *,
    project_id: str | None = None,
    task_key: str | None = None,
) -> Request[Answered]:
    """Answer a query with what the playbook `dataset` knows. Without a model the answer is the
    bullets that matter, and `engine` says rules.
    """
    more = given({"project_id": project_id, "task_key": task_key})
    return write("POST", "/workflow/run", {"query": query, "dataset": dataset, **more})
