"""Scripted agents, to see what `hansei eval` does without a model and a key: 40 tasks, or House
Rules.

In the 40 tasks, the tools of an office have a form that their documentation does not state. The
agent calls a tool in the documented form, reads the error, and corrects the call. It uses the right
form at once only if its advice names the tool.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

from hansei._model import Json
from hansei.evaluation.plan import Plan, Protocol, make_plan
from hansei.evaluation.presets import HOUSE_RULES, load_preset
from hansei.evaluation.tasks import BULLET_KEY, Task

TITLE = "DEMONSTRATION of the tool with a scripted agent. It shows no gain of any real agent."
PROTOCOL = Protocol(arms=("none", "hansei", "icl", "examples"), held_out=8, feedback="text")
AGENT = "hansei.evaluation.demo:answer"
HOUSE_RULES_AGENT = "hansei.evaluation.house_rules.scripted:answer"
AGENTS = (AGENT, HOUSE_RULES_AGENT)
ITEMS = ("lamps", "chairs", "desks", "shelves", "mirrors", "clocks", "plants", "books")
CITIES = ("Basel", "Oslo", "Porto", "Lyon", "Graz", "Turin", "Ghent", "Cork")
TOOLS = {
    "ship": ("weight", "{n} kg", "{n}000 g", "The weight must be in grams"),
    "refund": ("amount", "{n} EUR", "{n}00 cents", "The amount must be in cents"),
    "deliver": ("date", "0{d}.05.2031", "2031-05-0{d}", "The date must be in ISO form"),
    "reserve": ("hall", "{d}", "W-{d}", "The hall must have the prefix W-"),
    "note": ("text", "fragile", "fragile", ""),
}
"""Tool → argument, its documented form, its right form, and the error. `note` is the control."""
PLACES = list(product(CITIES, ITEMS))


OWN_MODEL = f"""\
With a model as the agent (it needs OPENAI_API_KEY, or OPENAI_BASE_URL of another endpoint):
hansei eval run --preset {HOUSE_RULES} --seed 2 --arms none,hansei,icl \\
  --agent "python -m hansei.evaluation.house_rules --model NAME\""""


def plan_demo(*, with_service: bool, house_rules: bool, seed: int) -> tuple[Plan, list[str]]:
    """The plan, and lines to print after its report."""
    arms = PROTOCOL.arms if with_service else tuple(a for a in PROTOCOL.arms if a != "hansei")
    protocol = replace(PROTOCOL, arms=arms, seed=seed)
    if not house_rules:
        return make_plan([Task(**task) for task in make_tasks()], protocol, agent=AGENT), []
    preset = load_preset(HOUSE_RULES, seed=seed)
    protocol = replace(protocol, held_out=0, feedback="answer")
    plan = make_plan(preset.tasks, protocol, agent=HOUSE_RULES_AGENT, scorer=preset.scorer)
    return plan, [f"Hidden conventions of seed {seed}:", *preset.about, "", OWN_MODEL]


def make_tasks() -> list[Json]:
    return [_make_task(number, tool) for number in range(8) for tool in TOOLS]


def _make_task(number: int, tool: str) -> Json:
    city, item = PLACES[(number * len(TOOLS) + list(TOOLS).index(tool)) * 11 % len(PLACES)]
    task = f"{tool} {number + 2} {item} for the customer in {city}"
    right = _call(task, is_right=True)
    return {"id": f"{tool}-{number}", "task": task, "expected": right, "control": tool == "note"}


def _call(task: str, *, is_right: bool) -> str:
    """The call for a task as JSON."""
    tool, number, item, *_, city = task.split()
    argument, documented, right, _ = TOOLS[tool]
    value = (right if is_right else documented).format(n=number, d=int(number) % 9 + 1)
    return f"{tool} {json.dumps({'customer': city, 'item': item, argument: value})}"


def answer(request: Json) -> Json:
    """The scripted agent. Its answer is its first call."""
    task, advice = request["task"], request["advice"]
    tool = task.split()[0]
    error = TOOLS[tool][3]
    lines = [line for line in advice.splitlines() if f"`{tool}`" in line or f"{tool} {{" in line]
    knows = not error or bool(lines)
    calls = [_call(task, is_right=False)] if not knows else []
    calls.append(_call(task, is_right=True))
    events: list[Json] = [{"event_type": "user_message", "content": task}]
    for call, result in zip(calls, [f"Error: {error}", "ok"][-len(calls) :], strict=True):
        shared = {"tool_name": tool, "metadata": {"call_id": f"call-{len(events)}"}}
        arguments = call.removeprefix(tool + " ")
        events.append({"event_type": "tool_call", "content": arguments, **shared})
        failed = {"error": {"message": result}} if result != "ok" else {}
        events.append({"event_type": "tool_response", "content": result, **shared, **failed})
    for key in BULLET_KEY.findall(lines[0]) if lines else ():
        events.append({"event_type": "llm_response", "content": f"I follow [{key}]."})
    used = 50 + len(advice) // 4
    usage = {"input_tokens": used, "output_tokens": 20, "usd": used / 1e6}
    return {"answer": calls[0], "events": events, "usage": usage}
