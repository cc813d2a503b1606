"""Errors of the client.

HanseiError                          base class of all errors below
├── ConfigurationError               no usable URL or credentials
├── EvaluationError                  an evaluation cannot start or continue
└── APIError                         a call of the service failed
    ├── APIConnectionError           the service cannot be reached or the connection was lost
    │   └── APITimeoutError          the service did not respond in time
    ├── APIResponseError             the response is not from Hansei, such as a proxy's error page
    └── APIStatusError               the service answered with an error
        ├── BadRequestError    4xx   the request is invalid; `errors` names the fields
        ├── AuthenticationError      401: the API key is missing or invalid
        ├── PermissionDeniedError    403: the API key does not permit this
        ├── NotFoundError            404: the resource does not exist for this key
        ├── ConflictError            409: other content exists, or it is being processed
        ├── PreconditionFailedError  412: the playbook is not at the version in `if_match`
        ├── RateLimitError           429: too many requests; retry after `retry_after` seconds
        └── InternalServerError 5xx  the service failed
            └── ServiceUnavailableError  503: a dependency is temporarily unavailable
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


class ConfigurationError(HanseiError):
    code = "not_configured"


class EvaluationError(HanseiError):
    code = "evaluation"


class APIError(HanseiError):
    code = "error"


class APIConnectionError(APIError):
    code = "unreachable"


class APITimeoutError(APIConnectionError):
    code = "timed_out"


class APIResponseError(APIError):
    code = "unexpected_response"


class APIStatusError(APIError):
    code = "error"


class BadRequestError(APIStatusError):
    code = "bad_request"


class AuthenticationError(APIStatusError):
    code = "unauthorized"


class PermissionDeniedError(APIStatusError):
    code = "forbidden"


class NotFoundError(APIStatusError):
    code = "not_found"


class ConflictError(APIStatusError):
    code = "conflict"


class PreconditionFailedError(APIStatusError):
    code = "precondition_failed"


class RateLimitError(APIStatusError):
    code = "busy"


class InternalServerError(APIStatusError):
    code = "server_error"


class ServiceUnavailableError(InternalServerError):
    code = "unavailable"


_CLASS_BY_STATUS = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    429: RateLimitError,
    503: ServiceUnavailableError,
}


def error_class(status: int) -> type[APIStatusError]:
    """The error class of an HTTP status of 400 or more."""
    return _CLASS_BY_STATUS.get(status) or (
        InternalServerError if status >= 500 else BadRequestError
    )
