"""`hansei playbook export` and `import`: documents, files of coding agents, other programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from hansei._file_limit import MAX_PLAYBOOK_BYTES, read_source
from hansei.agent_files import AgentPlaybook, select_bullets, write_block, write_skill
from hansei.cli.commands import Client, Output
from hansei.cli.options import (
    STDIN,
    AsOf,
    PlaybookName,
    Project,
    Reason,
    check_readable,
    open_input,
)
from hansei.cli.terminal import (
    format_count,
    open_client,
    print_document,
    print_message,
    print_text,
)
from hansei.coding_agents.hook_settings import require_inside
from hansei.errors import APIConnectionError, BadRequestError, InternalServerError, NotFoundError
from hansei.models import Bullet, PlaybookFormat
from hansei.playbook_import import (
    FOREIGN_FORMATS,
    ImportFormat,
    detect_format,
    merge_lessons,
    parse_lessons,
)

AgentFormat = Literal["skill", "agents-md", "claude-md"]
ExportFormat = PlaybookFormat | AgentFormat
DEFAULT_FILES: dict[str, str] = {"agents-md": "AGENTS.md", "claude-md": "CLAUDE.md"}
WATCH_SECONDS = 30.0


def export_playbook(
    name: PlaybookName,
    format: Annotated[
        Literal["bullets", "sections", "ace", "skill", "agents-md", "claude-md"],
        typer.Option(
            help="bullets and sections are JSON, ace is text; the others are for coding agents."
        ),
    ] = "bullets",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file; for skill, to this folder. Default: standard output, "
            ".claude/skills/NAME, AGENTS.md or CLAUDE.md.",
        ),
    ] = None,
    as_of: AsOf = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="At most N bullets. Files of coding agents only.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write again when the playbook changes, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=1, help="Seconds between two looks of --watch.")
    ] = WATCH_SECONDS,
    project: Project = None,
) -> None:
    """Print a playbook as a document that `import` reads, or write it for coding agents.

    In AGENTS.md and CLAUDE.md, only the block of the playbook changes. A file whose block was
    edited by hand is refused with the line.
    """
    if format == "skill" or format == "agents-md" or format == "claude-md":
        target = output or _default_output(name, format)
        with open_client() as client:

            def write() -> bool:
                playbook = client.playbooks.get(name, as_of=as_of, project_id=project)
                bullets = select_bullets(playbook.bullets, top_k)
                written = AgentPlaybook(name, playbook.version, bullets)
                return _write_agent_file(target, format, written)

            write()
            if watch:
                _watch(write, interval)
        return
    if watch or top_k is not None:
        raise typer.BadParameter("--watch and --top-k need --format skill, agents-md or claude-md.")
    if output is not None and output.is_dir():
        raise typer.BadParameter(f"'{output}' is a directory.")
    with open_client() as client:
        text = client.playbooks.export(name, format, as_of=as_of, project_id=project)
    if not text.endswith("\n"):
        text += "\n"
    if output is None:
        print_document(text)
    else:
        if output.is_file() or not output.exists():  # not a pipe such as /dev/stdout
            require_inside(output)
        output.write_bytes(text.encode())


def _default_output(name: str, format: AgentFormat) -> Path:
    return Path(DEFAULT_FILES.get(format) or f".claude/skills/{name}")


def _write_agent_file(target: Path, format: AgentFormat, playbook: AgentPlaybook) -> bool:
    write = write_skill if format == "skill" else write_block
    try:
        changed = write(target, playbook)
    except OSError as error:
        raise BadRequestError(f"{target} cannot be written: {error}") from error
    count = format_count(len(playbook.bullets), "bullet")
    state = "written to" if changed else "already in"
    print_message(f"{playbook.name} at version {playbook.version} ({count}) {state} {target}.")
    return changed


def _watch(write: Callable[[], bool], interval: float) -> None:
    """A service that cannot be reached is asked again; a file that was edited ends the command."""
    print_message(f"Watching every {interval:g} s. Ctrl-C stops.")
    try:
        while True:
            time.sleep(interval)
            try:
                write()
            except (APIConnectionError, InternalServerError) as error:
                print_message(f"{error.detail} Trying again.")
    except KeyboardInterrupt:
        print_message("Stopped.")


def import_playbook(
    client: Client,
    name: PlaybookName,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A document of `export`, or the lessons of another program. `-` is standard "
            "input.",
            callback=check_readable,
        ),
    ],
    format: Annotated[
        ImportFormat,
        typer.Option(help="auto decides by the content. skillbook is kayba's (or ACE as JSON)."),
    ] = "auto",
    if_match: Annotated[
        int | None, typer.Option(min=0, help="Only if the playbook is at this version.")
    ] = None,
    reason: Reason = None,
    project: Project = None,
) -> Output:
    """Create a playbook from a file, or replace its content.

    Bullets that are not in the file are deleted; `restore` undoes this. Lessons of AGENTS.md,
    CLAUDE.md, skillbook and mem0 are added to the bullets of the playbook instead.
    """
    with open_input(file) as source:
        data = read_source(source, file, MAX_PLAYBOOK_BYTES)
    text = data.decode("utf-8", "replace")
    kind = detect_format(text, "" if file == STDIN else file) if format == "auto" else format
    if format == "auto" and kind == "bullets" and Path(file).suffix in (".md", ".markdown"):
        raise typer.BadParameter(
            f"'{file}' is a whole playbook, not a list of lessons, and would replace {name}."
            " If you want that, pass --format bullets."
        )
    notes: list[str] = []
    current, version = _current_bullets(client, name, project)
    replaces = kind not in FOREIGN_FORMATS
    content: bytes | dict[str, object] = data
    if not replaces:
        bullets, duplicates = merge_lessons(current, parse_lessons(text, kind))
        content = {"bullets": bullets}
        if_match = version if if_match is None else if_match
        reason = reason or f"imported from {kind}"
        added = format_count(len(bullets) - len(current), "lesson")
        notes.append(f"{added} added, {duplicates} already known.")
    result = client.playbooks.replace(
        name, content, if_match=if_match, reason=reason, project_id=project
    )
    count = format_count(result.active_bullet_count, "bullet")
    if replaces and 0 < version < result.version:
        place = f" --project {project}" if project else ""
        notes.append(
            f"An import replaces all bullets. To get those of version {version} back:"
            f" hansei playbook restore {name} {version}{place}"
        )

    def show() -> None:
        print_text(f"{name} is at version {result.version} with {count}.")
        for note in (*notes, *result.notes):
            print_text(note, indent=2)

    return Output(result, show)


def _current_bullets(client: Client, name: str, project: str | None) -> tuple[list[Bullet], int]:
    """The bullets and the version; none and 0 if the playbook does not exist."""
    try:
        playbook = client.playbooks.get(name, project_id=project)
    except NotFoundError:
        return [], 0
    return playbook.bullets, playbook.version
