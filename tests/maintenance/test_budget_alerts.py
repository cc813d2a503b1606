"""The webhook of budget alerts: sent by a queued run, signed, and not to private addresses."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from memory_api.bootstrap import open_runtime
from memory_api.budgets.tables import BudgetAlertRow
from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.llm.port import LLMRequest, Message
from memory_api.maintenance.budget_alerts import KIND
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.webhooks.delivery import SignedRequest, sign
from memory_api.worker import process_ticket
from tests.conftest import Database, TestTenant
from tests.support.budget_books import limit
from tests.support.stub_provider import StubProvider, answer
from tests.support.tickets import waiting_tickets
from tests.support.webhook_receiver import Receiver

SECRET = "a secret of this test"


def settings_for(receiver: Receiver, stub: StubProvider, **changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "llm_provider": "openai",
        "llm_model": "m",
        "openai_base_url": stub.openai_url,
        "budget_webhook_url": receiver.url,
        "budget_webhook_secret": SecretStr(SECRET),
        "webhook_allow_private": True,
    }
    return Settings(_env_file=None, **fields | changes)  # type: ignore[call-arg]


async def reach_threshold(runtime: Runtime, tenant: TestTenant, stub: StubProvider) -> None:
    """One call that takes 85 % of the budget."""
    await limit(runtime, tenant, None, limit_tokens=10_000, project_id="desk")
    stub.behave = lambda _call: answer("ok", input_tokens=8_000, output_tokens=500)
    assert runtime.llm is not None
    request = LLMRequest(
        (Message("user", "hello"),), tenant_id=tenant.id, project_id="desk", purpose="reflect"
    )
    await runtime.llm.complete(request)


async def alert_runs(runtime: Runtime, tenant: TestTenant) -> list[RunRow]:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return list(await session.scalars(select(RunRow).where(RunRow.kind == KIND)))


async def test_alert_is_sent_signed(
    database: Database, receiver: Receiver, stub: StubProvider, tenant: TestTenant
) -> None:
    receiver.statuses = [500, 204]
    async with open_runtime(settings_for(receiver, stub), database.url("hansei_app")) as runtime:
        await reach_threshold(runtime, tenant, stub)
        (ticket,) = await waiting_tickets(runtime, tenant.id)
        assert await process_ticket(runtime, ticket) is not None, "tried again"
        assert await process_ticket(runtime, ticket) is None
        (run,) = await alert_runs(runtime, tenant)
        async with runtime.sessions.for_tenant(tenant.id) as session:
            (alert,) = await session.scalars(select(BudgetAlertRow))
    assert (run.state, run.result, run.project_id) == ("done", {"status": 204}, "desk")
    assert (alert.percent, alert.unit, alert.spent_amount) == (80, "tokens", 8500)
    (first, _), (headers, body) = receiver.received
    assert first["webhook-id"] == headers["webhook-id"], "a receiver can recognize the second one"
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(SECRET.encode(), content, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    sent = json.loads(body)
    assert sent["type"] == "budget.threshold_reached"
    assert (sent["data"]["percent"], sent["data"]["project_id"]) == (80, "desk")
    assert (sent["data"]["limit"], sent["data"]["spent"]) == (10_000, 8_500)


async def test_private_address_and_redirect_are_refused(
    database: Database, receiver: Receiver, stub: StubProvider, tenant: TestTenant
) -> None:
    closed = settings_for(receiver, stub, webhook_allow_private=False)
    async with open_runtime(closed, database.url("hansei_app")) as runtime:
        await reach_threshold(runtime, tenant, stub)
        (ticket,) = await waiting_tickets(runtime, tenant.id)
        assert await process_ticket(runtime, ticket) is not None
        (run,) = await alert_runs(runtime, tenant)
        assert (run.error["code"], receiver.received) == ("address_refused", [])
    receiver.statuses = [302]
    async with open_runtime(settings_for(receiver, stub), database.url("hansei_app")) as runtime:
        assert await process_ticket(runtime, ticket) is not None
        (run,) = await alert_runs(runtime, tenant)
    assert run.error["code"] == "webhook_failed"
    assert len(receiver.received) == 1


async def test_webhook_needs_a_secret(
    database: Database, receiver: Receiver, stub: StubProvider
) -> None:
    without = settings_for(receiver, stub, budget_webhook_secret=None)
    with pytest.raises(ConfigurationError, match="HANSEI_BUDGET_WEBHOOK_SECRET"):
        async with open_runtime(without, database.url("hansei_app")):
            pass


def test_signature_of_the_standard() -> None:
    """The example of the specification (https://www.standardwebhooks.com)."""
    assert (
        sign(
            SignedRequest(
                "https://example.com",
                "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                '{"test": 2432232314}',
            ),
            datetime.fromtimestamp(1614265330, UTC),
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )
