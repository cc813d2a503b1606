"""The methods of the client are the operations of the published OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hansei import AsyncHansei, Hansei, _flows
from hansei._methods import FlowMethod, ListMethod, RequestMethod, ResultMethod
from hansei.client import Methods
from hansei.endpoints.playbooks import export_playbook

DOCUMENT = Path(__file__).resolve().parents[2] / "openapi.json"
HTTP_METHODS = {"get", "post", "put", "patch", "delete"}
COMBINED = {
    *("create_traces", "export_playbook", "wait_for_run", "follow_chain"),
    *("get_analytics_csv", "follow_agent_run", "execute_plan_generator"),
}
"""Further methods: they combine several requests or return another format."""


def operations() -> dict[str, dict[str, Any]]:
    paths = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
    return {
        operation["operationId"]: operation
        for path in paths.values()
        for method, operation in path.items()
        if method in HTTP_METHODS
    }


def methods() -> dict[str, Any]:
    kinds = (RequestMethod, ListMethod, FlowMethod, ResultMethod)
    return {
        name: value
        for name, value in vars(Methods).items()
        if isinstance(value, kinds) and not name.startswith("_")
    }


def test_every_operation_has_a_method_of_the_same_name() -> None:
    assert set(methods()) - COMBINED == set(operations())


def test_method_has_the_name_of_its_function() -> None:
    assert methods().keys() >= COMBINED
    for name, method in methods().items():
        assert method.describe.__name__ == name
        assert hasattr(Hansei, name)
        assert hasattr(AsyncHansei, name)
    assert methods()["export_playbook"].describe is export_playbook
    assert methods()["create_traces"].describe is _flows.create_traces


def test_paged_operation_is_a_list_method() -> None:
    listed = {
        name
        for name, operation in operations().items()
        if "cursor" in {parameter["name"] for parameter in operation.get("parameters", [])}
    }
    assert len(listed) > 8
    assert {name for name in listed if not isinstance(methods()[name], ListMethod)} == set()
