"""When do two lessons say the same? Precision and recall by threshold, of cosine, wording and both.

    python -m bench duplicates

Two sets that people judged: pairs of real ACE bullets marked by hand
(tests/curator/fixtures/ace_pairs.jsonl), and Japanese sentence pairs with a similarity of 0 to 5
(JSTS; 4 and more counts as the same). The shipped embedder, the shipped measure of wording, with
and without `unlike`, which reads what tells two near texts apart.
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

from apps.memory_api.curator.duplicates import COSINE, WORDING, likeness, same
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.embeddings.registry import open_embedder
from apps.memory_api.playbook.similar import near_duplicates
from apps.memory_api.playbook.unlike import unlike
from bench.tables import Report

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
MARKED = ROOT / "tests" / "curator" / "fixtures" / "ace_pairs.jsonl"
SAME_FROM = 4.0
"""JSTS: "nearly the same meaning"."""
THRESHOLDS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)


@dataclass(frozen=True)
class Pair:
    """Two texts, what a person said of them, and what is measured."""

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
        Pair(a, b, says, float(vectors[a] @ vectors[b]), likeness(a, b), unlike(a, b))
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
        f"wording, cosine ≥ {COSINE}, unless apart",
    )
    for t in THRESHOLDS:
        rules: list[Callable[[Pair], bool]] = [
            lambda p, t=t: p.cosine >= t,
            lambda p, t=t: p.wording >= t,
            lambda p, t=t: p.cosine >= t and not p.apart,
            lambda p, t=t: p.wording >= t and not p.apart,
            lambda p, t=t: p.wording >= t and p.cosine >= COSINE and not p.apart,
        ]
        report.row(name, t, *(figures(pairs, rule, total) for rule in rules))


def decision(report: Report, name: str, pairs: Sequence[Pair]) -> None:
    total = sum(pair.same for pair in pairs)

    def says(pair: Pair) -> bool:
        return same(pair.a, pair.b, pair.cosine)

    kept = Counter(pair.apart for pair in pairs if pair.apart and pair.wording >= WORDING)
    rightly = Counter(
        pair.apart for pair in pairs if pair.apart and pair.wording >= WORDING and not pair.same
    )
    parts = ", ".join(f"{kind} {rightly[kind]}/{n}" for kind, n in kept.most_common())
    report.row("decision", name, figures(pairs, says, total), parts or "–")


def groups(texts: dict[str, str], joined: Iterable[tuple[str, str]]) -> int:
    """How many are left when all that are joined become one."""
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
        (p.first, p.second)
        for p in near_duplicates(texts, 0.6)
        if same(texts[p.first], texts[p.second], float(cosines[place[p.first], place[p.second]]))
    ]
    cosine_only = [(a, b) for a, b in combinations(keys, 2) if cosines[place[a], place[b]] >= 0.9]
    wording_only = [(p.first, p.second) for p in near_duplicates(texts, WORDING)]
    rows = {
        "pairs marked the same by hand": by_hand,
        "what the curator joins": found,
        f"wording ≥ {WORDING} alone": wording_only,
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
        f"the rule: wording ≥ {WORDING}, cosine ≥ {COSINE}, not apart",
        "set",
        "precision / recall (right + wrong)",
        f"kept apart at wording ≥ {WORDING}, rightly / all",
    )
    for name, pairs in measured.items():
        decision(report, name, pairs)
    report.table("survivors", f"of {len(texts)} ACE bullets", "joined by", "pairs", "left")
    await survivors(report, embedder, texts)
    report.finish()
    await embedder.aclose()


if __name__ == "__main__":
    asyncio.run(run())
