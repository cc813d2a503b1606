"""The pure parts as the environment wants them, and the weight of spec 2's formula over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.main import create_app
from apps.memory_api.playbook.compose import new_sections, open_search, open_store
from apps.memory_api.playbook.schemas import Bullet, Playbook, SearchQuery
from apps.memory_api.playbook.sections import DEFAULT_SECTIONS
from apps.memory_api.runtime import Runtime
from tests.playbook.rows import Book

BULLETS = [
    Bullet(id="a-1", section="s", content="retry the payment after a timeout"),
    Bullet(id="a-2", section="s", content="look up an order before paying it"),
    Bullet(id="a-3", section="s", content="a ticket is closed by its owner"),
]


def test_the_store_lies_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYBOOK_DATA_DIR", str(tmp_path / "books"))
    store = open_store(Settings(_env_file=None))  # type: ignore[call-arg]
    store.save("web", Playbook(bullets=BULLETS))
    assert (tmp_path / "books" / "web.json").exists()
    assert store.load("web").bullets == BULLETS


def test_the_search_weighs_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_ALPHA", "0.2")
    search = open_search(Settings(_env_file=None), StaticEmbedder())  # type: ignore[call-arg]
    for hit in search.search(SearchQuery(query_text="payment"), Playbook(bullets=BULLETS)):
        expected = 0.2 * hit.vector_score + 0.8 * hit.bm25_score
        assert hit.combined_score == pytest.approx(expected)


def test_a_new_playbook_has_the_sections_of_the_file(tmp_path: Path) -> None:
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    shipped = [section.slug for section in new_sections(settings, "appworld")]
    assert shipped == ["shr", "api", "code", "cms", "vc", "misc"]
    assert new_sections(settings, "another") == DEFAULT_SECTIONS
    path = tmp_path / "own.yaml"
    path.write_text("qa:\n  - name: 注意点\n    slug: chui\n", encoding="utf-8")
    own = settings.model_copy(update={"sections_file": path})
    assert [section.slug for section in new_sections(own, "qa")] == ["chui", "oth"]
    assert new_sections(own, "appworld") == DEFAULT_SECTIONS


async def test_a_playbook_of_that_name_begins_with_them(api: httpx2.AsyncClient) -> None:
    book = Book(api, "appworld")
    dry = {"type": "ADD", "section": "Common mistakes", "content": "Do not guess."}
    for apply in (False, True):
        answer = (await book.post("deltas", deltas=[dry], apply=apply)).json()
        assert answer["results"][0]["key"] == "cms-00001"


async def test_a_broken_file_of_sections_keeps_the_service_from_starting(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("qa: word", encoding="utf-8")
    settings = runtime.settings.model_copy(update={"sections_file": path})
    app = create_app(settings, runtime=replace(runtime, settings=settings))
    with pytest.raises(ValueError, match=r"own\.yaml: qa"):
        async with app.router.lifespan_context(app):
            pass


@pytest.fixture
async def weighed(runtime: Runtime, tenant: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """The API of a service that was started with SEARCH_ALPHA .9."""
    settings = runtime.settings.model_copy(update={"search_alpha": 0.9})
    app = create_app(settings, runtime=replace(runtime, settings=settings))
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=transport, base_url="http://hansei", headers=tenant.auth()
        ) as api,
    ):
        yield api


@pytest.mark.parametrize(
    ("asked", "weight"),
    [
        ({"fusion": "minmax"}, 0.9),
        ({"fusion": "minmax", "alpha": 0.5}, 0.5),
        ({"fusion": "anchored"}, 0.4),
        ({}, 0.4),
    ],
)
async def test_the_weight_of_minmax_is_the_operators(
    weighed: httpx2.AsyncClient, asked: dict[str, Any], weight: float
) -> None:
    body = Playbook(bullets=BULLETS).model_dump(mode="json", include={"bullets"})
    for bullet in body["bullets"]:
        del bullet["confidence_score"]
    assert (await weighed.put("/api/v1/playbooks/web", json=body)).is_success
    search = {"query_text": "payment"} | asked
    both = [
        (await weighed.post("/api/v1/playbooks/web/search", json=search)).json(),
        (await weighed.post("/api/v1/search", json=search | {"playbook": "web"})).json(),
    ]
    for answer in both:
        assert len(answer["results"]) == 3
        assert any(hit["vector_score"] != hit["bm25_score"] for hit in answer["results"])
        for hit in answer["results"]:
            expected = weight * hit["vector_score"] + (1 - weight) * hit["bm25_score"]
            assert hit["combined_score"] == pytest.approx(expected, abs=1e-5)
