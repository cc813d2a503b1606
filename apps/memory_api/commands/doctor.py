"""`hansei doctor`: checks the installation."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from hansei import errors as client_errors
from hansei.cli.terminal import print_json, sanitize
from hansei.client import Hansei
from hansei.credentials import Credentials, load_credentials, resolve_credentials
from memory_api.bootstrap import open_runtime
from memory_api.commands.database import (
    CommandFailed,
    DatabaseUrls,
    exit_on_error,
    open_database,
)
from memory_api.commands.database_checks import (
    check_clock,
    check_disk,
    check_functions,
    check_logins,
    check_notifications,
    check_row_security,
    check_table_indexes,
)
from memory_api.commands.doctor_checks import CheckResult, check_memories, check_model
from memory_api.commands.installation_checks import (
    check_distribution,
    check_packages,
    check_personal_data,
)
from memory_api.commands.tenant_checks import check_all_tenants
from memory_api.core.db import Sessions, open_engine
from memory_api.core.db_errors import UNDEFINED_TABLE, driver_message, sqlstate
from memory_api.core.errors import HanseiError
from memory_api.core.migrations import head_revision
from memory_api.core.resources import read_sql
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.grace.config import load_config
from memory_api.llm.prompts import check_prompt_directory
from memory_api.playbooks.sections import check_section_file

ROLE = text(read_sql("commands/doctor.sql", "role"))
REVISION = text(read_sql("commands/doctor.sql", "revision"))
EXTENSION = text(read_sql("commands/doctor.sql", "extension"))
OVERDUE_TICKETS = text(read_sql("commands/doctor.sql", "overdue_tickets"))

Result = CheckResult | Sequence[CheckResult]
Check = Callable[[Settings, DatabaseUrls], Awaitable[Result]]


def run(data_dir: Path | None, json: bool) -> None:
    with exit_on_error():
        settings = Settings.load()
        configure_logging(settings.log_format, "critical")  # the results say what failed
        try:
            with open_database(settings, data_dir) as urls:
                results = asyncio.run(run_checks(settings, urls))
        except CommandFailed as error:
            results = [CheckResult("database", False, str(error))]
        results = [*results, check_api(data_dir)]
    print_results(results, json)
    sys.exit(0 if all(result.ok for result in results) else 1)


def check_api(data_dir: Path | None) -> CheckResult:
    """Whether the service that the other commands use answers, and accepts the API key."""
    try:
        service = _find_service(data_dir)
        if service is None:
            return CheckResult("api", True, "not checked: no URL and API key of a service found")
        return _check_service(service)
    except client_errors.APIConnectionError as error:
        return CheckResult("api", False, str(error), "Start `hansei up`, or correct HANSEI_URL.")
    except client_errors.HanseiError as error:
        return CheckResult("api", False, str(error), "Check HANSEI_URL and HANSEI_API_KEY.")


def _check_service(service: Credentials) -> CheckResult:
    with Hansei(service.url, service.api_key, timeout=10, max_retries=0) as client:
        if service.api_key is None:
            client.health.get()
            return CheckResult("api", True, f"{service.url} answers; no API key to check")
        try:
            client.analytics.list_questions()  # needs a key, and reads no data
        except client_errors.AuthenticationError as error:
            fix = "Set HANSEI_API_KEY to a valid key, or run `hansei up` to create one."
            return CheckResult("api", False, f"{service.url} refuses the API key: {error}", fix)
    return CheckResult("api", True, f"{service.url} answers and accepts the API key")


def _find_service(data_dir: Path | None) -> Credentials | None:
    if data_dir is not None:
        return load_credentials(data_dir)
    is_named = os.environ.get("HANSEI_URL") or os.environ.get("HANSEI_API_KEY")
    return resolve_credentials() if is_named or load_credentials() else None


async def run_checks(settings: Settings, urls: DatabaseUrls) -> Sequence[CheckResult]:
    """Run all checks. Stops if there is no connection or no table, because the rest needs them."""
    results: list[CheckResult] = []
    checks: dict[str, Check] = {
        "packages": _check_packages,
        "personal data": _check_personal_data,
        "connection": _check_connection,
        "role": _check_role,
        "extension": _check_extension,
        "schema": _check_schema,
        "isolation": _with_sessions(check_row_security),
        "functions": _with_sessions(check_functions, lambda urls: urls.owner or urls.app),
        "logins": _with_sessions(check_logins),
        "notifications": _with_sessions(check_notifications),
        "table indexes": _with_sessions(check_table_indexes),
        "distribution": _with_sessions(check_distribution),
        "clock": _with_sessions(check_clock),
        "disk": _check_disk,
        "queue": _check_queue,
        "runs": _with_sessions(check_all_tenants, lambda urls: urls.worker),
        "model": lambda settings, _: check_model(settings),
        "embedder": _check_embedder,
        "memories": _check_memories,
        "prompts": _check_prompts,
        "sections": _check_sections,
        "agent": _check_agent,
    }
    for name, check in checks.items():
        try:
            result = await check(settings, urls)
            results += [result] if isinstance(result, CheckResult) else result
        except (SQLAlchemyError, HanseiError, OSError, ValueError) as error:
            if name == "schema" and sqlstate(error) == UNDEFINED_TABLE:
                results.append(CheckResult(name, False, "no tables yet", _FIXES.get(name, MIGRATE)))
                break
            message = driver_message(error)
            if not any(result.message == message for result in results):  # else the same cause
                results.append(CheckResult(name, False, message, _FIXES.get(name, MIGRATE)))
            if name == "connection":
                break
    return results


_FIXES = {
    "packages": "Install hansei-server again.",
    "personal data": "Check HANSEI_PII_REDACTION.",
    "connection": "Check that PostgreSQL is running and that HANSEI_DATABASE_URL is correct.",
    "role": "Connect as hansei_app, and workers as hansei_worker (docs/install.md).",
    "extension": "Run `create extension vector;` as a superuser.",
    "notifications": "Check the connection to the database.",
    "clock": "Check the connection to the database.",
    "disk": "Check the connection to the database.",
    "queue": "Run `hansei migrate`, then start `hansei worker`.",
    "runs": "Set HANSEI_WORKER_URL to the database URL of hansei_worker, or run `hansei migrate`.",
    "embedder": "Check HANSEI_EMBEDDING_PROVIDER, HANSEI_EMBEDDING_BASE_URL and the API key.",
    "model": "Check HANSEI_LLM_PROVIDER, HANSEI_LLM_MODEL and the provider's API key.",
    "prompts": "Correct the file in HANSEI_PROMPTS_DIR (docs/reflector.md).",
    "agent": "Correct the variables, or the file that GRACE_CONFIG names (docs/grace.md).",
    "sections": "Correct the file in HANSEI_SECTIONS_FILE. The API does not start with it.",
}
MIGRATE = "Run `hansei migrate`."
"""The fix of the other checks."""


async def _check_agent(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    """The settings of GRACE: the file and all variables that start with GRACE_."""
    load_config.cache_clear()
    load_config()
    return CheckResult("agent", True, "settings of GRACE are valid")


@asynccontextmanager
async def _open_sessions(url: str) -> AsyncGenerator[Sessions]:
    sessions = Sessions(open_engine(url, pool_size=1, codecs=False))
    try:
        yield sessions
    finally:
        await sessions.close()


async def _fetch_row(url: str, statement: object) -> Sequence[object]:
    async with _open_sessions(url) as sessions, sessions.without_tenant() as session:
        return tuple((await session.execute(statement)).one_or_none() or ())  # type: ignore[call-overload]


async def _check_packages(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    return check_packages()


async def _check_personal_data(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    return check_personal_data(settings)


async def _check_connection(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    row = await _fetch_row(urls.app, text("select current_setting('server_version')"))
    return CheckResult("connection", True, f"PostgreSQL {row[0]}")


async def _check_role(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    names: list[str] = []
    for url in dict.fromkeys((urls.app, urls.worker)):
        role, can_bypass_rls, owned_count = await _fetch_row(url, ROLE)
        if can_bypass_rls or owned_count != 0:
            problem = "can bypass row-level security" if can_bypass_rls else "owns tables"
            return CheckResult("role", False, f"the role {role} {problem}", _FIXES["role"])
        names.append(str(role))
    verb = "own" if len(names) > 1 else "owns"
    message = f"{' and '.join(names)} {verb} no tables and cannot bypass row-level security"
    return CheckResult("role", True, message)


def _with_sessions(
    check: Callable[[Sessions], Awaitable[Result]],
    choose_url: Callable[[DatabaseUrls], str] = lambda urls: urls.app,
) -> Check:
    """A check that needs only a connection, of the app role by default."""

    async def run_check(_settings: Settings, urls: DatabaseUrls) -> Result:
        async with _open_sessions(choose_url(urls)) as sessions:
            return await check(sessions)

    return run_check


async def _check_disk(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    folder = urls.embedded.cluster_dir if urls.embedded is not None else None
    async with _open_sessions(urls.app) as sessions:
        return await check_disk(sessions, folder)


async def _check_extension(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    row = await _fetch_row(urls.app, EXTENSION)
    if not row:
        return CheckResult("extension", False, "pgvector is not installed", _FIXES["extension"])
    return CheckResult("extension", True, f"pgvector {row[0]}")


async def _check_schema(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    row = await _fetch_row(urls.owner or urls.app, REVISION)
    revision = str(row[0]) if row else "none"
    if revision != head_revision():
        message = f"revision {revision}, but this release needs {head_revision()}"
        return CheckResult("schema", False, message, MIGRATE)
    return CheckResult("schema", True, f"revision {revision}")


async def _check_queue(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    row = await _fetch_row(urls.app, OVERDUE_TICKETS)
    overdue_count = int(str(row[0]))
    if overdue_count:
        message = f"{overdue_count} runs have been due for more than a minute"
        return CheckResult("queue", False, message, "Start a worker with `hansei worker`.")
    return CheckResult("queue", True, "no run is overdue")


async def _check_embedder(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    async with open_runtime(settings, urls.app) as runtime:
        embedder = runtime.default_embedder
        vector = await embedder.embed_query("hello")
        return CheckResult("embedder", True, f"{embedder.model}, {len(vector)} dimensions")


async def _check_memories(settings: Settings, urls: DatabaseUrls) -> Sequence[CheckResult]:
    worker_settings = settings.model_copy(update={"owner_url": urls.owner})
    async with open_runtime(worker_settings, urls.worker) as runtime:
        return await check_memories(runtime)


async def _check_prompts(settings: Settings, urls: DatabaseUrls) -> Sequence[CheckResult]:
    directory = settings.prompts_dir
    if directory is None:
        return [CheckResult("prompts", True, "no custom prompts")]
    problems = check_prompt_directory(directory)
    if not problems:
        return [CheckResult("prompts", True, f"the custom prompts in {directory} are valid")]
    return [CheckResult("prompts", False, problem, _FIXES["prompts"]) for problem in problems]


async def _check_sections(settings: Settings, urls: DatabaseUrls) -> CheckResult:
    check_section_file(settings)
    file = settings.sections_file or "the packaged config/sections.yaml"
    return CheckResult("sections", True, f"{file} is valid")


def print_results(results: Sequence[CheckResult], json: bool) -> None:
    if json:
        print_json([asdict(result) for result in results])
        return
    console = Console(highlight=False, soft_wrap=True)
    for result in results:
        status, color = ("note", "yellow") if result.fix else ("ok", "green")
        if not result.ok:
            status, color = "failed", "red"
        console.print(f"[{color}]{status:<6}[/] {result.name:<13} ", end="")
        console.print(sanitize(result.message), markup=False)
        if result.fix:
            console.print(f"       → {sanitize(result.fix)}", markup=False)
    console.print(_summary(results))


def _summary(results: Sequence[CheckResult]) -> str:
    """How many checks are fine, and the names of the others."""
    failed = [result.name for result in results if not result.ok]
    open_ = [result.name for result in results if result.ok and result.fix]
    text = f"{len(results) - len(failed) - len(open_)} of {len(results)} fine"
    if failed:
        text += f"; {len(failed)} failed: {', '.join(failed)}"
    return text + (f"; {len(open_)} to decide: {', '.join(open_)}." if open_ else ".")
