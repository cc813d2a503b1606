"""What is known beside the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.memory_api.reflection.findings.schemas import Attempt


@dataclass(frozen=True)
class Evidence:
    """Earlier attempts of the task, the right answer, a test report."""

    attempts: Sequence[Attempt] = ()
    ground_truth: Any = None
    test_report: str | None = None
