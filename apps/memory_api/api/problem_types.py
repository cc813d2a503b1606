"""Every `code` of an error response. The titles and help texts are in `problem_types.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


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


with Path(__file__).with_suffix(".toml").open("rb") as _file:
    PROBLEM_TYPES = {
        code: ProblemType(code, **fields) for code, fields in tomllib.load(_file).items()
    }

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
