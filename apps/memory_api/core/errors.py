"""Domain errors. Each carries its HTTP status and a stable code; one handler renders one shape (RFC
9457).

HanseiError
├── Invalid 422              the request is understood and wrong; names the field
├── Unauthorized 401         no key, or not one of ours
├── Forbidden 403            a good key, but not for this
├── NotFound 404             also for what belongs to another tenant: the two look alike
├── Conflict 409             the same external_id or key with other content
├── TooLarge 413             past a documented limit
├── Busy 429                 come back later (Retry-After)
└── Unavailable 503          the database or a provider is away
"""

from __future__ import annotations

from typing import Any


class HanseiError(Exception):
    """Something went wrong."""

    status = 500
    code = "internal_error"

    def __init__(
        self, detail: str | None = None, *, field: str | None = None, **extra: Any
    ) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.field = field
        self.extra = extra
        self.headers: dict[str, str] = {}
        super().__init__(self.detail)


class Invalid(HanseiError):
    """The request is not valid."""

    status, code = 422, "invalid"


class Unauthorized(HanseiError):
    """A valid API key is needed: Authorization: Bearer hsk_…"""

    status, code = 401, "unauthorized"

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"WWW-Authenticate": 'Bearer realm="hansei"'}


class Forbidden(HanseiError):
    """This key may not do that."""

    status, code = 403, "forbidden"


class NotFound(HanseiError):
    """There is no such thing here."""

    status, code = 404, "not_found"


class Conflict(HanseiError):
    """That already exists with other content."""

    status, code = 409, "conflict"


class TooLarge(HanseiError):
    """The request is larger than the limit."""

    status, code = 413, "too_large"


class Busy(HanseiError):
    """Come back later."""

    status, code = 429, "busy"

    def __init__(self, detail: str | None = None, *, retry_after: int = 1, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"Retry-After": str(retry_after)}


class InProgress(Conflict):
    """A request with this Idempotency-Key is still being worked on."""

    code = "in_progress"

    def __init__(self, detail: str | None = None, *, retry_after: int = 1, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"Retry-After": str(retry_after)}


class Unavailable(HanseiError):
    """A part the service needs is away; try again."""

    status, code = 503, "unavailable"

    def __init__(self, detail: str | None = None, *, retry_after: int = 2, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"Retry-After": str(retry_after)}


class Misconfigured(ValueError):
    """A setting is wrong: the process does not start, and says which one in one line."""
