"""`hansei search`: search memories of any kind."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from hansei.cli.commands import Client, Output
from hansei.cli.options import Explain, HowCombined, MemoryKind, MinMatch, Project, Sections, Tags
from hansei.cli.terminal import (
    MAX_TEXT_LENGTH,
    print_hits,
    print_score_terms,
    print_text,
    truncate,
)
from hansei.models import MemoryHit


def search(
    client: Client,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The search query.")],
    top_k: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of results.")] = 10,
    kind: Annotated[
        list[MemoryKind] | None, typer.Option(help="Only this kind. Repeatable.")
    ] = None,
    playbook: Annotated[str | None, typer.Option(help="Only bullets of this playbook.")] = None,
    section: Sections = None,
    tag: Tags = None,
    min_match: MinMatch = None,
    fusion: HowCombined = None,
    project: Project = None,
    explain: Explain = False,
) -> Output:
    """Search memories by meaning and by words."""
    response = client.memories.search(
        text,
        top_k=top_k,
        kinds=cast(Any, kind),
        playbook=playbook,
        section_filter=section,
        tags=tag,
        fusion=fusion,
        min_match=min_match,
        project_id=project,
        explain=explain,
    )
    return Output(response, lambda: print_hits(response.results, _print_hit))


def _print_hit(hit: MemoryHit, facts: list[str]) -> None:
    memory = hit.memory
    facts = [*facts, memory.kind]
    if hit.playbook:  # only the key of a bullet can be cited
        facts += [f"{memory.key} of {hit.playbook}", memory.section or ""]
    facts.append(f"importance {memory.importance:.2f}")
    if memory.tags:
        facts.append(", ".join(memory.tags))
    print_text(" · ".join(facts), style="dim")
    print_text(truncate(memory.content, MAX_TEXT_LENGTH))
    if hit.explain is not None:
        scores = {"vector_score": hit.vector_score, "bm25_score": hit.bm25_score}
        print_score_terms(scores | hit.explain)
    print_text(memory.id, style="dim")
