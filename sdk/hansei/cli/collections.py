"""`hansei collection`: create, fill, list and search collections of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.options import MinMatch, Project
from hansei.cli.terminal import (
    MAX_TEXT_LENGTH,
    format_age,
    format_count,
    print_hits,
    print_message,
    print_table,
    print_text,
    truncate,
)
from hansei.coding_agents.hook_settings import require_inside
from hansei.models import ChunkHit, Collection, Document

SUFFIXES = (".txt", ".text", ".md", ".markdown", ".html", ".htm", ".pdf")
"""Files of a folder that are added. A file that is named is sent whatever its suffix is."""

CollectionName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the collection.")]

collection_commands = typer.Typer(
    name="collection", help="Collections of documents that searches and agents read.",
    no_args_is_help=True,
)  # fmt: skip


@command(collection_commands, "create")
def create_collection(
    client: Client,
    name: CollectionName,
    description: Annotated[str, typer.Option(help="What it contains.")] = "",
    chunk_tokens: Annotated[
        int, typer.Option(min=64, max=2048, help="Size of a chunk in tokens.")
    ] = 256,
    project: Project = None,
) -> Output:
    """Create an empty collection."""
    made = client.collections.create(
        name, description=description, chunk_tokens=chunk_tokens, project_id=project
    )
    text = f"Created the collection {name}. Add documents: hansei collection add {name} FILE…"
    return Output(made, text)


@command(collection_commands, "add")
def add_documents(
    client: Client,
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
) -> Output:
    """Add documents. A document that was added before under the same path is replaced."""
    files = list(_list_files(paths))
    documents = [client.collections.documents.add(name, file, project_id=project) for file in files]
    if wait:
        documents = [_wait(client, name, document, project) for document in documents]
    failed = any(document.state == "failed" for document in documents)
    return replace(listing(documents, "No files.", each=_print_document), failed=failed)


@command(collection_commands, "list")
def list_collections(
    client: Client,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="List the documents of this collection.")
    ] = None,
    project: Project = None,
) -> Output:
    """List the collections of a project, or the documents of one."""
    if name is not None:
        documents = client.collections.documents.list(name, project_id=project)
        return listing(documents, "No documents.", each=_print_document)
    none = "No collections. Create one with `hansei collection create NAME`."
    return listing(client.collections.list(project_id=project), none, table=_print_collections)


def _print_collections(collections: list[Collection]) -> None:
    rows = [
        (
            each.name,
            str(each.document_count),
            str(each.chunk_count),
            format_age(each.created_at),
            truncate(each.description, 60),
        )
        for each in collections
    ]
    print_table(("name", "documents", "chunks", "created", "description"), rows)


@command(collection_commands, "search")
def search_collection(
    client: Client,
    name: CollectionName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The search query.")],
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")] = 5,
    min_match: MinMatch = None,
    project: Project = None,
) -> Output:
    """Search the chunks of a collection."""
    response = client.collections.search(
        name, text, top_k=top_k, min_match=min_match, project_id=project
    )
    return Output(response, lambda: print_hits(response.results, _print_hit))


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


def _wait(client: Client, name: str, document: Document, project: str | None) -> Document:
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


def _print_hit(hit: ChunkHit, facts: list[str]) -> None:
    place = f"{hit.source}, page {hit.page}, characters {hit.start}–{hit.end}"
    print_text(" · ".join([*facts, hit.title or "", place]), style="dim")
    print_text(truncate(hit.content, MAX_TEXT_LENGTH))
