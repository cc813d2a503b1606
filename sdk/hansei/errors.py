"""What can go wrong between a program and the service.

HanseiError                 everything below; catch this one
├── NotConfigured           no usable URL or credentials
├── Unreachable             nobody answers at the URL, or the connection broke
│   └── TimedOut            somebody is there and did not answer in time
├── UnexpectedAnswer        an answer, but not one of Hansei's: another server, a proxy's page
├── BadRequest    4xx       the request is wrong; `errors` names the fields
├── Unauthorized  401       no key, or one that is not valid
├── Forbidden     403       a good key, but not for this
├── NotFound      404       no such thing for this key
├── Conflict      409       already there with other content, or still being worked on
├── Stale         412       the playbook is not at the version of `if_match` any more
├── Busy          429       come back after `retry_after` seconds
└── ServerError   5xx       the service failed; `Unavailable` (503) may pass
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class HanseiError(Exception):
    """`detail` says it in one sentence.

    `status` is the HTTP status, None when there was no answer. `code` is stable and made for
    programs. `errors` holds one `{"field", "message"}` for each wrong field. `retry_after` is in
    seconds. `extra` has whatever else the answer said.
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


class Unreachable(HanseiError):
    code = "unreachable"


class TimedOut(Unreachable):
    code = "timed_out"


class UnexpectedAnswer(HanseiError):
    code = "unexpected_answer"


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


_BY_STATUS = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Stale,
    429: Busy,
    503: Unavailable,
}


def error_class(status: int) -> type[HanseiError]:
    """Which error a status from 400 on is."""
    return _BY_STATUS.get(status) or (ServerError if status >= 500 else BadRequest)
