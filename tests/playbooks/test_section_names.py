"""Section names mean the same to the database as to `normal_name`, in any script."""

from __future__ import annotations

import random
from typing import Any

from memory_api.playbooks.sections import (
    DEFAULT_SECTIONS,
    matching_spellings,
    normalize_section_name,
)
from migrations.search import part

CHARACTERS = (
    "abcXYZ019éÉñÑüÜкЖΩλ日本語メモ返金한글ثقة"  # letters and digits
    "    __--&&/.,:;!?'\"()[]{}<>@#$%^*+=|~`\\«»·¿×÷"  # what stands between
    "–—…“”‘’•·€→✓、。「」『』〜・！（）：；？［］｛｝"
)
NAMES = ["", " ", "&", "Other", " other! ", "OTHERS", "PATTERNS & APPROACHES", "Mistakes to avoid"]
PLAIN = f"""
with spellings as (select w.name, null slug, true wanted from unnest($1::text[]) w(name))
{part("normalized_names")}
"""


def names() -> list[str]:
    choose = random.Random(4)
    made = ["".join(choose.choices(CHARACTERS, k=choose.randint(1, 12))) for _ in range(3_000)]
    return [*NAMES, *(section.name for section in DEFAULT_SECTIONS), *made]


async def test_sql_and_python_normalize_names_alike(runtime: Any) -> None:
    async with runtime.sessions.raw_connection() as driver:
        rows = await driver.fetch(PLAIN, names())
    assert len(rows) == len(names())
    assert {row["name"]: row["plain"] for row in rows} == {
        n: normalize_section_name(n) for n in names()
    }


def test_spellings_belong_to_one_section() -> None:
    names = ["Mistakes to avoid", "MISTAKES_TO_AVOID", "OTHERS", "mis"]
    assert matching_spellings(DEFAULT_SECTIONS, names, "mistakes to avoid") == names[:2]
    assert matching_spellings(DEFAULT_SECTIONS, names, "other") == ["OTHERS"]
    assert matching_spellings(DEFAULT_SECTIONS, names, "mis") == [
        "Mistakes to avoid",
        "MISTAKES_TO_AVOID",
        "mis",
    ]
    assert matching_spellings(DEFAULT_SECTIONS, names, "nothing") == []
