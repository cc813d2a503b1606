"""Which queries a playbook covers: by what was handed out for them, and its scores."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text

from memory_api.memories.search.query import MIN_RELEVANCE, Match
from memory_api.playbooks.tables import RetrievalRow
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.playbook_api import Book

REFUND = "Check the refund window before you refund an order"
COVERED = "refund an order after the refund window"


async def answers(api: AsyncClient) -> tuple[dict[str, Any], list[str]]:
    days = (await api.get("/api/v1/analytics/coverage")).json()["rows"]
    found = (await api.get("/api/v1/analytics/uncovered_queries")).json()["rows"]
    return (days[0] if days else {}), [row["query"] for row in found]


def matches(day: dict[str, Any]) -> tuple[int, ...]:
    """Queries, and those whose best bullet is a strong match, a weak one, or none."""
    return tuple(day[f"{name}_count"] for name in ("retrieval", "strong", "weak", "unmatched"))


@pytest.mark.parametrize("match", MIN_RELEVANCE)
async def test_a_match_is_that_of_a_search(
    runtime: Runtime, tenant: TestTenant, match: Match
) -> None:
    """One definition of strong, weak and none for `search`, `coverage` and `uncovered_queries`."""
    scores = (MIN_RELEVANCE[match], MIN_RELEVANCE[match] + 0.1)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        found = await session.scalars(
            text("select questions.match_of('{pat-00001}', s) from unnest(cast(:s as float8[])) s"),
            {"s": list(scores)},
        )
        assert set(found) == {match}


async def test_render_of_a_whole_playbook_is_covered_by_the_bullet_that_matches(
    api: AsyncClient,
) -> None:
    book = Book(api)
    empty = Book(api, "empty")
    await empty.deltas({"type": "ADD", "section": "pat", "content": "Gone."})
    await empty.deltas({"type": "DELETE", "target_id": "pat-00001"})
    contents = [REFUND, "Greet in Japanese.", "Round quantities up to dozens."]
    await book.deltas(*({"type": "ADD", "section": "pat", "content": c} for c in contents))
    block = (await book.post("render", query_text=COVERED)).json()
    assert len(block["bullet_keys"]) == 3, "the whole playbook"
    await book.post("render", query_text="zebra crossing")
    day, uncovered = await answers(api)
    assert matches(day) == (2, 1, 0, 1)
    assert uncovered == ["zebra crossing"]
    await empty.post("render", query_text=COVERED)
    days = (await api.get("/api/v1/analytics/coverage?playbook=empty")).json()["rows"]
    assert [matches(row) for row in days] == [(1, 0, 0, 1)]


async def test_bullets_without_a_stored_score_are_no_missing_bullets(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant
) -> None:
    """What is not known does not count as missing, and a withheld bullet was there."""
    book = Book(api)
    await book.deltas({"type": "ADD", "section": "pat", "content": REFUND})
    block = (await book.post("render", query_text="first")).json()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        first = await session.get(RetrievalRow, (tenant.id, block["retrieval_id"]))
        assert first is not None
        first.scores = []
    await book.post("render", query_text="second", holdout_share=1.0)
    day, uncovered = await answers(api)
    assert matches(day) == (1, 0, 0, 0)
    assert uncovered == []
