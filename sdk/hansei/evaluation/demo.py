"""40 tasks and a scripted agent, to see what `hansei eval` does without a model and a key.

The tools of an office have a form that their documentation does not state. The agent calls a tool
in the documented form, reads the error, and corrects the call. It uses the right form at once only
if its advice names the tool.
"""

from __future__ import annotations

import json
from itertools import product

from hansei._model import Json
from hansei.evaluation.plan import Protocol
from hansei.evaluation.tasks import BULLET_KEY

TITLE = "DEMONSTRATION of the tool with a scripted agent. It shows no gain of any real agent."
PROTOCOL = Protocol(arms=("none", "hansei", "icl", "examples"), held_out=8, feedback="text")
AGENT = "hansei.evaluation.demo:answer"
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
