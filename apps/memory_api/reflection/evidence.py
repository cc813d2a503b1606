"""What is known beside the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.memory_api.reflection.findings.schemas import Attempt


@dataclass(frozen=True)
class ShownBullet:
    """A bullet that the run had, as a model is shown it. `how` says why it counts as used: named by
    the agent, cited in its words, or only served to it.
    """

    key: str
    text: str
    how: str = "served"


@dataclass(frozen=True)
class Evidence:
    """Earlier attempts of the task, the right answer, a test report; the bullets the run used, and
    what was learnt of such tasks before.
    """

    attempts: Sequence[Attempt] = ()
    ground_truth: Any = None
    test_report: str | None = None
    bullets: Sequence[ShownBullet] = ()
    lessons: Sequence[str] = ()
