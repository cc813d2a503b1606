"""What was learned from a trace, and why nothing was, as the commands of traces, runs and playbooks
print it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from hansei._model import Json
from hansei.cli.commands import Client
from hansei.cli.terminal import format_count, print_message, print_text
from hansei.models import Bullet, Run, StoredBullet, TraceWithEvents
from hansei.nothing_learned import CONFIRMATION_RULE, why_nothing, why_run_found_nothing

if TYPE_CHECKING:
    from hansei.learning_summary import LearningSummary

MAX_WAITING_NAMED = 5


def learned_texts(runs: Iterable[Run]) -> list[str]:
    """The reflection and the rules that these runs stored."""
    results = [cast(Json, run.result) for run in runs if isinstance(run.result, dict)]
    found = [result for result in results if result.get("reflection_text")]
    return [
        text
        for result in found
        for text in (
            result["reflection_text"],
            *(f"→ {rule}" for rule in result.get("rules") or [result.get("strategy_text")] if rule),
        )
    ]


def print_learned(trace: TraceWithEvents, runs: Sequence[Run]) -> None:
    """`runs` are those of the trace, newest first."""
    lines = [*learned_texts(runs), *_reasons(trace, runs)]
    print_text(f"learned: {lines[0]}" if lines else "")
    for line in lines[1:]:
        print_text(line, indent=2)


def print_why_empty(client: Client, playbook: str, project: str | None) -> None:
    """Why the newest trace of a playbook without bullets taught nothing."""
    traces = client.traces.list(playbook=playbook, project_id=project, limit=1).items
    if not traces:
        print_message(f"No trace names the playbook {playbook}.")
        return
    trace = client.traces.get(traces[0].id)
    runs = client.runs.list(trace_id=trace.id, project_id=project).items
    for reason in _reasons(trace, runs):
        print_message(f"Newest trace {trace.id}: {reason}")
    print_message(f"`hansei trace list --playbook {playbook}` lists the others.")


def print_waiting(
    playbook: str, bullets: Iterable[Bullet | StoredBullet], project: str | None
) -> None:
    """What the bullets need that await confirmation; nothing if none does."""
    waiting = [bullet.id for bullet in bullets if bullet.awaiting_confirmation]
    if waiting:
        count = format_count(len(waiting), "bullet")
        keys = ", ".join(waiting[:MAX_WAITING_NAMED])
        print_message(f"{count} awaiting confirmation: {keys}. {CONFIRMATION_RULE}")
        place = f" --project {project}" if project else ""
        command = f"hansei playbook confirm {playbook} {waiting[0]}{place}"
        print_message(f"To confirm one: `{command}`")


def print_changed_waiting(client: Client, summary: LearningSummary, project: str | None) -> None:
    """The same for the bullets that these runs added or taught again."""
    changed = {(change.playbook, change.key) for change in summary.changes}
    for name in sorted({playbook for playbook, _ in changed}):
        bullets = client.playbooks.bullets.list(name, status="quarantined", project_id=project)
        waiting = [bullet for bullet in bullets if (name, bullet.id) in changed]
        print_waiting(name, waiting, project)


def _reasons(trace: TraceWithEvents, runs: Sequence[Run]) -> list[str]:
    if learned_texts(runs):
        return [reason for run in runs if (reason := why_run_found_nothing(run))]
    is_known = bool(trace.outcome or trace.ground_truth or trace.test_report)
    sentence, reason = why_nothing(runs, is_open=trace.state == "open", has_outcome=is_known)
    return [f"{sentence} {reason}".rstrip()]
