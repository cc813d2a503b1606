"""What held at a version: spans against what was seen when the version was made."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
from httpx2 import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.core.db import Sessions
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.models import Bullet
from memory_api.runtime import Runtime
from tests.support.cases import each_case
from tests.support.playbook_api import Book

COLUMNS = (
    *("key", "section", "content", "searchable_text", "keywords", "when_to_use", "title", "tags"),
    *("status", "pinned", "awaiting_confirmation", "source_trajectory", "helpful", "harmful"),
    *("neutral", "position", "seq"),
)


async def change(book: Book, draw: random.Random, keys: list[str]) -> None:
    """One change of some kind, of a bullet or of all."""
    key, n = draw.choice(keys), draw.randint(0, 10**6)
    kind = draw.choice(["add", "patch", "patch", "state", "delete", "put", "restore"])
    if kind == "add":
        await book.post("bullets", content=f"added {n}", section="pat", keywords=[f"k{n}", "x"])
    elif kind == "patch":
        words = {"content": f"words {n}", "title": draw.choice(["", f"title {n}"]), "tags": ["t"]}
        await book.api.patch(f"{book.url}/bullets/{key}", json=words)
    elif kind == "state":
        state = {"status": draw.choice(["active", "archived"]), "pinned": draw.random() < 0.5}
        await book.api.patch(f"{book.url}/bullets/{key}", json=state)
    elif kind == "delete":
        await book.api.delete(f"{book.url}/bullets/{key}")
    elif kind == "put":
        document = (await book.now())[1]
        draw.shuffle(document["bullets"])
        for bullet in document["bullets"][:2]:
            bullet["searchable_text"] = f"found by {n}"
        await book.put(document)
    else:
        version = (await book.now())[0]
        await book.post("restore", version=draw.randint(1, version))


@pytest.mark.parametrize("seed", range(3))
async def test_every_version_reads_as_it_was(api: AsyncClient, seed: int) -> None:
    book, draw = Book(api), random.Random(seed)
    await book.deltas(*({"type": "ADD", "content": f"first {n}"} for n in range(6)))
    seen: dict[int, dict[str, Any]] = {}
    for _ in range(25):
        version, document = await book.now()
        seen[version] = {b["id"]: b for b in document["bullets"]}
        await change(book, draw, sorted(await keys_of(book)))
    assert len(seen) > 15
    for version, bullets in seen.items():
        number, then = await book.now(as_of=version)
        assert number == version
        assert {b["id"]: b for b in then["bullets"]} == bullets
    for first, last in zip(seen, draw.sample(sorted(seen), len(seen)), strict=True):
        await check_diff(book, first, last, seen)


async def check_diff(book: Book, first: int, last: int, seen: dict[int, dict[str, Any]]) -> None:
    """The difference of two versions is that of what was seen, also if a change was undone."""
    diff = (await book.api.get(f"{book.url}/diff", params={"from": first, "to": last})).json()
    before, after = seen[first], seen[last]
    assert {b["id"] for b in diff["added"]} == after.keys() - before.keys()
    assert {b["id"] for b in diff["removed"]} == before.keys() - after.keys()
    both = before.keys() & after.keys()
    assert {c["key"] for c in diff["changed"]} == {k for k in both if before[k] != after[k]}


async def keys_of(book: Book) -> set[str]:
    return {b["id"] for b in (await book.now())[1]["bullets"]} | {"oth-00001"}


async def test_own_search_text_is_kept_with_version(api: AsyncClient) -> None:
    book = Book(api)
    own = {"id": "oth-00001", "section": "OTHERS", "content": "the same", "searchable_text": "one"}
    await book.put({"bullets": [own]})
    await book.put({"bullets": [own | {"searchable_text": "two"}]})
    texts = [(await book.now(as_of=v))[1]["bullets"][0]["searchable_text"] for v in (1, 2)]
    assert texts == ["one", "two"]


async def test_spans_of_a_bullet_leave_no_gap(
    api: AsyncClient, runtime: Runtime, tenant: Any
) -> None:
    book, draw = Book(api), random.Random(7)
    await book.deltas(*({"type": "ADD", "content": f"first {n}"} for n in range(3)))
    for _ in range(15):
        await change(book, draw, sorted(await keys_of(book)))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await (await session.connection()).exec_driver_sql(
            "select m.id, m.playbook_version,"
            " array_agg(s.from_version order by s.from_version) since,"
            " array_agg(s.until_version order by s.from_version) until,"
            " count(s.until_version) many"
            " from memories m left join bullet_spans s on s.bullet_id = m.id"
            " where m.key is not null group by m.tenant_id, m.id"
        )
        bullets = rows.all()
    assert sum(b.many for b in bullets) > 5
    for bullet in bullets:
        if bullet.many:
            assert [*bullet.since[1:], bullet.playbook_version] == bullet.until


async def test_spans_cannot_be_written_by_the_service(
    api: AsyncClient, runtime: Runtime, tenant: Any
) -> None:
    book = Book(api)
    await book.deltas({"type": "ADD", "content": "first"})
    await api.patch(f"{book.url}/bullets/oth-00001", json={"content": "second"})
    for statement in (
        "insert into bullet_spans (tenant_id, bullet_id, from_version, until_version, scope_id,"
        " content, status, pinned)"
        " select tenant_id, bullet_id, 5, 6, scope_id, 'x', 'active', false from bullet_spans",
        "update bullet_spans set content = 'never said'",
        "delete from bullet_spans",
        "truncate bullet_spans",
    ):
        with pytest.raises(Exception, match="permission denied"):
            async with runtime.sessions.for_tenant(tenant.id) as session:
                await (await session.connection()).exec_driver_sql(statement)


LENGTHS = [n for p in range(31) for n in (2**p - 1, 2**p, 2**p + 1) if 0 < n < 2**31]


async def test_width_is_the_power_of_two_below(owner: Sessions) -> None:
    async with owner.without_tenant() as session:
        (kept,) = (
            await (await session.connection()).exec_driver_sql(
                "select pg_get_expr(adbin, adrelid) from pg_attrdef"
                " where adrelid = 'bullet_spans'::regclass"
                " and pg_get_expr(adbin, adrelid) like '%%until%%'"
            )
        ).one()
        widths = await (await session.connection()).exec_driver_sql(
            f"select {kept} from unnest($1::int[]) with ordinality n(until_version, place),"
            " (values (0)) zero(from_version) order by place",
            (LENGTHS,),
        )
        assert [w for (w,) in widths] == [n.bit_length() - 1 for n in LENGTHS]


@given(st.data())
@settings(max_examples=100)
def test_valid_span_ends_within_width(data: st.DataObject) -> None:
    """The range that `bullets_as_of` reads for each length class includes every span."""
    since = data.draw(st.integers(1, 2**31 - 2))
    until = data.draw(st.integers(since + 1, 2**31 - 1))
    version = data.draw(st.integers(since, until - 1))
    width = (until - since).bit_length() - 1
    assert version < until < version + (2 << width)


def row(**values: Any) -> dict[str, Any]:
    given = {"key": "k", "content": "words", "position": 1, "seq": 1} | values
    return {column: given.get(column) for column in COLUMNS}


@each_case("values", [
        {},
        {"searchable_text": "its own"},
        {"title": "T", "when_to_use": "W", "keywords": ["a", "b"], "tags": ["t"]},
        {"status": "archived", "pinned": True, "helpful": 2, "harmful": 1, "neutral": 3,
         "source_trajectory": "t", "section": "S"},
    ])  # fmt: skip
def test_bullet_from_row_equals_constructed_bullet(values: dict[str, Any]) -> None:
    (made,) = to_bullets([row(**values)])
    given = {"id": "k", "section": "", "content": "words", **values}
    like = Bullet.model_validate(given)
    assert made == like
    assert made.model_dump() == like.model_dump()
    assert list(vars(made)) == list(Bullet.model_fields)
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == like
    assert made.model_copy(update={"content": "others"}).content == "others"
    made.title = "changed"
    assert made != like


def test_bullets_from_rows_share_no_lists() -> None:
    first, second = to_bullets([row(), row(key="l")])
    first.tags.append("mine")
    first.keywords.append("mine")
    assert second.tags == second.keywords == []
