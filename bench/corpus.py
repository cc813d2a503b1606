"""Texts and queries for measurements: documents of about 30 words from real sentences, real
queries.

They come from `../shared/data`, or from the example traces if this folder does not exist.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
SETS = ("en-lessons-code", "en-lessons-hotpot", "en-xquad", "en-apibench")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = range(5, 26)
"""Allowed lengths of a sentence, in words."""
_PARAGRAPH_WORDS = range(8, 121)


@cache
def sentences() -> list[str]:
    """Distinct real sentences, in a fixed order."""
    found = dict.fromkeys(s.strip() for text in _texts() for s in _SENTENCE.split(text))
    return [s for s in found if len(s.split()) in _WORDS]


@cache
def queries() -> list[str]:
    """Real questions in a fixed random order, or the first words of sentences if there are none."""
    found = [row["text"] for name in SETS for row in _rows(SHARED / "retrieval" / name / "queries")]
    found = found or [" ".join(s.split()[:8]) for s in sentences()]
    random.Random(7).shuffle(found)
    return found


@cache
def _real_texts() -> list[str]:
    texts = [text for text in _texts() if text.strip()]
    for trace in _rows(SHARED / "traces"):
        for event in trace["events"]:
            paragraphs = re.split(r"\n\s*\n", str(event.get("content", "")))
            texts += [p.strip() for p in paragraphs if len(p.split()) in _PARAGRAPH_WORDS]
    texts += [row["text"] for row in _rows(SHARED / "retrieval" / "ja-jsquad" / "corpus")]
    return list(dict.fromkeys(texts))


def real_texts() -> list[str]:
    """Distinct real texts in a fixed order: bullets, lessons, documentation, paragraphs of traces,
    and Japanese articles. About 8,400, of 37 indexed terms on average.
    """
    return list(_real_texts())


def documents(count: int, seed: int) -> list[str]:
    """`count` texts of one to three sentences each."""
    draw = random.Random(seed)
    pool = sentences()
    return [" ".join(draw.sample(pool, draw.choice((1, 2, 2, 3)))) for _ in range(count)]


def _texts() -> Iterator[str]:
    yield from (row["text"] for row in _rows(SHARED / "bullets_ace"))
    for name in SETS:
        yield from (row["text"] for row in _rows(SHARED / "retrieval" / name / "corpus"))
    if not SHARED.is_dir():
        for trace in _rows(ROOT / "examples" / "traces"):
            yield from (str(event.get("content", "")) for event in trace["events"])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    file = path.with_suffix(".jsonl")
    if file.exists():
        yield from map(json.loads, file.read_text(encoding="utf8").splitlines())
