"""Spec 5, "Best Practices" and "Troubleshooting": what the pages say is true (S5.39 to S5.41,
S5.45)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.core.settings import Settings
from tests.spec.conftest import Rows
from tests.support.cases import each_case
from tests.support.paths import ROOT

EVENTS = (ROOT / "docs/events.md").read_text(encoding="utf-8")
TROUBLE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
RUN, QUERY = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", EVENTS, re.DOTALL))


def test_what_lite_does_is_one_sentence_in_every_page() -> None:
    description = Settings.model_fields["reflective_memory_mode"].description or ""
    sentence = description.removesuffix(".")
    assert sentence.startswith("`lite` reflects on")
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    naming = {page.name: page.read_text(encoding="utf-8") for page in pages}
    naming.pop("spec-map.md")
    naming = {name: text for name, text in naming.items() if re.search(r"`lite`|=lite\b", text)}
    assert {name for name, text in naming.items() if sentence not in text} == set()
    assert {"configuration.md", "learning.md"} <= naming.keys()
    assert not [name for name, text in naming.items() if "=lite" in text]


def test_example_contains_documented_fields() -> None:
    """Parameters and responses, prompts and models, errors with their context; what is done, and
    what it would be to succeed."""
    by_type = {event["event_type"]: event for event in RUN["events"]}
    assert json.loads(by_type["tool_call"]["content"])
    assert (
        by_type["tool_call"]["metadata"]["call_id"]
        == by_type["tool_response"]["metadata"]["call_id"]
    )
    assert by_type["llm_call"]["metadata"]["model"]
    assert by_type["tool_response"]["error"]
    assert RUN["error"]["context"]
    assert RUN["task_description"]
    assert RUN["task_goal"]


async def test_collected_fields_are_stored_and_used(api: AsyncClient, rows: Rows) -> None:
    answer = await api.post("/api/v1/reflections/generate", json=RUN)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert "order 42 is pending" in body["reflection_text"]
    assert "Refund order 42" in body["reflection_text"]
    assert body["source_event_ids"][0] == "t1"
    kept = await rows(
        "select event_type, content, metadata, tool_name, error from trace_events order by seq"
    )
    assert kept == [
        {"metadata": {}, "tool_name": None, "error": None}
        | {name: value for name, value in event.items() if name != "event_id"}
        for event in RUN["events"]
    ]
    found = (await api.post("/api/v1/reflections/query", json=QUERY)).json()["reflections"]
    assert body["reflection_id"] in {one["id"] for one in found}


def test_importance_bands_have_no_gap() -> None:
    edges = re.findall(r"^\| \.(\d) to \.?(\d) \| (\w+)", EVENTS, re.MULTILINE)
    assert edges == [("8", "1", "critical"), ("6", "8", "valuable"), ("3", "6", "minor")]


def test_documented_settings_exist() -> None:
    known = {f"HANSEI_{name.upper()}" for name in Settings.model_fields}
    for field in Settings.model_fields.values():
        known |= set(getattr(field.validation_alias, "choices", ()))
    named = set(re.findall(r"\b(?:HANSEI|REFLECTIVE)_[A-Z_]+\b|\bDATABASE_URL\b", TROUBLE + EVENTS))
    assert {"REFLECTIVE_MEMORY_ENABLED", "DATABASE_URL"} <= named <= known


LOGGED = {
    "reflection_generation_started",
    "reflection_generation_failed",
    "reflection_generated",
    "reflection_by_rules",
    "run_failed",
    "run_postponed",
    "database_unavailable",
}


@each_case("event", sorted(LOGGED))
def test_documented_log_events_exist(event: str) -> None:
    assert f"`{event}`" in TROUBLE
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "apps").rglob("*.py"))
    assert f'"{event}"' in code


@pytest.mark.parametrize("part", ["No reflection", "Poor reflections", "Storage"])
def test_each_documented_problem_has_section(part: str) -> None:
    assert f"## {part}\n" in TROUBLE


async def test_documented_routes_exist(api: AsyncClient) -> None:
    paths: dict[str, Any] = (await api.get("/openapi.json")).json()["paths"]
    shapes = {re.sub(r"\{[^}]*\}", "{id}", path) for path in paths}
    named = set(re.findall(r"`(?:GET|POST|PATCH) (/[^`?]+)", TROUBLE + EVENTS))
    assert named
    assert named <= shapes
