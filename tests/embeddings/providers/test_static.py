"""The bundled model: what it promises of every text, and what its files promise."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.embeddings.providers.static import (
    CHECKSUMS,
    MAX_CHARACTERS,
    MODEL_DIRECTORY,
    StaticEmbedder,
)
from tests.support.cases import each_case

EMBEDDER = StaticEmbedder()
ANY_TEXT = st.text(max_size=200)


def vector(text: str) -> np.ndarray:
    return asyncio.run(EMBEDDER.embed_query(text))


def cosine(a: str, b: str) -> float:
    return float(vector(a) @ vector(b))


def has_something(text: str) -> bool:
    return any(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs") for c in text)


@given(st.text(st.characters(), max_size=200))
@settings(max_examples=100, deadline=None)
def test_every_text_with_content_has_unit_vector(text: str) -> None:
    found = vector(text)
    assert found.shape == (EMBEDDER.dimensions,)
    assert found.dtype == np.float32
    expected = 1.0 if has_something(unicodedata.normalize("NFKC", text)) else 0.0
    assert float(np.linalg.norm(found)) == pytest.approx(expected, abs=1e-4)


@each_case("text", ["", "\0\0", " \n\t", "\u200b"])
def test_empty_text_has_zero_vector(text: str) -> None:
    assert not vector(text).any()


@given(ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_equal_texts_have_equal_vectors_as_document_and_query(text: str) -> None:
    rows = asyncio.run(EMBEDDER.embed_documents(["filler", text, "日本語", text]))
    np.testing.assert_array_equal(rows[1], rows[3])
    np.testing.assert_array_equal(rows[1], vector(text))


@given(ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_unicode_normalization_does_not_matter(text: str) -> None:
    np.testing.assert_array_equal(vector(text), vector(unicodedata.normalize("NFKC", text)))


@given(st.text(st.characters(max_codepoint=127), min_size=1, max_size=200))
@settings(max_examples=100, deadline=None)
def test_hashed_fallback_does_not_change_english(text: str) -> None:
    """The vector is the plain mean of the token vectors, up to its length."""
    ids = [
        token
        for token in EMBEDDER._tokenizer.encode(text, add_special_tokens=False).ids
        if token != EMBEDDER._unknown_token
    ]
    mean = EMBEDDER._token_vectors[ids].astype(np.float64).sum(axis=0)
    if mean.any():
        np.testing.assert_allclose(vector(text), mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("The quick brown fox", [0.076604, -0.060477, -0.088700, -0.286258, -0.173367, -0.032254]),
        (
            "def get_user_details(user_id): raise ValueError",
            [0.049144, -0.380865, 0.194820, -0.333476, 0.040368, -0.238699],
        ),
    ],
)
def test_same_vectors_as_model2vec(text: str, beginning: list[float]) -> None:
    """The first numbers that model2vec 0.10 gives for these files."""
    np.testing.assert_allclose(vector(text)[:6], beginning, atol=1e-5)


def test_english_similarity_follows_meaning() -> None:
    close = cosine("the payment was refused", "credit card declined")
    assert close > cosine("the payment was refused", "tomatoes need sunlight") + 0.1


@each_case(
    ("a", "b", "other"),
    [
        (
            "データベースの接続がタイムアウトした",
            "データベース接続のタイムアウト",
            "天気がよい一日",
        ),
        ("数据库连接超时", "连接数据库超时了", "今天天气很好"),
        ("ошибка подключения к базе", "нет подключения к базе данных", "сегодня тепло"),
        ("خطأ في الاتصال بقاعدة البيانات", "فشل الاتصال بقاعدة البيانات", "الطقس جميل اليوم"),
        ("การเชื่อมต่อฐานข้อมูลหมดเวลา", "ฐานข้อมูลหมดเวลาการเชื่อมต่อ", "อากาศดีมาก"),
        ("데이터베이스 연결 시간 초과", "데이터베이스 연결 실패", "오늘 날씨가 좋다"),
    ],
)
def test_similarity_of_other_scripts_follows_spelling(a: str, b: str, other: str) -> None:
    assert cosine(a, b) > cosine(a, other) + 0.2


def test_mixed_text_is_similar_to_both_parts() -> None:
    mixed = "PostgreSQL の接続エラー"
    assert cosine(mixed, "接続エラー") > 0.4
    assert cosine(mixed, "PostgreSQL") > cosine(mixed, "MongoDB") + 0.1


def test_emoji_and_symbols_differ() -> None:
    assert cosine("🎉", "🎉") == pytest.approx(1, abs=1e-5)
    assert cosine("🎉", "💥") < 0.9


def test_only_beginning_of_long_text_is_embedded() -> None:
    start = "word " * (MAX_CHARACTERS // 5 + 1)
    assert cosine(start, start + "other " * 2_000_000) == pytest.approx(1, abs=1e-5)


async def test_batches_do_not_block_event_loop() -> None:
    """The loop goes on taking turns while the batch is worked on."""
    work = asyncio.create_task(EMBEDDER.embed_documents(["some words of text"] * 20_000))
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert (await work).shape == (20_000, EMBEDDER.dimensions)


async def test_no_texts_give_no_vectors() -> None:
    assert (await EMBEDDER.embed_documents([])).shape == (0, EMBEDDER.dimensions)


@pytest.mark.parametrize("name", sorted(CHECKSUMS))
def test_altered_or_missing_files_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL_DIRECTORY, folder)
    file = folder / name
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match=f"{name} has been changed"):
        StaticEmbedder(folder)
    file.unlink()
    with pytest.raises(ValueError, match=f"Cannot read .*{name}"):
        StaticEmbedder(folder)


def test_package_documents_origin_of_model() -> None:
    assert "Apache License" in (MODEL_DIRECTORY / "LICENSE").read_text()
    assert "all-MiniLM-L6-v2" in (MODEL_DIRECTORY / "NOTICE").read_text()
    assert (
        json.loads((MODEL_DIRECTORY / "config.json").read_text())["hidden_dim"]
        == EMBEDDER.dimensions
    )


def test_loads_without_network_and_without_heavy_imports() -> None:
    """In a process of its own in which no socket can be made."""
    program = """
import sys
def no_sockets(event, args):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(no_sockets)
from memory_api.embeddings.registry import open_embedder
embedder = open_embedder("static")
assert embedder._embed(["hello"]).any()
heavy = {"model2vec", "huggingface_hub", "torch", "joblib", "openai", "fastembed"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=MODEL_DIRECTORY.parents[3])
