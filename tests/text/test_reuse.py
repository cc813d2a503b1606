"""Text of the playbook that comes back, and text that is news."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_api.text.reuse import (
    MIN_COVERED_SHARE,
    ReusedText,
    distinctive_words,
    find_reused_text,
    reuse_score,
)
from memory_api.text.similarity import wording_similarity
from tests.support.cases import each_case
from tests.support.paths import SHARED

RETRY = (
    "Do not retry a payment that timed out: look the payment up by its reference first, because "
    "the first one may have gone through."
)
HOTEL = "Booking_hotel が希望の条件で取れないときは、宿泊日をずらした案を利用者に尋ねて送り直す。"
SERVED = {"mis-00001": RETRY, "pat-00002": HOTEL, "oth-00003": "Be kind."}


def test_literal_copy_is_detected_despite_case_width_and_spacing() -> None:
    assert find_reused_text(RETRY, SERVED) == ReusedText("mis-00001", 1.0, is_exact=True)
    assert find_reused_text(f"  {RETRY.upper()}\n", SERVED) == ReusedText(
        "mis-00001", 1.0, is_exact=True
    )
    assert find_reused_text("be  KIND.", SERVED) == ReusedText("oth-00003", 1.0, is_exact=True)
    assert find_reused_text(RETRY, {}) is None
    assert find_reused_text("", SERVED) is None
    assert find_reused_text("", {"x": ""}) is None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Look the payment up by its reference first: do not retry one timed out.", "mis-00001"),
        ("The first payment may have gone through, because timed out; do not retry.", "mis-00001"),
        ("宿泊日をずらした案を尋ね、Booking_hotel が条件で取れないときは送り直す。", "pat-00002"),
    ],
)  # fmt: skip
def test_shortened_and_reordered_copy_is_detected(text: str, key: str) -> None:
    match = find_reused_text(text, SERVED)
    assert match is not None
    assert (match.key, match.is_exact) == (key, False)


@each_case(
    "text",
    [
        "Do not retry a payment that timed out: look the refund_id up by its reference first.",
        "Do not retry a payment that timed out 3 times: look it up by its reference first.",
        "Look the payment up by its reference and send the customer a printed invoice first.",
        "Payment.",
        "Booking_taxi が希望の条件で取れないときは、宿泊日をずらした案を利用者に尋ねて送り直す。",
        "Booking_hotel が希望の条件で取れないときは、駐車場を外した案を利用者に尋ねて送り直す。",
    ],
)
def test_other_name_number_or_word_is_new_text(text: str) -> None:
    assert find_reused_text(text, SERVED) is None


def test_negated_text_is_new_text() -> None:
    served = {"a": "Retry a payment that timed out after looking the reference up."}
    assert (
        find_reused_text("Never retry a payment that timed out after looking up.", served) is None
    )
    assert find_reused_text("Retry a payment after looking the reference up.", served) is not None


@pytest.mark.parametrize(("said", "served"), [("order_7", "order_8"), ("京", "東"), ("not", "so")])
def test_one_significant_word_makes_long_text_new(said: str, served: str) -> None:
    rest = " ".join(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyzabcdefghijklmn")
    assert find_reused_text(f"{said} {rest}", {"a": f"{served} {rest}"}) is None
    assert find_reused_text(rest, {"a": f"{served} {rest}"}) is not None
    assert find_reused_text(f"plainly {rest}", {"a": f"{served} {rest}"}) is not None


def test_few_words_of_long_text_are_not_reuse() -> None:
    assert (
        find_reused_text("reference payment first through", {"a": f"{RETRY} {HOTEL} " * 3}) is None
    )


WORDS = st.lists(
    st.text("abcdefghij", min_size=4, max_size=9) | st.sampled_from(["予約", "order_id", "not"]),
    min_size=8,
    max_size=40,
)


@given(WORDS, st.randoms(use_true_random=False), st.data())
def test_remaining_words_in_any_order_are_detected(
    words: list[str], rng: random.Random, data: st.DataObject
) -> None:
    many = data.draw(st.integers(-(-6 * len(words) // 10), len(words)))
    kept = rng.sample(words, many)
    assume(len([word for word in kept if word != "not"]) > 3)
    match = find_reused_text(" ".join(kept), {"a": " ".join(words)})
    assert match is not None
    assert match.score == 1.0


@given(st.text(max_size=300), st.text(max_size=300))
def test_scores_are_shares(text: str, served: str) -> None:
    assert 0.0 <= reuse_score(distinctive_words(text), distinctive_words(served)) <= 1.0


def test_real_bullets_are_distinguished() -> None:
    path = SHARED / "data" / "bullets_ace.jsonl"
    if not path.exists():
        pytest.skip("shared/data/bullets_ace.jsonl is not here")
    texts = list(dict.fromkeys(json.loads(x)["text"] for x in path.read_text("utf-8").splitlines()))
    served = {str(n): text for n, text in enumerate(texts[:60])}
    taken = [t for t in texts[60:] if find_reused_text(t, served)]
    alike = [t for t in taken if max(wording_similarity(t, s) for s in served.values()) >= 0.9]
    assert len(taken) - len(alike) <= 2
    rng = random.Random(5)
    found = 0
    for key, text in served.items():
        kept = [word for word in text.split() if rng.random() >= MIN_COVERED_SHARE]
        match = find_reused_text(" ".join(rng.sample(kept, len(kept))), served)
        found += match is not None and match.key == key
    assert found >= 57
