"""Events of a tenant: what a webhook can receive.

`add_event` notes an event in the session of the change that it reports. Before this session
commits, `delivery_writer` writes one delivery and one run for each webhook that wants it, so an
event is reported if and only if its change is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, get_args
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.ids import new_id
from memory_api.core.statements import compile_statement, fetch_rows
from memory_api.run_queue.port import RunQueue, Ticket, slots_of
from memory_api.runs.lifecycle import new_run
from memory_api.webhooks.tables import WebhookDeliveryRow, WebhookRow

WebhookEventType = Literal[
    "reflection.created",
    "proposal.created",
    "bullet.quarantined",
    "budget.threshold_reached",
    "intervention.requested",
]
EVENT_TYPES: tuple[WebhookEventType, ...] = get_args(WebhookEventType)
TEST_EVENT = "webhook.test"
"""The event that a person sends to check a receiver."""
WEBHOOK = "webhook"
"""The kind of run that sends a delivery."""
DELIVERY_ID = "delivery_id"
"""In the input of such a run."""
MAX_ATTEMPTS = 16
"""About 45 minutes with the delays of `runs.lifecycle.backoff`."""
_EVENTS_KEY = "webhook_events"
_ACTIVE_WEBHOOKS = compile_statement(
    select(WebhookRow.id, WebhookRow.project_id, WebhookRow.event_types).where(
        WebhookRow.tenant_id == bindparam("tenant"), WebhookRow.active
    )
)


@dataclass(frozen=True)
class WebhookEvent:
    """`data` is JSON with IDs and names; the API has the rest."""

    type: WebhookEventType
    project_id: str | None
    data: Mapping[str, Any]


def add_event(session: AsyncSession, event: WebhookEvent) -> None:
    """Report an event if the session commits. Only for sessions of `Sessions.for_tenant`."""
    session.info.setdefault(_EVENTS_KEY, []).append(event)


class ReportedReflection(Protocol):
    """A reflection that was stored."""

    @property
    def id(self) -> UUID: ...
    @property
    def trace_id(self) -> UUID | None: ...
    @property
    def project_id(self) -> str: ...


def report_reflection(session: AsyncSession, reflection: ReportedReflection) -> None:
    trace_id = reflection.trace_id and str(reflection.trace_id)
    data = {"reflection_id": str(reflection.id), "trace_id": trace_id}
    add_event(session, WebhookEvent("reflection.created", reflection.project_id, data))


def delivery_writer(queue: RunQueue) -> Callable[[AsyncSession], Awaitable[None]]:
    """What writes the deliveries of a session that is about to commit."""

    async def write(session: AsyncSession) -> None:
        events: list[WebhookEvent] = session.info.pop(_EVENTS_KEY, [])
        if not events:
            return
        parameters = {"tenant": current_tenant_id(session)}
        rows = [
            _new_delivery(session, webhook.id, event)
            for webhook in await fetch_rows(session, _ACTIVE_WEBHOOKS, parameters)
            for event in events
            if event.type in webhook.event_types
            and webhook.project_id in (None, event.project_id or "default")
        ]
        await enqueue_deliveries(queue, session, rows)

    return write


def _new_delivery(
    session: AsyncSession, webhook_id: UUID, event: WebhookEvent
) -> WebhookDeliveryRow:
    tenant_id = current_tenant_id(session)
    data = {"tenant_id": str(tenant_id), "project_id": event.project_id, **event.data}
    return _add_delivery(session, webhook_id, event.type, data)


def new_test_delivery(session: AsyncSession, webhook: WebhookRow) -> WebhookDeliveryRow:
    """Add a delivery of the event `webhook.test`, which no webhook subscribes to."""
    data: dict[str, Any] = {
        "tenant_id": str(webhook.tenant_id),
        "project_id": webhook.project_id,
        "webhook_id": str(webhook.id),
    }
    return _add_delivery(session, webhook.id, TEST_EVENT, data)


def _add_delivery(
    session: AsyncSession, webhook_id: UUID, event_type: str, data: dict[str, Any]
) -> WebhookDeliveryRow:
    row = WebhookDeliveryRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        webhook_id=webhook_id,
        event_type=event_type,
        payload={"type": event_type, "timestamp": datetime.now(UTC).isoformat(), "data": data},
    )
    row.run_id = new_delivery_run(session, row, data["project_id"])
    session.add(row)
    return row


def new_delivery_run(
    session: AsyncSession, row: WebhookDeliveryRow, project_id: str | None
) -> UUID:
    """Add the run that sends a delivery, and return its ID."""
    run = new_run(
        session,
        WEBHOOK,
        project_id=project_id or "default",
        input={DELIVERY_ID: str(row.id)},
        max_attempts=MAX_ATTEMPTS,
    )
    return run.id


async def enqueue_deliveries(
    queue: RunQueue, session: AsyncSession, rows: list[WebhookDeliveryRow]
) -> None:
    if rows:
        await session.flush()
        await queue.enqueue(
            session, [Ticket(row.tenant_id, row.run_id, slots=slots_of(WEBHOOK)) for row in rows]
        )
