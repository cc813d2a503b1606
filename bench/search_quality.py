"""Search quality on sets with known answers: each leg and fusion as ranked by SQL, and BM25 in
Python for comparison.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from bench.fill import PROJECT, add_scope, add_tenants, prepared, settle, tenant_named
from bench.report import Report
from bench.retrieval_quality import (
    DEFAULT,
    RetrievalSet,
    Scores,
    bm25s_default,
    load,
    python_bm25,
    quality,
)
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.memories.search.query import SEARCH_CALL, SearchOptions, build_call
from memory_api.memories.search.search import embed_query

HOWS: dict[str, SearchOptions] = {
    "lexical only": {"alpha": 0.0},
    "dense only (static)": {"alpha": 1.0},
    "anchored α .3 (default)": {},
    "minmax α .5": {"fusion": "minmax"},
    "rrf": {"fusion": "rrf"},
}


def sets(folder: Path = DEFAULT) -> list[RetrievalSet]:
    """The retrieval sets. Empty if the shared data does not exist."""
    if not folder.is_dir():
        return []
    return [load(path) for path in sorted(folder.iterdir()) if (path / "qrels.tsv").exists()]


async def add_quality(
    admin: asyncpg.Connection[Any], app: asyncpg.Connection[Any], report: Report
) -> None:
    """Add the rows of the table `quality`: recall@10 / nDCG@10, one column per set."""
    known = sets()
    tenant = tenant_named("quality")
    await add_tenants(admin, [tenant])
    firsts: list[int] = []
    for number, data in enumerate(known, start=1):
        items = await prepared(list(data.documents.values()))
        firsts.append(await add_scope(admin, tenant, number, data.name, items))
    await settle(admin)
    bm25s = [quality(data, bm25s_default(data)) for data in known]
    ours = [quality(data, python_bm25(data)) for data in known]
    rows = {"Python BM25: bm25s, default": bm25s, "Python BM25, our tokenizer": ours}
    embedder = StaticEmbedder()
    for name, how in HOWS.items():
        cells: list[tuple[float, float]] = []
        for data, first in zip(known, firsts, strict=True):
            scores: Scores = np.zeros((len(data.queries), len(data.documents)))
            address = (PROJECT, "playbook", data.name)
            for row, text in zip(scores, data.queries.values(), strict=True):
                called = build_call(await embed_query(embedder, text), [address], how)
                for place, hit in enumerate(await app.fetch(SEARCH_CALL, tenant, *called)):
                    row[hit["seq"] - first] = 10 - place
            cells.append(quality(data, scores))
        rows[name] = cells
    for name, cells in rows.items():
        report.row("quality", name, *("{:.3f} / {:.3f}".format(*cell) for cell in cells))
