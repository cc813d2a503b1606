"""Which configuration opens which embedder, and the one line that says why not."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from memory_api.embeddings.providers.openai import OpenAIEmbedder
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.embeddings.registry import MAX_DIMENSIONS, PROVIDERS, open_embedder

needs_no_fastembed = pytest.mark.skipif(
    importlib.util.find_spec("fastembed") is not None, reason="the extra fastembed is installed"
)


def test_static_ignores_options_of_other_providers() -> None:
    embedder = open_embedder(
        "static", api_key="sk-x", base_url="http://127.0.0.1:1", dimensions=256
    )
    assert isinstance(embedder, StaticEmbedder)
    assert (embedder.model, embedder.dimensions) == ("static-minilm-256/1", 256)


def test_static_warns_about_model_name(logs: list[Any]) -> None:
    open_embedder("static", model="text-embedding-3-small")
    assert [entry["model"] for entry in logs] == ["text-embedding-3-small"]


def test_openai_is_opened_from_settings() -> None:
    embedder = open_embedder("openai", model="text-embedding-3-large", api_key="k", dimensions=512)
    assert isinstance(embedder, OpenAIEmbedder)
    assert (embedder.model, embedder.dimensions) == ("openai/text-embedding-3-large@512", 512)


def test_unknown_provider_names_the_choices() -> None:
    with pytest.raises(ValueError, match="'sparrow'.*" + ", ".join(PROVIDERS)):
        open_embedder("sparrow")


@pytest.mark.parametrize("dimensions", [0, -1, MAX_DIMENSIONS + 1])
def test_unindexable_dimensions_are_refused(dimensions: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 1024"):
        open_embedder("openai", api_key="k", dimensions=dimensions)


def test_static_has_fixed_dimensions() -> None:
    with pytest.raises(ValueError, match="256 dimensions"):
        open_embedder("static", dimensions=128)


@needs_no_fastembed
def test_missing_extra_is_reported_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"pip install 'hansei-server\[fastembed\]'") as caught:
        open_embedder("fastembed")
    assert "\n" not in str(caught.value)
