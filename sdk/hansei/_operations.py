"""Requests that are not described well enough by the OpenAPI document: files, text and versions.

Each public function is a method of a resource (`sdk/generator/names.py`), with its arguments and
its docstring.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import httpx2

from hansei._file_limit import MAX_DOCUMENT_BYTES, read_file
from hansei._model import Model
from hansei._request import (
    Id,
    Request,
    api_path,
    encode_json,
    get_request,
    query_params,
    write_request,
)
from hansei.models import (
    AgentExecution,
    Bullet,
    Document,
    PlaybookDiff,
    PlaybookFormat,
    Question,
    Readiness,
    ReplacePlaybookResponse,
    RestorePlaybookResponse,
)

PointInTime = int | str | datetime
"""A version number or an ISO 8601 time."""
MEDIA_TYPES = {".md": "text/markdown", ".markdown": "text/markdown"}
"""Suffixes that not every Python knows."""


class PlaybookMetadata(Model):
    created_at: str
    updated_at: str


class Playbook(Model):
    """A playbook with all bullets that are not deleted.

    Pass it to `client.playbooks.replace` to store it again, with `version` as `if_match`. A
    notebook shows it as a table.
    """

    version: int
    metadata: PlaybookMetadata
    bullets: list[Bullet]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
            for cells in ((b.id, b.content, b.helpful, b.harmful) for b in self.bullets)
        )
        head = "<tr><th>key</th><th>content</th><th>helpful</th><th>harmful</th></tr>"
        return f"<table><caption>Version {escape(str(self.version))}</caption>{head}{rows}</table>"


class AgentEvent(Model):
    """One event of a run. `id` is its number, from 1."""

    id: int
    event: str
    data: dict[str, Any]


class ExecutionState(AgentExecution):
    """The state of a run after these events."""

    events: list[AgentEvent]


def read_playbook(
    name: str, *, as_of: PointInTime | None = None, project_id: str | None = None
) -> Request[Playbook]:
    """Get a playbook with its bullets, by default the current version.

    Args:
        name: The playbook.
        as_of: A version number or a time. Counters are always the current ones.
        project_id: Default: the project of the key, else `default`.
    """

    def parse(response: httpx2.Response) -> Playbook:
        tag = response.headers.get("etag", "").strip('"')
        version = {"version": int(tag)} if tag.isdigit() else {}
        return Playbook.from_json(response.json() | version)

    params = {"format": "bullets", "as_of": as_of, "project_id": project_id}
    return Request("GET", api_path("playbooks", name), parse, query_params(params))


def export_playbook(
    name: str,
    format: PlaybookFormat = "bullets",
    *,
    as_of: PointInTime | None = None,
    project_id: str | None = None,
) -> Request[str]:
    """Get a playbook as text. `client.playbooks.replace` reads all formats.

    Args:
        name: The playbook.
        format: `ace` is lines of text, the others are JSON.
        as_of: A version number or a time. Default: now.
        project_id: Default: the project of the key, else `default`.
    """
    params = {"format": format, "as_of": as_of, "project_id": project_id}
    return get_request(api_path("playbooks", name), str, params=params)


def write_playbook(
    name: str,
    content: str | bytes | Playbook | Mapping[str, Any],
    *,
    dry_run: bool = False,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[ReplacePlaybookResponse]:
    """Create a playbook or replace its content.

    Bullets that the content does not have are deleted; `client.playbooks.restore` undoes this.

    Args:
        name: The playbook.
        content: Text in any format of `export`, or the result of `get`.
        dry_run: Write nothing; `diff` shows the changes.
        if_match: The version that the playbook must be at; 0: it must not exist.
        reason: Why, for the history.
        project_id: Default: the project of the key, else `default`.
    """
    request = write_request(
        "PUT",
        api_path("playbooks", name),
        ReplacePlaybookResponse,
        params={"dry_run": dry_run or None, "reason": reason, "project_id": project_id},
        if_match=if_match,
    )
    if isinstance(content, (Model, Mapping)):
        content = encode_json(content)
    body = content.encode() if isinstance(content, str) else content
    return replace(request, body=body, headers=request.headers | {"Content-Type": "text/plain"})


def compare_versions(
    name: str,
    from_version: PointInTime,
    to_version: PointInTime | None = None,
    *,
    project_id: str | None = None,
) -> Request[PlaybookDiff]:
    """Compare two versions of a playbook.

    Args:
        name: The playbook.
        from_version: A version number or a time.
        to_version: Default: the current version.
        project_id: Default: the project of the key, else `default`.
    """
    params = {"from": from_version, "to": to_version, "project_id": project_id}
    return get_request(api_path("playbooks", name, "diff"), PlaybookDiff, params=params)


def restore_version(
    name: str,
    to: PointInTime,
    *,
    dry_run: bool = False,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[RestorePlaybookResponse]:
    """Restore the content of a version as a new version, also after a deletion.

    Args:
        name: The playbook.
        to: A version number or a time.
        dry_run: Write nothing; `diff` shows the changes.
        if_match: The version that the playbook must be at.
        reason: Why, for the history.
        project_id: Default: the project of the key, else `default`.
    """
    return write_request(
        "POST",
        api_path("playbooks", name, "restore"),
        RestorePlaybookResponse,
        {
            "version" if isinstance(to, int) else "time": to,
            "reason": reason,
            "project_id": project_id,
        },
        params={"dry_run": dry_run or None},
        if_match=if_match,
    )


def upload_document(
    name: str,
    document: str | PathLike[str] | bytes,
    *,
    source: str | None = None,
    title: str | None = None,
    media_type: str | None = None,
    project_id: str | None = None,
) -> Request[Document]:
    """Add a document to a collection. Wait for it with `client.runs.wait(document.run_id)`.

    A document with the same `source` is replaced. The same document again changes nothing, so a
    lost response can be retried. Raises `OSError` if the file cannot be read.

    Args:
        name: The collection.
        document: The path of a file, or its bytes.
        source: Identifies the document. Default: the path.
        title: Default: from the document.
        media_type: Default: from the suffix of the path.
        project_id: Default: the project of the key, else `default`.
    """
    if isinstance(document, bytes):
        content = document
    else:
        path = Path(document)
        content = read_file(path, MAX_DOCUMENT_BYTES)
        source = source or path.as_posix()
        media_type = media_type or _guess_media_type(path)
    params = {"project_id": project_id, "source": source, "title": title}
    request = write_request("POST", api_path("collections", name, "documents"), Document)
    return replace(
        request,
        params=query_params(params),
        body=content,
        headers={"Content-Type": media_type or "application/octet-stream"},
    )


def _guess_media_type(path: Path) -> str | None:
    return MEDIA_TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0]


def get_analytics_csv(
    question: Question,
    *,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    playbook: str | None = None,
    section: str | None = None,
    key: str | None = None,
    project_id: str | None = None,
    limit: int = 10_000,
) -> Request[str]:
    """Answer a question as CSV with a header.

    A text that a spreadsheet would execute as a formula starts with an apostrophe. The arguments
    are those of `get`.
    """
    params = {
        "since": since,
        "until": until,
        "playbook": playbook,
        "section": section,
        "key": key,
        "project_id": project_id,
        "limit": limit,
        "format": "csv",
    }
    return get_request(api_path("analytics", question), str, params=params)


def get_agent_events(agent_run_id: Id, after: int) -> Request[str]:
    """The events of an agent run after a number, as server-sent events. Waits for the next ones."""
    headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
    path = api_path("agents", "runs", agent_run_id, "events")
    return replace(get_request(path, str, params={"follow": False}), headers=headers)


def check_readiness() -> Request[Readiness]:
    """Check that the service can work: its database, queue, embedder and model."""
    return replace(get_request("/health/ready", Readiness), accepted_status=503)
