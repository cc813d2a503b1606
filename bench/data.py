"""What the benches measure with: texts, questions, traces, and a database that is filled with COPY.

The texts come from `../shared/data`, or from the example traces if this folder does not exist.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import asyncpg
from pgvector import HalfVector

from bench.harness import ROOT
from memory_api.core.ids import TENANT_NAMESPACE, new_id
from memory_api.core.schemas import accepted_names
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.embeddings.tenant_models import TenantEmbedder
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.index.scopes import KIND_IDS
from memory_api.memories.schemas import LAYER_BY_KIND, MemoryKind
from memory_api.text.terms import TOKENIZER_VERSION
from memory_api.traces.schemas import CreateTraceRequest, Event

SHARED = ROOT.parent / "shared" / "data"
QUESTION_SETS = ("en-lessons-code", "en-lessons-hotpot", "en-xquad", "en-apibench")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = range(5, 26)
"""Allowed lengths of a sentence, in words."""
_PARAGRAPH_WORDS = range(8, 121)


@cache
def sentences() -> list[str]:
    """Distinct real sentences, in a fixed order."""
    found = dict.fromkeys(s.strip() for text in _texts() for s in _SENTENCE.split(text))
    return [s for s in found if len(s.split()) in _WORDS]


@cache
def queries() -> list[str]:
    """Real questions in a fixed random order, or the first words of sentences if there are none."""
    found = [
        row["text"]
        for name in QUESTION_SETS
        for row in _rows(SHARED / "retrieval" / name / "queries")
    ]
    found = found or [" ".join(s.split()[:8]) for s in sentences()]
    random.Random(7).shuffle(found)
    return found


@cache
def _real_texts() -> list[str]:
    """Distinct real texts in a fixed order: bullets, lessons, documentation, paragraphs of traces,
    and Japanese articles. About 8,400, of 37 indexed terms on average.
    """
    texts = [text for text in _texts() if text.strip()]
    for trace in _rows(SHARED / "traces"):
        for event in trace["events"]:
            paragraphs = re.split(r"\n\s*\n", str(event.get("content", "")))
            texts += [p.strip() for p in paragraphs if len(p.split()) in _PARAGRAPH_WORDS]
    texts += [row["text"] for row in _rows(SHARED / "retrieval" / "ja-jsquad" / "corpus")]
    return list(dict.fromkeys(texts))


def texts(count: int) -> list[str]:
    """Real texts in random order; above their number, also texts of several real sentences."""
    found = list(_real_texts())
    random.Random(3).shuffle(found)
    return [*found, *documents(max(0, count - len(found)), count)][:count]


def documents(count: int, seed: int) -> list[str]:
    """`count` texts of one to three sentences each."""
    draw = random.Random(seed)
    pool = sentences()
    return [" ".join(draw.sample(pool, draw.choice((1, 2, 2, 3)))) for _ in range(count)]


def _texts() -> Iterator[str]:
    yield from (row["text"] for row in _rows(SHARED / "bullets_ace"))
    for name in QUESTION_SETS:
        yield from (row["text"] for row in _rows(SHARED / "retrieval" / name / "corpus"))
    if not SHARED.is_dir():
        for trace in _rows(ROOT / "examples" / "traces"):
            yield from (str(event.get("content", "")) for event in trace["events"])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    file = path.with_suffix(".jsonl")
    if file.exists():
        yield from map(json.loads, file.read_text(encoding="utf8").splitlines())


# Traces

TOOLS = ("shell", "psql", "curl", "kubectl", "git", "npm", "terraform", "ffmpeg")


def real_traces() -> list[dict[str, Any]]:
    """551 real traces of about 9 kB and 20 events, or the example traces; without their IDs."""
    file = SHARED / "traces.jsonl"
    file = file if file.exists() else ROOT / "examples" / "traces.jsonl"
    rows = map(json.loads, file.read_text(encoding="utf8").splitlines())
    return [to_trace({name: row[name] for name in row if name != "id"}) for row in rows]


def to_trace(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A real trace as the API takes it, with fields that the API does not know in `metadata`."""
    trace = _move_unknown(raw, accepted_names(CreateTraceRequest))
    return trace | {"events": [to_event(event) for event in raw["events"]]}


def to_event(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The event, with fields that the API does not know in `metadata`."""
    return _move_unknown(raw, accepted_names(Event))


def _move_unknown(raw: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    own = {name: value for name, value in raw.items() if name not in known}
    fields = {name: value for name, value in raw.items() if name in known}
    return fields | {"metadata": own | (raw.get("metadata") or {})}


def small_traces() -> list[dict[str, Any]]:
    """Traces with five short events."""
    events = [{"event_type": "tool_call", "tool_name": "shell", "content": "ls -l"}] * 4
    last = {"event_type": "error_event", "content": "No such file or directory: plan.txt"}
    return [{"outcome": "failure", "task_description": "Read it", "events": [*events, last]}]


def failure(n: int) -> dict[str, Any]:
    """A failed trace. Each number is another task and gives another lesson."""
    tool = TOOLS[n % len(TOOLS)]
    call = f"{tool} --job {n} --part {n % 13}"
    return {
        "outcome": "failure",
        "task_description": f"Job {n} of batch {n // 7}",
        "events": [
            {"event_type": "tool_call", "tool_name": tool, "content": call},
            {"event_type": "error_event", "content": f"exit status {n % 250 + 1}: no job {n}"},
        ],
    }


def lines(traces: Sequence[dict[str, Any]], count: int, name: str) -> bytes:
    """`count` of them as NDJSON, each with an external_id of its own."""
    numbered = zip(range(count), itertools.cycle(traces), strict=False)
    named = (trace | {"external_id": f"{name}-{n}"} for n, trace in numbered)
    return b"".join(json.dumps(trace).encode() + b"\n" for trace in named)


# Rows: COPY as the superuser, without triggers and row-level security

MODEL = 1
"""Label ID of the embedding model in each tenant."""
PROJECT = "default"
NUMBERS = itertools.count(1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MEMORIES = (
    *("tenant_id", "id", "seq", "project_id", "layer", "kind", "scope_id", "key", "content"),
    *("searchable_text", "terms", "tokenizer", "fingerprint", "source", "status", "created_at"),
)
VECTORS = (
    *("tenant_id", "scope_id", "model_label_id", "seq", "kind_id", "confidence", "importance"),
    *("created_at", "tag_label_ids", "embedding"),
)
POSTINGS = ("tenant_id", "scope_id", "term_id", "seq", "weight")


async def prepared(texts: Sequence[str]) -> list[PreparedMemory]:
    """Bullets, tokenized and embedded."""
    return await prepare_memories(
        TenantEmbedder(StaticEmbedder()),
        [MemoryDraft(MemoryKind.BULLET, PROJECT, text, is_guarded=True) for text in texts],
    )


async def add_tenant(admin: asyncpg.Connection[Any], name: str) -> UUID:
    tenant = uuid5(TENANT_NAMESPACE, f"bench/{name}")
    await admin.execute("insert into tenants (id, slug) values ($1, $2)", tenant, str(tenant))
    await admin.execute(
        "insert into labels (tenant_id, id, type, name) values ($1, $2, 'model', $3)",
        *(tenant, MODEL, StaticEmbedder.model),
    )
    return tenant


async def add_playbook(
    admin: asyncpg.Connection[Any],
    tenant: UUID,
    scope: int,
    name: str,
    items: Sequence[PreparedMemory],
) -> None:
    await admin.execute(
        "insert into scopes (tenant_id, id, project_id, type, name)"
        " values ($1, $2, $3, 'playbook', $4)",
        *(tenant, scope, PROJECT, name),
    )
    await admin.execute(
        "insert into playbooks (tenant_id, scope_id, project_id, name, sections)"
        " values ($1, $2, $3, $4, '[]')",
        *(tenant, scope, PROJECT, name),
    )
    await add_memories(admin, tenant, scope, items)


async def add_memories(
    admin: asyncpg.Connection[Any], tenant: UUID, scope: int, items: Sequence[PreparedMemory]
) -> None:
    """Insert active memories into a scope that exists."""
    numbered = [(next(NUMBERS), item) for item in items]
    await admin.execute("set session_replication_role = replica")
    await admin.copy_records_to_table(
        "memories", columns=MEMORIES, records=[_memory(tenant, scope, n, i) for n, i in numbered]
    )
    vectors: list[tuple[object, ...]] = [
        (
            *(tenant, scope, MODEL, n, KIND_IDS[i.draft.kind], 0.5, i.draft.importance, NOW),
            *([], HalfVector(i.vector)),
        )
        for n, i in numbered
    ]
    await admin.copy_records_to_table("memory_vectors", columns=VECTORS, records=vectors)
    postings = [(tenant, scope, t, n, w) for n, i in numbered for t, w in i.weights.items()]
    await admin.copy_records_to_table("postings", columns=POSTINGS, records=postings)
    await admin.execute(
        "insert into scope_stats (tenant_id, scope_id, id, delta) values ($1, $2, $3, $4)",
        *(tenant, scope, new_id(), len(numbered)),
    )
    await admin.execute("set session_replication_role = origin")


def _memory(tenant: UUID, scope: int, number: int, item: PreparedMemory) -> tuple[Any, ...]:
    draft = item.draft
    return (
        *(tenant, new_id(), number, PROJECT, LAYER_BY_KIND[draft.kind].value, draft.kind.value),
        *(scope, f"b-{number:08d}", draft.content, draft.searchable_text, sorted(item.weights)),
        *(TOKENIZER_VERSION, item.fingerprint, "bench", "active", NOW),
    )


async def settle(admin: asyncpg.Connection[Any]) -> None:
    """Vacuum and analyze, as autovacuum would do later."""
    for table in ("memories", "memory_vectors", "postings", "scope_stats", "scopes", "labels"):
        await admin.execute(f"vacuum (analyze) {table}")
