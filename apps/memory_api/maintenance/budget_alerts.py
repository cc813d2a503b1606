"""Sends budget alerts to HANSEI_BUDGET_WEBHOOK_URL, each in a run of its own.

The request is signed as Standard Webhooks describe: `webhook-signature` is "v1," and the
Base64 of the HMAC-SHA256 of "{webhook-id}.{webhook-timestamp}.{body}".
Source: https://www.standardwebhooks.com
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from typing import Any

import httpx2
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.budgets.accounting import OnAlerts
from apps.memory_api.budgets.tables import BudgetAlertRow
from apps.memory_api.core.errors import ConfigurationError, HanseiError
from apps.memory_api.core.private_addresses import resolve_url
from apps.memory_api.core.settings import Settings
from apps.memory_api.run_queue.port import RunQueue, Ticket
from apps.memory_api.runs import lifecycle
from apps.memory_api.runs.lifecycle import StepResult
from apps.memory_api.runs.tables import RunRow
from apps.memory_api.runtime import Runtime

KIND = "budget_alert"
"""The kind of run."""
EVENT_TYPE = "budget.threshold_reached"
TIMEOUT_SECONDS = 10.0
MAX_ATTEMPTS = 8


class WebhookFailed(HanseiError):
    """The webhook did not accept the request."""

    code = "webhook_failed"


def alert_notifier(settings: Settings, queue: RunQueue) -> OnAlerts | None:
    """What enqueues a run for each new alert; None without a webhook. Raises `ConfigurationError`
    for a webhook without a secret.
    """
    if settings.budget_webhook_url is None:
        return None
    if settings.budget_webhook_secret is None:
        raise ConfigurationError(
            "HANSEI_BUDGET_WEBHOOK_URL needs HANSEI_BUDGET_WEBHOOK_SECRET, the signature key."
        )

    async def enqueue(session: AsyncSession, alerts: Sequence[BudgetAlertRow]) -> None:
        runs = [
            lifecycle.new_run(
                session,
                KIND,
                project_id=alert.project_id or "default",
                input=_describe(alert),
                max_attempts=MAX_ATTEMPTS,
            )
            for alert in alerts
        ]
        await session.flush()
        await queue.enqueue(session, [Ticket(run.tenant_id, run.id) for run in runs])

    return enqueue


def _describe(alert: BudgetAlertRow) -> dict[str, Any]:
    return {
        "tenant_id": str(alert.tenant_id),
        "period": alert.period,
        "starts_on": alert.starts_on.isoformat(),
        "project_id": alert.project_id or None,
        "purpose": alert.purpose or None,
        "unit": alert.unit,
        "percent": alert.percent,
        "limit": float(alert.limit_amount),
        "spent": float(alert.spent_amount),
        "created_at": alert.created_at.isoformat(),
    }


async def send_alert(runtime: Runtime, run: RunRow) -> None:
    """Send the alert of a run. Raises `WebhookFailed`, after which the run is retried."""
    settings = runtime.settings
    status: int | None = None
    if settings.budget_webhook_url is not None and settings.budget_webhook_secret is not None:
        body = {"type": EVENT_TYPE, "timestamp": run.input["created_at"], "data": run.input}
        status = await post_signed(
            settings.budget_webhook_url,
            settings.budget_webhook_secret.get_secret_value(),
            message_id=f"msg_{run.id.hex}",
            body=json.dumps(body).encode(),
            allow_private=settings.webhook_allow_private,
        )
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        await lifecycle.finish_run(session, run, StepResult(data={"status": status}))


async def post_signed(
    url: str, secret: str, *, message_id: str, body: bytes, allow_private: bool
) -> int:
    """Send a signed POST and return its status. Follows no redirect. Raises `AddressRefused` and
    `WebhookFailed`.
    """
    target = await resolve_url(url, allow_private=allow_private)
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "Host": target.host_header,
        "User-Agent": "hansei",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": sign(secret, message_id, timestamp, body),
    }
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False) as client:
            response = await client.post(
                target.url_of_address,
                content=body,
                headers=headers,
                extensions={"sni_hostname": target.host},
            )
    except httpx2.HTTPError as error:
        raise WebhookFailed(f"The webhook cannot be reached: {type(error).__name__}.") from error
    if not response.is_success:
        raise WebhookFailed(f"The webhook answered {response.status_code}.")
    return response.status_code


def sign(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The value of `webhook-signature`. A secret that starts with "whsec_" is Base64."""
    encoded = secret.removeprefix("whsec_")
    key = base64.b64decode(encoded) if encoded != secret else secret.encode()
    content = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
