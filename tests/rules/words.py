"""The words to avoid in public text: documents, prompts, messages, help, descriptions.

`python -m tests.rules.words PATH…` prints what it finds in files and folders.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rules.passages import Passage, passages

FORBIDDEN = {
    r"asides?": "inactive, separate, ignored",
    r"attend(s|ed|ing)?": "execute in the foreground",
    r"away": "unavailable",
    r"beside": "next to, in addition to, compared with",
    r"bring(s|ing)?|brought": "create, send, contain",
    r"forg[eo]t(s|ting|ten)?": "delete, omit",
    r"keep(s|ing)?|kept": "store, retain, leave",
    r"lots?": "random selection, many",
    r"mend(s|ed|ing)?": "fix",
    r"minds?": "model session",
    r"once more": "again",
    r"one's own": "your own, its own",
    r"roll(s|ed|ing)?": "tool list",
    r"said": "stated, recorded, known",
    r"settle(s|d|ment)?|settling": "decide, finish (only budgets are settled)",
    r"st[ao]nds?|stood": "is, is written, is listed",
    r"tells?|told": "report, return, state",
    r"turn(s|ed|ing)?": "become, order, convert",
    r"witness(es|ed)?": "observation",
    r"learnt": "learned",
    r"whoever": "name the actor",
}
"""A regular expression of a word, and what to write instead."""

EXEMPT = re.compile(
    r"\broll(s|ed|ing)? back\b|\bkeep(s|ing)? (\w+ing\b|(\w+ ){1,5}unchanged\b)"
    r"|\b(user|assistant|agent)'s turn\b",
    re.IGNORECASE,
)
"""Phrases with an ordinary technical meaning. Upper-case words (KEEP) are names of deltas."""

BUDGET = re.compile(r"\breserv|\bbudget", re.IGNORECASE)
"""The glossary term "settle": text about reservations may contain it."""

SUBJECT = re.compile(r"(?:^|[.;:!?|(]\s+|[“\"]\s*)(Who)\s+[a-z]+(?![^.]*\?)|(?<![\w-])by who\b")
"""A clause with "who" as the subject of a sentence: name the actor instead."""

BRITISH = re.compile(
    r"\b(?:behaviour\w*|colour\w*|favour\w*|honour\w*|neighbour\w*|licence\w*|judgement\w*"
    r"|(?:un)?(?:token|normal|recogn|serial|random|organ|summar|optim|initial|categor|priorit|sanit"
    r"|synchron|util|general|special|minim|maxim|author|final|capital|custom|standard)is"
    r"(?:e|es|ed|er|ers|ing|ation|ations)|analys(?:e|ed|er|ing)|(?:label|model|cancel|travel)l(?:ed|ing)"
    r"|programme|whilst|centre|catalogue)\b",
    re.IGNORECASE,
)
CANCEL = re.compile(r"^cancell", re.IGNORECASE)
"""`cancelled` is the name of an asyncio error and common in American technical text."""

WORD = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Match:
    """A word to avoid, where it is, and what to write instead."""

    passage: Passage
    word: str
    instead: str

    def __str__(self) -> str:
        where = f"{self.passage.name}:{self.passage.line}"
        return f"{where}: “{self.word}” ({self.instead}): {self.passage.text.strip()[:120]}"


def find_words(passage: Passage) -> Iterator[Match]:
    """All words to avoid in one passage."""
    text = EXEMPT.sub("…", passage.text)
    for found in WORD.finditer(text):
        word = found.group()
        if word.isupper() or (word.lower().startswith("settl") and BUDGET.search(text)):
            continue
        yield Match(passage, word, instead_of(word))
    for found in SUBJECT.finditer(text):
        yield Match(passage, found.group().strip(), "name the actor")
    for found in BRITISH.finditer(text):
        if not CANCEL.match(found.group()):
            yield Match(passage, found.group(), "American spelling")


def instead_of(word: str) -> str:
    return next(
        instead
        for pattern, instead in FORBIDDEN.items()
        if re.fullmatch(pattern, word, re.IGNORECASE)
    )


def check(path: Path) -> list[Match]:
    """All words to avoid in a document, a prompt or a Python file."""
    return [match for passage in passages(path) for match in find_words(passage)]


def main(arguments: list[str]) -> int:
    """Print all matches below the given paths. Returns 1 if there are any."""
    found = 0
    for argument in map(Path, arguments):
        for path in sorted(argument.rglob("*")) if argument.is_dir() else [argument]:
            if path.suffix in {".py", ".md", ".txt"}:
                matches = check(path)
                found += len(matches)
                for match in matches:
                    print(match)  # noqa: T201
    print(f"{found} words to avoid")  # noqa: T201
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
