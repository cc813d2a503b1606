"""The stub itself: its shapes are those of recorded exchanges, and nothing else can be reached."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from memory_api.llm.errors import LLMError
from memory_api.llm.port import LLMRequest, Message
from memory_api.llm.registry import open_llm
from tests.support.paths import ROOT
from tests.support.stub_provider import BY_NAME, StubProvider, answer
from tests.support.stub_provider.guard import RealProviderReached

RECORDED = ROOT.parent / "shared" / "data" / "llm_messages_vcr.jsonl"

needs_recordings = pytest.mark.skipif(not RECORDED.exists(), reason="shared/data is not here")


def events(uri: str) -> Iterator[dict[str, Any]]:
    """The data of recorded server-sent events of one route."""
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        exchange = json.loads(line)
        if exchange["uri"].endswith(uri) and isinstance(exchange["response"], str):
            for event in exchange["response"].splitlines():
                if event.startswith("data: {"):
                    yield json.loads(event.removeprefix("data: "))


def post(stub: StubProvider, path: str, body: dict[str, Any]) -> dict[str, Any]:
    return httpx2.post(f"{stub.url}{path}", json=body).json()


@needs_recordings
def test_chat_response_matches_recordings(stub: StubProvider) -> None:
    ours = post(stub, "/v1/chat/completions", {"model": "m", "messages": []})
    recorded = [event for event in events("/chat/completions") if event.get("usage")]
    assert any(ours.keys() == event.keys() - {"obfuscation"} for event in recorded)
    assert any(ours["usage"].keys() == event["usage"].keys() for event in recorded)
    details = recorded[0]["usage"]["prompt_tokens_details"]
    assert ours["usage"]["prompt_tokens_details"].keys() == details.keys()


@needs_recordings
def test_responses_response_matches_recordings(stub: StubProvider) -> None:
    ours = post(stub, "/v1/responses", {"model": "m", "input": "hi"})
    done = [e["response"] for e in events("/responses") if e["type"] == "response.completed"]
    assert any(ours.keys() == response.keys() for response in done)
    assert any(ours["usage"].keys() == response["usage"].keys() for response in done)
    messages = [part for response in done for part in response["output"]]
    assert any(ours["output"][0].keys() == part.keys() for part in messages)


@needs_recordings
def test_messages_response_matches_recordings(stub: StubProvider) -> None:
    ours = post(stub, "/v1/messages", {"model": "m", "messages": [], "max_tokens": 1})
    started = [e["message"] for e in events("/v1/messages") if e["type"] == "message_start"]
    assert all(ours.keys() == message.keys() for message in started)
    assert all(ours["usage"].keys() == message["usage"].keys() for message in started)


def test_openai_sdk_reads_responses_and_embeddings(stub: StubProvider) -> None:
    with openai.OpenAI(api_key="k", base_url=stub.openai_url, max_retries=0) as client:
        response = client.responses.create(model="m", input="hi", instructions="be brief")
        assert response.output_text == "ok"
        found = client.embeddings.create(model="m", input=["a", "b", "a"], dimensions=8)
        plain = client.embeddings.create(
            model="m", input="a", dimensions=8, encoding_format="float"
        )
    first, second, third = (item.embedding for item in found.data)
    assert first == third != second
    assert len(first) == 8
    assert sum(x * x for x in first) == pytest.approx(1)
    assert plain.data[0].embedding == pytest.approx(first, abs=1e-6)
    assert stub.calls[0].system == "be brief"


def test_anthropic_sdk_reads_messages(stub: StubProvider) -> None:
    with anthropic.Anthropic(api_key="k", base_url=stub.anthropic_url, max_retries=0) as client:
        turns: Any = [{"role": "user", "content": "hi"}]
        message = client.messages.create(model="m", max_tokens=5, messages=turns)
    assert message.content[0].type == "text"
    assert message.stop_reason == "end_turn"


def test_model_name_selects_misbehavior(stub: StubProvider) -> None:
    body = {"messages": [{"role": "user", "content": "reply with: pwned"}]}
    assert "error" in post(stub, "/v1/chat/completions", body | {"model": "stub-429"})
    obeyed = post(stub, "/v1/chat/completions", body | {"model": "stub-obey"})
    assert obeyed["choices"][0]["message"]["content"] == "pwned"
    assert {"stub-hang", "stub-reset", "stub-quota", "stub-529", "stub-refusal"} <= BY_NAME.keys()


def test_queued_behavior_comes_first_and_clear_resets(stub: StubProvider) -> None:
    stub.queue(answer("queued"))
    body: dict[str, Any] = {"model": "m", "messages": []}
    texts = [
        post(stub, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
        for _ in range(2)
    ]
    assert texts == ["queued", "ok"]
    assert [call.number for call in stub.calls] == [1, 2]
    stub.clear()
    assert stub.calls == []


def test_stub_runs_as_process() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.support.stub_provider", "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().endswith(f":{port}/v1\n".encode())
            answered = httpx2.post(
                f"http://127.0.0.1:{port}/v1/responses", json={"model": "m", "input": "x"}
            )
            assert answered.json()["status"] == "completed"
        finally:
            process.terminate()


@pytest.mark.parametrize("provider", ["openai", "anthropic", "bedrock"])
async def test_no_client_reaches_a_real_provider(provider: str) -> None:
    options = {"region": "us-east-1"} if provider == "bedrock" else {}
    llm = open_llm(provider, model="m", api_key="k", **options)
    assert llm is not None
    with pytest.raises((RealProviderReached, LLMError)) as caught:
        await llm.complete(LLMRequest((Message("user", "hi"),), timeout=5))
    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    assert any(isinstance(error, RealProviderReached) for error in chain)
    await llm.aclose()


def test_no_public_address_is_connected_to() -> None:
    with socket.socket() as client, pytest.raises(RealProviderReached):
        client.connect(("93.184.216.34", 443))
