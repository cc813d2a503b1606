"""The checks of `hansei doctor` on the installed packages, on the redaction of personal data, and
on the distribution of the tables by tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata

from sqlalchemy import text

from memory_api.commands.doctor_checks import CheckResult
from memory_api.core.db import Sessions
from memory_api.core.errors import ConfigurationError
from memory_api.core.ids import new_id
from memory_api.core.personal_data import PERSONAL_DATA, PersonalDataOptions
from memory_api.core.resources import read_sql
from memory_api.core.settings import Settings
from memory_api.distribution.citus_catalog import REFERENCE_TABLES

CLIENT, SERVER = "hansei", "hansei-server"
ENTRY_POINT_GROUP = "hansei.commands"
SERVER_ENTRY_POINT = "memory_api.__main__:register"

UNDISTRIBUTABLE = text(read_sql("commands/doctor.sql", "undistributable"))
IS_CITUS = text(read_sql("commands/doctor.sql", "is_citus"))
IS_DISTRIBUTED = text(read_sql("commands/doctor.sql", "is_distributed"))
UNDISTRIBUTED = text(read_sql("commands/doctor.sql", "undistributed"))
NODE_TENANT = text(read_sql("commands/doctor.sql", "node_tenant"))
"""The aggregate gives one row, also for a tenant without rows."""
ALL_SHARD_STATEMENTS = text(read_sql("commands/doctor.sql", "all_shard_statements"))


async def check_distribution(sessions: Sessions) -> CheckResult:
    """Keys and foreign keys allow distribution by tenant. If Citus distributes tables, it
    distributes all of them and the functions that bind a tenant, and the nodes get the tenant of a
    transaction: otherwise statements find no rows, without an error.
    """
    async with sessions.without_tenant() as session:
        problems = (await session.scalars(UNDISTRIBUTABLE)).all()
        if problems:
            fix = "Restore the keys of migrations/sql/tables.sql (docs/decisions/distribution.md)."
            return CheckResult("distribution", False, "; ".join(problems[:5]), fix)
        is_citus = await session.scalar(IS_CITUS)
        if not is_citus or not await session.scalar(IS_DISTRIBUTED):
            message = "the tables are on one server; their keys allow distribution by tenant"
            return CheckResult("distribution", True, message)
        reference = {"reference": list(REFERENCE_TABLES)}
        missing = (await session.scalars(UNDISTRIBUTED, reference)).all()
    if missing:
        fix = "Run `hansei distribute`. Until then, rows are missing."
        return CheckResult("distribution", False, f"not distributed: {', '.join(missing)}", fix)
    tenant_id = new_id()
    async with sessions.for_tenant(tenant_id) as session:
        received = await session.scalar(NODE_TENANT, {"tenant": tenant_id})
        statement_count = await session.scalar(ALL_SHARD_STATEMENTS)
    if received != str(tenant_id):
        message = "the role does not send the tenant to the nodes, so reads find no rows"
        return CheckResult("distribution", False, message, "Run `hansei distribute`.")
    message = "Citus distributes all tables with a tenant"
    if statement_count is not None:
        message += f"; {statement_count} statements went to all shards"
    return CheckResult("distribution", True, message)


def installed_versions() -> Mapping[str, str]:
    """Versions by distribution, of the client and the server that are installed."""
    versions: dict[str, str] = {}
    for name in (CLIENT, SERVER):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def check_packages() -> CheckResult:
    """Client and server have one version, and the client finds the commands of the server."""
    versions = installed_versions()
    if missing := [name for name in (CLIENT, SERVER) if name not in versions]:
        message = f"not installed: {' and '.join(missing)}"
        return CheckResult("packages", False, message, f"Run `pip install {SERVER}`.")
    if len(set(versions.values())) > 1:
        message = ", ".join(f"{name} {version}" for name, version in versions.items())
        fix = f"Install one version of both: `pip install {CLIENT}=={versions[SERVER]}`."
        return CheckResult("packages", False, message, fix)
    found = [point.value for point in metadata.entry_points(group=ENTRY_POINT_GROUP)]
    if SERVER_ENTRY_POINT not in found:
        message = f"the entry point {ENTRY_POINT_GROUP} of {SERVER} is missing"
        return CheckResult("packages", False, message, f"Install {SERVER} again.")
    return CheckResult("packages", True, f"{CLIENT} and {SERVER} {versions[SERVER]}")


def check_personal_data(settings: Settings) -> CheckResult:
    """The libraries that HANSEI_PII_REDACTION needs are installed."""
    options = PersonalDataOptions.parse(settings.pii_redaction, settings.pii_phone_region)
    if not options.kinds:
        message = "stored as sent: HANSEI_PII_REDACTION is off"
        return CheckResult(
            "personal data",
            True,
            message,
            "HANSEI_PII_REDACTION=all redacts it (docs/security.md).",
        )
    try:
        PERSONAL_DATA.configure(options)
    except ConfigurationError as error:
        return CheckResult(
            "personal data", False, str(error), "Run `pip install hansei-server[pii]`."
        )
    return CheckResult("personal data", True, f"redacted: {', '.join(options.kinds)}")
