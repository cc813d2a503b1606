"""A provider that redirects: the prompt must not follow to another host."""

from __future__ import annotations

import pytest

from memory_api.core.errors import HanseiError
from memory_api.embeddings.providers.openai import open_openai as open_openai_embedder
from memory_api.llm.errors import LLMBadRequest
from memory_api.llm.port import LLM, LLMRequest, Message
from tests.support.stub_provider import StubProvider
from tests.support.stub_provider.behaviours import Fail

QUESTION = LLMRequest((Message("user", "a private prompt"),), timeout=10)


def redirect_to(other: StubProvider) -> Fail:
    return Fail(307, "redirect", "moved", headers={"location": f"{other.url}/v1/chat/completions"})


async def test_prompt_does_not_follow_a_redirect(llm: LLM, stub: StubProvider) -> None:
    with StubProvider() as other:
        stub.queue(redirect_to(other))
        with pytest.raises(LLMBadRequest, match="307"):
            await llm.complete(QUESTION)
        assert other.calls == []


async def test_texts_to_embed_do_not_follow_a_redirect(stub: StubProvider) -> None:
    embedder = open_openai_embedder(model="m", api_key="k", base_url=stub.openai_url, dimensions=8)
    with StubProvider() as other:
        stub.queue(redirect_to(other))
        with pytest.raises(HanseiError):
            await embedder.embed_documents(["private"])
        assert other.calls == []
    await embedder.aclose()
