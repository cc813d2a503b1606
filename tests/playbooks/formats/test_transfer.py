"""Whole playbooks in and out over the rows: nothing changes but times."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.playbooks.formats.serialization import export_playbook
from memory_api.playbooks.models import Bullet, Playbook
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

SPEC2 = {
    "metadata": {"created_at": "2025-01-01T00:00:00", "updated_at": "2025-01-02T00:00:00"},
    "bullets": [
        {"id": "shr-00002", "section": "strategies_and_hard_rules", "content": "注文を確認する",
         "searchable_text": "独自の検索文", "keywords": ["注文", ""], "helpful": 5, "harmful": 1,
         "source_trajectory": "t1 (fail) → t2"},
        {"id": "shr-00001", "section": "strategies_and_hard_rules", "content": "-",
         "searchable_text": "", "keywords": [], "helpful": 0, "harmful": 0,
         "source_trajectory": ""},
        {"id": "free form", "section": "注意点", "content": "a :: b\n[x]", "searchable_text": "q",
         "keywords": [], "helpful": 0, "harmful": 2, "source_trajectory": "", "neutral": 3,
         "when_to_use": "always", "title": "T", "tags": ["a"], "status": "archived",
         "pinned": True},
    ],
}  # fmt: skip
SPEC4 = {
    "version": "1.0",
    "last_updated": "2025-01-01T00:00:00+00:00",
    "sections": {
        "PATTERNS & APPROACHES": [
            {"name": "pat-001", "text": "use types", "helpful": 5, "harmful": 1}
        ],
        "MISTAKES TO AVOID": [],
        "Others": [{"name": "kpt_007", "text": "legacy", "helpful": 0, "harmful": 0}],
    },
}
LEGACY = {"key_points": ["a bare text", {"name": "kpt_003", "text": "scored", "score": -2}]}


def bullets(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["bullets"]


async def test_spec2_import_and_export_are_equal(api: AsyncClient) -> None:
    book = Book(api)
    answer = await book.put(SPEC2)
    done = {"version": 1, "active_bullet_count": 2, "notes": [], "applied": True, "diff": None}
    assert answer.json() == done
    assert bullets((await book.now())[1]) == bullets(SPEC2)
    again = await book.put((await book.now())[1])
    assert again.json()["version"] == 1, "nothing new was said"
    turned = {"bullets": bullets(SPEC2)[::-1]}
    await book.put(turned)
    assert bullets((await book.now())[1]) == bullets(turned), "also the order"
    assert await book.problems() == []


async def test_real_playbooks_round_trip_in_every_format(
    api: AsyncClient, ace_bullets: list[Bullet]
) -> None:
    playbook = Playbook(bullets=ace_bullets)
    for form in ("bullets", "sections", "ace"):
        book = Book(api, f"real-{form}")
        text = export_playbook(playbook, form)
        assert (await book.put(text)).json()["active_bullet_count"] == len(ace_bullets)
        back = await api.get(book.url, params={"format": form})
        if form == "ace":
            assert back.text == text
        else:
            again, given = (json.loads(x) for x in (back.text, text))
            assert again.get("bullets") == given.get("bullets")
            assert again.get("sections") == given.get("sections")
        assert (await book.put(back.text)).json()["version"] == 1
    numbers = {b.id for b in ace_bullets}
    added = await book.deltas({"type": "ADD", "section": ace_bullets[0].section, "content": "new"})
    assert added["results"][0]["key"] not in numbers


async def test_spec4_and_older_formats_are_imported(api: AsyncClient) -> None:
    book = Book(api)
    await book.put(SPEC4)
    back = (await api.get(book.url, params={"format": "sections"})).json()
    assert back["sections"]["PATTERNS & APPROACHES"] == SPEC4["sections"]["PATTERNS & APPROACHES"]
    assert back["sections"]["Others"] == SPEC4["sections"]["Others"]
    old = Book(api, "old")
    notes = (await old.put(LEGACY)).json()["notes"]
    assert any("no key" in note for note in notes)
    kept = {b["content"]: (b["helpful"], b["harmful"]) for b in await old.bullets()}
    assert kept == {"a bare text": (0, 0), "scored": (0, 2)}


async def test_import_of_poorer_format_keeps_other_fields(api: AsyncClient) -> None:
    book = Book(api)
    await book.put(SPEC2)
    await book.put("## strategies_and_hard_rules\n[shr-00002] helpful=9 harmful=1 :: 新しい\n")
    kept = {b["id"]: b for b in bullets((await book.now())[1])}
    assert set(kept) == {"shr-00002", "free form"}, "archived ones are not in ACE's form"
    assert (kept["shr-00002"]["content"], kept["shr-00002"]["helpful"]) == ("新しい", 9)
    assert kept["shr-00002"]["keywords"] == ["注文", ""]
    assert kept["free form"]["pinned"] is True


async def test_sections_keep_the_condition_of_a_bullet(api: AsyncClient) -> None:
    """A program that reads S4's format got the advice without when it applies."""
    book, copy = Book(api), Book(api, "copy")
    bullet = {"id": "pat-001", "section": "OTHERS", "content": "Split it."}
    plain = bullet | {"id": "pat-002", "content": "Read."}
    await book.put({"bullets": [bullet | {"when_to_use": "an export is large"}, plain]})
    exported = (await api.get(book.url, params={"format": "sections"})).json()
    first, second = exported["sections"]["OTHERS"]
    assert first["when_to_use"] == "an export is large"
    assert set(second) == {"name", "text", "helpful", "harmful"}
    for target in (book, copy):
        assert (await target.put(exported)).json()["notes"] == []
        found = {b["id"]: b.get("when_to_use", "") for b in await target.bullets()}
        assert found == {"pat-001": "an export is large", "pat-002": ""}
    del first["when_to_use"]
    second["when_to_use"] = "before a change"
    await book.put(exported)
    changed = {b["id"]: b for b in await book.bullets()}
    assert changed["pat-001"]["when_to_use"] == "an export is large", "not in the file"
    assert changed["pat-002"]["when_to_use"] == "before a change"
    assert "before a change" in changed["pat-002"]["searchable_text"]


async def test_import_quarantines_harmful_bullets(api: AsyncClient) -> None:
    book = Book(api)
    lines = (
        "[pat-00001] helpful=0 harmful=3 :: Send it again at once.",
        "[pat-00002] helpful=3 harmful=3 :: Ask before you send.",
        "[pat-00003] helpful=0 harmful=2 :: Send both copies.",
        "[pat-00004] helpful=5 harmful=0 :: Check the address.",
    )
    answer = await book.put("\n".join(("## PATTERNS & APPROACHES", *lines)))
    assert answer.json()["active_bullet_count"] == 3, "in the import itself: no worker has run"
    status = {bullet["id"]: bullet["status"] for bullet in await book.bullets()}
    assert [key for key, value in status.items() if value == "quarantined"] == ["pat-00001"]
    rendered = await api.post(f"{book.url}/render", json={"query_text": "send it again"})
    assert "pat-00001" not in rendered.json()["text"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("", "line 1"),
        ("{", "line 1 column 2"),
        ('{"rows": []}', "line 1"),
        ('{"bullets": [{"id": "a"}]}', "bullets.0.section"),
        ('{"bullets": [{"id": "a", "section": "s", "content": "c", "helpful": -1}]}', "bullets.0"),
        ('{"bullets": [{"id": "[a]", "section": "s", "content": "c"}]}', "bullets[0]"),
        ('{"bullets": [{"id": "a", "section": "s", "content": "c", "tags": [""]}]}', "bullets[0]"),
        ('{"bullets":[{"id":"a","section":"s","content":"c","status":"deleted"}]}', "bullets[0]"),
        ('{"bullets": [{"id": "../x", "section": "s", "content": "c"}]}', "bullets[0]"),
        ('{"bullets": [{"id": "b/c", "section": "s", "content": "c"}]}', "bullets[0]"),
        ('{"bullets": [{"id": "..", "section": "s", "content": "c"}]}', "bullets[0]"),
        ('{"bullets": [{"id": "a", "section": "s", "content": " "}]}', "bullets[0].content"),
        ("## S\n[pat-001] helpful=1 harmful=0 :: \n", "bullets[0].content"),
        ("[]", "line 1"),
        ("null", "line 1"),
        ('"hello"', "line 1"),
        ("hello", "line 1"),
        ("[pat-001] helpful=1 harmful=0 :: good\nnonsense\n", "line 2"),
        ('{"sections": {"A": [{"name": "a", "text": 7}]}}', "sections.A[0].text"),
        ('{"bullets": [{"id": "a", "section": "s", "content": NaN}]}', "bullets.0.content"),
    ],
)
async def test_corrupt_file_changes_nothing(api: AsyncClient, body: str, place: str) -> None:
    book = Book(api)
    assert_problem(await book.put(body), 422, "invalid")
    assert_problem(await api.get(book.url), 404, "not_found")
    await book.put(SPEC2)
    before = await book.now()
    answer = await book.put(body)
    assert_problem(answer, 422, "invalid")
    assert answer.json()["errors"][0]["field"].startswith(place)
    assert await book.now() == before


async def test_invalid_bytes_are_refused(api: AsyncClient) -> None:
    answer = await api.put(Book(api).url, content=b'{"bullets": "\xff"}')
    assert_problem(answer, 422, "invalid")


async def test_import_is_one_version_and_can_be_restored(api: AsyncClient) -> None:
    book = Book(api)
    await book.put(SPEC2)
    await book.put({"bullets": [{"id": "shr-00002", "section": "s", "content": "only this"}]})
    assert [b["id"] for b in await book.bullets()] == ["shr-00002"]
    await book.put({"bullets": []})
    assert await book.bullets() == []
    await book.post("restore", version=1)
    assert [b["id"] for b in bullets((await book.now())[1])] == [b["id"] for b in SPEC2["bullets"]]
    assert await book.problems() == []


async def test_unstorable_characters_of_import_are_replaced(api: AsyncClient) -> None:
    book = Book(api)
    await book.put('{"bullets": [{"id": "a", "section": "s", "content": "x\\u0000y\\ud800"}]}')
    assert (await book.bullets())[0]["content"] == "x\ufffdy\ufffd"


async def headings(book: Book) -> list[str]:
    text = (await book.api.get(book.url, params={"format": "ace"})).text
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


ACE = """## ZULU
[zul-00001] helpful=1 harmful=0 :: z
## OTHERS
## ALPHA
[alp-00001] helpful=0 harmful=2 :: a
"""


async def test_imported_order_is_kept(api: AsyncClient) -> None:
    book = Book(api)
    await book.put(ACE)
    assert await headings(book) == ["ZULU", "OTHERS", "ALPHA"]
    await book.put("## ALPHA\n[alp-00001] helpful=0 harmful=2 :: a\n## ZULU\n")
    assert await headings(book) == ["ALPHA", "ZULU"], "it says what the playbook is from now on"
    await book.deltas({"type": "ADD", "section": "zulu", "content": "more"})
    assert await headings(book) == ["ALPHA", "ZULU"]
    await book.deltas({"type": "ADD", "content": "of no section"})
    assert await headings(book) == ["ALPHA", "ZULU", "OTHERS"]


async def test_sections_of_earlier_import_are_removed(api: AsyncClient) -> None:
    book = Book(api)
    first = {"id": "z-1", "section": "ZULU", "content": "z"}
    second = {"id": "a-1", "section": "ALPHA", "content": "a"}
    await book.put({"bullets": [first, second]})
    assert await headings(book) == ["ZULU", "ALPHA"]
    await book.put({"bullets": [second]})
    assert await headings(book) == ["ALPHA"]
    await book.api.patch(book.url, json={"sections": [{"name": "MIKE"}, {"name": "ALPHA"}]})
    await book.put({"bullets": [second, first]})
    assert await headings(book) == ["MIKE", "ALPHA", "OTHERS", "ZULU"], "what is defined stays"
    document = (await book.now())[1]
    await book.put(document)
    assert await headings(book) == ["MIKE", "ALPHA", "OTHERS", "ZULU"]


async def test_sections_of_untouched_bullets_are_kept(api: AsyncClient) -> None:
    book = Book(api)
    aside = {"id": "z-1", "section": "ZULU", "content": "z", "status": "archived"}
    await book.put({"bullets": [aside]})
    await book.put("## ALPHA\n[alp-00001] helpful=0 harmful=0 :: a\n")
    assert await headings(book) == ["ALPHA", "ZULU"]


async def test_repeated_key_is_reported(api: AsyncClient) -> None:
    book = Book(api)
    twice = [{"id": "pat-00001", "section": "pat", "content": text} for text in ("one", "two")]
    notes = (await book.put({"bullets": twice})).json()["notes"]
    assert notes == ["bullets[1]: key pat-00001 is not unique; assigned pat-00002"]
