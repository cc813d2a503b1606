"""Redaction of personal data with the real libraries of the extra `pii`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api.core import personal_data
from memory_api.core.errors import ConfigurationError
from memory_api.core.isolated_work import ISOLATION
from memory_api.core.personal_data import (
    KINDS,
    PERSONAL_DATA,
    PersonalDataOptions,
)
from memory_api.core.secret_redaction import redact, redact_value
from memory_api.core.settings import Settings
from memory_api.runtime import Runtime
from memory_api.traces import redaction
from memory_api.traces.redaction import redact_trace_isolated
from memory_api.traces.schemas import CreateTraceRequest
from tests.support.cases import each_case

for library in ("phonenumbers", "stdnum"):
    pytest.importorskip(library, reason="needs the extra `pii`")

MAIL, PHONE = "anna.meier@example.com", "+49 30 901820"
FOUND = [
    (f"Write to {MAIL}.", "Write to [pii:email]."),
    (
        "連絡先はanna@example.comまで、電話+81 90-1234-5678です",
        "連絡先は[pii:email]まで、電話[pii:phone]です",
    ),
    ("call (202) 555-0143 or 202-555-0143", "call [pii:phone] or [pii:phone]"),
    ("card 4111 1111 1111 1111, paid", "card [pii:credit_card], paid"),
    ("DE89 3704 0044 0532 0130 00 AND DE89370400440532013000 AND", "[pii:iban] AND [pii:iban] AND"),
    (f"{PHONE} 2026-11-22, +49.30.901820", "[pii:phone] 2026-11-22, [pii:phone]"),
    ("SSN 536-90-4399", "SSN [pii:us_ssn]"),
    ("from 8.8.8.8 and 2001:4860:4860::8888", "from [pii:ip_address] and [pii:ip_address]"),
]
INNOCENT = [
    "2026-11-22 23:19:11.123 took 12345 ms, 2026 1122 23 rows",
    "2026-11-22T23:19:11+01:00, 1763853551123",
    "550e8400-e29b-41d4-a716-446655440000",
    "4111 1111 1111 1112, DE89 3704 0044 0532 0130 01",
    "10.0.0.1 127.0.0.1 192.168.1.7 ::1 fe80::1 v1.2.3 1.2.3.4.5 12:34:56",
    "000-12-3456, +1234567, a @ b, git@host, x[1:2], std::vector",
]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PERSONAL_DATA, "detector", None)
    PERSONAL_DATA.configure(PersonalDataOptions(KINDS, "US"))


@pytest.mark.parametrize(("text", "clean"), FOUND)
def test_personal_data_is_replaced(on: None, text: str, clean: str) -> None:
    assert redact(text).text == clean
    assert redact(clean).counts == {}


@pytest.mark.parametrize("text", INNOCENT)
def test_other_numbers_stay(on: None, text: str) -> None:
    assert "[pii:" not in redact(text).text


@each_case("text", [text for text, _ in FOUND])
def test_off_by_default(text: str) -> None:
    assert Settings(_env_file=None).pii_redaction == "off"  # type: ignore[call-arg]
    assert redact(text).counts == {}


def test_only_selected_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PERSONAL_DATA, "detector", None)
    PERSONAL_DATA.configure(PersonalDataOptions.parse("phone, email", None))
    assert redact(f"{MAIL} {PHONE} 8.8.8.8").text == "[pii:email] [pii:phone] 8.8.8.8"
    assert redact("(202) 555-0143").counts == {}, "no region, so no numbers without country code"


@each_case("value", ["name", "", "on", "email,"])
def test_unknown_kind_is_refused(value: str) -> None:
    if value == "email,":
        assert personal_data.parse_kinds(value) == ("email",)
        return
    with pytest.raises(ValueError, match="must be off, all, or some of email"):
        personal_data.parse_kinds(value)


def test_unknown_region_and_missing_extra_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PERSONAL_DATA, "detector", None)
    with pytest.raises(ConfigurationError, match="HANSEI_PII_PHONE_REGION=XX"):
        PERSONAL_DATA.configure(PersonalDataOptions(KINDS, "XX"))
    monkeypatch.setitem(__import__("sys").modules, "phonenumbers", None)
    with pytest.raises(ConfigurationError, match=r"Install hansei-server\[pii\]") as caught:
        PERSONAL_DATA.configure(PersonalDataOptions(KINDS))
    assert "\n" not in str(caught.value)


def test_subject_of_metadata_stays_for_erasure(on: None) -> None:
    value = {"metadata": {"subject": MAIL, "to": MAIL}, "subject": MAIL, MAIL: [PHONE]}
    clean, counts = redact_value(value)
    assert clean == {
        "metadata": {"subject": MAIL, "to": "[pii:email]"},
        "subject": "[pii:email]",
        "[pii:email]": ["[pii:phone]"],
    }
    assert counts == {"email": 3, "phone": 1}


def test_hostile_body_has_a_limit(on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, numbers are replaced unchecked."""
    monkeypatch.setattr(personal_data, "MAX_CHECKED", 3)
    detector = PERSONAL_DATA.detector
    assert detector is not None
    calls: list[str] = []
    library = detector._phonenumbers  # pyright: ignore[reportPrivateUsage]
    parse = library.parse
    monkeypatch.setattr(library, "parse", lambda *given: calls.append(given[0]) or parse(*given))
    texts = ["+1234567", "12-345"] * 5
    assert redact_value(texts)[0] == [*texts[:6], *["[pii:phone]"] * 4]
    assert len(calls) == 6
    assert redact_value(texts[:6])[1] == {}, "the next body has a limit of its own"


async def test_large_trace_is_redacted_in_a_process_of_its_own(
    on: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ISOLATION, "is_enabled", True)
    monkeypatch.setattr(ISOLATION, "_limiter", None)
    monkeypatch.setattr(redaction, "MAX_REDACTED_INLINE", 10)
    monkeypatch.setattr(PERSONAL_DATA.detector, "find", None)  # this process cannot redact
    event = {"event_type": "user_message", "content": f"I am {MAIL}"}
    body = CreateTraceRequest.model_validate({"events": [event], "metadata": {"subject": MAIL}})
    clean = await redact_trace_isolated(body, UUID(int=1))
    assert clean.events[0].content == "I am [pii:email]"
    assert clean.metadata == {"subject": MAIL, "redacted": {"email": 1}}


@pytest.fixture
def connections_held(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many connections of the pool were in use when a body was redacted."""
    held: list[int] = []
    pool: Any = runtime.sessions.engine.pool
    run_isolated = redaction.run_isolated

    async def watch(work: Callable[[], Any], size: int, tenant_id: UUID, **options: Any) -> Any:
        with suppress(TimeoutError):  # a notification of the request before may still be sent
            async with asyncio.timeout(1):
                while pool.checkedout():
                    await asyncio.sleep(0.01)
        held.append(pool.checkedout())
        return await run_isolated(work, size, tenant_id, **options)

    monkeypatch.setattr(redaction, "run_isolated", watch)
    return held


async def test_every_way_in_is_redacted(
    on: None, api: AsyncClient, connections_held: list[int]
) -> None:
    """A trace, a line of NDJSON, a span, appended events, an outcome, the end and a bullet.
    Redaction takes up to 30 s, so it holds no connection."""
    event = {"event_type": "user_message", "content": f"My number is {PHONE}"}
    one = await api.post("/api/v1/traces", json={"events": [event], "state": "open"})
    trace_id = one.json()["trace_id"]
    more = await api.post(f"/api/v1/traces/{trace_id}/events", json={"events": [event]})
    assert more.status_code == 200, more.text
    line = await api.post(
        "/api/v1/traces",
        content=json.dumps({"events": [event], "outcome": "success"}) + "\n",
        headers={"Content-Type": "application/x-ndjson"},
    )
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": event["content"]}]),
    }
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }
    sent = await api.post(
        "/v1/traces", json={"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    )
    assert sent.status_code == 200, sent.text
    error = {"error_category": "network_error", "error_message": f"No answer from {PHONE}"}
    for path, outcome in (("outcome", {"test_report": MAIL}), ("close", {"error": error})):
        body = {"outcome": "failure", "reflect": "never"} | outcome
        ended = await api.post(f"/api/v1/traces/{trace_id}/{path}", json=body)
        assert ended.status_code == 200, ended.text
    traces = (await api.get("/api/v1/traces")).json()["items"]
    assert len(traces) == 3
    assert connections_held == [0] * 7, "two for a span: of the trace, and of its events"
    trace = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert trace["test_report"] == "[pii:email]"
    assert trace["error"]["error_message"] == "No answer from [pii:phone]"
    assert trace["metadata"] == {"redacted": {"phone": 3, "email": 1}}
    stored = [item["id"] for item in traces]
    assert {trace_id, line.json()["items"][0]["trace_id"]} < set(stored)
    for each in stored:
        found = (await api.get(f"/api/v1/traces/{each}/events")).json()["items"]
        assert {item["content"] for item in found} == {"My number is [pii:phone]"}
    bullet = await api.post(
        "/api/v1/playbooks/coding/bullets", json={"section": "OTHERS", "content": f"Ask {MAIL}"}
    )
    assert bullet.json()["bullet"]["content"] == "Ask [pii:email]"
    assert bullet.json()["sanitized"] is True
