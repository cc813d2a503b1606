"""`hansei spool`: recorded agent runs that have not reached the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansei.cli.options import AsJson
from hansei.cli.terminal import (
    format_age,
    format_count,
    open_client,
    print_json,
    print_message,
    print_text,
    truncate_line,
)
from hansei.credentials import resolve_credentials
from hansei.recording.delivery import Delivery
from hansei.recording.spool import DiskSpool, SpoolFile, list_files, spool_folder

SEND_TIMEOUT_SECONDS = 60.0
MAX_TEXT_LENGTH = 100

spool_commands = typer.Typer(
    name="spool",
    help="Recorded agent runs that have not reached the service.",
    no_args_is_help=True,
)
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `list` shows them.")]


@spool_commands.command("list")
def list_spool(as_json: AsJson = False) -> None:
    """List the runs that are recorded now, that wait, and that the service has refused."""
    files = _files()
    if as_json:
        print_json({"items": [file.to_json() for file in files]})
        return
    if not files:
        print_message("The spool is empty.")
    for file in files:
        print_text(f"{file.id} · {file.state} · {format_age(file.changed_at)}", style="bold")
        for text in (file.task, file.reason and f"Refused: {file.reason}"):
            if text:
                print_text(truncate_line(text, MAX_TEXT_LENGTH), indent=2)


@spool_commands.command("resend")
def resend(ids: Ids = None) -> None:
    """Send what waits, and what the service has refused: all of it, or only these refused runs."""
    refused = [file for file in _select(ids) if file.state == "refused"]
    spool = DiskSpool(_folder())
    try:
        for file in refused:
            spool.restore(file)
        waiting = spool.count_ready()
        with open_client(timeout=SEND_TIMEOUT_SECONDS) as client:
            delivery = Delivery(client, spool)
            delivery.send_ready()
        again, left = delivery.pop_refused_count(), spool.count_ready()
    finally:
        spool.close()
    print_text(f"{format_count(waiting - again - left, 'run')} sent, {again} refused, {left} left.")
    if again or left:
        raise typer.Exit(1)


@spool_commands.command("drop")
def drop(
    ids: Ids = None,
    drop_all: Annotated[bool, typer.Option("--all", help="All that the service refused.")] = False,
) -> None:
    """Delete runs that the service has refused."""
    if not ids and not drop_all:
        raise typer.BadParameter("Name the runs, or pass --all.")
    dropped = [file for file in _select(ids) if file.state == "refused"]
    for file in dropped:
        file.path.unlink(missing_ok=True)
    print_text(f"{format_count(len(dropped), 'run')} dropped.")


def _files() -> list[SpoolFile]:
    return list_files(_folder())


def _folder() -> Path:
    found = resolve_credentials()
    return spool_folder(found.url, found.api_key, None)


def _select(ids: list[str] | None) -> list[SpoolFile]:
    """The files with these IDs, by default all. Raises `BadParameter` for an unknown ID."""
    files = _files()
    if not ids:
        return files
    known = {file.id: file for file in files}
    for each in ids:
        if each not in known:
            raise typer.BadParameter(f"The spool has no run {each}. See `hansei spool list`.")
    return [known[each] for each in ids]
