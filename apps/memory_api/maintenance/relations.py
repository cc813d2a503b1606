"""The tasks `entities` and `clusters`: what memories mention, and which ones resemble each other.

Entities are tools and error categories, which the memory names in its fields, and files and
libraries, which are found in its text by their form. A memory joins the cluster of its nearest
older neighbor of the same kind and project that is not about another task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.ids import new_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.maintenance.queries import lock_task
from memory_api.memories.tables import MemoryClusterRow
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.text.terms import content_terms

ENTITIES, CLUSTERS = "entities", "clusters"
MEMORIES_TO_RELATE = load_statement("maintenance/maintenance.sql", "memories_to_relate")
ADD_ENTITIES = load_statement("maintenance/maintenance.sql", "add_entities")
JOIN_CLUSTERS = load_statement("maintenance/maintenance.sql", "join_clusters")
MEMORIES_PER_BATCH = 200
MAX_BATCHES_PER_RUN = 50
"""The next run continues."""
MIN_CLUSTER_COSINE = 0.8
CLUSTERED_KINDS = {"reflection", "strategy", "insight", "episode"}
MAX_ENTITIES_PER_MEMORY = 20
MAX_NAME_LENGTH = 200
NO_ID = UUID(int=0)

EXTENSIONS = (
    "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|java|js|json|jsx|kt|lock|log|md|php|proto|py|rb"
    "|rs|scss|sh|sql|swift|toml|ts|tsx|txt|vue|xml|yaml|yml"
)
FILE = re.compile(rf"(?<![\w./-])[\w./-]{{1,150}}\.(?:{EXTENSIONS})(?![\w-])")
LIBRARY = re.compile(
    r"\b(?:pip install|npm install|import|require|cargo add|go get)[ (]{1,3}['\"]?"
    r"([A-Za-z@][\w@./-]{1,60})"
)

Entity = tuple[str, str]
"""(type, name)."""


def find_entities(
    content: str, error_category: str | None, tools: Sequence[Any] | None
) -> list[Entity]:
    """The entities of a memory, at most 20. `content` is at most 20,000 characters, so that the
    patterns take bounded time.
    """

    def found() -> Iterator[Entity]:
        yield from (("tool", tool) for tool in tools or () if isinstance(tool, str) and tool)
        if error_category:
            yield ("error", error_category)
        yield from (("file", match[0].lstrip("./")) for match in FILE.finditer(content))
        yield from (
            ("library", match[1].lower().rstrip("./")) for match in LIBRARY.finditer(content)
        )

    entities = dict.fromkeys((type_, name[:MAX_NAME_LENGTH]) for type_, name in found())
    return [(type_, name) for type_, name in entities if name][:MAX_ENTITIES_PER_MEMORY]


async def link_entities(runtime: Runtime, run: RunRow) -> StepResult:
    """Finds the entities of the memories that are new since the last run."""
    counts = {"memories_read": 0, "mentions_added": 0}
    for _ in range(MAX_BATCHES_PER_RUN):
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            rows = await _next_batch(session, ENTITIES)
            counts["memories_read"] += len(rows)
            counts["mentions_added"] += await _add_entities(session, rows)
        if len(rows) < MEMORIES_PER_BATCH:
            break
    return StepResult(data=counts)


async def join_clusters(runtime: Runtime, run: RunRow) -> StepResult:
    """Puts the memories that are new since the last run into clusters."""
    counts = {"memories_read": 0, "memories_clustered": 0}
    for _ in range(MAX_BATCHES_PER_RUN):
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            rows = await _next_batch(session, CLUSTERS)
            counts["memories_read"] += len(rows)
            counts["memories_clustered"] += await _join(session, rows)
        if len(rows) < MEMORIES_PER_BATCH:
            break
    return StepResult(data=counts)


async def _next_batch(session: AsyncSession, task_name: str) -> Sequence[Any]:
    """The memories after the position of the task, which moves in the same transaction."""
    task = await lock_task(session, task_name)
    after = UUID(task.state.get("after", str(NO_ID)))
    rows = await fetch_rows(
        session,
        MEMORIES_TO_RELATE,
        {
            "tenant": current_tenant_id(session),
            "after": after,
            "batch_size": MEMORIES_PER_BATCH,
        },
    )
    if rows:
        task.state = {"after": str(rows[-1].id)}
    return rows


async def _add_entities(session: AsyncSession, rows: Sequence[Any]) -> int:
    mentions = [
        (row.id, new_id(), row.project_id, type_, name)
        for row in rows
        for type_, name in find_entities(row.content, row.error_category, row.tools)
    ]
    if not mentions:
        return 0
    memories, ids, projects, types, names = map(list, zip(*mentions, strict=True))
    parameters: dict[str, Any] = {
        "memories": memories,
        "ids": ids,
        "projects": projects,
        "types": types,
        "names": names,
    }
    parameters["tenant"] = current_tenant_id(session)
    return len(await fetch_rows(session, ADD_ENTITIES, parameters))


def are_other_tasks(one: Any, other: Any, kind: str) -> bool:
    """Whether two memories resemble each other only by the words of a template: both name tools and
    share none, or both are reflections whose task descriptions share no content word. A strategy
    or an insight may be the same for different tasks.
    """
    tools = [{each for each in row.tools or () if isinstance(each, str)} for row in (one, other)]
    if kind == "reflection":
        words = [content_terms(row.task or "") for row in (one, other)]
        return _share_nothing(*tools) or _share_nothing(*words)
    return _share_nothing(*tools)


def _share_nothing(mine: set[Any], theirs: set[Any]) -> bool:
    return bool(mine) and bool(theirs) and mine.isdisjoint(theirs)


async def _join(session: AsyncSession, rows: Sequence[Any]) -> int:
    """Joins each memory to a cluster, the oldest first, so that a chain of new memories becomes one
    cluster.
    """
    by_seq = {row.seq: row for row in rows if row.kind in CLUSTERED_KINDS}
    if not by_seq:
        return 0
    tenant = current_tenant_id(session)
    found = await fetch_rows(
        session,
        JOIN_CLUSTERS,
        {
            "tenant": tenant,
            "seqs": list(by_seq),
            "scopes": sorted({row.scope_id for row in by_seq.values()}),
            "min_cosine": MIN_CLUSTER_COSINE,
        },
    )
    clusters: dict[UUID, UUID] = {}
    joined: set[int] = set()
    for older in found:
        newer = by_seq[older.seq]
        if older.seq in joined or are_other_tasks(newer, older, newer.kind):
            continue
        joined.add(older.seq)
        cluster: UUID = clusters.get(older.nearest_id) or older.cluster_id
        clusters.setdefault(older.nearest_id, cluster)
        clusters[newer.id] = cluster
    if clusters:
        values = [
            {"tenant_id": tenant, "memory_id": memory_id, "cluster_id": cluster_id}
            for memory_id, cluster_id in clusters.items()
        ]
        await session.execute(insert(MemoryClusterRow).values(values).on_conflict_do_nothing())
    return len(clusters)
