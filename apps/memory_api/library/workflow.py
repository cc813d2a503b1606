"""The workflow of S2: load_playbook → search → generate and, once an outcome is known, reflect →
curate.

It is a straight line with one condition, so it is plain code (docs/decisions/workflow.md).
`build()`, the nodes and the state have the names of the document.

    workflow = ReflectionWorkflow(PlaybookStore(), HybridSearch(client), LLMClient(model)).build()
    state = workflow.invoke({"query": "Refund an order", "dataset": "appworld"})
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, cast

from memory_api.library.blocking import require_no_event_loop
from memory_api.llm.prompts import Prompt, load_prompt
from memory_api.llm.untrusted_text import fence_text
from memory_api.playbooks.models import Playbook, SearchQuery, SearchResult
from memory_api.workflow.step import PROMPT_NAME, format_results


class WorkflowState(TypedDict, total=False):
    """What the nodes read and write. The caller sets `outcome` when it is known."""

    query: str
    dataset: str
    playbook: Playbook | None
    search_results: list[SearchResult]
    llm_response: str | None
    outcome: str | None


StateUpdate = Mapping[str, Any]
WorkflowNode = Callable[[WorkflowState], StateUpdate | Awaitable[StateUpdate]]


class PlaybookLoader(Protocol):
    """`PlaybookStore` or a compatible class; synchronous or asynchronous."""

    def load(self, dataset: str) -> Playbook | Awaitable[Playbook]: ...


class PlaybookSearcher(Protocol):
    """`HybridSearch` or a compatible class; synchronous or asynchronous."""

    def search(
        self, query: SearchQuery, playbook: Playbook
    ) -> list[SearchResult] | Awaitable[list[SearchResult]]: ...


class TemplateModel(Protocol):
    """`LLMClient` or a compatible class; synchronous or asynchronous."""

    def invoke_with_template(
        self, template: str, variables: Mapping[str, str]
    ) -> str | Awaitable[str]: ...


@dataclass(frozen=True)
class Workflow:
    """Nodes in the order in which they run. The nodes in `after` run only if an outcome is
    known.
    """

    nodes: Mapping[str, WorkflowNode]
    after: Sequence[str] = ()

    def invoke(self, state: WorkflowState) -> WorkflowState:
        """Runs the workflow and returns the final state. Raises RuntimeError inside an event loop:
        use `ainvoke` there.
        """
        require_no_event_loop("`ainvoke`")
        return asyncio.run(self.ainvoke(state))

    async def ainvoke(self, state: WorkflowState) -> WorkflowState:
        """Runs the workflow and returns the final state."""
        merged = dict[str, Any](state)
        for name, node in self.nodes.items():
            if name in self.after and merged.get("outcome") is None:
                continue
            # A synchronous node may block, for example in `LLMClient`.
            update = await asyncio.to_thread(node, cast(WorkflowState, merged))
            merged |= await update if inspect.isawaitable(update) else update
        return cast(WorkflowState, merged)


class ReflectionWorkflow:
    """The workflow of S2. `reflector` and `curator` are the nodes that learn from an outcome.

    The service does this in runs (`learning.py`), because the outcome is known later.
    """

    def __init__(
        self,
        playbook_store: PlaybookLoader,
        hybrid_search: PlaybookSearcher,
        llm_client: TemplateModel,
        *,
        reflector: WorkflowNode | None = None,
        curator: WorkflowNode | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        self.playbook_store = playbook_store
        self.hybrid_search = hybrid_search
        self.llm_client = llm_client
        self.prompt = prompt or load_prompt(PROMPT_NAME)
        self._learning = {
            name: node
            for name, node in (("reflect", reflector), ("curate", curator))
            if node is not None
        }

    def build(self) -> Workflow:
        """A workflow that can run any number of times."""
        nodes: dict[str, WorkflowNode] = {
            "load_playbook": self._load_playbook,
            "search": self._search,
            "generate": self._generate,
        }
        return Workflow(nodes | self._learning, after=tuple(self._learning))

    def _load_playbook(self, state: WorkflowState) -> StateUpdate | Awaitable[StateUpdate]:
        loaded = self.playbook_store.load(state.get("dataset", ""))
        return _state_update("playbook", loaded)

    def _search(self, state: WorkflowState) -> StateUpdate | Awaitable[StateUpdate]:
        query = SearchQuery.model_validate({"query_text": state.get("query", "")})
        found = self.hybrid_search.search(query, state.get("playbook") or Playbook())
        return _state_update("search_results", found)

    def _generate(self, state: WorkflowState) -> StateUpdate | Awaitable[StateUpdate]:
        variables = {
            "context": fence_text(format_results(state.get("search_results", [])), label="points"),
            "query": fence_text(state.get("query", ""), label="query"),
        }
        return _state_update(
            "llm_response", self.llm_client.invoke_with_template(self.prompt.text, variables)
        )


def _state_update(name: str, value: Any) -> StateUpdate | Awaitable[StateUpdate]:
    """The update of one field, awaitable if the value is."""
    if not inspect.isawaitable(value):
        return {name: value}

    async def wait() -> StateUpdate:
        return {name: await value}

    return wait()
