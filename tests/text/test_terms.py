"""Terms of any language: what finds what, and what holds for every text."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
import unicodedata
from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.text.terms import (
    K1,
    MAX_QUERY_TERMS,
    STOP_WORDS,
    TERM_ID_COUNT,
    document_weights,
    query_terms,
    term_id,
    tokenize,
)
from tests.support.cases import each_case
from tests.support.paths import ROOT

AWKWARD = ROOT.parent / "shared/data/awkward/blns.json"
ANY_TEXT = st.text(st.characters(), max_size=300)
"""All planes, lone surrogates among them."""


def finds(query: str, document: str) -> bool:
    """Every term of the query is in the document."""
    asked = query_terms(query)
    return bool(asked) and asked.keys() <= document_weights(document).keys()


@given(ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_any_text_gives_bounded_weights_of_valid_ids(text: str) -> None:
    weights = document_weights(text)
    assert all(0 <= i < TERM_ID_COUNT < 2**31 for i in weights)
    assert all(0 < weight < K1 + 1 for weight in weights.values())
    assert weights.keys() == {term_id(term) for term in tokenize(text)}
    assert all(term == term.strip() and term and "\0" not in term for term in tokenize(text))


@given(ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_document_is_found_by_its_own_text(text: str) -> None:
    asked = query_terms(text)
    assert asked.keys() <= document_weights(text).keys()
    assert len(asked) == min(MAX_QUERY_TERMS, len(document_weights(text)))
    assert all(frequency >= 1 for frequency in asked.values())


@given(ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_unicode_normalization_does_not_matter(text: str) -> None:
    assert tokenize(text) == tokenize(unicodedata.normalize("NFKC", text))


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_lines_are_tokenized_separately(a: str, b: str) -> None:
    assert tokenize(f"{a}\n{b}") == tokenize(a) + tokenize(b)


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "東京", "מילה"]), max_size=30))
@settings(max_examples=100, deadline=None)
def test_frequency_raises_and_length_lowers_weight(words: list[str]) -> None:
    once = document_weights(" ".join(["target", *words]))[term_id("target")]
    longer = document_weights(" ".join(["target", *words, "padding"]))[term_id("target")]
    twice = document_weights(" ".join(["target", *words, "target"]))[term_id("target")]
    assert longer < once < twice


def test_weights_match_bm25() -> None:
    """Length 32 is the average: the weight is tf · 2.2 / (tf + 1.2)."""
    weights = document_weights("apple apple " + " ".join(f"w{i}" for i in range(30)))
    assert weights[term_id("appl")] == pytest.approx(2 * 2.2 / 3.2)
    assert query_terms("apple apple pear")[term_id("appl")] == pytest.approx(sqrt(2))


@each_case(
    ("query", "document"),
    [
        ("get_user_details", "call get_user_details(user_id) first"),
        ("user details", "call get_user_details(user_id) first"),
        ("getUserDetails", "call get_user_details(user_id) first"),
        ("getuserdetails", "call get-user-details first"),
        ("ValueError", "it raised a ValueError: bad date"),
        ("valueerror", "it raised a ValueError: bad date"),
        ("error", "it raised a ValueError: bad date"),
        ("from_pretrained", "use AutoModel.from_pretrained('bert')"),
        ("automodel", "use AutoModel.from_pretrained('bert')"),
        ("os.path.join", "import os.path.join;"),
        ("ERR_CONNECTION_REFUSED", "net::ERR_CONNECTION_REFUSED at 10:02"),
        ("connection refused", "net::ERR_CONNECTION_REFUSED at 10:02"),
        ("E1234", "exit with E1234."),
        ("#W2378156", "order #W2378156 was cancelled"),
        ("gpt-4o", "asked GPT-4o again"),
        ("main.py", "in src/app/main.py line 3"),
        ("__init__", "no __init__ there"),
        ("error 404", "a HTTPError404 came"),
        ("the user's orders", "users ordered it"),
        ("cancelled flights", "cancel the flight"),
        ("cancion", "una canción"),
        ("strasse", "Hauptstraße Straße"),
        ("книга", "эти книги"),
        ("елка", "новогодняя ёлка"),
        ("كتاب", "الكِتَاب"),
        ("احمد", "أحمد"),
        ("ελλαδα", "Ελλάδας"),
        ("データベース", "ﾃﾞｰﾀﾍﾞｰｽ接続"),
        ("接続エラー", "データベース接続エラーが出た"),
        ("连接超时", "数据库连接超时了"),
        ("데이터", "데이터베이스"),
        ("ฐานข้อมูล", "การเชื่อมต่อฐานข้อมูลหมดเวลา"),
        ("ភាសាខ្មែរ", "ខ្ញុំរៀនភាសាខ្មែរ"),
        ("မြန်မာ", "မြန်မာဘာသာ"),
        ("ABC123", "ＡＢＣ１２３"),
        ("123", "١٢٣"),
        ("3.5", "version 3.5"),
        ("e\u0301tude", "\u00e9tude"),
        ("soft\u00adware", "software"),
    ],
)
def test_matching_terms(query: str, document: str) -> None:
    assert finds(query, document)


@each_case(
    ("query", "document"),
    [
        ("35", "version 3.5"),
        ("get_user_details", "get the details of a user"),
        ("京都", "東京の都"),
        ("universe", "ユニバース"),
    ],
)
def test_non_matching_terms(query: str, document: str) -> None:
    assert not finds(query, document)


@each_case("text", ["", " ", "\0", "?!", "🎉", "\u08ca", "to be or not to be", "Who are you?"])
def test_text_without_terms_is_empty(text: str) -> None:
    assert tokenize(text) == []
    assert query_terms(text) == {}


def test_contractions_leave_no_fragments() -> None:
    assert tokenize("The user's bag: it's theirs, I'll say") == ["user", "bag", "their", "say"]
    assert tokenize("vitamin d") == ["vitamin", "d"]


def test_stop_words_are_single_folded_words() -> None:
    assert all(word == word.lower() and word.isalpha() for word in STOP_WORDS)


def test_blobs_are_not_tokenized() -> None:
    blob = "aB" * 40
    assert len(tokenize(blob)) == 1
    assert tokenize("x" * 5000) == tokenize("x" * 6000)


def test_long_query_keeps_most_significant_terms() -> None:
    filler = " ".join(f"q{i:03}" for i in range(300))
    asked = query_terms(f"{filler} reservation reservation idempotency {filler}")
    assert len(asked) == MAX_QUERY_TERMS
    assert {term_id(t) for t in tokenize("reservation idempotency")} <= asked.keys()


def test_long_japanese_query_is_sampled_over_its_length() -> None:
    beginning = [chr(0x4E00 + i) for i in range(500)]
    end = [chr(0x6000 + i) for i in range(500)]
    asked = query_terms("".join(beginning + end) + "ですからそれはこれでした" * 5)
    late = {term_id(a + b) for a, b in pairwise(end)}
    assert MAX_QUERY_TERMS / 4 < len(asked.keys() & late) < MAX_QUERY_TERMS * 3 / 4
    assert term_id("です") not in asked


def test_ids_are_stable_across_processes_and_releases() -> None:
    """Rows are stored under them."""
    assert term_id("error") == int(
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from memory_api.text.terms import *;print(term_id('error'))",
            ],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT / "apps")},
        ).stdout
    )
    assert [term_id(t) for t in ("error", "接続", "")] == [512157660, 285441234, 258269876]


HUGE = {
    "dots": "a.b" * 400_000,
    "underscores": "_" * 2_000_000,
    "marks": "a" + "\u0323\u0301" * 300_000,
    "nul": "\0" * 2_000_000,
    "quotes": "x'" * 500_000,
    "kana": "の" * 1_000_000,
    "thai": "ก็" * 300_000,
    "camel": "aB" * 1_000_000,
    "emoji": "👩\u200d💻" * 200_000,
}


@each_case("text", HUGE.values())
def test_huge_and_hostile_texts(text: str) -> None:
    """Quadratic work would run into the suite's timeout."""
    assert len(document_weights(text)) <= len(set(text)) ** 3 + 200


@pytest.mark.skipif(not AWKWARD.exists(), reason="../shared/data/awkward is not there")
def test_naughty_strings_are_tokenized() -> None:
    for text in json.loads(AWKWARD.read_text("utf8")):
        assert query_terms(text).keys() <= document_weights(text).keys()


def test_cache_of_words_holds_no_long_text() -> None:
    """Searches with a word of 10,000 letters each filled the memory of a process."""
    tracemalloc.start()
    for n in range(200):
        query_terms(f"{n}x" + "y" * 10_000)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 500_000
