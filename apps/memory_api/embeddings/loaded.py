"""The embedders of one process: what new tenants begin with, and any other that a tenant's row
names, each opened once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic import SecretStr

from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.port import Embedder, EmbedderFailed
from apps.memory_api.embeddings.registry import open_embedder
from apps.memory_api.embeddings.tables import EmbeddingModel


@dataclass(frozen=True)
class Spec:
    """What opens an embedder; None means the provider's default, or what the settings say."""

    provider: str
    name: str | None = None
    dimensions: int | None = None
    base_url: str | None = None


def spec_of(model: EmbeddingModel) -> Spec:
    return Spec(model.provider, model.name, model.dimensions, model.base_url)


def default_spec(settings: Settings) -> Spec:
    """What a new tenant begins with."""
    return Spec(
        settings.embedding_provider, settings.embedding_model, settings.embedding_dimensions
    )


def open_spec(settings: Settings, spec: Spec) -> Embedder:
    """Open it with the settings' keys. A key goes to no other address than its own. Raises
    ValueError with one line for a person.
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
    own, home = settings.embedding_api_key, settings.embedding_base_url
    if own is not None and home is not None and url == home:
        return own
    if settings.openai_api_key is not None and url == settings.openai_base_url:
        return settings.openai_api_key
    return own if home is None else None


def open_default(settings: Settings) -> Embedder:
    """Raises `Misconfigured`."""
    try:
        return open_spec(settings, default_spec(settings))
    except ValueError as error:
        raise Misconfigured(str(error)) from error


class Embedders:
    """Opens an embedder when a tenant first needs it, and keeps it to the end of the process."""

    def __init__(self, settings: Settings, first: Embedder) -> None:
        self._settings = settings
        self._first = first
        self._opened: dict[Spec, Embedder] = {}

    @property
    def first(self) -> EmbeddingModel:
        """What a new tenant begins with, as its row."""
        spec = default_spec(self._settings)
        return EmbeddingModel(
            label=self._first.model,
            provider=spec.provider,
            name=spec.name,
            dimensions=spec.dimensions,
            base_url=spec.base_url,
        )

    async def open(self, spec: Spec) -> Embedder:
        """Raises ValueError with one line for a person."""
        opened = self._opened.get(spec)
        if opened is None:
            opened = await asyncio.to_thread(open_spec, self._settings, spec)
            opened = self._opened.setdefault(spec, opened)
        return opened

    async def load(self, model: EmbeddingModel) -> Embedder:
        """The embedder whose vectors have this label. Raises EmbedderFailed."""
        if model.label == self._first.model:
            return self._first
        try:
            opened = await self.open(spec_of(model))
        except ValueError as error:
            raise EmbedderFailed(f"{model.label} cannot be used here: {error}") from error
        if opened.model != model.label:
            raise EmbedderFailed(
                f"vectors are of {model.label}, this release makes {opened.model}:"
                " move to it with `hansei reembed`"
            )
        return opened

    async def aclose(self) -> None:
        for opened in (self._first, *self._opened.values()):
            await opened.aclose()
