"""Custom prompts of the operator: which file applies, the templates of spec 5, and what a mistake
in a file leads to."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from memory_api.bootstrap import report_prompt_problems
from memory_api.core.settings import Settings
from memory_api.runtime import load_tenant_prompt
from tests.support.model_service import GOOD, Serve, answer, trace

SPEC_FAILURE_DATA = """Task Goal: {task_goal}
Task Description: {task_description}

Execution Events:
{events}

Error Information:
- Category: {error_category}
- Message: {error_message}
- Context: {error_context}

Provide your analysis as a structured JSON with reflection, strategy, importance, confidence, tags.
"""
"""The placeholders of the document's failure prompt."""


def write(folder: Path, name: str, text: str) -> None:
    path = folder / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


async def test_template_of_the_document_is_filled_in(serve: Serve, tmp_path: Path) -> None:
    write(tmp_path, "reflection/failure", SPEC_FAILURE_DATA)
    service = await serve(prompts_dir=tmp_path)
    documented = {
        "reflection": "The fetch met its limit.",
        "strategy": "Ask for pages when fetch times out.",
        "importance": 0.7,
        "confidence": 0.6,
        "tags": ["fetch"],
    }
    service.stub.behave = lambda call: answer(documented)
    body = await service.learn()
    assert body["reflection_text"] == documented["reflection"]
    assert body["strategy_text"] == documented["strategy"]
    shown = service.stub.calls[0].text
    for text in ("- Category: timeout_error", "fetch gave up after 30 s", '{"attempt": "second"}'):
        assert text in shown, text
    await service.learn(error=None, events=[{"event_type": "user_message", "content": "x"}])
    assert "- Message: (none)" in service.stub.calls[1].text


async def test_unknown_placeholder_is_422_and_the_error_of_the_run(
    serve: Serve, tmp_path: Path
) -> None:
    write(tmp_path, "reflection/failure", "{events} {goal_of_task}")
    service = await serve(prompts_dir=tmp_path)
    reply = await service.generate()
    assert reply.status_code == 422
    problem = reply.json()
    assert problem["code"] == "prompt_invalid"
    assert "reflection/failure.txt" in problem["detail"]
    assert "`{goal_of_task}`" in problem["detail"]
    assert str(tmp_path) not in problem["detail"], "paths of the server are not public"
    (run,) = await service.runs()
    assert run.error is not None
    assert run.error["code"] == "prompt_invalid"
    assert "`{goal_of_task}`" in run.error["message"]
    assert service.stub.calls == []


def test_problems_are_named_at_startup(tmp_path: Path) -> None:
    write(tmp_path, "reflection/failure", "{events} {goal_of_task}")
    with capture_logs() as logs:
        report_prompt_problems(Settings(prompts_dir=tmp_path))
    (entry,) = logs
    assert entry["event"] == "custom_prompt_invalid"
    assert "{goal_of_task}" in entry["problem"]


@pytest.mark.parametrize("folder", ["acme", "acme.corp"])
def test_folder_of_a_tenant_is_its_slug(tmp_path: Path, folder: str) -> None:
    from memory_api.core.ids import to_tenant_id  # noqa: PLC0415

    write(tmp_path / folder / "web", "workflow/answer", "By slug: {query}")
    write(tmp_path, "workflow/answer", "For all: {query}")
    settings = Settings(prompts_dir=tmp_path)

    def text(tenant: str) -> str:
        tenant_id = to_tenant_id(tenant)
        return load_tenant_prompt(settings, "workflow/answer", tenant_id, "web").text

    assert text(folder) == "By slug: {query}"
    assert text("other") == "For all: {query}"


async def test_packaged_data_section_can_be_replaced(serve: Serve, tmp_path: Path) -> None:
    write(tmp_path, "reflection/data", "Only the events:\n{events}\n")
    service = await serve(prompts_dir=tmp_path)
    await service.learn()
    call = service.stub.calls[0]
    assert call.system.startswith("# A failed run")
    assert call.user.startswith("Only the events:\n<events-")
    assert trace()["task_goal"] not in call.text
    assert GOOD["reflection"] not in call.text
