"""The openai embedder against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import openai
import pytest

from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.embeddings.providers.openai import (
    MAX_BATCH_CHARACTERS,
    MAX_BATCH_TEXTS,
    MAX_CHARACTERS,
    OpenAIEmbedder,
    open_openai,
    split_batches,
)
from tests.embeddings.conftest import Stub

DIMENSIONS = 16
BUSY = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}


@pytest.fixture
async def embedder(stub: Stub) -> AsyncIterator[OpenAIEmbedder]:
    client = openai.AsyncOpenAI(api_key="sk-test", base_url=stub.url, max_retries=0)
    made = OpenAIEmbedder(
        client, model="some-model", dimensions=DIMENSIONS, first_delay=0.01, timeout=1.0
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


async def test_query_is_the_vector_of_its_text(stub: Stub, embedder: OpenAIEmbedder) -> None:
    np.testing.assert_allclose(await embedder.embed_query("q"), expected(stub, "q"), rtol=1e-5)


async def test_request_fields(stub: Stub, embedder: OpenAIEmbedder) -> None:
    await embedder.embed_documents(["a"])
    sent = stub.requests[0]
    assert sent["model"] == "some-model"
    assert sent["dimensions"] == DIMENSIONS
    assert sent["input"] == ["a"]
    assert stub.headers[0]["authorization"] == "Bearer sk-test"


async def test_many_texts_are_sent_in_batches_and_keep_order(
    stub: Stub, embedder: OpenAIEmbedder
) -> None:
    texts = [f"text {i}" for i in range(2 * MAX_BATCH_TEXTS + 3)]
    rows = await embedder.embed_documents(texts)
    assert [len(r["input"]) for r in stub.requests] == [MAX_BATCH_TEXTS, MAX_BATCH_TEXTS, 3]
    for i in (0, MAX_BATCH_TEXTS - 1, MAX_BATCH_TEXTS, 2 * MAX_BATCH_TEXTS + 2):
        np.testing.assert_allclose(rows[i], expected(stub, texts[i]), rtol=1e-5)


def test_long_texts_make_smaller_batches() -> None:
    texts = ["x" * (MAX_CHARACTERS * 2)] * (MAX_BATCH_CHARACTERS // MAX_CHARACTERS + 1)
    assert [len(group) for group in split_batches(texts)] == [
        MAX_BATCH_CHARACTERS // MAX_CHARACTERS,
        1,
    ]


async def test_blank_texts_are_not_sent_and_give_zero_vectors(
    stub: Stub, embedder: OpenAIEmbedder
) -> None:
    rows = await embedder.embed_documents(["", "word", " \n"])
    assert stub.requests[0]["input"] == ["word"]
    assert not rows[0].any()
    assert not rows[2].any()
    np.testing.assert_allclose(rows[1], expected(stub, "word"), rtol=1e-5)
    assert (await embedder.embed_documents([])).shape == (0, DIMENSIONS)
    assert len(stub.requests) == 1


async def test_long_text_and_lone_surrogates_are_sanitized(
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
async def test_transient_errors_are_retried(
    stub: Stub, embedder: OpenAIEmbedder, fault: Any
) -> None:
    stub.faults = [fault]
    np.testing.assert_allclose(await embedder.embed_query("q"), expected(stub, "q"), rtol=1e-5)
    assert len(stub.requests) == 2


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("wrong count", "sent 2 texts, received 1 vectors"),
        ("wrong dimension", r"\{17\}, expected length 16"),
        ("same index", "sent 2 texts"),
        ("zero", "zero or not finite"),
        ("nan", "zero or not finite"),
        ("inf", "zero or not finite"),
        ((200, {}, {"object": "list", "data": []}), "No embedding data"),
        ((200, {"Content-Type": "text/html"}, "<html>hello</html>"), "returned no embeddings"),
        ((200, {}, "{cut"), "returned no embeddings"),
        ((401, {}, {"error": {"message": "bad key"}}), "bad key"),
        ((429, {}, {"error": {"message": "pay", "code": "insufficient_quota"}}), "pay"),
        ((429, {"Retry-After": "3600"}, BUSY), "slow down"),
    ],
)
async def test_permanent_errors_are_logged_and_raised_at_once(
    stub: Stub, embedder: OpenAIEmbedder, logs: list[Any], fault: Any, cause: str
) -> None:
    stub.faults = [fault]
    with pytest.raises(EmbedderUnavailable, match=cause):
        await embedder.embed_documents(["a", "b"])
    assert len(stub.requests) == 1
    assert [entry["event"] for entry in logs] == ["embedding_failed"]


async def test_retries_are_limited(stub: Stub, embedder: OpenAIEmbedder) -> None:
    stub.faults = [(500, {}, "oops")] * 5
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("q")
    assert len(stub.requests) == 3


async def test_slow_server_is_unavailable(stub: Stub) -> None:
    client = openai.AsyncOpenAI(api_key="k", base_url=stub.url, max_retries=0)
    embedder = OpenAIEmbedder(client, model="m", dimensions=4, attempts=1, timeout=0.05)
    stub.faults = ["slow"]
    with pytest.raises(EmbedderUnavailable, match=r"no answer within 0\.05 s"):
        await embedder.embed_query("q")
    await embedder.aclose()


async def test_unreachable_server_is_unavailable() -> None:
    client = openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
    embedder = OpenAIEmbedder(client, model="m", dimensions=4, first_delay=0.0)
    with pytest.raises(EmbedderUnavailable, match="Connection"):
        await embedder.embed_query("q")
    await embedder.aclose()


async def test_dimensions_are_not_sent_to_model_of_fixed_length(stub: Stub) -> None:
    stub.fixed = True
    embedder = open_openai(model="m", api_key=None, base_url=stub.url, dimensions=stub.native)
    assert (await embedder.embed_documents(["a"])).shape == (1, stub.native)
    await embedder.embed_query("b")
    assert ["dimensions" in request for request in stub.requests] == [True, False, False]
    fresh = open_openai(model="m", api_key=None, base_url=stub.url, dimensions=stub.native)
    await asyncio.gather(*(fresh.embed_query(text) for text in "abcdef"))  # all asked, all refused
    await fresh.aclose()
    wrong = open_openai(model="m", api_key=None, base_url=stub.url, dimensions=stub.native - 1)
    with pytest.raises(EmbedderUnavailable, match="expected length"):
        await wrong.embed_query("c")
    await embedder.aclose()
    await wrong.aclose()


def test_defaults_and_required_options() -> None:
    default = open_openai(model=None, api_key="k", base_url=None, dimensions=None)
    assert (default.model, default.dimensions) == ("openai/text-embedding-3-small@1024", 1024)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        open_openai(model=None, api_key=None, base_url=None, dimensions=None)
    with pytest.raises(ValueError, match="HANSEI_EMBEDDING_DIMENSIONS"):
        open_openai(model="nomic", api_key=None, base_url="http://127.0.0.1:1", dimensions=None)
