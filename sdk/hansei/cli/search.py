"""`hansei search`: search memories of any kind."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from hansei import models
from hansei.cli.options import AsJson, MemoryKind, Project, Tags
from hansei.cli.terminal import (
    match_words,
    open_client,
    print_json,
    print_message,
    print_score_terms,
    print_text,
    truncate,
)
from hansei.models import Fusion, Match, MemoryHit

MAX_TEXT_LENGTH = 600


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The search query.")],
    top_k: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of results.")] = 10,
    kind: Annotated[
        list[MemoryKind] | None, typer.Option(help="Only this kind. Repeatable.")
    ] = None,
    playbook: Annotated[str | None, typer.Option(help="Only bullets of this playbook.")] = None,
    section: Annotated[
        list[str] | None, typer.Option(help="Only this section. Repeatable.")
    ] = None,
    tag: Tags = None,
    min_match: Annotated[
        Match | None, typer.Option(help="Only results that fit at least this well.")
    ] = None,
    fusion: Annotated[Fusion | None, typer.Option(help="How the scores are combined.")] = None,
    project: Project = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the terms of each score.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search memories by meaning and by words."""
    with open_client() as client:
        response = client.memories.search(
            text,
            top_k=top_k,
            kinds=cast("list[models.MemoryKind]", [each.value for each in kind or ()]),
            playbook=playbook,
            section_filter=section,
            tags=tag,
            fusion=fusion,
            min_match=min_match,
            project_id=project,
            explain=explain,
        )
    if as_json:
        print_json(response)
        return
    if not response.results:
        print_message("No results.")
    for rank, hit in enumerate(response.results, start=1):
        _print_hit(rank, hit)


def _print_hit(rank: int, hit: MemoryHit) -> None:
    memory = hit.memory
    facts = [f"{rank}. {hit.combined_score:.3f}", *match_words(hit.match), memory.kind]
    if hit.playbook:  # only the key of a bullet can be cited
        facts += [f"{memory.key} of {hit.playbook}", memory.section or ""]
    facts.append(f"importance {memory.importance:.2f}")
    if memory.tags:
        facts.append(", ".join(memory.tags))
    if rank > 1:
        print_text()
    print_text(" · ".join(facts), style="dim")
    print_text(truncate(memory.content, MAX_TEXT_LENGTH))
    if hit.explain is not None:
        scores = {"vector_score": hit.vector_score, "bm25_score": hit.bm25_score}
        print_score_terms(scores | hit.explain)
    print_text(memory.id, style="dim")
