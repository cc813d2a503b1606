"""The recorded history of the demo: `history.jsonl.xz`, made from the recordings of docs/proof.md
(seed 43, airline; seed 25, orders) by `bench/demo_history.py` at 5eef4374.

A desk is one playbook. Its runs of agents, how they ended, and the answers of a careful reader in
place of the model that reflects and curates were recorded. Composed are the days, the verdicts
of a person, and that the last change waits for one.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "history.jsonl.xz"
DAYS = 60
"""Length of the history in days."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Desk:
    """One playbook. A bullet is named by the title with which it was added. `items` are what
    happens there, by day: `run`, `curate`, `verdict` and `propose`.
    """

    playbook: str
    about: str
    tools: Sequence[Json]
    curations: Sequence[Json]
    """The recorded operations of the curator. `lessons` are the texts of their lessons."""
    consolidations: Sequence[Json]
    """Recorded changes of the whole playbook."""
    items: Sequence[Json]


def load_desks() -> list[Desk]:
    """The desks with their items."""
    with lzma.open(FILE, "rt", encoding="utf8") as file:
        lines: list[Json] = [json.loads(line) for line in file]
    starts = [number for number, line in enumerate(lines) if line["type"] == "desk"]
    return [
        Desk(
            lines[start]["playbook"],
            lines[start]["about"],
            lines[start]["tools"] or (),
            lines[start]["curations"],
            lines[start]["consolidations"],
            lines[start + 1 : end],
        )
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]
