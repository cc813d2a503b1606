"""What to make of an answer: give it, try again later, or fail. No I/O: both clients share it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, Generic, TypeVar, cast

import httpx2

from hansei.errors import (
    HanseiError,
    TimedOut,
    UnexpectedAnswer,
    Unreachable,
    error_class,
)
from hansei.request import Request

T = TypeVar("T")

FIRST_PAUSE = 0.2
"""Seconds before the second try; each later pause is twice as long."""
LONGEST_PAUSE = 10.0
"""Seconds. A service that asks for more patience than this gets it from our caller."""

_PROBLEM = frozenset({"type", "title", "status", "code", "detail", "errors", "instance"})
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Pause:
    """Wait this many seconds and go on."""

    seconds: float


@dataclass(frozen=True)
class Answer(Generic[T]):
    value: T


class Exchange(Generic[T]):
    """The tries of one request. Each outcome is judged once; `retries` is how often it is sent
    again.
    """

    def __init__(self, request: Request[T], retries: int, *, url: str, has_key: bool) -> None:
        self.request = request
        self._left = retries
        self._pause = FIRST_PAUSE
        self._url = url
        self._has_key = has_key

    def judge(self, outcome: httpx2.Response | httpx2.RequestError) -> Answer[T] | Pause:
        """Raises `HanseiError` when there is nothing more to try."""
        if isinstance(outcome, httpx2.Response) and self._is_answer(outcome):
            return Answer(cast(T, self._content(outcome)))
        error = (
            self._refused(outcome)
            if isinstance(outcome, httpx2.Response)
            else self._broken(outcome)
        )
        pause = error.retry_after if error.retry_after is not None else self._pause
        if self._left == 0 or not _may_pass(error) or pause > LONGEST_PAUSE:
            raise error
        self._left -= 1
        self._pause *= 2
        return Pause(pause * random.uniform(1.0, 1.2))

    def _is_answer(self, response: httpx2.Response) -> bool:
        return response.is_success or response.status_code == self.request.fine

    def _content(self, response: httpx2.Response) -> Any:
        if response.status_code == 204 or not response.content:
            return None
        if self.request.form == "text":
            return response.text
        try:
            value = response.json()
        except ValueError:
            raise self._unexpected(response) from None
        return value | _version(response) if self.request.form == "versioned" else value

    def _refused(self, response: httpx2.Response) -> HanseiError:
        problem = _problem(response)
        if problem is None:
            return self._unexpected(response)
        status = response.status_code
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        if status == 401 and not self._has_key:
            detail = f"No API key is known for {self._url}: set HANSEI_API_KEY."
        return error_class(status)(
            detail,
            status=status,
            code=problem.get("code"),
            errors=problem.get("errors") or (),
            retry_after=_retry_after(response),
            request_id=response.headers.get("x-request-id"),
            extra={name: value for name, value in problem.items() if name not in _PROBLEM},
        )

    def _unexpected(self, response: httpx2.Response) -> HanseiError:
        """An answer in no form of ours. A proxy's 429 or 503 keeps its class and is tried again."""
        status = response.status_code
        kind = error_class(status) if status in (429, 503) else UnexpectedAnswer
        said = _gist(response)
        return kind(
            f"{self._url} answered {status}{f' ({said})' if said else ''}, "
            "and not in the way of Hansei: is this its URL?",
            status=status,
            retry_after=_retry_after(response),
        )

    def _broken(self, error: httpx2.RequestError) -> HanseiError:
        if isinstance(error, httpx2.TimeoutException) and not _never_arrived(error):
            return TimedOut(f"{self._url} did not answer in time.")
        if _never_arrived(error):
            return Unreachable(f"{self._url} cannot be reached ({_reason(error)}).")
        return Unreachable(f"The connection to {self._url} broke ({_reason(error)}).")


def _may_pass(error: HanseiError) -> bool:
    """Whether the same request may succeed a moment later. A timeout is not tried again: the
    service is at work on it.
    """
    if isinstance(error, TimedOut):
        return False
    return (
        isinstance(error, Unreachable)
        or error.status in (429, 503)
        or error.code == "in_progress"  # an earlier try of ours, whose answer got lost
    )


def _never_arrived(error: httpx2.RequestError) -> bool:
    return isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))


def _reason(error: httpx2.RequestError) -> str:
    return _ERRNO.sub("", str(error)) or type(error).__name__


def _problem(response: httpx2.Response) -> Mapping[str, Any] | None:
    """The problem document of an error, if it is one (RFC 9457)."""
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        value: object = response.json()
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    return fields if "code" in fields and "detail" in fields else None


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds: the header holds a number or a date."""
    text = response.headers.get("retry-after")
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except ValueError:
        return None


def _version(response: httpx2.Response) -> dict[str, int]:
    """The version of a playbook, which its ETag holds as `"7"`."""
    tag = response.headers.get("etag", "").strip('"')
    return {"version": int(tag)} if tag.isdigit() else {}


def _gist(response: httpx2.Response) -> str:
    """What a stranger's answer says, in a few words."""
    text = response.text[:2000]
    title = _TITLE.search(text)
    return " ".join((title.group(1) if title else text).split())[:80]
