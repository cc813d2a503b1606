"""`hansei reflect`: learn from a file of traces or from a session file."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from uuid import UUID

import typer
from rich.progress import Progress, TextColumn

from hansei._file_limit import read_source
from hansei.cli.commands import Client
from hansei.cli.learned import print_changed_waiting
from hansei.cli.options import STDIN, AsJson, check_readable, open_input
from hansei.cli.reflect_session import SessionOptions, reflect_on_session
from hansei.cli.report import print_report
from hansei.cli.terminal import (
    format_count,
    open_client,
    print_json,
    print_message,
    progress_bar,
    sanitize,
)
from hansei.errors import HanseiError
from hansei.learning_summary import LearningSummary
from hansei.models import OutcomeType, TraceFormat
from hansei.session_files import (
    ReplayedInput,
    detect_format,
    detect_session,
    read_session_file,
    unrecognized_fields,
)

# pyright: reportPrivateUsage=false
# The client offers the methods that poll many runs to this command only.

CHUNK_BYTES = 2**20
STALL_WARNING_SECONDS = 20.0
"""Without progress for this long, the command warns that no worker may be running."""


@dataclass(frozen=True)
class Input:
    """The traces to send. `size` is in bytes, None for standard input."""

    source: BinaryIO
    size: int | None
    project: str | None
    playbook: str | None
    format: TraceFormat | None = None
    outcome_from: str | None = None


def reflect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Traces as JSON lines or JSON, or the session file of a coding agent. "
            "`-` is standard input.",
            callback=check_readable,
        ),
    ],
    project: Annotated[str | None, typer.Option(help="Project of the traces.")] = None,
    playbook: Annotated[str | None, typer.Option(help="Playbook that the traces update.")] = None,
    format: Annotated[
        TraceFormat | None,
        typer.Option(help="Format of the file. By default, it is detected by the content."),
    ] = None,
    retrieval_id: Annotated[
        UUID | None,
        typer.Option(
            help="Search or render that gave the session its bullets. Session files only."
        ),
    ] = None,
    outcome: Annotated[
        OutcomeType | None, typer.Option(help="How the session ended. Session files only.")
    ] = None,
    outcome_from: Annotated[
        str | None,
        typer.Option(
            help="The score of Langfuse, the feedback of LangSmith or the field of `metadata` that "
            "is the outcome of a record. Not for session files."
        ),
    ] = None,
    as_json: AsJson = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Send the traces and do not wait for the results.")
    ] = False,
) -> None:
    """Learn from the traces of a file and print what was learned.

    With a playbook, also print how its bullets changed. A session file is one trace; its damaged
    lines are skipped and reported. Traces that the service already has are skipped, so an
    interrupted command can be run again.
    """
    started = time.monotonic()
    summary = LearningSummary()
    with open_client() as client, open_input(file) as source:
        is_session, head = detect_session(source)
        found = format or detect_format(head)
        if is_session and found in (None, "claude-code"):
            if outcome_from is not None:
                raise typer.BadParameter("A session file has no scores. Use --outcome.")
            session = read_session_file(head + read_source(source, file))
            retrieval = str(retrieval_id) if retrieval_id else None
            options = SessionOptions(project, playbook, retrieval, outcome)
            reflect_on_session(client, session, options, wait=not no_wait, as_json=as_json)
            return
        if found is None and (fields := unrecognized_fields(head)):
            raise typer.BadParameter(
                "The format of the file is not recognized: its first record has the fields "
                f"{sanitize(fields)}. State the format with --format."
            )
        if retrieval_id is not None or outcome is not None:
            message = (
                "--retrieval-id and --outcome are for session files. A record has its own "
                "`outcome` and a trace its `retrieval_id`; --outcome-from names a score."
            )
            raise typer.BadParameter(message)
        size = Path(file).stat().st_size if file != STDIN else None
        if outcome_from is not None and source.seekable() and not _has_text(source, outcome_from):
            raise typer.BadParameter(
                f"--outcome-from: no record of the file has a score `{sanitize(outcome_from)}`."
            )
        sent_format = None if found in (None, "hansei") else found
        traces = Input(_rewind(source, head), size, project, playbook, sent_format, outcome_from)
        unfinished = _send_and_collect(client, traces, summary, wait=not no_wait)
        seconds = time.monotonic() - started
        if as_json:
            print_json(summary.to_json(seconds=seconds, unfinished=unfinished))
        else:
            print_report(summary, seconds, unfinished)
            print_changed_waiting(client, summary, project)
    if not summary.is_successful or summary.total_traces == 0:
        raise typer.Exit(1)


def _has_text(source: BufferedReader[Any], name: str) -> bool:
    """Whether a name that JSON writes without escapes is anywhere in the file. True for others."""
    wanted = f'"{name}"'.encode()
    if json.dumps(name).encode() != wanted:
        return True
    source.seek(0)
    end = b""
    while chunk := source.read(CHUNK_BYTES):
        if wanted in end + chunk:
            return True
        end = chunk[-len(wanted) :]
    return False


def _rewind(source: BufferedReader[Any], head: bytes) -> BinaryIO:
    """The source from its beginning, after `head` was read."""
    if source.seekable():
        source.seek(0)
        return source
    return BufferedReader(ReplayedInput(head, source))


def _send_and_collect(
    client: Client, traces: Input, summary: LearningSummary, *, wait: bool
) -> set[str]:
    """Returns the IDs of the unfinished runs if `wait` is false."""
    progress = progress_bar(TextColumn("{task.fields[status]}"))
    try:
        with progress:
            _send_traces(client, traces, summary, progress)
            if not wait:
                return summary.queued_run_ids
            run_ids = _wait_for_runs(client, traces, summary, progress)
    except KeyboardInterrupt:
        stored = format_count(summary.new_traces, "trace")
        print_message(f"Stopped. {stored} stored. The service continues; see `hansei run list`.")
        raise typer.Exit(1) from None
    except HanseiError:
        if summary.total_traces:
            sent = format_count(summary.total_traces, "trace")
            print_message(f"{sent} sent before the error. Run the command again to continue.")
        raise
    for run in client.runs.collect_finished(run_ids, project_id=traces.project):
        summary.add_run(run)
    return set()


def _send_traces(
    client: Client, traces: Input, summary: LearningSummary, progress: Progress
) -> None:
    bar = progress.add_task("Sending", total=traces.size, status="")
    receipts = client.traces.create_many(
        traces.source,
        reflect="always",
        project_id=traces.project,
        playbook=traces.playbook,
        format=traces.format,
        outcome_from=traces.outcome_from,
    )
    for receipt in receipts:
        summary.add_receipt(receipt)
        position = traces.source.tell() if traces.size else None
        status = format_count(summary.total_traces, "trace")
        progress.update(bar, completed=position, status=status)
    progress.update(bar, total=traces.size or 1, completed=traces.size or 1)


def _wait_for_runs(
    client: Client, traces: Input, summary: LearningSummary, progress: Progress
) -> set[str]:
    """Wait for the runs of the new traces, and for unfinished runs of duplicates."""
    run_ids = set(summary.queued_run_ids)
    bar = progress.add_task("Learning", status="", visible=False)
    stall = StallDetector()
    polled = run_ids | summary.duplicate_run_ids
    for unfinished in client.runs.poll_unfinished(polled, project_id=traces.project):
        run_ids |= unfinished
        done, total = len(run_ids - unfinished), len(run_ids)
        status = f"{done} of {total}"
        progress.update(bar, completed=done, total=total, status=status, visible=bool(run_ids))
        if stall.is_stalled(done):
            print_message("No progress. Check that a worker is running; see `hansei run list`.")
    return run_ids


class StallDetector:
    """Reports once that there was no progress for `seconds`."""

    def __init__(self, seconds: float = STALL_WARNING_SECONDS) -> None:
        self._seconds = seconds
        self._done = -1
        self._last_progress = time.monotonic()
        self._reported = False

    def is_stalled(self, done: int) -> bool:
        if done != self._done:
            self._done, self._last_progress = done, time.monotonic()
        idle = time.monotonic() - self._last_progress
        stalled = not self._reported and idle > self._seconds
        self._reported = self._reported or stalled
        return stalled
