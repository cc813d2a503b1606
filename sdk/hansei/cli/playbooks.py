"""`hansei playbook`: read, render, edit and restore playbooks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hansei.cli.learned import print_why_empty
from hansei.cli.options import (
    POINT_IN_TIME_HELP,
    AsJson,
    AsOf,
    PlaybookName,
    Project,
    Reason,
    Sections,
    Tags,
    open_playbook_client,
    parse_point_in_time,
)
from hansei.cli.playbook_output import (
    StatusFilter,
    filter_bullets,
    print_consolidation,
    print_diff,
    print_hits,
    print_playbook,
    print_playbooks,
    print_versions,
)
from hansei.cli.playbook_sources import list_lessons, show_provenance
from hansei.cli.playbook_transfer import export_playbook, import_playbook
from hansei.cli.terminal import (
    format_count,
    open_client,
    print_document,
    print_json,
    print_message,
    print_text,
)
from hansei.errors import PreconditionFailedError
from hansei.models import Fusion, Match, VerdictTag

playbook_commands = typer.Typer(
    name="playbook", help="Read, render, edit and restore playbooks.", no_args_is_help=True
)


@playbook_commands.command("list")
def list_playbooks(
    deleted: Annotated[
        bool, typer.Option("--deleted", help="List deleted playbooks, which can be restored.")
    ] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the playbooks of a project."""
    with open_playbook_client() as client:
        playbooks = list(client.playbooks.list(deleted=deleted, project_id=project))
    if as_json:
        print_json({"items": playbooks})
    elif deleted and not playbooks:
        print_message("No deleted playbooks.")
    elif not playbooks:
        print_message("No playbooks. `hansei reflect FILE --playbook NAME` creates one.")
    else:
        print_playbooks(playbooks)


@playbook_commands.command("show")
def show_playbook(
    name: PlaybookName,
    section: Sections = None,
    status: Annotated[
        StatusFilter, typer.Option(help="Agents only receive active bullets.")
    ] = "active",
    as_of: AsOf = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show the bullets of a playbook with their verdicts."""
    with open_playbook_client() as client:
        playbook = client.playbooks.get(name, as_of=as_of, project_id=project)
        bullets = filter_bullets(playbook.bullets, section or (), status)
        if as_json:
            print_json({"name": name, **playbook.model_dump(), "bullets": bullets})
            return
        print_playbook(name, playbook, bullets)
        if not playbook.bullets:
            print_why_empty(client, name, project)


@playbook_commands.command("render")
def render_playbook(
    name: PlaybookName,
    query: Annotated[str, typer.Argument(help="The task of the agent.")] = "",
    tokens: Annotated[int | None, typer.Option(min=0, help="Maximum number of tokens.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, max=1000, help="Maximum number of bullets.")
    ] = None,
    section: Sections = None,
    ace: Annotated[bool, typer.Option("--ace", help="Use the ACE format.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Print the prompt block of a playbook: its bullets and the request to cite them."""
    with open_playbook_client() as client:
        block = client.playbooks.render(
            name,
            query,
            token_budget=tokens,
            top_k=top_k,
            sections=section,
            format="ace" if ace else None,
            project_id=project,
        )
    if as_json:
        print_json(block)
        return
    if block.text:
        print_document(block.text.rstrip("\n") + "\n")
    elif not block.version:
        print_message(f"The playbook {name} does not exist yet, or has no bullets.")
    else:
        print_message("No bullets: the playbook is empty or no bullet fits the token budget.")
    bullets = format_count(len(block.bullet_keys), "bullet")
    tokens_used = format_count(block.token_count, "token")
    print_message(f"{bullets}, {tokens_used}, version {block.version}.")
    print_message(f"Send this with the trace: retrieval_id {block.retrieval_id}")


@playbook_commands.command("search")
def search_bullets(
    name: PlaybookName,
    query: Annotated[str, typer.Argument(help="The query. '' lists the most useful bullets.")],
    top_k: Annotated[int, typer.Option(min=0, max=1000, help="Maximum number of results.")] = 10,
    section: Sections = None,
    tag: Tags = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Minimum share of helpful verdicts (0.3).")
    ] = None,
    min_match: Annotated[
        Match | None, typer.Option(help="Only results that fit at least this well.")
    ] = None,
    fusion: Annotated[Fusion | None, typer.Option(help="How the scores are combined.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the terms of each score.")
    ] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Search the bullets of a playbook."""
    with open_playbook_client() as client:
        response = client.playbooks.search(
            name,
            query,
            top_k=top_k,
            section_filter=section,
            tags=tag,
            min_confidence=min_confidence,
            fusion=fusion,
            min_match=min_match,
            explain=explain,
            project_id=project,
        )
    if as_json:
        print_json(response)
    else:
        print_hits(response.results)


playbook_commands.command("export")(export_playbook)
playbook_commands.command("import")(import_playbook)
playbook_commands.command("lessons")(list_lessons)
playbook_commands.command("provenance")(show_provenance)


@playbook_commands.command("copy")
def copy_playbook(
    name: PlaybookName,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="Name of the copy.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Copy the bullets of a playbook, with keys and counters, to a new playbook."""
    with open_playbook_client() as client:
        playbook = client.playbooks.get(name, project_id=project)
        reason = f"copy of {name} at version {playbook.version}"
        try:
            result = client.playbooks.replace(
                new_name, playbook, if_match=0, reason=reason, project_id=project
            )
        except PreconditionFailedError as error:
            error.detail = f"Playbook {new_name} already exists or is deleted."
            raise
    if as_json:
        print_json(result)
    else:
        bullets = format_count(result.active_bullet_count, "bullet")
        print_text(f"Copied {bullets} from {name} to {new_name}.")


@playbook_commands.command("versions")
def list_versions(
    name: PlaybookName,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of versions.")] = 20,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a playbook, newest first."""
    with open_playbook_client() as client:
        versions = list(client.playbooks.versions.list(name, project_id=project, limit=limit))
    if as_json:
        print_json({"items": versions})
    else:
        print_versions(versions)


@playbook_commands.command("diff")
def diff_playbook(
    name: PlaybookName,
    from_version: Annotated[
        Any, typer.Argument(parser=parse_point_in_time, metavar="FROM", help=POINT_IN_TIME_HELP)
    ],
    to_version: Annotated[
        Any, typer.Argument(parser=parse_point_in_time, metavar="TO", help=POINT_IN_TIME_HELP)
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Compare two versions or times. TO is the current version by default."""
    with open_playbook_client() as client:
        diff = client.playbooks.diff(name, from_version, to_version, project_id=project)
    if as_json:
        print_json(diff)
    else:
        print_diff(diff)


@playbook_commands.command("restore")
def restore_playbook(
    name: PlaybookName,
    to: Annotated[
        Any, typer.Argument(parser=parse_point_in_time, metavar="VERSION", help=POINT_IN_TIME_HELP)
    ],
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Restore a version as a new version. This also restores a deleted playbook."""
    with open_playbook_client() as client:
        result = client.playbooks.restore(name, to, reason=reason, project_id=project)
    if as_json:
        print_json(result)
    elif result.changed:
        print_text(f"{name} is at version {result.version}.")
    else:
        print_text(f"{name} already has this content. It stays at version {result.version}.")


@playbook_commands.command("consolidate")
def consolidate_playbook(
    name: PlaybookName, project: Project = None, as_json: AsJson = False
) -> None:
    """Merge, shorten and remove bullets now, and wait for the result.

    Without a model, only duplicates are merged. `restore` undoes it.
    """
    with open_playbook_client() as client:
        run = client.runs.wait(client.playbooks.consolidate(name, project_id=project).id)
    if as_json:
        print_json(run)
    else:
        print_consolidation(name, run)
    if run.state != "done":
        raise typer.Exit(1)


@playbook_commands.command("set")
def set_playbook(
    name: PlaybookName,
    focus: Annotated[
        str,
        typer.Option(
            help="What the playbook should collect, one sentence. Empty: nothing special."
        ),
    ],
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Change the focus of a playbook, which the learning model reads. Creates the playbook."""
    with open_playbook_client() as client:
        playbook = client.playbooks.update(
            name, focus=focus or None, reason=reason, project_id=project
        )
    if as_json:
        print_json(playbook)
    else:
        print_text(f"Version {playbook.version}. Focus: {playbook.focus or 'none'}")


@playbook_commands.command("verdict")
def record_verdict(
    name: PlaybookName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="For example mis-00001.")],
    tag: Annotated[VerdictTag, typer.Argument(metavar="TAG", help="helpful, harmful or neutral.")],
    reason: Annotated[str | None, typer.Option(help="Searches also find the reason.")] = None,
    trace: Annotated[str | None, typer.Option(help="ID of the trace that shows it.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Record whether a bullet helped. A human verdict overrides all other judges."""
    with open_client() as client:
        result = client.playbooks.bullets.verdicts.create(
            name, key, tag, reason=reason, trace_id=trace, project_id=project
        )
    if as_json:
        print_json(result)
        return
    bullet = result.bullet
    counters = f"{bullet.helpful} helpful, {bullet.harmful} harmful"
    print_text(f"{result.key}: {counters}.")


@playbook_commands.command("confirm")
def confirm_bullet(
    name: PlaybookName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="For example mis-00001.")],
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Activate a quarantined bullet, for example one that awaits confirmation.

    Agents receive it from now on. Read it first: it may quote text of a tool or a user.
    """
    with open_playbook_client() as client:
        result = client.playbooks.bullets.update(
            name, key, status="active", reason=reason, project_id=project
        )
    if as_json:
        print_json(result)
        return
    print_text(f"{key} is active in version {result.version}.")


@playbook_commands.command("delete")
def delete_playbook(
    name: PlaybookName, reason: Reason = None, project: Project = None, as_json: AsJson = False
) -> None:
    """Delete a playbook and its bullets. `restore` undoes this."""
    with open_playbook_client() as client:
        versions = client.playbooks.versions.list(name, project_id=project, limit=1)
        last_version = versions.items[0].version
        client.playbooks.delete(name, reason=reason, project_id=project)
    if as_json:
        print_json({"deleted": name, "last_version": last_version})
    else:
        print_text(f"Deleted. `hansei playbook restore {name} {last_version}` restores it.")
