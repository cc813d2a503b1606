"""`hansei demo`: what it loads, where it is refused, and that it leaves nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.commands import demo as commands
from memory_api.commands.tenants import owner_sessions
from memory_api.demo import tenant as removal
from memory_api.demo.history import DAYS, FILE, load_desks
from memory_api.memories.index.scopes import ensure_scopes, find_scopes
from tests.analytics.conftest import open_login as open_login
from tests.conftest import Database, TestTenant
from tests.support.demo import Demo, environment
from tests.support.server_command import run_command, run_command_here

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo"), pytest.mark.timeout(400)]


async def test_history_covers_sixty_days_that_end_now(demo: Demo) -> None:
    first, last, runs = (
        await demo.fetch(
            "select min(created_at), max(created_at), count(*) from traces"
            " where playbook is not null"
        )
    )[0]
    now = datetime.now(UTC)
    assert timedelta(days=DAYS - 1) < now - first < timedelta(days=DAYS + 1)
    assert last < now
    assert runs == sum(item["type"] == "run" for desk in load_desks() for item in desk.items) == 320
    weeks = await demo.fetch("select distinct date_trunc('week', created_at) from llm_calls")
    assert len(weeks) >= 5, "the costs are not of one day"


async def test_no_time_is_that_of_the_load(demo: Demo) -> None:
    """Each row has a time of the history, the newest ones too."""
    day_ago = datetime.now(UTC) - timedelta(hours=12)
    for table in ("traces", "runs", "memories", "playbook_versions", "bullet_verdicts"):
        rows = await demo.fetch(f"select count(*) from {table} where created_at > $1", day_ago)
        assert rows[0][0] <= 12, f"{table}: {rows[0][0]} rows of the last twelve hours"
    backwards = await demo.fetch("select id from runs where finished_at < started_at")
    assert not backwards


async def test_recorded_answers_become_the_recorded_playbooks(demo: Demo) -> None:
    bullets = await demo.fetch(
        "select s.name, m.title, m.status from memories m join scopes s using (tenant_id)"
        " where s.id = m.scope_id and m.kind = 'bullet' and m.status <> 'deleted' order by 1, 2"
    )
    active = [(desk, title) for desk, title, status in bullets if status == "active"]
    assert [title for desk, title in active if desk == "airline"] == [
        "Message 'invoice' after change_name",
        "Portal for crew passengers",
        "charge_fee: code instead of id",
        "credit_miles: multiples of 250",
        "order_assistance: time with AM or PM",
        "rebook: fare light for all booking types",
        "reissue_ticket after assign_seat",
        "reload_booking before add_bag",
    ]
    assert sum(desk == "orders" for desk, _ in active) == 6


async def test_harmful_bullets_are_found_and_one_proposal_waits(demo: Demo) -> None:
    found = await demo.fetch(
        "select title, helpful > 0, harmful > helpful from memories"
        " where kind = 'bullet' and status = 'quarantined' and harmful > 0 order by title"
    )
    assert found == [
        ("Carrier of set_ship_date", True, True),
        ("Round the quantity of add_item up to dozens", True, True),
    ]
    assert (await demo.fetch("select state from playbook_proposals")) == [("waiting",)]


async def test_quarantined_bullets_are_neither_served_nor_judged_again(demo: Demo) -> None:
    """What the product promises holds in its demo, in each table that shows use."""
    quarantined = await demo.fetch(
        "select m.id, m.key, m.scope_id, r.created_at from memories m"
        " join memory_revisions r using (tenant_id)"
        " where r.memory_id = m.id and r.change_type = 'quarantined' and m.status = 'quarantined'"
    )
    assert len(quarantined) >= 2
    for bullet_id, key, scope_id, since in quarantined:
        served = await demo.fetch(
            "select created_at from retrievals where scope_id = $1 and $2 = any(bullet_keys)"
            " and created_at > $3",
            scope_id,
            key,
            since,
        )
        named = await demo.fetch(
            "select t.id from traces t join playbooks p using (tenant_id)"
            " where p.name = t.playbook and p.scope_id = $1 and $2 = any(t.used_bullet_keys)"
            " and t.created_at > $3",
            scope_id,
            key,
            since,
        )
        judged = await demo.fetch(
            "select created_at, judge from bullet_verdicts where bullet_id = $1"
            " and created_at > $2",
            bullet_id,
            since,
        )
        last = await demo.fetch(
            "select last_used_at from memory_usage where memory_id = $1 and last_used_at > $2",
            bullet_id,
            since,
        )
        assert (served, named, judged, last) == ([], [], [], []), key


async def test_renders_are_those_of_the_product(demo: Demo, open_login) -> None:
    """Each run asked for advice. The bullets are those that were active, each with its score."""
    odd = await demo.fetch(
        "select id from retrievals where cardinality(scores) <> cardinality(bullet_keys)"
    )
    assert odd == []
    without = await demo.fetch(
        "select id from traces where retrieval_id is null and playbook is not null"
    )
    assert without == []
    assert demo.other_advice <= 60, "most agents of the recording had these bullets"
    renders = await demo.fetch(
        "select p.name, r.created_at, r.bullet_keys from retrievals r"
        " join playbooks p using (tenant_id, scope_id) where r.advice_held_out is not true"
    )
    login = await open_login(SimpleNamespace(id=demo.tenant_id))
    active = await login.fetch(
        "select array(select a.key from playbook_at(r.playbook, r.at) a where a.status = 'active')"
        " from unnest($1::text[], $2::timestamptz[]) with ordinality r(playbook, at, number)"
        " order by r.number",
        [name for name, _, _ in renders],
        [moment for _, moment, _ in renders],
    )
    wrong = [
        render
        for render, (keys,) in zip(renders, active, strict=True)
        if sorted(render[2]) != sorted(keys)
    ]
    assert renders
    assert wrong == []


async def test_runs_are_done_and_no_worker_waits_for_them(demo: Demo) -> None:
    assert await demo.fetch("select distinct state from runs") == [("done",)]


def test_demo_is_refused_where_it_is_loaded(demo: Demo) -> None:
    status, _, errors = demo.run()
    assert (status, "exists" in errors, "--remove" in errors) == (1, True, True), errors


async def test_tenant_that_exists_is_neither_filled_nor_removed(
    tenant: TestTenant, demo: Demo
) -> None:
    options = environment(demo.database)
    status, _, errors = await run_command(("demo", "--tenant", tenant.slug), options)
    assert (status, "exists" in errors) == (1, True), errors
    status, _, errors = await run_command(("demo", "--tenant", tenant.slug, "--remove"), options)
    assert (status, "was not made by" in errors) == (1, True), errors


async def test_removal_leaves_no_row_and_touches_no_other_tenant(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = load_desks()[1]
    monkeypatch.setattr(commands, "load_desks", lambda: [replace(desk, items=desk.items[:3])])
    slug = f"{demo.slug}-2"
    options = environment(demo.database)
    status, output, errors = await run_command(("demo", "--tenant", slug), options)
    assert (status, "day 0 of 60" in errors) == (0, True), errors
    assert f"`hansei demo --remove --tenant {slug}` deletes" in output
    second = Demo(slug, "", demo.database, 0.0)
    tables = await demo.fetch(
        "select distinct table_name from information_schema.columns join information_schema.tables"
        " using (table_schema, table_name) where table_schema = 'public'"
        " and column_name = 'tenant_id' and table_type = 'BASE TABLE'"
    )
    before = {name: await demo.fetch(f"select count(*) from {name}") for (name,) in tables}
    [(login,)] = await second.fetch("select role_name from sql_credentials")
    roles = "select count(*) from pg_roles where rolname = $1"
    assert await second.fetch(roles, login) == [(1,)]
    removed = await asyncio.to_thread(
        run_command_here, ("demo", "--tenant", slug, "--remove"), options
    )
    assert removed[0] == 0, removed[2]
    for (name,) in tables:
        assert await second.fetch(f"select count(*) from {name}") == [(0,)], name
        assert await demo.fetch(f"select count(*) from {name}") == before[name], name
    assert await second.fetch(roles, login) == [(0,)]
    again = await run_command(("tenant", "create", slug), options)
    assert (again[0], "Created" in again[1]) == (0, True), again


async def test_rows_that_are_stored_during_the_removal_are_removed(
    database: Database, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that had begun before creates a scope when the scopes have been deleted."""
    delete_rows, counts = removal._delete_rows, list[int]()

    async def delete_and_store(session: AsyncSession, tenant_id: UUID) -> int:
        counts.append(await delete_rows(session, tenant_id))
        if len(counts) == 1:
            async with service.for_tenant(tenant_id) as other:
                await ensure_scopes(other, [("default", "playbook", "late")])
        return counts[-1]

    monkeypatch.setattr(removal, "_delete_rows", delete_and_store)
    url = database.url("hansei_owner")
    async with owner_sessions(url) as sessions, owner_sessions(url) as service:
        await removal.remove_tenant(sessions, tenant.id)
        async with sessions.for_tenant(tenant.id) as session:
            assert await find_scopes(session, [("default", "playbook", "late")]) == {}
    assert (counts[1:], counts[0] > 0) == ([1, 0], True)


def test_progress_without_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter(range(0, 200, 2))
    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    progress = commands.Progress()
    for day in range(10):
        progress.show(day)
    assert capsys.readouterr().err.splitlines() == ["day 0 of 60", "day 5 of 60"]


def test_data_are_small() -> None:
    assert FILE.stat().st_size < 100_000
