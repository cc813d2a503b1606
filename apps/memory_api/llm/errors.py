"""What can go wrong with a model, and what each failure asks of the caller.

LLMError 502         retry  provider's fault
├── LLMTimeout       yes    yes
├── LLMConnection    yes    yes
├── LLMRateLimited   yes    yes    says after how many seconds, when the provider did
├── LLMServerError   yes    yes
├── LLMQuota         no     yes    the paid allowance is used up
├── LLMAuth          no     yes    wrong key
├── LLMPaused        no     yes    nobody was asked: the provider failed a moment ago
├── LLMBadRequest    no     no     our request is wrong, for this model at least
├── LLMRefused       no     no     the model, or a filter before it, will not answer this
├── LLMTruncated     no     no     the answer did not fit into max_tokens
├── LLMUnparseable   no     no     two answers, neither of the asked shape
└── LLMOverBudget 402 no    no     nobody was asked: the tenant may not spend that much now
    └── LLMUnpriced  no     no     nobody was asked: nobody knows what it would cost

"Provider's fault" means that other requests would fail too: pause the provider and do not count the
job's attempt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from apps.memory_api.core.errors import HanseiError
from apps.memory_api.llm.port import LLMReply


class LLMError(HanseiError):
    """The model gave no usable answer."""

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
        """`retry_after` in seconds; `reply` is what was received, where something was, raw text
        included."""
        super().__init__(detail)
        self.retry_after = retry_after
        self.provider_status = provider_status
        self.request_id = request_id
        self.reply = reply
        if retry_after is not None:
            self.headers["Retry-After"] = str(math.ceil(retry_after))


class LLMTimeout(LLMError):
    """The model did not answer in time."""

    code = "llm_timeout"
    retryable = provider_fault = True


class LLMConnection(LLMError):
    """The connection to the model's provider failed."""

    code = "llm_connection"
    retryable = provider_fault = True


class LLMRateLimited(LLMError):
    """The model's provider asks to slow down."""

    code = "llm_rate_limited"
    retryable = provider_fault = True


class LLMServerError(LLMError):
    """The model's provider failed."""

    code = "llm_server_error"
    retryable = provider_fault = True


class LLMQuota(LLMError):
    """The account at the model's provider has no quota left."""

    code = "llm_quota"
    provider_fault = True


class LLMAuth(LLMError):
    """The model's provider does not accept the key."""

    code = "llm_auth"
    provider_fault = True


class LLMPaused(LLMError):
    """The model's provider failed a moment ago and is left alone for a while."""

    code = "llm_paused"
    provider_fault = True


class LLMBadRequest(LLMError):
    """The model's provider does not accept the request."""

    code = "llm_bad_request"


class LLMRefused(LLMError):
    """The model refused to answer."""

    code = "llm_refused"


class LLMTruncated(LLMError):
    """The model's answer was cut by its token limit."""

    code = "llm_truncated"


class LLMUnparseable(LLMError):
    """The model's answer does not have the asked shape."""

    code = "llm_unparseable"


class LLMOverBudget(LLMError):
    """The budget for models is spent."""

    status, code = 402, "budget_spent"

    def __init__(
        self,
        detail: str | None = None,
        *,
        retry_after: float | None = None,
        figures: Mapping[str, object] | None = None,
    ) -> None:
        """`figures` are shown with the error; `retry_after` is when the budget's period ends."""
        super().__init__(detail, retry_after=retry_after)
        self.extra = dict(figures or {})


class LLMUnpriced(LLMOverBudget):
    """Nobody knows what this model costs, and the budget does not allow that."""

    code = "price_unknown"
