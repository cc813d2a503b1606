"""The SDK against the service's own words: every route has a method, every field its hint, and what
the stub answers is what the service would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from apps.memory_api.account import schemas as accounts
from apps.memory_api.budget import schemas as budget
from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation import schemas as evaluation
from apps.memory_api.main import create_app
from apps.memory_api.memory import schemas as memory
from apps.memory_api.playbook import (
    effect_router,
    schemas,
    sections,
    wire,
    wire_history,
    wire_serving,
)
from apps.memory_api.reflection import schemas as reflection
from apps.memory_api.reflection.insights import schemas as insights
from apps.memory_api.reflection.insights import wire as insights_wire
from apps.memory_api.reflection.transcripts import reflector as transcripts
from apps.memory_api.reflection.transcripts import wire as transcripts_wire
from apps.memory_api.traces import schemas as traces
from apps.memory_api.workers import answer_wire
from hansei import (
    account,
    answers,
    bullets,
    finding,
    flows,
    money,
    playbooks,
    reflector,
    routes,
    workflow,
)
from hansei.client import Methods
from hansei.commands.choices import Kind, State
from hansei.request import Request
from tests.sdk.stub_service import RECORDED

SHAPES: list[tuple[type, type[BaseModel], list[Any]]] = [
    (answers.Reflected, reflection.GenerateAnswer, [RECORDED["generate"]]),
    (answers.Taught, reflection.Taught, []),
    (answers.Brought, reflection.Brought, [RECORDED["brought"]]),
    (answers.Lessons, reflection.ReflectionsAnswer, [RECORDED["lessons"]]),
    (answers.Lesson, reflection.ReflectionHit, RECORDED["lessons"]["reflections"]),
    (answers.Memory, memory.MemoryView, [RECORDED["memory"]]),
    (finding.Hit, memory.SearchHit, [RECORDED["hit"]]),
    (finding.Hits, memory.SearchAnswer, [{"results": [RECORDED["hit"]]}]),
    (answers.Revision, memory.RevisionView, [RECORDED["revision"]]),
    (answers.Link, memory.LinkView, [RECORDED["link"]]),
    (answers.Trace, traces.TraceView, [RECORDED["trace"]]),
    (answers.TraceDetail, traces.TraceDetail, [RECORDED["trace_detail"]]),
    (answers.Evaluation, evaluation.EvaluationView, [evaluation.EXAMPLE]),
    (answers.Event, traces.EventView, RECORDED["trace_detail"]["events"]),
    (answers.Run, accounts.RunView, [RECORDED["run_done"]]),
    (account.Key, accounts.KeyView, [RECORDED["key"]]),
    (account.NewKey, accounts.KeyMade, [RECORDED["new_key"]]),
    (account.Tenant, accounts.TenantView, [RECORDED["tenant"]]),
    (reflector.TrajectoryReflected, insights_wire.TrajectoryAnswer, []),
    (reflector.TranscriptReflected, transcripts_wire.TranscriptReflection, []),
    (workflow.Answered, answer_wire.WorkflowAnswer, []),
    (reflector.Trajectory, insights.Trajectory, []),
    (reflector.Insight, insights.Insight, []),
    (reflector.BulletEvaluation, insights.BulletEvaluation, []),
    (reflector.BulletTag, transcripts.BulletTag, []),
    (reflector.Failed, insights_wire.Failed, []),
    (money.Budget, budget.BudgetView, []),
    (money.BudgetLimit, budget.BudgetIn, []),
    (money.Usage, budget.UsageRow, []),
    (account.NewTenant, accounts.TenantMade, [RECORDED["tenant"] | {"key": None}]),
    (bullets.Bullet, schemas.Bullet, []),
    (bullets.BulletView, wire.BulletView, []),
    (bullets.BulletStored, wire.BulletStored, []),
    (bullets.BulletHit, wire_serving.Hit, []),
    (bullets.BulletsFound, wire_serving.BulletsFound, []),
    (bullets.Rendered, wire_serving.RenderAnswer, []),
    (bullets.Delta, schemas.DeltaContextItem, []),
    (bullets.DeltaResult, schemas.DeltaResult, []),
    (bullets.Edited, wire.DeltasAnswer, []),
    (bullets.BulletVerdict, wire.EvaluationView, []),
    (bullets.JudgedBullet, wire.EvaluationAnswer, []),
    (bullets.Origin, wire_history.Origin, []),
    (bullets.Provenance, wire_history.Provenance, []),
    (playbooks.Section, sections.SectionDefinition, []),
    (playbooks.PlaybookView, wire.PlaybookView, []),
    (playbooks.Times, schemas.PlaybookMetadata, []),
    (playbooks.Put, wire_history.Imported, []),
    (playbooks.Version, wire_history.VersionView, []),
    (playbooks.ChangedBullet, wire_history.ChangedBullet, []),
    (playbooks.Difference, wire_history.DiffAnswer, []),
    (playbooks.Restored, wire_history.RestoreAnswer, []),
    (playbooks.Sides, effect_router.Sides, []),
    (playbooks.Effect, effect_router.Effect, []),
    (playbooks.Proposal, wire.ProposalView, []),
]
OPTIONS: list[tuple[type, type[BaseModel], set[str]]] = [
    (answers.RunOptions, reflection.GenerateIn, {"events", "outcome"}),
    (answers.LessonFields, reflection.NewReflection, {"reflection_text"}),
    (answers.LessonFilter, reflection.ReflectionQuery, {"query_text"}),
    (answers.MemoryFields, memory.NewMemory, {"content"}),
    (answers.MemoryChanges, memory.MemoryPatch, set()),
    (finding.SearchOptions, memory.SearchQuery, {"query_text"}),
    (answers.Verdict, traces.OutcomeIn, {"outcome"}),
    (reflector.TrajectoryOptions, insights_wire.TrajectoryIn, {"trajectory"}),
    (reflector.TranscriptOptions, transcripts_wire.TranscriptIn, {"messages"}),
    (bullets.BulletSearch, wire_serving.SearchIn, {"query_text"}),
    (bullets.RenderOptions, wire_serving.RenderIn, {"query_text"}),
    (bullets.BulletFields, wire.BulletIn, {"content"}),
    (bullets.BulletChanges, wire.BulletPatch, set()),
    (bullets.VerdictOptions, wire.EvaluationIn, {"tag"}),
    (playbooks.PlaybookChanges, wire.PlaybookPatch, set()),
]
OTHERS = {"state"}
"""Of a 202 answer, which has no model."""


@pytest.mark.parametrize(("hint", "model", "recorded"), SHAPES)
def test_answers_have_the_fields_of_the_service(
    hint: type, model: type[BaseModel], recorded: list[Any]
) -> None:
    told = set(model.model_fields) | set(model.model_computed_fields)
    assert fields(hint) - OTHERS == told - OTHERS
    for answer in recorded:
        model.model_validate(answer)  # the stub says nothing that the service would not


@pytest.mark.parametrize(("hint", "model", "named"), OPTIONS)
def test_options_are_those_of_the_service(
    hint: type, model: type[BaseModel], named: set[str]
) -> None:
    assert fields(hint) | named == set(model.model_fields) - {"tenant_id"}  # the key says which


def test_choices_are_those_of_the_service() -> None:
    assert set(get_args(answers.Kind)) == set(memory.Kind) == set(Kind)
    assert set(get_args(answers.State)) == set(State) == {*flows.SETTLED, *flows.UNSETTLED}
    assert set(get_args(answers.Outcome)) == set(traces.OutcomeType)
    assert set(get_args(answers.Reflect)) == set(get_args(traces.Reflect))


def test_every_route_has_a_method_and_every_method_a_route() -> None:
    theirs = {(method.upper(), path) for path, item in spec_paths().items() for method in item}
    assert {(request.method, request.path) for request in requests()} == theirs
    names = {value.describe for value in vars(Methods).values() if hasattr(value, "describe")}
    several = {flows.send_traces, flows.wait, flows.steps, flows.unsettled, flows.outcomes}
    assert names == {*DESCRIBED, *several}


def test_query_parameters_are_known_to_the_service() -> None:
    paths = spec_paths()
    for request in requests():
        known = paths[request.path][request.method.lower()].get("parameters", [])
        assert {name for name, _ in request.params} <= {each["name"] for each in known}


DESCRIBED: dict[Callable[..., Request[Any]], tuple[Any, ...]] = {
    routes.health: (),
    routes.ready: (),
    routes.generate_reflection: ([], "failure"),
    routes.bring_reflection: ("text",),
    routes.query_reflections: (),
    reflector.reflect_trajectory: ({},),
    reflector.reflect_transcript: ([],),
    workflow.run_workflow: ("query",),
    routes.send_trace: ({},),
    routes.add_events: ("ID", []),
    routes.tell_outcome: ("ID", "failure"),
    routes.close_trace: ("ID",),
    routes.traces: (),
    routes.trace: ("ID",),
    routes.evaluations: ("ID",),
    routes.bring_memory: ("text",),
    routes.memories: (),
    routes.memory: ("ID",),
    routes.update: ("ID",),
    routes.forget: ("ID",),
    routes.revisions: ("ID",),
    routes.links: ("ID",),
    routes.search: ("text",),
    playbooks.playbooks: (),
    playbooks.playbook: ("ID",),
    playbooks.export_playbook: ("ID",),
    playbooks.put_playbook: ("ID", ""),
    playbooks.configure_playbook: ("ID",),
    playbooks.delete_playbook: ("ID",),
    bullets.search_playbook: ("ID",),
    bullets.render_playbook: ("ID",),
    bullets.edit_playbook: ("ID", []),
    playbooks.playbook_history: ("ID",),
    playbooks.diff_playbook: ("ID", 1),
    playbooks.restore_playbook: ("ID", 1),
    playbooks.playbook_effects: ("ID",),
    playbooks.proposals: ("ID",),
    playbooks.accept_proposal: ("ID", "ID"),
    playbooks.reject_proposal: ("ID", "ID"),
    bullets.bullets: ("ID",),
    bullets.bullet: ("ID", "ID"),
    bullets.add_bullet: ("ID", "text"),
    bullets.update_bullet: ("ID", "ID"),
    bullets.delete_bullet: ("ID", "ID"),
    bullets.judge_bullet: ("ID", "ID", "helpful"),
    bullets.verdicts: ("ID", "ID"),
    bullets.provenance: ("ID", "ID"),
    routes.runs: (),
    routes.run: ("ID",),
    routes.retry_run: ("ID",),
    money.budgets: (),
    money.set_budgets: ([],),
    money.usage: (),
    account.keys: (),
    account.make_key: (),
    account.revoke_key: ("ID",),
    account.tenants: (),
    account.make_tenant: ("name",),
}
FILTERS: dict[Callable[..., Request[Any]], dict[str, Any]] = {
    routes.traces: {
        "project_id": "p", "outcome": "error", "state": "open", "task_key": "k", "playbook": "b",
    },
    routes.memories: {
        "project_id": "p", "kind": ["k"], "layer": ["rm"], "status": "active", "tag": ["t"],
        "trace_id": "t",
    },
    routes.runs: {"state": ["done"], "kind": "k", "project_id": "p", "trace_id": "t"},
    routes.send_trace: {"reflect": "never", "project_id": "p"},
    routes.forget: {"reason": "r"},
    playbooks.playbooks: {"project_id": "p", "deleted": True},
    playbooks.playbook: {"as_of": 3, "project_id": "p"},
    playbooks.put_playbook: {"reason": "r", "project_id": "p", "if_match": 3},
    playbooks.delete_playbook: {"reason": "r", "project_id": "p"},
    playbooks.playbook_history: {"project_id": "p"},
    playbooks.diff_playbook: {"last": 2, "project_id": "p"},
    playbooks.playbook_effects: {"project_id": "p"},
    playbooks.proposals: {"state": "accepted", "project_id": "p"},
    bullets.bullets: {"section": "s", "status": "archived", "tag": "t", "project_id": "p"},
    bullets.delete_bullet: {"reason": "r", "project_id": "p"},
    bullets.verdicts: {"project_id": "p"},
}  # fmt: skip


def requests() -> list[Request[Any]]:
    return [call(*given, **FILTERS.get(call, {})) for call, given in DESCRIBED.items()]


def spec_paths() -> dict[str, dict[str, Any]]:
    """The paths of the OpenAPI document, with `ID` for whatever stands in braces."""
    app = create_app(Settings.load(), "postgresql://nobody@localhost/none")
    return {re.sub(r"{\w+}", "ID", path): item for path, item in app.openapi()["paths"].items()}


def fields(hint: type) -> set[str]:
    return set(hint.__required_keys__) | set(hint.__optional_keys__)  # type: ignore[attr-defined]
