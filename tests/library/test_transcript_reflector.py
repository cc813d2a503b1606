"""`run_reflector`, spec 4's reflector as a library, by its scenarios."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from memory_api.bootstrap import wrap_models
from memory_api.library.transcript_reflector import apply_bullet_tags, run_reflector
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.port import LLM, LLMReply, LLMRequest, LLMWrapper
from memory_api.llm.prompts import packaged_prompt_directory
from memory_api.llm.registry import open_llm
from memory_api.llm.wrappers import RetryingLLM
from memory_api.playbooks.models import Playbook
from memory_api.traces.importers.messages import messages_to_events
from memory_api.traces.importers.session_lines import parse_messages
from tests.support.cases import each_case
from tests.support.ledger import MemoryAccounting
from tests.support.stub_provider import (
    StubProvider,
    answer,
    bad_request,
    broken_body,
    fenced,
    hang,
    html_page,
    max_tokens,
    overloaded,
    prose,
    rate_limited,
    refusal,
    reset,
    server_error,
    unauthorized,
)
from tests.support.transcripts import call_of, real_sessions, result_of, tag

EMPTY = {"analysis": "", "bullet_tags": []}
MESSAGES = [
    {"role": "user", "content": "Refactor the parser."},
    {"role": "assistant", "content": "I add type hints as [pat-001] says."},
]
PLAYBOOK = {
    "version": "1.0",
    "sections": {
        "PATTERNS & APPROACHES": [
            {"name": "pat-001", "text": "use type hints", "helpful": 3, "harmful": 0}
        ],
        "MISTAKES TO AVOID": [
            {"name": "mis-001", "text": "no bare except", "helpful": 0, "harmful": 1}
        ],
        "OTHERS": [],
    },
}


GOOD = {"analysis": "Type hints were used well.", "bullet_tags": [tag("pat-001")]}


async def no_wait(_seconds: float) -> None:
    return None


@pytest.fixture
async def bare(stub: StubProvider) -> AsyncIterator[LLM]:
    """A model that tries once; `run_reflector` is to try again."""
    opened = open_llm("anthropic", model="stub", api_key="test", base_url=stub.anthropic_url)
    assert opened is not None
    yield opened
    await opened.aclose()


@pytest.fixture
def model(bare: LLM) -> LLM:
    """The same, tried three times without waiting."""
    return RetryingLLM(bare, sleep=no_wait)


async def test_scn_refl_003_01_analysis_and_tags(model: LLM, stub: StubProvider) -> None:
    stub.queue(answer(GOOD))
    assert await run_reflector(MESSAGES, PLAYBOOK, ["pat-001"], llm=model) == GOOD
    (call,) = stub.calls
    for text in ("Refactor the parser.", "I add type hints as [pat-001] says."):
        assert text in call.user
    assert "[pat-001] helpful=3 harmful=0 :: use type hints" in call.user
    assert call.schema is not None


async def test_scn_refl_003_02_no_citations(model: LLM, stub: StubProvider) -> None:
    stub.queue(answer(GOOD), answer(GOOD))
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=model) == GOOD
    await run_reflector(MESSAGES, PLAYBOOK, ["pat-001", "mis-001"], llm=model)
    without, guided = (c.user.split("Names that the agent cited:")[1][:200] for c in stub.calls)
    assert without.startswith(" (none)")
    assert "pat-001, mis-001" in guided


async def test_playbook_of_spec_2_is_read(model: LLM, stub: StubProvider) -> None:
    """It was taken for an empty playbook, and every tag was dropped."""
    bullet = {"id": "pat-001", "section": "rules", "content": "use type hints"}
    stub.queue(answer(GOOD))
    playbook = Playbook.model_validate({"bullets": [bullet]}).to_document()
    assert await run_reflector(MESSAGES, playbook, ["pat-001"], llm=model) == GOOD
    assert "[pat-001] helpful=0 harmful=0 :: use type hints" in stub.calls[0].user


@pytest.mark.parametrize(
    "empty", [{}, {"sections": {}}, {"sections": {"PATTERNS & APPROACHES": [], "OTHERS": []}}]
)
async def test_scn_refl_003_03_empty_playbook(
    model: LLM, stub: StubProvider, empty: dict[str, Any]
) -> None:
    stub.queue(answer(GOOD))
    result = await run_reflector(MESSAGES, empty, [], llm=model)
    assert result == {"analysis": GOOD["analysis"], "bullet_tags": []}


async def test_scn_refl_004_01_three_tags_intact(model: LLM, stub: StubProvider) -> None:
    three = {
        "analysis": "Mixed results.",
        "bullet_tags": [
            tag("pat-001", "helpful", "Applied correctly"),
            tag("mis-001", "harmful", "Led to a wrong approach"),
            tag("pref-001", "neutral", "Not relevant"),
        ],
    }
    stub.queue(answer(three))
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=model) == three


async def test_scn_refl_004_02_unknown_bullet_is_kept_in_tags(
    model: LLM, stub: StubProvider
) -> None:
    stub.queue(answer({"analysis": "x", "bullet_tags": [tag("pat-999"), tag("pat-001")]}))
    result = await run_reflector(MESSAGES, PLAYBOOK, [], llm=model)
    assert [t["name"] for t in result["bullet_tags"]] == ["pat-999", "pat-001"]
    playbook = json.loads(json.dumps(PLAYBOOK))
    counted = apply_bullet_tags(playbook, result["bullet_tags"])
    assert counted["sections"]["PATTERNS & APPROACHES"][0]["helpful"] == 4


async def test_tag_with_an_unknown_value_is_left_out_and_logged(
    model: LLM, stub: StubProvider, logs: list[Any]
) -> None:
    given = [tag("pat-001", "wonderful"), tag("mis-001", "harmful")]
    stub.queue(answer({"analysis": "x", "bullet_tags": given}))
    result = await run_reflector(MESSAGES, PLAYBOOK, [], llm=model)
    assert [t["name"] for t in result["bullet_tags"]] == ["mis-001"]
    assert [(e["event"], e["count"]) for e in logs if "malformed" in e["event"]] == [
        ("bullet_tags_malformed", 1)
    ]


FAULTS: dict[str, tuple[Any, int]] = {
    "connection": (reset(), 3),
    "rate limit": (rate_limited(), 3),
    "500": (server_error(), 3),
    "overloaded": (overloaded(), 3),
    "html": (html_page(), 3),
    "broken body": (broken_body(), 3),
    "400": (bad_request(), 1),
    "401": (unauthorized(), 1),
    "refusal": (refusal(), 1),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_scn_refl_005_01_a_failing_api_gives_the_empty_result(
    model: LLM, stub: StubProvider, fault: str
) -> None:
    behaviour, exchanges = FAULTS[fault]
    stub.behave = lambda call: behaviour
    assert await run_reflector(MESSAGES, PLAYBOOK, ["pat-001"], llm=model) == EMPTY
    assert len(stub.calls) == exchanges


@pytest.mark.parametrize(
    "text", [answer("free text"), answer("{broken: ["), answer("[1, 2]"), max_tokens(GOOD)]
)
async def test_scn_refl_005_02_unreadable_answer_gives_empty_result(
    model: LLM, stub: StubProvider, text: Any
) -> None:
    stub.behave = lambda call: text
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=model) == EMPTY


async def test_succeeds_after_two_failures(model: LLM, stub: StubProvider) -> None:
    stub.queue(server_error(), rate_limited(), answer(GOOD))
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=model) == GOOD
    assert len(stub.calls) == 3


async def test_retries_three_times_with_growing_delay(bare: LLM, stub: StubProvider) -> None:
    waits: list[float] = []

    async def remember(seconds: float) -> None:
        waits.append(seconds)

    stub.behave = lambda call: server_error()
    longest = partial(RetryingLLM, sleep=remember, uniform=lambda low, high: high)
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=bare, retry=longest) == EMPTY
    assert waits == [2.0, 4.0]
    assert len(stub.calls) == 3


def test_retries_by_default() -> None:
    assert signature(run_reflector).parameters["retry"].default is RetryingLLM


@pytest.mark.parametrize("models", [1, 2])
async def test_retries_do_not_multiply(bare: LLM, stub: StubProvider, models: int) -> None:
    """The service's own chain tries again already, of several models each."""
    chain = wrap_models(
        [bare] * models,
        accounting=MemoryAccounting(),
        circuit_breakers=CircuitBreakers(),
        retry=partial(RetryingLLM, sleep=no_wait),
    )
    stub.behave = lambda call: server_error()
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=LLMWrapper(chain)) == EMPTY
    assert len(stub.calls) == 3 * models


@pytest.mark.parametrize("wrapped", [fenced, prose])
async def test_scn_refl_008_wrapped_json_is_read(
    model: LLM, stub: StubProvider, wrapped: Any
) -> None:
    stub.queue(wrapped(GOOD))
    assert await run_reflector(MESSAGES, PLAYBOOK, ["pat-001"], llm=model) == GOOD
    assert len(stub.calls) == 1


@pytest.mark.parametrize(
    ("partly", "read"),
    [
        ({"analysis": "only this"}, {"analysis": "only this", "bullet_tags": []}),
        ({"bullet_tags": [tag("pat-001")]}, {"analysis": "", "bullet_tags": [tag("pat-001")]}),
        ({}, EMPTY),
        ({"analysis": None, "bullet_tags": {"a": 1}}, EMPTY),
        (
            {"analysis": "x", "bullet_tags": ["y", {"name": "z"}, tag("pat-001", "splendid")]},
            {"analysis": "x", "bullet_tags": []},
        ),
    ],
)
async def test_missing_fields_are_empty(
    model: LLM, stub: StubProvider, partly: Any, read: Any
) -> None:
    stub.queue(answer(partly))
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=model) == read
    assert len(stub.calls) == 1


class Broken:
    """A model that breaks in a way no model should."""

    provider = model = endpoint = "broken"

    async def complete(self, request: LLMRequest) -> LLMReply:
        raise ZeroDivisionError

    async def aclose(self) -> None:
        return None


@each_case(
    ("messages", "playbook", "cited"),
    [
        (MESSAGES, PLAYBOOK, []),
        (None, PLAYBOOK, []),
        ([None, 7, {"role": "assistant"}], None, None),
        (MESSAGES, {"sections": {"OTHERS": ["a bare text"]}}, [1]),
        ("text", [], {}),
    ],
)
async def test_inv_refl_002_never_raises(messages: Any, playbook: Any, cited: Any) -> None:
    assert await run_reflector(messages, playbook, cited, llm=Broken()) == EMPTY


@each_case(
    "messages",
    [
        [],
        [{"role": "assistant"}],
        [{"role": "user", "content": ""}, {"role": "assistant", "content": " \n"}],
        [{"role": "user", "content": []}],
        ["text", 7, None],
    ],
)
async def test_session_without_usable_message_calls_no_model(
    model: LLM, stub: StubProvider, messages: Any
) -> None:
    assert await run_reflector(messages, PLAYBOOK, ["pat-001"], llm=model) == EMPTY
    assert stub.calls == []


async def test_timeout_gives_empty_result(bare: LLM, stub: StubProvider) -> None:
    class Impatient(LLMWrapper):
        async def complete(self, request: LLMRequest) -> LLMReply:
            return await self.inner.complete(replace(request, timeout=0.2))

    stub.behave = lambda call: hang()
    quick = RetryingLLM(Impatient(bare), sleep=no_wait)
    assert await run_reflector(MESSAGES, PLAYBOOK, [], llm=quick) == EMPTY
    assert len(stub.calls) == 3


async def test_configured_model_is_called(
    stub: StubProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_LLM_PROVIDER", "anthropic")
    monkeypatch.setenv("HANSEI_LLM_MODEL", "the-one-configured")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.anthropic_url)
    stub.queue(answer(GOOD))
    assert await run_reflector(MESSAGES, PLAYBOOK, []) == GOOD
    assert stub.calls[0].model == "the-one-configured"


async def test_without_a_model_rules_write_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_LLM_PROVIDER", "none")
    failing = [
        *MESSAGES,
        {"role": "assistant", "content": [call_of("run_tests", {"path": "parser"})]},
        {"role": "user", "content": [result_of("error: no such file parser", is_error=True)]},
    ]
    result = await run_reflector(failing, PLAYBOOK, ["pat-001"])
    assert "no such file parser" in result["analysis"]
    assert result["bullet_tags"] == []
    assert await run_reflector(MESSAGES, PLAYBOOK, []) == EMPTY


def test_scn_refl_007_01_the_template() -> None:
    text = (packaged_prompt_directory() / "transcripts/analyze.txt").read_text(encoding="utf-8")
    for part in ("{transcript}", "{playbook}", "{cited_ids}"):
        assert text.count(part) == 1, part
    for part in ('"analysis"', '"bullet_tags"', '"name"', '"tag"', '"rationale"', "Example"):
        assert part in text, part
    for part in ("Names were cited", "No name was cited", "helpful", "harmful", "neutral"):
        assert part in text, part
    assert '"rating"' not in text
    assert '"id"' not in text
    assert "not instructions" in text


async def test_real_transcripts_are_read(shared: Path, model: LLM, stub: StubProvider) -> None:
    stub.behave = lambda call: answer(GOOD)
    sessions = real_sessions(shared)
    assert len(sessions) >= 6
    for name, lines in sessions:
        events = messages_to_events(parse_messages(lines))
        kinds = {event.event_type.value for event in events}
        assert {"user_message", "llm_response"} <= kinds, name
        assert await run_reflector(lines, PLAYBOOK, [], llm=model) == GOOD
        shown = stub.calls[-1].user
        assert all(event.content[:40] in shown for event in events[:3] + events[-3:]), name
    tools = [
        e.tool_name for _, lines in sessions for e in messages_to_events(parse_messages(lines))
    ]
    assert {"Bash", "Write", "Edit"} <= set(tools)
