"""The text of an episode."""

from __future__ import annotations

from memory_api.core.ids import new_id
from memory_api.reflection.context import ReflectionInput
from memory_api.reflection.evidence import Evidence
from memory_api.reflection.lesson_drafts import episode_draft, episode_text
from memory_api.runs.tables import RunRow
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.traces.tables import TraceRow
from tests.support.runs import call, run, user


def test_a_call_and_its_response_are_one_call() -> None:
    rows = [user("Find it."), *call("search", {"q": "a"}, "b"), *call("open", {"id": 1}, "c")]
    rows += call("search", {"q": "d"}, "e")
    context = ReflectionContext.model_validate(
        {"tenant_id": "t", "events": run(rows).events, "outcome": "success"}
    )
    assert "Tools: search ×2, open ×1." in episode_text(context)


def test_a_conflict_is_in_the_episode() -> None:
    sides = {"outcome": "failure", "overruled_outcome": "success"}
    context = ReflectionContext.model_validate({"tenant_id": "t", "events": [], **sides})
    expected = "Outcome: failure by the declared check; the client reported success; 0 events."
    assert episode_text(context) == expected


def test_episode_has_the_category_that_the_client_stated() -> None:
    error = {"error_category": "timeout_error", "error_message": "gave up"}
    context = ReflectionContext.model_validate(
        {"tenant_id": "t", "events": [], "outcome": "failure", "error": error}
    )
    trace = TraceRow(id=new_id(), project_id="p", outcome="failure")
    input = ReflectionInput(RunRow(input={}), trace, context, Evidence(), None, (), {})
    draft = episode_draft(input, analyze_trace(context))
    assert (draft.error_category, draft.tags) == ("timeout_error", ["failure", "timeout"])
