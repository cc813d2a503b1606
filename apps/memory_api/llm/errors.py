"""Errors of model calls.

LLMError 502                  retryable  provider_fault
├── LLMTimeout 504            yes        yes    may depend on the request
│   └── LLMDeadlineExceeded   no         no     the time of the request is used up
├── LLMConnectionFailed       yes        yes
├── LLMRateLimited 503        yes        yes    `retry_after` if the provider states it
├── LLMServerError            yes        yes    may depend on the request
├── LLMQuotaExceeded          no         yes    the paid quota is used up
├── LLMAuthenticationFailed   no         yes    wrong API key
├── LLMCircuitOpen 503        no         yes    not sent: the provider failed recently
├── LLMBadRequest             no         no     the request is not valid for this model
├── LLMRefused                no         no     the model or a content filter refused
├── LLMTruncated              no         no     the answer exceeds `max_tokens`
├── LLMUnparseable            no         no     two answers, both without the requested format
└── LLMOverBudget 402         no         no     not sent: over the tenant's budget
    └── LLMUnpriced           no         no     not sent: the price is unknown

`provider_fault` means that the cause is with the provider. The circuit breaker decides whether
other requests fail too (`is_outage`); then the run's attempt is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from memory_api.core.errors import HanseiError
from memory_api.llm.port import LLMReply


class LLMError(HanseiError):
    """The model returned no usable answer."""

    status, code = 502, "llm_error"
    retryable: ClassVar[bool] = False
    provider_fault: ClassVar[bool] = False

    def __init__(
        self,
        detail: str | None = None,
        *,
        retry_after: float | None = None,
        provider_status: int | None = None,
        request_id: str | None = None,
        reply: LLMReply | None = None,
    ) -> None:
        """`retry_after` is in seconds. `reply` is the reply of the provider, if there was one.

        The circuit breaker sets `is_outage` if other requests fail too, and `pause_seconds`.
        """
        super().__init__(detail)
        self.is_outage = False
        self.pause_seconds = 0.0
        self.retry_after = retry_after
        self.provider_status = provider_status
        self.request_id = request_id
        self.reply = reply
        if retry_after is not None:
            self.headers["Retry-After"] = str(math.ceil(retry_after))


class LLMTimeout(LLMError):
    """The model did not answer in time."""

    status, code = 504, "llm_timeout"
    retryable = provider_fault = True


class LLMDeadlineExceeded(LLMTimeout):
    """The model calls of this request took longer than the request may take."""

    code = "deadline_exceeded"
    retryable = provider_fault = False


class LLMConnectionFailed(LLMError):
    """The connection to the model provider failed."""

    code = "llm_connection"
    retryable = provider_fault = True


class LLMRateLimited(LLMError):
    """The model provider's rate limit is reached."""

    status, code = 503, "llm_rate_limited"
    retryable = provider_fault = True


class LLMServerError(LLMError):
    """The model provider returned an error."""

    code = "llm_server_error"
    retryable = provider_fault = True


class LLMQuotaExceeded(LLMError):
    """The quota of the account at the model provider is used up."""

    code = "llm_quota"
    provider_fault = True


class LLMAuthenticationFailed(LLMError):
    """The model provider rejected the API key."""

    code = "llm_auth"
    provider_fault = True


class LLMCircuitOpen(LLMError):
    """Model calls are paused, because the provider failed recently."""

    status, code = 503, "llm_paused"
    provider_fault = True


class LLMBadRequest(LLMError):
    """The model provider rejected the request."""

    code = "llm_bad_request"


class LLMRefused(LLMError):
    """The model refused to answer."""

    code = "llm_refused"


class LLMTruncated(LLMError):
    """The model's answer was cut off by the token limit."""

    code = "llm_truncated"


class LLMUnparseable(LLMError):
    """The model's answer does not have the requested format."""

    code = "llm_unparseable"


class LLMOverBudget(LLMError):
    """The budget for model calls is used up."""

    status, code = 402, "budget_spent"

    def __init__(
        self,
        detail: str | None = None,
        *,
        retry_after: float | None = None,
        figures: Mapping[str, object] | None = None,
        allows_rules: bool = False,
    ) -> None:
        """`figures` are added to the error response. `retry_after` is the number of seconds until
        the budget's period ends. `allows_rules` is whether the rules engine replaces the model.
        """
        super().__init__(detail, retry_after=retry_after)
        self.extra = dict(figures or {})
        self.allows_rules = allows_rules


def may_use_rules(error: LLMError, *, allowed: bool) -> bool:
    """Whether the rules engine replaces the model after this error: as a spent budget says, and as
    `allowed` says for all other errors.
    """
    return error.allows_rules if isinstance(error, LLMOverBudget) else allowed


class LLMUnpriced(LLMOverBudget):
    """The price of this model is unknown, and the budget does not allow unpriced calls."""

    code = "price_unknown"
