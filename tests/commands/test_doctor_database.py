"""What `hansei doctor` says of the database, the runs, the keys and the prompts."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text, update

from memory_api.auth.tables import ApiKeyRow
from memory_api.commands import database_checks, doctor, installation_checks
from memory_api.commands.database import DatabaseUrls
from memory_api.commands.database_checks import (
    check_clock,
    check_disk,
    check_logins,
    check_row_security,
    check_table_indexes,
)
from memory_api.commands.installation_checks import check_distribution
from memory_api.commands.tenant_checks import check_all_tenants
from memory_api.core.ids import new_id
from memory_api.core.personal_data import PERSONAL_DATA
from memory_api.core.settings import Settings
from memory_api.evaluation.evaluate import store_evaluation
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationResults,
    EvaluatorResult,
)
from memory_api.grace.config import load_config
from memory_api.runs.lifecycle import new_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.schemas import OutcomeConflict, OutcomeType
from tests.analytics.conftest import open_login as open_login
from tests.conftest import Database, TestTenant
from tests.support.api_calls import new_trace
from tests.support.server_command import run_command, run_command_here


async def test_healthy_database_has_no_findings(runtime: Runtime) -> None:
    for check in (check_row_security, check_table_indexes, check_clock):
        found = await check(runtime.sessions)
        assert (found.ok, found.fix) == (True, ""), found


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        ("no force row level security", "force row level security"),
        ("disable row level security", "enable row level security"),
    ],
)
async def test_table_without_forced_row_security_is_found(
    runtime: Runtime, database: Database, broken: str, repaired: str
) -> None:
    await database.server.run(f"alter table curated_lessons {broken}", database.name)
    try:
        found = await check_row_security(runtime.sessions)
    finally:
        await database.server.run(f"alter table curated_lessons {repaired}", database.name)
    assert (found.ok, "curated_lessons" in found.message) == (False, True)
    assert "policies.sql" in found.fix
    assert (await check_row_security(runtime.sessions)).ok


@pytest.mark.parametrize(
    ("broken", "repaired", "message"),
    [
        (
            "grant execute on function pg_advisory_lock(bigint) to public",
            "revoke execute on function pg_advisory_lock(bigint) from public",
            "it may use pg_advisory_lock",
        ),
        (
            "grant usage on language plpgsql to public",
            "revoke usage on language plpgsql from public",
            "it may use plpgsql",
        ),
        (
            "grant connect on database postgres to public",
            "revoke connect on database postgres from public",
            "it may use the database postgres",
        ),
        (
            "revoke set on parameter temp_file_limit from hansei_owner",
            "grant set on parameter temp_file_limit to hansei_owner",
            "no limit of temporary files",
        ),
        (
            "revoke pg_signal_backend from hansei_owner",
            "grant pg_signal_backend to hansei_owner with inherit true, set false",
            "their sessions cannot be ended",
        ),
        (
            "alter event trigger hansei_logins disable",
            "alter event trigger hansei_logins enable",
            "it may use definitions, which lock tables",
        ),
        (
            "grant execute on function lo_export(oid, text) to hansei_app",
            "revoke execute on function lo_export(oid, text) from hansei_app",
            "files of the database server: it may use lo_export",
        ),
    ],
)
async def test_rights_of_logins_are_checked(
    runtime: Runtime, database: Database, broken: str, repaired: str, message: str
) -> None:
    before = await check_logins(runtime.sessions)
    assert before.ok, before
    await database.server.run(broken, database.name)
    try:
        found = await check_logins(runtime.sessions)
    finally:
        await database.server.run(repaired, database.name)
    assert (found.ok, message in found.message) == (False, True), found
    assert "superuser.sql" in found.fix
    assert (await check_logins(runtime.sessions)).ok


async def test_endless_statements_of_logins_are_found(
    runtime: Runtime, tenant: TestTenant, open_login, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = await open_login(tenant)
    await login.execute("begin; select 1")
    assert (await check_logins(runtime.sessions)).ok
    statement = str(database_checks.ENDLESS_SESSIONS).replace("15 minutes", "0 minutes")
    monkeypatch.setattr(database_checks, "ENDLESS_SESSIONS", text(statement))
    found = await check_logins(runtime.sessions)
    assert not found.ok
    assert "hansei_sql_" in found.message
    assert "restart PostgreSQL" in found.fix


async def test_missing_and_invalid_indexes_are_found(runtime: Runtime, database: Database) -> None:
    async def set_valid(valid: bool) -> None:
        await database.server.run(
            f"update pg_index set indisvalid = {valid}"
            " where indexrelid = 'runs_trace_id_idx'::regclass",
            database.name,
        )

    async def rename(old: str, new: str) -> None:
        await database.server.run(f"alter index {old} rename to {new}", database.name)

    await set_valid(False)
    try:
        found = await check_table_indexes(runtime.sessions)
    finally:
        await set_valid(True)
    assert (found.ok, found.message) == (False, "invalid: runs_trace_id_idx")
    assert "reindex index concurrently runs_trace_id_idx" in found.fix
    await rename("runs_trace_id_idx", "elsewhere")
    try:
        found = await check_table_indexes(runtime.sessions)
    finally:
        await rename("elsewhere", "runs_trace_id_idx")
    assert (found.ok, found.message) == (False, "missing: runs_trace_id_idx")
    assert found.fix == (
        "As the owner, run `CREATE INDEX runs_trace_id_idx ON runs (tenant_id, trace_id)"
        " WHERE trace_id is not null;`."
    )


async def test_leftover_of_interrupted_reindex_is_dropped(
    runtime: Runtime, database: Database
) -> None:
    leftover = "runs_trace_id_idx_ccnew"
    await database.server.run(f"create index {leftover} on runs (trace_id)", database.name)
    try:
        which = f"indexrelid = '{leftover}'::regclass"
        invalid = f"update pg_index set indisvalid = false where {which}"
        await database.server.run(invalid, database.name)
        found = await check_table_indexes(runtime.sessions)
    finally:
        await database.server.run(f"drop index {leftover}", database.name)
    assert (found.ok, found.message) == (False, f"invalid: {leftover}")
    assert f"`drop index concurrently {leftover};`" in found.fix


@pytest.mark.parametrize(("seconds", "word"), [(90, "ahead of"), (-90, "behind")])
async def test_other_clock_of_database_is_found(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, seconds: int, word: str
) -> None:
    clock = f"select extract(epoch from clock_timestamp())::float8 + {seconds}"
    monkeypatch.setattr(database_checks, "CLOCK", text(clock))
    found = await check_clock(runtime.sessions)
    assert (found.ok, f"90 s {word}" in found.message) == (False, True)
    assert "NTP" in found.fix


async def test_disk(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = await check_disk(runtime.sessions, None)
    assert (remote.ok, "not visible" in remote.message) == (True, True)
    monkeypatch.setattr(database_checks, "MIN_FREE_BYTES", 0)
    assert (await check_disk(runtime.sessions, tmp_path)).ok
    monkeypatch.setattr(database_checks, "MIN_FREE_BYTES", 2**62)
    full = await check_disk(runtime.sessions, tmp_path)
    assert (full.ok, str(tmp_path) in full.message) == (False, True)
    assert full.fix


async def test_stuck_and_dead_runs_are_found(
    runtime: Runtime, worker_runtime: Runtime, tenant: TestTenant
) -> None:
    async def look() -> tuple[bool, str]:
        runs, *_ = await check_all_tenants(worker_runtime.sessions, [tenant.id])
        return runs.ok, runs.message

    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = new_run(session, "reflect", project_id="default")
    assert await look() == (True, "no run is stuck or dead")
    long_ago = datetime.now(UTC) - timedelta(hours=1)

    async def change(**values: object) -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            mine = RunRow.tenant_id == tenant.id
            await session.execute(update(RunRow).where(mine, RunRow.id == run.id).values(**values))

    await change(updated_at=long_ago)  # queued, and no ticket
    assert await look() == (False, "stuck for 15 minutes: 1 × reflect")
    await change(state="running", lease_until=long_ago)
    assert await look() == (False, "stuck for 15 minutes: 1 × reflect")
    await change(lease_until=datetime.now(UTC))
    assert (await look())[0]
    await change(state="queued", error={"code": "unknown_kind", "message": "x"})
    assert await look() == (False, "waiting for a newer worker: 1 × reflect")
    await change(state="dead")
    assert await look() == (False, "dead, out of attempts: 1 × reflect")


async def test_missing_and_expiring_keys_are_found(
    runtime: Runtime, worker_runtime: Runtime, tenant: TestTenant
) -> None:
    async def look() -> tuple[bool, str, str]:
        _, keys, _ = await check_all_tenants(worker_runtime.sessions, [tenant.id])
        return keys.ok, keys.message, keys.fix

    async def expire(at: datetime) -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            mine = ApiKeyRow.tenant_id == tenant.id
            await session.execute(update(ApiKeyRow).where(mine).values(expires_at=at))

    assert await look() == (True, "every tenant has a usable API key", "")
    await expire(datetime.now(UTC) + timedelta(days=2))
    ok, message, fix = await look()
    assert (ok, str(tenant.id) in message, "hansei key create" in fix) == (True, True, True)
    await expire(datetime.now(UTC) - timedelta(days=2))
    ok, message, fix = await look()
    assert ok, "a tenant may be without a key: only its own clients notice it"
    assert "without a usable API key" in message
    assert str(tenant.id) in message
    assert "hansei key create" in fix


def test_check_creates_no_database(tmp_path: Path) -> None:
    """A client's folder has none: its service runs elsewhere."""
    for command in (("doctor",), ("tenant", "list"), ("maintain", "upkeep", "--all")):
        status, shown, error = run_command_here(command, {"HANSEI_DATA_DIR": str(tmp_path / "no")})
        assert (status, "No database in" in shown + error) == (1, True), shown + error
    assert not list(tmp_path.iterdir())


async def test_json_is_the_only_output(database: Database, tmp_path: Path) -> None:
    (tmp_path / "typo.txt").write_text("x", encoding="utf-8")
    roles = {"DATABASE_URL": "app", "HANSEI_WORKER_URL": "worker", "HANSEI_OWNER_URL": "owner"}
    urls = {name: database.url(f"hansei_{role}") for name, role in roles.items()}
    status, shown, _ = await run_command(
        ("doctor", "--json"), urls | {"HANSEI_PROMPTS_DIR": str(tmp_path)}
    )
    failed = [one["name"] for one in json.loads(shown) if not one["ok"]]
    assert (status, "prompts" in failed) == (1, True)


async def test_invalid_setting_of_the_agent_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Settings(_env_file=None)  # type: ignore[call-arg]
    wrong = {
        "GRACE_INTERVENTION_TIMEOUT_SECONDS": "inf",
        "GRACE_SEARCH_TOP_K": "many",
        "GRACE_THRESHOLD_CONFIRM": "0.5",
        "GRACE_LLM_MODEL": "m",
    }
    with monkeypatch.context() as patched:
        for variable, value in wrong.items():
            patched.setenv(variable, value)
        urls = DatabaseUrls(
            *(database.url(f"hansei_{role}") for role in ("app", "worker", "owner"))
        )
        found = {one.name: one for one in await doctor.run_checks(given, urls)}
    assert not found["agent"].ok
    for words in (
        "intervention.timeout_seconds",
        "search.top_k: Must be a whole number.",
        "GRACE_THRESHOLD_CONFIRM has no effect",
        "HANSEI_LLM_MODEL",
    ):
        assert words in found["agent"].message, "all at once"
    load_config.cache_clear()


async def test_invalid_sections_file_is_found(database: Database, tmp_path: Path) -> None:
    urls = DatabaseUrls(*(database.url(f"hansei_{role}") for role in ("app", "worker", "owner")))
    file = tmp_path / "sections.yaml"
    file.write_text("default: [{nonsense", encoding="utf-8")
    given = Settings(_env_file=None, sections_file=file)  # type: ignore[call-arg]
    found = {one.name: one for one in await doctor.run_checks(given, urls)}
    assert (found["sections"].ok, "HANSEI_SECTIONS_FILE" in found["sections"].fix) == (False, True)
    for name in ("isolation", "table indexes", "clock", "disk", "prompts"):
        assert found[name].ok, found[name]
    assert {"runs", "keys"} < found.keys()


@pytest.mark.one_server("Citus refuses such a key")
async def test_key_without_tenant_cannot_be_distributed(
    runtime: Runtime, database: Database
) -> None:
    assert (await check_distribution(runtime.sessions)).ok
    create = "create unique index webhooks_url_idx on webhooks (url)"
    await database.server.run(create, database.name)
    try:
        found = await check_distribution(runtime.sessions)
    finally:
        await database.server.run("drop index webhooks_url_idx", database.name)
    assert (found.ok, "webhooks_url_idx has no tenant_id" in found.message) == (False, True)


CITUS_CATALOG = (
    # The tables of Citus that the check reads, with every table but one.
    "create table pg_dist_partition as"
    " select c.oid::regclass logicalrelid, 'h'::text partmethod, 1 colocationid from pg_class c"
    " where c.relkind in ('r', 'p') and c.relname <> 'webhooks'",
    "create table pg_dist_object as select oid objid, 0 distribution_argument_index from pg_proc",
    "create table citus_stat_counters as"
    " select current_database() as name, 3 query_execution_multi_shard",
    "grant select on pg_dist_partition, pg_dist_object, citus_stat_counters to public",
)


@pytest.mark.one_server("it writes a catalog of Citus of its own")
async def test_table_that_citus_does_not_distribute_is_found(
    runtime: Runtime, database: Database
) -> None:
    async def run(*statements: str) -> None:
        for statement in statements:
            await database.server.run(statement, database.name)

    try:
        await run(*CITUS_CATALOG)
        table = await check_distribution(runtime.sessions)
        await run("insert into pg_dist_partition values ('webhooks', 'h', 2)")
        elsewhere = await check_distribution(runtime.sessions)
        await run(
            "update pg_dist_partition set colocationid = 1",
            "delete from pg_dist_object where objid in"
            " (select oid from pg_proc where proname = 'hansei_search')",
        )
        function = await check_distribution(runtime.sessions)
        await run(
            "insert into pg_dist_object select oid, 0 from pg_proc where proname = 'hansei_search'"
        )
        complete = await check_distribution(runtime.sessions)
    finally:
        await run("drop table if exists pg_dist_partition, pg_dist_object, citus_stat_counters")
    assert (table.ok, table.message) == (False, "not distributed: the table webhooks")
    assert (elsewhere.ok, elsewhere.message) == (False, "not distributed: the table webhooks")
    assert (function.ok, function.message) == (
        False,
        "not distributed: the function hansei_search",
    )
    assert (complete.ok, complete.message) == (True, "Citus distributes all tables with a tenant")


def test_installed_packages_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation_checks.check_packages().ok
    versions = {"hansei": "0.1.0", "hansei-server": "0.2.0"}
    monkeypatch.setattr(installation_checks.metadata, "version", versions.__getitem__)
    found = installation_checks.check_packages()
    assert (found.ok, found.message) == (False, "hansei 0.1.0, hansei-server 0.2.0")
    assert "hansei==0.2.0" in found.fix
    versions["hansei"] = "0.2.0"
    monkeypatch.setattr(installation_checks.metadata, "entry_points", lambda group: [])
    found = installation_checks.check_packages()
    assert (found.ok, "hansei.commands" in found.message) == (False, True)

    def missing(name: str) -> str:
        raise installation_checks.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation_checks.metadata, "version", missing)
    assert installation_checks.check_packages().message == (
        "not installed: hansei and hansei-server"
    )


def test_missing_libraries_of_personal_data_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    off = installation_checks.check_personal_data(Settings(_env_file=None))  # type: ignore[call-arg]
    assert (off.ok, "HANSEI_PII_REDACTION=all" in off.fix) == (True, True)
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    monkeypatch.setattr(PERSONAL_DATA, "detector", None)
    on = Settings(_env_file=None, pii_redaction="all")  # type: ignore[call-arg]
    found = installation_checks.check_personal_data(on)
    assert (found.ok, found.fix) == (False, "Run `pip install hansei-server[pii]`.")


async def test_conflicts_of_an_older_rule_are_counted(
    runtime: Runtime, worker_runtime: Runtime, tenant: TestTenant, api: AsyncClient
) -> None:
    """A conflict in which the client declared no check was decided by an older rule."""

    async def look() -> tuple[bool, str, str]:
        *_, conflicts = await check_all_tenants(worker_runtime.sessions, [tenant.id])
        return conflicts.ok, conflicts.message, conflicts.fix

    ids = [await new_trace(api, outcome="success", reflect="never") for _ in range(3)]
    evaluations = {
        ids[0]: CriterionScore(Criterion.CORRECTNESS, 0.2, ("so",), declared=True),
        ids[1]: CriterionScore(Criterion.CORRECTNESS, 0.2, ("so",)),
    }
    conflict = OutcomeConflict(
        reported=OutcomeType.SUCCESS, check=OutcomeType.FAILURE, reasons=["so"]
    )
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for trace_id, score in evaluations.items():
            results = EvaluationResults({"deterministic": EvaluatorResult((score,))})
            await store_evaluation(session, UUID(trace_id), new_id(), results, conflict)
    ok, message, fix = await look()
    assert ok
    assert message.startswith("2 traces have an outcome that a check contradicts; 1 of these")
    assert "send the outcome again with `match`" in fix
