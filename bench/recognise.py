"""Text from the playbook that returns in a trace: found again, and honest new lessons let through.

    python -m bench recognise [--seed N]

Served: 100 bullets, half of them strategies of the rules engine over real traces, half bullets
that ACE learnt on AppWorld. Honest new lessons: 200 others of both kinds. Those that are no news,
because the project's own measure of wording calls them duplicates of a served one (0.9 and more),
are drawn again, and how many is said.

Paraphrases of each served text: 10 to 40 % of its words left out, the rest in another order of
words or of sentences. They count as found when they are found to be their own text.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from apps.memory_api.playbook.recognise import LEAST_SCORE, recognise, resemblance
from apps.memory_api.playbook.similar import wording_similarity
from bench.reflection_rules import DEFAULT, load
from bench.tables import Report

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
    """Strategies of the rules engine, and ACE's bullets, each text once."""
    learnt = (case.reflect() for case in load(DEFAULT))
    strategies = dict.fromkeys(r.strategy_text for r in learnt if r and r.strategy_text)
    lines = (folder / "bullets_ace.jsonl").read_text(encoding="utf-8").splitlines()
    return list(strategies), list(dict.fromkeys(json.loads(line)["text"] for line in lines))


def paraphrase(text: str, share: float, order: str, rng: random.Random) -> str:
    """The text with a share of its words left out and the rest in another order."""
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


def drawn(
    strategies: Sequence[str], bullets: Sequence[str], rng: random.Random
) -> tuple[dict[str, str], list[str], int]:
    """Served texts by key, honest new ones, and how many were left out as no news."""
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


def found(texts: Sequence[str], served: dict[str, str]) -> list[float]:
    """The best score of each text among all that was served, as `recognise` sees it."""
    return [max(resemblance(text, other) for other in served.values()) for text in texts]


def rows(scores: Sequence[float]) -> Iterator[str]:
    for threshold in THRESHOLDS:
        yield f"{100 * sum(s >= threshold for s in scores) / len(scores):.1f}"


def main() -> None:
    """Prints the tables and writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    served, new, dropped = drawn(*texts(DEFAULT.parent), rng)
    report = Report("recognise", f"Seed {options.seed}. {len(served)} served texts, {len(new)} "
                    f"honest new lessons ({dropped} of the pool were no news and left out). "
                    f"Per cent found, by threshold; in use: {LEAST_SCORE}.")  # fmt: skip
    columns = [f"≥ {t}" for t in THRESHOLDS]
    report.table(
        "new", "Honest new lessons taken for served text (false positives)", "of", *columns
    )
    report.table("recall", "Paraphrases recognised", "left out", "order", *columns)
    report.table("wrong", "What is taken for served at the threshold in use", "new", "served")
    report.row("new", len(new), *rows(found(new, served)))
    for share in SHARES:
        for order in ORDERS:
            returned = [paraphrase(text, share, order, rng) for text in served.values()]
            own = [resemblance(*pair) for pair in zip(returned, served.values(), strict=True)]
            report.row("recall", f"{share:.0%}", order, *rows(own))
    for text in new:
        match = recognise(text, served)
        if match is not None:
            report.row("wrong", text, served[match.key])
    report.finish()


if __name__ == "__main__":
    main()
