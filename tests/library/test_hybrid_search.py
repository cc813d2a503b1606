"""HybridSearch: spec 2's formula, properties 4 to 6, and the client's plain face on an async
embedder.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from memory_api.library.hybrid_search import (
    EmbeddingClient,
    HybridSearch,
    combine_scores,
    cosines,
    minmax,
    okapi_bm25,
)
from memory_api.playbooks.models import Bullet, Playbook, SearchQuery
from tests.support.cases import each_case
from tests.support.playbook_strategies import playbooks, section_names, texts


class LetterModel:
    """Embeds a text as how often it holds a, b and c."""

    def embed_query(self, text: str) -> list[float]:
        return [float(text.count(letter)) for letter in "abc"]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class AsyncLetterModel:
    """The same, awaited, on connections that live on one loop as an HTTP client's do."""

    loop: asyncio.AbstractEventLoop | None = None

    async def embed_query(self, text: str) -> np.ndarray:
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop()
        return np.asarray(LetterModel().embed_query(text), dtype=np.float32)

    async def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([await self.embed_query(text) for text in texts])


def searcher(alpha: float = 0.5) -> HybridSearch:
    return HybridSearch(EmbeddingClient(LetterModel()), alpha)


def bullet(key: str, text: str, **rest: object) -> Bullet:
    return Bullet.model_validate({"id": key, "section": "s", "content": text, **rest})


# Feature: self-reflection-system, Property 4: combined = alpha * vector + (1 - alpha) * bm25
@settings(max_examples=100)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_property_4_combined_score(vector: float, bm25: float, alpha: float) -> None:
    combined = combine_scores(vector, bm25, alpha)
    assert combined == alpha * vector + (1 - alpha) * bm25
    assert min(vector, bm25) - 1e-9 <= combined <= max(vector, bm25) + 1e-9


# Feature: self-reflection-system, Property 4: combined = alpha * vector + (1 - alpha) * bm25
@settings(max_examples=100)
@given(playbooks(), texts, st.floats(0, 1))
def test_property_4_holds_for_every_hit(playbook: Playbook, text: str, alpha: float) -> None:
    for hit in searcher(alpha).search(SearchQuery(query_text=text), playbook):
        assert hit.combined_score == alpha * hit.vector_score + (1 - alpha) * hit.bm25_score
        assert 0 <= hit.vector_score <= 1
        assert 0 <= hit.bm25_score <= 1


# Feature: self-reflection-system, Property 5: hits are in the section filter and confident enough
@settings(max_examples=100)
@given(playbooks(), texts, st.lists(section_names, min_size=1, max_size=2), st.floats(0, 1))
def test_property_5_filters(
    playbook: Playbook, text: str, sections: list[str], confidence: float
) -> None:
    query = SearchQuery(
        query_text=text, top_k=100, section_filter=sections, min_confidence=confidence
    )
    hits = {hit.bullet.id for hit in searcher().search(query, playbook)}
    assert hits == {
        b.id for b in playbook.bullets if b.section in sections and b.confidence_score >= confidence
    }


def test_additional_filters() -> None:
    shop = bullet("1", "a b", section="MISTAKES TO AVOID", tags=["shop"])
    rest = bullet("2", "a b", section="Mistakes to avoid")
    aside = bullet("3", "a b", section="OTHERS", status="quarantined")
    playbook = Playbook(bullets=[shop, rest, aside])

    def found(**more: Any) -> list[str]:
        query = SearchQuery.model_validate({"query_text": "a"} | more)
        return [hit.bullet.id for hit in searcher().search(query, playbook)]

    for name in ("mistakes_to_avoid", "MISTAKES TO AVOID", "mis"):
        assert found(section_filter=[name]) == ["1", "2"]
        query = SearchQuery(query_text="a", section_filter=[name])
        assert {hit.bullet.section for hit in searcher().search(query, playbook)} == {name}
    assert [bullet.section for bullet in playbook.bullets] == [shop.section, rest.section, "OTHERS"]
    assert found(section_filter=["mis"], tags=["shop", "net"]) == ["1"]
    assert found(tags=["net"]) == []
    assert found(status="quarantined") == ["3"]
    assert found(status="archived") == []


# Feature: self-reflection-system, Property 6: hits are sorted by combined score, at most top_k
@settings(max_examples=100)
@given(playbooks(), texts, st.integers(0, 10))
def test_property_6_order_and_top_k(playbook: Playbook, text: str, top_k: int) -> None:
    query = SearchQuery(query_text=text, top_k=top_k, min_confidence=0)
    hits = searcher().search(query, playbook)
    scores = [hit.combined_score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(hits) == min(top_k, len(playbook.bullets))


def test_scores_match_hand_calculation() -> None:
    contents = ["a retry", "b b", "a b wait", "c"]
    playbook = Playbook(bullets=[bullet(str(n), text) for n, text in enumerate(contents)])
    hits = searcher(0.25).search(SearchQuery(query_text="a retry"), playbook)
    scores = [(h.bullet.id, h.vector_score, h.bm25_score, h.combined_score) for h in hits]
    near = 2 / math.sqrt(5)  # "a b wait" holds a twice and b once; "retry" is in one text alone
    assert scores == [
        ("0", 1.0, 1.0, 1.0),
        ("2", pytest.approx(near), 0.0, pytest.approx(0.25 * near)),
        ("1", 0.0, 0.0, 0.0),
        ("3", 0.0, 0.0, 0.0),
    ]


def test_bm25_matches_rank_bm25() -> None:
    corpus = [
        "retry the call after a timeout",
        "never retry a payment",
        "ask for the order number",
        "log the timeout and retry",
    ]
    scores = okapi_bm25(["retry", "the", "timeout", "timeout"], [text.split() for text in corpus])
    # BM25Okapi of rank_bm25 0.2.2 with its defaults
    assert scores == pytest.approx(
        [0.2220964247410757, 0.13301379283943543, 0.12104255148388622, 0.24208510296777244]
    )


@each_case("corpus", [[[]], [[], []], [["a"]], [["a"], ["a"]], [["a"], []]])
def test_bm25_of_tiny_corpus_is_finite(corpus: list[list[str]]) -> None:
    assert all(math.isfinite(score) for score in okapi_bm25(["a", "z"], corpus))
    assert len(okapi_bm25(["a"], corpus)) == len(corpus)


@settings(max_examples=100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_minmax_spans_0_to_1_or_is_one_half(scores: list[float]) -> None:
    scaled = minmax(scores)
    assert set(scaled) == {0.5} or (min(scaled), max(scaled)) == (0.0, 1.0)
    assert minmax([scores[0]] * 3) == [0.5] * 3


def test_equal_bullets_score_one_half_and_keep_order() -> None:
    playbook = Playbook(bullets=[bullet(str(n), "abc cab") for n in range(7)])
    hits = searcher().search(SearchQuery(query_text="a b"), playbook)
    assert [hit.bullet.id for hit in hits] == [str(n) for n in range(7)]
    assert {(hit.vector_score, hit.bm25_score) for hit in hits} == {(0.5, 0.5)}


def test_zero_vectors_are_handled() -> None:
    assert cosines([0.0, 0.0], [[1.0, 0.0]]) == [0.0]
    assert cosines([1.0, 0.0], [[0.0, 0.0], [2.0, 0.0], [-3.0, 0.0]]) == [0.0, 1.0, -1.0]


def test_empty_playbook_is_searched_without_embedding() -> None:
    class Refuses:
        def embed_query(self, text: str) -> list[float]:
            raise AssertionError("not to be called")

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise AssertionError("not to be called")

    search = HybridSearch(Refuses())
    assert search.search(SearchQuery(query_text="a"), Playbook()) == []
    bad = Playbook(bullets=[bullet("1", "a", harmful=9), bullet("2", "a", status="quarantined")])
    assert search.search(SearchQuery(query_text="a"), bad) == []


def test_empty_section_filter_filters_nothing() -> None:
    playbook = Playbook(bullets=[bullet("1", "a")])
    query = SearchQuery(query_text="a", section_filter=[])
    assert len(searcher().search(query, playbook)) == 1


class Failing(LetterModel):
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ConnectionError("provider away"), ConnectionError),
        ([[1.0, 2.0]], ValueError),
        ([[1.0, 2.0, float("nan")]], ValueError),
        ([], ValueError),
    ],
)
def test_failed_embedding_is_logged_and_raised(answer: object, error: type[Exception]) -> None:
    search = HybridSearch(EmbeddingClient(Failing(answer)))
    with capture_logs() as logs, pytest.raises(error):
        search.search(SearchQuery(query_text="a"), Playbook(bullets=[bullet("1", "a")]))
    assert [each["log_level"] for each in logs] == ["error"]


class FailingQuery(LetterModel):
    def embed_query(self, text: str) -> list[float]:
        raise ConnectionError("provider away")


def test_embedding_client_logs_its_failure() -> None:
    failure = ConnectionError("provider away")
    with capture_logs() as logs:
        with pytest.raises(ConnectionError):
            EmbeddingClient(Failing(failure)).embed_documents(["a"])
        with pytest.raises(ConnectionError):
            EmbeddingClient(FailingQuery()).embed_query("a")
    assert [each["event"] for each in logs] == ["embedding_failed"] * 2
    assert logs[0]["exc_info"] is failure


def test_failure_of_another_client_is_logged_once() -> None:
    search = HybridSearch(FailingQuery())
    with capture_logs() as logs, pytest.raises(ConnectionError):
        search.search(SearchQuery(query_text="a"), Playbook(bullets=[bullet("1", "a")]))
    assert len(logs) == 1


LEAKING = """
from memory_api.library.hybrid_search import EmbeddingClient

class Model:
    def embed_documents(self, texts):
        raise ConnectionError("Incorrect API key: sk-proj-" + "a1B2c3D4" * 6)

EmbeddingClient(Model()).embed_documents(["a"])
"""


def test_logged_failure_has_no_secret() -> None:
    """As in a program that has not configured logging."""
    done = subprocess.run(
        [sys.executable, "-c", LEAKING], capture_output=True, text=True, check=False
    )
    logged, raised = done.stderr.split("Traceback", 2)[1:]
    assert "Incorrect API key" in logged
    assert "a1B2c3D4" * 6 not in logged, "Python 3.13 shows the source of the program, too"
    assert "a1B2c3D4" in raised  # what the program itself prints


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_alpha_is_between_0_and_1(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        searcher(alpha)


def test_async_embedder_gives_same_results() -> None:
    playbook = Playbook(bullets=[bullet("1", "a cab"), bullet("2", "b"), bullet("3", "c c a")])
    query = SearchQuery(query_text="a c")
    client = EmbeddingClient(AsyncLetterModel())
    hits = [(h.bullet.id, h.combined_score) for h in HybridSearch(client).search(query, playbook)]
    client.close()
    expected = [(h.bullet.id, h.combined_score) for h in searcher().search(query, playbook)]
    assert hits == [(key, pytest.approx(score)) for key, score in expected]


async def test_async_embedder_is_refused_inside_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        EmbeddingClient(AsyncLetterModel()).embed_query("a")
    assert EmbeddingClient(LetterModel()).embed_query("a") == [1.0, 0.0, 0.0]


def test_custom_tokenizer_finds_japanese_words() -> None:
    playbook = Playbook(
        bullets=[bullet("1", "注文を確認する"), bullet("2", "返金を待つ"), bullet("3", "猫")]
    )
    query = SearchQuery(query_text="確認")
    plain = HybridSearch(EmbeddingClient(LetterModel()), 0.0).search(query, playbook)
    assert {hit.bm25_score for hit in plain} == {0.5}
    by_character = HybridSearch(EmbeddingClient(LetterModel()), 0.0, tokenize=list)
    assert by_character.search(query, playbook)[0].bullet.id == "1"
