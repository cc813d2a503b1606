"""`hansei erase`: removes data for good."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hansei.cli.commands import Client, Output
from hansei.cli.terminal import format_error, print_message, print_text


def erase(
    client: Client,
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
) -> Output:
    """Erase a person, a trace or a memory for good, with all that was learned from it.

    Requires an admin key. Backups are not changed.
    """
    erasure = client.erasures.create(kind, target, reason=reason)
    run = client.runs.wait(erasure.run_id) if erasure.run_id else None
    erasure = client.erasures.get(erasure.id)
    is_erased = any(erasure.counts.values())

    def show() -> None:
        if run is not None and run.state != "done":
            print_message(f"Not erased. Run {run.id} is {run.state}: {format_error(run.error)}")
        elif not is_erased:
            field = "`metadata.subject`" if kind == "person" else "ID"
            print_message(f"Nothing was found: no data has the {field} {target!r}.")
        else:
            parts = [f"{name} {count}" for name, count in sorted(erasure.counts.items())]
            print_text(f"Erased: {', '.join(parts)}.")
            for bullet in erasure.affected_bullets:
                print_text(f"Check {bullet.key} of {bullet.playbook}: it also has other sources.")

    return Output(erasure, show, failed=not is_erased)
