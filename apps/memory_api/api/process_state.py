"""What one API process holds between requests: the keys it knows, its limits, and the state of the
readiness check. Workers have none of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from memory_api.auth.body_pace import BodyPace
from memory_api.auth.identity import KeyCache
from memory_api.auth.open_requests import OpenRequests
from memory_api.auth.rate_limits import RateLimits
from memory_api.auth.refusal_delay import RefusalDelay
from memory_api.auth.write_slots import WriteSlots
from memory_api.runtime import Runtime


@dataclass
class WriteCheck:
    """The last write of the readiness check that succeeded."""

    at: float = -math.inf
    """Monotonic seconds."""
    result: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ApiState:
    rate_limits: RateLimits
    body_pace: BodyPace
    open_requests: OpenRequests
    write_slots: WriteSlots = field(default_factory=WriteSlots)
    refusal_delay: RefusalDelay = field(default_factory=RefusalDelay)
    key_cache: KeyCache = field(default_factory=KeyCache)
    write_check: WriteCheck = field(default_factory=WriteCheck)

    @classmethod
    def of(cls, runtime: Runtime) -> ApiState:
        settings = runtime.settings
        return cls(
            RateLimits(settings, runtime.sessions),
            BodyPace(settings.rate_limit_body_bytes),
            OpenRequests(settings.max_connections),
        )
