"""`hansei collection`: create, fill, list and search collections of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hansei.cli.options import AsJson, Project
from hansei.cli.terminal import (
    format_age,
    format_count,
    match_words,
    open_client,
    print_json,
    print_message,
    print_table,
    print_text,
    truncate,
)
from hansei.coding_agents.hook_settings import require_inside
from hansei.models import ChunkHit, Document, Match

if TYPE_CHECKING:
    from hansei.client import Hansei

SUFFIXES = (".txt", ".text", ".md", ".markdown", ".html", ".htm", ".pdf")
"""Files of a folder that are added. A file that is named is sent whatever its suffix is."""
MAX_TEXT_LENGTH = 600

CollectionName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the collection.")]

collection_commands = typer.Typer(
    name="collection", help="Collections of documents that searches and agents read.",
    no_args_is_help=True,
)  # fmt: skip


@collection_commands.command("create")
def create_collection(
    name: CollectionName,
    description: Annotated[str, typer.Option(help="What it contains.")] = "",
    chunk_tokens: Annotated[
        int, typer.Option(min=64, max=2048, help="Size of a chunk in tokens.")
    ] = 256,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Create an empty collection."""
    with open_client() as client:
        made = client.collections.create(
            name, description=description, chunk_tokens=chunk_tokens, project_id=project
        )
    if as_json:
        print_json(made)
    else:
        print_text(
            f"Created the collection {name}. Add documents: hansei collection add {name} FILE…"
        )


@collection_commands.command("add")
def add_documents(
    name: CollectionName,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            exists=True,
            help="Files, or folders of text, Markdown, HTML and PDF.",
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the documents are searchable.")
    ] = True,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Add documents. A document that was added before under the same path is replaced."""
    files = list(_list_files(paths))
    with open_client() as client:
        documents = [
            client.collections.documents.add(name, file, project_id=project) for file in files
        ]
        if wait:
            documents = [_wait(client, name, document, project) for document in documents]
    if as_json:
        print_json({"items": documents})
    else:
        for document in documents:
            _print_document(document)
    if any(document.state == "failed" for document in documents):
        raise typer.Exit(1)


@collection_commands.command("list")
def list_collections(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="List the documents of this collection.")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the collections of a project, or the documents of one."""
    with open_client() as client:
        if name is not None:
            documents = list(client.collections.documents.list(name, project_id=project))
            if as_json:
                print_json({"items": documents})
            for document in documents if not as_json else ():
                _print_document(document)
            return
        collections = list(client.collections.list(project_id=project))
    if as_json:
        print_json({"items": collections})
    elif not collections:
        print_message("No collections. Create one with `hansei collection create NAME`.")
    else:
        print_table(
            ("name", "documents", "chunks", "created", "description"),
            [
                (
                    each.name,
                    str(each.document_count),
                    str(each.chunk_count),
                    format_age(each.created_at),
                    truncate(each.description, 60),
                )
                for each in collections
            ],
        )


@collection_commands.command("search")
def search_collection(
    name: CollectionName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The search query.")],
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")] = 5,
    min_match: Annotated[
        Match | None, typer.Option(help="Only results that fit at least this well.")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Search the chunks of a collection."""
    with open_client() as client:
        response = client.collections.search(
            name, text, top_k=top_k, min_match=min_match, project_id=project
        )
    if as_json:
        print_json(response)
        return
    if not response.results:
        print_message("No results.")
    for rank, hit in enumerate(response.results, start=1):
        _print_hit(rank, hit)


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Skips the links that lead out of a folder. Raises `BadRequestError` if a path is one."""
    for path in paths:
        require_inside(path)
        if not path.is_dir():
            yield path
            continue
        folder = path.resolve()
        for file in sorted(path.rglob("*")):
            if not file.is_file() or file.suffix.lower() not in SUFFIXES:
                continue
            if (target := file.resolve()).is_relative_to(folder):
                yield file
            else:
                print_message(
                    f"{file} leads to {target} by a symbolic link, outside {path}. Skipped."
                )


def _wait(client: Hansei, name: str, document: Document, project: str | None) -> Document:
    if document.run_id is not None and document.state in ("queued", "running"):
        client.runs.wait(document.run_id)
    return client.collections.documents.get(name, document.id, project_id=project)


def _print_document(document: Document) -> None:
    if document.state == "failed":
        state = f"failed: {document.error['message']}"
    elif document.state == "done":
        state = format_count(document.chunk_count or 0, "chunk")
    else:
        state = f"{document.state}, {document.progress:.0%}"
    print_text(f"{document.source}: {state}")


def _print_hit(rank: int, hit: ChunkHit) -> None:
    if rank > 1:
        print_text()
    place = f"{hit.source}, page {hit.page}, characters {hit.start}–{hit.end}"
    facts = [f"{rank}. {hit.combined_score:.3f}", *match_words(hit.match)]
    print_text(" · ".join([*facts, hit.title or "", place]), style="dim")
    print_text(truncate(hit.content, MAX_TEXT_LENGTH))
