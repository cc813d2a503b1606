"""`hansei erase`: removes data for good."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hansei.cli.options import AsJson
from hansei.cli.terminal import format_error, open_client, print_json, print_message, print_text


def erase(
    kind: Annotated[
        Literal["person", "trace", "memory"], typer.Argument(metavar="KIND", help="What to erase.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="ID of the trace or memory; of a person, the `metadata.subject`."
        ),
    ],
    reason: Annotated[str | None, typer.Option(help="Part of the audit log.")] = None,
    as_json: AsJson = False,
) -> None:
    """Erase a person, a trace or a memory for good, with all that was learned from it.

    Requires an admin key. Backups are not changed.
    """
    with open_client() as client:
        erasure = client.erasures.create(kind, target, reason=reason)
        run = client.runs.wait(erasure.run_id) if erasure.run_id else None
        erasure = client.erasures.get(erasure.id)
    if as_json:
        print_json(erasure)
    elif run is not None and run.state != "done":
        print_message(f"Not erased. Run {run.id} is {run.state}: {format_error(run.error)}")
    elif not any(erasure.counts.values()):
        field = "`metadata.subject`" if kind == "person" else "ID"
        print_message(f"Nothing was found: no data has the {field} {target!r}.")
    else:
        parts = [f"{name} {count}" for name, count in sorted(erasure.counts.items())]
        print_text(f"Erased: {', '.join(parts)}.")
        for bullet in erasure.affected_bullets:
            print_text(f"Check {bullet.key} of {bullet.playbook}: it also has other sources.")
    if not any(erasure.counts.values()):
        raise typer.Exit(1)
