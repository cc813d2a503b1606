"""The openai embedder against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import openai
import pytest

from apps.memory_api.embeddings.openai import (
    BATCH_CHARACTERS,
    BATCH_TEXTS,
    MAX_CHARACTERS,
    OpenAIEmbedder,
    batches,
    open_openai,
)
from apps.memory_api.embeddings.port import EmbedderFailed
from tests.embeddings.conftest import Stub

DIMENSIONS = 16
BUSY = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}


@pytest.fixture
async def embedder(stub: Stub) -> AsyncIterator[OpenAIEmbedder]:
    client = openai.AsyncOpenAI(api_key="sk-test", base_url=stub.url, max_retries=0)
    made = OpenAIEmbedder(
        client, model="some-model", dimensions=DIMENSIONS, first_wait=0.01, timeout=1.0
    )
    yield made
    await made.aclose()


def expected(stub: Stub, text: str) -> Any:
    vector = np.array(stub.vector(text, DIMENSIONS), np.float32)
    return vector / np.linalg.norm(vector)


async def test_rows_are_unit_and_in_the_order_of_the_texts(
    stub: Stub, embedder: OpenAIEmbedder
) -> None:
    texts = ["one", "two", "three"]
    rows = await embedder.embed_documents(texts)
    assert rows.shape == (3, DIMENSIONS)
    assert rows.dtype == np.float32
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_allclose(row, expected(stub, text), rtol=1e-5)


async def test_a_query_is_the_vector_of_its_text(stub: Stub, embedder: OpenAIEmbedder) -> None:
    np.testing.assert_allclose(await embedder.embed_query("q"), expected(stub, "q"), rtol=1e-5)


async def test_what_is_sent(stub: Stub, embedder: OpenAIEmbedder) -> None:
    await embedder.embed_documents(["a"])
    sent = stub.requests[0]
    assert sent["model"] == "some-model"
    assert sent["dimensions"] == DIMENSIONS
    assert sent["input"] == ["a"]
    assert stub.headers[0]["authorization"] == "Bearer sk-test"


async def test_many_texts_go_in_several_requests_and_come_back_in_order(
    stub: Stub, embedder: OpenAIEmbedder
) -> None:
    texts = [f"text {i}" for i in range(2 * BATCH_TEXTS + 3)]
    rows = await embedder.embed_documents(texts)
    assert [len(r["input"]) for r in stub.requests] == [BATCH_TEXTS, BATCH_TEXTS, 3]
    for i in (0, BATCH_TEXTS - 1, BATCH_TEXTS, 2 * BATCH_TEXTS + 2):
        np.testing.assert_allclose(rows[i], expected(stub, texts[i]), rtol=1e-5)


def test_long_texts_fill_a_request_sooner() -> None:
    texts = ["x" * (MAX_CHARACTERS * 2)] * (BATCH_CHARACTERS // MAX_CHARACTERS + 1)
    assert [len(group) for group in batches(texts)] == [BATCH_CHARACTERS // MAX_CHARACTERS, 1]


async def test_blank_texts_are_not_sent_and_have_zero_rows(
    stub: Stub, embedder: OpenAIEmbedder
) -> None:
    rows = await embedder.embed_documents(["", "word", " \n"])
    assert stub.requests[0]["input"] == ["word"]
    assert not rows[0].any()
    assert not rows[2].any()
    np.testing.assert_allclose(rows[1], expected(stub, "word"), rtol=1e-5)
    assert (await embedder.embed_documents([])).shape == (0, DIMENSIONS)
    assert len(stub.requests) == 1


async def test_long_text_and_lone_surrogates_are_made_sendable(
    stub: Stub, embedder: OpenAIEmbedder
) -> None:
    await embedder.embed_documents(["x" * 50_000, "a\ud800b"])
    assert stub.requests[0]["input"] == ["x" * MAX_CHARACTERS, "a?b"]


@pytest.mark.parametrize(
    "fault",
    [
        (429, {"Retry-After": "0"}, BUSY),
        (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, BUSY),
        (500, {}, "oops"),
        (503, {}, {"error": {"message": "overloaded"}}),
        "slow",
    ],
)
async def test_passing_faults_are_tried_again(
    stub: Stub, embedder: OpenAIEmbedder, fault: Any
) -> None:
    stub.faults = [fault]
    np.testing.assert_allclose(await embedder.embed_query("q"), expected(stub, "q"), rtol=1e-5)
    assert len(stub.requests) == 2


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("wrong count", "2 texts were sent, 1 vectors"),
        ("wrong dimension", r"\{17\} numbers came, 16 are expected"),
        ("same index", "2 texts were sent"),
        ("zero", "zero or not finite"),
        ("nan", "zero or not finite"),
        ("inf", "zero or not finite"),
        ((200, {}, {"object": "list", "data": []}), "No embedding data"),
        ((200, {"Content-Type": "text/html"}, "<html>hello</html>"), "no embeddings"),
        ((200, {}, "{cut"), "no embeddings"),
        ((401, {}, {"error": {"message": "bad key"}}), "bad key"),
        ((429, {}, {"error": {"message": "pay", "code": "insufficient_quota"}}), "pay"),
        ((429, {"Retry-After": "3600"}, BUSY), "slow down"),
    ],
)
async def test_lasting_faults_are_logged_and_raised_after_one_attempt(
    stub: Stub, embedder: OpenAIEmbedder, logs: list[Any], fault: Any, cause: str
) -> None:
    stub.faults = [fault]
    with pytest.raises(EmbedderFailed, match=cause):
        await embedder.embed_documents(["a", "b"])
    assert len(stub.requests) == 1
    assert [entry["event"] for entry in logs] == ["embedding failed"]


async def test_attempts_end(stub: Stub, embedder: OpenAIEmbedder) -> None:
    stub.faults = [(500, {}, "oops")] * 5
    with pytest.raises(EmbedderFailed):
        await embedder.embed_query("q")
    assert len(stub.requests) == 3


async def test_a_server_that_never_answers_in_time(stub: Stub) -> None:
    client = openai.AsyncOpenAI(api_key="k", base_url=stub.url, max_retries=0)
    embedder = OpenAIEmbedder(client, model="m", dimensions=4, attempts=1, timeout=0.05)
    stub.faults = ["slow"]
    with pytest.raises(EmbedderFailed, match=r"no answer within 0\.05 s"):
        await embedder.embed_query("q")
    await embedder.aclose()


async def test_a_server_that_is_away() -> None:
    client = openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
    embedder = OpenAIEmbedder(client, model="m", dimensions=4, first_wait=0.0)
    with pytest.raises(EmbedderFailed, match="Connection"):
        await embedder.embed_query("q")
    await embedder.aclose()


async def test_a_model_of_one_length_is_not_asked_for_it(stub: Stub) -> None:
    stub.fixed = True
    embedder = open_openai(model="m", api_key=None, base_url=stub.url, dimensions=stub.native)
    assert (await embedder.embed_documents(["a"])).shape == (1, stub.native)
    await embedder.embed_query("b")
    assert ["dimensions" in request for request in stub.requests] == [True, False, False]
    fresh = open_openai(model="m", api_key=None, base_url=stub.url, dimensions=stub.native)
    await asyncio.gather(*(fresh.embed_query(text) for text in "abcdef"))  # all asked, all refused
    await fresh.aclose()
    wrong = open_openai(model="m", api_key=None, base_url=stub.url, dimensions=stub.native - 1)
    with pytest.raises(EmbedderFailed, match="are expected"):
        await wrong.embed_query("c")
    await embedder.aclose()
    await wrong.aclose()


def test_defaults_and_what_must_be_said() -> None:
    default = open_openai(model=None, api_key="k", base_url=None, dimensions=None)
    assert (default.model, default.dimensions) == ("openai/text-embedding-3-small@1024", 1024)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        open_openai(model=None, api_key=None, base_url=None, dimensions=None)
    with pytest.raises(ValueError, match="HANSEI_EMBEDDING_DIMENSIONS"):
        open_openai(model="nomic", api_key=None, base_url="http://127.0.0.1:1", dimensions=None)
