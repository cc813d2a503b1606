"""Text of the playbook that comes back, and text that is news."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.memory_api.playbook.recognise import LEAST_SHARE, Match, recognise, resemblance
from apps.memory_api.playbook.similar import wording_similarity

RETRY = (
    "Do not retry a payment that timed out: look the payment up by its reference first, because "
    "the first one may have gone through."
)
HOTEL = "Booking_hotel が希望の条件で取れないときは、宿泊日をずらした案を利用者に尋ねて送り直す。"
SERVED = {"mis-00001": RETRY, "pat-00002": HOTEL, "oth-00003": "Be kind."}


def test_word_for_word_whatever_case_width_and_spacing() -> None:
    assert recognise(RETRY, SERVED) == Match("mis-00001", 1.0, exact=True)
    assert recognise(f"  {RETRY.upper()}\n", SERVED) == Match("mis-00001", 1.0, exact=True)
    assert recognise("be  KIND.", SERVED) == Match("oth-00003", 1.0, exact=True)
    assert recognise(RETRY, {}) is None
    assert recognise("", SERVED) is None
    assert recognise("", {"x": ""}) is None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Look the payment up by its reference first: do not retry one timed out.", "mis-00001"),
        ("The first payment may have gone through, because timed out; do not retry.", "mis-00001"),
        ("宿泊日をずらした案を尋ね、Booking_hotel が条件で取れないときは送り直す。", "pat-00002"),
    ],
)  # fmt: skip
def test_words_left_out_and_order_changed(text: str, key: str) -> None:
    match = recognise(text, SERVED)
    assert match is not None
    assert (match.key, match.exact) == (key, False)


@pytest.mark.parametrize(
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
def test_another_name_number_or_word_is_news(text: str) -> None:
    assert recognise(text, SERVED) is None


def test_the_opposite_is_news() -> None:
    served = {"a": "Retry a payment that timed out after looking the reference up."}
    assert recognise("Never retry a payment that timed out after looking up.", served) is None
    assert recognise("Retry a payment after looking the reference up.", served) is not None


@pytest.mark.parametrize(("said", "served"), [("order_7", "order_8"), ("京", "東"), ("not", "so")])
def test_one_telling_word_makes_a_long_text_news(said: str, served: str) -> None:
    rest = " ".join(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyzabcdefghijklmn")
    assert recognise(f"{said} {rest}", {"a": f"{served} {rest}"}) is None
    assert recognise(rest, {"a": f"{served} {rest}"}) is not None
    assert recognise(f"plainly {rest}", {"a": f"{served} {rest}"}) is not None


def test_a_few_words_of_a_long_text_are_not_that_text() -> None:
    assert recognise("reference payment first through", {"a": f"{RETRY} {HOTEL} " * 3}) is None


WORDS = st.lists(
    st.text("abcdefghij", min_size=4, max_size=9) | st.sampled_from(["予約", "order_id", "not"]),
    min_size=8,
    max_size=40,
)


@given(WORDS, st.randoms(use_true_random=False), st.data())
def test_what_is_left_in_any_order_is_recognised(
    words: list[str], rng: random.Random, data: st.DataObject
) -> None:
    many = data.draw(st.integers(-(-6 * len(words) // 10), len(words)))
    kept = rng.sample(words, many)
    assume(len([word for word in kept if word != "not"]) > 3)
    match = recognise(" ".join(kept), {"a": " ".join(words)})
    assert match is not None
    assert match.score == 1.0


@given(st.text(max_size=300), st.text(max_size=300))
def test_scores_are_shares(text: str, served: str) -> None:
    assert 0.0 <= resemblance(text, served) <= 1.0


def test_real_bullets_are_told_apart() -> None:
    path = Path(__file__).resolve().parents[3] / "shared" / "data" / "bullets_ace.jsonl"
    if not path.exists():
        pytest.skip("shared/data/bullets_ace.jsonl is not here")
    texts = list(dict.fromkeys(json.loads(x)["text"] for x in path.read_text("utf-8").splitlines()))
    served = {str(n): text for n, text in enumerate(texts[:60])}
    taken = [t for t in texts[60:] if recognise(t, served)]
    alike = [t for t in taken if max(wording_similarity(t, s) for s in served.values()) >= 0.9]
    assert len(taken) - len(alike) <= 2
    rng = random.Random(5)
    found = 0
    for key, text in served.items():
        kept = [word for word in text.split() if rng.random() >= LEAST_SHARE]
        match = recognise(" ".join(rng.sample(kept, len(kept))), served)
        found += match is not None and match.key == key
    assert found >= 57
