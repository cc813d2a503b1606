"""Errors and retries of the clients."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from email.utils import formatdate
from time import time

import pytest

from hansei import AsyncHansei, Hansei
from hansei._retry import MAX_PAUSE_SECONDS
from hansei.errors import (
    APIConnectionError,
    APIResponseError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    ConflictError,
    HanseiError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
    ServiceUnavailableError,
)
from tests.sdk.stub_service import KEY, RECORDED, Fault, StubService, page, problem
from tests.support.cases import each_case

EVENTS = [{"event_type": "tool_call", "content": "x"}]
SOON = {"retry_after": "0"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, BadRequestError),
        (422, BadRequestError),
        (501, InternalServerError),
    ],
)
def test_problem_response_raises_its_error_class(
    hansei: Hansei, service: StubService, status: int, kind: type[HanseiError]
) -> None:
    service.faults.append(problem(status, "some_code"))
    with pytest.raises(kind) as caught:
        hansei.memories.search("x")
    error = caught.value
    detail = "Not now: search." if status == 404 else "Not now."  # what does not exist
    assert (error.status, error.code, error.detail) == (status, "some_code", detail)
    assert str(error) == detail
    assert len(service.calls) == 1


def test_error_has_the_fields_of_the_problem(hansei: Hansei, service: StubService) -> None:
    body = (
        b'{"type":"about:blank","title":"Invalid","status":422,"code":"invalid","detail":"k: bad",'
        b'"errors":[{"field":"k","message":"bad"}],"limit":5}'
    )
    service.faults.append(Fault(422, body, headers={"x-request-id": "r7"}))
    with pytest.raises(BadRequestError) as caught:
        hansei.memories.search("x")
    assert caught.value.errors == [{"field": "k", "message": "bad"}]
    assert caught.value.extra == {"limit": 5}
    assert caught.value.request_id == "r7"


@pytest.mark.parametrize(
    "fault", [problem(429, "busy", **SOON), problem(503, **SOON), page(503), page(429)]
)
def test_transient_errors_are_retried(hansei: Hansei, service: StubService, fault: Fault) -> None:
    service.faults.extend([fault, fault])
    assert hansei.memories.search("x").results[0].model_dump() == RECORDED["hit"]
    assert len(service.calls) == 3


@pytest.mark.parametrize(
    ("status", "kind"), [(429, RateLimitError), (503, ServiceUnavailableError)]
)
def test_retries_are_limited(
    hansei: Hansei, service: StubService, status: int, kind: type[HanseiError]
) -> None:
    service.faults.extend([problem(status, **SOON)] * 10)
    with pytest.raises(kind):
        hansei.memories.search("x")
    assert len(service.calls) == 4


def test_long_retry_after_raises_at_once(hansei: Hansei, service: StubService) -> None:
    service.faults.append(problem(429, retry_after=str(MAX_PAUSE_SECONDS + 1)))
    with pytest.raises(RateLimitError) as caught:
        hansei.memories.search("x")
    assert caught.value.retry_after == MAX_PAUSE_SECONDS + 1
    assert len(service.calls) == 1


def test_retry_after_may_be_a_date(hansei: Hansei, service: StubService) -> None:
    service.faults.append(problem(429, retry_after=formatdate(time() + 3600, usegmt=True)))
    with pytest.raises(RateLimitError) as caught:
        hansei.memories.search("x")
    assert 3500 < (caught.value.retry_after or 0) <= 3600


@pytest.mark.parametrize("text", ["soon", "inf", "nan", "1e999", "Fri, 31 Dec 99999 23:59:59 GMT"])
def test_invalid_retry_after_is_ignored(hansei: Hansei, service: StubService, text: str) -> None:
    service.faults.append(problem(429, retry_after=text))
    assert hansei.memories.search("x").results


def test_write_with_a_lost_response_is_applied_once(hansei: Hansei, service: StubService) -> None:
    service.faults.append(Fault(cut="after"))
    trace = {"events": EVENTS}  # no id: only the key tells that it is the same one
    [answer] = hansei.traces.create_many([trace])
    assert answer.duplicate is False
    assert len(service.calls) == 2
    assert len(service.traces) == 1
    keys = {call.headers["idempotency-key"] for call in service.calls}
    assert len(keys) == 1


def test_write_in_progress_is_retried(hansei: Hansei, service: StubService) -> None:
    service.faults.append(problem(409, "in_progress", **SOON))
    assert hansei.traces.create(events=EVENTS).model_dump() == RECORDED["sent"]


def test_connection_that_is_always_lost_is_unreachable(
    hansei: Hansei, service: StubService
) -> None:
    service.faults.extend([Fault(cut="before")] * 10)
    with pytest.raises(APIConnectionError, match="was lost"):
        hansei.memories.search("x")
    assert len(service.calls) == 4


def test_timeout_is_not_retried(service: StubService) -> None:
    service.faults.append(Fault(delay=0.5))
    with Hansei(service.url, KEY, timeout=0.1) as client, pytest.raises(APITimeoutError):
        client.memories.search("x")
    assert len(service.calls) == 1


def test_refused_connection_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with Hansei(url, KEY) as client, pytest.raises(APIConnectionError) as caught:
        client.memories.search("x")
    assert caught.value.detail == f"{url} cannot be reached (Connection refused)."
    assert caught.value.status is None


async def test_async_client_retries(async_hansei: AsyncHansei, service: StubService) -> None:
    service.faults.extend([Fault(cut="before"), problem(503, **SOON)])
    assert (await async_hansei.memories.search("x")).results[0].model_dump() == RECORDED["hit"]
    service.faults.append(page(404))
    with pytest.raises(APIResponseError):
        await async_hansei.memories.search("x")


@pytest.mark.parametrize("fault", [problem, page])
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_transient_status_is_retried_also_if_a_proxy_sends_it(
    hansei: Hansei, service: StubService, status: int, fault: Callable[[int], Fault]
) -> None:
    service.faults.extend([fault(status)] * 3)
    assert hansei.memories.search("x").results[0].model_dump() == RECORDED["hit"]
    assert len(service.calls) == 4
    service.faults.extend([fault(status)] * 4)
    with pytest.raises(HanseiError) as caught:
        hansei.memories.search("x")
    assert caught.value.status == status


@pytest.mark.parametrize("status", [404, 405])
def test_html_page_is_an_unexpected_response(
    hansei: Hansei, service: StubService, status: int
) -> None:
    service.faults.append(page(status))
    with pytest.raises(APIResponseError, match=f"{status} Proxy Error") as caught:
        hansei.memories.search("x")
    assert service.url in caught.value.detail


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
def test_success_that_is_not_json_is_an_unexpected_response(
    hansei: Hansei, service: StubService, kind: str
) -> None:
    service.faults.append(Fault(200, b"<html>Log in first</html>", kind=kind))
    with pytest.raises(APIResponseError, match="Log in first"):
        hansei.memories.search("x")


@pytest.mark.parametrize("body", [b'{"items": "abc"}', b'{"items": [5]}', b"[" * 100_000, b"[1]"])
def test_success_of_another_form_is_an_unexpected_response(
    hansei: Hansei, service: StubService, body: bytes
) -> None:
    service.faults.append(Fault(200, body, kind="application/json"))
    with pytest.raises(APIResponseError):
        list(hansei.traces.list())


@pytest.mark.parametrize("errors", [5, [5], "x", {"a": 1}])
def test_field_errors_of_another_form_are_left_out(
    hansei: Hansei, service: StubService, errors: object
) -> None:
    body = {"code": "invalid", "detail": "No.", "errors": errors}
    service.faults.append(Fault(400, json.dumps(body).encode()))
    with pytest.raises(BadRequestError) as caught:
        hansei.memories.search("x")
    assert caught.value.errors == []


def test_redirect_is_not_followed_with_the_key(hansei: Hansei, service: StubService) -> None:
    service.faults.append(Fault(302, headers={"location": f"{service.url}/elsewhere"}))
    with pytest.raises(APIResponseError):
        hansei.memories.search("x")
    assert len(service.calls) == 1


def test_missing_key_is_named_in_the_error(service: StubService) -> None:
    with Hansei(service.url) as client, pytest.raises(AuthenticationError, match="No API key for"):
        client.memories.search("x")
    assert "authorization" not in service.calls[0].headers


def test_get_readiness_accepts_503(hansei: Hansei, service: StubService) -> None:
    body = b'{"status":"unavailable","database":{"status":"unavailable"}}'
    service.faults.append(Fault(503, body, kind="application/json"))
    assert hansei.health.ready().status == "unavailable"
    assert len(service.calls) == 1


@each_case("url", ["localhost:8321", "ftp://x", "http://", "http://x:y"])
def test_invalid_url_raises_not_configured(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Hansei(url, KEY)


@pytest.mark.parametrize("key", ["hsk_ä", "hsk_a\nX-Evil: 1"])
def test_invalid_key_is_not_sent(key: str) -> None:
    with pytest.raises(ConfigurationError):
        Hansei("http://127.0.0.1:1", key)
