"""`hansei playbook`: read, render, edit and restore playbooks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.learned import print_why_empty
from hansei.cli.options import (
    POINT_IN_TIME_HELP,
    AsOf,
    BulletKey,
    Explain,
    HowCombined,
    Limit,
    MinMatch,
    PlaybookName,
    Project,
    Reason,
    Sections,
    Tags,
    TopK,
    parse_point_in_time,
)
from hansei.cli.playbook_output import (
    StatusFilter,
    filter_bullets,
    print_block,
    print_consolidation,
    print_diff,
    print_hit,
    print_playbook,
    print_playbooks,
    print_versions,
)
from hansei.cli.playbook_sources import list_lessons, show_provenance
from hansei.cli.playbook_transfer import export_playbook, import_playbook
from hansei.cli.terminal import print_hits
from hansei.models import VerdictTag

playbook_commands = typer.Typer(
    name="playbook", help="Read, render, edit and restore playbooks.", no_args_is_help=True
)


@command(playbook_commands, "list")
def list_playbooks(
    client: Client,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="List deleted playbooks, which can be restored.")
    ] = False,
    project: Project = None,
) -> Output:
    """List the playbooks of a project."""
    playbooks = client.playbooks.list(deleted=deleted, project_id=project)
    none = "No playbooks. `hansei reflect FILE --playbook NAME` creates one."
    return listing(playbooks, "No deleted playbooks." if deleted else none, table=print_playbooks)


@command(playbook_commands, "show")
def show_playbook(
    client: Client,
    name: PlaybookName,
    section: Sections = None,
    status: Annotated[
        StatusFilter, typer.Option(help="Agents only receive active bullets.")
    ] = "active",
    as_of: AsOf = None,
    project: Project = None,
) -> Output:
    """Show the bullets of a playbook with their verdicts."""
    playbook = client.playbooks.get(name, as_of=as_of, project_id=project)
    bullets = filter_bullets(playbook.bullets, section or (), status)

    def show() -> None:
        print_playbook(name, playbook, bullets, project)
        if not playbook.bullets:
            print_why_empty(client, name, project)

    return Output({"name": name, **playbook.model_dump(), "bullets": bullets}, show)


@command(playbook_commands, "render")
def render_playbook(
    client: Client,
    name: PlaybookName,
    query: Annotated[str, typer.Argument(help="The task of the agent.")] = "",
    tokens: Annotated[int | None, typer.Option(min=0, help="Maximum number of tokens.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, max=1000, help="Maximum number of bullets.")
    ] = None,
    section: Sections = None,
    ace: Annotated[bool, typer.Option("--ace", help="Use the ACE format.")] = False,
    project: Project = None,
) -> Output:
    """Print the prompt block of a playbook: its bullets and the request to cite them."""
    block = client.playbooks.render(
        name,
        query,
        token_budget=tokens,
        top_k=top_k,
        sections=section,
        format="ace" if ace else None,
        project_id=project,
    )
    return Output(block, lambda: print_block(name, block))


@command(playbook_commands, "search")
def search_bullets(
    client: Client,
    name: PlaybookName,
    query: Annotated[str, typer.Argument(help="The query. '' lists the most useful bullets.")],
    top_k: TopK = 10,
    section: Sections = None,
    tag: Tags = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Minimum share of helpful verdicts (0.3).")
    ] = None,
    min_match: MinMatch = None,
    fusion: HowCombined = None,
    explain: Explain = False,
    project: Project = None,
) -> Output:
    """Search the bullets of a playbook."""
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
    return Output(response, lambda: print_hits(response.results, print_hit))


playbook_commands.command("export")(export_playbook)
command(playbook_commands, "import")(import_playbook)
command(playbook_commands, "lessons")(list_lessons)
command(playbook_commands, "provenance")(show_provenance)


@command(playbook_commands, "versions")
def list_versions(
    client: Client,
    name: PlaybookName,
    limit: Limit = 20,
    project: Project = None,
) -> Output:
    """List the versions of a playbook, newest first."""
    versions = client.playbooks.versions.list(name, project_id=project, limit=limit + 1)
    return listing(versions, "No versions.", table=print_versions, limit=limit)


@command(playbook_commands, "diff")
def diff_playbook(
    client: Client,
    name: PlaybookName,
    from_version: Annotated[
        Any, typer.Argument(parser=parse_point_in_time, metavar="FROM", help=POINT_IN_TIME_HELP)
    ],
    to_version: Annotated[
        Any, typer.Argument(parser=parse_point_in_time, metavar="TO", help=POINT_IN_TIME_HELP)
    ] = None,
    project: Project = None,
) -> Output:
    """Compare two versions or times. TO is the current version by default."""
    diff = client.playbooks.diff(name, from_version, to_version, project_id=project)
    return Output(diff, lambda: print_diff(diff))


@command(playbook_commands, "restore")
def restore_playbook(
    client: Client,
    name: PlaybookName,
    to: Annotated[
        Any, typer.Argument(parser=parse_point_in_time, metavar="VERSION", help=POINT_IN_TIME_HELP)
    ],
    reason: Reason = None,
    project: Project = None,
) -> Output:
    """Restore a version as a new version. This also restores a deleted playbook."""
    result = client.playbooks.restore(name, to, reason=reason, project_id=project)
    changed = f"{name} is at version {result.version}."
    same = f"{name} already has this content. It stays at version {result.version}."
    return Output(result, changed if result.changed else same)


@command(playbook_commands, "consolidate")
def consolidate_playbook(client: Client, name: PlaybookName, project: Project = None) -> Output:
    """Merge, shorten and remove bullets now, and wait for the result.

    Without a model, only duplicates are merged. `restore` undoes it.
    """
    run = client.runs.wait(client.playbooks.consolidate(name, project_id=project).id)
    return Output(run, lambda: print_consolidation(name, run), failed=run.state != "done")


@command(playbook_commands, "set")
def set_playbook(
    client: Client,
    name: PlaybookName,
    focus: Annotated[
        str,
        typer.Option(
            help="What the playbook should collect, one sentence. Empty: nothing special."
        ),
    ],
    reason: Reason = None,
    project: Project = None,
) -> Output:
    """Change the focus of a playbook, which the learning model reads. Creates the playbook."""
    playbook = client.playbooks.update(name, focus=focus or None, reason=reason, project_id=project)
    return Output(playbook, f"Version {playbook.version}. Focus: {playbook.focus or 'none'}")


@command(playbook_commands, "verdict")
def record_verdict(
    client: Client,
    name: PlaybookName,
    key: BulletKey,
    tag: Annotated[VerdictTag, typer.Argument(metavar="TAG", help="helpful, harmful or neutral.")],
    reason: Annotated[str | None, typer.Option(help="Searches also find the reason.")] = None,
    trace: Annotated[str | None, typer.Option(help="ID of the trace that shows it.")] = None,
    project: Project = None,
) -> Output:
    """Record whether a bullet helped. With --trace, a person's overrides all others of that run."""
    result = client.playbooks.bullets.verdicts.create(
        name, key, tag, reason=reason, trace_id=trace, project_id=project
    )
    bullet = result.bullet
    counters = f"{bullet.helpful} helpful, {bullet.harmful} harmful"
    return Output(result, f"{result.key}: {counters}.")


@command(playbook_commands, "confirm")
def confirm_bullet(
    client: Client,
    name: PlaybookName,
    key: BulletKey,
    reason: Reason = None,
    project: Project = None,
) -> Output:
    """Activate a quarantined bullet, for example one that awaits confirmation.

    Agents receive it from now on. Read it first: it may quote text of a tool or a user.
    """
    result = client.playbooks.bullets.update(
        name, key, status="active", reason=reason, project_id=project
    )
    return Output(result, f"{key} is active in version {result.version}.")


@command(playbook_commands, "delete")
def delete_playbook(
    client: Client, name: PlaybookName, reason: Reason = None, project: Project = None
) -> Output:
    """Delete a playbook and its bullets. `restore` undoes this."""
    versions = client.playbooks.versions.list(name, project_id=project, limit=1)
    last_version = versions.items[0].version
    client.playbooks.delete(name, reason=reason, project_id=project)
    text = f"Deleted. `hansei playbook restore {name} {last_version}` restores it."
    return Output({"deleted": name, "last_version": last_version}, text)
