"""A scripted agent for House Rules, to see what `hansei eval` does without a model."""

from __future__ import annotations

import re

from hansei._model import Json
from hansei.evaluation.house_rules.episode import Episode
from hansei.evaluation.house_rules.tasks import to_line
from hansei.evaluation.house_rules.world import World
from hansei.evaluation.tasks import BULLET_KEY

NO_LESSONS = ("Task: ", "Call: ", "Answer: ", "Feedback: ")
"""How lines of earlier attempts begin that show no right call."""


def answer(request: Json) -> Json:
    """Calls each tool as its documentation says, or as its conventions demand if the advice names
    the tool in a bullet or a right call. The agent need not understand the advice: it knows the
    conventions.
    """
    episode = Episode(request["task_id"])
    found, task = episode.benchmark, episode.task
    lines = [text for text in request["advice"].splitlines() if not text.startswith(NO_LESSONS)]
    about = {
        tool: [text for text in lines if re.search(rf"\b{tool}\b", text)]
        for tool in found.domain.tools
    }
    known = [c for c in found.phases[task.phase] if about[c.tool]]
    calls = World(found.domain, found.tables, known).right_calls(task.actions)
    reply = "\n".join(map(to_line, calls))
    used = {text for c in known if c in task.touched for text in about[c.tool]}
    for key in sorted({key for text in used for key in BULLET_KEY.findall(text)}):
        event = {"event_type": "llm_response", "content": f"I follow [{key}]."}
        episode.events.append(event)
    episode.say(reply)
    prompt = "".join(message["content"] for message in episode.prompt(request["advice"]))
    return {
        "answer": episode.answer(),
        "events": episode.events,
        "tools": episode.tools(),
        "usage": {"input_tokens": len(prompt) // 4, "output_tokens": len(reply) // 4},
    }
