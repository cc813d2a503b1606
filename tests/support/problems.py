"""The one shape of an error, checked wherever a test expects one."""

from __future__ import annotations

from typing import Any

from httpx2 import Response

from memory_api.api.problems import PROBLEM_TYPES

LEAKS = ("Traceback", "sqlalchemy", "asyncpg", 'File "', "pydantic.dev")


def assert_problem(answer: Response, status: int, code: str | None = None) -> dict[str, Any]:
    """Fails unless the answer is this problem (RFC 9457), and tells nothing of our insides."""
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert {"type", "title", "status", "code", "detail"} <= body.keys()
    assert body["status"] == status
    kind = PROBLEM_TYPES[body["code"]]
    assert (body["type"], body["title"]) == (kind.uri, kind.title)
    assert body["instance"] == f"urn:uuid:{answer.headers['x-request-id']}"
    assert body["detail"]
    if code is not None:
        assert body["code"] == code
    assert not any(leak in answer.text for leak in LEAKS)
    assert len(answer.content) < 32_000
    return body


def without_instance(answer: Response) -> dict[str, Any]:
    """A problem without the ID of its request."""
    return {name: value for name, value in answer.json().items() if name != "instance"}


def assert_names(answer: Response, field: str, status: int = 422) -> dict[str, Any]:
    """Fails unless the answer refuses this field by name."""
    body = assert_problem(answer, status)
    assert field in [error["field"] for error in body.get("errors", [])], body
    return body
