"""Real ACE playbooks, where they lie beside the repository."""

from __future__ import annotations

import json

import pytest

from memory_api.playbooks.models import Bullet
from tests.support.paths import SHARED

ACE = SHARED / "data" / "bullets_ace.jsonl"


@pytest.fixture(scope="session")
def ace_bullets() -> list[Bullet]:
    """318 bullets that ACE learned on AppWorld, with invented counters."""
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
