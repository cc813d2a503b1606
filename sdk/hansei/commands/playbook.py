"""`hansei playbook`: read a playbook, put it in a prompt, take it out and in, see it evolve."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from hansei.client import Hansei
from hansei.commands.files import opened, readable_file
from hansei.commands.playbook_show import (
    Shown,
    choose,
    show_difference,
    show_found,
    show_playbook,
    show_playbooks,
    show_versions,
)
from hansei.errors import NotFound, Stale
from hansei.finding import Fusion
from hansei.playbooks import Form, Moment
from hansei.reflector import Tag
from hansei.routes import PAGE
from hansei.terminal import connect, count, say, show, show_json, show_text

playbook = typer.Typer(
    name="playbook", help="Read and keep playbooks, and put them in prompts.", no_args_is_help=True
)

MOMENT = "A version, or a time in ISO 8601."


def _moment(text: str) -> Moment:
    """Raises `BadParameter` for what is neither a version nor a time."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is neither a version nor a time.") from None
    return text


@contextmanager
def looking() -> Generator[Hansei]:
    """Whoever asks for a playbook that is not there is told how to see those that are."""
    with connect() as client:
        try:
            yield client
        except NotFound as error:
            error.detail += " `hansei playbook list` shows those there are."
            raise


Name = Annotated[str, typer.Argument(metavar="NAME", help="The playbook.")]
Project = Annotated[str | None, typer.Option(help="The project it belongs to.")]
Sections = Annotated[
    list[str] | None, typer.Option("--section", help="Name or slug; may be repeated.")
]
AsOf = Annotated[
    str | None, typer.Option(parser=_moment, metavar="MOMENT", help="As it was: version or time.")
]
Reason = Annotated[str | None, typer.Option(help="Kept in the history.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@playbook.command("list")
def list_all(
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Those that `restore` can bring back.")
    ] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the playbooks of a project."""
    with looking() as client:
        found = list(client.playbooks(deleted=deleted, project_id=project))
    if as_json:
        show_json({"items": found})
    elif deleted and not found:
        say("No playbook was deleted.")
    elif not found:
        say("There is no playbook yet; `hansei reflect FILE --playbook NAME` makes one.")
    else:
        show_playbooks(found)


@playbook.command("show")
def show_one(
    name: Name,
    section: Sections = None,
    status: Annotated[Shown, typer.Option(help="Only an active bullet is served.")] = "active",
    as_of: AsOf = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what a playbook says, and how often each bullet helped or harmed."""
    with looking() as client:
        found = client.playbook(name, as_of=as_of, project_id=project)
    bullets = choose(found["bullets"], section or (), status)
    if as_json:
        show_json({"name": name, **found, "bullets": bullets})
    else:
        show_playbook(name, found, bullets)


@playbook.command("render")
def render(
    name: Name,
    query: Annotated[str, typer.Argument(help="What the agent is about to do.")] = "",
    tokens: Annotated[int | None, typer.Option(min=0, help="The most it may take.")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, max=1000, help="How many bullets.")] = None,
    section: Sections = None,
    ace: Annotated[bool, typer.Option("--ace", help="In ACE's form, without words.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Print the block to put in a prompt: the bullets that matter, with the request to cite."""
    with looking() as client:
        block = client.render_playbook(
            name,
            query,
            token_budget=tokens,
            top_k=top_k,
            section_filter=section,
            format="ace" if ace else None,
            project_id=project,
        )
    if as_json:
        show_json(block)
        return
    if block["text"]:
        show_text(block["text"].rstrip("\n") + "\n")
    else:
        say("Nothing: the playbook is empty, or no bullet fits the budget of tokens.")
    size = f"{count(len(block['keys']), 'bullet')}, {count(block['tokens'], 'token')}"
    say(f"{size}, version {block['version']}. Send with the trace: render_id {block['render_id']}")


@playbook.command("search")
def search(
    name: Name,
    query: Annotated[str, typer.Argument(help="What to look for; '' lists the most useful.")],
    top_k: Annotated[int, typer.Option(min=0, max=1000, help="How many results.")] = 10,
    section: Sections = None,
    tag: Annotated[list[str] | None, typer.Option(help="With this tag; may be repeated.")] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of votes that say helpful; .3.")
    ] = None,
    fusion: Annotated[Fusion | None, typer.Option(help="How the scores are joined.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of a score.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Search one playbook."""
    with looking() as client:
        found = client.search_playbook(
            name,
            query,
            top_k=top_k,
            section_filter=section,
            tags=tag,
            min_confidence=min_confidence,
            fusion=fusion,
            explain=explain,
            project_id=project,
        )
    if as_json:
        show_json(found)
    else:
        show_found(found["results"])


@playbook.command("export")
def export(
    name: Name,
    form: Annotated[Form, typer.Option(help="spec2 and spec4 are JSON, ace is text.")] = "spec2",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="A file to write.")
    ] = None,
    as_of: AsOf = None,
    project: Project = None,
) -> None:
    """Write a playbook as a document that `import` takes."""
    with looking() as client:
        text = client.export_playbook(name, form, as_of=as_of, project_id=project)
    if output is None:
        show_text(text)
    else:
        output.write_bytes(text.encode())


@playbook.command("import")
def take(
    name: Name,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="spec 2's JSON, spec 4's, or ACE's lines. `-` is stdin.",
            callback=readable_file,
        ),
    ],
    if_match: Annotated[
        int | None, typer.Option(min=0, help="Only if it is at this version.")
    ] = None,
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make a playbook what a file says. Bullets that are not in it go: `restore` undoes it."""
    with looking() as client, opened(file) as source:
        done = client.put_playbook(
            name, source.read(), if_match=if_match, reason=reason, project_id=project
        )
    if as_json:
        show_json(done)
        return
    show(f"{name} is at version {done['version']} with {count(done['active'], 'bullet')}.")
    for note in done["notes"]:
        show(note, indent=2)


@playbook.command("copy")
def copy(
    name: Name,
    to: Annotated[str, typer.Argument(metavar="NEW", help="A name that no playbook has.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make another playbook of one: bullets with keys and votes. Its history begins with that."""
    with looking() as client:
        found = client.playbook(name, project_id=project)
        reason = f"copy of {name} at version {found['version']}"
        try:
            done = client.put_playbook(to, found, if_match=0, reason=reason, project_id=project)
        except Stale as error:
            error.detail = f"There is a playbook {to} already, or a deleted one."
            raise
    if as_json:
        show_json(done)
    else:
        show(f"{to} has the {count(done['active'], 'bullet')} of {name}.")


@playbook.command("history")
def history(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a playbook: what changed, who did it and why."""
    with looking() as client:
        every = client.playbook_history(name, project_id=project, limit=min(limit, PAGE))
        found = list(islice(every, limit))
    if as_json:
        show_json({"items": found})
    else:
        show_versions(found)


@playbook.command("diff")
def diff(
    name: Name,
    first: Annotated[Any, typer.Argument(parser=_moment, metavar="FROM", help=MOMENT)],
    last: Annotated[Any, typer.Argument(parser=_moment, metavar="TO", help=MOMENT)] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two versions or times; TO is now unless it is given."""
    with looking() as client:
        found = client.diff_playbook(name, first, last, project_id=project)
    if as_json:
        show_json(found)
    else:
        show_difference(found)


@playbook.command("restore")
def restore(
    name: Name,
    to: Annotated[Any, typer.Argument(parser=_moment, metavar="MOMENT", help=MOMENT)],
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make a playbook what it was, as a new version. A deleted one comes back."""
    with looking() as client:
        done = client.restore_playbook(name, to, reason=reason, project_id=project)
    if as_json:
        show_json(done)
    elif done["changed"]:
        show(f"{name} is at version {done['version']}.")
    else:
        show(f"{name} says that already; it stays at version {done['version']}.")


@playbook.command("judge")
def judge(
    name: Name,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The bullet, as mis-00001.")],
    verdict: Annotated[Tag, typer.Argument(metavar="VERDICT", help="helpful, harmful, neutral.")],
    reason: Annotated[str | None, typer.Option(help="Found by search later.")] = None,
    trace: Annotated[str | None, typer.Option(help="The run it was seen in.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a bullet helped or harmed. A person's word wins over every other judge's."""
    with connect() as client:
        done = client.judge_bullet(
            name, key, verdict, reason=reason, trace_id=trace, project_id=project
        )
    if as_json:
        show_json(done)
        return
    votes = (
        f"{done['bullet'].get('helpful', 0)} helpful, {done['bullet'].get('harmful', 0)} harmful"
    )
    show(f"{done['key']}: {votes}.")


@playbook.command("delete")
def delete(
    name: Name, reason: Reason = None, project: Project = None, as_json: AsJson = False
) -> None:
    """Take a playbook and its bullets away; `restore` brings both back."""
    with looking() as client:
        last = next(client.playbook_history(name, project_id=project, limit=1))["version"]
        client.delete_playbook(name, reason=reason, project_id=project)
    if as_json:
        show_json({"deleted": name, "was_at": last})
    else:
        show(f"Deleted. `hansei playbook restore {name} {last}` brings it back.")
