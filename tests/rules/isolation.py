"""What must be true of every table with tenant_id, read from the catalog of a real database.

`complaints` looks at the schema; `leaks` tries, as one tenant, to reach another tenant's rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

import asyncpg

TENANT = "nullif(current_setting('hansei.tenant_id', true), '')::uuid"
SERVICE = ("hansei_app", "hansei_worker")
NOT_OF_A_TENANT = {
    "tenants",
    "alembic_version",
    "installation",
    "tickets",
    "write_probes",
    "upkeep_schedule",
}
LENT = {"memory_keep", "hansei_erase_history", "hansei_erase_rows"}
"""The functions that run with the owner's rights: the history trigger, and the two that erase."""

TABLES = """
select c.relname, c.relrowsecurity, c.relforcerowsecurity, c.relowner::regrole::text owner
from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') order by c.relname
"""
COLUMNS = """
select a.attrelid::regclass::text "table", a.attnotnull, format_type(a.atttypid, a.atttypmod) type
from pg_attribute a join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p')
where c.relnamespace = 'public'::regnamespace and a.attname = 'tenant_id'
"""
WRITABLE = """
select array_agg(quote_ident(attname) order by attnum) from pg_attribute
where attrelid = $1::text::regclass and attnum > 0 and not attisdropped
  and attgenerated = '' and attidentity = '' and attname <> 'tenant_id'
"""
POLICIES = """
select tablename "table", permissive, roles::text[] roles, cmd, qual, with_check
from pg_policies where schemaname = 'public'
"""
INDEXES = """
select i.indrelid::regclass::text "table", i.indexrelid::regclass::text name, i.indisprimary,
       (select array_agg(a.attname::text order by k.place)
        from unnest(i.indkey::int2[]) with ordinality k(number, place)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
        where k.place <= i.indnkeyatts) columns
from pg_index i join pg_class t on t.oid = i.indrelid
where t.relnamespace = 'public'::regnamespace and i.indisunique
"""
FOREIGN_KEYS = """
select c.conrelid::regclass::text "table", c.conname, c.confrelid::regclass::text target,
       c.confdeltype::text, c.confupdtype::text,
       (select attname from pg_attribute where attrelid = c.conrelid and attnum = c.conkey[1]) own,
       (select attname from pg_attribute where attrelid = c.confrelid and attnum = c.confkey[1]) its
from pg_constraint c where c.connamespace = 'public'::regnamespace and c.contype = 'f'
"""
CHECKS = """
select conname from pg_constraint where conrelid = $1::text::regclass and contype = 'c'
"""
NEEDED = """
select quote_ident(a.attname) name,
       case when t.typcategory = 'A' then 'A' else t.typname::text end kind
from pg_attribute a join pg_type t on t.oid = a.atttypid
where a.attrelid = $1::text::regclass and a.attnum > 0 and a.attnotnull and not a.atthasdef
  and a.attidentity = '' and a.attgenerated = '' and a.attname <> 'tenant_id'
"""
FILLER = {
    "A": "'{}'",
    "bool": "false",
    "bytea": "''",
    "date": "now()",
    "float4": "0",
    "float8": "0",
    "halfvec": "'[0]'",
    "int2": "0",
    "int4": "0",
    "int8": "0",
    "jsonb": "'{}'",
    "numeric": "0",
    "text": "''",
    "timestamptz": "now()",
    "uuid": "gen_random_uuid()",
}
"""A value of each type, for rows whose content does not matter."""

LENDERS = """
select proname, proconfig, pronamespace = 'analytics'::regnamespace is_for_logins from pg_proc
where prosecdef and pronamespace in
      ('public'::regnamespace, 'questions'::regnamespace, 'analytics'::regnamespace)
"""
VIEWS = """
select relname from pg_class
where relnamespace in
      ('public'::regnamespace, 'analytics'::regnamespace, 'questions'::regnamespace)
  and (relkind = 'm'
       or relkind = 'v' and not 'security_invoker=true' = any(coalesce(reloptions, '{}')))
"""


async def tenant_tables(connection: Any) -> list[str]:
    rows = await connection.fetch(TABLES)
    return [row["relname"] for row in rows if row["relname"] not in NOT_OF_A_TENANT]


async def expected_rule(connection: Any, rule: str = f"tenant_id = {TENANT}") -> str:
    """A rule as PostgreSQL prints it. By default, that of `migrations/rls.py`."""
    async with rolled_back(connection):
        await connection.execute("create table policy_probe (tenant_id uuid, id uuid)")
        await connection.execute(f"create policy probe on policy_probe using ({rule})")
        rows = await connection.fetch(POLICIES)
        return next(row["qual"] for row in rows if row["table"] == "policy_probe")


class rolled_back:
    """A transaction that leaves nothing behind."""

    def __init__(self, connection: Any) -> None:
        self.transaction = connection.transaction()

    async def __aenter__(self) -> None:
        await self.transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self.transaction.rollback()


async def complaints(connection: Any) -> list[str]:
    """What of the schema would let one tenant meet another. Empty when all is well."""
    rule = await expected_rule(connection)
    columns = await _by_table(connection, COLUMNS)
    policies = await _by_table(connection, POLICIES)
    indexes = await _by_table(connection, INDEXES)
    foreign = await _by_table(connection, FOREIGN_KEYS)
    found: list[str] = []
    for table in await connection.fetch(TABLES):
        name = table["relname"]
        if name not in columns:
            found += [] if name in NOT_OF_A_TENANT else [f"{name}: has no tenant_id"]
            continue
        wrong = [
            *_column(columns[name][0]),
            *_policies(table, policies[name], rule),
            *_keys(indexes[name]),
            *_foreign(foreign[name]),
        ]
        found += [f"{name}: {complaint}" for complaint in wrong]
    found += await _lent(connection)
    found += [f"view {row['relname']} is not its caller's" for row in await connection.fetch(VIEWS)]
    return found


async def _by_table(connection: Any, statement: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in await connection.fetch(statement):
        found[row["table"]].append(row)
    return found


def _column(tenant_id: Any) -> list[str]:
    found: list[str] = []
    if tenant_id["type"] != "uuid":
        found.append("tenant_id is no uuid")
    if not tenant_id["attnotnull"]:
        found.append("tenant_id may be null")
    return found


def _policies(table: Any, policies: list[Any], rule: str) -> list[str]:
    found: list[str] = []
    # Not even a restrictive one: Citus creates it as a permissive policy on its nodes.
    if not table["relrowsecurity"]:
        found.append("row-level security is off")
    if not table["relforcerowsecurity"]:
        found.append("row-level security is not forced")
    if len(policies) != 1:
        return [*found, f"{len(policies)} policies"]
    policy = policies[0]
    if (policy["permissive"], policy["cmd"]) != ("PERMISSIVE", "ALL"):
        found.append("the policy does not cover all commands")
    if policy["qual"] != rule or policy["with_check"] != rule:
        found.append(f"another rule: {policy['qual']} / {policy['with_check']}")
    if set(policy["roles"]) != {*SERVICE, table["owner"]}:
        found.append(f"the policy is for {policy['roles']}")
    return found


def _keys(indexes: list[Any]) -> list[str]:
    found: list[str] = []
    primary = [index["columns"] for index in indexes if index["indisprimary"]]
    if not primary or primary[0][0] != "tenant_id":
        found.append("the primary key is not led by tenant_id")
    for index in indexes:
        if "tenant_id" not in (index["columns"] or []):
            found.append(f"{index['name']} is unique across tenants")
    return found


def _foreign(keys: list[Any]) -> list[str]:
    found: list[str] = []
    for key in keys:
        if key["target"] == "tenants":
            found.append(f"{key['conname']} refers to tenants")
        elif (key["own"], key["its"]) != ("tenant_id", "tenant_id"):
            found.append(f"{key['conname']} does not start with tenant_id")
        if {key["confdeltype"], key["confupdtype"]} & {"n", "d"}:
            found.append(f"{key['conname']} sets null or a default")
    return found


async def _lent(connection: Any) -> list[str]:
    found: list[str] = []
    for function in await connection.fetch(LENDERS):
        if function["proname"] not in LENT and not function["is_for_logins"]:
            found.append(f"{function['proname']}() runs with the owner's rights")
        if not any(c.startswith("search_path=") for c in function["proconfig"] or []):
            found.append(f"{function['proname']}() has no search_path of its own")
    return found


async def sow(connection: Any, tenants: tuple[UUID, ...]) -> None:
    """As superuser, inside a transaction to be rolled back: one row for each tenant in every table
    that the service has not filled. Checks and references are set aside for it.
    """
    await connection.execute("set local session_replication_role = replica")
    for table in await tenant_tables(connection):
        for check in await connection.fetch(CHECKS, table):
            await connection.execute(f"alter table {table} drop constraint {check['conname']}")
        columns = await connection.fetch(NEEDED, table)
        names = ", ".join(["tenant_id", *(column["name"] for column in columns)])
        values = ", ".join(["$1", *(FILLER[column["kind"]] for column in columns)])
        for tenant in tenants:
            there = f"select exists (select from {table} where tenant_id = $1)"
            if not await connection.fetchval(there, tenant):
                await connection.execute(f"insert into {table} ({names}) values ({values})", tenant)
    await connection.execute("set local session_replication_role = origin")


async def leaks(connection: Any, mine: UUID, other: UUID) -> list[str]:
    """What a service connection bound to `mine` can do to rows of `other`. Empty when all is well.

    The connection must be in a transaction, which is spoilt: roll it back.
    """
    await connection.execute(f"set local hansei.tenant_id = '{mine}'")
    found: list[str] = []
    for table in await tenant_tables(connection):
        assert await connection.fetchval(f"select count(*) from {table}"), f"no row in {table}"
        if await connection.fetchval(f"select count(*) from {table} where tenant_id = $1", other):
            found.append(f"{table}: can be read")
        columns = ", ".join(await connection.fetchval(WRITABLE, table))
        tries = {
            "updated": (f"update {table} set tenant_id = tenant_id where tenant_id = $1", other),
            "given away": (f"update {table} set tenant_id = $1 where tenant_id <> $1", other),
            "deleted": (f"delete from {table} where tenant_id = $1", other),
            "inserted": (
                f"insert into {table} (tenant_id, {columns})"
                f" select $1, {columns} from {table} where tenant_id <> $1 limit 1",
                other,
            ),
        }
        for verb, (statement, *arguments) in tries.items():
            if await _changes_something(connection, statement, arguments):
                found.append(f"{table}: can be {verb}")
    return found


async def _changes_something(connection: Any, statement: str, arguments: list[Any]) -> bool:
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        status = await connection.execute(statement, *arguments)
    except asyncpg.InsufficientPrivilegeError:  # refused by a policy or a missing grant
        return False
    except asyncpg.IntegrityConstraintViolationError:  # row-level security let it through to here
        return True
    finally:
        await savepoint.rollback()
    return not status.endswith(" 0")
