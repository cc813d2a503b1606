"""Duplicate lessons: precision and recall of the fingerprint, of wording and of cosine.

    python -m bench duplicates

Uses two labeled sets: pairs of real ACE bullets labeled by hand
(tests/curation/ace_pairs.jsonl), and Japanese sentence pairs with a similarity of 0 to 5
(JSTS; 4 or more is a duplicate). Measures the default embedder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report import Report
from memory_api.embeddings.port import Embedder
from memory_api.embeddings.registry import open_embedder
from memory_api.memories.index.drafts import fingerprint
from memory_api.text.similarity import wording_similarity

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
MARKED = ROOT / "tests" / "curation" / "ace_pairs.jsonl"
SAME_FROM = 4.0
"""JSTS: "nearly the same meaning"."""
THRESHOLDS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)


@dataclass(frozen=True)
class Pair:
    """Two texts with their label and the measured values."""

    same: bool
    cosine: float
    wording: float
    has_same_words: bool


async def measure(embedder: Embedder, judged: Sequence[tuple[str, str, bool]]) -> list[Pair]:
    texts = list(dict.fromkeys(text for a, b, _ in judged for text in (a, b)))
    vectors = dict(zip(texts, await embedder.embed_documents(texts), strict=True))
    return [
        Pair(
            same,
            float(vectors[a] @ vectors[b]),
            wording_similarity(a, b),
            fingerprint(a) == fingerprint(b),
        )
        for a, b, same in judged
    ]


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ace_texts() -> dict[str, str]:
    rows = read(DATA / "bullets_ace.jsonl")
    return {str(row["id"]).rsplit("/", 1)[1]: str(row["text"]) for row in rows}


def ace_pairs(texts: dict[str, str]) -> list[tuple[str, str, bool]]:
    return [(texts[str(m["a"])], texts[str(m["b"])], bool(m["same"])) for m in read(MARKED)]


def jsts_pairs() -> list[tuple[str, str, bool]]:
    return [
        (str(row["a"]), str(row["b"]), float(str(row["similarity"])) >= SAME_FROM)
        for row in read(DATA / "pairs_ja_jsts.jsonl")
    ]


def figures(pairs: Iterable[Pair], says: Callable[[Pair], bool], total: int) -> str:
    """`precision / recall (right + wrong)`."""
    said = [pair for pair in pairs if says(pair)]
    right = sum(pair.same for pair in said)
    wrong = len(said) - right
    precision = f"{right / len(said):.2f}" if said else "–"
    return f"{precision} / {right / total:.2f} ({right} + {wrong})"


def add_table(report: Report, name: str, pairs: Sequence[Pair]) -> None:
    total = sum(pair.same for pair in pairs)
    title = f"{name}: {len(pairs)} pairs, {total} the same. precision / recall (right + wrong)"
    report.table(name, title, "duplicates have", "cosine", "wording")
    report.row(name, "the same words", "–", figures(pairs, lambda p: p.has_same_words, total))
    for t in THRESHOLDS:
        by_cosine = figures(pairs, lambda p, t=t: p.cosine >= t, total)
        by_wording = figures(pairs, lambda p, t=t: p.wording >= t, total)
        report.row(name, f"≥ {t}", by_cosine, by_wording)


async def run() -> None:
    report = Report("duplicates", (__doc__ or "").strip())
    embedder = open_embedder("static")
    texts = ace_texts()
    for name, judged in {"ACE bullets": ace_pairs(texts), "JSTS": jsts_pairs()}.items():
        add_table(report, name, await measure(embedder, judged))
    report.table("left", "Bullets left when those with the same words are merged", "of", "left")
    report.row("left", len(texts), len({fingerprint(text) for text in texts.values()}))
    report.finish()
    await embedder.aclose()


if __name__ == "__main__":
    asyncio.run(run())
