"""Detection of duplicate lessons: precision and recall by threshold, for cosine, wording and both.

    python -m bench duplicates

Uses two labeled sets: pairs of real ACE bullets labeled by hand
(tests/curation/ace_pairs.jsonl), and Japanese sentence pairs with a similarity of 0 to 5
(JSTS; 4 or more is a duplicate). Measures the default embedder and `wording_similarity`, with and
without `find_difference`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from bench.report import Report
from memory_api.curation.lesson_duplicates import (
    MIN_COSINE,
    MIN_WORDING_SIMILARITY,
    is_duplicate,
    max_wording_similarity,
)
from memory_api.embeddings.port import Embedder
from memory_api.embeddings.registry import open_embedder
from memory_api.text.differences import find_difference
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

    a: str
    b: str
    same: bool
    cosine: float
    wording: float
    apart: str | None


async def measure(embedder: Embedder, judged: Sequence[tuple[str, str, bool]]) -> list[Pair]:
    texts = list(dict.fromkeys(text for a, b, _ in judged for text in (a, b)))
    vectors = dict(zip(texts, await embedder.embed_documents(texts), strict=True))
    return [
        Pair(
            a,
            b,
            says,
            float(vectors[a] @ vectors[b]),
            max_wording_similarity(a, b),
            find_difference(a, b),
        )
        for a, b, says in judged
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


def curve(report: Report, name: str, pairs: Sequence[Pair]) -> None:
    total = sum(pair.same for pair in pairs)
    title = f"{name}: {len(pairs)} pairs, {total} the same. precision / recall (right + wrong)"
    report.table(
        name,
        title,
        "threshold",
        "cosine",
        "wording",
        "cosine, unless apart",
        "wording, unless apart",
        f"wording, cosine ≥ {MIN_COSINE}, unless apart",
    )
    for t in THRESHOLDS:
        rules: list[Callable[[Pair], bool]] = [
            lambda p, t=t: p.cosine >= t,
            lambda p, t=t: p.wording >= t,
            lambda p, t=t: p.cosine >= t and not p.apart,
            lambda p, t=t: p.wording >= t and not p.apart,
            lambda p, t=t: p.wording >= t and p.cosine >= MIN_COSINE and not p.apart,
        ]
        report.row(name, t, *(figures(pairs, rule, total) for rule in rules))


def decision(report: Report, name: str, pairs: Sequence[Pair]) -> None:
    total = sum(pair.same for pair in pairs)

    def says(pair: Pair) -> bool:
        return is_duplicate(pair.a, pair.b, pair.cosine)

    kept = Counter(
        pair.apart for pair in pairs if pair.apart and pair.wording >= MIN_WORDING_SIMILARITY
    )
    rightly = Counter(
        pair.apart
        for pair in pairs
        if pair.apart and pair.wording >= MIN_WORDING_SIMILARITY and not pair.same
    )
    parts = ", ".join(f"{kind} {rightly[kind]}/{n}" for kind, n in kept.most_common())
    report.row("decision", name, figures(pairs, says, total), parts or "–")


def groups(texts: dict[str, str], joined: Iterable[tuple[str, str]]) -> int:
    """The number of groups after all joined pairs are merged."""
    root = {key: key for key in texts}

    def find(key: str) -> str:
        while root[key] != key:
            key = root[key]
        return key

    for a, b in joined:
        root[find(a)] = find(b)
    return sum(find(key) == key for key in root)


async def survivors(report: Report, embedder: Embedder, texts: dict[str, str]) -> None:
    keys = list(texts)
    vectors = np.stack(list(await embedder.embed_documents([texts[key] for key in keys])))
    cosines = vectors @ vectors.T
    place = {key: n for n, key in enumerate(keys)}
    by_hand = [(str(m["a"]), str(m["b"])) for m in read(MARKED) if m["same"]]
    found = [
        (a, b)
        for a, b in combinations(keys, 2)
        if is_duplicate(texts[a], texts[b], float(cosines[place[a], place[b]]))
    ]
    cosine_only = [(a, b) for a, b in combinations(keys, 2) if cosines[place[a], place[b]] >= 0.9]
    wording_only = [
        (a, b)
        for a, b in combinations(keys, 2)
        if wording_similarity(texts[a], texts[b]) >= MIN_WORDING_SIMILARITY
    ]
    rows = {
        "pairs labeled as duplicates by hand": by_hand,
        "pairs the curator merges": found,
        f"wording ≥ {MIN_WORDING_SIMILARITY} alone": wording_only,
        "cosine ≥ 0.9 alone (as ACE's own tool, with this embedder)": cosine_only,
    }
    for name, pairs in rows.items():
        report.row("survivors", name, len(pairs), groups(texts, pairs))


async def run() -> None:
    report = Report("duplicates", (__doc__ or "").strip())
    embedder = open_embedder("static")
    texts = ace_texts()
    sets = {"ACE bullets": ace_pairs(texts), "JSTS (Japanese)": jsts_pairs()}
    measured = {name: await measure(embedder, judged) for name, judged in sets.items()}
    for name, pairs in measured.items():
        curve(report, name, pairs)
    report.table(
        "decision",
        f"The curator's rule: wording ≥ {MIN_WORDING_SIMILARITY}, cosine ≥ {MIN_COSINE}"
        ", no difference",
        "set",
        "precision / recall (correct + wrong)",
        f"pairs with a difference at wording ≥ {MIN_WORDING_SIMILARITY}, correct / all",
    )
    for name, pairs in measured.items():
        decision(report, name, pairs)
    report.table("survivors", f"of {len(texts)} ACE bullets", "joined by", "pairs", "left")
    await survivors(report, embedder, texts)
    report.finish()
    await embedder.aclose()


if __name__ == "__main__":
    asyncio.run(run())
