"""The pure parts of spec 2 as the environment wants them: for programs that use them without the
service, and what a new playbook begins with.
"""

from __future__ import annotations

from apps.memory_api.core.settings import Settings
from apps.memory_api.core.shipped import shipped
from apps.memory_api.playbook.hybrid import EmbeddingClient, EmbeddingModel, HybridSearch
from apps.memory_api.playbook.sections import (
    DEFAULT_SECTIONS,
    SectionDefinition,
    SectionLoader,
    with_fallback,
)
from apps.memory_api.playbook.store import PlaybookStore


def open_store(settings: Settings) -> PlaybookStore:
    """JSON files under `PLAYBOOK_DATA_DIR`."""
    return PlaybookStore(settings.playbook_data_dir)


def open_search(settings: Settings, embedder: EmbeddingModel) -> HybridSearch:
    """Spec 2's search, weighed by `SEARCH_ALPHA`."""
    return HybridSearch(EmbeddingClient(embedder), settings.search_alpha)


def new_sections(settings: Settings, name: str) -> tuple[SectionDefinition, ...]:
    """What a new playbook of this name begins with: those of `HANSEI_SECTIONS_FILE`, else spec 4's
    five. Raises ValueError for a file that is not what it should be.
    """
    found = section_loader(settings).load(name)
    return with_fallback(found) if found else DEFAULT_SECTIONS


def section_loader(settings: Settings) -> SectionLoader:
    return SectionLoader(settings.sections_file or shipped("config") / "sections.yaml")
