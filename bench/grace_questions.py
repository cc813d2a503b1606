"""Sets of 40 questions about a fictional company, whose documents no model can know.

`grace_sets/SET/COLLECTION/*.md` are the documents and `questions.jsonl` the questions: 20 need
passages of different documents, 10 need one, 10 have no answer. For half of each, a person knows
`facts` that the question does not say. They were written for this measurement: `ferry` was answered
in the first one, and its answers were known when the prompts were changed; `energy`, `opera`,
`railway` and then `harbor` were written afterwards, each by somebody who had not seen the agent or
its answers. The last two are harder: longer documents with tables that look alike, nicknames, and
later notices that change a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent / "grace_sets"
SETS = ("harbor", "railway", "opera", "energy", "ferry")
NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_CITATION = re.compile(r" ?\[\d{1,3}\]")
_NUMBER = re.compile(r"(?<![\w-])\d+(?:[, ]\d{3}(?!\d))*(?:\.\d+)?")


@dataclass(frozen=True)
class Question:
    """A question and its answer. `facts` are what the person says if the run asks, in this
    order. `documents` are the names of those that an answer needs.
    """

    id: str
    type: Literal["two", "simple", "none"]
    query: str
    match: Literal["contains", "number", "exact", "none"]
    expected: str
    documents: Sequence[str]
    facts: Sequence[str]

    def ending(self, run: Mapping[str, Any]) -> str:
        """`right`, `not found` or `wrong`. Not to find is right if there is no answer."""
        if run["state"] != "done" or not run["found"]:
            return "right" if self.type == "none" else "not found"
        is_right = self.type != "none" and matches(self.match, run["answer"], self.expected)
        return "right" if is_right else "wrong"


def matches(match: str, answer: str, expected: str) -> bool:
    """Whether an answer is right: it contains the expected words or, for `number`, the expected
    number; for `exact`, it is these words. Citations and case do not count.
    """
    text = _CITATION.sub("", answer).casefold().strip()
    if match == "number":
        written = [float(each.replace(",", "").replace(" ", "")) for each in _NUMBER.findall(text)]
        words = [float(NUMBER_WORDS.index(w)) for w in re.findall(r"\w+", text)
                 if w in NUMBER_WORDS]  # fmt: skip
        return any(abs(each - float(expected)) < 0.005 for each in [*written, *words])
    if match == "exact":
        return text.strip(" .") == expected.casefold()
    pattern = rf"(?<!\w){re.escape(expected.casefold())}(?!\w)"
    return re.search(pattern, text) is not None


@dataclass(frozen=True)
class QuestionSet:
    """Questions, and the documents that they are about."""

    name: str
    questions: Sequence[Question]
    collections: Mapping[str, str]
    """Name → description."""
    documents: Mapping[tuple[str, str], str]
    """(collection, name) → text."""


def load_set(name: str) -> QuestionSet:
    folder = FOLDER / name
    lines = (folder / "questions.jsonl").read_text("utf8").splitlines()
    collections: dict[str, str] = json.loads((folder / "collections.json").read_text("utf8"))
    documents = {
        (collection, file.stem): file.read_text("utf8")
        for collection in collections
        for file in sorted((folder / collection).glob("*.md"))
    }
    questions = [Question(**json.loads(line)) for line in lines]
    return QuestionSet(name, questions, collections, documents)
