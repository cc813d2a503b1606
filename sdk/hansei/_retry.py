"""Decides what follows from a response: return it, retry, or raise an error. Logs each attempt."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time
from typing import Any, Generic, TypeVar, cast
from urllib.parse import unquote

import httpx2

from hansei._log import LOGGER
from hansei._request import API, Request
from hansei.credentials import without_password
from hansei.errors import (
    APIConnectionError,
    APIError,
    APIResponseError,
    APITimeoutError,
    error_class,
)

T = TypeVar("T")

INITIAL_PAUSE_SECONDS = 0.2
"""The pause before the first retry. It doubles with each retry."""
MAX_PAUSE_SECONDS = 10.0
"""A longer `Retry-After` raises the error instead of waiting."""

TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""Retried, also if a proxy answers. Each change has an Idempotency-Key, so it happens once."""

_PROBLEM_FIELDS = frozenset({"type", "title", "status", "code", "detail", "errors", "instance"})
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Pause:
    seconds: float


class RequestAttempts(Generic[T]):
    """The attempts at one request."""

    def __init__(self, request: Request[T], max_retries: int, *, url: str, has_key: bool) -> None:
        self._request = request
        self._retries_left = max_retries
        self._pause = INITIAL_PAUSE_SECONDS
        self._url = without_password(url)
        self._has_key = has_key

    def evaluate(self, outcome: httpx2.Response | httpx2.RequestError) -> httpx2.Response | Pause:
        """Call it once for each attempt. Raises `APIError` when no retry is left or useful."""
        call = f"{self._request.method} {self._request.path}"
        if isinstance(outcome, httpx2.Response):
            request_id = outcome.headers.get("x-request-id", "none")
            LOGGER.debug("%s: status %d, request ID %s", call, outcome.status_code, request_id)
        if isinstance(outcome, httpx2.Response) and self._is_accepted(outcome):
            return outcome
        error = (
            self._response_error(outcome)
            if isinstance(outcome, httpx2.Response)
            else self._connection_error(outcome)
        )
        pause = error.retry_after if error.retry_after is not None else self._pause
        if self._retries_left == 0 or not _is_transient(error) or pause > MAX_PAUSE_SECONDS:
            raise error
        self._retries_left -= 1
        self._pause *= 2
        planned = Pause(pause * random.uniform(1.0, 1.2))
        LOGGER.info("%s: retry in %.1f seconds. %s", call, planned.seconds, error)
        return planned

    def parse(self, response: httpx2.Response) -> T:
        """The result of the call. Raises `APIResponseError` for a body of something else."""
        try:
            return self._request.parse(response)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._unexpected_response(response) from None

    def _is_accepted(self, response: httpx2.Response) -> bool:
        return response.is_success or response.status_code == self._request.accepted_status

    def _response_error(self, response: httpx2.Response) -> APIError:
        problem = _parse_problem(response)
        if problem is None:
            return self._unexpected_response(response)
        status = response.status_code
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        if status == 401 and not self._has_key:
            detail = f"No API key for {self._url}. Set HANSEI_API_KEY."
        if status == 404:
            detail = f"{detail.rstrip('.')}: {self._resource()}."
        return error_class(status)(
            detail,
            status=status,
            code=problem.get("code"),
            errors=_field_errors(problem.get("errors")),
            retry_after=_parse_retry_after(response),
            request_id=response.headers.get("x-request-id"),
            extra={name: value for name, value in problem.items() if name not in _PROBLEM_FIELDS},
        )

    def _resource(self) -> str:
        """What the request is about, such as `playbooks/support`: the names and IDs of its path,
        without the word after them, which names an action or a list.
        """
        parts = self._request.path.removeprefix(f"{API}/").lstrip("/").split("/")
        start = 1 if parts[0] == "agents" else 0  # agents/runs/ID
        end = len(parts) - (len(parts) - start) % 2
        return unquote("/".join(parts[:end] if end > start else parts))

    def _unexpected_response(self, response: httpx2.Response) -> APIError:
        """A response that is not in Hansei's format, as a proxy sends it."""
        status = response.status_code
        is_transient = status in TRANSIENT_STATUSES
        error_type = error_class(status) if is_transient else APIResponseError
        summary = _summarize_body(response)
        return error_type(
            f"{self._url} returned {status}{f' ({summary})' if summary else ''}, which is not a "
            f"Hansei response. {'Try again later.' if is_transient else 'Check the URL.'}",
            status=status,
            retry_after=_parse_retry_after(response),
        )

    def _connection_error(self, error: httpx2.RequestError) -> APIError:
        if isinstance(error, httpx2.TimeoutException) and not _was_never_sent(error):
            return APITimeoutError(f"{self._url} did not respond in time.")
        if _was_never_sent(error):
            return APIConnectionError(f"{self._url} cannot be reached ({_error_reason(error)}).")
        return APIConnectionError(
            f"The connection to {self._url} was lost ({_error_reason(error)})."
        )


def _is_transient(error: APIError) -> bool:
    """Whether a retry may succeed. A timeout is not retried: the service may still be working."""
    if isinstance(error, APITimeoutError):
        return False
    return (
        isinstance(error, APIConnectionError)
        or error.status in TRANSIENT_STATUSES
        or error.code == "in_progress"  # an earlier attempt whose response was lost
    )


def _was_never_sent(error: httpx2.RequestError) -> bool:
    return isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))


def _error_reason(error: httpx2.RequestError) -> str:
    return _ERRNO.sub("", str(error)) or type(error).__name__


def _parse_problem(response: httpx2.Response) -> Mapping[str, Any] | None:
    """The problem document of an error response (RFC 9457), if it has one."""
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        value: object = response.json()
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    return fields if "code" in fields and "detail" in fields else None


def _field_errors(value: object) -> list[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _parse_retry_after(response: httpx2.Response) -> float | None:
    """Seconds. The header holds a number or a date."""
    text = response.headers.get("retry-after")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if isfinite(seconds) else None


def _summarize_body(response: httpx2.Response) -> str:
    """The title of an HTML page, otherwise the first words."""
    text = response.text[:2000]
    title = _HTML_TITLE.search(text)
    return " ".join((title.group(1) if title else text).split())[:80]
