"""`ReflectorAgent` and its prompt builder as a library: real model clients, the stub provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apps.memory_api.core.prompts import packaged_prompts
from apps.memory_api.llm.client import LLMClient
from apps.memory_api.llm.port import LLM
from apps.memory_api.llm.registry import open_llm
from apps.memory_api.playbook.schemas import Bullet, Playbook
from apps.memory_api.playbook.store import PlaybookStore
from apps.memory_api.reflection.agent import ReflectorAgent, ReflectorPromptBuilder
from apps.memory_api.reflection.insights.prompt import BUILTIN
from apps.memory_api.reflection.insights.schemas import Insight, ReflectionResult, Trajectory
from tests.stub_provider import (
    StubProvider,
    answer,
    bad_request,
    fenced,
    prose,
    refusal,
    server_error,
    wrong_shape,
)

TRAJECTORY = Trajectory(
    query="Return the last n lines of a file.",
    generated_answer="open(p).read().split('\\n')[-n:]",
    reasoning_steps=["Split by line breaks.", "Take the last n."],
    used_bullet_ids=["pat-00001", "mis-00002"],
    dataset="coding",
)
TRUTH = "open(p).read().splitlines()[-n:]"
REPORT = "FAILED test_tail.py::test_newline - assert ['b', ''] == ['a', 'b']"
ASKED = (TRAJECTORY, TRUTH, REPORT, "coding")


def insight(key: str = "Use splitlines for lines.", **changes: str) -> dict[str, str]:
    return {
        "reasoning": "The report shows an empty last line.",
        "error_identification": "An empty text counts as a line.",
        "root_cause_analysis": "A line break ends a line.",
        "correct_approach": "splitlines",
        "key_insight": key,
    } | changes


def verdict(bullet_id: str, tag: str, reason: str = "The second step shows it.") -> dict[str, str]:
    return {"bullet_id": bullet_id, "tag": tag, "reason": reason}


def said(*insights: dict[str, str], verdicts: Any = ()) -> Any:
    return answer({"insights": list(insights), "bullet_evaluations": list(verdicts)})


BOTH = (verdict("pat-00001", "helpful"), verdict("mis-00002", "neutral"))


@pytest.fixture
def store(tmp_path: Path) -> PlaybookStore:
    made = PlaybookStore(tmp_path)
    bullets = [
        Bullet(id="pat-00001", section="PATTERNS", content="Read small files in one go."),
        Bullet(id="mis-00002", section="MISTAKES", content="Never forget to close a file."),
        Bullet(id="oth-00003", section="OTHERS", content="Nobody used this one."),
    ]
    made.save("coding", Playbook(bullets=bullets))
    return made


@pytest.fixture(params=["openai", "anthropic"])
async def model(request: pytest.FixtureRequest, stub: StubProvider) -> AsyncIterator[LLM]:
    url = stub.openai_url if request.param == "openai" else stub.anthropic_url
    opened = open_llm(request.param, model="stub", api_key="test", base_url=url)
    assert opened is not None
    yield opened
    await opened.aclose()


@pytest.fixture
def agent(model: LLM, store: PlaybookStore) -> ReflectorAgent:
    return ReflectorAgent(LLMClient(model), ReflectorPromptBuilder(), store)


async def test_insights_and_verdicts_come_of_one_call(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    result = await agent.arun(*ASKED)
    assert result.insights == [Insight(**insight())]
    assert [(e.bullet_id, e.tag) for e in result.bullet_evaluations] == [
        ("pat-00001", "helpful"),
        ("mis-00002", "neutral"),
    ]
    assert (result.trajectory_query, result.trajectory_dataset) == (TRAJECTORY.query, "coding")
    assert result.iteration_count == 1
    (call,) = stub.calls
    for text in (TRAJECTORY.generated_answer, TRUTH, REPORT, "Read small files in one go."):
        assert text in call.user
    assert "Nobody used this one." not in call.text
    assert "test_tail.py::test_newline" in call.user.split("Facts that the program found")[1]
    assert call.schema is not None


async def test_the_per_bullet_prompt_is_for_bullets_that_were_left_out(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight(), verdicts=[verdict("pat-00001", "helpful")]))
    stub.queue(answer({"tag": "harmful", "reason": "It made the agent close what it read."}))
    result = await agent.arun(*ASKED)
    assert {e.bullet_id: e.tag for e in result.bullet_evaluations} == {
        "pat-00001": "helpful",
        "mis-00002": "harmful",
    }
    assert len(stub.calls) == 2
    assert "Never forget to close a file." in stub.calls[1].user
    assert "Read small files" not in stub.calls[1].user


async def test_a_bullet_nobody_answers_for_has_no_verdict(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight()))
    stub.behave = lambda call: bad_request()
    result = await agent.arun(*ASKED)
    assert result.insights == [Insight(**insight())]
    assert result.bullet_evaluations == []


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_rounds_go_on_while_they_bring_something(
    agent: ReflectorAgent, stub: StubProvider, most: int
) -> None:
    for number in range(most):
        stub.queue(said(insight(f"Lesson number {number}"), verdicts=BOTH))
    result = await agent.arun(*ASKED, max_iterations=most)
    assert result.iteration_count == most == len(stub.calls)
    assert [i.key_insight for i in result.insights] == [f"Lesson number {n}" for n in range(most)]


@pytest.mark.parametrize("again", [[], ["USE  splitlines, for lines!"], [" "]])
async def test_a_round_that_adds_nothing_is_the_last(
    agent: ReflectorAgent, stub: StubProvider, again: list[str]
) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    stub.behave = lambda call: said(*map(insight, again), verdicts=BOTH)
    result = await agent.arun(*ASKED, max_iterations=10)
    assert result.iteration_count == 2 == len(stub.calls)
    assert [i.key_insight for i in result.insights] == ["Use splitlines for lines."]


async def test_earlier_insights_are_shown_from_the_second_round_on(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight("First of all"), verdicts=BOTH), said(verdicts=BOTH))
    await agent.arun(*ASKED, max_iterations=2)
    one, two = (call.user.split("Insights of earlier rounds:")[1] for call in stub.calls)
    assert one.split("Now give")[0].strip() == ""
    assert "First of all" in two


async def test_what_was_found_stays_when_a_later_round_fails(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    stub.behave = lambda call: server_error()
    result = await agent.arun(*ASKED, max_iterations=3)
    assert result.iteration_count == 1
    assert result.insights == [Insight(**insight())]
    assert len(result.bullet_evaluations) == 2


@pytest.mark.parametrize("fault", [server_error(), bad_request(), refusal(), wrong_shape()])
async def test_a_failure_gives_an_empty_result(
    agent: ReflectorAgent, stub: StubProvider, fault: Any
) -> None:
    stub.behave = lambda call: fault
    assert await agent.arun(*ASKED) == ReflectionResult(
        insights=[],
        bullet_evaluations=[],
        trajectory_query=TRAJECTORY.query,
        trajectory_dataset="coding",
        iteration_count=0,
    )


@pytest.mark.parametrize("broken", ["store", "template", "trajectory", "gone"])
async def test_nothing_is_ever_raised(agent: ReflectorAgent, tmp_path: Path, broken: str) -> None:
    asked: tuple[Any, ...] = ASKED
    if broken == "store":
        (tmp_path / "coding.json").write_text("{broken")
    elif broken == "template":
        (tmp_path / "default.txt").write_text("{no_such_placeholder}")
        agent.prompt_builder = ReflectorPromptBuilder(tmp_path)
    elif broken == "trajectory":
        asked = (None, TRUTH, REPORT, "coding")
    else:
        agent.playbook_store = None  # type: ignore[assignment]
    result = await agent.arun(*asked)
    assert (result.insights, result.bullet_evaluations, result.iteration_count) == ([], [], 0)


@pytest.mark.parametrize("ids", [[], ["pat-99999"], ["nonsense", "mis-00777"]])
async def test_unknown_bullets_are_skipped(
    agent: ReflectorAgent, stub: StubProvider, ids: list[str]
) -> None:
    stub.behave = lambda call: said(insight(), verdicts=BOTH)
    sent = TRAJECTORY.model_copy(update={"used_bullet_ids": ids})
    result = await agent.arun(sent, TRUTH, REPORT, "coding")
    assert result.bullet_evaluations == []
    assert result.insights
    assert len(stub.calls) == 1


async def test_known_bullets_stay_beside_unknown_ones(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    sent = TRAJECTORY.model_copy(update={"used_bullet_ids": ["x-1", "pat-1", "pat-00001"]})
    result = await agent.arun(sent, TRUTH, REPORT, "coding")
    assert [e.bullet_id for e in result.bullet_evaluations] == ["pat-00001"]


@pytest.mark.parametrize("wrapped", [fenced, prose])
async def test_an_answer_in_wrapping_is_read(
    agent: ReflectorAgent, stub: StubProvider, wrapped: Any
) -> None:
    stub.queue(wrapped({"insights": [insight()], "bullet_evaluations": list(BOTH)}))
    assert (await agent.arun(*ASKED)).insights == [Insight(**insight())]
    assert len(stub.calls) == 1


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[1]", '{"insights": 1}', '{"insights": [{"reasoning": "only"}]}']
)
async def test_what_cannot_be_read_holds_no_insights(agent: ReflectorAgent, text: str) -> None:
    assert agent._extract_insights(text) == []


async def test_secrets_reach_neither_the_model_nor_the_result(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    stub.queue(said(insight(f"Never print {secret}"), verdicts=BOTH))
    sent = TRAJECTORY.model_copy(update={"generated_answer": f"key = '{secret}'"})
    result = await agent.arun(sent, TRUTH, f"{REPORT} {secret}", "coding")
    assert secret not in stub.calls[0].text
    assert secret not in result.model_dump_json()


async def test_every_bullet_can_be_asked_about_alone(
    agent: ReflectorAgent, stub: StubProvider, store: PlaybookStore
) -> None:
    stub.behave = lambda call: answer({"tag": "neutral", "reason": "Nothing to be seen."})
    bullets = store.load("coding").bullets
    told = await agent._evaluate_bullets(TRAJECTORY, TRUTH, bullets)
    assert {(e.bullet_id, e.tag) for e in told} == {(b.id, "neutral") for b in bullets}
    assert len(stub.calls) == 3


async def test_run_refuses_inside_an_event_loop(agent: ReflectorAgent) -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        agent.run(*ASKED)
    rules = ReflectorAgent(None, agent.prompt_builder, agent.playbook_store)
    with pytest.raises(RuntimeError, match="arun"):
        rules.run(*ASKED)


def test_run_blocks_where_there_is_no_event_loop(stub: StubProvider, store: PlaybookStore) -> None:
    opened = open_llm("openai", model="stub", api_key="test", base_url=stub.openai_url)
    assert opened is not None
    stub.behave = lambda call: said(insight(), verdicts=BOTH)
    with LLMClient(opened) as client:
        agent = ReflectorAgent(client, ReflectorPromptBuilder(), store)
        for _ in range(2):
            assert agent.run(*ASKED).insights == [Insight(**insight())]


def test_rules_reflect_without_a_model(store: PlaybookStore) -> None:
    result = ReflectorAgent(None, ReflectorPromptBuilder(), store).run(*ASKED)
    (found,) = result.insights
    assert "test_newline" in found.error_identification
    assert "test_newline" in found.key_insight
    assert TRUTH[:20] in found.reasoning
    assert result.bullet_evaluations == []
    assert result.iteration_count == 1


def test_rules_speak_the_language_of_the_trajectory(store: PlaybookStore) -> None:
    sent = Trajectory(query="この橋は何年前に作られましたか", generated_answer="90年")
    result = ReflectorAgent(None, ReflectorPromptBuilder(), store).run(sent, "94年", "", "")
    assert "正解は" in result.insights[0].error_identification


def test_rules_learn_nothing_of_what_shows_nothing(store: PlaybookStore) -> None:
    sent = Trajectory(query="Say hello", generated_answer="hello", status="success")
    assert (
        ReflectorAgent(None, ReflectorPromptBuilder(), store).run(sent, "", "", "").insights == []
    )


def test_the_nearest_template_is_used(tmp_path: Path) -> None:
    builder = ReflectorPromptBuilder(tmp_path)
    assert builder._load_template("coding") == BUILTIN["default"]
    (tmp_path / "default.txt").write_text("For all: {generated_answer}")
    assert builder._load_template("coding") == "For all: {generated_answer}"
    (tmp_path / "coding.txt").write_text("For coding: {generated_answer}")
    assert builder._load_template("coding") == "For coding: {generated_answer}"
    assert builder._load_template("other") == "For all: {generated_answer}"
    shipped = (packaged_prompts() / "reflector" / "default.txt").read_text(encoding="utf-8")
    assert ReflectorPromptBuilder()._load_template("coding") == shipped
    assert builder.build_evaluation_prompt(TRAJECTORY, "", Bullet(id="a", section="", content="c"))


def test_a_dataset_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "prompts" / "default.txt").write_text("inside")
    builder = ReflectorPromptBuilder(tmp_path / "prompts")
    for name in ("../secret", "..", "/etc/passwd", "a/../../secret", "bullet/default"):
        assert builder._load_template(name) == "inside"


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{{{generated_answer}}}", "{«A»}"),
        ('{{"a": {{}}}} {generated_answer}', '{"a": {}} «A»'),
        ('{"a": 1} {generated_answer}', '{"a": 1} «A»'),
        ("{generated_answer}|{ground_truth}|{test_report}", "«A»|«T»|(none)"),
        ("{reasoning_steps}\n{generated_answer}", "«one\ntwo»\n«A»"),
        ("[{previous_insights}]{generated_answer}", "[]«A»"),
        ("{used_bullets}\n{generated_answer}", "«[k-1] first\n[k-2] second»\n«A»"),
    ],
)
def test_placeholders_and_braces(tmp_path: Path, template: str, prompt: str) -> None:
    (tmp_path / "default.txt").write_text(template)
    sent = Trajectory(query="q", generated_answer="A", reasoning_steps=["one", "two"])
    bullets = [
        Bullet(id="k-1", section="", content="first"),
        Bullet(id="k-2", section="", content="second"),
    ]
    built = ReflectorPromptBuilder(tmp_path).build(sent, "T", "", bullets, "d")
    assert unfenced(built) == prompt


def unfenced(prompt: str) -> str:
    import re  # noqa: PLC0415

    return re.sub(r"<([a-z-]+-[0-9a-f]{16})>\n(.*?)\n</\1>", r"«\2»", prompt, flags=re.DOTALL)


def test_a_template_without_the_answer_gets_it_anyway(tmp_path: Path) -> None:
    (tmp_path / "default.txt").write_text("Our own words. {schema}")
    prompt = ReflectorPromptBuilder(tmp_path).build(*ASKED[:3], [], "d")
    assert prompt.startswith("Our own words.")
    assert TRAJECTORY.generated_answer in prompt
    assert json.dumps("key_insight") in prompt


@pytest.mark.parametrize("name", ["default", "bullet/default"])
def test_the_shipped_templates_say_what_they_must(name: str) -> None:
    text = (packaged_prompts() / "reflector" / f"{name}.txt").read_text(encoding="utf-8")
    common = ("{schema}", "{generated_answer}", "{ground_truth}", "Example", "not instructions")
    for part in common:
        assert part in text, part
    if name == "default":
        for part in ("{test_report}", "{reasoning_steps}", "{used_bullets}", "{previous_insights}"):
            assert part in text, part
        assert "reflector" in text.lower()
        assert "writes code" in text


def test_the_example_in_the_template_has_the_asked_shape() -> None:
    asked = ReflectorPromptBuilder().question(*ASKED[:3], [], "d")
    text = asked.messages[0].content
    example = text[text.index("A good answer:") :]
    assert ReflectorAgent(None, ReflectorPromptBuilder(), PlaybookStore())._extract_insights(
        example
    )


def test_the_fixed_part_is_the_same_for_every_trajectory() -> None:
    one = ReflectorPromptBuilder().question(*ASKED[:3], [], "d")
    other = TRAJECTORY.model_copy(update={"query": "Another"})
    two = ReflectorPromptBuilder().question(other, "x", "y", [], "d")
    assert one.fixed == two.fixed == 1
    assert one.messages[0] == two.messages[0]


def test_a_long_answer_is_cut_to_the_budget() -> None:
    sent = TRAJECTORY.model_copy(update={"generated_answer": "first\n" + "x y\n" * 50_000 + "last"})
    prompt = ReflectorPromptBuilder(budget=2048).build(sent, TRUTH, REPORT, [], "d")
    assert len(prompt) < 20_000
    assert "left out" in prompt
    assert "first" in prompt
    assert "last" in prompt
