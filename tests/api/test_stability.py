"""The API of version 1 accepts and answers what it did (docs/api-stability.md)."""

from __future__ import annotations

import json

from tests.api.signatures import FROZEN, breaks, signatures
from tests.support.cases import each_case
from tests.support.paths import ROOT


def test_nothing_breaks_a_client_of_version_1() -> None:
    document = json.loads((ROOT / "openapi.json").read_text("utf-8"))
    found = breaks(FROZEN.read_text("utf-8").splitlines(), signatures(document))
    assert found == [], "docs/api-stability.md lists what may change"


BEFORE = [
    "GET /runs is list_runs",
    "GET /runs takes query state: State (optional)",
    "New takes field name: string (required)",
    'State takes value "done"',
    "Run answers field id: string uuid (required)",
    "Run answers field note: string (optional)",
]


@each_case(
    ("changes", "expected"),
    [
        ({}, []),
        ({"": "GET /runs takes query limit: integer (optional)"}, []),
        ({"": "Run answers field error: string (optional)"}, []),
        ({"": "Other takes field name: string (required)"}, []),
        ({BEFORE[2]: "New takes field name: string (optional)"}, []),
        ({BEFORE[5]: "Run answers field note: string (required)"}, []),
        ({"": "New takes field key: string (required)"}, ["now required"]),
        ({BEFORE[0]: "GET /runs is find_runs"}, ["gone"]),
        ({BEFORE[1]: "GET /runs takes query state: State (required)"}, ["gone", "now required"]),
        ({BEFORE[3]: ""}, ["gone"]),
        ({BEFORE[4]: "Run answers field id: string (required)"}, ["gone"]),
        ({BEFORE[4]: "Run answers field id: string uuid (optional)"}, ["gone"]),
    ],
)
def test_additions_pass_and_breaks_fail(changes: dict[str, str], expected: list[str]) -> None:
    now = [changes.get(line, line) for line in BEFORE] + [changes.get("", "")]
    assert [each.split(": ")[0] for each in breaks(BEFORE, now)] == expected
