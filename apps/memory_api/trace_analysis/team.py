"""Who did what in a run: the steps of each agent, the code they wrote and the output that followed.

Roles come from the shape of the events, never from the names of agents: an output starts with an
exit code, a coordinator addresses other agents, a bookkeeping step is a ledger or names the next
speaker.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memory_api.trace_analysis.arguments import as_mapping, parse_mapping
from memory_api.traces.schemas import Event, EventType

MAX_STEPS = 600
_EXIT_CODE = re.compile(
    r"\bexit(?:ed)?[ _-]?(?:with )?(?:unix )?(?:exit )?(?:code|status)\W{0,3}(?P<code>-?\d{1,3})",
    re.IGNORECASE,
)
_CODE_BLOCK = re.compile(
    r"```(?P<language>[\w+\-]{0,20})[ \t]*\n(?P<code>.*?)(?:\n```|\Z)", re.DOTALL
)
_ADDRESSED = re.compile(r"^(?P<agent>.*?)\s*\((?:->|→)\s*(?P<other>[^)]{1,80})\)\s*$")
_ANNOTATED = re.compile(r"^(?P<agent>.*?)\s*\([^)]{1,80}\)\s*$")
_OUTPUT_LABEL = re.compile(r"^\W{0,3}(?:code )?output\b[^\n:]{0,20}:\s*", re.IGNORECASE)
_CODE_MARK = re.compile(r"[()=<>*;]")
_MAX_CODE_CHARACTERS = 20_000
_MAX_ADDRESSED_CHARACTERS = 4_000


class Role(StrEnum):
    """What a step is for. A `task` states the task, a `coordinator` plans and addresses others, an
    `output` is what code or a tool returned.
    """

    TASK = "task"
    WORKER = "worker"
    COORDINATOR = "coordinator"
    BOOKKEEPING = "bookkeeping"
    OUTPUT = "output"


@dataclass(slots=True)
class AgentStep:
    """One event of a run. `addressee` is the agent that a coordinator instructs. `code` is the code
    that the step contains, with its `language`; `exit_code` is that of an output. `is_plan`: an
    agent states the task, usually with a plan. `is_call`: the event is a tool call.
    """

    position: int
    event_id: str
    agent: str
    role: Role
    text: str
    addressee: str = ""
    language: str = ""
    code: str = ""
    exit_code: int | None = None
    is_plan: bool = False
    is_call: bool = False

    @property
    def is_blameable(self) -> bool:
        """Whether an agent decided something in this step."""
        return self.role in (Role.WORKER, Role.COORDINATOR)

    @property
    def is_message(self) -> bool:
        """Whether an agent says something in this step, with or without code."""
        return self.is_blameable and not self.is_call

    @property
    def program(self) -> str:
        """The code blocks of the step, or the arguments of a call that are code; else ''."""
        if self.code or not self.is_call:
            return self.code
        mapping = parse_mapping(self.text)
        values = [self.text] if mapping is None else list(mapping.values())
        return "\n".join(value for value in values if isinstance(value, str) and _is_code(value))


def _is_code(text: str) -> bool:
    """Whether an argument is code: several lines or four marks of code, and no address."""
    head = text[:_MAX_CODE_CHARACTERS].strip()
    return "://" not in head[:12] and ("\n" in head or len(_CODE_MARK.findall(head)) > 3)


def parse_exit_code(text: str) -> int | None:
    """The exit code at the start of an output; None if there is none."""
    match = _EXIT_CODE.search(text[:160])
    return int(match["code"]) if match else None


def output_body(text: str) -> str:
    """An output without its line with the exit code."""
    head, separator, body = text.partition("\n")
    return _OUTPUT_LABEL.sub("", body if separator and _EXIT_CODE.search(head) else text).strip()


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of the fenced code blocks."""
    if "```" not in text:
        return []
    return [(m["language"], m["code"]) for m in _CODE_BLOCK.finditer(text[:_MAX_CODE_CHARACTERS])]


def is_team(events: Sequence[Event]) -> bool:
    """Whether at least two agents took part."""
    return len({base_name(event.agent) for event in events if event.agent}) > 1


def base_name(agent: str | None) -> str:
    """An agent's name without an annotation: `Orchestrator (thought)` is `Orchestrator`."""
    match = _ANNOTATED.match(agent or "")
    return match["agent"] if match else agent or ""


def parse_steps(events: Sequence[Event], event_ids: Sequence[str], task: str) -> list[AgentStep]:
    """The steps of a run of several agents, at most `MAX_STEPS`; [] for other runs."""
    if not is_team(events):
        return []
    names = [base_name(event.agent) for event in events[:MAX_STEPS]]
    known = set(filter(None, names))
    coordinators = {
        base_name(event.agent) for event in events if event.agent and _ADDRESSED.match(event.agent)
    } or _find_coordinators(events[:MAX_STEPS], names)
    restated = " ".join(task.split())[:120]
    steps: list[AgentStep] = []
    for position, event in enumerate(events[:MAX_STEPS]):
        text = event.content
        step = AgentStep(position, event_ids[position], names[position], Role.WORKER, text)
        previous = steps[-1] if steps else None
        addressed = _ADDRESSED.match(event.agent or "")
        step.addressee = base_name(addressed["other"]) if addressed else ""
        step.is_call = event.event_type is EventType.TOOL_CALL
        step.role = _role(event, step, previous, coordinators, known)
        if step.role is Role.OUTPUT:
            step.exit_code = parse_exit_code(text)
        elif blocks := code_blocks(text):
            step.language = next((language for language, _ in blocks if language), "")
            step.code = "\n".join(code for _, code in blocks)
        if (
            step.role in (Role.WORKER, Role.COORDINATOR)
            and not any(earlier.is_blameable for earlier in steps)
            and len(restated) > 20
            and restated in " ".join(text[:6_000].split())
            and step.agent not in coordinators
            and not step.code
        ):
            step.role = Role.COORDINATOR if position else Role.TASK
            step.is_plan = not position
        steps.append(step)
    return steps


def _find_coordinators(events: Sequence[Event], names: Sequence[str]) -> set[str]:
    """Agents that instruct others and do nothing themselves: they made no call, wrote no code,
    address at least one agent by name, and speak first, last, or to several agents.
    """
    acting = {
        name
        for event, name in zip(events, names, strict=True)
        if event.event_type is EventType.TOOL_CALL or "```" in event.content
    }
    spoken = [
        (name, event.content)
        for event, name in zip(events, names, strict=True)
        if name and event.event_type is EventType.LLM_RESPONSE
    ]
    known = {name for name in names if name}
    addressed: dict[str, set[str]] = {}
    for name, text in spoken:
        if name not in acting:
            addressed.setdefault(name, set()).update(addressees(text, known - {name}))
    ends = {spoken[0][0], spoken[-1][0]} if spoken else set[str]()
    return {
        name for name, others in addressed.items() if len(others) > 1 or (others and name in ends)
    }


def addressees(text: str, agents: Iterable[str]) -> list[str]:
    """The agents that a message addresses: a sentence starts with the name and a comma or colon, or
    ends with a comma and the name.
    """
    start = text[:_MAX_ADDRESSED_CHARACTERS]
    return [
        agent
        for agent in agents
        if re.search(
            rf"(?:^|[.!?:;,)\n*]\s*){re.escape(agent)}\s?(?:[,:]|\s[-–—]|→|->)",
            start,
        )
        or re.search(rf", {re.escape(agent)}\s*[.!?]", start)
    ]


def _role(
    event: Event,
    step: AgentStep,
    previous: AgentStep | None,
    coordinators: set[str],
    known: set[str],
) -> Role:
    kind = event.event_type
    if kind is EventType.USER_MESSAGE:
        return Role.TASK
    if kind in (EventType.TOOL_RESPONSE, EventType.ERROR_EVENT):
        return Role.OUTPUT
    if kind is EventType.SYSTEM_EVENT:
        return Role.BOOKKEEPING
    if "```" not in step.text and parse_exit_code(step.text) is not None:
        return Role.OUTPUT
    if (
        previous
        and previous.code
        and step.agent != previous.agent
        and _OUTPUT_LABEL.match(step.text)
    ):
        return Role.OUTPUT
    if is_ledger(step.text) or _is_short_hand_off(step.text, known - {step.agent}):
        return Role.BOOKKEEPING
    return Role.COORDINATOR if step.agent in coordinators else Role.WORKER


def is_ledger(text: str) -> bool:
    """Whether a text is a ledger: a JSON object, most of whose entries are objects with an answer
    or a reason.
    """
    start = text.find("{", 0, 200)
    if start < 0 or len(text) > 20_000 or text.rstrip()[-1:] not in "}`":
        return False
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    entries = [as_mapping(entry) for entry in as_mapping(value).values()]
    return len(entries) > 1 and 2 * sum("answer" in e or "reason" in e for e in entries) > len(
        entries
    )


def _is_short_hand_off(text: str, others: set[str]) -> bool:
    """Whether a text says no more than who is next: at most four words, none of them with a digit,
    and an agent's name.
    """
    line = text.strip()
    return (
        len(line) < 100
        and not re.search(r"\d", line)
        and any(other in line and len(line.replace(other, "").split()) <= 4 for other in others)
    )


def author_of(steps: Sequence[AgentStep], output: AgentStep) -> AgentStep:
    """The step that caused an output: the latest step before it that has code, else the latest one
    that an agent decided. The output itself if there is none.
    """
    before = [step for step in steps if step.position < output.position]
    for step in reversed(before[-4:]):
        if step.code:
            return step
    return next((step for step in reversed(before) if step.is_blameable), output)


def step_counts(steps: Sequence[AgentStep]) -> tuple[tuple[str, int], ...]:
    """How many steps each agent took, in order of the first one. Outputs and the task are left
    out.
    """
    return tuple(Counter(step.agent for step in steps if step.is_blameable and step.agent).items())
