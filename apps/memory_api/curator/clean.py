"""What of the wanted changes can be made to a playbook as it is: pure, and the last word before
rows are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from apps.memory_api.curator.schemas import Candidate, LeftOut
from apps.memory_api.playbook.deltas import MAX_DELTAS, clean_deltas
from apps.memory_api.playbook.state import PlaybookState


def clean(
    state: PlaybookState, candidates: Sequence[Candidate], limit: int = MAX_DELTAS
) -> tuple[list[Candidate], list[LeftOut]]:
    """The candidates that `apply_deltas` would carry out on this state, at most `limit`, and what
    was left out and why. Never one that touches a pinned bullet, or a bullet twice.
    """
    wanted = [candidate.delta for candidate in candidates]
    _, dropped = clean_deltas(state, wanted, limit)
    out = {drop.index: drop.reason for drop in dropped}
    good = [candidate for index, candidate in enumerate(candidates) if index not in out]
    left = [
        LeftOut(
            reason=reason,
            lessons=candidates[index].lessons,
            delta=wanted[index].model_dump(mode="json", exclude_defaults=True),
        )
        for index, reason in out.items()
    ]
    return good, left
