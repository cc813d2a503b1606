"""PlaybookStore: property 3, names, corruption, atomic writes."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings

from memory_api.library.playbook_store import PlaybookStore, UnsafePlaybookName
from memory_api.playbooks.formats.serialization import parse_playbook
from memory_api.playbooks.models import Bullet, CorruptPlaybook, Playbook
from tests.support.playbook_strategies import playbooks


# Feature: self-reflection-system, Property 3: a saved playbook loads equal, updated_at aside
@settings(max_examples=100, deadline=None)
@given(playbook=playbooks())
def test_property_3_save_and_load(
    tmp_path_factory: pytest.TempPathFactory, playbook: Playbook
) -> None:
    store = PlaybookStore(str(tmp_path_factory.mktemp("store")))
    store.save("appworld", playbook)
    loaded = store.load("appworld")
    assert loaded == playbook
    assert loaded.metadata.created_at == playbook.metadata.created_at


def test_time_without_a_zone_is_utc(tmp_path: Path) -> None:
    times = {"created_at": "2025-01-01T00:00:00", "updated_at": "2025-01-02T00:00:00+09:00"}
    (tmp_path / "p.json").write_text(json.dumps({"metadata": times, "bullets": []}))
    metadata = PlaybookStore(tmp_path).load("p").metadata
    assert metadata.created_at.isoformat() == "2025-01-01T00:00:00+00:00"
    assert metadata.updated_at.isoformat() == "2025-01-02T00:00:00+09:00"


def test_missing_file_is_empty_playbook(tmp_path: Path) -> None:
    store = PlaybookStore(tmp_path / "deep" / "er")
    assert store.load("nobody").bullets == []
    assert not (tmp_path / "deep").exists()


def test_file_is_indented_unescaped_and_timestamped(tmp_path: Path) -> None:
    playbook = Playbook(bullets=[Bullet(id="shr-00001", section="規則", content="時間を確認 😀")])
    before = datetime.now(UTC)
    PlaybookStore(tmp_path / "new" / "folder").save("データ", playbook)
    text = (tmp_path / "new" / "folder" / "データ.json").read_text(encoding="utf-8")
    assert "時間を確認 😀" in text
    assert '\n  "bullets": [\n' in text
    updated = datetime.fromisoformat(json.loads(text)["metadata"]["updated_at"])
    assert before <= updated == playbook.metadata.updated_at


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        ".hidden",
        "a\0b",
        " a",
        "a\n",
        "C:x",
        "é" * 101,
    ],
)
def test_unsafe_name_is_refused(name: str, tmp_path: Path) -> None:
    store = PlaybookStore(tmp_path / "in")
    with pytest.raises(UnsafePlaybookName):
        store.load(name)
    with pytest.raises(UnsafePlaybookName):
        store.save(name, Playbook())
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("content", "location"),
    [
        (b"", "bad.json"),
        (b'{"metadata": {}, "bullets": [', "bad.json"),
        (b"\xff\xfe", "bad.json"),
        (b"[]", "bad.json"),
        (
            b'{"bullets": [{"id": "a", "section": "s", "content": "c", "helpful": -1}]}',
            "bullets.0.helpful",
        ),
        (b'{"version": "1.0", "sections": {"OTHERS": []}}', "bad.json"),
        (b'{"bullets":' + b"[" * 100_000, "bad.json"),
    ],
)
def test_corrupt_file_is_logged_raised_and_unchanged(
    content: bytes, location: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with caplog.at_level(logging.ERROR), pytest.raises(CorruptPlaybook) as error:
        PlaybookStore(tmp_path).load("bad")
    assert location in error.value.location
    assert "bad.json" in caplog.text
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "line 1: the file is empty"),
        (b'{"bullets": [', "line 1 column 14: not JSON: Expecting value"),
        (b'{"bullets": 3}', "bullets: Must be a JSON array."),
        (
            b'{"bullets": [{"id": "a", "section": "s"}]}',
            "bullets.0.content: This field is required.",
        ),
        (
            b'{"bullets": [{"id": "a", "section": "s", "content": "c", "helpful": -1}]}',
            "bullets.0.helpful: Must be greater than or equal to 0.",
        ),
        (b'{"foo": 1}', "line 1: not a playbook: 'bullets' is required."),
        (b"[]", "line 1: JSON, but not an object"),
    ],
)
def test_corrupt_file_has_the_sentence_of_an_import(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(CorruptPlaybook) as loaded:
        PlaybookStore(tmp_path).load("bad")
    with pytest.raises(CorruptPlaybook) as imported:
        parse_playbook(content)
    assert str(loaded.value) == f"{path}: {sentence}"
    assert str(imported.value) == sentence


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b'\xef\xbb\xbf{"bullets": []}')
    assert PlaybookStore(tmp_path).load("b").bullets == []


def test_failed_save_keeps_old_file_and_no_temporary_file(tmp_path: Path) -> None:
    store = PlaybookStore(tmp_path)
    old = Playbook(bullets=[Bullet(id="a", section="s", content="old")])
    store.save("p", old)
    broken = Playbook(bullets=[Bullet(id="a", section="s", content="new")])
    broken.bullets[0].content = "lone surrogate \ud800"
    stamp = broken.metadata.updated_at
    with pytest.raises(UnicodeEncodeError):
        store.save("p", broken)
    assert store.load("p") == old
    assert broken.metadata.updated_at == stamp
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "p.json" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
        PlaybookStore(tmp_path).save("p", Playbook())
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_concurrent_readers_never_see_partial_file(tmp_path: Path) -> None:
    store = PlaybookStore(tmp_path)
    sizes = (40, 400)
    books = [
        Playbook(bullets=[Bullet(id=f"p-{n}", section="s", content="x" * 50) for n in range(size)])
        for size in sizes
    ]
    store.save("p", books[0])
    errors: list[BaseException] = []

    def write(book: Playbook) -> None:
        try:
            for _ in range(15):
                store.save("p", book)
        except BaseException as error:  # handed to the test, which fails with it
            errors.append(error)

    writers = [threading.Thread(target=write, args=(book,)) for book in books]
    for writer in writers:
        writer.start()
    seen: set[int] = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(len(store.load("p").bullets))
    for writer in writers:
        writer.join()
    assert errors == []
    assert seen <= set(sizes)
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]
