"""`hansei reflect` for a session file: sends it as one transcript and prints what was learned."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

import typer

from hansei._model import Json
from hansei.cli.commands import Client
from hansei.cli.learned import print_changed_waiting
from hansei.cli.report import print_playbook_changes
from hansei.cli.terminal import (
    format_count,
    format_error,
    print_json,
    print_message,
    print_text,
    stderr,
)
from hansei.learning_summary import LearningSummary
from hansei.models import OutcomeType, ReflectOnTranscriptResponse, Run, RunAccepted
from hansei.session_files import SessionFile

MAX_LINES_NAMED = 20


@dataclass(frozen=True)
class SessionOptions:
    """What the command sends with a session."""

    project: str | None = None
    playbook: str | None = None
    retrieval_id: str | None = None
    outcome: OutcomeType | None = None


def reflect_on_session(
    client: Client, session: SessionFile, options: SessionOptions, *, wait: bool, as_json: bool
) -> None:
    """Raises `Exit` with status 1 if a run failed."""
    response = client.transcripts.enqueue(
        session.messages,
        session_id=session.session_id,
        playbook=options.playbook,
        project_id=options.project,
        retrieval_id=options.retrieval_id,
        outcome=options.outcome,
    )
    if not wait:
        _print_queued(session, response, as_json)
        return
    messages = format_count(len(session.messages), "message")
    with stderr.status(f"Learning from {messages}"):
        runs = list(client.runs.follow(response.run_id))
    summary = LearningSummary()
    for run in runs:
        summary.add_run(run)
    if as_json:
        print_json(_to_report(session, response, runs[0], summary))
    else:
        _print_session(session, response, runs[0], summary)
        print_changed_waiting(client, summary, options.project)
    if not summary.is_successful:
        raise typer.Exit(1)


def _print_queued(session: SessionFile, response: RunAccepted, as_json: bool) -> None:
    if as_json:
        print_json({**_read_counts(session), **response.model_dump()})
        return
    _print_read_counts(session)
    run_id = response.run_id
    print_text(f"The session is queued; see `hansei run show {run_id}`.")


def _read_counts(session: SessionFile) -> Json:
    skipped = [asdict(line) for line in session.skipped]
    return {"lines": session.line_count, "messages": len(session.messages), "skipped": skipped}


def _to_report(
    session: SessionFile,
    response: RunAccepted,
    first: Run,
    summary: LearningSummary,
) -> Json:
    report = summary.to_json(seconds=0, unfinished=())
    learned = {name: report[name] for name in ("changes", "proposals", "failed")}
    counts = _read_counts(session)
    return {
        **counts,
        **(first.result or {}),
        **response.model_dump(),
        "state": first.state,
        **learned,
    }


def _print_read_counts(session: SessionFile) -> None:
    parts = [format_count(len(session.messages), "message")]
    if session.other_count:
        parts.append(f"{session.other_count} without a message")
    parts.append(f"{len(session.skipped)} skipped")
    print_text(f"{format_count(session.line_count, 'line')} read: {', '.join(parts)}.")
    for line in session.skipped[:MAX_LINES_NAMED]:
        print_text(f"line {line.number} skipped: {line.reason}", indent=2)
    if len(session.skipped) > MAX_LINES_NAMED:
        more = len(session.skipped) - MAX_LINES_NAMED
        print_text(f"… and {more} more; --json lists all.", indent=2)


def _print_session(
    session: SessionFile,
    response: RunAccepted,
    first: Run,
    summary: LearningSummary,
) -> None:
    _print_read_counts(session)
    if response.model_dump().get("duplicate"):
        print_message("The service already has this session. It counts once.")
    result = ReflectOnTranscriptResponse.from_json(first.result or {})
    if first.state == "done":
        print_text(_format_learned(result))
    if result.analysis:
        print_text(result.analysis)
    for insight in result.insights:
        known = "" if insight.new else " (already known)"
        print_text(f"→ {insight.content}{known}", style="green")
    for tag in result.bullet_tags:
        print_text(f"{tag.name} · {tag.tag} · {tag.rationale}", indent=2)
    if result.reflection_id:
        print_text(f"{result.reflection_id}", style="dim")
    print_playbook_changes(summary)
    for run in summary.failed:
        print_message(f"error: {format_error(run.error)}")
        print_message(f"Run `hansei run retry {run.id}` to try again.")


def _format_learned(result: ReflectOnTranscriptResponse) -> str:
    tags = Counter(tag.tag for tag in result.bullet_tags)
    by_tag = ", ".join(f"{number} {tag}" for tag, number in tags.most_common())
    verdicts = format_count(tags.total(), "verdict") + (f" ({by_tag})" if by_tag else "")
    parts = [
        format_count(result.event_count, "event"),
        format_count(len(result.cited_ids), "cited bullet"),
        format_count(len(result.insights), "insight"),
        verdicts,
        f"{len(result.counted_bullet_keys)} counted",
    ]
    return f"{', '.join(parts)}."
