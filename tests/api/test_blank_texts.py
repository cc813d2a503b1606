"""A text of spaces is refused with one sentence, whatever the route."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.support.cases import each_case

BLANK = " \n\u3000"
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "memory": ("/api/v1/memories", {"memory_type": "semantic", "content": BLANK}, "content"),
    "reflection": ("/api/v1/reflections", {"reflection_text": BLANK}, "reflection_text"),
    "strategy": (
        "/api/v1/reflections",
        {"reflection_text": "The call failed.", "strategy_text": BLANK},
        "strategy_text",
    ),
    "bullet": ("/api/v1/playbooks/desk/bullets", {"content": BLANK}, "content"),
    "search": ("/api/v1/collections/handbook/search", {"query_text": BLANK}, "query_text"),
    "question": ("/api/v1/agents/runs", {"query": BLANK}, "query"),
    "workflow": ("/api/v1/workflow/run", {"query": BLANK}, "query"),
}


@each_case("name", REFUSED)
async def test_blank_text_is_refused(api: httpx2.AsyncClient, name: str) -> None:
    url, body, field = REFUSED[name]
    answer = await api.post(url, json=body)
    assert answer.status_code == 422, answer.text
    problems = {each["field"]: each["message"] for each in answer.json()["errors"]}
    assert problems[field] == "Must not be empty."


async def test_blank_text_does_not_replace_a_bullet(api: httpx2.AsyncClient) -> None:
    await api.post("/api/v1/playbooks/desk/bullets", json={"content": "Ask first."})
    url = "/api/v1/playbooks/desk/bullets/oth-00001"
    answer = await api.patch(url, json={"content": BLANK})
    assert answer.status_code == 422
    assert "content: Must not be empty." in answer.json()["detail"]
    assert (await api.get(url)).json()["content"] == "Ask first."
