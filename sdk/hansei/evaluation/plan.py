"""The plan of an evaluation. It is written before the first call, and nothing can be chosen
afterwards: the report names its hash.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.evaluation.command_words import SECRET_NAMES, hide_secrets
from hansei.evaluation.records import OPTIONAL_TEXT, TEXTS, Form, check_fields, matches
from hansei.evaluation.tasks import Task, parse_tasks, with_held_out
from hansei.models import Match

Arm = Literal["none", "hansei", "icl", "examples", "full"]
ARMS: tuple[Arm, ...] = ("none", "hansei", "icl", "examples", "full")
SERVICE_ARMS = frozenset({"hansei", "full"})
Phase = Literal["stream", "second", "held_out"]
PHASES: dict[Phase, str] = {
    "stream": "first pass (while learning)",
    "second": "second pass (same tasks, frozen memory)",
    "held_out": "held-out tasks (frozen memory)",
}
Feedback = Literal["outcome", "text", "answer"]
PLAN_FILE, TASKS_FILE = "plan.json", "tasks.jsonl"
MAX_WINDOW = 10


@dataclass(frozen=True)
class Protocol:
    """The options that decide what is measured."""

    arms: tuple[Arm, ...] = ("none", "hansei")
    window: int | None = None
    """Stream tasks between two updates of the memory. Default: a quarter of all, at most 10."""
    held_out: int = 0
    """Tasks to hold out, in addition to those with `split: held_out`."""
    second_pass: bool = True
    repeats: int = 1
    seed: int = 1
    order: Literal["random", "file"] = "random"
    """Of the stream. `file` for tasks whose order matters, as when a rule changes halfway."""
    feedback: Feedback = "answer"
    """What the memory learns after an attempt: the outcome; also the scorer's text; also the right
    answer."""
    playbook: str | None = None
    """The memory starts as a copy of this playbook. Default: empty."""
    token_budget: int | None = None
    min_match: Match | None = None
    """The least match of a bullet with the task, for a playbook that does not fit the budget."""
    icl_tokens: int = 30_000
    examples: int = 5
    reflect: Literal["auto", "always"] = "auto"
    limit: int | None = None
    limit_held_out: int | None = None
    """At most so many tasks of the stream, and of those with `split: held_out`."""

    @property
    def learner(self) -> Arm:
        """The arm whose attempts the service learns from. `full` renders the same playbook."""
        return "hansei" if "hansei" in self.arms else "full"


@dataclass(frozen=True)
class Call:
    repeat: int
    phase: Phase
    window: int
    task_id: str
    arm: Arm

    @property
    def key(self) -> tuple[int, str, str, str]:
        return self.repeat, self.phase, self.task_id, self.arm


@dataclass(frozen=True)
class Block:
    """Calls in random order that see the same memory. After a window of the stream, the memory
    learns.
    """

    repeat: int
    phase: Phase
    window: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Plan:
    id: str
    created_at: str
    agent: str
    scorer: str | None
    tasks: tuple[Task, ...]
    protocol: Protocol
    orders: tuple[tuple[str, ...], ...]
    """The order of the stream in each repeat."""
    primary: tuple[Phase, int]
    """The phase that decides, and its first window. A plan keeps it, whatever a later version would
    choose."""
    stored_sha256: str | None = field(default=None, compare=False)
    """The hash in the plan's file: a plan of an older version lacks some fields."""

    @property
    def window(self) -> int:
        count = len(self.orders[0])
        return self.protocol.window or max(1, min(MAX_WINDOW, count // 4))

    @property
    def first_advised_window(self) -> int:
        """The first window of the stream that counts: in the first, an empty memory is empty."""
        return 0 if self.protocol.playbook or len(self.orders[0]) <= self.window else 1

    def blocks(self) -> Iterator[Block]:
        protocol = self.protocol
        held_out = [task.id for task in self.tasks if task.split == "held_out"]
        for repeat, order in enumerate(self.orders):
            shuffle = random.Random(f"{protocol.seed}:{repeat}")
            for window, start in enumerate(range(0, len(order), self.window)):
                ids = order[start : start + self.window]
                yield self._block(repeat, "stream", window, ids, protocol.arms, shuffle)
            memory_arms: tuple[Arm, ...] = tuple(arm for arm in protocol.arms if arm != "none")
            if protocol.second_pass and memory_arms:
                yield self._block(repeat, "second", 0, order, memory_arms, shuffle)
            if held_out:
                yield self._block(repeat, "held_out", 0, held_out, protocol.arms, shuffle)

    def _block(
        self,
        repeat: int,
        phase: Phase,
        window: int,
        ids: Sequence[str],
        arms: Sequence[Arm],
        shuffle: random.Random,
    ) -> Block:
        calls = [Call(repeat, phase, window, task_id, arm) for task_id in ids for arm in arms]
        shuffle.shuffle(calls)
        return Block(repeat, phase, window, tuple(calls))

    @property
    def task_counts(self) -> dict[str, int]:
        return {
            "stream": sum(task.split == "stream" for task in self.tasks),
            "held_out": sum(task.split == "held_out" for task in self.tasks),
            "controls": sum(task.control for task in self.tasks),
        }

    def to_json(self) -> dict[str, Any]:
        """The plan with its hash, and the one of what a second start in its folder must repeat."""
        lines = [json.dumps(task.to_json(), sort_keys=True) for task in self.tasks]
        repeated: dict[str, Any] = {
            "version": 1,
            "agent": self.agent,
            "scorer": self.scorer,
            "tasks_sha256": _sha256("\n".join(lines)),
            "protocol": asdict(self.protocol),
            "window": self.window,
            "primary": list(self.primary),
            "orders": self.orders,
            "calls": sum(len(block.calls) for block in self.blocks()),
        }
        document = {"id": self.id, "created_at": self.created_at, **repeated}
        return {
            **document,
            "sha256": self.stored_sha256 or _plan_sha256(document),
            "repeated_sha256": _plan_sha256(repeated),
        }

    def with_commands(self, agent: str | None, scorer: str | None) -> Plan:
        """The plan with other secrets in its commands. Raises `EvaluationError` if they differ in
        more.
        """
        changed = replace(self, agent=agent or self.agent, scorer=scorer or self.scorer)
        if changed.to_json()["repeated_sha256"] != self.to_json()["repeated_sha256"]:
            raise EvaluationError(
                "--agent and --scorer may differ from those of the plan only in values of variables"
                f" and options whose names end in {SECRET_NAMES}."
            )
        return changed

    def save(self, folder: Path) -> None:
        lines = [json.dumps(task.to_json(), ensure_ascii=False) for task in self.tasks]
        (folder / TASKS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        (folder / PLAN_FILE).write_text(text + "\n", encoding="utf-8")


def make_plan(
    tasks: Sequence[Task], protocol: Protocol, *, agent: str, scorer: str | None = None
) -> Plan:
    """Raises `EvaluationError` if the tasks do not fit the protocol."""
    choice = random.Random(f"{protocol.seed}:tasks")
    chosen = [task for task in tasks if task.split == "stream"][: protocol.limit]
    held_out = [task for task in tasks if task.split == "held_out"][: protocol.limit_held_out]
    if protocol.held_out >= len(chosen):
        raise EvaluationError(
            f"Cannot hold out {protocol.held_out}: the stream has only {len(chosen)}."
        )
    order = list(range(len(chosen)))
    choice.shuffle(order)
    all_tasks = [*with_held_out(chosen, protocol.held_out, order), *held_out]
    _check_arms(all_tasks, protocol.arms)
    stream = [task.id for task in all_tasks if task.split == "stream"]
    orders = tuple(
        tuple(stream)
        if protocol.order == "file"
        else tuple(random.Random(f"{protocol.seed}:{repeat}:order").sample(stream, len(stream)))
        for repeat in range(protocol.repeats)
    )
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%S}-{random.SystemRandom().randrange(16**4):04x}"
    plan = Plan(
        id=name,
        created_at=now.isoformat(timespec="seconds"),
        agent=agent,
        scorer=scorer,
        tasks=tuple(all_tasks),
        protocol=protocol,
        orders=orders,
        primary=("held_out", 0),
    )
    return replace(plan, primary=_choose_primary(plan))


def _choose_primary(plan: Plan) -> tuple[Phase, int]:
    """What shows best whether the memory helps: new tasks, else the same tasks after learning, else
    the tasks while it learns.
    """
    phases = {block.phase for block in plan.blocks()}
    if "held_out" in phases:
        return "held_out", 0
    return ("second", 0) if "second" in phases else ("stream", plan.first_advised_window)


def _check_arms(tasks: Sequence[Task], arms: Sequence[Arm]) -> None:
    if unknown := [arm for arm in arms if arm not in ARMS]:
        raise EvaluationError(f"Unknown arm '{unknown[0]}'. Arms are {', '.join(ARMS)}.")
    if len(set(arms)) != len(arms) or not arms:
        raise EvaluationError("`arms` names each arm once.")
    if "examples" in arms:
        missing = [task.id for task in tasks if task.right_answer is None]
        if missing:
            raise EvaluationError(
                f"The arm `examples` needs the right answer of every task. Task '{missing[0]}' has "
                f"neither `expected` nor `solution` ({len(missing)} in total)."
            )


def _is_positive(value: Any) -> bool:
    return matches(value, int) and value > 0


def are_arms(value: Any) -> bool:
    """Whether a value names each of its arms once. Tables have a column for each."""
    return matches(value, [ARMS]) and 0 < len(value) == len(set(value))


def _has_arms(value: Any) -> bool:
    return isinstance(value, dict) and "arms" in value


def _are_orders(value: Any) -> bool:
    return matches(value, [TEXTS]) and bool(value)


def _is_seed(value: Any) -> bool:
    return isinstance(value, int)


def _is_primary(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(cast("list[Any]", value)) == 2
        and value[0] in PHASES
        and matches(value[1], int)
    )


_PLAN: Mapping[str, Form] = {
    **dict.fromkeys(("id", "created_at", "agent", "sha256", "tasks_sha256"), str),
    "scorer": OPTIONAL_TEXT,
    "protocol": _has_arms,
    "orders": _are_orders,
    "primary": _is_primary,
}
_OPTIONS: Mapping[str, Form] = {
    **dict.fromkeys(("window", "token_budget", "limit", "limit_held_out"), (_is_positive, None)),
    **dict.fromkeys(("held_out", "icl_tokens"), int),
    **dict.fromkeys(("repeats", "examples"), _is_positive),
    **dict.fromkeys(("order", "feedback", "reflect"), str),
    **dict.fromkeys(("min_match", "playbook"), OPTIONAL_TEXT),
    "arms": are_arms,
    "second_pass": bool,
    "seed": _is_seed,
}


def load_plan(folder: Path) -> Plan:
    """Raises `EvaluationError` if the folder has no plan, or if it was changed."""
    for name in (PLAN_FILE, TASKS_FILE):
        if not (folder / name).is_file():  # reading a named pipe would wait for a writer
            raise EvaluationError(f"{folder} has no readable evaluation: no file {name}.")
    try:
        document: Any = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        lines = (folder / TASKS_FILE).read_bytes().splitlines()
    except (OSError, ValueError, RecursionError) as error:
        raise EvaluationError(f"{folder} has no readable evaluation: {error}.") from error
    fields = cast("Json", document if isinstance(document, dict) else {})
    check_fields(fields, _PLAN, str(folder / PLAN_FILE))
    options = dict(fields["protocol"])
    if unknown := sorted(options.keys() - _OPTIONS.keys()):
        raise EvaluationError(f"{folder / PLAN_FILE} has an unknown option `{unknown[0]}`.")
    given = {name: form for name, form in _OPTIONS.items() if name in options}
    check_fields(options, given, f"{folder / PLAN_FILE}, `protocol`")
    options["arms"] = tuple(options["arms"])
    tasks = parse_tasks(
        list(enumerate(lines, start=1)),
        source=str(folder / TASKS_FILE),
        has_scorer=False,
        is_stored=True,
    )
    plan = Plan(
        id=fields["id"],
        created_at=fields["created_at"],
        agent=fields["agent"],
        scorer=fields["scorer"],
        tasks=tuple(tasks),
        protocol=Protocol(**options),
        orders=tuple(tuple(order) for order in fields["orders"]),
        primary=tuple(fields["primary"]),
        stored_sha256=fields["sha256"],
    )
    # The stored document counts: an option that is newer than the plan is not in its hash.
    stored = {k: v for k, v in fields.items() if k not in ("sha256", "repeated_sha256")}
    is_intact = _plan_sha256(stored) == fields["sha256"]
    known = {task.id for task in tasks}
    is_intact = is_intact and all(known.issuperset(order) for order in plan.orders)
    if not is_intact or plan.to_json()["tasks_sha256"] != fields["tasks_sha256"]:
        raise EvaluationError(f"The plan or the tasks in {folder} were changed after the start.")
    return plan


def _plan_sha256(document: Json) -> str:
    """Without secrets in commands: a key may be replaced before the run continues."""
    commands = {name: document[name] for name in ("agent", "scorer") if document[name]}
    hidden = {name: hide_secrets(command) for name, command in commands.items()}
    return _sha256(json.dumps(document | hidden, sort_keys=True))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
