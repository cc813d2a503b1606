"""`ReflectorAgent` as a library: real model clients, the stub provider."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memory_api.library.llm_client import LLMClient, create_chat_model
from memory_api.library.playbook_store import PlaybookStore
from memory_api.library.reflector_agent import ReflectionResult, ReflectorAgent
from memory_api.library.reflector_prompt import ReflectorPromptBuilder
from memory_api.llm.port import LLM
from memory_api.llm.registry import open_llm
from memory_api.playbooks.models import Bullet, Playbook
from memory_api.reflection.trajectories.schemas import (
    BulletEvaluation,
    Insight,
    Trajectory,
    TrajectoryResult,
)
from tests.support.stub_provider import (
    StubProvider,
    answer,
    bad_request,
    fenced,
    prose,
    refusal,
    server_error,
    wrong_shape,
)
from tests.support.trajectories import (
    ASKED,
    BOTH,
    REPORT,
    TRAJECTORY,
    TRUTH,
    insight,
    said,
    verdict,
)


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


async def test_insights_and_verdicts_need_one_call(
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


async def test_per_bullet_prompt_asks_about_missing_bullets(
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


async def test_bullet_without_answer_has_no_verdict(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight()))
    stub.behave = lambda call: bad_request()
    result = await agent.arun(*ASKED)
    assert result.insights == [Insight(**insight())]
    assert result.bullet_evaluations == []


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_rounds_continue_while_they_add_insights(
    agent: ReflectorAgent, stub: StubProvider, most: int
) -> None:
    for number in range(most):
        stub.queue(said(insight(f"Lesson number {number}"), verdicts=BOTH))
    result = await agent.arun(*ASKED, max_iterations=most)
    assert result.iteration_count == most == len(stub.calls)
    assert [i.key_insight for i in result.insights] == [f"Lesson number {n}" for n in range(most)]


@pytest.mark.parametrize("again", [[], ["USE  splitlines, for lines!"], [" "]])
async def test_round_without_new_insight_is_last(
    agent: ReflectorAgent, stub: StubProvider, again: list[str]
) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    stub.behave = lambda call: said(*map(insight, again), verdicts=BOTH)
    result = await agent.arun(*ASKED, max_iterations=10)
    assert result.iteration_count == 2 == len(stub.calls)
    assert [i.key_insight for i in result.insights] == ["Use splitlines for lines."]


async def test_second_round_shows_earlier_insights(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight("First of all"), verdicts=BOTH), said(verdicts=BOTH))
    await agent.arun(*ASKED, max_iterations=2)
    one, two = (call.user for call in stub.calls)
    assert "Insights of earlier rounds" not in one
    assert "First of all" in two.split("Insights of earlier rounds")[1]


async def test_failed_later_round_keeps_insights(agent: ReflectorAgent, stub: StubProvider) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    stub.behave = lambda call: server_error()
    result = await agent.arun(*ASKED, max_iterations=3)
    assert result.iteration_count == 1
    assert result.insights == [Insight(**insight())]
    assert len(result.bullet_evaluations) == 2


@pytest.mark.parametrize("fault", [server_error(), bad_request(), refusal(), wrong_shape()])
async def test_failure_gives_an_empty_result(
    agent: ReflectorAgent, stub: StubProvider, fault: Any
) -> None:
    stub.behave = lambda call: fault
    assert await agent.arun(*ASKED) == TrajectoryResult(
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


async def test_known_bullets_are_kept_with_unknown_ones(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said(insight(), verdicts=BOTH))
    sent = TRAJECTORY.model_copy(update={"used_bullet_ids": ["x-1", "pat-1", "pat-00001"]})
    result = await agent.arun(sent, TRUTH, REPORT, "coding")
    assert [e.bullet_id for e in result.bullet_evaluations] == ["pat-00001"]


@pytest.mark.parametrize("wrapped", [fenced, prose])
async def test_wrapped_answer_is_read(
    agent: ReflectorAgent, stub: StubProvider, wrapped: Any
) -> None:
    stub.queue(wrapped({"insights": [insight()], "bullet_evaluations": list(BOTH)}))
    assert (await agent.arun(*ASKED)).insights == [Insight(**insight())]
    assert len(stub.calls) == 1


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[1]", '{"insights": 1}', '{"insights": [{"reasoning": "only"}]}']
)
async def test_unreadable_answer_gives_no_insights(
    agent: ReflectorAgent, text: str, logs: list[dict[str, Any]]
) -> None:
    assert agent._extract_insights(text) == []
    assert [entry["event"] for entry in logs] == ["answer_unreadable"]


async def test_malformed_insight_costs_only_itself(
    agent: ReflectorAgent, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    malformed: Any = {"reasoning": "No lesson.", "key_insight": None}
    stub.queue(said(insight("One"), malformed, insight("Two"), verdicts=BOTH))
    result = await agent.arun(*ASKED)
    assert [i.key_insight for i in result.insights] == ["One", "Two"]
    assert len(result.bullet_evaluations) == 2
    assert len(stub.calls) == 1
    assert ("insights_malformed", 1) in [(entry["event"], entry.get("count")) for entry in logs]


@pytest.mark.parametrize("insights", ["No lesson.", 5, None, {"key_insight": 1}])
async def test_insights_that_are_no_list_are_logged_and_cost_no_verdicts(
    agent: ReflectorAgent, stub: StubProvider, logs: list[dict[str, Any]], insights: Any
) -> None:
    stub.queue(answer({"insights": insights, "bullet_evaluations": list(BOTH)}))
    result = await agent.arun(*ASKED)
    assert (result.insights, len(result.bullet_evaluations)) == ([], 2)
    assert "insights_malformed" in [entry["event"] for entry in logs]


async def test_malformed_only_insight_costs_no_verdicts(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    stub.queue(said({"reasoning": "only"}, verdicts=BOTH))
    result = await agent.arun(*ASKED)
    assert result.insights == []
    assert [each.tag for each in result.bullet_evaluations] == ["helpful", "neutral"]
    assert (result.iteration_count, len(stub.calls)) == (1, 1)


async def test_unreadable_insights_cost_no_verdicts(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    unreadable = said({"reasoning": "only"}, verdicts=[{"bullet_id": "pat-00001"}])
    stub.queue(unreadable, *[answer(verdict("", "helpful"))] * 2)
    result = await agent.arun(*ASKED)
    assert result.insights == []
    assert [each.tag for each in result.bullet_evaluations] == ["helpful", "helpful"]
    assert result.iteration_count == 0, "no round was completed"


@pytest.mark.parametrize(
    ("client", "builder", "store", "missing"),
    [
        (object(), ReflectorPromptBuilder(), PlaybookStore(), "`llm_client` .* `invoke_with_"),
        (None, object(), PlaybookStore(), "`prompt_builder` .* `build`"),
        (None, ReflectorPromptBuilder(), object(), "`playbook_store` .* `load`"),
        (None, ReflectorPromptBuilder(), None, "`playbook_store` .* `load`"),
    ],
)
def test_object_without_a_part_is_refused(
    client: Any, builder: Any, store: Any, missing: str
) -> None:
    with pytest.raises(TypeError, match=missing):
        ReflectorAgent(client, builder, store)


class OwnAgent(ReflectorAgent):
    """Overrides the parts as the document types them: as plain functions."""

    def _extract_insights(self, llm_response: str) -> list[Insight]:
        return [Insight(**insight(line)) for line in llm_response.splitlines()]

    def _evaluate_bullets(
        self, trajectory: Trajectory, ground_truth: str, used_bullets: Any
    ) -> list[BulletEvaluation]:
        assert self.llm_client is not None
        reason = self.llm_client.invoke_with_template("Why {id}?", {"id": used_bullets[0].id})
        return [
            BulletEvaluation(bullet_id=bullet.id, tag="harmful", reason=reason)
            for bullet in used_bullets
        ]


def test_overridden_parts_are_used(stub: StubProvider, store: PlaybookStore) -> None:
    stub.queue(answer("Lesson one\nLesson two"), answer("because"))
    with LLMClient(create_chat_model("openai", "stub", base_url=stub.openai_url)) as client:
        result = OwnAgent(client, ReflectorPromptBuilder(), store).run(*ASKED)
    assert [i.key_insight for i in result.insights] == ["Lesson one", "Lesson two"]
    assert [(e.bullet_id, e.tag, e.reason) for e in result.bullet_evaluations] == [
        ("pat-00001", "harmful", "because"),
        ("mis-00002", "harmful", "because"),
    ]
    assert len(stub.calls) == 2


async def test_failing_own_evaluation_keeps_insights(
    model: LLM, stub: StubProvider, store: PlaybookStore, logs: list[dict[str, Any]]
) -> None:
    class Failing(ReflectorAgent):
        def _evaluate_bullets(self, *_: Any) -> list[BulletEvaluation]:
            raise ZeroDivisionError

    stub.queue(said(insight(), verdicts=BOTH))
    result = await Failing(LLMClient(model), ReflectorPromptBuilder(), store).arun(*ASKED)
    assert result.insights == [Insight(**insight())]
    assert result.bullet_evaluations == []
    assert "analysis_incomplete" in [entry["event"] for entry in logs]


class OwnBuilder:
    """A builder that shares nothing with ours."""

    def build(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        used_bullets: Any,
        dataset: str,
        previous_insights: Any = None,
    ) -> str:
        earlier = [i.key_insight for i in previous_insights] if previous_insights else None
        return f"MY OWN PROMPT about {dataset}, after {earlier}"

    def build_evaluation_prompt(
        self, trajectory: Trajectory, ground_truth: str, bullet: Bullet
    ) -> str:
        return f"MY OWN QUESTION about {bullet.id}"


class OwnBuild(ReflectorPromptBuilder):
    build = OwnBuilder.build
    build_evaluation_prompt = OwnBuilder.build_evaluation_prompt


@pytest.mark.parametrize("builder", [OwnBuilder(), OwnBuild()])
async def test_builder_with_its_own_build_is_used(
    model: LLM, stub: StubProvider, store: PlaybookStore, builder: Any
) -> None:
    stub.queue(
        said(insight(), verdicts=[verdict("pat-00001", "helpful")]),
        said(),
        answer({"tag": "neutral", "reason": "It was not followed."}),
    )
    agent = ReflectorAgent(LLMClient(model), builder, store)
    result = await agent.arun(*ASKED, max_iterations=2)
    assert [call.user for call in stub.calls] == [
        "MY OWN PROMPT about coding, after None",
        "MY OWN PROMPT about coding, after ['Use splitlines for lines.']",
        "MY OWN QUESTION about mis-00002",
    ]
    assert {e.bullet_id: e.tag for e in result.bullet_evaluations} == {
        "pat-00001": "helpful",
        "mis-00002": "neutral",
    }


def test_result_has_the_name_of_the_document() -> None:
    assert ReflectionResult is TrajectoryResult


@pytest.mark.parametrize(
    ("own", "asked", "read"), [("coding", "other", "coding"), ("", "other", "other"), ("", "", "")]
)
async def test_dataset_of_trajectory_takes_precedence(
    agent: ReflectorAgent, stub: StubProvider, own: str, asked: str, read: str
) -> None:
    stub.behave = lambda call: said(insight())
    sent = TRAJECTORY.model_copy(update={"dataset": own, "used_bullet_ids": []})
    result = await agent.arun(sent, TRUTH, REPORT, asked)
    assert result.trajectory_dataset == read
    stub.behave = lambda call: server_error()
    failed = await agent.arun(sent, TRUTH, REPORT, asked)
    assert failed.iteration_count == 0
    assert failed.trajectory_dataset == read


def test_trajectory_has_no_dataset_by_default() -> None:
    assert Trajectory(query="q", generated_answer="a").dataset == ""


async def test_secrets_are_in_neither_prompt_nor_result(
    agent: ReflectorAgent, stub: StubProvider
) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    stub.queue(said(insight(f"Never print {secret}"), verdicts=BOTH))
    sent = TRAJECTORY.model_copy(update={"generated_answer": f"key = '{secret}'"})
    result = await agent.arun(sent, TRUTH, f"{REPORT} {secret}", "coding")
    assert secret not in stub.calls[0].text
    assert secret not in result.model_dump_json()


async def test_every_bullet_can_be_judged_separately(
    agent: ReflectorAgent, stub: StubProvider, store: PlaybookStore
) -> None:
    stub.behave = lambda call: answer({"tag": "neutral", "reason": "Nothing to be seen."})
    bullets = store.load("coding").bullets
    told = await asyncio.to_thread(agent._evaluate_bullets, TRAJECTORY, TRUTH, bullets)
    assert [(e.bullet_id, e.tag) for e in told] == [(b.id, "neutral") for b in bullets]
    assert len(stub.calls) == 3


async def test_run_refuses_inside_an_event_loop(agent: ReflectorAgent) -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        agent.run(*ASKED)
    rules = ReflectorAgent(None, agent.prompt_builder, agent.playbook_store)
    with pytest.raises(RuntimeError, match="arun"):
        rules.run(*ASKED)


def test_run_blocks_without_event_loop(stub: StubProvider, store: PlaybookStore) -> None:
    opened = open_llm("openai", model="stub", api_key="test", base_url=stub.openai_url)
    assert opened is not None
    stub.behave = lambda call: said(insight(), verdicts=BOTH)
    with LLMClient(opened) as client:
        agent = ReflectorAgent(client, ReflectorPromptBuilder(), store)
        for _ in range(2):
            assert agent.run(*ASKED).insights == [Insight(**insight())]


def test_agent_imports_no_search() -> None:
    """It takes the keys of the bullets from the trajectory."""
    code = "import sys, memory_api.library.reflector_agent; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = [name for name in run.stdout.split() if name.startswith("memory_api.")]
    assert "memory_api.library.reflector_prompt" in modules
    assert [name for name in modules if re.search("search|retriev|queries", name)] == []


def test_rules_reflect_without_a_model(store: PlaybookStore) -> None:
    result = ReflectorAgent(None, ReflectorPromptBuilder(), store).run(*ASKED)
    assert result.insights == [], "no advice follows from a wrong answer alone"
    assert result.bullet_evaluations == []
    assert result.iteration_count == 1


def test_rules_learn_nothing_without_evidence(store: PlaybookStore) -> None:
    sent = Trajectory(query="Say hello", generated_answer="hello", status="success")
    assert (
        ReflectorAgent(None, ReflectorPromptBuilder(), store).run(sent, "", "", "").insights == []
    )


def test_one_agent_serves_four_threads(stub: StubProvider, store: PlaybookStore) -> None:
    opened = open_llm("openai", model="stub", api_key="test", base_url=stub.openai_url)
    assert opened is not None
    together = threading.Barrier(4)
    stub.behave = lambda call: said(insight(), verdicts=BOTH)
    with LLMClient(opened) as client, ThreadPoolExecutor(4) as threads:
        agent = ReflectorAgent(client, ReflectorPromptBuilder(), store)

        def ask(_number: int) -> TrajectoryResult:
            together.wait(timeout=10)
            return agent.run(*ASKED)

        results = list(threads.map(ask, range(4)))
    assert [result.insights for result in results] == [[Insight(**insight())]] * 4
    assert len(stub.calls) == 4
