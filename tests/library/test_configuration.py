"""The pure parts as the environment wants them, and the weight of spec 2's formula over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from memory_api.core.settings import Settings
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.library.hybrid_search import open_hybrid_search
from memory_api.library.playbook_store import open_playbook_store
from memory_api.llm.registry import open_configured_models
from memory_api.main import create_app
from memory_api.playbooks.models import Bullet, Playbook, SearchQuery
from memory_api.playbooks.sections import DEFAULT_SECTIONS, initial_sections
from memory_api.runtime import Runtime
from tests.support.live_service import with_runtime
from tests.support.playbook_api import Book

BULLETS = [
    Bullet(id="a-1", section="s", content="retry the payment after a timeout"),
    Bullet(id="a-2", section="s", content="look up an order before paying it"),
    Bullet(id="a-3", section="s", content="a ticket is closed by its owner"),
]


def test_store_uses_configured_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_DATA_DIR", str(tmp_path / "books"))
    store = open_playbook_store(Settings(_env_file=None))  # type: ignore[call-arg]
    store.save("web", Playbook(bullets=BULLETS))
    assert (tmp_path / "books" / "web.json").exists()
    assert store.load("web").bullets == BULLETS


def test_search_uses_configured_alpha(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_ALPHA", "0.2")
    search = open_hybrid_search(Settings(_env_file=None), StaticEmbedder())  # type: ignore[call-arg]
    for hit in search.search(SearchQuery(query_text="payment"), Playbook(bullets=BULLETS)):
        expected = 0.2 * hit.vector_score + 0.8 * hit.bm25_score
        assert hit.combined_score == pytest.approx(expected)


def test_new_playbook_has_configured_sections(tmp_path: Path) -> None:
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    shipped = [section.slug for section in initial_sections(settings, "appworld")]
    assert shipped == ["shr", "api", "code", "cms", "vc", "misc"]
    assert initial_sections(settings, "another") == DEFAULT_SECTIONS
    path = tmp_path / "own.yaml"
    path.write_text("qa:\n  - name: 注意点\n    slug: chui\n", encoding="utf-8")
    own = settings.model_copy(update={"sections_file": path})
    assert [section.slug for section in initial_sections(own, "qa")] == ["chui", "oth"]
    assert initial_sections(own, "appworld") == DEFAULT_SECTIONS


async def test_created_playbook_has_configured_sections(api: httpx2.AsyncClient) -> None:
    book = Book(api, "appworld")
    dry = {"type": "ADD", "section": "Common mistakes", "content": "Do not guess."}
    for dry_run in (True, False):
        answer = (await book.post("deltas", deltas=[dry], dry_run=dry_run)).json()
        assert answer["results"][0]["key"] == "cms-00001"


async def test_invalid_sections_file_prevents_start(runtime: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("qa: word", encoding="utf-8")
    settings = runtime.settings.model_copy(update={"sections_file": path})
    app = create_app(settings, runtime=replace(runtime, settings=settings))
    with pytest.raises(ValueError, match=r"own\.yaml: qa"):
        async with app.router.lifespan_context(app):
            pass


@pytest.fixture
async def weighed(app: FastAPI, runtime: Runtime, tenant: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """The API of a service that was started with SEARCH_ALPHA .9."""
    settings = runtime.settings.model_copy(update={"search_alpha": 0.9})
    changed = with_runtime(app, replace(runtime, settings=settings))
    transport = httpx2.ASGITransport(app=changed, raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://hansei", headers=tenant.auth()
    ) as api:
        yield api


@pytest.mark.parametrize(
    ("asked", "weight"),
    [
        ({"fusion": "minmax"}, 0.9),
        ({"fusion": "minmax", "alpha": 0.5}, 0.5),
        ({"fusion": "anchored"}, 0.3),
        ({}, 0.3),
    ],
)
async def test_minmax_uses_configured_alpha(
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


def test_settings_of_the_session_hooks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4's own names. They win over the provider's, and Hansei's names win over them."""
    for name in ("OPENAI_API_KEY", "HANSEI_LLM_MODEL", "LLM_MODEL", "RAE_LLM_MODEL_DEFAULT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the provider")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://provider.invalid")
    monkeypatch.setenv("AGENTIC_CONTEXT_API_KEY", "of the hooks")
    monkeypatch.setenv("AGENTIC_CONTEXT_BASE_URL", "http://hooks.invalid")
    monkeypatch.setenv("AGENTIC_CONTEXT_MODEL", "the-model")
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    assert settings.anthropic_api_key is not None
    assert settings.anthropic_api_key.get_secret_value() == "of the hooks"
    assert settings.anthropic_base_url == "http://hooks.invalid"
    (model,) = open_configured_models(settings)
    assert (model.provider, model.model) == ("anthropic", "the-model")
    monkeypatch.setenv("HANSEI_LLM_MODEL", "another")
    (model,) = open_configured_models(Settings(_env_file=None))  # type: ignore[call-arg]
    assert model.model == "another"
