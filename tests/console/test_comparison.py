"""Texts compared word by word, and texts that are made to take long."""

from __future__ import annotations

import random
import time

from httpx2 import AsyncClient

from memory_api.console import comparison
from memory_api.console.comparison import Comparison, TextComparer, mark_passages
from memory_api.playbooks.models import Bullet
from tests.console.conftest import ConsoleClient
from tests.support.cases import each_case

OLD = Bullet(id="a", section="S", content="Call it.", when_to_use="Always, not on Sunday")
NEW = OLD.model_copy(update={"when_to_use": "Always", "tags": ["orders"]})
HOSTILE = ("日" * 2000, "本日" * 490)
"""One GET with these two versions took 57 s, in which its process answered nobody."""


def shown(compared: Comparison) -> tuple[str, str]:
    """Both texts, with what differs in brackets."""
    before, after = (
        "".join(f"[{part.text}]" if part.is_changed else part.text for part in side)
        for side in (compared.before, compared.after)
    )
    return before, after


@each_case(
    "before, after, expected",
    [
        (
            "Check the totals before you book a flight.",
            "Check all totals twice before booking a flight for the user.",
            (
                "Check [the] totals before [you book ]a flight.",
                "Check [all] totals [twice ]before [booking] a flight[ for the user].",
            ),
        ),
        ("合計を確認する。", "合計を必ず確認。", ("合計を確認[する]。", "合計を[必ず]確認。")),
        ("", "new text", ("", "[new text]")),
        ("the same", "the same", ("the same", "the same")),
        ("a" * 9, "b", (f"[{'a' * 9}]", "[b]")),
    ],
)
def test_words_that_differ_are_marked(before: str, after: str, expected: tuple[str, str]) -> None:
    assert shown(TextComparer().compare(before, after)) == expected


def test_as_many_words_as_possible_are_the_same() -> None:
    chance = random.Random(1)
    for _ in range(300):
        before, after = ("".join(chance.choices("あいうえ", k=12)) for _ in range(2))
        compared = TextComparer().compare(before, after)
        same = [
            "".join(p.text for p in side if not p.is_changed) for side in vars(compared).values()
        ]
        assert same[0] == same[1]
        assert len(same[0]) == longest_common_length(before, after)


def longest_common_length(one: str, other: str) -> int:
    row = [0] * (len(other) + 1)
    for a in one:
        last = row
        row = [0]
        for n, b in enumerate(other):
            row.append(last[n] + 1 if a == b else max(row[n], last[n + 1]))
    return row[-1]


def test_page_does_not_compare_for_long() -> None:
    started = time.process_time()
    comparer = TextComparer()
    compared = [comparer.compare(*HOSTILE) for _ in range(400)]
    assert time.process_time() - started < 5
    assert any(not part.is_changed for part in compared[0].after)
    words = sum(map(len, HOSTILE))
    full = [n for n, one in enumerate(compared) if not one.after[0].is_changed]
    assert len(full) <= comparison.MAX_COMPARED_WORDS_OF_PAGE // words + 1


async def test_page_of_hostile_versions_is_shown(owner_of: ConsoleClient, api: AsyncClient) -> None:
    delta = {"type": "ADD", "section": "OTHERS", "content": HOSTILE[0]}
    answer = await api.post("/api/v1/playbooks/support/deltas", json={"deltas": [delta]})
    (result,) = answer.json()["results"]
    path = f"playbooks/support/bullets/{result['key']}"
    edited = await api.patch(f"/api/v1/{path}", json={"content": HOSTILE[1]})
    assert edited.is_success, edited.text
    started = time.process_time()
    page = await owner_of.get(f"/console/{path}")
    assert time.process_time() - started < 10
    assert page.status_code == 200
    assert HOSTILE[1][-4:] in page.text


def test_every_field_that_differs_is_shown() -> None:
    changes = {
        change.name: (change.old, change.new) for change in TextComparer().compare_bullets(OLD, NEW)
    }
    assert changes == {
        "when_to_use": ("Always, not on Sunday", "Always"),
        "tags": ("", "orders"),
    }


def test_new_and_deleted_bullet_show_their_texts() -> None:
    assert [change.name for change in TextComparer().compare_bullets(None, OLD)] == [
        "content",
        "when_to_use",
    ]
    assert [change.new for change in TextComparer().compare_bullets(OLD, None)] == ["", ""]


def test_mark_does_not_cut_code() -> None:
    text = "Change `a[1].id` and `a[1].amount` instead."
    parts = mark_passages(text, ["a[1].id` and", "amount"])
    marked = [part.text for part in parts if part.is_changed]
    assert "".join(part.text for part in parts) == text
    assert marked == ["`a[1].id` and", "`a[1].amount`"]


def test_code_is_one_word() -> None:
    compared = TextComparer().compare("Call `a.b` now", "Call `a.c` now")
    assert [part.text for part in compared.after if part.is_changed] == ["`a.c`"]
