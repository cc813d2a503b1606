"""`hansei search`: what is known about something."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.commands.choices import Kind
from hansei.finding import Fusion, Hit
from hansei.terminal import connect, cut, say, show, show_json, show_parts

LONGEST_TEXT = 600


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to look for, in any words.")],
    top_k: Annotated[int, typer.Option(min=1, max=1000, help="How many results.")] = 10,
    kind: Annotated[list[Kind] | None, typer.Option(help="Of this kind; may be repeated.")] = None,
    playbook: Annotated[str | None, typer.Option(help="Only bullets of this playbook.")] = None,
    section: Annotated[
        list[str] | None, typer.Option(help="Of this section; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="With this tag; may be repeated.")] = None,
    fusion: Annotated[Fusion | None, typer.Option(help="How the scores are joined.")] = None,
    project: Annotated[str | None, typer.Option(help="The project to search.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of a score.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Search what was learnt, by meaning and by words."""
    with connect() as client:
        found = client.search(
            text,
            top_k=top_k,
            kinds=list(kind or ()),
            playbook=playbook,
            section_filter=section,
            tags=tag,
            fusion=fusion,
            project_id=project,
            explain=explain,
        )
    if as_json:
        show_json(found)
        return
    if not found["results"]:
        say("Nothing found.")
    for place, hit in enumerate(found["results"], start=1):
        _show_hit(place, hit)


def _show_hit(place: int, hit: Hit) -> None:
    memory = hit["memory"]
    facts = [f"{place}. {hit['combined_score']:.3f}", memory["kind"]]
    if hit["playbook"]:  # only a bullet's key can be cited
        facts += [f"{memory['key']} of {hit['playbook']}", memory["section"] or ""]
    facts.append(f"importance {memory['importance']:.2f}")
    if memory["tags"]:
        facts.append(", ".join(memory["tags"]))
    if place > 1:
        show()
    show(" · ".join(facts), style="dim")
    show(cut(memory["content"], LONGEST_TEXT))
    if hit["explain"] is not None:
        used = {"vector_score": hit["vector_score"], "bm25_score": hit["bm25_score"]}
        show_parts(used | hit["explain"])
    show(memory["id"], style="dim")
