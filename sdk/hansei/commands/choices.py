"""What may be chosen on the command line more than once (typer takes enums there, not literals)."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """As `hansei.answers.Kind`."""

    REFLECTION = "reflection"
    STRATEGY = "strategy"
    INSIGHT = "insight"
    BULLET = "bullet"
    EVALUATION = "evaluation"
    EPISODE = "episode"
    CHUNK = "chunk"


class State(StrEnum):
    """As `hansei.answers.State`."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    DEAD = "dead"
