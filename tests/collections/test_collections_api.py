"""Collections over HTTP, with a worker that loads their documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text

from memory_api.collections import step as chunk_step
from memory_api.run_queue.port import Ticket
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.support.pdf import encrypt_pdf, make_pdf
from tests.support.problems import assert_problem

URL = "/api/v1/collections"
REFUNDS = """# Refunds

A pending order cannot be refunded. Cancel it instead.

## Delivered orders

A delivered order is refunded within thirty days. Ask for the receipt.
"""


@pytest.fixture
async def handbook(api: AsyncClient) -> str:
    body = {"name": "handbook", "description": "Rules", "chunk_tokens": 64}
    assert (await api.post(URL, json=body)).status_code == 201
    return f"{URL}/handbook"


async def add(api: AsyncClient, url: str, data: bytes | str, source: str) -> dict[str, Any]:
    content = data.encode() if isinstance(data, str) else data
    answer = await api.post(f"{url}/documents", params={"source": source}, content=content)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def find(api: AsyncClient, url: str, query: str) -> list[dict[str, Any]]:
    answer = await api.post(f"{url}/search", json={"query_text": query})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


async def test_document_is_found_with_its_place(api, tenant, drain, handbook: str) -> None:
    document = await add(api, handbook, REFUNDS, "refunds.md")
    assert (document["state"], document["progress"]) == ("queued", 0)
    await drain(tenant.id)
    document = (await api.get(f"{handbook}/documents/{document['id']}")).json()
    assert (document["state"], document["progress"], document["chunk_count"]) == ("done", 1, 2)
    hit = (await find(api, handbook, "refund of a delivered order"))[0]
    assert hit["title"] == "refunds.md › Refunds › Delivered orders"
    assert REFUNDS[hit["start"] : hit["end"]] == hit["content"]
    assert (hit["source"], hit["page"]) == ("refunds.md", 1)
    everywhere = await api.post(
        "/api/v1/search", json={"query_text": "delivered order", "kinds": ["chunk"]}
    )
    assert everywhere.json()["results"][0]["memory"]["layer"] == "sm"
    collection = (await api.get(handbook)).json()
    assert (collection["document_count"], collection["chunk_count"]) == (1, 2)


async def test_same_document_again_changes_nothing(api, tenant, drain, handbook: str) -> None:
    first = await add(api, handbook, REFUNDS, "refunds.md")
    await drain(tenant.id)
    again = await add(api, handbook, REFUNDS, "refunds.md")
    assert (again["id"], again["run_id"]) == (first["id"], first["run_id"])
    assert await drain(tenant.id) == 0


async def test_changed_document_replaces_its_chunks(api, tenant, drain, handbook: str) -> None:
    first = await add(api, handbook, REFUNDS, "refunds.md")
    await drain(tenant.id)
    changed = await add(api, handbook, "# Refunds\n\nNo refunds on Sundays.\n", "refunds.md")
    assert changed["id"] == first["id"]
    await drain(tenant.id)
    hits = await find(api, handbook, "delivered order receipt Sundays")
    assert [hit["content"] for hit in hits] == ["No refunds on Sundays."]


async def test_rechunk_and_delete(api, tenant, drain, handbook: str) -> None:
    long = "\n\n".join(f"Rule {n} says that order {n} is refunded on day {n}." for n in range(60))
    document = await add(api, handbook, long, "rules.txt")
    await drain(tenant.id)
    before = (await api.get(handbook)).json()["chunk_count"]
    answer = await api.post(f"{handbook}/rechunk", json={"chunk_tokens": 512})
    assert answer.json() == {"chunk_tokens": 512, "document_count": 1}
    await drain(tenant.id)
    collection = (await api.get(handbook)).json()
    assert 0 < collection["chunk_count"] < before
    assert {h["document_id"] for h in await find(api, handbook, "rule 7")} == {document["id"]}
    assert (await api.delete(f"{handbook}/documents/{document['id']}")).status_code == 204
    await drain(tenant.id)
    assert await find(api, handbook, "rule 7") == []
    assert (await api.get(f"{handbook}/documents")).json()["items"] == []
    await add(api, handbook, long, "rules.txt")
    assert (await api.delete(handbook)).status_code == 204
    assert_problem(await api.get(handbook), 404, "not_found")
    assert_problem(await api.post(URL, json={"name": "handbook"}), 409, "conflict")
    await drain(tenant.id)
    assert (await api.post(URL, json={"name": "handbook"})).status_code == 201
    assert (await api.get(handbook)).json()["chunk_count"] == 0


@pytest.mark.parametrize(
    ("data", "source", "code"),
    [
        (b"", "empty.txt", "empty"),
        (b"%PDF-1.7 broken", "a.pdf", "broken_pdf"),
        (encrypt_pdf(make_pdf(["Secret"])), "a.pdf", "encrypted"),
    ],
)
async def test_unreadable_document_fails_with_reason(
    api, tenant, drain, handbook: str, data: bytes, source: str, code: str
) -> None:
    document = await add(api, handbook, data, source)
    await drain(tenant.id)
    document = (await api.get(f"{handbook}/documents/{document['id']}")).json()
    assert (document["state"], document["error"]["code"]) == ("failed", code)
    repaired = await add(api, handbook, make_pdf(["Now it can be read"]), source)
    assert repaired["id"] == document["id"]
    await drain(tenant.id)
    assert (await find(api, handbook, "can be read"))[0]["page"] == 1


async def test_bad_requests(api, http, make_tenant, handbook: str) -> None:
    too_large = b"x" * (50 * 1024 * 1024 + 1)
    answer = await api.post(f"{handbook}/documents", params={"source": "a.txt"}, content=too_large)
    assert_problem(answer, 413, "too_large")
    answer = await api.post(
        f"{handbook}/documents", content=b"PK", headers={"Content-Type": "image/png"}
    )
    assert_problem(answer, 415, "unsupported_media_type")
    assert_problem(await api.post(URL, json={"name": "handbook"}), 409, "conflict")
    assert_problem(await api.post(URL, json={"name": "a/b"}), 422, "invalid")
    assert_problem(await api.get(f"{URL}/other"), 404, "not_found")
    other = (await make_tenant()).auth()
    assert_problem(await http.get(handbook, headers=other), 404, "not_found")
    answer = await http.post(f"{handbook}/search", json={"query_text": "x"}, headers=other)
    assert_problem(answer, 404, "not_found")


async def test_secrets_are_not_stored(api, tenant, drain, handbook: str, runtime: Runtime) -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4" * 12
    await add(api, handbook, f"The key is {secret} today.", "key.txt")
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for statement in ("select text from document_pages", "select content from memories"):
            assert secret not in str((await session.scalars(text(statement))).all())
        assert await session.scalar(text("select count(*) from document_parts")) == 0


async def test_killed_run_continues_after_its_last_batch(
    api, tenant, drain, handbook: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_of_rules = "\n\n".join(f"Rule {n}: order {n} goes to depot {n}." * 5 for n in range(40))
    document = await add(api, handbook, text_of_rules, "rules.txt")
    monkeypatch.setattr(chunk_step, "BATCH_CHUNKS", 8)
    insert, calls = chunk_step.insert_memories, 0

    async def fail_at_third_batch(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("killed")
        return await insert(*args)

    monkeypatch.setattr(chunk_step, "insert_memories", fail_at_third_batch)
    await drain(tenant.id)
    monkeypatch.undo()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        stored = await session.scalar(text("select stored_chunk_count from documents"))
        assert stored == 16
    await process_ticket(runtime, Ticket(tenant.id, UUID(document["run_id"])))
    done = (await api.get(f"{handbook}/documents/{document['id']}")).json()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        count = await session.scalar(
            text("select count(*) from memories where kind = 'chunk' and status = 'active'")
        )
        numbers = await session.scalar(
            text("select count(distinct metadata->>'number') from memories where kind = 'chunk'")
        )
    assert done["state"] == "done"
    assert count == numbers == done["chunk_count"]


async def test_document_of_a_dead_run_is_failed_with_the_reason(
    api, tenant, drain, handbook: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = await add(api, handbook, REFUNDS, "refunds.md")

    async def break_down(*_: Any) -> None:
        raise RuntimeError("The disk is on fire.")

    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(text("update runs set max_attempts = 1"))
    monkeypatch.setattr(chunk_step, "insert_memories", break_down)
    await drain(tenant.id)
    url = f"{handbook}/documents/{document['id']}"
    failed = (await api.get(url)).json()
    assert (failed["state"], failed["error"]["code"]) == ("failed", "not_loaded")
    assert failed["error"]["message"].startswith("The worker could not load it: ")
    monkeypatch.undo()
    retried = await api.post(f"/api/v1/runs/{document['run_id']}/retry")
    assert retried.status_code == 202, retried.text
    await drain(tenant.id)
    done = (await api.get(url)).json()
    assert (done["state"], done["error"], done["chunk_count"]) == ("done", None, 2)


async def test_document_of_the_largest_size_is_streamed(
    api, tenant, handbook: str, runtime: Runtime
) -> None:
    """50 MB in parts, without a content length."""
    part = b"A pending order is not refunded. " * (1024 * 1024 // 33) + b"x" * (1024 * 1024 % 33)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield part

    answer = await api.post(f"{handbook}/documents", params={"source": "a.txt"}, content=parts())
    assert answer.status_code == 202, answer.text
    assert answer.json()["byte_count"] == 50 * 1024 * 1024
    async with runtime.sessions.for_tenant(tenant.id) as session:
        stored = await session.scalar(text("select sum(length(data)) from document_parts"))
    assert stored == 50 * 1024 * 1024
