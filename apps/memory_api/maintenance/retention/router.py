"""Retention over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from memory_api.api.deps import Admin, Reader, Session, require_whole_tenant
from memory_api.api.route import ApiRoute
from memory_api.core.schemas import body_example
from memory_api.maintenance.retention import queries
from memory_api.maintenance.retention.schemas import (
    ReplaceRetentionRequest,
    RetentionPolicy,
    RetentionPolicyPage,
)
from memory_api.maintenance.tables import RetentionPolicyRow
from memory_api.tenants.audit_log import record_audit_event

router = APIRouter(prefix="/api/v1/retention", tags=["maintenance"], route_class=ApiRoute)
EXAMPLE = {"items": [{"trace_days": 365}, {"project_id": "support", "event_days": 30}]}


@router.get("", summary="List retention policies")
async def list_retention(session: Session, caller: Reader) -> RetentionPolicyPage:
    """Lists how many days the data of each project is stored."""
    return await _load_policies(session, caller.project_id)


@router.put("", summary="Replace all retention policies", openapi_extra=body_example(EXAMPLE))
async def replace_retention(
    body: ReplaceRetentionRequest, session: Session, caller: Admin
) -> RetentionPolicyPage:
    """Replaces all retention policies of the tenant. Once a day, the task `retention` deletes what
    is older.
    """
    require_whole_tenant(caller)
    rows = [
        RetentionPolicyRow(
            tenant_id=caller.tenant_id,
            project_id=item.project_id or "",
            **item.model_dump(exclude={"project_id"}),
        )
        for item in body.items
    ]
    await queries.replace_policies(session, rows)
    policies = body.model_dump(mode="json")
    await record_audit_event(session, "retention.replaced", "retention", policies)
    return await _load_policies(session, None)


async def _load_policies(session: Session, project_id: str | None) -> RetentionPolicyPage:
    rows = await queries.list_policies(session)
    policies = [
        RetentionPolicy(
            project_id=row.project_id or None,
            event_days=row.event_days,
            trace_days=row.trace_days,
            retrieval_days=row.retrieval_days,
            llm_call_days=row.llm_call_days,
        )
        for row in rows
        if project_id in (None, row.project_id) or not row.project_id
    ]
    return RetentionPolicyPage(items=policies)
