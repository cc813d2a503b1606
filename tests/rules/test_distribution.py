"""The rules that keep tables distributable by tenant (docs: DISTRIBUTED section 2), checked on one
server.

Keys, foreign keys and policies (rules 1 to 4) are `isolation.complaints`; here is the rest.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from migrations.statements import statements
from tests.rules.isolation import NOT_OF_A_TENANT, complaints
from tests.rules.sources import CODE, files, name_of

SOURCES = [*files(*CODE, suffix=".py"), *files(*CODE, suffix=".sql")]
SQL = files("apps", "migrations", suffix=".sql")


def found(pattern: str) -> list[str]:
    """`file:line` of every match in the sources, comments left out."""
    places: list[str] = []
    for path in SOURCES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            code = re.sub(r"(--|#).*", "", line)
            if re.search(pattern, code, re.IGNORECASE):
                places.append(f"{name_of(path)}:{number}")
    return places


async def test_keys_foreign_keys_and_policies(superuser: Any) -> None:
    assert await complaints(superuser) == []


async def test_tenant_id_has_one_type_also_as_an_argument(superuser: Any) -> None:
    arguments = await superuser.fetch(
        "select p.proname, format_type(t.type, null) type from pg_proc p,"
        " unnest(p.proargnames, p.proargtypes::oid[]) t(name, type)"
        " where p.pronamespace = 'public'::regnamespace and t.name in ('_t', 'tenant_id')"
    )
    assert {row["type"] for row in arguments} <= {"uuid"}


async def test_every_table_has_a_primary_key(superuser: Any) -> None:
    without = await superuser.fetch(
        "select relname from pg_class c where relnamespace = 'public'::regnamespace"
        " and relkind in ('r', 'p') and not exists"
        " (select from pg_index i where i.indrelid = c.oid and i.indisprimary)"
    )
    assert [row["relname"] for row in without] == []


async def test_numbers_handed_out_by_the_database_are_bigint(superuser: Any) -> None:
    """A row made through another node gets 2^48 and more."""
    small = await superuser.fetch(
        "select attrelid::regclass::text as table from pg_attribute"
        " where attidentity <> '' and atttypid <> 'bigint'::regtype and attnum > 0"
        " and attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)"
    )
    assert [row["table"] for row in small if row["table"] not in NOT_OF_A_TENANT] == []


async def test_only_the_history_trigger_lends_the_owners_rights(superuser: Any) -> None:
    lent = await superuser.fetch(
        "select p.proname, array_agg(distinct t.tgrelid::regclass::text) tables from pg_proc p"
        " left join pg_trigger t on t.tgfoid = p.oid"
        " where p.pronamespace = 'public'::regnamespace and p.prosecdef group by 1"
    )
    assert [(row["proname"], row["tables"]) for row in lent] == [("memory_keep", ["memories"])]


async def test_triggers_of_tenant_tables_do_not_notify(superuser: Any) -> None:
    """A notification from a shard never reaches the coordinator."""
    sources = await superuser.fetch(
        "select p.proname, p.prosrc, t.tgrelid::regclass::text as table from pg_trigger t"
        " join pg_proc p on p.oid = t.tgfoid where not t.tgisinternal"
    )
    assert sources
    for row in sources:
        if row["table"] not in NOT_OF_A_TENANT:
            assert "notify" not in row["prosrc"].lower(), row["proname"]
            named = re.findall(r"(?:insert into|update|delete from)\s+(\S+)", row["prosrc"])
            assert all(table.startswith("public.") for table in named), row["proname"]


BINDERS = {
    "apps/memory_api/core/db.py",
    "migrations/rls.py",  # a migration of tenants' rows: each by itself
    "apps/memory_api/commands/up.py",  # before there are sessions: is the stored key known?
}

FUNCTION = {
    "apps/memory_api/memory/hybrid.sql",
    *(name_of(path) for path in SQL if path.name.endswith("_search.sql")),  # as migrations froze it
}
"""Search binds inside its function: one round trip here, and delegated whole to a worker there."""


def test_the_tenant_is_bound_in_one_place() -> None:
    assert {place.split(":")[0] for place in found(r"set local hansei\.")} <= BINDERS
    by_function = {place.split(":")[0] for place in found(r"\bset_config\s*\(")}
    assert by_function == FUNCTION
    assert found(r"\bset (session )?hansei\.") == []


def test_what_a_distributed_table_refuses_is_not_used() -> None:
    assert found(r"\bmerge\s+into\b") == []
    assert found(r"\bset\s+storage\b") == []
    assert found(r"\bon (delete|update) set (null|default)\b") == []
    assert found(r"ondelete=.SET ") == []
    assert found(r"\bset\s+tenant_id\s*=") == []
    assert found(r"\bcopy_(records_)?to_table\b") == []


def test_bulk_inserts_return_something() -> None:
    inserts = 0
    for path in SOURCES:
        text = path.read_text(encoding="utf-8").lower()
        for match in re.finditer(r"insert\s+into\s[^;]*?from\s+unnest\([^;]*", text):
            inserts += 1
            if match[0].split()[2] not in NOT_OF_A_TENANT:
                assert "returning" in match[0], name_of(path)
    assert inserts, "the pattern no longer finds what it is for"


def test_sql_files_say_their_tenant_for_every_table() -> None:
    for path in files("apps", suffix=".sql"):
        text = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        if path.parent.name == "jobs":  # the queue's own tables, which stay on the coordinator
            used = set(re.findall(r"(?:insert into|(?<!for )update|delete from) (\w+)", text))
            assert used <= NOT_OF_A_TENANT, name_of(path)
            continue
        said = r"tenant_id\s*=\s*(:tenant|_t\b|\$1\b)|:tenants|insert into \w+ \(\s*tenant_id\b"
        assert re.search(said, text), name_of(path)
        used = re.findall(
            r"\b(?:from|join)\s+(memories|memory_\w+|postings|scope_stats|runs)\s+(\w+)", text
        )
        for table, alias in used:
            assert re.search(rf"\b{alias}\.tenant_id\s*=", text), f"{name_of(path)}: {table}"


@pytest.mark.parametrize("path", files("migrations/sql", suffix=".sql"), ids=lambda p: p.stem)
def test_migrations_send_one_statement_at_a_time(path: Any) -> None:
    sent = list(statements(path.stem))
    assert sent
    for statement in sent:
        outside = re.sub(r"\$(\w*)\$.*?\$\1\$", "", statement, flags=re.DOTALL)
        outside = re.sub(r"--.*|'[^']*'", "", outside)
        assert ";" not in outside.rstrip(";"), statement
    whole = re.sub(r"\s|;", "", path.read_text(encoding="utf-8"))
    assert re.sub(r"\s|;", "", "".join(sent)) == whole or "--" in path.read_text(encoding="utf-8")
