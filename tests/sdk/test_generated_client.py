"""The client against the OpenAPI document: generated files, resources and recorded answers."""

from __future__ import annotations

import inspect
import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from hansei import AsyncHansei, Hansei, _flows, _operations, models
from hansei.cli.options import MemoryKind, RunState
from hansei.resources import Resources
from memory_api.evaluation import schemas as evaluation_schemas
from memory_api.memories import schemas as memories_schemas
from memory_api.reflection import schemas as reflection_schemas
from memory_api.runs import schemas as runs_schemas
from memory_api.tenants import schemas as tenants_schemas
from memory_api.traces import schemas as traces_schemas
from sdk.generator.__main__ import PACKAGE, generate
from sdk.generator.names import RESOURCES
from sdk.generator.schemas import operations
from tests.sdk.stub_service import RECORDED
from tests.support.cases import each_case
from tests.support.paths import ROOT

DOCUMENT = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
BY_HAND = {
    *("get_playbook", "replace_playbook", "diff_playbook", "restore_playbook", "add_document"),
    *("get_readiness", "stream_agent_events"),
}
"""Operations that a function of `_operations.py` or `_flows.py` sends."""


def test_files_are_current() -> None:
    """`make client` writes them."""
    for name, text in generate().items():
        assert (PACKAGE / name).read_text(encoding="utf-8") == text, name


def test_every_operation_is_a_method() -> None:
    named = {
        value.partition(":")[0] for methods in RESOURCES.values() for value in methods.values()
    }
    functions = {*vars(_operations), *vars(_flows)}
    expected = {operation["operationId"] for _, _, operation in operations(DOCUMENT)}
    assert named - functions == expected - BY_HAND
    assert expected >= BY_HAND


@each_case("path", list(RESOURCES))
def test_sync_and_async_resources_are_the_same(path: str) -> None:
    sync: Any = Hansei("http://hansei.test", "key")
    other: Any = AsyncHansei("http://hansei.test", "key")
    for name in path.split("."):
        sync, other = getattr(sync, name), getattr(other, name)
    for name in RESOURCES[path]:
        one, two = getattr(sync, name), getattr(other, name)
        assert inspect.signature(one).parameters == inspect.signature(two).parameters
        assert len(inspect.getdoc(one) or "") > 20


def test_no_method_is_flat() -> None:
    names = {name for name in vars(Resources) if not name.startswith("_")}
    assert names == {path for path in RESOURCES if "." not in path}


RECORDED_MODELS: list[tuple[type[models.Model], type[BaseModel], Any]] = [
    (
        models.GenerateReflectionResponse,
        reflection_schemas.GenerateReflectionResponse,
        RECORDED["generate"],
    ),
    (
        models.CreateReflectionResponse,
        reflection_schemas.CreateReflectionResponse,
        RECORDED["brought"],
    ),
    (
        models.QueryReflectionsResponse,
        reflection_schemas.QueryReflectionsResponse,
        RECORDED["lessons"],
    ),
    (models.Memory, memories_schemas.Memory, RECORDED["memory"]),
    (models.MemoryHit, memories_schemas.MemoryHit, RECORDED["hit"]),
    (models.MemoryRevision, memories_schemas.MemoryRevision, RECORDED["revision"]),
    (models.MemoryLink, memories_schemas.MemoryLink, RECORDED["link"]),
    (models.Trace, traces_schemas.Trace, RECORDED["trace"]),
    (models.TraceWithEvents, traces_schemas.TraceWithEvents, RECORDED["trace_detail"]),
    (
        models.TraceEvaluation,
        evaluation_schemas.TraceEvaluation,
        evaluation_schemas.EVALUATION_EXAMPLE,
    ),
    (models.Run, runs_schemas.Run, RECORDED["run_done"]),
    (models.ApiKey, tenants_schemas.ApiKey, RECORDED["key"]),
    (models.CreateApiKeyResponse, tenants_schemas.CreateApiKeyResponse, RECORDED["new_key"]),
]


@each_case(("model", "schema", "recorded"), RECORDED_MODELS)
def test_stub_answers_like_the_service(
    model: type[models.Model], schema: type[BaseModel], recorded: Any
) -> None:
    TypeAdapter(schema).validate_python(recorded)
    assert model.from_json(recorded).model_dump() == recorded


def test_choices_are_those_of_the_service() -> None:
    assert set(get_args(models.MemoryKind)) == set(MemoryKind)
    run_states = {*_flows.FINISHED_STATES, *_flows.UNFINISHED_STATES}
    assert set(get_args(models.RunState)) == set(RunState) == run_states


def test_model_of_a_newer_service_keeps_its_fields() -> None:
    run = models.Run.from_json({**RECORDED["run_done"], "mood": "good"})
    assert run.model_dump()["mood"] == "good"
    assert "state='done'" in repr(run)
    with pytest.raises(AttributeError):
        _ = run.kindd  # type: ignore[attr-defined]


def test_field_that_is_a_keyword_has_an_underscore() -> None:
    compared = {"with": {"runs": 1, "successes": 1, "rate": 1.0}, "without": {}}
    comparison = models.OutcomeComparison.from_json(compared)
    assert comparison.with_.rate == 1.0
    assert comparison.model_dump() == compared
