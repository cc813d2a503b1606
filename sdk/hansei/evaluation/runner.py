"""Carries out a plan: every answer is on the disk before the next call."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hansei._model import Json
from hansei.errors import EvaluationError, HanseiError
from hansei.evaluation.agents import (
    MAX_USAGE,
    STOPPED,
    Answer,
    CallFailed,
    Commands,
    Function,
    Scorer,
    call_agent,
)
from hansei.evaluation.memory import Memory
from hansei.evaluation.plan import SERVICE_ARMS, Block, Call, Plan
from hansei.evaluation.records import (
    ANSWERS_FILE,
    LEARNING_FILE,
    RecordFile,
    read_answers,
    read_learning,
)
from hansei.evaluation.tasks import BULLET_KEY
from hansei.recording.encoding import to_text

MAX_FAILURES_IN_A_ROW = 5


@dataclass(frozen=True)
class Limits:
    """Options that do not change what is measured."""

    parallel: int = 4
    timeout: float = 120.0
    retries: int = 2
    learn_timeout: float = 3600.0
    budget_usd: float | None = None
    input_price: float | None = None
    output_price: float | None = None
    """US dollars for a million tokens, if the agent does not report `usage.usd`."""

    def __post_init__(self) -> None:
        for price in (self.input_price, self.output_price):
            if price is not None and not 0 <= price <= MAX_USAGE:  # NaN neither
                raise EvaluationError(f"`{price}` is no price in dollars.")

    @property
    def has_prices(self) -> bool:
        return self.input_price is not None and self.output_price is not None

    def cost(self, usage: Json) -> float | None:
        """US dollars of one call, or None if unknown."""
        if "usd" in usage:
            return float(usage["usd"])
        if self.input_price is None or self.output_price is None or not usage:
            return None
        tokens = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        return (tokens[0] * self.input_price + tokens[1] * self.output_price) / 1e6


@dataclass
class Progress:
    """State of a run, for a progress bar."""

    done: int
    total: int
    status: str
    usd: float | None
    """Spent on the agent and on learning until now, as far as it is known."""


class Stopped(EvaluationError):
    """The run ended early and can be resumed."""

    code = "stopped"


class Runner:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        agent: Function,
        scorer: Scorer,
        memory: Memory,
        commands: Commands,
        limits: Limits,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._plan, self._folder = plan, folder
        self._agent, self._scorer, self._memory = agent, scorer, memory
        self._commands, self._limits, self._on_progress = commands, limits, on_progress
        self._answers_file = RecordFile(folder / ANSWERS_FILE)
        self._learning_file = RecordFile(folder / LEARNING_FILE)
        self._tasks = {task.id: task for task in plan.tasks}
        self._lock = threading.Lock()
        self._answers = {call_key(record): record for record in read_answers(folder)}
        self._learned = {
            (record["repeat"], record["window"]): record for record in read_learning(folder)
        }
        self._blocks = list(plan.blocks())
        self._total = sum(len(block.calls) for block in self._blocks)
        self._unscored: dict[tuple[Any, ...], Json] = {}
        self._failures_in_a_row = 0
        self._retry_failed_calls()
        self._price_earlier_answers()

    def _retry_failed_calls(self) -> None:
        """A failed call is made again, unless the playbook has changed since. If only the scorer
        failed, its answer is used.
        """
        for key, record in list(self._answers.items()):
            is_past = (record["repeat"], record["window"]) in self._learned
            if record["error"] and not (
                is_past and record["phase"] == "stream" and record["arm"] in SERVICE_ARMS
            ):
                del self._answers[key]
                if record["answer"] is not None:
                    self._unscored[key] = record

    def _price_earlier_answers(self) -> None:
        """Store the cost of answers that were made before the prices were known."""
        for record in self._answers.values():
            usd = self._limits.cost(record["usage"] or {})
            if record["usd"] is None and usd is not None:
                record["usd"] = usd
                self._answers_file.append(record)

    def run(self) -> None:
        """Raises `Stopped` if the run can be resumed, and `KeyboardInterrupt` after the second
        Ctrl-C.
        """
        try:
            self._run()
        except Stopped:
            raise
        except HanseiError as error:  # the service, or the disk
            raise Stopped(error.detail) from error

    def _run(self) -> None:
        if self._memory.uses_service:
            for repeat in range(self._plan.protocol.repeats):
                self._memory.prepare(repeat)
        for index, block in enumerate(self._blocks):
            self._answer(block)
            is_needed = any(b.repeat == block.repeat for b in self._blocks[index + 1 :])
            if block.phase == "stream" and self._memory.uses_service and is_needed:
                self._learn(block)

    def _answer(self, block: Block) -> None:
        pending = [call for call in block.calls if call.key not in self._answers]
        if not pending:
            return
        earlier = [
            record
            for record in self._records()
            if record["repeat"] == block.repeat
            and record["phase"] == "stream"
            and (block.phase != "stream" or record["window"] < block.window)
        ]
        earlier.sort(key=lambda record: record["window"])
        calls = deque(pending)
        running: set[Future[None]] = set()
        label = f"window {block.window + 1}" if block.phase == "stream" else block.phase
        with ThreadPoolExecutor(self._limits.parallel) as pool:
            try:
                while calls or running:
                    while calls and len(running) < self._limits.parallel:
                        if not self._budget_allows(len(running)):
                            break
                        running.add(pool.submit(self._answer_call, calls.popleft(), earlier))
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    self._report(label)
            except BaseException as error:
                self._wait_for_running(running, error)
                raise

    def _wait_for_running(self, running: Iterable[Future[None]], error: BaseException) -> None:
        """Running calls are paid for, so they end first, unless Ctrl-C comes twice."""
        try:
            if isinstance(error, KeyboardInterrupt):
                self._report("stopping after the running calls; Ctrl-C again ends them")
            wait(list(running))
        except KeyboardInterrupt:
            self._commands.stop()

    def _answer_call(self, call: Call, earlier: list[Json]) -> None:
        started = time.monotonic()
        record = self._unscored.get(call.key) or self._call(call, earlier)
        if record["answer"] is not None or not record["error"]:
            self._score(record)
        record["usd"] = self._limits.cost(record["usage"])
        record["seconds"] = round(time.monotonic() - started, 3)
        self._answers_file.append(record)
        with self._lock:
            self._answers[call.key] = record
            self._failures_in_a_row = self._failures_in_a_row + 1 if record["error"] else 0
            if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                raise Stopped(
                    f"{MAX_FAILURES_IN_A_ROW} calls in a row failed, the last one with: "
                    f"{record['error'].rstrip('.')}."
                )

    def _call(self, call: Call, earlier: list[Json]) -> Json:
        advice = self._memory.advice(call, earlier)
        task = self._tasks[call.task_id]
        request: Json = {
            "task": task.task,
            "task_id": task.id,
            "arm": call.arm,
            "advice": advice.text,
            "retrieval_id": advice.retrieval_id,
        }
        record: Json = {
            **asdict(call),
            "advice": advice.text,
            "advice_tokens": advice.tokens,
            "retrieval_id": advice.retrieval_id,
            "bullet_keys": advice.bullet_keys,
            "score": 0.0,
            "error": None,
            "cited": [],
            "attempts": self._limits.retries + 1,
        }
        try:
            answer, attempts = call_agent(self._agent, request, retries=self._limits.retries)
            return {**record, **asdict(answer), "attempts": attempts}
        except CallFailed as error:
            if str(error) == STOPPED:
                raise Stopped("Stopped.") from None
            return {**record, **asdict(Answer()), "error": f"agent: {error}"}

    def _score(self, record: Json) -> None:
        task = self._tasks[record["task_id"]]
        names = ("answer", "events", "outcome")
        try:
            score = self._scorer(task, {name: record[name] for name in names})
        except CallFailed as error:
            record["error"] = f"scorer: {error}"
            return
        record["error"], record["score"] = None, score.value
        record["feedback"] = score.feedback or record["feedback"]
        record["cited"] = cited_keys(record)

    def _budget_allows(self, running: int) -> bool:
        """Whether one more call stays within the budget, whatever the running ones cost. Raises
        `Stopped` if it does not and none is running.
        """
        budget = self._limits.budget_usd
        if budget is None:
            return True
        answers = [record for record in self._records() if not record["error"]]
        costs = [record["usd"] for record in answers]
        if None in costs:
            reason = "pass --input-price and --output-price"
            if not all(record["usage"] for record in answers):
                reason += ", and let the agent report its tokens in `usage`, or only `usage.usd`"
            raise Stopped(f"The budget cannot be checked: {reason}.")
        if not costs:
            return not running  # one call shows what a call costs
        spent = self.spent()
        if spent + max(costs) * (running + 1) <= budget:
            return True
        if not running:
            raise Stopped(f"The budget of ${budget:g} is reached: ${spent:.4f} is spent.")
        return False

    def _records(self) -> list[Json]:
        with self._lock:
            return list(self._answers.values())

    def spent(self) -> float:
        """US dollars until now, as far as they are known."""
        agent = sum(record["usd"] or 0.0 for record in self._records())
        return agent + sum(last.get("usd", 0.0) for last in self._learning_usage())

    def _learning_usage(self) -> list[Json]:
        last: dict[int, Json] = {}
        for (repeat, _), record in sorted(self._learned.items()):
            last[repeat] = record["usage"]
        return list(last.values())

    def _learn(self, block: Block) -> None:
        if (block.repeat, block.window) in self._learned:
            return
        answers = [self._answers[call.key] for call in block.calls]
        label = f"learning from window {block.window + 1}"
        self._report(label)
        record = self._memory.learn(
            block,
            answers,
            timeout=self._limits.learn_timeout,
            on_wait=lambda done, total: self._report(f"{label}: {done} of {total}"),
        )
        self._learning_file.append(record)
        self._learned[block.repeat, block.window] = record

    def _report(self, status: str) -> None:
        records = self._records()
        is_known = any(record["usd"] is not None for record in records)
        usd = self.spent() if is_known else None
        self._on_progress(Progress(len(records), self._total, status, usd))


def call_key(record: Json) -> tuple[Any, ...]:
    return record["repeat"], record["phase"], record["task_id"], record["arm"]


def cited_keys(record: Json) -> list[str]:
    """Keys of rendered bullets that the answer or the events name."""
    texts = [to_text(record["answer"]), *(to_text(e.get("content")) for e in record["events"])]
    found = {key for text in texts for key in BULLET_KEY.findall(text)}
    return sorted(found & set(record["bullet_keys"]))
