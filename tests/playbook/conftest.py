"""Real ACE playbooks, where they lie beside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apps.memory_api.playbook.schemas import Bullet

ACE = Path(__file__).resolve().parents[3] / "shared" / "data" / "bullets_ace.jsonl"


@pytest.fixture(scope="session")
def ace_bullets() -> list[Bullet]:
    """318 bullets that ACE learnt on AppWorld, with invented counters."""
    if not ACE.exists():
        pytest.skip("shared/data/bullets_ace.jsonl is not here")
    rows = [json.loads(line) for line in ACE.read_text(encoding="utf-8").splitlines()]
    return [
        Bullet(
            id=row["id"].rsplit("/", 1)[1],
            section=row["section"],
            content=row["text"],
            helpful=n % 7,
            harmful=n % 3,
        )
        for n, row in enumerate(rows)
    ]
