"""What the owner of a playbook wants it to keep: one sentence that the learning models read."""

from __future__ import annotations

from typing import Any

from httpx2 import AsyncClient

from tests.support.cases import each_case
from tests.support.model_service import Serve, trace
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

FOCUS = "Conventions of our accounting."


async def test_focus_is_set_changed_and_removed(api: AsyncClient) -> None:
    book = Book(api)
    made = await api.patch(book.url, json={"focus": f"  {FOCUS} "})
    assert (made.status_code, made.json()["focus"]) == (200, FOCUS), "it creates the playbook"
    assert made.json()["version"] == 1
    again = await api.patch(book.url, json={"focus": FOCUS})
    assert again.json()["version"] == 1
    await api.patch(book.url, json={"token_budget": 500})
    (listed,) = (await api.get("/api/v1/playbooks")).json()["items"]
    assert listed["focus"] == FOCUS
    removed = await api.patch(book.url, json={"focus": None})
    assert removed.json()["focus"] is None


@each_case("bad", ["", "   ", "x" * 301, "two\nlines", "tab\there", 7, ["a"], "bell \a"])
async def test_bad_focus_is_refused(api: AsyncClient, bad: Any) -> None:
    book = Book(api)
    answer = await api.patch(book.url, json={"focus": bad})
    problem = assert_problem(answer, 422, "invalid")
    assert "focus" in problem["detail"]
    assert (await api.get(book.url)).status_code == 404


async def test_models_that_learn_read_the_focus(serve: Serve) -> None:
    service = await serve("openai", reflection_batch_size=1)
    await service.api.patch("/api/v1/playbooks/reports", json={"focus": FOCUS})
    await service.learn(playbook="reports")
    for run in reversed(await service.runs()):
        await service.deliver_ticket(run.id)
    prompts = [call.user for call in service.stub.calls]
    assert len(prompts) >= 2, "reflection and curation"
    assert all(f"in the words of its owner: {FOCUS}\n" in prompt for prompt in prompts)
    service.stub.calls.clear()
    await service.learn(**trace(playbook="others", task_description="Another report"))
    assert "in the words of its owner" not in service.stub.calls[0].text
