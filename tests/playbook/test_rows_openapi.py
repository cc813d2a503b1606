"""The routes of playbooks in the OpenAPI document, as `tests/http/test_openapi.py` does it for the
others; and their examples, sent to a playbook.
"""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from tests.http.test_openapi import (
    answer_examples,
    operation_of,
    request_example,
)
from tests.http.test_openapi import (
    test_every_route_has_an_example as has_an_example,
)
from tests.http.test_openapi import (
    test_every_route_says_how_it_fails_and_who_may as says_how_it_fails,
)
from tests.http.test_openapi import (
    test_examples_of_answers_are_what_their_schema_says as examples_are_true,
)
from tests.playbook.rows import Book
from tests.rules.test_route_auth import NEEDS

ROUTES = sorted(route for route in NEEDS if "/api/v1/playbooks" in route)


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_is_described(app: FastAPI, route: str) -> None:
    has_an_example(app, route)
    examples_are_true(app, route)
    says_how_it_fails(app, route)


async def test_examples_of_requests_work(api: AsyncClient, app: FastAPI) -> None:
    book = Book(api)
    await book.deltas({"type": "ADD", "section": "mis", "content": "there is one"})
    await api.patch(book.url, json={"review": "required"})
    held = await book.post("deltas", deltas=[{"type": "ADD", "content": "held"}])
    names = {"name": book.name, "key": "mis-00001", "proposal_id": held.json()["proposal_id"]}
    sent = 0
    for route in ROUTES:
        method, path = route.split()
        body: Any = request_example(operation_of(app, route))
        if body is None or route.endswith("/reject"):
            continue
        if path == "/api/v1/playbooks/{name}" and method == "PUT":
            answer = await api.put("/api/v1/playbooks/imported", json=body)
        else:
            answer = await api.request(method, path.format(**names), json=body)
        assert answer.status_code in (200, 201, 202, 204), f"{route}: {answer.text}"
        sent += 1
    assert sent > 8


def test_there_are_examples_of_answers(app: FastAPI) -> None:
    assert sum(bool(answer_examples(app, operation_of(app, route))) for route in ROUTES) >= 8
