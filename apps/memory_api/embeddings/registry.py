"""Opens embedders, once per model and process. Imports a provider's module only when it is used."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from pydantic import SecretStr

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.embeddings.port import Embedder, EmbedderUnavailable
from memory_api.embeddings.tables import EmbeddingModelRow

MAX_DIMENSIONS: Final = 1024
"""The longest vector that fits into an index entry."""
_PACKAGE: Final = "memory_api.embeddings.providers"
PROVIDERS: Final = ("static", "openai", "fastembed")


def open_embedder(
    provider: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    dimensions: int | None = None,
) -> Embedder:
    """Open an embedder. None means the provider's default.

    Only openai uses `api_key` and `base_url`. Raises ValueError with a one-line message for an
    unknown provider or model, a missing key or extra, or a length that is not possible.
    """
    if provider not in PROVIDERS:
        raise ValueError(
            f"Unknown embedding provider {provider!r}. Use one of: {', '.join(PROVIDERS)}."
        )
    if dimensions is not None and not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ValueError(
            f"Embedding dimensions must be between 1 and {MAX_DIMENSIONS}, not {dimensions}."
        )
    module = import_module(f"{_PACKAGE}.{provider}")
    if provider == "openai":
        opened = module.open_openai(
            model=model, api_key=api_key, base_url=base_url, dimensions=dimensions
        )
    elif provider == "fastembed":
        opened = module.open_fastembed(model=model, dimensions=dimensions)
    else:
        opened = module.open_static(model=model, dimensions=dimensions)
    embedder = cast(Embedder, opened)
    if embedder.dimensions > MAX_DIMENSIONS:
        raise ValueError(
            f"Vectors of {embedder.model} have {embedder.dimensions} dimensions, but at most"
            f" {MAX_DIMENSIONS} can be indexed. Use another model or fewer dimensions."
        )
    return embedder


@dataclass(frozen=True)
class EmbedderSpec:
    """The parameters that open an embedder. None means the provider's default or the settings'
    value.
    """

    provider: str
    name: str | None = None
    dimensions: int | None = None
    base_url: str | None = None


def spec_of_model(model: EmbeddingModelRow) -> EmbedderSpec:
    return EmbedderSpec(model.provider, model.name, model.dimensions, model.base_url)


def default_spec(settings: Settings) -> EmbedderSpec:
    """The embedder of new tenants."""
    return EmbedderSpec(
        settings.embedding_provider, settings.embedding_model, settings.embedding_dimensions
    )


def open_embedder_for(settings: Settings, spec: EmbedderSpec) -> Embedder:
    """Open an embedder with the settings' API keys. A key is sent only to the base URL it belongs
    to. Raises ValueError with a one-line message.
    """
    url = spec.base_url or settings.embedding_base_url or settings.openai_base_url
    key = _key_for(settings, url)
    return open_embedder(
        spec.provider,
        model=spec.name,
        api_key=key.get_secret_value() if key else None,
        base_url=url,
        dimensions=spec.dimensions,
    )


def _key_for(settings: Settings, url: str | None) -> SecretStr | None:
    embedding_key, embedding_url = settings.embedding_api_key, settings.embedding_base_url
    if embedding_key is not None and embedding_url is not None and url == embedding_url:
        return embedding_key
    if settings.openai_api_key is not None and url == settings.openai_base_url:
        return settings.openai_api_key
    return embedding_key if embedding_url is None else None


def open_default_embedder(settings: Settings) -> Embedder:
    """Open the embedder of new tenants. Raises `ConfigurationError`."""
    try:
        return open_embedder_for(settings, default_spec(settings))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


class EmbedderCache:
    """The open embedders of a process. An embedder opens on first use and stays open until the
    process ends.
    """

    def __init__(self, settings: Settings, default: Embedder) -> None:
        self._settings = settings
        self._default = default
        self._opened: dict[EmbedderSpec, Embedder] = {}

    def new_default_row(self) -> EmbeddingModelRow:
        """A row of `embedding_models` for the default embedder, without tenant and state."""
        spec = default_spec(self._settings)
        return EmbeddingModelRow(
            label=self._default.model,
            provider=spec.provider,
            name=spec.name,
            dimensions=spec.dimensions,
            base_url=spec.base_url,
        )

    async def open(self, spec: EmbedderSpec) -> Embedder:
        """Raises ValueError with a one-line message."""
        opened = self._opened.get(spec)
        if opened is None:
            opened = await asyncio.to_thread(open_embedder_for, self._settings, spec)
            opened = self._opened.setdefault(spec, opened)
        return opened

    async def load(self, model: EmbeddingModelRow) -> Embedder:
        """Return the embedder whose vectors have the model's label. Raises EmbedderUnavailable."""
        if model.label == self._default.model:
            return self._default
        try:
            embedder = await self.open(spec_of_model(model))
        except ValueError as error:
            raise EmbedderUnavailable(f"This process cannot load {model.label}: {error}") from error
        if embedder.model != model.label:
            raise EmbedderUnavailable(
                f"The stored vectors are from {model.label}, but this release makes vectors of"
                f" {embedder.model}. Run `hansei reembed`."
            )
        return embedder

    async def aclose(self) -> None:
        for embedder in (self._default, *self._opened.values()):
            await embedder.aclose()
