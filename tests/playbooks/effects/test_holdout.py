"""Bullets left out by lot, and what became of the runs with them and without."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from memory_api.core.ids import new_id
from memory_api.playbooks.effects.holdout import draw_holdout
from memory_api.playbooks.tables import RetrievalRow
from memory_api.runtime import Runtime
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

KEYS = [f"pat-{n:05d}" for n in range(1, 5)]
Z = 1.959963984540054


@given(st.uuids(), st.lists(st.sampled_from(KEYS), unique=True), st.floats(0, 1))
def test_holdout_is_deterministic_for_retrieval(uuid: UUID, keys: list[str], share: float) -> None:
    first = draw_holdout(uuid, keys, share)
    assert first == draw_holdout(uuid, keys[::-1], share)
    if first is None:
        assert share == 0 or not keys
        return
    assert first.candidate in keys
    certain = draw_holdout(uuid, keys, 1.0)
    assert certain is not None
    assert certain.held_out
    assert certain.candidate == first.candidate


def test_every_bullet_is_withheld_with_equal_share() -> None:
    lots = [draw_holdout(new_id(), KEYS, 0.3) for _ in range(8_000)]
    drawn = Counter(lot.candidate for lot in lots if lot)
    assert all(abs(drawn[key] - 2_000) < 5 * math.sqrt(8_000 * 0.25 * 0.75) for key in KEYS)
    out = [lot for lot in lots if lot and lot.held_out]
    assert abs(len(out) - 2_400) < 5 * math.sqrt(8_000 * 0.3 * 0.7)
    left_out = Counter(lot.candidate for lot in out)
    assert all(abs(left_out[key] - 600) < 5 * math.sqrt(2_400 * 0.25 * 0.75) for key in KEYS)


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": f"no. {n}"} for n in range(4)))
    return book


async def test_other_bullets_stay_in_block(book: Book, app: FastAPI, runtime: Runtime) -> None:
    whole = (await book.post("render")).json()
    assert whole["held_out"] is None
    seen: set[str] = set()
    for _ in range(12):
        block = (await book.post("render", holdout_share=1.0)).json()
        assert set(block["bullet_keys"]) == set(KEYS) - {block["held_out"]}
        assert f"[{block['held_out']}]" not in block["text"]
        lines = [line for line in whole["text"].splitlines() if block["held_out"] not in line]
        assert block["text"].splitlines() == lines
        seen.add(block["held_out"])
    assert len(seen) > 1
    assert (await book.post("render", holdout_share=0.0)).json()["text"] == whole["text"]
    assert_problem(await book.post("render", holdout_share=1.5), 422, "invalid")


async def test_holdout_is_stored_with_retrieval(
    book: Book, app: FastAPI, runtime: Runtime, tenant: Any
) -> None:
    patched = await book.api.patch(book.url, json={"holdout_share": 1.0})
    assert patched.json()["holdout_share"] == 1.0
    assert patched.json()["version"] == 2
    again = await book.api.patch(book.url, json={"holdout_share": 1.0})
    assert again.json()["version"] == 2, "nothing changed"
    out = (await book.post("render")).json()
    kept = (await book.post("render", holdout_share=0.000001)).json()
    plain = (await book.post("render", holdout_share=0)).json()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        ids = [UUID(x["retrieval_id"]) for x in (out, kept, plain)]
        rows = [await session.get(RetrievalRow, (tenant.id, id_)) for id_ in ids]
    told = [(row.holdout_candidate is not None, row.held_out) for row in rows if row]
    assert told == [(True, True), (True, False), (False, False)]
    assert rows[0] is not None
    assert rows[0].holdout_candidate == out["held_out"] not in rows[0].bullet_keys
    assert_problem(await book.api.patch(book.url, json={"holdout_share": -1}), 422, "invalid")


async def test_pinned_bullets_are_never_withheld(book: Book) -> None:
    for key in KEYS[1:]:
        await book.api.patch(f"{book.url}/bullets/{key}", json={"pinned": True})
    for _ in range(5):
        assert (await book.post("render", holdout_share=1.0)).json()["held_out"] == KEYS[0]
    await book.api.patch(f"{book.url}/bullets/{KEYS[0]}", json={"pinned": True})
    assert (await book.post("render", holdout_share=1.0)).json()["held_out"] is None


def wilson(n: int, won: int) -> tuple[float, float, float]:
    p = won / n
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (
        p,
        (p + Z * Z / (2 * n) - half) / (1 + Z * Z / n),
        (p + Z * Z / (2 * n) + half) / (1 + Z * Z / n),
    )


async def effect(book: Book, key: str) -> dict[str, Any]:
    items = (await book.api.get(f"{book.url}/effects")).json()["items"]
    return next((item for item in items if item["key"] == key), {})


async def run(book: Book, app: FastAPI, outcome: str | None, **how: Any) -> dict[str, Any]:
    block = (await book.post("render", **how)).json()
    body: dict[str, Any] = {"retrieval_id": block["retrieval_id"], "playbook": book.name}
    body["events"] = [{"event_type": "user_message", "content": "Do it"}]
    if outcome:
        body["outcome"] = outcome
    (await book.api.post("/api/v1/traces?reflect=never", json=body)).raise_for_status()
    return block


async def test_counts_rates_and_interval(book: Book, app: FastAPI) -> None:
    expected: Counter[tuple[str, bool, bool]] = Counter()
    for n in range(30):
        block = await run(book, app, "success" if n % 3 else "failure", holdout_share=1.0)
        expected[block["held_out"], True, n % 3 > 0] += 1
    for n in range(6):
        await run(book, app, "timeout" if n % 2 else "success", holdout_share=0)
    key, _, _ = max(expected, key=lambda k: expected[k])
    told = await effect(book, key)
    without = expected[key, True, True] + expected[key, True, False]
    assert told["randomized"]["without"]["runs"] == without
    assert told["randomized"]["without"]["successes"] == expected[key, True, True]
    assert told["randomized"]["with"]["runs"] == 0
    assert told["randomized"]["difference"] is None
    seen = told["observational"]
    assert seen["without"]["runs"] == without
    assert seen["with"]["runs"] == 36 - without
    assert seen["with"]["successes"] == 23 - expected[key, True, True]
    p1, l1, u1 = wilson(seen["with"]["runs"], seen["with"]["successes"])
    p0, l0, u0 = wilson(seen["without"]["runs"], seen["without"]["successes"])
    assert seen["difference"] == pytest.approx(p1 - p0)
    assert seen["interval"]["low"] == pytest.approx(p1 - p0 - math.hypot(p1 - l1, u0 - p0))
    assert seen["interval"]["high"] == pytest.approx(p1 - p0 + math.hypot(u1 - p1, p0 - l0))


async def test_randomized_sides_contain_only_drawn_runs(book: Book, app: FastAPI) -> None:
    sides: Counter[tuple[str, bool]] = Counter()
    for _ in range(24):
        block = await run(book, app, "success", holdout_share=0.5)
        lot = draw_holdout(UUID(block["retrieval_id"]), KEYS, 0.5)
        assert lot is not None
        assert (block["held_out"] == lot.candidate) is lot.held_out
        sides[lot.candidate, lot.held_out] += 1
    items = (await book.api.get(f"{book.url}/effects")).json()["items"]
    told = {item["key"]: item["randomized"] for item in items if item["randomized"]}
    for key in {key for key, _ in sides}:
        assert told[key]["with"]["runs"] == sides[key, False]
        assert told[key]["without"]["runs"] == sides[key, True]


async def test_undecided_and_unjoined_runs_do_not_count(book: Book, app: FastAPI) -> None:
    await run(book, app, "partial")
    await run(book, app, None)
    await book.post("render")
    await book.post("search", query_text="no")
    assert await effect(book, KEYS[0]) == {}
    block = await run(book, app, "success")
    again: dict[str, Any] = {"retrieval_id": block["retrieval_id"], "outcome": "failure"}
    again["events"] = [{"event_type": "user_message", "content": "Once more"}]
    (await book.api.post("/api/v1/traces?reflect=never", json=again)).raise_for_status()
    told = (await effect(book, KEYS[0]))["observational"]
    assert (told["with"]["runs"], told["with"]["successes"], told["without"]["runs"]) == (1, 1, 0)


async def test_run_without_bullets_shows_nothing_about_one(book: Book, app: FastAPI) -> None:
    """It is compared in `improvement`, with all advice together."""
    await book.trace(playbook=book.name, outcome="failure")  # before anything was handed out
    await run(book, app, "success")
    for outcome in ("success", "failure", "partial"):
        await book.trace(playbook=book.name, outcome=outcome)
    await book.trace(playbook="another", outcome="success")
    await book.trace(playbook=book.name, outcome="success", used_bullet_keys=[KEYS[0]])
    told = (await effect(book, KEYS[0]))["observational"]
    assert (told["with"]["runs"], told["with"]["successes"]) == (2, 2)
    assert told["without"]["runs"] == 0
    other = (await effect(book, KEYS[1]))["observational"]
    assert (other["with"]["runs"], other["without"]["runs"], other["without"]["successes"]) == (
        1,
        1,
        1,
    )


async def test_bullets_always_served_together_have_no_effect_of_their_own(
    book: Book, app: FastAPI
) -> None:
    """As in a playbook that each render hands out as a whole."""
    for n in range(8):
        await run(book, app, "success" if n % 4 else "failure")
        await book.trace(playbook=book.name, outcome="failure")  # an agent without advice
    for key in KEYS:
        told = (await effect(book, key))["observational"]
        assert (told["with"]["runs"], told["without"]["runs"]) == (8, 0)
        assert told["difference"] is told["interval"]["low"] is None
        assert told["always_with"] == [other for other in KEYS if other != key]
    found = (await book.post("search", query_text="no. 2", top_k=1)).json()
    await book.trace(retrieval_id=found["retrieval_id"], outcome="failure")
    alone = (await effect(book, KEYS[2]))["observational"]
    assert (alone["always_with"], alone["without"]["runs"], alone["difference"]) == ([], 0, None)
    together = (await effect(book, KEYS[0]))["observational"]
    assert (together["without"]["runs"], together["without"]["successes"]) == (1, 0)
    assert together["always_with"] == [KEYS[1], KEYS[3]]
    assert together["difference"] is None, "it may be that of each of the three"
    url = f"/api/v1/analytics/effects?playbook={book.name}"
    rows = {row["key"]: row for row in (await book.api.get(url)).json()["rows"]}
    assert rows[KEYS[0]]["always_with"] == together["always_with"]
    assert {row["difference"] for row in rows.values()} == {None}


async def test_search_counts_as_retrieval(book: Book, app: FastAPI) -> None:
    found = (await book.post("search", query_text="no. 2", top_k=1)).json()
    assert [hit["bullet"]["id"] for hit in found["results"]] == [KEYS[2]]
    await book.trace(retrieval_id=found["retrieval_id"], outcome="failure")
    told = (await effect(book, KEYS[2]))["observational"]
    assert (told["with"]["runs"], told["with"]["successes"], told["without"]["runs"]) == (1, 0, 0)


async def test_runs_before_bullet_existed_do_not_count(book: Book, app: FastAPI) -> None:
    await run(book, app, "failure")
    await book.deltas({"type": "ADD", "section": "mis", "content": "a new one"})
    await run(book, app, "success")
    told = (await effect(book, "mis-00001"))["observational"]
    assert (told["with"]["runs"], told["without"]["runs"]) == (1, 0)
    assert (await effect(book, KEYS[0]))["observational"]["with"]["runs"] == 2


async def test_runs_of_merged_bullet_count_for_survivor(book: Book, app: FastAPI) -> None:
    await run(book, app, "success")
    await book.deltas({"type": "MERGE", "source_ids": KEYS[:2]})
    assert (await effect(book, KEYS[0]))["observational"]["with"]["runs"] == 1
    assert await effect(book, KEYS[1]) == {}


async def test_list_and_analytics_agree(book: Book, app: FastAPI) -> None:
    """Also about a deleted bullet, and about a period that ends before the runs."""
    for n in range(12):
        await run(book, app, "success" if n % 3 else "failure", holdout_share=0.5)
    await book.deltas({"type": "DELETE", "target_id": KEYS[0]})
    url = f"/api/v1/analytics/effects?playbook={book.name}"
    rows = (await book.api.get(url)).json()["rows"]
    items = (await book.api.get(f"{book.url}/effects")).json()["items"]
    listed = {
        (item["key"], item["status"], basis): (side["with"]["runs"], side["without"]["successes"])
        for item in items
        for basis in ("randomized", "observational")
        if (side := item[basis])
    }
    asked = {
        (row["key"], row["status"], row["basis"]): (row["with_runs"], row["without_successes"])
        for row in rows
    }
    assert listed == asked
    assert (KEYS[0], "deleted", "observational") in asked
    past = {"until": "2020-01-01T00:00:00Z"}
    assert (await book.api.get(f"{book.url}/effects", params=past)).json()["items"] == []


async def test_pages_and_unknown_playbooks(book: Book, app: FastAPI) -> None:
    await run(book, app, "success")
    first = (await book.api.get(f"{book.url}/effects?limit=3")).json()
    rest = await book.api.get(f"{book.url}/effects", params={"cursor": first["next_cursor"]})
    keys = [item["key"] for item in (*first["items"], *rest.json()["items"])]
    assert keys == KEYS
    assert rest.json()["next_cursor"] is None
    assert_problem(await book.api.get("/api/v1/playbooks/none/effects"), 404, "not_found")


async def test_other_tenant_sees_nothing(
    book: Book, app: FastAPI, make_tenant: Any, runtime: Runtime
) -> None:
    await run(book, app, "success")
    other = await make_tenant()
    answer = await book.api.get(f"{book.url}/effects", headers=other.auth())
    assert_problem(answer, 404, "not_found")


async def test_run_of_another_project_does_not_count(book: Book) -> None:
    """It may know the ID of a retrieval, and is no run of this playbook."""
    block = (await book.post("render")).json()
    foreign = {
        "project_id": "other",
        "retrieval_id": block["retrieval_id"],
        "outcome": "failure",
        "events": [{"event_type": "user_message", "content": "Do it"}],
    }
    (await book.api.post("/api/v1/traces?reflect=never", json=foreign)).raise_for_status()
    assert await effect(book, KEYS[0]) == {}
