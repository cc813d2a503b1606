"""What each arm gives to the agent, and how the memory learns from a window."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hansei import _operations
from hansei._model import Json
from hansei.errors import EvaluationError, NotFoundError
from hansei.evaluation.plan import SERVICE_ARMS, Block, Call, Plan
from hansei.evaluation.tasks import Task
from hansei.recording.encoding import to_text

if TYPE_CHECKING:
    from hansei.client import Hansei

CHARACTERS_PER_TOKEN = 4
MAX_QUERY_CHARACTERS = 10_000
FULL_TOKENS, FULL_BULLETS = 1_000_000, 1000
MAX_ATTEMPT_CHARACTERS = 4_000
PLAYBOOK = "evaluation"
READING_JUDGES = ("llm", "rules")
"""Judges that read what the agent did. `outcome` knows only how it ended."""
MODEL_REFUSALS = ("llm_auth", "llm_quota", "budget_spent", "price_unknown")
"""Codes of errors that last until a person acts."""


@dataclass(frozen=True)
class Advice:
    text: str = ""
    retrieval_id: str | None = None
    bullet_keys: list[str] = field(default_factory=list[str])

    @property
    def tokens(self) -> int:
        """An estimate."""
        return math.ceil(len(self.text) / CHARACTERS_PER_TOKEN)


class Memory:
    """The memories of all arms. `answers` are those of earlier windows of the same repeat."""

    def __init__(self, plan: Plan, client: Hansei | None) -> None:
        self._plan = plan
        self._tasks = {task.id: task for task in plan.tasks}
        self._client = client

    @property
    def uses_service(self) -> bool:
        return bool(SERVICE_ARMS & set(self._plan.protocol.arms))

    def project(self, repeat: int) -> str:
        """Each repeat has a project of its own, so it starts without lessons."""
        return f"eval-{self._plan.id}-{repeat + 1}"

    def _service(self) -> Hansei:
        assert self._client is not None
        return self._client

    def require_playbook(self) -> None:
        """Raises `NotFoundError` if the playbook to start from does not exist."""
        if self.uses_service and (name := self._plan.protocol.playbook):
            self._service().playbooks.get(name)

    def prepare(self, repeat: int) -> None:
        """Create the playbook of a repeat, unless an interrupted run did."""
        client, project = self._service(), self.project(repeat)
        try:
            client.playbooks.get(PLAYBOOK, project_id=project)
        except NotFoundError:
            content: _operations.Playbook | Json = {"bullets": []}
            if name := self._plan.protocol.playbook:
                content = client.playbooks.get(name)
            reason = f"evaluation {self._plan.id}"
            client.playbooks.replace(
                PLAYBOOK, content, if_match=0, reason=reason, project_id=project
            )

    def advice(self, call: Call, answers: Sequence[Json]) -> Advice:
        task = self._tasks[call.task_id]
        earlier = [
            a for a in answers if a["arm"] == call.arm and a["score"] is not None and not a["error"]
        ]
        if call.arm == "icl":
            return Advice(self._attempts(earlier))
        if call.arm == "examples":
            return Advice(self._examples(task, earlier))
        if call.arm in SERVICE_ARMS:
            return self._render(call, task)
        return Advice()

    def _render(self, call: Call, task: Task) -> Advice:
        is_full = call.arm == "full"
        block = self._service().playbooks.render(
            PLAYBOOK,
            "" if is_full else task.text[:MAX_QUERY_CHARACTERS],
            project_id=self.project(call.repeat),
            token_budget=FULL_TOKENS if is_full else self._plan.protocol.token_budget,
            top_k=FULL_BULLETS if is_full else None,
            min_match=None if is_full else self._plan.protocol.min_match,
            holdout_share=0.0,
            include_trials=call.phase == "stream",
        )
        return Advice(block.text, block.retrieval_id, block.bullet_keys)

    def _attempts(self, earlier: Sequence[Json]) -> str:
        """The newest attempts that fit the token budget, the oldest first."""
        left = self._plan.protocol.icl_tokens * CHARACTERS_PER_TOKEN
        texts: list[str] = []
        for attempt in reversed(earlier):
            text = self._attempt_text(attempt)
            left -= len(text)
            if left < 0:
                break
            texts.append(text)
        return "Earlier attempts at other tasks:\n\n" + "\n".join(reversed(texts)) if texts else ""

    def _attempt_text(self, attempt: Json) -> str:
        task = self._tasks[attempt["task_id"]]
        lines = [f"Task: {task.text}"]
        for event in attempt["events"]:
            if event.get("event_type") in ("tool_call", "tool_response"):
                kind = "Call" if event["event_type"] == "tool_call" else "Result"
                lines.append(f"{kind}: {to_text(event.get('content'))[:MAX_ATTEMPT_CHARACTERS]}")
        lines.append(f"Answer: {to_text(attempt['answer'])[:MAX_ATTEMPT_CHARACTERS]}")
        lines.append(f"Outcome: {outcome_of(attempt['score'])}")
        if feedback := self._feedback(attempt):
            lines.append(f"Feedback: {feedback}")
        if attempt["score"] < 1 and (right := self._right_answer(task)):
            lines.append(f"Right answer: {right}")
        return "\n".join(lines) + "\n"

    def _examples(self, task: Task, earlier: Sequence[Json]) -> str:
        candidates = [self._tasks[a["task_id"]] for a in earlier]
        nearest = rank_by_similarity(task.text, [c.text for c in candidates])
        chosen = [candidates[i] for i in nearest[: self._plan.protocol.examples]]
        return format_examples(chosen)

    def _feedback(self, attempt: Json) -> str:
        return attempt["feedback"] if self._plan.protocol.feedback != "outcome" else ""

    def _right_answer(self, task: Task) -> str | None:
        return task.right_answer if self._plan.protocol.feedback == "answer" else None

    def trace(self, answer: Json) -> Json:
        """The trace of an attempt with what the memory may know about its result."""
        task = self._tasks[answer["task_id"]]
        outcome = outcome_of(answer["score"])
        events = answer["events"] or [{"event_type": "user_message", "content": task.text}]
        text = to_text(answer["answer"])
        if _last_response(events) != text:
            events = [*events, {"event_type": "llm_response", "content": text}]
        feedback = self._feedback(answer)
        optional = {
            "retrieval_id": answer["retrieval_id"],
            "ground_truth": self._right_answer(task),
            "tools": answer.get("tools") or None,
            "error": {"error_message": feedback} if feedback and outcome != "success" else None,
        }
        return {
            "external_id": f"{answer['repeat']}-{answer['window']}-{task.id}",
            "playbook": PLAYBOOK,
            "task_description": task.text,
            "query": task.text,
            "generated_answer": text,
            "outcome": outcome,
            "events": events,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def learn(
        self,
        block: Block,
        answers: Sequence[Json],
        *,
        timeout: float,
        on_wait: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Json:
        """Send the traces of a window and wait until the service has learned from them. Traces that
        were sent before are not sent again. Raises `HanseiError`.
        """
        client, project = self._service(), self.project(block.repeat)
        started, known = time.monotonic(), self._model_refusals(project)
        learner = self._plan.protocol.learner
        attempts = [a for a in answers if a["arm"] == learner and not a["error"]]
        receipts = list(
            client.traces.create_many(
                [self.trace(a) for a in attempts],
                reflect=self._plan.protocol.reflect,
                project_id=project,
            )
        )
        for receipt, attempt in zip(receipts, attempts, strict=True):
            if error := receipt.error:
                raise EvaluationError(
                    f"The service rejected the trace of task '{attempt['task_id']}':"
                    f" {error.get('field') or ''} {error.get('detail', error)}"
                )
        pairs = zip(receipts, attempts, strict=True)
        task_of = {r.trace_id: a["task_id"] for r, a in pairs if r.trace_id}
        run_ids = {run_id for receipt in receipts if (run_id := receipt.run_id)}
        for unfinished in client.runs.poll_unfinished(run_ids, project_id=project):
            on_wait(len(run_ids) - len(unfinished), len(run_ids))
            self._require_model(project, known)
            if unfinished and time.monotonic() - started > timeout:
                raise EvaluationError(
                    f"The service has not learned from {len(unfinished)} of {len(run_ids)} traces "
                    f"within {timeout:g} s. See `hansei run list`."
                )
        judged: set[str] = set()
        followed: set[str] = set()
        failed: list[Json] = []
        for run in client.runs.collect_finished(run_ids, project_id=project):
            if run.state in ("failed", "dead"):
                failed.append({"run_id": run.id, "kind": run.kind, "error": run.error})
            result: Any = run.result or {}
            for verdict in cast("list[Json]", result.get("verdicts") or []):
                if verdict["judge"] in READING_JUDGES and run.trace_id in task_of:
                    judged.add(task_of[run.trace_id])
                    if verdict["tag"] != "neutral":
                        followed.add(task_of[run.trace_id])
        bullets = client.playbooks.bullets
        waiting = bullets.list(PLAYBOOK, status="quarantined", project_id=project)
        active = list(bullets.list(PLAYBOOK, status="active", project_id=project))
        return {
            "repeat": block.repeat,
            "window": block.window,
            "project": project,
            "traces": len(receipts),
            "failed_runs": failed,
            "judged": sorted(judged),
            "followed": sorted(followed),
            "bullets": len(active),
            "helpful": sum(bullet.helpful > bullet.harmful for bullet in active),
            "waiting": sum(bullet.awaiting_confirmation for bullet in waiting),
            "usage": self.usage(block.repeat),
            "seconds": round(time.monotonic() - started, 3),
        }

    def _require_model(self, project: str, known: Sequence[Json]) -> None:
        """Raises `EvaluationError` after a refusal that is not `known`: those of a stopped run may
        be out of date.
        """
        for error in self._model_refusals(project):
            if error not in known:
                raise EvaluationError(
                    "The service cannot learn, because its model refuses to answer:"
                    f" {error['message']} ({error['code']})."
                )

    def _model_refusals(self, project: str) -> list[Json]:
        """The errors of queued runs, each with the number of its attempts, that need a person."""
        runs = self._service().runs.list(state=["queued"], project_id=project, limit=100).items
        return [run.error for run in runs if run.error and run.error.get("code") in MODEL_REFUSALS]

    def usage(self, repeat: int) -> Json:
        """Model calls of the service for a repeat until now."""
        rows = list(self._service().usage.list(("project_id",), project_id=self.project(repeat)))
        return {
            "calls": sum(row.call_count for row in rows),
            "unpriced": sum(row.unpriced_count for row in rows),
            "input_tokens": sum(row.input_tokens for row in rows),
            "output_tokens": sum(row.output_tokens for row in rows),
            "usd": sum(row.cost_usd for row in rows),
        }


def _last_response(events: Sequence[Json]) -> str | None:
    responses = [e.get("content") for e in events if e.get("event_type") == "llm_response"]
    return to_text(responses[-1]) if responses else None


def format_examples(tasks: Sequence[Task]) -> str:
    texts = [f"Task: {each.text}\nRight answer: {each.right_answer}\n" for each in tasks]
    return "Similar tasks with their right answers:\n\n" + "\n".join(texts) if texts else ""


def outcome_of(score: float) -> str:
    return "success" if score >= 1 else "partial" if score > 0 else "failure"


def rank_by_similarity(query: str, texts: Sequence[str]) -> list[int]:
    """Indexes of the texts, the most similar first: cosine of TF-IDF over words."""
    documents = [Counter(_words(text)) for text in [query, *texts]]
    frequency = Counter(word for document in documents for word in document)
    weights = [
        {w: (1 + math.log(c)) * math.log(1 + len(documents) / frequency[w]) for w, c in d.items()}
        for d in documents
    ]
    first, *others = weights
    scores = [
        sum(first.get(w, 0.0) * v for w, v in other.items())
        / math.sqrt(sum(v * v for v in other.values()) or 1.0)
        for other in others
    ]
    return sorted(range(len(texts)), key=lambda i: -scores[i])


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()
