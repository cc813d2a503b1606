"""House Rules: the benchmark of hidden conventions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hansei.errors import EvaluationError
from hansei.evaluation.agents import load_function
from hansei.evaluation.house_rules import scripted
from hansei.evaluation.house_rules.conventions import SENTENCES, pool
from hansei.evaluation.house_rules.domain import DOMAINS
from hansei.evaluation.house_rules.episode import Episode, score_answer
from hansei.evaluation.house_rules.tasks import Benchmark, Task, find_task, reveal, to_line
from hansei.evaluation.presets import load_preset
from tests.support.cases import each_case
from tests.support.stub_provider import StubProvider, answer, unauthorized

SIZES = {"plain": 200, "renamed": 60, "long": 240}
BENCHMARKS = [(domain, variant) for domain in DOMAINS for variant in SIZES]
AIRLINE = ("airline", "plain", 1)


def tasks_of(domain: str, variant: str, seed: int = 1) -> tuple[Benchmark, list[Task]]:
    found = Benchmark(domain, variant, seed)
    return found, found.take(SIZES[variant])


def play(task: Task, lines: str) -> Episode:
    episode = Episode(task.id)
    episode.say(lines)
    return episode


def run(*arguments: str, document: Any = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | env,
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("domain", "variant"), BENCHMARKS)
def test_agent_that_knows_the_conventions_is_always_right(domain: str, variant: str) -> None:
    found, tasks = tasks_of(domain, variant)
    for task in tasks:
        right_calls = "\n".join(map(to_line, found.world(task.phase).right_calls(task.actions)))
        assert score_answer(task.id, play(task, right_calls).answer()).is_right, task


@pytest.mark.parametrize(("domain", "variant"), BENCHMARKS)
def test_agent_that_follows_the_documentation_solves_the_controls_alone(
    domain: str, variant: str
) -> None:
    found, tasks = tasks_of(domain, variant)
    for task in tasks:
        calls = "\n".join(map(to_line, found.naive_calls(task.actions)))
        result = score_answer(task.id, play(task, calls).answer())
        assert result.is_right == task.is_control, task
        assert not task.is_control or not result.ignored
    assert sum(task.is_control for task in tasks) == len(tasks) / 5


@each_case("domain", list(DOMAINS))
def test_pool_and_tools_have_the_promised_size(domain: str) -> None:
    assert len(pool(DOMAINS[domain])) >= 24
    assert {c.kind for c in pool(DOMAINS[domain])} == set(SENTENCES)
    assert 12 <= len(DOMAINS[domain].tools) <= 20


def test_seed_makes_the_same_benchmark_in_another_process() -> None:
    program = """
from hansei.evaluation.presets import load_preset
preset = load_preset("house-rules-fleet-renamed", seed=7)
print(*(task.to_json() for task in preset.tasks), *preset.about, sep="\\n")
"""
    first, second = (run("-c", program, PYTHONHASHSEED=each) for each in "12")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert len(set(first.stdout.splitlines())) == 120 + 8 + 1


def test_two_seeds_differ_in_conventions_and_tasks() -> None:
    first, second = (Benchmark("airline", "plain", seed) for seed in (1, 2))
    assert len(set(reveal(first)) & set(reveal(second))) <= 2
    assert not {t.text for t in first.take(60)} & {t.text for t in second.take(60)}


@each_case("variant", ["renamed", "long"])
def test_one_convention_changes_halfway(variant: str) -> None:
    found, tasks = tasks_of("airline", variant)
    before, after = found.phases
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert len(changed) == 1
    old, new = changed[0]
    assert (old.kind, old.slots) == (new.kind, new.slots)
    assert variant == "long" or old.kind == "renamed"
    later = next(task for task in tasks if task.phase == 1 and new in task.touched)
    stale = found.world(0).right_calls(later.actions)
    assert not found.score(later, stale).is_right


def test_each_block_of_tasks_touches_every_convention() -> None:
    found, tasks = tasks_of("warehouse", "plain")
    for start in range(0, 200, 10):
        touched = {c for task in tasks[start : start + 10] for c in task.touched}
        assert touched == set(found.phases[0])


def test_feedback_says_as_much_as_its_kind() -> None:
    found, tasks = tasks_of(*AIRLINE)
    task = next(t for t in tasks if not t.is_control)
    result = found.score(task, found.naive_calls(task.actions))
    outcome, error, calls = map(result.feedback, ("outcome", "error", "calls"))
    assert outcome == "The task was not done as requested."
    assert error == f"{outcome} {' '.join(result.problems)}"
    assert result.right_calls in calls
    assert all(str(convention) not in error for convention in found.phases[0])


def test_prompt_names_no_convention_and_no_other_task() -> None:
    found, tasks = tasks_of(*AIRLINE)
    system, user = Episode(tasks[0].id).prompt("# Playbook\n- Be careful.")
    assert user["content"].startswith("# Playbook\n- Be careful.\n")
    assert tasks[0].text in user["content"]
    assert tasks[1].text not in system["content"] + user["content"]
    assert all(str(convention) not in system["content"] for convention in found.phases[0])


def test_more_than_was_asked_for_is_wrong() -> None:
    found, tasks = tasks_of(*AIRLINE)
    task = next(t for t in tasks if t.is_control)
    calls = found.naive_calls(task.actions)
    result = found.score(task, [*calls, calls[0]])
    assert not result.is_right
    assert "was not asked for" in result.problems[0]


def test_a_second_reply_uses_results_of_the_first_one() -> None:
    found, tasks = tasks_of(*AIRLINE)
    task = next(t for t in tasks if t.is_control and len(t.actions) == 1)
    name, arguments = found.naive_calls(task.actions)[0]
    key = next(iter(arguments.values()))
    rest = "".join(f", {n}={v!r}" for n, v in list(arguments.items())[1:])
    episode = Episode(task.id)
    shown = episode.say(f"look_up({key!r})\nMORE")
    assert shown is not None
    assert key in shown
    assert episode.say(f"{name}($1.id{rest})\nMORE") is None
    assert score_answer(task.id, episode.answer()).is_right
    assert [e["event_type"] for e in episode.events].count("tool_call") == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no_such_tool()", "There is no tool"),
        ("refund('B101')", "Unknown or missing argument: amount"),
        ("refund('B101', 5, 'card', 9)", "Too many arguments"),
        ("refund('B101', amount=5, colour='red')", "colour"),
        ("refund('B999', 5)", "There is no booking 'B999'"),
        ("refund($4.id, 5)", "There is no result $4"),
        ("refund(__import__('os').getcwd(), 5)", "Arguments must be"),
        ("refund('B101', [5])", "Arguments must be"),
        ("refund('B101', 5) or refund('B102', 5)", "This is not a call"),
        ("refund(" * 300 + ")" * 300, "This is not a call"),
    ],
)
def test_wrong_call_is_answered_and_has_no_effect(line: str, problem: str) -> None:
    episode = play(find_task("airline-plain-1-0000")[1], line)
    assert problem in episode.events[-1]["content"]
    assert episode.answer() == "[]"


@each_case("answer", ["", "[]", "null", "{}", "42", "[1]", '[["refund", 5]]', "[[]]"])
def test_answer_that_holds_no_calls_is_wrong(answer: str) -> None:
    assert not score_answer("airline-plain-1-0000", answer).is_right


@each_case(
    "task_id", ["", "airline-plain-1", "airline-plain-x-1", "sea-plain-1-1", "airline-plain-1--5"]
)
def test_unknown_task_is_an_error(task_id: str) -> None:
    with pytest.raises(ValueError, match="is not the ID of a task"):
        find_task(task_id)


@pytest.mark.parametrize(
    ("name", "prefix", "stream", "order"),
    [
        ("house-rules", "airline-plain-3-", 60, "random"),
        ("house-rules-warehouse", "warehouse-plain-3-", 60, "random"),
        ("house-rules-fleet-renamed", "fleet-renamed-3-", 60, "file"),
        ("house-rules-airline-long", "airline-long-3-", 400, "file"),
    ],
)
def test_preset_names_desk_and_variant(name: str, prefix: str, stream: int, order: str) -> None:
    preset = load_preset(name, seed=3)
    assert [task.split for task in preset.tasks] == ["stream"] * stream + ["held_out"] * 60
    assert all(task.id.startswith(prefix) for task in preset.tasks)
    assert preset.order == order
    score = load_function(preset.scorer)
    assert score is not None
    for task in preset.tasks[-60:]:
        assert task.control == (task.group == "control") == (not task.metadata["conventions"])
        calls = play(find_task(task.id)[1], task.right_answer or "").answer()
        assert score({"task_id": task.id, "answer": calls})[0] == 1
        assert score({"task_id": task.id, "answer": "[]"})[0] == 0


@each_case(
    ("name", "seed", "reason"),
    [
        ("house-rules-sea", 1, "Unknown preset 'house-rules-sea'. Its desks are airline, wareh"),
        ("house-rules-fleet-short", 1, "its variants plain, renamed, long, as in `house-rules-f"),
        ("house-rules", -1, "not negative"),
    ],
)
def test_preset_that_does_not_exist(name: str, seed: int, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        load_preset(name, seed=seed)


def scripted_answer(task: Task, advice: str) -> dict[str, Any]:
    answered = scripted.answer({"task_id": task.id, "advice": advice})
    answered["score"] = float(score_answer(task.id, answered["answer"]).is_right)
    return answered


def test_scripted_agent_needs_a_right_call_or_a_bullet_in_its_advice() -> None:
    found, tasks = tasks_of(*AIRLINE)
    task = next(t for t in tasks if len(t.touched) == 1)
    [convention] = task.touched
    right_calls = found.score(task, []).right_calls
    own = "Call: " + "\nCall: ".join(map(to_line, found.naive_calls(task.actions)))
    no_lesson = f"{own}\nFeedback: {convention.tool} of B101 is missing."
    for advice in ("", no_lesson, "- [ctx-00001] Be careful."):
        assert scripted_answer(task, advice)["score"] == 0
    assert scripted_answer(task, f"{no_lesson}\nRight answer: {right_calls}")["score"] == 1
    bullets = f"- [ctx-00001] Be careful.\n- [mis-00002] {convention}"
    answered = scripted_answer(task, bullets)
    assert answered["score"] == 1
    texts = [event["content"] for event in answered["events"]]
    assert [text for text in texts if "I follow" in text] == ["I follow [mis-00002]."]


MODULE = ("-m", "hansei.evaluation.house_rules")


def test_model_as_the_agent_answers_a_task_in_two_replies() -> None:
    found, tasks = tasks_of(*AIRLINE)
    task = next(t for t in tasks if t.is_control)
    calls = "\n".join(map(to_line, found.naive_calls(task.actions)))
    request = {"task_id": task.id, "advice": "- [ctx-00001] Be careful.", "arm": "hansei"}
    with StubProvider() as stub:
        stub.queue(answer("look_up('B101')\nMORE"), answer(calls))
        env = {"OPENAI_BASE_URL": stub.openai_url, "OPENAI_API_KEY": "k"}
        done = run(*MODULE, "--model", "m-{arm}", document=request, **env)
    assert done.returncode == 0, done.stderr
    first, second = stub.calls
    assert first.model == second.model == "m-hansei"
    assert "- [ctx-00001] Be careful." in first.text
    assert "Reply with the remaining calls." in second.text
    document = json.loads(done.stdout)
    assert score_answer(task.id, document["answer"]).is_right
    assert document["usage"]["input_tokens"] > 0
    assert [tool["name"] for tool in document["tools"]] == list(found.domain.tools)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"task_id": "airline-plain-1-0000"}, "status 401"),
        ({"task_id": "sea-plain-1-0000"}, "is not the ID of a task"),
        ({"task": "x"}, "must be a JSON object with `task_id`"),
        (None, "must be a JSON object with `task_id`"),
    ],
)
def test_agent_names_the_problem_in_one_line(document: Any, problem: str) -> None:
    with StubProvider() as stub:
        stub.queue(unauthorized())
        env = {"OPENAI_BASE_URL": stub.openai_url, "OPENAI_API_KEY": "k"}
        done = run(*MODULE, "--model", "m", document=document, **env)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_threads_get_the_same_tasks() -> None:
    ids = [f"airline-plain-4711-{number:04}" for number in range(120)]
    with ThreadPoolExecutor(40) as threads:
        found = [task for _, task in threads.map(find_task, ids)]
    again = Benchmark("airline", "plain", 4711).take(120)
    assert [task.text for task in found] == [task.text for task in again]
