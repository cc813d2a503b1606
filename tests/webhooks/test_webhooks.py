"""Webhooks of a tenant: what is sent, to whom, how often, and what the log says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from structlog.testing import capture_logs

from memory_api.bootstrap import open_runtime
from memory_api.budgets.tables import BudgetAlertRow
from memory_api.core.settings import Settings
from memory_api.maintenance.budget_alerts import alert_notifier
from memory_api.run_queue.port import Ticket
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import Database, TestTenant
from tests.support.live_service import with_runtime
from tests.support.problems import assert_problem
from tests.support.tickets import waiting_tickets
from tests.support.webhook_receiver import Receiver

URL = "/api/v1/webhooks"
EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
BULLET = {"deltas": [{"type": "ADD", "section": "OTHERS", "content": "Ask first."}]}


@pytest.fixture(scope="module")
async def open_to_private(database: Database) -> AsyncIterator[Runtime]:
    """A runtime whose operator allows private addresses."""
    settings = Settings(_env_file=None, webhook_allow_private=True)  # type: ignore[call-arg]
    async with open_runtime(settings, database.url("hansei_app")) as runtime:
        yield runtime


@pytest.fixture
async def desk(
    app: FastAPI, open_to_private: Runtime, tenant: TestTenant
) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(with_runtime(app, open_to_private))
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://hansei", headers=tenant.auth()
    ) as client:
        yield client


async def create(desk: httpx2.AsyncClient, url: str, **more: Any) -> dict[str, Any]:
    answer = await desk.post(URL, json={"url": url, "event_types": ["proposal.created"]} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def propose(desk: httpx2.AsyncClient, playbook: str = "support", **more: Any) -> None:
    """Store a proposal, the event of these tests."""
    for body in ({}, {"review_mode": "required"}):
        url = f"/api/v1/playbooks/{playbook}"
        await (desk.patch(url, json=body | more) if body else desk.put(url, json={"bullets": []}))
    answer = await desk.post(f"/api/v1/playbooks/{playbook}/deltas", json=BULLET | more)
    assert answer.json()["held"]


async def take(runtime: Runtime, tenant: TestTenant) -> Ticket:
    """The only ticket that waits."""
    (ticket,) = await waiting_tickets(runtime, tenant.id)
    return ticket


async def deliveries(desk: httpx2.AsyncClient, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    return (await desk.get(f"{URL}/{webhook['id']}/deliveries")).json()["items"]


async def test_event_is_sent_signed_logged_and_replayed(
    desk, open_to_private: Runtime, receiver: Receiver, tenant: TestTenant
) -> None:
    receiver.statuses = [503, 204]
    webhook = await create(desk, receiver.url)
    await propose(desk)
    ticket = await take(open_to_private, tenant)
    assert await process_ticket(open_to_private, ticket) is not None, "tried again"
    (delivery,) = await deliveries(desk, webhook)
    assert (delivery["state"], delivery["response_status"]) == ("retrying", 503)
    assert "answered 503" in delivery["error"]
    assert await process_ticket(open_to_private, ticket) is None
    (delivery,) = await deliveries(desk, webhook)
    assert (delivery["state"], delivery["attempt_count"]) == ("delivered", 2)
    replay = f"{URL}/{webhook['id']}/deliveries/{delivery['id']}/replay"
    assert (await desk.post(replay)).status_code == 202
    assert_problem(await desk.post(replay), 409, "conflict")
    await process_ticket(open_to_private, await take(open_to_private, tenant))
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 3
    headers, body = receiver.received[-1]
    sent = Webhook(webhook["secret"]).verify(body, headers)
    assert sent == delivery["payload"]
    assert (sent["type"], sent["data"]["playbook"]) == ("proposal.created", "support")
    forged = body.replace(b"support", b"other")
    with pytest.raises(WebhookVerificationError):
        Webhook(webhook["secret"]).verify(forged, headers)


async def test_test_event_and_rotated_secret(
    desk, open_to_private: Runtime, receiver: Receiver, tenant: TestTenant, make_tenant
) -> None:
    webhook = await create(desk, receiver.url)
    url = f"{URL}/{webhook['id']}"

    async def send() -> tuple[dict[str, str], bytes]:
        answer = await desk.post(f"{url}/test")
        assert (answer.status_code, answer.json()["state"]) == (202, "queued")
        await process_ticket(open_to_private, await take(open_to_private, tenant))
        return receiver.received[-1]

    async def rotate(**body: Any) -> str:
        answer = await desk.post(f"{url}/rotate-secret", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["secret"]

    headers, body = await send()
    sent = Webhook(webhook["secret"]).verify(body, headers)
    assert (sent["type"], sent["data"]["webhook_id"]) == ("webhook.test", webhook["id"])
    second = await rotate()
    headers, body = await send()
    for secret in (webhook["secret"], second):
        Webhook(secret).verify(body, headers)
    third = await rotate(overlap_seconds=0)
    headers, body = await send()
    Webhook(third).verify(body, headers)
    for secret in (webhook["secret"], second):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, headers)
    other = await make_tenant()
    for action in ("test", "rotate-secret"):
        answer = await desk.post(f"{url}/{action}", json={}, headers=other.auth())
        assert_problem(answer, 404, "not_found")
    assert_problem(
        await desk.post(f"{url}/rotate-secret", json={"overlap_seconds": 10**9}), 422, "invalid"
    )
    await desk.patch(url, json={"active": False})
    assert_problem(await desk.post(f"{url}/test"), 409, "conflict")


async def test_test_events_are_limited_per_tenant(
    desk, open_to_private: Runtime, receiver: Receiver, make_tenant
) -> None:
    """Also if they are spread over webhooks."""
    other = await make_tenant()
    urls = [f"{URL}/{(await create(desk, receiver.url))['id']}/test" for _ in range(3)]
    theirs = (await desk.post(URL, json={"url": receiver.url}, headers=other.auth())).json()["id"]
    answers = [await desk.post(urls[n % 3]) for n in range(21)]
    assert [answer.status_code for answer in answers] == [202] * 20 + [429]
    assert_problem(answers[-1], 429, "rate_limited")
    assert int(answers[-1].headers["Retry-After"]) > 0
    answer = await desk.post(f"{URL}/{theirs}/test", headers=other.auth())
    assert answer.status_code == 202
    assert len(await waiting_tickets(open_to_private, other.id)) == 1


async def test_only_wanted_events_of_wanted_projects_and_own_tenant(
    desk, open_to_private: Runtime, receiver: Receiver, make_tenant
) -> None:
    other = await make_tenant()
    log: dict[str, dict[str, Any]] = {}
    for name, options in {
        "all": {},
        "others": {"event_types": ["reflection.created"]},
        "desk": {"project_id": "desk"},
        "paused": {},
    }.items():
        log[name] = await create(desk, receiver.url, **options)
    pause = await desk.patch(f"{URL}/{log['paused']['id']}", json={"active": False})
    assert pause.json()["active"] is False
    theirs = await desk.post(URL, json={"url": receiver.url}, headers=other.auth())
    await propose(desk)
    counts = {name: len(await deliveries(desk, webhook)) for name, webhook in log.items()}
    assert counts == {"all": 1, "others": 0, "desk": 0, "paused": 0}
    assert_problem(await desk.get(f"{URL}/{theirs.json()['id']}/deliveries"), 404, "not_found")
    assert "secret" not in (await desk.get(URL)).text
    assert (await desk.delete(f"{URL}/{log['all']['id']}")).status_code == 204
    assert await waiting_tickets(open_to_private, other.id) == []


async def test_private_address_and_redirect_are_refused(
    desk, runtime: Runtime, open_to_private: Runtime, receiver: Receiver, tenant: TestTenant
) -> None:
    webhook = await create(desk, receiver.url)
    await propose(desk)
    ticket = await take(runtime, tenant)
    with capture_logs() as logs:
        await process_ticket(runtime, ticket)  # its operator does not allow private addresses
    assert [line for line in logs if "exc_info" in line] == [], "no traceback for a bad receiver"
    (delivery,) = await deliveries(desk, webhook)
    assert "private address" in delivery["error"]
    assert receiver.received == []
    receiver.statuses = [302]
    await process_ticket(open_to_private, ticket)
    (delivery,) = await deliveries(desk, webhook)
    assert delivery["response_status"] == 302
    assert len(receiver.received) == 1


async def test_delivery_ends_after_the_last_attempt_and_with_its_webhook(
    desk, open_to_private: Runtime, receiver: Receiver, tenant: TestTenant
) -> None:
    receiver.statuses = [500]
    webhook = await create(desk, receiver.url)
    await propose(desk)
    ticket = await take(open_to_private, tenant)
    while await process_ticket(open_to_private, ticket) is not None:
        pass
    (delivery,) = await deliveries(desk, webhook)
    assert (delivery["state"], delivery["attempt_count"]) == ("failed", 16)
    await propose(desk, "second")
    await desk.delete(f"{URL}/{webhook['id']}")
    count = len(receiver.received)
    assert await process_ticket(open_to_private, await take(open_to_private, tenant)) is None
    assert len(receiver.received) == count


async def test_change_that_is_rolled_back_reports_nothing(
    desk, open_to_private: Runtime, receiver: Receiver, tenant: TestTenant
) -> None:
    webhook = await create(desk, receiver.url, event_types=["budget.threshold_reached"])
    notify = alert_notifier(open_to_private.settings, open_to_private.queue)
    fields = {"tenant_id": tenant.id, "period": "day", "project_id": "", "purpose": ""}

    async def report(*, fail: bool) -> None:
        async with open_to_private.sessions.for_tenant(tenant.id) as session:
            alert = BudgetAlertRow(
                **fields,
                starts_on=EPOCH.date(),
                unit="usd",
                percent=80,
                limit_amount=10,
                spent_amount=8,
                created_at=EPOCH,
            )
            await notify(session, [alert])
            if fail:
                raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await report(fail=True)
    assert await deliveries(desk, webhook) == []
    await report(fail=False)
    (delivery,) = await deliveries(desk, webhook)
    assert (delivery["payload"]["data"]["percent"], delivery["state"]) == (80, "queued")


@pytest.mark.parametrize(
    "body",
    [
        {"url": "ftp://example.com"},
        {"url": "https://example.com", "event_types": []},
        {"url": "https://example.com", "event_types": ["x"]},
        {"url": "https://e.com/" + "x" * 3000},
    ],
)
async def test_invalid_webhook_is_refused(desk, body: dict[str, Any]) -> None:
    assert_problem(await desk.post(URL, json=body), 422, "invalid")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "https://example.com:99999",
        "https://example.com:port",
        "https://",
        "https:///path",
        "https://exa mple.com",
        "https://example.com/\tpath",
        f"https://{'a' * 70}.example",
        "https://user:pass@example.com",
        "https://user@example.com",
        "https://@example.com",
        "ftp://example.com",
        "example.com",
    ],
)
async def test_url_that_cannot_be_called_is_refused_at_once(desk, api, url: str) -> None:
    """Neither is a password stored, in the webhook or in the audit log."""
    refused = await desk.post(URL, json={"url": url})
    assert_problem(refused, 422, "invalid")
    made = await create(desk, "https://example.com/hook")
    changed = await desk.patch(f"{URL}/{made['id']}", json={"url": url})
    assert_problem(changed, 422, "invalid")
    (kept,) = (await desk.get(URL)).json()["items"]
    assert kept["url"] == "https://example.com/hook"
    assert "pass@" not in (await api.get("/api/v1/audit-log")).text


async def test_change_leaves_an_audit_event(desk, api) -> None:
    made = await create(desk, "https://example.com/one")
    change = {"url": "https://example.net/two", "active": True}
    assert (await desk.patch(f"{URL}/{made['id']}", json=change)).status_code == 200
    await desk.patch(f"{URL}/{made['id']}", json=change)  # changes nothing
    query = {"action": "webhook.updated"}
    (event,) = (await api.get("/api/v1/audit-log", params=query)).json()["items"]
    assert event["target"] == f"webhook:{made['id']}"
    assert event["details"] == {
        "before": {"url": "https://example.com/one"},
        "after": {"url": "https://example.net/two"},
    }
