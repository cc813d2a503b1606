"""Which embedder a configuration means. A provider's module is imported only when it is chosen."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from apps.memory_api.embeddings.port import Embedder

MAX_DIMENSIONS: Final = 1024
"""A vector is kept inside its index entry, which holds no longer one."""
_PACKAGE: Final = "apps.memory_api.embeddings"
PROVIDERS: Final = ("static", "openai", "fastembed")


def open_embedder(
    provider: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    dimensions: int | None = None,
) -> Embedder:
    """The embedder of this name; None means the provider's own default.

    `api_key` and `base_url` are openai's, the others ignore them. Raises ValueError with one line
    for a person: an unknown provider, a missing key, extra or model, an impossible length.
    """
    if provider not in PROVIDERS:
        raise ValueError(
            f"unknown embedding provider {provider!r}; choose one of {', '.join(PROVIDERS)}"
        )
    if dimensions is not None and not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ValueError(f"embedding dimensions are 1 to {MAX_DIMENSIONS}, not {dimensions}")
    module = import_module(f"{_PACKAGE}.{provider}")
    if provider == "openai":
        opened = module.open_openai(
            model=model, api_key=api_key, base_url=base_url, dimensions=dimensions
        )
    elif provider == "fastembed":
        opened = module.open_fastembed(model=model, dimensions=dimensions)
    else:
        opened = module.open_static(model=model, dimensions=dimensions)
    return _checked(cast(Embedder, opened))


def _checked(embedder: Embedder) -> Embedder:
    if embedder.dimensions > MAX_DIMENSIONS:
        raise ValueError(
            f"vectors of {embedder.model} have {embedder.dimensions} dimensions;"
            f" at most {MAX_DIMENSIONS} can be indexed, choose a shorter model or length"
        )
    return embedder
