"""The SDK compared with the schemas and routes of the service."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel

from hansei import _flows, types
from hansei._request import Request
from hansei.cli.options import MemoryKind, RunState
from hansei.client import Methods
from hansei.endpoints import (
    account,
    agents,
    analytics,
    bullets,
    collections,
    memories,
    operations,
    playbooks,
    reflections,
    runs,
    webhooks,
)
from hansei.endpoints import traces as trace_requests
from memory_api.analytics import schemas as analytics_schemas
from memory_api.budgets import schemas as budgets_schemas
from memory_api.collections import schemas as collections_schemas
from memory_api.core.settings import Settings
from memory_api.erasures import schemas as erasures_schemas
from memory_api.evaluation import schemas as evaluation_schemas
from memory_api.grace import schemas as grace_schemas
from memory_api.main import create_app
from memory_api.maintenance import schemas as maintenance_schemas
from memory_api.maintenance.retention import schemas as retention_schemas
from memory_api.memories import schemas as memories_schemas
from memory_api.playbooks import models, sections
from memory_api.playbooks import schemas as playbooks_schemas
from memory_api.playbooks.bullets import schemas as bullets_schemas
from memory_api.playbooks.effects import schemas as effects_schemas
from memory_api.playbooks.history import schemas as history_schemas
from memory_api.playbooks.retrieval import schemas as retrieval_schemas
from memory_api.playbooks.verdicts import schemas as verdicts_schemas
from memory_api.reflection import schemas
from memory_api.reflection.trajectories import schemas as trajectories_schemas
from memory_api.reflection.transcripts import schemas as transcript_schemas
from memory_api.reflection.transcripts import schemas as transcripts_schemas
from memory_api.runs import schemas as runs_schemas
from memory_api.tenants import schemas as tenants_schemas
from memory_api.traces import schemas as traces_schemas
from memory_api.traces.tools import ToolDefinition
from memory_api.webhooks import schemas as webhooks_schemas
from memory_api.workflow import schemas as workflow_schemas
from tests.sdk.stub_service import RECORDED
from tests.support.cases import each_case

SHAPES: list[tuple[type, type[BaseModel], list[Any]]] = [
    (analytics.QuestionInfo, analytics_schemas.QuestionInfo, []),
    (analytics.QuestionList, analytics_schemas.QuestionList, []),
    (analytics.AnalyticsAnswer, analytics_schemas.AnalyticsAnswer, []),
    (bullets.BulletVersion, history_schemas.BulletVersion, []),
    (types.GenerateReflectionResponse, schemas.GenerateReflectionResponse, [RECORDED["generate"]]),
    (types.StrategySummary, schemas.StrategySummary, []),
    (types.CreateReflectionResponse, schemas.CreateReflectionResponse, [RECORDED["brought"]]),
    (types.QueryReflectionsResponse, schemas.QueryReflectionsResponse, [RECORDED["lessons"]]),
    (types.ReflectionHit, schemas.ReflectionHit, RECORDED["lessons"]["reflections"]),
    (types.Memory, memories_schemas.Memory, [RECORDED["memory"]]),
    (types.StoredMemory, memories_schemas.StoredMemory, []),
    (types.MemoryHit, memories_schemas.MemoryHit, [RECORDED["hit"]]),
    (
        types.SearchMemoriesResponse,
        memories_schemas.SearchMemoriesResponse,
        [{"results": [RECORDED["hit"]], "related": []}],
    ),
    (types.RelatedMemory, memories_schemas.RelatedMemory, []),
    (types.MemoryRevision, memories_schemas.MemoryRevision, [RECORDED["revision"]]),
    (types.MemoryLink, memories_schemas.MemoryLink, [RECORDED["link"]]),
    (types.Trace, traces_schemas.Trace, [RECORDED["trace"]]),
    (types.UpdatedTrace, traces_schemas.UpdatedTrace, []),
    (types.TraceWithEvents, traces_schemas.TraceWithEvents, [RECORDED["trace_detail"]]),
    (
        types.TraceEvaluation,
        evaluation_schemas.TraceEvaluation,
        [evaluation_schemas.EVALUATION_EXAMPLE],
    ),
    (types.ToolDefinition, ToolDefinition, []),
    (types.TraceEvent, traces_schemas.TraceEvent, RECORDED["trace_detail"]["events"]),
    (types.Run, runs_schemas.Run, [RECORDED["run_done"]]),
    *(
        (getattr(collections, name), getattr(collections_schemas, name), [])
        for name in (
            *("Collection", "Document", "RechunkedCollection"),
            *("ChunkHit", "SearchCollectionResponse"),
        )
    ),
    *(
        (getattr(agents, name), getattr(grace_schemas, name), [])
        for name in ("AgentRun", "PlanStepView", "Intervention", "AgentCalibration")
    ),
    (account.ApiKey, tenants_schemas.ApiKey, [RECORDED["key"]]),
    (account.CreateApiKeyResponse, tenants_schemas.CreateApiKeyResponse, [RECORDED["new_key"]]),
    (account.Tenant, tenants_schemas.Tenant, [RECORDED["tenant"]]),
    (reflections.ReflectOnTrajectoryResponse, trajectories_schemas.ReflectOnTrajectoryResponse, []),
    (reflections.ReflectOnTranscriptResponse, transcripts_schemas.ReflectOnTranscriptResponse, []),
    (reflections.RunWorkflowResponse, workflow_schemas.RunWorkflowResponse, []),
    (reflections.Trajectory, trajectories_schemas.Trajectory, []),
    (reflections.Insight, trajectories_schemas.Insight, []),
    (reflections.BulletEvaluation, trajectories_schemas.BulletEvaluation, []),
    (reflections.TranscriptTag, transcript_schemas.TranscriptTag, []),
    (reflections.TranscriptInsight, transcripts_schemas.TranscriptInsight, []),
    (reflections.ModelFailure, schemas.ModelFailure, []),
    (account.Budget, budgets_schemas.Budget, []),
    (account.BudgetLimit, budgets_schemas.BudgetLimit, []),
    (account.Usage, budgets_schemas.Usage, []),
    (operations.RetentionPolicy, retention_schemas.RetentionPolicy, []),
    (operations.RetentionPolicyRequest, retention_schemas.RetentionPolicyRequest, []),
    (operations.AffectedBullet, erasures_schemas.AffectedBullet, []),
    (operations.Erasure, erasures_schemas.Erasure, []),
    (webhooks.WebhookEndpoint, webhooks_schemas.WebhookEndpoint, []),
    (webhooks.CreateWebhookResponse, webhooks_schemas.CreateWebhookResponse, []),
    (webhooks.WebhookDelivery, webhooks_schemas.WebhookDelivery, []),
    (operations.MaintenanceSchedule, maintenance_schemas.MaintenanceSchedule, []),
    (
        account.CreateTenantResponse,
        tenants_schemas.CreateTenantResponse,
        [RECORDED["tenant"] | {"key": None}],
    ),
    (bullets.Bullet, models.Bullet, []),
    (bullets.StoredBullet, bullets_schemas.StoredBullet, []),
    (bullets.BulletReceipt, bullets_schemas.BulletReceipt, []),
    (bullets.BulletHit, retrieval_schemas.BulletHit, []),
    (bullets.SearchBulletsResponse, retrieval_schemas.SearchBulletsResponse, []),
    (bullets.RenderPlaybookResponse, retrieval_schemas.RenderPlaybookResponse, []),
    (bullets.Delta, models.DeltaContextItem, []),
    (bullets.DeltaResult, models.DeltaResult, []),
    (bullets.ApplyDeltasResponse, playbooks_schemas.ApplyDeltasResponse, []),
    (bullets.Verdict, verdicts_schemas.Verdict, []),
    (bullets.RecordVerdictResponse, verdicts_schemas.RecordVerdictResponse, []),
    (bullets.ProvenanceLink, history_schemas.ProvenanceLink, []),
    (bullets.Provenance, history_schemas.Provenance, []),
    (playbooks.SectionDefinition, sections.SectionDefinition, []),
    (playbooks.PlaybookSummary, playbooks_schemas.PlaybookSummary, []),
    (playbooks.PlaybookMetadata, models.PlaybookMetadata, []),
    (playbooks.ReplacePlaybookResponse, history_schemas.ReplacePlaybookResponse, []),
    (playbooks.PlaybookVersion, history_schemas.PlaybookVersion, []),
    (playbooks.ChangedBullet, history_schemas.ChangedBullet, []),
    (playbooks.PlaybookDiff, history_schemas.PlaybookDiff, []),
    (playbooks.RestorePlaybookResponse, history_schemas.RestorePlaybookResponse, []),
    (playbooks.OutcomeComparison, effects_schemas.OutcomeComparison, []),
    (playbooks.BulletEffect, effects_schemas.BulletEffect, []),
    (playbooks.Proposal, playbooks_schemas.Proposal, []),
]
OPTIONS: list[tuple[type, type[BaseModel], set[str]]] = [
    (
        reflections.GenerateReflectionOptions,
        schemas.GenerateReflectionRequest,
        {"events", "outcome"},
    ),
    (reflections.CreateReflectionOptions, schemas.CreateReflectionRequest, {"reflection_text"}),
    (reflections.QueryReflectionsOptions, schemas.QueryReflectionsRequest, {"query_text"}),
    (agents.CreateAgentRunOptions, grace_schemas.CreateAgentRunRequest, {"query"}),
    (collections.CreateCollectionOptions, collections_schemas.CreateCollectionRequest, {"name"}),
    (memories.CreateMemoryOptions, memories_schemas.CreateMemoryRequest, {"content"}),
    (memories.UpdateMemoryOptions, memories_schemas.UpdateMemoryRequest, set()),
    (memories.SearchMemoriesOptions, memories_schemas.SearchMemoriesRequest, {"query_text"}),
    (trace_requests.RecordOutcomeOptions, traces_schemas.RecordOutcomeRequest, {"outcome"}),
    (
        reflections.ReflectOnTrajectoryOptions,
        trajectories_schemas.ReflectOnTrajectoryRequest,
        {"trajectory"},
    ),
    (
        reflections.ReflectOnTranscriptOptions,
        transcripts_schemas.ReflectOnTranscriptRequest,
        {"messages"},
    ),
    (bullets.SearchBulletsOptions, retrieval_schemas.SearchBulletsRequest, {"query_text"}),
    (bullets.RenderPlaybookOptions, retrieval_schemas.RenderPlaybookRequest, {"query_text"}),
    (bullets.CreateBulletOptions, bullets_schemas.CreateBulletRequest, {"content"}),
    (bullets.UpdateBulletOptions, bullets_schemas.UpdateBulletRequest, set()),
    (bullets.RecordVerdictOptions, verdicts_schemas.RecordVerdictRequest, {"tag"}),
    (playbooks.UpdatePlaybookOptions, playbooks_schemas.UpdatePlaybookRequest, set()),
]
OTHERS = {"state"}
"""A field of the 202 response, which has no model."""


@each_case(("hint", "model", "recorded"), SHAPES)
def test_responses_have_the_fields_of_the_service(
    hint: type, model: type[BaseModel], recorded: list[Any]
) -> None:
    told = {field.alias or name for name, field in model.model_fields.items()}
    told |= set(model.model_computed_fields)
    assert fields(hint) - OTHERS == told - OTHERS
    for answer in recorded:
        model.model_validate(answer)  # the stub responds like the service


def test_types_are_named_like_the_components() -> None:
    names = {(hint.__name__, model.__name__) for hint, model, _ in SHAPES}
    assert {pair for pair in names if pair[0] != pair[1]} == {("Delta", "DeltaContextItem")}


@each_case(("hint", "model", "named"), OPTIONS)
def test_options_are_those_of_the_service(
    hint: type, model: type[BaseModel], named: set[str]
) -> None:
    assert fields(hint) | named == set(model.model_fields) - {
        "tenant_id"
    }  # the API key determines it


def test_choices_are_those_of_the_service() -> None:
    assert set(get_args(types.MemoryKind)) == set(memories_schemas.MemoryKind) == set(MemoryKind)
    run_states = {*_flows.FINISHED_STATES, *_flows.UNFINISHED_STATES}
    assert set(get_args(types.RunState)) == set(RunState) == run_states
    assert set(get_args(operations.MaintenanceTaskName)) == set(
        maintenance_schemas.MaintenanceTaskName
    )
    assert set(get_args(types.OutcomeType)) == set(traces_schemas.OutcomeType)
    assert set(get_args(types.ReflectMode)) == set(get_args(traces_schemas.ReflectMode.__value__))


def test_every_route_has_a_method_and_every_method_a_route() -> None:
    theirs = {(method.upper(), path) for path, item in spec_paths().items() for method in item}
    assert {(request.method, request.path) for request in requests()} == theirs
    names = {value.describe for value in vars(Methods).values() if hasattr(value, "describe")}
    several = {
        _flows.create_traces,
        _flows.wait_for_run,
        _flows.follow_chain,
        _flows.unfinished_runs,
        _flows.finished_runs,
        _flows.follow_agent_run,
        _flows.execute_plan_generator,
    }
    assert names == {*DESCRIBED, *several}


def test_query_parameters_are_known_to_the_service() -> None:
    paths = spec_paths()
    for request in requests():
        known = paths[request.path][request.method.lower()].get("parameters", [])
        assert {name for name, _ in request.params} <= {each["name"] for each in known}


DESCRIBED: dict[Callable[..., Request[Any]], tuple[Any, ...]] = {
    runs.get_health: (),
    runs.get_readiness: (),
    reflections.generate_reflection: ([], "failure"),
    reflections.create_reflection: ("text",),
    reflections.query_reflections: (),
    reflections.reflect_on_trajectory: ({},),
    reflections.reflect_on_transcript: ([],),
    reflections.run_workflow: ("query",),
    trace_requests.create_trace: ({},),
    trace_requests.list_trace_events: ("ID",),
    trace_requests.append_events: ("ID", []),
    trace_requests.record_outcome: ("ID", "failure"),
    trace_requests.close_trace: ("ID",),
    trace_requests.list_traces: (),
    trace_requests.get_trace: ("ID",),
    trace_requests.list_trace_evaluations: ("ID",),
    memories.create_memory: ("text",),
    memories.list_memories: (),
    memories.get_memory: ("ID",),
    memories.update_memory: ("ID",),
    memories.delete_memory: ("ID",),
    memories.list_memory_revisions: ("ID",),
    memories.list_memory_links: ("ID",),
    memories.search_memories: ("text",),
    playbooks.list_playbooks: (),
    playbooks.get_playbook: ("ID",),
    playbooks.export_playbook: ("ID",),
    playbooks.replace_playbook: ("ID", ""),
    playbooks.update_playbook: ("ID",),
    playbooks.delete_playbook: ("ID",),
    bullets.search_bullets: ("ID",),
    bullets.render_playbook: ("ID",),
    bullets.apply_deltas: ("ID", []),
    playbooks.list_playbook_versions: ("ID",),
    playbooks.diff_playbook: ("ID", 1),
    playbooks.restore_playbook: ("ID", 1),
    playbooks.list_bullet_effects: ("ID",),
    playbooks.list_proposals: ("ID",),
    playbooks.list_lessons: ("ID",),
    playbooks.consolidate_playbook: ("ID",),
    playbooks.accept_proposal: ("ID", "ID"),
    playbooks.reject_proposal: ("ID", "ID"),
    bullets.list_bullets: ("ID",),
    bullets.get_bullet: ("ID", "ID"),
    bullets.create_bullet: ("ID", "text"),
    bullets.update_bullet: ("ID", "ID"),
    bullets.delete_bullet: ("ID", "ID"),
    bullets.record_verdict: ("ID", "ID", "helpful"),
    bullets.list_verdicts: ("ID", "ID"),
    bullets.get_bullet_provenance: ("ID", "ID"),
    bullets.list_bullet_versions: ("ID", "ID"),
    analytics.list_questions: (),
    analytics.get_analytics: ("ID",),
    analytics.get_analytics_csv: ("ID",),
    agents.create_agent_run: ("q",),
    agents.list_agent_runs: (),
    agents.get_agent_run: ("ID",),
    agents.get_agent_execution: ("ID",),
    agents.stream_agent_events: ("ID",),
    agents.list_interventions: ("ID",),
    agents.answer_intervention: ("ID", "ID", "proceed"),
    agents.cancel_agent_run: ("ID",),
    agents.record_agent_feedback: ("ID", "right"),
    agents.get_calibration: (),
    agents.reset_agent_calibration: (),
    collections.create_collection: ("ID",),
    collections.list_collections: (),
    collections.get_collection: ("ID",),
    collections.delete_collection: ("ID",),
    collections.rechunk_collection: ("ID", 64),
    collections.search_collection: ("ID", "text"),
    collections.add_document: ("ID", b"text"),
    collections.list_documents: ("ID",),
    collections.get_document: ("ID", "ID"),
    collections.delete_document: ("ID", "ID"),
    runs.list_runs: (),
    runs.get_run: ("ID",),
    runs.retry_run: ("ID",),
    account.list_budgets: (),
    account.replace_budgets: ([],),
    account.list_usage: (),
    account.list_api_keys: (),
    account.list_audit_log: (),
    account.create_api_key: (),
    account.revoke_api_key: ("ID",),
    account.list_tenants: (),
    account.create_tenant: ("name",),
    operations.list_retention: (),
    operations.replace_retention: ([],),
    operations.create_erasure: ("memory", "ID"),
    operations.list_erasures: (),
    operations.get_erasure: ("ID",),
    webhooks.create_webhook: ("https://example.com",),
    webhooks.list_webhooks: (),
    webhooks.update_webhook: ("ID",),
    webhooks.rotate_webhook_secret: ("ID",),
    webhooks.send_test_event: ("ID",),
    webhooks.delete_webhook: ("ID",),
    webhooks.list_webhook_deliveries: ("ID",),
    webhooks.replay_webhook_delivery: ("ID", "ID"),
    operations.suspend_tenant: ("ID",),
    operations.resume_tenant: ("ID",),
    operations.export_tenant: (),
    trace_requests.delete_trace: ("ID",),
    operations.list_maintenance_tasks: (),
    operations.start_maintenance: ("ID",),
}
FILTERS: dict[Callable[..., Request[Any]], dict[str, Any]] = {
    trace_requests.list_traces: {
        "project_id": "p", "outcome": "error", "state": "open", "task_key": "k", "playbook": "b",
    },
    memories.list_memories: {
        "project_id": "p", "kind": ["k"], "layer": ["rm"], "status": "active", "tag": ["t"],
        "trace_id": "t",
    },
    agents.list_agent_runs: {"project_id": "p", "state": "done"},
    agents.stream_agent_events: {"follow": False},
    agents.get_calibration: {"project_id": "p"},
    agents.reset_agent_calibration: {"project_id": "p"},
    collections.list_collections: {"project_id": "p"},
    collections.get_collection: {"project_id": "p"},
    collections.delete_collection: {"project_id": "p"},
    collections.rechunk_collection: {"project_id": "p"},
    collections.search_collection: {"project_id": "p"},
    collections.add_document: {"project_id": "p", "source": "s", "title": "t"},
    collections.list_documents: {"project_id": "p", "state": "done"},
    collections.get_document: {"project_id": "p"},
    collections.delete_document: {"project_id": "p"},
    runs.list_runs: {"state": ["done"], "kind": "k", "project_id": "p", "trace_id": "t"},
    account.list_audit_log: {"action": "a"},
    trace_requests.create_trace: {"reflect": "never", "project_id": "p"},
    memories.delete_memory: {"reason": "r"},
    trace_requests.delete_trace: {"reason": "r"},
    playbooks.list_playbooks: {"project_id": "p", "deleted": True},
    playbooks.get_playbook: {"as_of": 3, "project_id": "p"},
    playbooks.replace_playbook: {"reason": "r", "project_id": "p", "if_match": 3, "dry_run": True},
    playbooks.restore_playbook: {"dry_run": True},
    playbooks.accept_proposal: {"dry_run": True},
    bullets.apply_deltas: {"dry_run": True},
    playbooks.delete_playbook: {"reason": "r", "project_id": "p"},
    playbooks.list_playbook_versions: {"project_id": "p"},
    playbooks.diff_playbook: {"to_version": 2, "project_id": "p"},
    playbooks.list_bullet_effects: {"since": "2026-10-01", "until": "2026-11-01"},
    playbooks.list_proposals: {"state": "accepted", "project_id": "p"},
    playbooks.list_lessons: {"decision": "rejected", "project_id": "p"},
    playbooks.consolidate_playbook: {"project_id": "p"},
    bullets.list_bullets: {"section": "s", "status": "archived", "tag": "t", "project_id": "p"},
    bullets.delete_bullet: {"reason": "r", "project_id": "p"},
    bullets.list_verdicts: {"project_id": "p"},
}  # fmt: skip


def requests() -> list[Request[Any]]:
    return [call(*given, **FILTERS.get(call, {})) for call, given in DESCRIBED.items()]


def spec_paths() -> dict[str, dict[str, Any]]:
    """The paths of the OpenAPI document, with `ID` for each parameter."""
    app = create_app(Settings.load(), "postgresql://nobody@localhost/none")
    return {re.sub(r"{\w+}", "ID", path): item for path, item in app.openapi()["paths"].items()}


def fields(hint: type) -> set[str]:
    return set(hint.__required_keys__) | set(hint.__optional_keys__)  # type: ignore[attr-defined]
