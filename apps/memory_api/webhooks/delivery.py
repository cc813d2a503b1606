"""Sends a delivery: signed, to a public address, without following redirects.

The request is signed as Standard Webhooks describe (https://www.standardwebhooks.com). All attempts
and replays of a delivery have one `webhook-id`, by which a receiver recognizes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession
from standardwebhooks import Webhook

from memory_api.core.errors import HanseiError
from memory_api.core.outgoing import AddressRefused, CallFailed, OutgoingCall, send_call
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.webhooks.outbox import DELIVERY_ID, WEBHOOK
from memory_api.webhooks.tables import WebhookDeliveryRow, WebhookRow

TIMEOUT_SECONDS = 10.0
SECRET_PREFIX = "whsec_"


class WebhookFailed(HanseiError):
    """The webhook did not accept the request. `response_status` is its answer, if there was one."""

    code = "webhook_failed"

    def __init__(self, detail: str, response_status: int | None = None) -> None:
        super().__init__(detail)
        self.response_status = response_status


@dataclass(frozen=True)
class SignedRequest:
    """`secret` is Base64 with the prefix `whsec_`, or any other text as its bytes. During a
    rotation, `previous_secret` signs too.
    """

    url: str
    secret: str
    message_id: str
    body: str
    previous_secret: str | None = None


class DeliveryStep(Step[SignedRequest | None, int | None, StepResult]):
    """Sends the delivery of a run and logs the attempt. `compute` raises `WebhookFailed` and
    `AddressRefused`, after which the run is retried.
    """

    kind = WEBHOOK

    async def load(self, session: AsyncSession, run: RunRow) -> SignedRequest | None:
        """None if the webhook is not active."""
        delivery = await session.get(WebhookDeliveryRow, _delivery_key(run))
        webhook = delivery and await session.get(WebhookRow, (run.tenant_id, delivery.webhook_id))
        if delivery is None or webhook is None or not webhook.active:
            return None
        until = webhook.previous_secret_until
        is_rotating = until is not None and until > datetime.now(UTC)
        return SignedRequest(
            webhook.url,
            webhook.secret,
            f"msg_{delivery.id.hex}",
            json.dumps(delivery.payload),
            webhook.previous_secret if is_rotating else None,
        )

    async def compute(
        self, runtime: Runtime, run: RunRow, input: SignedRequest | None
    ) -> int | None:
        """The status of the answer."""
        if input is None:
            return None
        try:
            return await post_signed(input, runtime.settings.webhook_allow_private)
        except (WebhookFailed, AddressRefused) as error:
            async with runtime.sessions.for_tenant(run.tenant_id) as session:
                await _log_attempt(session, run, None, error)
            raise

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: int | None
    ) -> StepResult:
        await _log_attempt(session, run, output, None)
        return StepResult(data={"status": output})


def _delivery_key(run: RunRow) -> tuple[UUID, UUID]:
    return run.tenant_id, UUID(run.input[DELIVERY_ID])


async def _log_attempt(
    session: AsyncSession, run: RunRow, status: int | None, error: HanseiError | None
) -> None:
    row = await session.get(WebhookDeliveryRow, _delivery_key(run))
    if row is None:
        return
    is_last = run.attempt_count >= run.max_attempts
    row.attempt_count += 1
    row.response_status = error.response_status if isinstance(error, WebhookFailed) else status
    row.error = None if error is None else error.detail
    row.state = "delivered" if status is not None else "failed" if is_last else "retrying"
    if error is None and status is None:
        row.state, row.error = "failed", "The webhook is not active."
    if row.state != "retrying":
        row.finished_at = datetime.now(UTC)


async def post_signed(request: SignedRequest, allow_private: bool) -> int:
    """Send a signed POST and return its status. The body of the answer is not read. Raises
    `AddressRefused` and `WebhookFailed`.
    """
    now = datetime.now(UTC)
    headers = {
        "Content-Type": "application/json",
        "webhook-id": request.message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": sign(request, now),
    }
    call = OutgoingCall(
        "POST",
        request.url,
        allow_private,
        TIMEOUT_SECONDS,
        headers=headers,
        content=request.body.encode(),
    )
    try:
        answer = await send_call(call)
    except CallFailed as error:
        raise WebhookFailed(f"The webhook cannot be reached. {error.detail}") from error
    if not answer.is_success:
        raise WebhookFailed(f"The webhook answered {answer.status}.", answer.status)
    return answer.status


def sign(request: SignedRequest, now: datetime) -> str:
    """The value of `webhook-signature`: one signature for each secret."""
    secrets = [request.secret, *filter(None, [request.previous_secret])]
    keys = [each if each.startswith(SECRET_PREFIX) else each.encode() for each in secrets]
    return " ".join(Webhook(key).sign(request.message_id, now, request.body) for key in keys)
