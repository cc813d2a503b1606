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

from apps.memory_api.core.ids import new_id
from apps.memory_api.playbook.holdout import draw
from apps.memory_api.playbook.queries import get_serving
from apps.memory_api.runtime import Runtime
from tests.http.problems import assert_problem
from tests.playbook.rows import Book

KEYS = [f"pat-{n:05d}" for n in range(1, 5)]
Z = 1.959963984540054


@given(st.uuids(), st.lists(st.sampled_from(KEYS), unique=True), st.floats(0, 1))
def test_the_lot_follows_from_the_render_alone(uuid: UUID, keys: list[str], share: float) -> None:
    first = draw(uuid, keys, share)
    assert first == draw(uuid, keys[::-1], share)
    if first is None:
        assert share == 0 or not keys
        return
    assert first.candidate in keys
    certain = draw(uuid, keys, 1.0)
    assert certain is not None
    assert certain.held_out
    assert certain.candidate == first.candidate


def test_every_bullet_is_drawn_alike_and_left_out_in_its_share() -> None:
    lots = [draw(new_id(), KEYS, 0.3) for _ in range(8_000)]
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


async def test_the_rest_of_the_block_stays(book: Book, app: FastAPI, runtime: Runtime) -> None:
    whole = (await book.post("render")).json()
    assert whole["held_out"] is None
    seen: set[str] = set()
    for _ in range(12):
        block = (await book.post("render", holdout=1.0)).json()
        assert set(block["keys"]) == set(KEYS) - {block["held_out"]}
        assert f"[{block['held_out']}]" not in block["text"]
        lines = [line for line in whole["text"].splitlines() if block["held_out"] not in line]
        assert block["text"].splitlines() == lines
        seen.add(block["held_out"])
    assert len(seen) > 1
    assert (await book.post("render", holdout=0.0)).json()["text"] == whole["text"]
    assert_problem(await book.post("render", holdout=1.5), 422, "invalid")


async def test_it_is_written_with_the_serving(
    book: Book, app: FastAPI, runtime: Runtime, tenant: Any
) -> None:
    patched = await book.api.patch(book.url, json={"holdout": 1.0})
    assert patched.json()["holdout"] == 1.0
    assert patched.json()["version"] == 1, "a setting is not a version"
    out = (await book.post("render")).json()
    kept = (await book.post("render", holdout=0.000001)).json()
    plain = (await book.post("render", holdout=0)).json()
    await app.state.servings.flush()
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = [await get_serving(session, UUID(x["render_id"])) for x in (out, kept, plain)]
    told = [(row.candidate is not None, row.held_out) for row in rows if row]
    assert told == [(True, True), (True, False), (False, False)]
    assert rows[0] is not None
    assert rows[0].candidate == out["held_out"] not in rows[0].keys
    assert_problem(await book.api.patch(book.url, json={"holdout": -1}), 422, "invalid")


async def test_pinned_bullets_are_never_left_out(book: Book) -> None:
    for key in KEYS[1:]:
        await book.api.patch(f"{book.url}/bullets/{key}", json={"pinned": True})
    for _ in range(5):
        assert (await book.post("render", holdout=1.0)).json()["held_out"] == KEYS[0]
    await book.api.patch(f"{book.url}/bullets/{KEYS[0]}", json={"pinned": True})
    assert (await book.post("render", holdout=1.0)).json()["held_out"] is None


def wilson(n: int, won: int) -> tuple[float, float, float]:
    p = won / n
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (
        p,
        (p + Z * Z / (2 * n) - half) / (1 + Z * Z / n),
        (p + Z * Z / (2 * n) + half) / (1 + Z * Z / n),
    )


async def effect(book: Book, key: str) -> dict[str, Any]:
    items = (await book.api.get(f"{book.url}/effect")).json()["items"]
    return next((item for item in items if item["key"] == key), {})


async def run(book: Book, app: FastAPI, outcome: str | None, **how: Any) -> dict[str, Any]:
    block = (await book.post("render", **how)).json()
    body: dict[str, Any] = {"render_id": block["render_id"], "playbook": book.name}
    body["events"] = [{"event_type": "user_message", "content": "Do it"}]
    if outcome:
        body["outcome"] = outcome
    (await book.api.post("/api/v1/traces?reflect=never", json=body)).raise_for_status()
    await app.state.servings.flush()
    return block


async def test_counts_rates_and_interval(book: Book, app: FastAPI) -> None:
    expected: Counter[tuple[str, bool, bool]] = Counter()
    for n in range(30):
        block = await run(book, app, "success" if n % 3 else "failure", holdout=1.0)
        expected[block["held_out"], True, n % 3 > 0] += 1
    for n in range(6):
        await run(book, app, "timeout" if n % 2 else "success", holdout=0)
    key, _, _ = max(expected, key=lambda k: expected[k])
    told = await effect(book, key)
    without = expected[key, True, True] + expected[key, True, False]
    assert told["randomised"]["without_n"] == without
    assert told["randomised"]["without_won"] == expected[key, True, True]
    assert told["randomised"]["with_n"] == 0
    assert told["randomised"]["difference"] is None
    seen = told["observational"]
    assert seen["without_n"] == without
    assert seen["with_n"] == 36 - without
    assert seen["with_won"] == 23 - expected[key, True, True]
    p1, l1, u1 = wilson(seen["with_n"], seen["with_won"])
    p0, l0, u0 = wilson(seen["without_n"], seen["without_won"])
    assert seen["difference"] == pytest.approx(p1 - p0)
    assert seen["low"] == pytest.approx(p1 - p0 - math.hypot(p1 - l1, u0 - p0))
    assert seen["high"] == pytest.approx(p1 - p0 + math.hypot(u1 - p1, p0 - l0))


async def test_only_runs_that_drew_a_bullet_are_its_randomised_sides(
    book: Book, app: FastAPI
) -> None:
    sides: Counter[tuple[str, bool]] = Counter()
    for _ in range(24):
        block = await run(book, app, "success", holdout=0.5)
        lot = draw(UUID(block["render_id"]), KEYS, 0.5)
        assert lot is not None
        assert (block["held_out"] == lot.candidate) is lot.held_out
        sides[lot.candidate, lot.held_out] += 1
    items = (await book.api.get(f"{book.url}/effect")).json()["items"]
    told = {item["key"]: item["randomised"] for item in items if item["randomised"]}
    for key in {key for key, _ in sides}:
        assert told[key]["with_n"] == sides[key, False]
        assert told[key]["without_n"] == sides[key, True]


async def test_what_is_not_decided_or_not_joined_does_not_count(book: Book, app: FastAPI) -> None:
    await run(book, app, "partial")
    await run(book, app, None)
    await book.post("render")
    await book.post("search", query_text="no")
    assert await effect(book, KEYS[0]) == {}
    block = await run(book, app, "success")
    again: dict[str, Any] = {"render_id": block["render_id"], "outcome": "failure"}
    again["events"] = [{"event_type": "user_message", "content": "Once more"}]
    (await book.api.post("/api/v1/traces?reflect=never", json=again)).raise_for_status()
    told = (await effect(book, KEYS[0]))["observational"]
    assert (told["with_n"], told["with_won"], told["without_n"]) == (1, 1, 0)


async def test_a_run_to_which_nothing_was_handed_out_is_one_without(
    book: Book, app: FastAPI
) -> None:
    await book.trace(playbook=book.name, outcome="failure")  # before anything was handed out
    await run(book, app, "success")
    for outcome in ("success", "failure", "partial"):
        await book.trace(playbook=book.name, outcome=outcome)
    await book.trace(playbook="another", outcome="success")
    await book.trace(playbook=book.name, outcome="success", used_keys=[KEYS[0]])
    told = (await effect(book, KEYS[0]))["observational"]
    assert (told["with_n"], told["with_won"]) == (2, 2)
    assert (told["without_n"], told["without_won"]) == (2, 1)
    other = (await effect(book, KEYS[1]))["observational"]
    assert (other["with_n"], other["without_n"], other["without_won"]) == (1, 3, 2)


async def test_a_search_hands_out_too(book: Book, app: FastAPI) -> None:
    found = (await book.post("search", query_text="no. 2", top_k=1)).json()
    assert [hit["bullet"]["id"] for hit in found["results"]] == [KEYS[2]]
    await app.state.servings.flush()
    await book.trace(render_id=found["render_id"], outcome="failure")
    told = (await effect(book, KEYS[2]))["observational"]
    assert (told["with_n"], told["with_won"], told["without_n"]) == (1, 0, 0)


async def test_runs_before_a_bullet_was_there_are_not_its_other_side(
    book: Book, app: FastAPI
) -> None:
    await run(book, app, "failure")
    await book.deltas({"type": "ADD", "section": "mis", "content": "a new one"})
    await run(book, app, "success")
    told = (await effect(book, "mis-00001"))["observational"]
    assert (told["with_n"], told["without_n"]) == (1, 0)
    assert (await effect(book, KEYS[0]))["observational"]["with_n"] == 2


async def test_a_merged_bullet_s_runs_are_its_survivor_s(book: Book, app: FastAPI) -> None:
    await run(book, app, "success")
    await book.deltas({"type": "MERGE", "source_ids": KEYS[:2]})
    assert (await effect(book, KEYS[0]))["observational"]["with_n"] == 1
    assert await effect(book, KEYS[1]) == {}


async def test_pages_and_unknown_playbooks(book: Book, app: FastAPI) -> None:
    await run(book, app, "success")
    first = (await book.api.get(f"{book.url}/effect?limit=3")).json()
    rest = await book.api.get(f"{book.url}/effect", params={"cursor": first["next_cursor"]})
    keys = [item["key"] for item in (*first["items"], *rest.json()["items"])]
    assert keys == KEYS
    assert rest.json()["next_cursor"] is None
    assert_problem(await book.api.get("/api/v1/playbooks/none/effect"), 404, "not_found")


async def test_another_tenant_sees_nothing_of_it(
    book: Book, app: FastAPI, make_tenant: Any, runtime: Runtime
) -> None:
    await run(book, app, "success")
    other = await make_tenant()
    answer = await book.api.get(f"{book.url}/effect", headers=other.auth())
    assert_problem(answer, 404, "not_found")
