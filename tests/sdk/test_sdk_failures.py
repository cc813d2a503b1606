"""What goes wrong on the way, and what the client makes of it."""

from __future__ import annotations

import socket
from email.utils import formatdate
from time import time

import pytest

from hansei import AsyncHansei, Hansei
from hansei.errors import (
    BadRequest,
    Busy,
    Conflict,
    HanseiError,
    NotConfigured,
    NotFound,
    ServerError,
    TimedOut,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from hansei.exchange import LONGEST_PAUSE
from tests.sdk.stub_service import KEY, RECORDED, Fault, StubService, page, problem

EVENTS = [{"event_type": "tool_call", "content": "x"}]
SOON = {"retry_after": "0"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (404, NotFound),
        (409, Conflict),
        (413, BadRequest),
        (422, BadRequest),
        (500, ServerError),
        (502, ServerError),
    ],
)
def test_a_problem_becomes_its_error_at_once(
    hansei: Hansei, service: StubService, status: int, kind: type[HanseiError]
) -> None:
    service.faults.append(problem(status, "some_code"))
    with pytest.raises(kind) as caught:
        hansei.search("x")
    error = caught.value
    assert (error.status, error.code, error.detail) == (status, "some_code", "Not now.")
    assert str(error) == "Not now."
    assert len(service.calls) == 1


def test_a_problem_names_the_fields_and_what_else_it_says(
    hansei: Hansei, service: StubService
) -> None:
    body = (
        b'{"type":"about:blank","title":"Invalid","status":422,"code":"invalid","detail":"k: bad",'
        b'"errors":[{"field":"k","message":"bad"}],"limit":5}'
    )
    service.faults.append(Fault(422, body, headers={"x-request-id": "r7"}))
    with pytest.raises(BadRequest) as caught:
        hansei.search("x")
    assert caught.value.errors == [{"field": "k", "message": "bad"}]
    assert caught.value.extra == {"limit": 5}
    assert caught.value.request_id == "r7"


@pytest.mark.parametrize(
    "fault", [problem(429, "busy", **SOON), problem(503, **SOON), page(503), page(429)]
)
def test_what_may_pass_is_tried_again(hansei: Hansei, service: StubService, fault: Fault) -> None:
    service.faults.extend([fault, fault])
    assert hansei.search("x")["results"] == [RECORDED["hit"]]
    assert len(service.calls) == 3


@pytest.mark.parametrize(("status", "kind"), [(429, Busy), (503, Unavailable)])
def test_trying_again_has_an_end(
    hansei: Hansei, service: StubService, status: int, kind: type[HanseiError]
) -> None:
    service.faults.extend([problem(status, **SOON)] * 10)
    with pytest.raises(kind):
        hansei.search("x")
    assert len(service.calls) == 4


def test_a_service_that_asks_for_much_patience_is_not_waited_for(
    hansei: Hansei, service: StubService
) -> None:
    service.faults.append(problem(429, retry_after=str(LONGEST_PAUSE + 1)))
    with pytest.raises(Busy) as caught:
        hansei.search("x")
    assert caught.value.retry_after == LONGEST_PAUSE + 1
    assert len(service.calls) == 1


def test_retry_after_may_be_a_date(hansei: Hansei, service: StubService) -> None:
    service.faults.append(problem(429, retry_after=formatdate(time() + 3600, usegmt=True)))
    with pytest.raises(Busy) as caught:
        hansei.search("x")
    assert 3500 < (caught.value.retry_after or 0) <= 3600


def test_a_retry_after_nobody_can_read_is_ignored(hansei: Hansei, service: StubService) -> None:
    service.faults.append(problem(429, retry_after="soon"))
    assert hansei.search("x")["results"]


def test_a_write_whose_answer_was_lost_is_done_once(hansei: Hansei, service: StubService) -> None:
    service.faults.append(Fault(cut="after"))
    trace = {"events": EVENTS}  # no id: only the key tells that it is the same one
    [answer] = hansei.send_traces([trace])
    assert answer.get("duplicate") is False
    assert len(service.calls) == 2
    assert len(service.traces) == 1
    keys = {call.headers["idempotency-key"] for call in service.calls}
    assert len(keys) == 1


def test_a_write_still_being_worked_on_is_waited_for(hansei: Hansei, service: StubService) -> None:
    service.faults.append(problem(409, "in_progress", **SOON))
    assert hansei.send_trace({"events": EVENTS}) == RECORDED["sent"]


def test_a_connection_cut_again_and_again_is_unreachable(
    hansei: Hansei, service: StubService
) -> None:
    service.faults.extend([Fault(cut="before")] * 10)
    with pytest.raises(Unreachable, match="broke"):
        hansei.search("x")
    assert len(service.calls) == 4


def test_slow_is_not_tried_again(service: StubService) -> None:
    service.faults.append(Fault(delay=0.5))
    with Hansei(service.url, KEY, timeout=0.1) as client, pytest.raises(TimedOut):
        client.search("x")
    assert len(service.calls) == 1


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with Hansei(url, KEY) as client, pytest.raises(Unreachable) as caught:
        client.search("x")
    assert caught.value.detail == f"{url} cannot be reached (Connection refused)."
    assert caught.value.status is None


async def test_the_async_client_tries_again_too(
    async_hansei: AsyncHansei, service: StubService
) -> None:
    service.faults.extend([Fault(cut="before"), problem(503, **SOON)])
    assert (await async_hansei.search("x"))["results"] == [RECORDED["hit"]]
    service.faults.append(page(502))
    with pytest.raises(UnexpectedAnswer):
        await async_hansei.search("x")


@pytest.mark.parametrize("status", [404, 502])
def test_a_strangers_page_is_not_an_answer(
    hansei: Hansei, service: StubService, status: int
) -> None:
    service.faults.append(page(status))
    with pytest.raises(UnexpectedAnswer, match=f"{status} Proxy Error") as caught:
        hansei.search("x")
    assert service.url in caught.value.detail


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
def test_success_that_is_not_json_is_not_an_answer(
    hansei: Hansei, service: StubService, kind: str
) -> None:
    service.faults.append(Fault(200, b"<html>Log in first</html>", kind=kind))
    with pytest.raises(UnexpectedAnswer, match="Log in first"):
        hansei.search("x")


def test_a_redirect_is_not_followed_with_the_key(hansei: Hansei, service: StubService) -> None:
    service.faults.append(Fault(302, headers={"location": f"{service.url}/elsewhere"}))
    with pytest.raises(UnexpectedAnswer):
        hansei.search("x")
    assert len(service.calls) == 1


def test_no_key_is_said_clearly(service: StubService) -> None:
    with Hansei(service.url) as client, pytest.raises(Unauthorized, match="No API key is known"):
        client.search("x")
    assert "authorization" not in service.calls[0].headers


def test_not_ready_is_an_answer(hansei: Hansei, service: StubService) -> None:
    body = b'{"status":"unavailable","database":{"status":"unavailable"}}'
    service.faults.append(Fault(503, body, kind="application/json"))
    assert hansei.ready()["status"] == "unavailable"
    assert len(service.calls) == 1


@pytest.mark.parametrize("url", ["localhost:8321", "ftp://x", "http://", "http://x:y"])
def test_what_is_no_url_is_said_so(url: str) -> None:
    with pytest.raises(NotConfigured):
        Hansei(url, KEY)


@pytest.mark.parametrize("key", ["hsk_ä", "hsk_a\nX-Evil: 1"])
def test_a_key_that_cannot_be_one_is_not_sent(key: str) -> None:
    with pytest.raises(NotConfigured):
        Hansei("http://127.0.0.1:1", key)
