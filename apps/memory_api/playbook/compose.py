"""The pure parts of spec 2 as the environment wants them: for programs that use them without the
service.
"""

from __future__ import annotations

from apps.memory_api.core.settings import Settings
from apps.memory_api.playbook.hybrid import EmbeddingClient, EmbeddingModel, HybridSearch
from apps.memory_api.playbook.store import PlaybookStore


def open_store(settings: Settings) -> PlaybookStore:
    """JSON files under `PLAYBOOK_DATA_DIR`."""
    return PlaybookStore(settings.playbook_data_dir)


def open_search(settings: Settings, embedder: EmbeddingModel) -> HybridSearch:
    """Spec 2's search, weighed by `SEARCH_ALPHA`."""
    return HybridSearch(EmbeddingClient(embedder), settings.search_alpha)
