"""The documents' names: create_chat_model and LLMClient (spec 2; S2.34 to S2.36)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memory_api.library.llm_client import LLMClient, create_chat_model
from memory_api.llm.errors import LLMAuthenticationFailed
from memory_api.llm.port import LLM, Message
from memory_api.llm.registry import PROVIDERS, open_llm
from tests.support.cases import each_case
from tests.support.stub_provider import StubProvider, answer, unauthorized

TRACE = 'print(f"{x}") {{not}} {question} {"a": {"b": 1}} {0} %s $x'


@pytest.fixture
def client(stub: StubProvider) -> Iterator[LLMClient]:
    model = create_chat_model("openai", "some-model", base_url=stub.openai_url)
    with LLMClient(model) as opened:
        yield opened


@each_case(
    ("provider", "options"),
    [
        ("openai", {}),
        ("azure", {"base_url": "http://127.0.0.1:1"}),
        ("anthropic", {}),
        ("bedrock", {"region": "eu-west-1"}),
    ],
)
def test_model_is_opened_by_provider_name(provider: str, options: dict[str, Any]) -> None:
    model = create_chat_model(provider, "some-model", api_key="k", **options)
    assert (model.provider, model.model) == (provider, "some-model")


def test_unknown_provider_names_the_choices() -> None:
    with pytest.raises(
        ValueError, match=r"Unknown provider 'cohere'.*openai, openai-responses, azure, anthropic"
    ):
        create_chat_model("cohere", "m")
    with pytest.raises(ValueError, match="'none' has no chat model"):
        create_chat_model("none", "m")


def test_provider_none_has_no_model() -> None:
    assert open_llm("none", model="") is None
    assert "none" in PROVIDERS


@pytest.mark.parametrize("provider", ["openai", "azure", "anthropic"])
def test_missing_api_key_is_reported_at_once(provider: str) -> None:
    with pytest.raises(ValueError, match=f"{provider} needs an API key"):
        open_llm(provider, model="m")


def test_invoke_returns_message(client: LLMClient, stub: StubProvider) -> None:
    stub.queue(answer("first"), answer("second"))
    assert client.invoke([Message("user", "one?")]) == Message("assistant", "first")
    assert client.invoke([Message("user", "two?")]) == Message("assistant", "second")


class HumanMessage:
    """As LangChain's."""

    type, content = "human", "one?"


@each_case(
    "messages",
    [
        "one?",
        ["one?"],
        [("human", "one?")],
        [("user", "one?")],
        [{"role": "user", "content": "one?"}],
        [HumanMessage()],
    ],
)
def test_messages_are_accepted_in_the_forms_of_langchain(
    client: LLMClient, stub: StubProvider, messages: Any
) -> None:
    client.invoke(messages)
    assert [(m["role"], m["content"]) for m in stub.calls[0].body["messages"]] == [("user", "one?")]


def test_roles_are_kept(client: LLMClient, stub: StubProvider) -> None:
    client.invoke([("system", "Be short."), ("ai", "Yes?"), {"role": "human", "content": "Go."}])
    sent = [(m["role"], m["content"]) for m in stub.calls[0].body["messages"]]
    assert sent == [("system", "Be short."), ("assistant", "Yes?"), ("user", "Go.")]


@each_case(
    "messages",
    [
        None,
        {"role": "user", "content": "x"},
        7,
        [7],
        [("nobody", "x")],
        [{"role": "user"}],
        [("user", 7)],
        [("a", "b", "c")],
        [None],
    ],
)
def test_other_messages_are_refused_in_one_line(
    client: LLMClient, stub: StubProvider, logs: list[dict[str, Any]], messages: Any
) -> None:
    with pytest.raises(TypeError) as raised:
        client.invoke(messages)
    assert "\n" not in str(raised.value)
    assert logs[-1]["event"] == "llm_messages_invalid"
    assert logs[-1]["exc_info"] is raised.value
    assert stub.calls == []


def test_template_is_filled_in(client: LLMClient, stub: StubProvider) -> None:
    stub.queue(answer("done"))
    values = {"question": "why?", "count": 5}
    text = client.invoke_with_template("Q{count}: {question}\nLike {{this}}", values)
    assert text == "done"
    assert stub.calls[0].user == "Q5: why?\nLike {this}"


def test_braces_in_value_are_unchanged(client: LLMClient, stub: StubProvider) -> None:
    client.invoke_with_template("<{trace}> {question}", {"trace": TRACE, "question": TRACE})
    assert stub.calls[0].user == f"<{TRACE}> {TRACE}"


def test_failure_is_logged_and_raised_again(
    client: LLMClient, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    stub.queue(unauthorized(), unauthorized())
    with pytest.raises(LLMAuthenticationFailed):
        client.invoke([Message("user", "x")])
    with pytest.raises(LLMAuthenticationFailed):
        client.invoke_with_template("x", {})
    assert [(entry["event"], entry["error_type"]) for entry in logs] == [
        ("llm_failed", "LLMAuthenticationFailed"),
        ("llm_failed", "LLMAuthenticationFailed"),
    ]
    assert all(isinstance(entry["exc_info"], LLMAuthenticationFailed) for entry in logs)
    assert all(entry["error"] == str(entry["exc_info"]) for entry in logs)


def test_missing_variable_is_logged_and_raised(
    client: LLMClient, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    with pytest.raises(ValueError, match=r"\{name\} has no value"):
        client.invoke_with_template("Hello {name}", {})
    assert [entry["event"] for entry in logs] == ["llm_template_failed"]
    assert stub.calls == []


async def test_synchronous_methods_refuse_to_run_in_event_loop(
    llm: LLM, stub: StubProvider
) -> None:
    client = LLMClient(llm)
    with pytest.raises(RuntimeError, match="event loop"):
        client.invoke([Message("user", "x")])
    assert stub.calls == []
    assert (await client.ainvoke([Message("user", "x")])).content == "ok"
    assert await client.ainvoke_with_template("{x}", {"x": "y"}) == "ok"
