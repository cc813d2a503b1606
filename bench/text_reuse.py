"""Detection of text copied from served bullets: recall on paraphrases, and false positives.

    python -m bench text_reuse [--seed N]

Served: 100 bullets; half are strategies of the rules engine from real traces, half are bullets that
ACE learned on AppWorld. New lessons: 200 other texts of both kinds, without those that have a
wording similarity of at least 0.9 to a served text. The report has the number of excluded texts.

Each served text is paraphrased by removing 10 to 40 % of its words and shuffling words or
sentences. A paraphrase counts as detected if the score with its own source is high enough.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.report import Report
from bench.rules import DEFAULT, load
from memory_api.text.reuse import (
    MIN_REUSE_SCORE,
    distinctive_words,
    find_reused_text,
    reuse_score,
)
from memory_api.text.similarity import wording_similarity

SERVED, NEW = 100, 200
SHARES = (0.1, 0.2, 0.3, 0.4)
ORDERS = ("kept", "sentences", "words")
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
_KANA = re.compile(r"[\u3041-\u3096]")
_PIECE = re.compile(
    r"[\u4e00-\u9fff\u3005]+[\u3041-\u3096]*|[\u30a1-\u30fc]+[\u3041-\u3096]*|[\u3041-\u3096]+"
    r"|[^\s\u3041-\u3096\u30a1-\u30fc\u4e00-\u9fff\u3005]+"
)


def texts(folder: Path) -> tuple[list[str], list[str]]:
    """The distinct strategies of the rules engine, and the distinct ACE bullets."""
    learnt = (case.reflect() for case in load(DEFAULT))
    strategies = dict.fromkeys(r.strategy_text for r in learnt if r and r.strategy_text)
    lines = (folder / "bullets_ace.jsonl").read_text(encoding="utf-8").splitlines()
    return list(strategies), list(dict.fromkeys(json.loads(line)["text"] for line in lines))


def paraphrase(text: str, share: float, order: str, rng: random.Random) -> str:
    """Remove a share of the words and change the order of the others."""
    words = _PIECE.findall(text) if _KANA.search(text) else text.split()
    kept = [word for word in words if rng.random() >= share] or words[:1]
    if order == "words":
        rng.shuffle(kept)
    joined = " ".join(kept)
    if order == "sentences":
        parts = re.split(r"(?<=[.;:,。、])\s*", joined)
        rng.shuffle(parts)
        joined = " ".join(parts)
    return re.sub(r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f])", "", joined)


def draw_texts(
    strategies: Sequence[str], bullets: Sequence[str], rng: random.Random
) -> tuple[dict[str, str], list[str], int]:
    """Return the served texts by key, the new texts, and the number of excluded duplicates."""
    groups = [rng.sample(list(group), len(group)) for group in (strategies, bullets)]
    served = {
        f"{slug}-{n:05d}": text
        for slug, group in zip(("str", "ace"), groups, strict=True)
        for n, text in enumerate(group[: SERVED // 2], 1)
    }
    rest = [text for group in groups for text in group[SERVED // 2 :]]
    rng.shuffle(rest)
    new = [t for t in rest if max(wording_similarity(t, s) for s in served.values()) < 0.9]
    return served, new[:NEW], len(rest) - len(new)


def score_copy(text: str, served: str) -> float:
    return reuse_score(distinctive_words(text), distinctive_words(served))


def best_scores(texts: Sequence[str], served: dict[str, str]) -> list[float]:
    """The best score of each text among all served texts."""
    return [max(score_copy(text, other) for other in served.values()) for text in texts]


def rows(scores: Sequence[float]) -> Iterator[str]:
    for threshold in THRESHOLDS:
        yield f"{100 * sum(s >= threshold for s in scores) / len(scores):.1f}"


def main() -> None:
    """Print and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    served, new, dropped = draw_texts(*texts(DEFAULT.parent), rng)
    report = Report("text_reuse", f"Seed {options.seed}. {len(served)} served texts, {len(new)} "
                    f"new lessons ({dropped} duplicates of served texts were excluded). "
                    f"Percent detected, by threshold. In use: {MIN_REUSE_SCORE}.")  # fmt: skip
    columns = [f"≥ {t}" for t in THRESHOLDS]
    report.table("new", "False positives: new lessons detected as copies", "of", *columns)
    report.table("recall", "Recall: paraphrases detected", "words removed", "order", *columns)
    report.table("wrong", "False positives at the threshold in use", "new lesson", "served text")
    report.row("new", len(new), *rows(best_scores(new, served)))
    for share in SHARES:
        for order in ORDERS:
            returned = [paraphrase(text, share, order, rng) for text in served.values()]
            own = [score_copy(*pair) for pair in zip(returned, served.values(), strict=True)]
            report.row("recall", f"{share:.0%}", order, *rows(own))
    for text in new:
        match = find_reused_text(text, served)
        if match is not None:
            report.row("wrong", text, served[match.key])
    report.finish()


if __name__ == "__main__":
    main()
