"""What `hansei doctor` says of the model's provider and of what search stands on."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from hansei.credentials import Credentials, save_credentials
from memory_api.commands import doctor
from memory_api.commands.database import DatabaseUrls
from memory_api.commands.doctor_checks import CheckResult, check_memories, check_model
from memory_api.core.settings import Settings
from memory_api.embeddings.registry import EmbedderSpec
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.maintenance import reembedding, vector_indexes
from memory_api.memories.tables import MemoryRow
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.reembedding import Mover, close_all, insight_drafts, other_process, store_drafts
from tests.support.server_command import run_command
from tests.support.stub_provider import StubProvider, server_error, unauthorized

KEY = "sk-never-to-be-shown"


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_all()


@pytest.fixture
def look(database: Database):
    """All findings, by name."""

    async def findings(**settings: Any) -> dict[str, CheckResult]:
        given = Settings(_env_file=None, **settings)  # type: ignore[call-arg]
        roles = ("hansei_app", "hansei_worker", "hansei_owner")
        found = await doctor.run_checks(
            given, DatabaseUrls(*(database.url(role) for role in roles))
        )
        return {one.name: one for one in found}

    return findings


@pytest.fixture
def look_at(runtime: Runtime):
    """The findings about some tenants, by name."""

    async def findings(*tenants: TestTenant) -> dict[str, CheckResult]:
        found = await check_memories(other_process(runtime), [one.id for one in tenants])
        return {one.name: one for one in found}

    return findings


def settings(**given: Any) -> Settings:
    return Settings(_env_file=None, **given)  # type: ignore[call-arg]


def openai(url: str, model: str = "some-model") -> Settings:
    return settings(llm_provider="openai", llm_model=model, openai_api_key=KEY, openai_base_url=url)


async def test_healthy_installation_has_no_findings(look: Any) -> None:
    found = await look()
    names = ("connection", "role", "extension", "schema", "embedder")
    assert {name for name in names if not found[name].ok} == set()
    assert {"embeddings", "tokenizer", "indexes", "queue"} < found.keys()
    assert found["model"].ok
    assert "only the rules engine runs" in found["model"].message
    assert "OPENAI_API_KEY" in found["model"].fix


def test_last_line_counts_what_is_fine_and_names_the_rest(capsys: pytest.CaptureFixture) -> None:
    results = [
        CheckResult("disk", True, "1 GB free"),
        CheckResult("model", True, "none", "Set a key."),
        CheckResult("queue", False, "2 runs are due", "Start a worker."),
    ]
    doctor.print_results(results, json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 of 3 fine; 1 failed: queue; 1 to decide: model."


async def test_healthy_tenant_has_no_findings(
    look_at: Any, runtime: Runtime, tenant: TestTenant
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(1))
    found = await look_at(tenant)
    assert {name for name, one in found.items() if not one.ok or one.fix} == set()
    assert found["embeddings"].message == "1 × static-minilm-256/1"
    assert found["tokenizer"].message == "hansei-terms/1"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_provider_check_is_free_of_charge(stub: StubProvider, provider: str) -> None:
    given = openai(stub.openai_url)
    if provider == "anthropic":
        given = settings(
            llm_provider="anthropic",
            llm_model="some-model",
            anthropic_api_key=KEY,
            anthropic_base_url=stub.anthropic_url,
        )
    found = await check_model(given)
    assert (found.ok, found.fix) == (True, "")
    assert "the API key is accepted" in found.message
    assert [call.api for call in stub.calls] == ["models"]


async def test_provider_problem_is_reported_with_fix(stub: StubProvider) -> None:
    stub.queue(unauthorized())
    refused = await check_model(openai(stub.openai_url))
    assert (refused.ok, "rejected" in refused.message) == (False, True)
    assert "OPENAI_API_KEY" in refused.fix
    stub.queue(server_error())
    ill = await check_model(openai(stub.openai_url))
    assert (ill.ok, "llm_server_error" in ill.message) == (False, True)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        away = await check_model(openai(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))
    assert (away.ok, "llm_connection" in away.message) == (False, True)
    strange = await check_model(openai(stub.openai_url, "nobody-knows-it"))
    assert (strange.ok, "nobody-knows-it" in strange.fix) == (True, True)
    for one in (refused, ill, away, strange):
        assert KEY not in str(one)


async def test_model_without_api_key_is_reported(look: Any) -> None:
    results = await look(llm_provider="anthropic")
    found = results["model"]
    assert (found.ok, "anthropic" in found.message) == (False, True)
    assert "key" in found.fix
    assert [one.name for one in results.values() if not one.ok] == ["model"], "the cause, once"


async def test_running_and_stopped_reembedding_and_old_vectors_are_reported(
    look_at: Any, runtime: Runtime, tenant: TestTenant, stub: StubProvider, make_tenant: Any
) -> None:
    spec = EmbedderSpec("openai", "embed-b", 64, stub.openai_url)
    moving, stopped, moved = tenant, await make_tenant(), await make_tenant()
    movers = {one.id: Mover(other_process(runtime), one.id) for one in (moving, stopped, moved)}
    for one in movers:
        await store_drafts(runtime, one, insight_drafts(2))
    run = await movers[moving.id].start(spec)
    found = (await look_at(moving))["embeddings"]
    assert f"{moving.id} to openai/embed-b@64" in found.message
    async with runtime.sessions.for_tenant(moving.id) as session:
        row = await session.get_one(type(run), (moving.id, run.id))
        row.error = {"message": "embed-b returned no embeddings.", "postponements": 3}
    found = (await look_at(moving))["embeddings"]
    assert not found.ok, "it was shown as a move that makes progress"
    assert "waiting move: " in found.message
    assert "embed-b returned no embeddings." in found.message
    await reembedding.cancel_reembedding(runtime, moving.id)
    assert f"{moving.id} to" not in (await look_at(moving))["embeddings"].message

    run = await movers[stopped.id].start(spec)
    async with runtime.sessions.for_tenant(stopped.id) as session:
        row = await session.get_one(type(run), (stopped.id, run.id))
        row.state = "dead"
    found = (await look_at(stopped))["embeddings"]
    assert (found.ok, str(stopped.id) in found.message) == (False, True)
    assert "hansei reembed" in found.fix
    await reembedding.cancel_reembedding(runtime, stopped.id)

    await movers[moved.id].move(spec)
    async with runtime.sessions.for_tenant(moved.id) as session:
        await session.execute(
            update(EmbeddingModelRow)
            .where(EmbeddingModelRow.tenant_id == moved.id, EmbeddingModelRow.state == "retiring")
            .values(state_since=datetime.now(UTC) - timedelta(hours=2))
        )
    found = (await look_at(moved))["embeddings"]
    assert (found.ok, str(moved.id) in found.message) == (False, True)
    assert "hansei worker" in found.fix


async def test_unloadable_embedding_model_is_reported(
    look_at: Any, runtime: Runtime, tenant: TestTenant
) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        session.add(
            EmbeddingModelRow(
                tenant_id=tenant.id, label="static-minilm-256/0", provider="static", state="active"
            )
        )
    found = (await look_at(tenant))["embeddings"]
    assert (found.ok, "static-minilm-256/0" in found.message) == (False, True)


async def test_embedding_provider_that_does_not_answer_is_reported(
    look_at: Any, runtime: Runtime, tenant: TestTenant, stub: StubProvider, make_tenant: Any
) -> None:
    """Its searches answered 503, and every check was fine."""
    tenants = [tenant, await make_tenant()]
    for one in tenants:
        await store_drafts(runtime, one.id, insight_drafts(2))
        spec = EmbedderSpec("openai", "embed-b", 64, stub.openai_url)
        await Mover(other_process(runtime), one.id).move(spec)
    stub.clear()
    assert (await look_at(*tenants))["embeddings"].message == "2 × openai/embed-b@64"
    assert len(stub.calls) == 1, "a model is tried once, not for each tenant"
    stub.behave = lambda call: unauthorized()
    found = (await look_at(*tenants))["embeddings"]
    assert (found.ok, "embed-b returned no embeddings" in found.message) == (False, True)


async def test_other_tokenizers_and_large_scopes_without_an_index(
    look_at: Any, runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(30))

    async def indexed_by(tokenizer: str) -> CheckResult:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(
                update(MemoryRow)
                .where(MemoryRow.tenant_id == tenant.id)
                .values(tokenizer=tokenizer)
            )
        return (await look_at(tenant))["tokenizer"]

    older = await indexed_by("hansei-terms/0")
    assert (older.ok, "reindexed" in older.message) == (True, True)
    newer = await indexed_by("hansei-terms/99")
    assert (newer.ok, "newer release" in newer.message) == (False, True)
    assert (await indexed_by("hansei-terms/1")).ok
    monkeypatch.setattr(vector_indexes, "CREATE_ABOVE_ROWS", 25)
    monkeypatch.setattr(vector_indexes, "DROP_BELOW_ROWS", 20)
    found = (await look_at(tenant))["indexes"]
    assert "no vector index yet" in found.message


async def test_unreachable_database_is_the_only_finding(database: Database) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://nobody:x@127.0.0.1:{taken.getsockname()[1]}/x"
        found = await asyncio.wait_for(
            doctor.run_checks(settings(), DatabaseUrls(url, url, None)), 60
        )
    assert [(one.name, one.ok) for one in found if not one.ok] == [("connection", False)]
    assert found[-1].name == "connection"


async def test_superuser_missing_extension_and_missing_tables_are_reported(
    database: Database,
) -> None:
    """In a database without Hansei, as a role that sees all rows."""
    url = database.server.url("postgres", "postgres")
    found = await doctor.run_checks(settings(), DatabaseUrls(url, url, None))
    by_name = {one.name: one for one in found}
    role, extension, schema = (by_name[name] for name in ("role", "extension", "schema"))
    assert (role.ok, role.message) == (False, "the role postgres can bypass row-level security")
    assert "Connect as hansei_app" in role.fix
    assert (extension.ok, extension.message) == (False, "pgvector is not installed")
    assert "create extension vector" in extension.fix
    assert (schema.ok, schema.message, schema.fix) == (
        *(False, "no tables yet", "Run `hansei migrate`."),
    )
    assert found[-1] == schema, "the other checks need tables"


async def test_old_schema_missing_worker_and_failing_embedder_are_reported(
    look: Any, database: Database, stub: StubProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "head_revision", lambda: "9999")
    stub.queue(unauthorized())
    await database.server.run(
        "insert into tickets (lane, run_id, due_at)"
        " select id, id, now() - interval '1 hour' from (select gen_random_uuid() id) run",
        database.name,
    )
    try:
        found = await look(
            embedding_provider="openai", embedding_api_key=KEY, embedding_base_url=stub.openai_url
        )
    finally:
        remove = "delete from tickets where lane = run_id"
        await database.server.run(remove, database.name)
    schema, queue, embedder = (found[name] for name in ("schema", "queue", "embedder"))
    assert (schema.ok, "this release needs 9999" in schema.message) == (False, True)
    assert schema.fix == "Run `hansei migrate`."
    assert (queue.ok, "due for more than a minute" in queue.message) == (False, True)
    assert "hansei worker" in queue.fix
    assert not embedder.ok
    assert "HANSEI_EMBEDDING_PROVIDER" in embedder.fix
    assert KEY not in str(embedder)


async def test_custom_prompts_are_checked(look: Any, tmp_path: Path) -> None:
    assert (await look())["prompts"].message == "no custom prompts"
    file = tmp_path / "reflection" / "failure.txt"
    file.parent.mkdir()
    file.write_text("{events}", encoding="utf-8")
    assert (await look(prompts_dir=tmp_path))["prompts"].ok
    file.write_text("{evnts}", encoding="utf-8")
    found = (await look(prompts_dir=tmp_path))["prompts"]
    assert not found.ok
    assert "reflection/failure.txt" in found.message
    assert "`{evnts}`" in found.message
    assert found.fix is not None


def test_api_check_names_a_service_that_does_not_answer_or_refuses_the_key(
    live: str, tenant: TestTenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("HANSEI_URL", "HANSEI_API_KEY", "HANSEI_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    unknown = doctor.check_api(None)
    assert (unknown.ok, unknown.message[:11]) == (True, "not checked")

    monkeypatch.setenv("HANSEI_URL", live)
    without_key = doctor.check_api(None)
    assert (without_key.ok, "no API key" in without_key.message) == (True, True)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["read"])
    assert doctor.check_api(None) == CheckResult(
        "api", True, f"{live} answers and accepts the API key"
    )
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_wrong")
    refused = doctor.check_api(None)
    assert (refused.ok, f"{live} refuses the API key" in refused.message) == (False, True)
    assert "HANSEI_API_KEY" in refused.fix

    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:9")
    stopped = doctor.check_api(None)
    assert (stopped.ok, "http://127.0.0.1:9 cannot be reached" in stopped.message) == (False, True)
    assert "`hansei up`" in stopped.fix
    monkeypatch.setenv("HANSEI_URL", "ftp://x")
    assert not doctor.check_api(None).ok
    save_credentials(tmp_path / "data", Credentials(live, tenant.keys["read"]))
    assert doctor.check_api(tmp_path / "data").ok


async def test_doctor_fails_if_the_service_cannot_be_reached(database: Database) -> None:
    roles = {"DATABASE_URL": "app", "HANSEI_WORKER_URL": "worker", "HANSEI_OWNER_URL": "owner"}
    urls = {name: database.url(f"hansei_{role}") for name, role in roles.items()}
    variables = urls | {"HANSEI_URL": "http://127.0.0.1:9", "HANSEI_API_KEY": "hsk_x"}
    status, shown, _ = await run_command(("doctor", "--json"), variables)
    (found,) = [one for one in json.loads(shown) if one["name"] == "api"]
    assert (status, found["ok"]) == (1, False)
