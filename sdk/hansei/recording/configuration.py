"""Switches of recording: whether, how many runs, and with which texts."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

log = logging.getLogger("hansei")

Mask = Callable[[str], str]
MASK_FAILED = "[not recorded: the mask failed]"
_OFF = ("0", "false", "no", "off")
_IDENTIFIERS = frozenset(
    ("external_id", "playbook", "project_id", "task_key", "session_id", "retrieval_id", "outcome",
     "match", "_reflect")
)  # fmt: skip
"""Fields of a trace that a mask leaves alone."""


@dataclass(frozen=True)
class RecordingOptions:
    sample_rate: float = 1.0
    mask: Mask | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sample_rate <= 1:
            raise ValueError(f"`sample_rate` must be between 0 and 1, not {self.sample_rate}.")

    def is_sampled(self) -> bool:
        return self.sample_rate >= 1 or random.random() < self.sample_rate

    def mask_text(self, text: str) -> str:
        if self.mask is None or not text:
            return text
        try:
            return str(self.mask(text))
        except Exception:  # the agent goes on, and the text is not recorded
            log.exception("The mask failed; the text is not recorded.")
            return MASK_FAILED

    def mask_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.mask is None:
            return fields
        return {
            name: value if name in _IDENTIFIERS else self._mask_value(value)
            for name, value in fields.items()
        }

    def _mask_value(self, value: object) -> Any:
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[object, object]", value)
            return {key: self._mask_value(item) for key, item in fields.items()}
        if isinstance(value, (list, tuple)):
            return [self._mask_value(item) for item in cast("list[object]", value)]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return self.mask_text(repr(value))


def is_enabled() -> bool:
    """False if HANSEI_ENABLED is 0, false, no or off: nothing is recorded or rendered."""
    return os.environ.get("HANSEI_ENABLED", "1").strip().lower() not in _OFF


def options_from_environment() -> RecordingOptions:
    text = os.environ.get("HANSEI_SAMPLE_RATE", "")
    if not text:
        return RecordingOptions()
    try:
        return RecordingOptions(float(text))
    except ValueError:
        log.warning("HANSEI_SAMPLE_RATE must be a number between 0 and 1, not %r.", text)
        return RecordingOptions()
