"""The rules that keep tables distributable by tenant, checked on one server
(docs/decisions/distribution.md).

Keys, foreign keys and policies (rules 1 to 4) are `isolation.complaints`; here is the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from memory_api.core.db import Base
from memory_api.distribution.citus_catalog import (
    REFERENCE_TABLES,
    list_functions,
    list_tables_to_distribute,
    load_triggers,
)
from migrations.statements import read_statements
from tests.rules.isolation import NOT_OF_A_TENANT, complaints
from tests.rules.sources import CODE, files, name_of
from tests.support.cases import each_case

BINDING_FUNCTIONS = {"hansei_search", "hansei_insert_retrieval"}
SOURCES = [*files(*CODE, suffix=".py"), *files(*CODE, suffix=".sql")]


def found(pattern: str) -> list[str]:
    """`file:line` of every match in the sources, comments left out."""
    places: list[str] = []
    for path in SOURCES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            code = re.sub(r"(--|#).*", "", line)
            if re.search(pattern, code, re.IGNORECASE):
                places.append(f"{name_of(path)}:{number}")
    return places


async def test_keys_foreign_keys_and_policies_contain_tenant(superuser: Any) -> None:
    assert await complaints(superuser) == []


async def test_tenant_id_has_one_type_also_as_an_argument(superuser: Any) -> None:
    arguments = await superuser.fetch(
        "select p.proname, format_type(t.type, null) type from pg_proc p,"
        " unnest(p.proargnames, p.proargtypes::oid[]) t(name, type)"
        " where p.pronamespace = 'public'::regnamespace and t.name in ('p_tenant_id', 'tenant_id')"
    )
    assert {row["type"] for row in arguments} <= {"uuid"}


async def test_functions_that_bind_the_tenant_can_be_distributed(superuser: Any) -> None:
    """Outside a transaction, Citus runs a whole call on the node of its first argument; there, and
    only there, `set_config` reaches the rows."""
    found = await superuser.fetch(
        "select proname, proargnames[1] first, prosecdef, provolatile::text volatility from pg_proc"
        " where pronamespace = 'public'::regnamespace and prosrc like '%set_config(''hansei.%'"
    )
    assert {row["proname"] for row in found} == BINDING_FUNCTIONS
    for row in found:
        assert (row["first"], row["prosecdef"], row["volatility"]) == ("p_tenant_id", False, "v")


async def test_recipe_distributes_every_table_after_those_it_refers_to(superuser: Any) -> None:
    tables = await list_tables_to_distribute(superuser)
    rows = await superuser.fetch(
        "select conrelid::regclass::text child, confrelid::regclass::text parent"
        " from pg_constraint where contype = 'f' and connamespace = 'public'::regnamespace"
    )
    assert len(rows) > 5
    for row in rows:
        if row["child"] in tables and row["child"] != row["parent"]:
            assert tables.index(row["parent"]) < tables.index(row["child"]), row
    assert set(REFERENCE_TABLES) == {"tenants", "analytics.logins"}
    every = await superuser.fetch(
        "select relname from pg_class where relnamespace = 'public'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition"
    )
    assert {*tables, *NOT_OF_A_TENANT} == {row["relname"] for row in every}
    arguments = {
        function.signature.partition("(")[0]: function.argument
        for function in await list_functions(superuser)
    }
    delegated = {name for name, argument in arguments.items() if argument}
    assert delegated == BINDING_FUNCTIONS | {"hansei_erase_history"}
    assert {"wilson", "memory_keep"} < arguments.keys()
    assert len(await load_triggers(superuser, "memories")) >= 3


async def test_every_table_has_a_primary_key(superuser: Any) -> None:
    without = await superuser.fetch(
        "select relname from pg_class c where relnamespace = 'public'::regnamespace"
        " and relkind in ('r', 'p') and not exists"
        " (select from pg_index i where i.indrelid = c.oid and i.indisprimary)"
    )
    assert [row["relname"] for row in without] == []


async def test_generated_numbers_are_bigint(superuser: Any) -> None:
    """A row made through another node gets 2^48 and more."""
    small = await superuser.fetch(
        "select attrelid::regclass::text as table from pg_attribute"
        " where attidentity <> '' and atttypid <> 'bigint'::regtype and attnum > 0"
        " and attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)"
    )
    assert [row["table"] for row in small if row["table"] not in NOT_OF_A_TENANT] == []


async def test_only_history_trigger_and_erasure_are_security_definer(superuser: Any) -> None:
    lent = await superuser.fetch(
        "select p.proname, array_agg(distinct t.tgrelid::regclass::text) tables from pg_proc p"
        " left join pg_trigger t on t.tgfoid = p.oid"
        " where p.pronamespace = 'public'::regnamespace and p.prosecdef group by 1"
    )
    assert {row["proname"]: row["tables"] for row in lent} == {
        "memory_keep": ["memories"],
        "hansei_erase_history": [None],
        "hansei_erase_rows": [None],
    }


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
    "apps/memory_api/commands/up.py",  # before there are sessions: is the stored key known?
}

FUNCTION = {
    "migrations/sql/search.sql",
    "migrations/sql/retrievals.sql",
    "migrations/sql/analysts.sql",
}
"""Search and `hansei_insert_retrieval` bind the tenant inside a function: one round trip each. The
functions that logins call bind theirs, on one server: on Citus, their owner bypasses row-level
security, and the condition on the tenant decides.
"""


def test_tenant_is_bound_in_one_place() -> None:
    assert {place.split(":")[0] for place in found(r"set local hansei\.")} <= BINDERS
    by_function = {place.split(":")[0] for place in found(r"\bset_config\s*\(")}
    assert by_function == FUNCTION
    assert found(r"\bset (session )?hansei\.") == []


def test_statements_refused_by_distributed_tables_are_not_used() -> None:
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


def blocks(path: Path) -> list[tuple[str, str]]:
    """Name and text of each statement of a `.sql` file of the service; a file without named blocks
    is one statement."""
    text = path.read_text(encoding="utf-8")
    named = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    found = list(zip(named[1::2], named[2::2], strict=True)) or [("", text)]
    return [(name, re.sub(r"--.*", "", statement)) for name, statement in found]


STATEMENTS = {
    f"{name_of(path).removeprefix('apps/memory_api/')}::{name}": statement
    for path in files("apps", suffix=".sql")
    if path.name != "statements.sql"  # a person runs them with the login of one tenant
    for name, statement in blocks(path)
}
TENANT_TABLES = "|".join(
    table.name for table in Base.metadata.tables.values() if "tenant_id" in table.c
)
BOUND = re.compile(
    r"tenant_id\s*=\s*(:tenant|p_tenant_id\b|\$1\b)|:tenants|insert into \w+ \(\s*tenant_id\b"
    r"|select hansei_erase_\w+\(:tenant,|lane = :tenant|from questions\.\w+\(\s*:tenant,"
)


@each_case("name", STATEMENTS)
def test_statement_names_tenant_of_every_table(name: str) -> None:
    text = STATEMENTS[name]
    if name.startswith(("run_queue/", "core/", "embedded/", "distribution/")):  # no tenant
        used = set(re.findall(r"(?:insert into|(?<!for )update|delete from) (\w+)", text))
        assert used <= NOT_OF_A_TENANT
        return
    read = re.findall(rf"\b(?:from|join)\s+({TENANT_TABLES})\s+(\w+)", text)
    assert BOUND.search(text) or (name.startswith("commands/doctor.") and not read)  # catalogs
    for table, alias in read:
        assert re.search(rf"\b{alias}\.tenant_id\s*=", text), table


@each_case("path", files("migrations/sql", suffix=".sql"))
def test_migrations_send_one_statement_at_a_time(path: Any) -> None:
    sent = list(read_statements(path.stem))
    assert sent
    for statement in sent:
        outside = re.sub(r"\$(\w*)\$.*?\$\1\$", "", statement, flags=re.DOTALL)
        outside = re.sub(r"\bbegin atomic\b.*; end\b", "", outside, flags=re.DOTALL)
        outside = re.sub(r"--.*|'[^']*'", "", outside)
        assert ";" not in outside.rstrip(";"), statement
    whole = re.sub(r"\s|;", "", path.read_text(encoding="utf-8"))
    assert re.sub(r"\s|;", "", "".join(sent)) == whole or "--" in path.read_text(encoding="utf-8")
