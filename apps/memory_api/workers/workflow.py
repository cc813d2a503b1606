"""The workflow of spec 2 as a graph: load_playbook → search → generate and, once an outcome is
reported, reflect → curate. It is a straight line with one condition, so it is plain code here
(docs/decisions/workflow.md); `build()`, the nodes and the state have the document's names.

    workflow = ReflectionWorkflow(PlaybookStore(), HybridSearch(client), LLMClient(model)).build()
    state = workflow.invoke({"query": "Refund an order", "dataset": "appworld"})
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, cast

from apps.memory_api.core.prompts import Prompt, load
from apps.memory_api.playbook.schemas import Playbook, SearchQuery, SearchResult

BUILTIN = "Points:\n{context}\n\nQuery: {query}\n\nAnswer:"
"""Stands in when there is no prompt file."""
PROMPT = "workflow_answer"


class WorkflowState(TypedDict, total=False):
    """What the nodes read and write. `outcome` is reported from outside, when it is known."""

    query: str
    dataset: str
    playbook: Playbook | None
    search_results: list[SearchResult]
    llm_response: str | None
    outcome: str | None


Update = Mapping[str, Any]
Node = Callable[[WorkflowState], Update | Awaitable[Update]]


class LoadsPlaybooks(Protocol):
    """`PlaybookStore`, or anything like it; plain or asynchronous."""

    def load(self, dataset: str) -> Playbook | Awaitable[Playbook]: ...


class Searches(Protocol):
    """`HybridSearch`, or anything like it; plain or asynchronous."""

    def search(
        self, query: SearchQuery, playbook: Playbook
    ) -> list[SearchResult] | Awaitable[list[SearchResult]]: ...


class Answers(Protocol):
    """`LLMClient`, or anything like it; plain or asynchronous."""

    def invoke_with_template(
        self, template: str, variables: Mapping[str, str]
    ) -> str | Awaitable[str]: ...


@dataclass(frozen=True)
class Workflow:
    """Nodes in their order. Those of `after` run only when an outcome is known."""

    nodes: Mapping[str, Node]
    after: Sequence[str] = ()

    def invoke(self, state: WorkflowState) -> WorkflowState:
        """The state at the end. Raises RuntimeError inside an event loop: use `ainvoke` there."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("inside an event loop use `ainvoke`")
        return asyncio.run(_finish(self._steps(state, plain=True)))

    async def ainvoke(self, state: WorkflowState) -> WorkflowState:
        """The state at the end."""
        return await self._steps(state, plain=False)

    async def _steps(self, state: WorkflowState, *, plain: bool) -> WorkflowState:
        merged = dict[str, Any](state)
        for name, node in self.nodes.items():
            if name in self.after and merged.get("outcome") is None:
                continue
            now = cast(WorkflowState, merged)
            # A plain node may run a loop of its own (`LLMClient`), so it gets a thread of its own.
            update = await asyncio.to_thread(node, now) if plain else node(now)
            merged |= await update if inspect.isawaitable(update) else update
        return cast(WorkflowState, merged)


async def _finish(steps: Awaitable[WorkflowState]) -> WorkflowState:
    return await steps


class ReflectionWorkflow:
    """Spec 2's workflow. `reflector` and `curator` are the nodes that learn from an outcome; in the
    service they are jobs (`learn.py`), because the outcome comes later.
    """

    def __init__(
        self,
        playbook_store: LoadsPlaybooks,
        hybrid_search: Searches,
        llm_client: Answers,
        *,
        reflector: Node | None = None,
        curator: Node | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        self.playbook_store = playbook_store
        self.hybrid_search = hybrid_search
        self.llm_client = llm_client
        self.prompt = prompt or load(PROMPT, builtin=BUILTIN)
        self._learning = {
            name: node
            for name, node in (("reflect", reflector), ("curate", curator))
            if node is not None
        }

    def build(self) -> Workflow:
        """The graph, ready to be run any number of times."""
        nodes: dict[str, Node] = {
            "load_playbook": self._load_playbook,
            "search": self._search,
            "generate": self._generate,
        }
        return Workflow(nodes | self._learning, after=tuple(self._learning))

    def _load_playbook(self, state: WorkflowState) -> Update | Awaitable[Update]:
        loaded = self.playbook_store.load(state.get("dataset", ""))
        return _named("playbook", loaded)

    def _search(self, state: WorkflowState) -> Update | Awaitable[Update]:
        query = SearchQuery.model_validate({"query_text": state.get("query", "")})
        found = self.hybrid_search.search(query, state.get("playbook") or Playbook())
        return _named("search_results", found)

    def _generate(self, state: WorkflowState) -> Update | Awaitable[Update]:
        variables = {
            "context": context_of(state.get("search_results", [])),
            "query": state.get("query", ""),
        }
        return _named(
            "llm_response", self.llm_client.invoke_with_template(self.prompt.text, variables)
        )


def context_of(results: Sequence[SearchResult]) -> str:
    """The contents of the hits, best first, a line each, with the ID to cite."""
    return "\n".join(f"[{r.bullet.id}] {r.bullet.content}" for r in results)


def _named(name: str, value: Any) -> Update | Awaitable[Update]:
    """The update of one field, at once or when it is there."""
    if not inspect.isawaitable(value):
        return {name: value}

    async def wait() -> Update:
        return {name: await value}

    return wait()
