"""Every `code` of an error response, with its title and help text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProblemType:
    """One kind of error. `meaning` says what happened, `remedy` what the client can do."""

    code: str
    status: int
    title: str
    meaning: str
    remedy: str

    @property
    def uri(self) -> str:
        """The `type` of the problem (RFC 9457), relative to the service."""
        return f"/problems/{self.code}"


_RETRY = "Retry after the number of seconds in the `Retry-After` header."
_OPERATOR = "This is a fault of the server. Report it with the request ID (`X-Request-ID`)."
_PROVIDER = (
    "Retry later. The failed run keeps the trace: `POST /api/v1/runs/{run_id}/retry` runs it again."
)

_TYPES = (
    ProblemType(
        "bad_request",
        400,
        "Bad request",
        "The server cannot read the request.",
        "Check the request line, the headers and the body.",
    ),
    ProblemType(
        "malformed_json",
        400,
        "Malformed JSON",
        "The body is not valid JSON in UTF-8.",
        "Send valid JSON. `detail` names the position of the error.",
    ),
    ProblemType(
        "client_disconnected",
        400,
        "Client disconnected",
        "The connection closed before the whole body arrived.",
        "Send the request again.",
    ),
    ProblemType(
        "unauthorized",
        401,
        "Unauthorized",
        "The API key is missing, unknown, expired or revoked.",
        "Send `Authorization: Bearer hsk_…`. `hansei key create` makes a key.",
    ),
    ProblemType(
        "budget_spent",
        402,
        "Budget spent",
        "The next model call could cost more than what is left of the budget.",
        "Raise the budget with `PUT /api/v1/budgets`, or wait until the period ends "
        "(`Retry-After`).",
    ),
    ProblemType(
        "price_unknown",
        402,
        "Price unknown",
        "The price of the model is unknown, and the budget does not allow unpriced calls.",
        "Set `allow_unknown_price` on the budget, or use a model with a known price.",
    ),
    ProblemType(
        "forbidden",
        403,
        "Forbidden",
        "The API key is valid, but its scope, tenant or project does not allow this request.",
        "Use a key with the scope, tenant or project that `detail` names.",
    ),
    ProblemType(
        "invalid_csrf_token",
        403,
        "Invalid form token",
        "The form of the console is too old, or another site sent it.",
        "Load the page again and send the form again.",
    ),
    ProblemType(
        "under_review",
        403,
        "Review required",
        "The playbook accepts changes only after a review (`review_mode: required`).",
        "Send deltas to `POST /api/v1/playbooks/{name}/deltas`; they become a proposal. "
        "A key with the admin scope can change the playbook directly.",
    ),
    ProblemType(
        "not_found",
        404,
        "Not found",
        "The resource does not exist, or it belongs to another tenant or project.",
        "Check the ID or name in the path, and that the key belongs to the right tenant.",
    ),
    ProblemType(
        "method_not_allowed",
        405,
        "Method not allowed",
        "The path exists, but not with this HTTP method.",
        "Use one of the methods in the `Allow` header.",
    ),
    ProblemType(
        "conflict",
        409,
        "Conflict",
        "The request contradicts the current state of the resource.",
        "Read the resource and decide whether the change still applies.",
    ),
    ProblemType(
        "in_progress",
        409,
        "Request in progress",
        "Another request with the same `Idempotency-Key` is still being executed.",
        _RETRY + " The answer of the first request is then returned.",
    ),
    ProblemType(
        "playbook_full",
        409,
        "Playbook full",
        "The playbook already has its maximum number of active bullets.",
        "Delete or archive bullets, or raise `max_bullets`.",
    ),
    ProblemType(
        "precondition_failed",
        412,
        "Precondition failed",
        "The playbook is no longer at the version in `If-Match`.",
        "Read the playbook again and repeat the change on the new version.",
    ),
    ProblemType(
        "too_large",
        413,
        "Content too large",
        "The request is larger than a documented limit.",
        "Split the request. Send many traces as `application/x-ndjson`.",
    ),
    ProblemType(
        "unsupported_media_type",
        415,
        "Unsupported media type",
        "The body has a content type that this route does not read.",
        "Send JSON with `Content-Type: application/json`.",
    ),
    ProblemType(
        "address_refused",
        422,
        "Address refused",
        "The URL is not http or https, its host is unknown, or its address is private.",
        "Use a public URL. The operator can allow private ones with "
        "`HANSEI_WEBHOOK_ALLOW_PRIVATE`.",
    ),
    ProblemType(
        "invalid",
        422,
        "Invalid request",
        "A field of the body, path, query or headers has an invalid value.",
        "`errors` names each field and what is wrong with it. Correct them and send again.",
    ),
    ProblemType(
        "idempotency_key_reused",
        422,
        "Idempotency key reused",
        "This `Idempotency-Key` was used before with another body.",
        "Use a new key for each new request.",
    ),
    ProblemType(
        "prompt_invalid",
        422,
        "Custom prompt not valid",
        "A prompt file of the operator has an unknown placeholder. `detail` names both.",
        "Correct the file in `HANSEI_PROMPTS_DIR`. `hansei doctor` lists all problems.",
    ),
    ProblemType(
        "busy", 429, "Too many requests", "The server accepts no more requests right now.", _RETRY
    ),
    ProblemType("rate_limited", 429, "Rate limit", "Too many requests in a short time.", _RETRY),
    ProblemType(
        "queue_full",
        429,
        "Queue full",
        "The tenant, or the whole service, has reached the limit of waiting runs.",
        _RETRY + " `GET /api/v1/runs?state=queued` lists the waiting runs.",
    ),
    ProblemType(
        "internal_error",
        500,
        "Internal error",
        "The server failed in a way that nobody foresaw. The log has the details.",
        _OPERATOR,
    ),
    ProblemType(
        "lease_lost",
        500,
        "Lease lost",
        "Another worker took over the run while this request executed it.",
        "Read the run with `GET /api/v1/runs/{run_id}`: it continues there.",
    ),
    ProblemType(
        "run_busy",
        500,
        "Run busy",
        "The run waits until another run has ended.",
        "Read the run with `GET /api/v1/runs/{run_id}`: a worker tries it again.",
    ),
    ProblemType(
        "prompt_missing",
        500,
        "Prompt missing",
        "A prompt file that the configuration names does not exist.",
        "The operator of the service must check `HANSEI_PROMPTS_DIR`.",
    ),
    ProblemType(
        "embedded_postgres",
        500,
        "Embedded PostgreSQL failed",
        "The PostgreSQL server that `hansei up` starts does not work.",
        "Run `hansei doctor` on the server and read its log.",
    ),
    ProblemType(
        "port_unavailable",
        500,
        "Port unavailable",
        "Another program uses the port that the service needs.",
        "Stop that program, or choose another port.",
    ),
    ProblemType(
        "unknown_kind",
        500,
        "Unknown kind of run",
        "The worker is older than the run and leaves it to a newer one.",
        "Update all workers.",
    ),
    ProblemType(
        "webhook_failed",
        500,
        "Webhook failed",
        "A webhook cannot be reached or did not accept the request.",
        "Check the URL and the log of the receiver. The run is retried.",
    ),
    ProblemType(
        "analysis_timeout",
        422,
        "Analysis stopped",
        "The analysis of the trace took too long.",
        "Send a smaller trace: leave out long output, or split the run.",
    ),
    ProblemType(
        "trace_too_large",
        422,
        "Trace too large to learn from",
        "The events of the trace have more than 64 MiB. It is stored, but not learned from.",
        "Split the run into several traces, or leave out long output.",
    ),
    ProblemType(
        "run_timeout",
        504,
        "Run stopped",
        "The run took longer than HANSEI_RUN_TIMEOUT.",
        "Retry the run. If it is stopped again, send a smaller trace or raise the limit.",
    ),
    ProblemType("llm_error", 502, "Model failed", "The model gave no usable answer.", _PROVIDER),
    ProblemType(
        "llm_timeout", 504, "Model timeout", "The model did not answer in time.", _PROVIDER
    ),
    ProblemType(
        "deadline_exceeded",
        504,
        "Time used up",
        "The model calls of this request took longer than the request may take.",
        "Send `Prefer: wait=N` with more seconds, or `Prefer: respond-async` and read the run "
        "later. A worker finishes the run.",
    ),
    ProblemType(
        "llm_connection",
        502,
        "Model unreachable",
        "The connection to the model provider failed.",
        _PROVIDER,
    ),
    ProblemType(
        "llm_rate_limited",
        503,
        "Model rate limit",
        "The model provider limits the rate of requests.",
        _PROVIDER,
    ),
    ProblemType(
        "llm_server_error",
        502,
        "Model provider failed",
        "The model provider answered with a server error.",
        _PROVIDER,
    ),
    ProblemType(
        "llm_quota",
        502,
        "Model quota exceeded",
        "The account at the model provider has no quota left.",
        "The operator of the service must raise the quota at the provider.",
    ),
    ProblemType(
        "llm_auth",
        502,
        "Model key rejected",
        "The model provider does not accept the key of this service.",
        "The operator of the service must configure a valid provider key.",
    ),
    ProblemType(
        "llm_paused",
        503,
        "Model paused",
        "The model provider failed a moment ago. The service sends it no requests for a while.",
        _PROVIDER,
    ),
    ProblemType(
        "llm_bad_request",
        502,
        "Model rejected the request",
        "The model provider does not accept the request that the service made.",
        "Another model may accept it. The operator finds the cause in the log.",
    ),
    ProblemType(
        "standstill",
        422,
        "Run stood still",
        "The run held the event loop of its worker for too long, and the worker was restarted.",
        "This is an error of Hansei: report the stack in the log. `hansei run retry` tries again.",
    ),
    ProblemType(
        "llm_refused",
        502,
        "Model refused",
        "The model, or the provider's filter, refused to answer.",
        "Change the content, or use another model.",
    ),
    ProblemType(
        "llm_truncated",
        502,
        "Model answer truncated",
        "The answer did not fit the model's output limit.",
        "Send less content, or use a model with a larger output limit.",
    ),
    ProblemType(
        "llm_unparseable",
        502,
        "Model answer unreadable",
        "The answer of the model does not have the required structure, also after a second try.",
        "Retry, or use another model.",
    ),
    ProblemType(
        "unavailable",
        503,
        "Service unavailable",
        "A part that the service needs, usually the database, cannot be reached.",
        _RETRY + " `GET /health/ready` shows the state of each part.",
    ),
    ProblemType(
        "embedder_failed",
        503,
        "Embedding model unavailable",
        "The embedding model cannot be reached or gives no vectors.",
        _RETRY,
    ),
)

PROBLEM_TYPES = {kind.code: kind for kind in _TYPES}

CODE_OF_STATUS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    412: "precondition_failed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "busy",
    500: "internal_error",
    502: "llm_error",
    503: "unavailable",
    504: "llm_timeout",
}
"""The general code of a status."""
