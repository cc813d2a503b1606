"""Requests made from the OpenAPI document, good and bad, sent to a running service: no answer is a
5xx, and each is as documented."""

from __future__ import annotations

import os

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.rules.test_route_auth import NEEDS, OPEN
from tests.support.openapi_responses import with_statuses

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
EXAMPLES = 25 if os.environ.get("HANSEI_FUZZ") else 3
"""Requests for each route, good and bad ones."""
ROUTES = sorted(route for route in NEEDS if route.split()[1].startswith(("/api", "/health")))


@pytest.fixture(scope="session")
def document(live: str) -> BaseSchema:
    document = with_statuses(httpx2.get(f"{live}/openapi.json").json())
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=live)
    return schema


CASES = [(route, mode) for route in ROUTES for mode in GenerationMode if not (
    NEEDS[route] == OPEN and mode is GenerationMode.NEGATIVE)]  # fmt: skip


@pytest.mark.parametrize(("route", "mode"), CASES, ids=lambda part: getattr(part, "value", part))
def test_no_request_causes_5xx(document, live: str, tenant, route: str, mode) -> None:
    method, path = route.split()
    operation = document[path][method]
    needs = NEEDS[route]
    headers = tenant.auth(needs) if needs != OPEN else {}

    @given(data=st.data())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def probe(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        case.call_and_validate(headers=headers, checks=CHECKS)

    probe()
