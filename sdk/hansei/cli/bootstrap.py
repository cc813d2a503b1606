"""`hansei bootstrap`: learn from the past sessions of Claude Code."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress

from hansei.cli.commands import Client
from hansei.cli.options import AsJson, Project
from hansei.cli.report import print_playbook_changes
from hansei.cli.terminal import (
    format_count,
    format_error,
    open_client,
    print_json,
    print_message,
    print_text,
    progress_bar,
)
from hansei.coding_agents.hooks import (
    SEND_TIMEOUT_SECONDS,
    HookOptions,
    SendResult,
    send_spool,
    spool_session,
)
from hansei.coding_agents.session_store import SessionStore
from hansei.errors import BadRequestError
from hansei.learning_summary import LearningSummary

# pyright: reportPrivateUsage=false
# The client offers the methods that poll many runs to the command line only.

SECONDS_PER_DAY = 86_400


def bootstrap(
    playbook: Annotated[str, typer.Option(help="The playbook that learns.")] = "coding",
    project: Project = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Folder with session files. Default: those of the current directory."),
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all", help="The sessions of all directories.")
    ] = False,
    days: Annotated[
        int | None, typer.Option(min=1, help="Only sessions of the last N days.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most N sessions, the newest ones.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for the results.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from past sessions of Claude Code.

    The command remembers what it has sent, and so do the hooks: run it again to continue after an
    interruption, or to send what is new.
    """
    folder = directory or _session_folder(all_projects)
    files = find_sessions(folder, days, limit)
    if not files:
        print_message(f"No session files in {folder}. Pass --directory, --all or more --days.")
        raise typer.Exit(1)
    store = SessionStore()
    summary = LearningSummary()
    with (
        open_client(timeout=SEND_TIMEOUT_SECONDS) as client,
        progress_bar(MofNCompleteColumn()) as progress,
    ):
        result = _send_sessions(store, client, files, HookOptions(playbook, project), progress)
        if result.error is not None:
            print_message(f"{format_count(result.sent, 'transcript')} sent before the error.")
            print_message("Run the command again to continue.")
            raise result.error
        if not no_wait and result.run_ids:
            _wait_for_runs(client, set(result.run_ids), project, summary, progress)
    if as_json:
        print_json(
            {
                "sessions": len(files),
                "transcripts": result.sent,
                "rejected": result.rejected,
                "run_ids": result.run_ids,
                "changes": len(summary.changes),
                "failed": len(summary.failed),
            }
        )
    else:
        _print_result(len(files), result, summary, waited=not no_wait)
    if summary.failed or result.rejected:
        raise typer.Exit(1)


def find_sessions(folder: Path, days: int | None, limit: int | None) -> list[Path]:
    """The session files below a folder, oldest first."""
    found = [(path.stat().st_mtime, path) for path in folder.rglob("*.jsonl") if path.is_file()]
    if days is not None:
        found = [item for item in found if item[0] >= time.time() - days * SECONDS_PER_DAY]
    newest = sorted(found, reverse=True)[:limit]
    return [path for _, path in reversed(newest)]


def _session_folder(all_projects: bool) -> Path:
    """Claude Code has one folder for each directory. Its name is the path, with hyphens for all
    characters but letters and digits.
    """
    home = os.environ.get("CLAUDE_CONFIG_DIR")
    projects = (Path(home) if home else Path.home() / ".claude") / "projects"
    return projects if all_projects else projects / re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))


def _send_sessions(
    store: SessionStore,
    client: Client,
    files: list[Path],
    options: HookOptions,
    progress: Progress,
) -> SendResult:
    """Stops at the first error of the service. Damaged files are reported and skipped."""
    total = SendResult([])
    bar = progress.add_task("Sending", total=len(files))
    with store.lock("sender"):
        for path in files:
            try:
                with store.lock("sessions"):
                    spool_session(store, path, options, client.account_id)
            except (OSError, BadRequestError) as error:
                print_message(f"{path} skipped: {error}")
            result = send_spool(store, client)
            total.run_ids += result.run_ids
            total.sent += result.sent
            total.rejected += result.rejected
            if result.error is not None:
                total.error = result.error
                return total
            progress.advance(bar)
    return total


def _wait_for_runs(
    client: Client,
    run_ids: set[str],
    project: str | None,
    summary: LearningSummary,
    progress: Progress,
) -> None:
    bar = progress.add_task("Learning", total=len(run_ids))
    for unfinished in client.runs.poll_unfinished(run_ids, project_id=project):
        progress.update(bar, completed=len(run_ids) - len(unfinished))
    for run in client.runs.collect_finished(run_ids, project_id=project):
        summary.add_run(run)


def _print_result(
    sessions: int, result: SendResult, summary: LearningSummary, *, waited: bool
) -> None:
    print_text(
        f"{format_count(sessions, 'session')} read, "
        f"{format_count(result.sent, 'new transcript')} sent, {result.rejected} refused."
    )
    if not waited and result.run_ids:
        print_text("The service learns from them now; see `hansei run list`.")
    print_playbook_changes(summary)
    for run in summary.failed:
        print_message(f"error: {format_error(run.error)}")
