"""Errors of the client.

HanseiError                 base class of all errors below
├── NotConfigured           no usable URL or credentials
├── EvaluationError         an evaluation cannot start or continue
├── Unreachable             the service cannot be reached or the connection was lost
│   └── TimedOut            the service did not respond in time
├── UnexpectedResponse      the response is not from Hansei, for example a proxy's error page
├── BadRequest    4xx       the request is invalid; `errors` names the fields
├── Unauthorized  401       the API key is missing or invalid
├── Forbidden     403       the API key does not permit this
├── NotFound      404       the resource does not exist for this key
├── Conflict      409       the resource exists with different content or is being processed
├── Stale         412       the playbook is not at the version in `if_match`
├── Busy          429       too many requests; retry after `retry_after` seconds
└── ServerError   5xx       the service failed
    └── Unavailable 503     a dependency of the service is temporarily unavailable
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class HanseiError(Exception):
    """`detail` describes the error in one sentence.

    `status` is the HTTP status, or None without a response. `code` is a stable identifier.
    `errors` holds one `{"field", "message"}` for each invalid field. `retry_after` is in seconds.
    `extra` holds the other members of the problem document.
    """

    code = "error"

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        code: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.code = code or type(self).code
        self.errors = [dict(error) for error in errors]
        self.retry_after = retry_after
        self.request_id = request_id
        self.extra = dict(extra or {})


class NotConfigured(HanseiError):
    code = "not_configured"


class EvaluationError(HanseiError):
    code = "evaluation"


class Unreachable(HanseiError):
    code = "unreachable"


class TimedOut(Unreachable):
    code = "timed_out"


class UnexpectedResponse(HanseiError):
    code = "unexpected_response"


class BadRequest(HanseiError):
    code = "bad_request"


class Unauthorized(HanseiError):
    code = "unauthorized"


class Forbidden(HanseiError):
    code = "forbidden"


class NotFound(HanseiError):
    code = "not_found"


class Conflict(HanseiError):
    code = "conflict"


class Stale(HanseiError):
    code = "precondition_failed"


class Busy(HanseiError):
    code = "busy"


class ServerError(HanseiError):
    code = "server_error"


class Unavailable(ServerError):
    code = "unavailable"


_CLASS_BY_STATUS = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Stale,
    429: Busy,
    503: Unavailable,
}


def error_class(status: int) -> type[HanseiError]:
    """The error class of an HTTP status of 400 or more."""
    return _CLASS_BY_STATUS.get(status) or (ServerError if status >= 500 else BadRequest)
