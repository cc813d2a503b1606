"""The audit log: which administrative acts were done in a tenant, when and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.tables import ApiKeyRow
from memory_api.core.db import current_tenant_id
from memory_api.core.ids import new_id
from memory_api.core.log_context import current_actor
from memory_api.core.secret_redaction import redact_value
from memory_api.tenants.tables import AuditEventRow

MAX_TARGET_LENGTH = 500


async def record_audit_event(
    session: AsyncSession, action: str, target: str, details: Mapping[str, Any]
) -> None:
    """Add an event to the audit log of the session's tenant, in the session's transaction.

    `action` is `<noun>.<past participle>`, such as `key.revoked`; `target` names what was changed.
    `details` must be JSON; secrets in it are replaced. The actor is the API key of the request, the
    run of a worker, or the command line.
    """
    session.add(
        AuditEventRow(
            tenant_id=current_tenant_id(session),
            id=new_id(),
            action=action,
            target=target[:MAX_TARGET_LENGTH],
            actor=current_actor(),
            details=redact_value(dict(details))[0],
        )
    )
    await session.flush()


async def record_key_event(session: AsyncSession, action: str, key: ApiKeyRow) -> None:
    """Record that an API key was created or revoked."""
    expires_at = key.expires_at.isoformat() if key.expires_at else None
    details = {"name": key.name, "scopes": key.scopes, "project_id": key.project_id}
    await record_audit_event(session, action, f"key:{key.id}", details | {"expires_at": expires_at})
