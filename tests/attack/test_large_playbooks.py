"""A very large playbook does not block its own tenant (M7)."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

from sqlalchemy import select, text

from memory_api.curation import cleanup
from memory_api.memories.index import drafts
from memory_api.playbooks.editing import plan
from memory_api.playbooks.formats import transfer
from memory_api.playbooks.tables import PlaybookRow
from memory_api.runs.tables import RunRow
from tests.support.problems import assert_problem

URL = "/api/v1/playbooks/large"
WORDS = [
    *("anchor", "bridge", "candle", "desert", "engine", "forest"),
    *("garden", "harbor", "island", "jungle", "kettle", "lantern"),
]


def bullets(texts: list[str]) -> dict[str, Any]:
    return {"deltas": [{"type": "ADD", "section": "pat", "content": text} for text in texts]}


async def test_playbook_has_a_highest_number_of_bullets(api, monkeypatch) -> None:
    monkeypatch.setattr(plan, "MAX_ACTIVE_BULLETS", 3)
    texts = [f"Inspect the {word} before you continue" for word in WORDS]
    (await api.post(f"{URL}/deltas", json=bullets(texts[:3]))).raise_for_status()
    problem = assert_problem(
        await api.post(f"{URL}/deltas", json=bullets(texts[3:4])), 409, "playbook_full"
    )
    assert "more than 3 active bullets" in problem["detail"]
    (await api.patch(f"{URL}/bullets/pat-00001", json={"content": "Wait"})).raise_for_status()


async def test_import_of_too_many_bullets_is_refused_at_once(api, monkeypatch) -> None:
    monkeypatch.setattr(transfer, "MAX_ACTIVE_BULLETS", 3)
    document = {"bullets": [{"id": f"pat-0000{n}", "section": "pat", "content": word}
                            for n, word in enumerate(WORDS[:4], 1)]}  # fmt: skip
    problem = assert_problem(await api.put(URL, json=document), 422, "invalid")
    assert "at most 3 active bullets, this one 4" in str(problem)
    document["bullets"][0]["status"] = "archived"
    (await api.put(URL, json=document)).raise_for_status()


async def test_import_of_a_large_playbook_leaves_the_event_loop_to_others(api, monkeypatch) -> None:
    """20,000 bullets stopped all requests of a process for seven seconds."""
    threads: list[bool] = []
    original = drafts.document_weights

    def record(text: str) -> dict[int, float]:
        threads.append(threading.current_thread() is threading.main_thread())
        return original(text)

    monkeypatch.setattr(drafts, "document_weights", record)
    long = "word " * 600
    document = {
        "bullets": [
            {"id": f"pat-{n:05}", "section": "pat", "content": f"{n} {long}"} for n in range(100)
        ]
    }
    (await api.put(URL, json=document)).raise_for_status()
    assert len(threads) >= 100
    assert not any(threads)


async def test_cleanup_is_queued_once(api, tenant, runtime, drain) -> None:
    texts = [f"Inspect the {word} before you continue" for word in WORDS[:3]]
    (
        await api.post(f"{URL}/deltas", json=bullets([*texts, texts[0].replace("I", "i") + "."]))
    ).raise_for_status()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await cleanup.enqueue_cleanups(runtime, session) == 1
        assert await cleanup.enqueue_cleanups(runtime, session) == 0, "one waits already"
        run = await session.scalar(select(RunRow).where(RunRow.kind == cleanup.CLEANUP))
        assert run is not None
        run.state = "running"
        await session.flush()
        assert await cleanup.enqueue_cleanups(runtime, session) == 0, "one runs already"
        run.state = "queued"
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        playbook = await session.scalar(select(PlaybookRow))
        assert playbook is not None
        assert (playbook.active_count, playbook.cleaned_version) == (3, playbook.version)


async def test_cleanups_of_a_tenant_follow_each_other(api, tenant, runtime, drain) -> None:
    """One slot for all of them, also if one of them fails."""
    names = [f"large-{number}" for number in range(4)]
    duplicates = bullets([f"Inspect the {WORDS[0]}", f"inspect the {WORDS[0]}."])
    for name in names:
        (await api.post(f"/api/v1/playbooks/{name}/deltas", json=duplicates)).raise_for_status()
    cleanups = select(RunRow).where(RunRow.tenant_id == tenant.id, RunRow.kind == cleanup.CLEANUP)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await cleanup.enqueue_cleanups(runtime, session) == len(names)
        (run,) = await session.scalars(cleanups)
        failing, run.max_attempts = run.input["playbook"], 1
    (await api.delete(f"/api/v1/playbooks/{failing}")).raise_for_status()
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        runs = (await session.scalars(cleanups.order_by(RunRow.created_at))).all()
        states = [(run.input["playbook"], run.state) for run in runs]
        times = [(run.started_at, run.finished_at) for run in runs]
        books = await session.scalars(select(PlaybookRow).where(PlaybookRow.deleted_at.is_(None)))
        assert {book.active_count for book in books} == {1}
    assert states == [(failing, "dead"), *((n, "done") for n in names if n != failing)]
    assert all(ended <= started for (_, ended), (started, _) in pairwise(times))


async def test_deleted_playbook_leaves_search_and_can_be_restored(api, tenant, runtime) -> None:
    texts = [f"Inspect the {word} before you continue" for word in WORDS[:4]]
    (await api.post(f"{URL}/deltas", json=bullets(texts))).raise_for_status()
    (await api.delete(f"{URL}/bullets/pat-00002")).raise_for_status()
    (await api.delete(URL, params={"reason": "Moved."})).raise_for_status()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for table in ("memory_vectors", "postings"):
            rows = text(f"select count(*) from {table} where tenant_id = :tenant")
            assert await session.scalar(rows, {"tenant": tenant.id}) == 0, table
        total = text("select coalesce(sum(delta), 0) from scope_stats where tenant_id = :tenant")
        assert await session.scalar(total, {"tenant": tenant.id}) == 0
    (await api.post(f"{URL}/restore", json={"version": 2})).raise_for_status()
    found = await api.post(f"{URL}/search", json={"query_text": "inspect"})
    assert {hit["bullet"]["id"] for hit in found.json()["results"]} == {
        *("pat-00001", "pat-00003", "pat-00004"),
    }
    history = (await api.get(f"{URL}/bullets/pat-00001/versions")).json()["items"]
    assert [version["change_type"] for version in history] == ["created", "deleted", "restored"]
    assert history[1]["reason"] == "Moved."
