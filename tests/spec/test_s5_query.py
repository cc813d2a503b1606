"""Spec 5, "Query Reflections" and "Best Practices": what is asked for by importance and tags
(S5.21, S5.41, S5.42, S5.44, S5.62)."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.library.reflection_engine import ReflectionEngineV2
from memory_api.reflection.schemas import ReflectionResult
from tests.conftest import TestTenant

QUERY = "/api/v1/reflections/query"
BANDS = {"critical": 0.8, "valuable": 0.6, "minor": 0.3, "noise": 0.29}
"""The lowest importance of each band of S5.41, and one below them all."""


@pytest.fixture
async def banded(api: AsyncClient) -> AsyncClient:
    """One reflection at the lower edge of each band."""
    for name, importance in BANDS.items():
        body = {"reflection_text": f"a {name} lesson about orders", "importance": importance}
        made = await api.post("/api/v1/reflections", json=body | {"tags": [name, "orders"]})
        assert made.status_code == 201, made.text
    return api


async def asked(api: AsyncClient, **body: Any) -> set[str]:
    answer = await api.post(QUERY, json=body)
    assert answer.status_code == 200, answer.text
    return {found["tags"][0] for found in answer.json()["reflections"]}


@pytest.mark.parametrize("text", ["lesson about orders", None])
@pytest.mark.parametrize(
    ("least", "found"),
    [
        (0.8, {"critical"}),
        (0.6, {"critical", "valuable"}),
        (0.3, {"critical", "valuable", "minor"}),
        (0, {"critical", "valuable", "minor", "noise"}),
    ],
)
async def test_importance_bands(
    banded: AsyncClient, text: str | None, least: float, found: set[str]
) -> None:
    """A band's lower edge belongs to it, with a text and without."""
    assert await asked(banded, query_text=text, min_importance=least) == found


async def test_default_min_importance_is_one_half(banded: AsyncClient) -> None:
    assert await asked(banded, query_text="lesson about orders") == {"critical", "valuable"}


@pytest.mark.parametrize("text", ["lesson about orders", None])
@pytest.mark.parametrize(
    ("tags", "found"),
    [
        (["critical"], {"critical"}),
        (["critical", "minor"], {"critical", "minor"}),
        (["orders"], set(BANDS)),
        (["nobody-uses-this"], set()),
    ],
)
async def test_tags_match_any(
    banded: AsyncClient, text: str | None, tags: list[str], found: set[str]
) -> None:
    assert await asked(banded, query_text=text, tags=tags, min_importance=0) == found


async def test_default_limit_is_five(engine: ReflectionEngineV2, tenant: TestTenant) -> None:
    words = ["lock", "cache", "index", "queue", "shard", "quota", "lease"]
    for word in words:
        result = ReflectionResult(reflection_text=f"orders: the {word} was lost", importance=0.9)
        await engine.store_reflection(result, tenant.slug, "p")
    minor = ReflectionResult(reflection_text="orders: the sigh was lost", importance=0.49)
    await engine.store_reflection(minor, tenant.slug, "p")
    assert len(await engine.query_reflections(tenant.slug, "p", "orders")) == 5
    assert len(await engine.query_reflections(tenant.slug, "p", "orders", k=9)) == 7
    assert len(await engine.query_reflections(tenant.slug, "p", "orders", k=7)) == 7
    best = await engine.query_reflections(tenant.slug, "p", "which lease was lost?", k=1)
    assert "lease" in best[0]["content"]
    assert await engine.query_reflections(tenant.slug, "elsewhere", "orders") == []
