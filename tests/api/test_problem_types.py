"""Every error has a type, and the service serves a page for it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path

from httpx2 import AsyncClient

import memory_api as package
from memory_api.api.problems import CODE_OF_STATUS, PROBLEM_TYPES
from memory_api.core.errors import HanseiError
from tests.support.cases import each_case
from tests.support.problems import assert_problem


def subclasses(kind: type[HanseiError]) -> set[type[HanseiError]]:
    return {kind}.union(*(subclasses(child) for child in kind.__subclasses__()))


def error_classes() -> set[type[HanseiError]]:
    """Every error class of the service."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        spec = importlib.util.find_spec(module.name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        if not module.ispkg and "class " in source.read_text(encoding="utf-8"):
            defines_errors = any(
                isinstance(node, ast.ClassDef) and node.bases
                for node in ast.parse(source.read_text(encoding="utf-8")).body
            )
            if defines_errors:
                importlib.import_module(module.name)
    return {c for c in subclasses(HanseiError) if c.__module__.startswith(package.__name__)}


def test_code_of_every_error_class_has_a_type() -> None:
    classes = error_classes()
    assert len(classes) > 25
    for kind in classes:
        assert PROBLEM_TYPES[kind.code].status == kind.status, kind


@each_case("status", CODE_OF_STATUS)
def test_general_code_of_a_status_has_this_status(status: int) -> None:
    assert PROBLEM_TYPES[CODE_OF_STATUS[status]].status == status


@each_case("code", PROBLEM_TYPES)
async def test_every_type_has_a_page(http: AsyncClient, code: str) -> None:
    kind = PROBLEM_TYPES[code]
    assert kind.code == code
    page = await http.get(kind.uri)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for text in (kind.title, code, "What it means", "What to do"):
        assert text in page.text
    assert "`" not in page.text


async def test_error_leads_to_its_page(http: AsyncClient) -> None:
    problem = assert_problem(await http.get("/api/v1/traces"), 401, "unauthorized")
    page = await http.get(problem["type"])
    assert "API key" in page.text


async def test_unknown_type_is_404(http: AsyncClient) -> None:
    assert_problem(await http.get("/problems/nothing"), 404, "not_found")
    answer = await http.get("/problems/<script>")
    assert "<script>" not in answer.headers.get("content-type", "")
    assert_problem(answer, 404, "not_found")
