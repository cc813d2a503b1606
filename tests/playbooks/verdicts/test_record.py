"""Verdicts over the rows: one winner per run, and counters that follow it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from memory_api.core.ids import new_id
from memory_api.playbooks.queries import find_bullets, get_playbook, list_verdicts_of_trace
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.usefulness import usefulness
from memory_api.playbooks.verdicts.record import (
    JUDGE_PRECEDENCE,
    NewVerdict,
    record_verdicts,
    set_outcome_confirmed,
    winning_tag,
)
from memory_api.runtime import Runtime
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

PLACE = PlaybookRef("default", "book")
JUDGES = ["human", "llm", "outcome"]


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": f"no. {n}"} for n in (1, 2)))
    return book


async def counters(book: Book, key: str = "pat-00001") -> tuple[int, int, int]:
    bullet = (await book.api.get(f"{book.url}/bullets/{key}")).json()
    assert bullet["usefulness"] == pytest.approx(usefulness(bullet["helpful"], bullet["harmful"]))
    return bullet["helpful"], bullet["harmful"], bullet["neutral"]


@given(st.dictionaries(st.sampled_from(JUDGES), st.sampled_from(["helpful", "harmful"])))
def test_strongest_judge_wins(tags: dict[str, str]) -> None:
    said = [judge for judge in JUDGE_PRECEDENCE if judge in tags]
    assert winning_tag(tags) == (tags[said[0]] if said else None)


@pytest.mark.parametrize("order", list(itertools.permutations(["human", "llm"])))
async def test_counters_count_one_verdict_per_run(
    book: Book, runtime: Runtime, tenant: Any, order: Sequence[Any]
) -> None:
    tags: dict[str, Any] = {"human": "helpful", "llm": "harmful"}
    trace_id = new_id()
    for judge in order:
        verdict = NewVerdict("pat-00001", tags[judge], judge, trace_id=trace_id)
        (counted,) = await record_verdicts(runtime, tenant.id, PLACE, [verdict])
        assert counted.is_new
        assert sum(await counters(book)) == 1
    assert await counters(book) == (1, 0, 0)
    assert (await book.now())[0] == 1, "votes raise no version"
    assert await book.problems() == []


async def test_repeated_and_changed_verdict(book: Book, runtime: Runtime, tenant: Any) -> None:
    trace_id = await book.trace()
    first = await book.post("bullets/pat-00001/verdicts", tag="helpful", trace_id=trace_id)
    assert (first.status_code, first.json()["counted"]) == (201, True)
    again = await book.post("bullets/pat-00001/verdicts", tag="helpful", trace_id=trace_id)
    assert again.status_code == 200
    assert again.json()["verdict"]["id"] == first.json()["verdict"]["id"]
    assert await counters(book) == (1, 0, 0)
    other = await book.post("bullets/pat-00001/verdicts", tag="harmful", trace_id=trace_id)
    assert other.json()["bullet"]["confidence_score"] == 0
    assert await counters(book) == (0, 1, 0)
    verdict = NewVerdict("pat-00001", "helpful", "llm", trace_id=UUID(trace_id))
    (late,) = await record_verdicts(runtime, tenant.id, PLACE, [verdict])
    assert not late.is_counted
    assert await counters(book) == (0, 1, 0)
    listed = (await book.api.get(f"{book.url}/bullets/pat-00001/verdicts")).json()["items"]
    assert [(e["judge"], e["tag"]) for e in listed] == [("llm", "helpful"), ("human", "harmful")]


async def test_outcome_moves_no_counter(book: Book, runtime: Runtime, tenant: Any) -> None:
    verdict = NewVerdict("pat-00001", "harmful", "outcome", trace_id=new_id())
    (counted,) = await record_verdicts(runtime, tenant.id, PLACE, [verdict])
    assert not counted.is_counted
    assert await counters(book) == (0, 0, 0)


async def test_confirmed_outcome_counts_with_lowest_priority(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    trace_id = new_id()
    outcome = NewVerdict("pat-00001", "harmful", "outcome", trace_id=trace_id)

    async def set_confirmed(confirmed: bool) -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            playbook = await get_playbook(session, PLACE)
            assert playbook is not None
            rows = await find_bullets(session, playbook.scope_id, ["pat-00001"], lock=True)
            bullet = rows["pat-00001"]
            found = await list_verdicts_of_trace(session, [bullet.id], trace_id)
            await set_outcome_confirmed(
                session, bullet, {row.judge: row for row in found}, confirmed
            )

    await record_verdicts(runtime, tenant.id, PLACE, [outcome])
    for confirmed, expected in ((True, (0, 1, 0)), (True, (0, 1, 0)), (False, (0, 0, 0))):
        await set_confirmed(confirmed)
        assert await counters(book) == expected
    await set_confirmed(True)
    (again,) = await record_verdicts(runtime, tenant.id, PLACE, [outcome])
    assert again.is_counted
    model = NewVerdict("pat-00001", "neutral", "llm", trace_id=trace_id)
    await record_verdicts(runtime, tenant.id, PLACE, [model])
    assert await counters(book) == (0, 0, 1), "who saw the run knows better"
    await record_verdicts(runtime, tenant.id, PLACE, [replace(outcome, tag="helpful")])
    assert await counters(book) == (0, 0, 1)
    assert await book.problems() == []


async def test_verdict_on_merged_key_goes_to_survivor(book: Book) -> None:
    await book.post("bullets/pat-00002/verdicts", tag="helpful")
    await book.deltas({"type": "MERGE", "source_ids": ["pat-00001", "pat-00002"]})
    answer = await book.post("bullets/pat-00002/verdicts", tag="harmful")
    assert answer.json()["key"] == "pat-00001"
    assert await counters(book) == (1, 1, 0)


async def test_unknown_bullet_refuses_all_verdicts(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    assert_problem(await book.post("bullets/pat-00009/verdicts", tag="helpful"), 404, "not_found")
    assert_problem(await book.post("bullets/pat-00001/verdicts", tag="great"), 422, "invalid")
    verdicts = [NewVerdict(key, "helpful", "llm") for key in ("pat-00001", "pat-00009")]
    with pytest.raises(Exception, match="Bullet not found"):
        await record_verdicts(runtime, tenant.id, PLACE, verdicts)
    assert await counters(book) == (0, 0, 0)


async def test_search_filters_by_counters(book: Book) -> None:
    for _ in range(3):
        await book.post("bullets/pat-00001/verdicts", tag="harmful")
    assert await book.search("no. 1") == ["pat-00002"]
    assert set(await book.search("no. 1", min_confidence=0)) == {"pat-00001", "pat-00002"}
    assert await book.search("", min_confidence=0) == ["pat-00002", "pat-00001"]


async def test_reasons_can_be_found_and_replaced(book: Book, api: AsyncClient) -> None:
    async def found(query: str) -> list[str]:
        body = {"query_text": query, "kinds": ["verdict"], "top_k": 5}
        hits = (await api.post("/api/v1/search", json=body)).json()["results"]
        return [hit["memory"]["content"] for hit in hits]

    trace_id = await book.trace()
    url = "bullets/pat-00001/verdicts"
    await book.post(url, tag="helpful", reason="It prevented a double charge", trace_id=trace_id)
    assert await found("double charge") == ["It prevented a double charge"]
    await book.post(url, tag="harmful", reason="It led astray", trace_id=trace_id)
    assert await found("double charge") == ["It led astray"]
    (memory,) = (await api.get("/api/v1/memories?kind=verdict")).json()["items"]
    assert memory["metadata"] == {"playbook": "book", "key": "pat-00001", "tag": "harmful"}
    links = (await api.get(f"/api/v1/memories/{memory['id']}/links")).json()["items"]
    assert {(x["relation"], x["target_kind"]) for x in links} == {
        ("contradicts", "memory"),
        ("derived_from", "trace"),
    }
