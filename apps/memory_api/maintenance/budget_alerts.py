"""Reports budget alerts: to the webhooks of the tenant, and to HANSEI_BUDGET_WEBHOOK_URL of the
operator, each in a run of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.budgets.accounting import OnAlerts
from memory_api.budgets.tables import BudgetAlertRow
from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.run_queue.port import RunQueue
from memory_api.runs import lifecycle
from memory_api.runs.chain import enqueue_runs
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.webhooks.delivery import SignedRequest, post_signed
from memory_api.webhooks.outbox import WebhookEvent, add_event

KIND = "budget_alert"
"""The kind of run."""
EVENT_TYPE = "budget.threshold_reached"
MAX_ATTEMPTS = 8


def check_budget_webhook(settings: Settings) -> None:
    """Raises `ConfigurationError` for a URL without a secret."""
    if settings.budget_webhook_url is not None and settings.budget_webhook_secret is None:
        raise ConfigurationError(
            "HANSEI_BUDGET_WEBHOOK_URL needs HANSEI_BUDGET_WEBHOOK_SECRET, the signature key."
        )


def alert_notifier(settings: Settings, queue: RunQueue) -> OnAlerts:
    """What reports each new alert to the webhooks of the tenant, and enqueues a run for that of the
    operator if there is one. Raises `ConfigurationError` for a URL without a secret.
    """
    has_operator = settings.budget_webhook_url is not None
    check_budget_webhook(settings)

    async def report(session: AsyncSession, alerts: Sequence[BudgetAlertRow]) -> None:
        for alert in alerts:
            add_event(session, WebhookEvent(EVENT_TYPE, alert.project_id or None, _describe(alert)))
        if not has_operator:
            return
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
        await enqueue_runs(queue, session, *runs)

    return report


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


class AlertStep(Step[dict[str, Any], int | None, StepResult]):
    """Sends the alert of a run to the operator. `compute` raises what `post_signed` raises; the run
    is then retried.
    """

    kind = KIND

    async def load(self, session: AsyncSession, run: RunRow) -> dict[str, Any]:
        return {"type": EVENT_TYPE, "timestamp": run.input["created_at"], "data": run.input}

    async def compute(self, runtime: Runtime, run: RunRow, input: dict[str, Any]) -> int | None:
        settings = runtime.settings
        if settings.budget_webhook_url is None or settings.budget_webhook_secret is None:
            return None
        secret = settings.budget_webhook_secret.get_secret_value()
        url, message_id = settings.budget_webhook_url, f"msg_{run.id.hex}"
        request = SignedRequest(url, secret, message_id, json.dumps(input))
        return await post_signed(request, settings.webhook_allow_private)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: int | None
    ) -> StepResult:
        return StepResult(data={"status": output})
