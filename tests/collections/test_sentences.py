"""Sentences of English and Japanese text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.collections.sentences import split_sentences

CASES = [
    "He lives in St. Louis.|It is large.",
    "The shop is on Main St.|The bank is near.",
    "J. R. R. Tolkien wrote it.|C. S. Lewis read it.",
    "John F. Kennedy won.|He was young.",
    "Dr. Smith met Mrs. Jones.|Prof. Brown left.",
    "The U.S. Army is in the U.S.|The law differs.",
    "It opened at 9 a.m. Monday.|We closed at 5 p.m.|The end.",
    "Use a vowel, e.g. Alpha.|Or not, i.e. Beta.",
    "Fruit (apples, pears, etc.) is sold.|Bread etc. is not.",
    "Pi is 3.14.|Half is .5 of it.|Version 2.0.1 is out.",
    "See Fig. 3 and No. 7.|The answer is no.|Yes was wrong.",
    "On Jan. 5 it rained.|It was Jan.|Then it snowed.",
    "Acme Inc. Chief Ann left.|She joined Beta Ltd.|The rest stayed.",
    "Smith et al. Found nothing new.",
    '"Why?" he asked.|"Go!"|She went.',
    "He said \"no.\"|Then he left (at last.)|All was well.",
    "1. Open the lid.|2. Pour.|In 1990.|Later.",
    "Wait... what?|Yes...|No.",
    "See https://example.org/a?b=1 now.|Ask Yahoo!|It knows.",
    "A heading\n\n|Text.",
    "It ended in the U.S.\n\n|Army life.",
    "今日は晴れです。|明日は雨ですか？|はい！",
    "「本当ですか？」と聞いた。|「はい。」|彼は答えた。",
    "「今日は晴れ。明日は雨。」と言った。|終わり。",
    "『坊っちゃん。』は小説である。|作者は漱石だ。",
    "送料は無料（北海道を除く。）。|返品できます。",
    "円周率は３．１４である．|次の文．",
    "「閉じない。|次の文です。",
    "Appleの製品です。|iPhone 3.5 is old.",
]  # fmt: skip


@pytest.mark.parametrize("marked", CASES)
def test_sentences(marked: str) -> None:
    text = marked.replace("|", " " if marked.isascii() else "")
    expected = [each.strip() for each in marked.split("|")]
    assert [text[a:b].strip() for a, b in split_sentences(text)] == expected


@given(st.text(alphabet="aB J.!?。？「」（）\"' \n1．とSt", max_size=200))
def test_spans_cover_the_text(text: str) -> None:
    spans = split_sentences(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a < b for a, b in spans)


@pytest.mark.parametrize("text", ["「" * 100_000, "a." * 100_000, "\n" * 100_000, ". " * 100_000])
def test_time_is_linear(text: str) -> None:
    since = time.process_time()
    split_sentences(text)
    assert time.process_time() - since < 2
