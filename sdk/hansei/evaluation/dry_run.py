"""What a run would do, without a call of an agent or the service."""

from __future__ import annotations

import math

from hansei._model import Json
from hansei.evaluation.agents import FUNCTION, Commands, make_agent, make_scorer
from hansei.evaluation.command_words import require_files
from hansei.evaluation.memory import CHARACTERS_PER_TOKEN, Advice, format_examples
from hansei.evaluation.plan import Arm, Call, Plan
from hansei.evaluation.tasks import score_by_match

DEFAULT_TOKEN_BUDGET = 2_000
"""Of a playbook that sets none."""


def describe_run(plan: Plan) -> Json:
    """The plan, the size of each arm, the tasks whose right answer scores as wrong, and what the
    commands start. Raises `EvaluationError` if the agent or a scorer cannot start.
    """
    commands = Commands(timeout=0)
    if plan.agent:
        make_agent(plan.agent, commands)
    make_scorer(plan.scorer, plan.tasks, commands)
    started = [plan.agent, plan.scorer, *(task.scorer for task in plan.tasks)]
    found = [name for command in started if command for name in _files_of(command)]
    checked = [task for task in plan.tasks if task.expected is not None and task.match != "regex"]
    calls = [call for block in plan.blocks() for call in block.calls]
    wrong = [t.id for t in checked if score_by_match(t, t.expected, None).value < 1]
    return plan.to_json() | {
        "tasks": plan.task_counts,
        "arms": [
            _size(plan, arm, [call for call in calls if call.arm == arm])
            for arm in plan.protocol.arms
        ],
        "expected_checked": len(checked),
        "expected_scores_wrong": wrong,
        "found": list(dict.fromkeys(found)),
    }


def _files_of(command: str) -> list[str]:
    return [command] if FUNCTION.match(command) else require_files(command)


def _size(plan: Plan, arm: Arm, calls: list[Call]) -> Json:
    """`task_tokens` and `advice_tokens` are estimates for all calls. The advice may be shorter;
    None if nothing limits it. An empty memory has none in the first window.
    """
    tokens = {task.id: _count_tokens(task.text) for task in plan.tasks}
    options = plan.protocol
    longest = sorted(plan.tasks, key=lambda task: -len(task.text + (task.right_answer or "")))
    limits: dict[Arm, int | None] = {
        "none": 0,
        "hansei": DEFAULT_TOKEN_BUDGET if options.token_budget is None else options.token_budget,
        "icl": options.icl_tokens,
        "examples": Advice(format_examples(longest[: options.examples])).tokens,
        "full": None,
    }
    limit = limits[arm]
    with_advice = [call for call in calls if call.phase != "stream" or call.window]
    if options.playbook and arm == "hansei":
        with_advice = calls
    return {
        "arm": arm,
        "calls": len(calls),
        "task_tokens": sum(tokens[call.task_id] for call in calls),
        "advice_tokens": None if limit is None else limit * len(with_advice),
    }


def _count_tokens(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)
