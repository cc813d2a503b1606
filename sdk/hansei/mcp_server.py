"""The MCP server: Hansei as tools, resources and a prompt of the Model Context Protocol.

`create_mcp_server` is the same server for both transports: `hansei mcp` runs it over stdio with the
key of the user, and the service mounts it at `/mcp` with the key of each request. Every tool is one
operation of the HTTP API and has its name, so tenants, key scopes and rate limits are those of the
API. Needs the extra `hansei[mcp]`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any, Literal
from urllib.parse import quote

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer, UserMessage
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
)
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    ListResourcesResult,
    Resource,
    ToolAnnotations,
)
from pydantic import Field

from hansei.async_client import AsyncHansei
from hansei.errors import HanseiError, NotFoundError
from hansei.mcp_results import (
    Advice,
    AgentAnswer,
    FoundBullet,
    FoundBullets,
    ListedPlaybook,
    ListedPlaybooks,
    RecordedEvent,
    RecordedVerdict,
    StoredTrace,
    ToolServer,
)
from hansei.models import AgentRun, Bullet, OutcomeType

Connect = Callable[[Mapping[str, str] | None], AbstractAsyncContextManager[AsyncHansei]]
"""Opens the client of one request. The argument is the HTTP headers, None over stdio."""

INSTRUCTIONS = """\
Hansei is a memory of what worked and what failed in earlier agent runs.
Before you act on a task, call render_playbook with it, as your first action. Read all key points
that it returns, follow each one whose situation applies, ignore the others, and cite the ID of each
that influences you. After the task, call create_trace with what happened, the outcome, the
retrieval_id and the keys of the bullets that you used. If the outcome is known later, call
record_outcome.
Bullets are advice that was learned from data. They do not replace the instructions of your user."""

MAX_WAIT_SECONDS = 50.0
"""Clients give up on a tool call after about a minute."""
POLL_SECONDS = 0.5
STOPPED = frozenset({"waiting", "done", "failed", "cancelled"})
RESOURCE_PREFIX = "hansei://playbooks/"
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

Playbook = Annotated[str, Field(description="Name of the playbook.")]
MinMatch = Annotated[
    Literal["strong", "weak"] | None,
    Field(description="`strong`: only what fits the query well."),
]
Project = Annotated[str | None, Field(description="ID of the project. Default: that of the key.")]
RetrievalId = Annotated[
    str | None, Field(description="`retrieval_id` of the render or search that gave the bullets.")
]
Wait = Annotated[
    float, Field(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the answer.")
]


def create_mcp_server(connect: Connect) -> MCPServer:
    async def list_playbook_resources(
        ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Answers `resources/list` with the playbooks of the caller; passes on all other requests.
        The SDK's own list is the same for all callers.
        """
        if ctx.method != "resources/list":
            return await call_next(ctx)
        headers = getattr(ctx.request, "headers", None)
        try:
            async with connect(headers) as client:
                playbooks = [playbook async for playbook in client.playbooks.list()]
        except HanseiError as error:
            raise MCPError(INTERNAL_ERROR, error.detail) from error
        return ListResourcesResult(
            resources=[
                Resource(
                    uri=RESOURCE_PREFIX + quote(playbook.name, safe=""),
                    name=playbook.name,
                    description=f"Playbook with {playbook.active_bullet_count} active bullets.",
                    mime_type="text/markdown",
                )
                for playbook in playbooks
            ]
        )

    server = ToolServer(
        "hansei",
        title="Hansei",
        instructions=INSTRUCTIONS,
        version=version("hansei"),
        log_level="ERROR",
        middleware=[list_playbook_resources],
        subscriptions=False,
    )
    open_for_tool = _opener(connect)
    _add_playbook_tools(server, open_for_tool)
    _add_trace_tools(server, open_for_tool)
    _add_agent_tools(server, open_for_tool)
    _add_playbook_resource(server, connect)
    return server


Opener = Callable[[Context], AbstractAsyncContextManager[AsyncHansei]]


def _opener(connect: Connect) -> Opener:
    @asynccontextmanager
    async def open_for_tool(context: Context) -> AsyncGenerator[AsyncHansei]:
        """The client of a tool call. An error of the API is an answer that the model can read."""
        try:
            async with connect(context.headers) as client:
                yield client
        except HanseiError as error:
            raise ToolError(error.detail) from error

    return open_for_tool


def _add_playbook_tools(server: MCPServer, open_client: Opener) -> None:
    @server.tool(annotations=READ_ONLY)
    async def list_playbooks(ctx: Context, project_id: Project = None) -> ListedPlaybooks:
        """List the playbooks."""
        async with open_client(ctx) as client:
            items = [
                ListedPlaybook.model_validate(item)
                async for item in client.playbooks.list(project_id=project_id)
            ]
        return ListedPlaybooks(items=items)

    @server.tool(annotations=READ_ONLY)
    async def search_bullets(
        ctx: Context,
        playbook: Playbook,
        query_text: Annotated[str, Field(description="Empty: the most useful bullets.")] = "",
        top_k: Annotated[int, Field(ge=1, le=100)] = 10,
        min_match: MinMatch = None,
        project_id: Project = None,
    ) -> FoundBullets:
        """Search the bullets of a playbook, best first. `match` says how well each fits."""
        async with open_client(ctx) as client:
            found = await client.playbooks.search(
                playbook, query_text, top_k=top_k, min_match=min_match, project_id=project_id
            )
        results = [
            FoundBullet.model_validate(
                hit.bullet.model_dump()
                | {"combined_score": round(hit.combined_score, 4), "match": hit.match}
            )
            for hit in found.results
        ]
        return FoundBullets(results=results, retrieval_id=found.retrieval_id)

    @server.tool(annotations=READ_ONLY)
    async def render_playbook(
        ctx: Context,
        playbook: Playbook,
        query_text: Annotated[str, Field(description="The task that is about to start.")] = "",
        token_budget: Annotated[int | None, Field(ge=0, le=100_000)] = None,
        project_id: Project = None,
    ) -> Advice:
        """Call this before you act on a task: the key points to follow, with the request to cite
        them. Empty if nothing was learned yet."""
        async with open_client(ctx) as client:
            return await _render(client, playbook, query_text, token_budget, project_id)

    @server.tool(annotations=WRITES)
    async def record_verdict(
        ctx: Context,
        playbook: Playbook,
        key: Annotated[str, Field(description="For example `mis-00001`.")],
        tag: Literal["helpful", "harmful", "neutral"],
        reason: str | None = None,
        trace_id: str | None = None,
        project_id: Project = None,
    ) -> RecordedVerdict:
        """Judge a bullet: did it help in this run?"""
        async with open_client(ctx) as client:
            answer = await client.playbooks.bullets.verdicts.create(
                playbook,
                key,
                tag,
                reason=reason,
                trace_id=trace_id,
                project_id=project_id,
            )
        return RecordedVerdict(
            key=answer.key,
            counted=answer.counted,
            quarantined=answer.quarantined,
        )

    @server.prompt(title="Apply a playbook")
    async def apply_playbook(ctx: Context, playbook: str, task: str) -> list[UserMessage]:
        """Do a task with the advice of a playbook."""
        async with open_client(ctx) as client:
            block = await _render(client, playbook, task, None, None)
        closing = (
            f"When the task has ended, call create_trace with playbook `{playbook}` and"
            f" retrieval_id `{block.retrieval_id}`."
        )
        return [UserMessage("\n\n".join([block.text.strip(), f"Task: {task}", closing]))]


def _add_trace_tools(server: MCPServer, open_client: Opener) -> None:
    @server.tool(annotations=WRITES)
    async def create_trace(
        ctx: Context,
        task_description: Annotated[str, Field(description="What the agent was asked to do.")],
        events: Annotated[list[RecordedEvent], Field(min_length=1, max_length=10_000)],
        outcome: OutcomeType | None = None,
        playbook: Annotated[str | None, Field(description="Playbook that learns from it.")] = None,
        retrieval_id: RetrievalId = None,
        used_bullet_keys: list[str] | None = None,
        generated_answer: Annotated[str | None, Field(description="The final answer.")] = None,
        external_id: Annotated[
            str | None, Field(description="Your ID of the run. Makes sending it again safe.")
        ] = None,
        project_id: Project = None,
    ) -> StoredTrace:
        """Record an agent run, so that Hansei learns from it."""
        async with open_client(ctx) as client:
            receipt = await client.traces.create(
                task_description=task_description,
                query=task_description,
                events=[event.model_dump(exclude_none=True) for event in events],
                outcome=outcome,
                playbook=playbook,
                retrieval_id=retrieval_id,
                used_bullet_keys=used_bullet_keys,
                generated_answer=generated_answer,
                external_id=external_id,
                project_id=project_id,
            )
            return StoredTrace.model_validate(receipt)

    @server.tool(annotations=WRITES)
    async def record_outcome(
        ctx: Context,
        trace_id: str,
        outcome: OutcomeType,
        error: Annotated[str | None, Field(description="Why it failed.")] = None,
    ) -> StoredTrace:
        """Report the outcome of an agent run that was recorded earlier."""
        async with open_client(ctx) as client:
            receipt = await client.traces.record_outcome(trace_id, outcome, error=error)
            return StoredTrace.model_validate(receipt)


def _add_agent_tools(server: MCPServer, open_client: Opener) -> None:
    @server.tool(annotations=WRITES)
    async def create_agent_run(
        ctx: Context,
        query: str,
        playbook: Annotated[str | None, Field(description="The playbook that it follows.")] = None,
        collections: Annotated[
            list[str] | None, Field(description="Search these collections only.")
        ] = None,
        wait_seconds: Wait = 30.0,
        project_id: Project = None,
    ) -> AgentAnswer:
        """Ask GRACE, the agent of Hansei, which plans, searches the documents and answers with
        sources. If `state` is `waiting`, show `intervention` to the user and call
        answer_intervention. If it is `queued` or `running`, call get_agent_run later.
        """
        async with open_client(ctx) as client:
            run = await client.agents.runs.create(
                query, playbook=playbook, collections=collections, project_id=project_id
            )
            return _to_answer(await _wait(client, run, wait_seconds))

    @server.tool(annotations=READ_ONLY)
    async def get_agent_run(
        ctx: Context, agent_run_id: str, wait_seconds: Wait = 0.0
    ) -> AgentAnswer:
        """Get the state, the answer or the open question of a run of GRACE."""
        async with open_client(ctx) as client:
            run = await client.agents.runs.get(agent_run_id)
            return _to_answer(await _wait(client, run, wait_seconds))

    @server.tool(annotations=WRITES)
    async def answer_intervention(
        ctx: Context,
        agent_run_id: str,
        action: Annotated[
            Literal["proceed", "modify", "cancel", "input", "retry", "skip"],
            Field(description="One of the `options` of the question."),
        ],
        input: Annotated[str | None, Field(description="For `input` and `modify`.")] = None,
        wait_seconds: Wait = 30.0,
    ) -> AgentAnswer:
        """Answer the open question of a run of GRACE. Ask your user first: the answer is theirs."""
        async with open_client(ctx) as client:
            run = await client.agents.runs.get(agent_run_id)
            question = run.intervention
            if question is None:
                raise ToolError(f"The run asks nothing. Its state is `{run.state}`.")
            run = await client.agents.runs.interventions.answer(
                agent_run_id, question.id, action, input=input
            )
            return _to_answer(await _wait(client, run, wait_seconds))


def _add_playbook_resource(server: MCPServer, connect: Connect) -> None:
    @server.resource(RESOURCE_PREFIX + "{name}", name="playbook", mime_type="text/markdown")
    async def read_playbook(name: str, ctx: Context) -> str:
        """The active bullets of a playbook by section."""
        try:
            async with connect(ctx.headers) as client:
                playbook = await client.playbooks.get(name)
        except NotFoundError as error:
            raise ResourceNotFoundError(error.detail) from error
        except HanseiError as error:
            raise ResourceError(error.detail) from error
        return format_playbook(name, playbook.bullets)


def format_playbook(name: str, bullets: list[Bullet]) -> str:
    """The active bullets as Markdown, one list for each section."""
    lines = [f"# Playbook {name}"]
    sections: dict[str, list[str]] = {}
    for bullet in bullets:
        if bullet.status == "active":
            content = " ".join(bullet.content.split())
            sections.setdefault(bullet.section, []).append(f"- [{bullet.id}] {content}")
    for section, items in sections.items():
        lines += ["", f"## {section}", "", *items]
    return "\n".join(lines) + "\n"


async def _render(
    client: AsyncHansei, playbook: str, task: str, tokens: int | None, project_id: str | None
) -> Advice:
    block = await client.playbooks.render(
        playbook, task, token_budget=tokens, project_id=project_id
    )
    return Advice.model_validate(block)


async def _wait(client: AsyncHansei, run: AgentRun, seconds: float) -> AgentRun:
    """The run when it has stopped, or as it is after `seconds`."""
    deadline = time.monotonic() + seconds
    while run.state not in STOPPED and time.monotonic() < deadline:
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        run = await client.agents.runs.get(run.id)
    return run


def _to_answer(run: AgentRun) -> AgentAnswer:
    return AgentAnswer.model_validate(run.model_dump() | {"agent_run_id": run.id})
