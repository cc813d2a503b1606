"""The reflection workflow as a compiled LangGraph graph (extra `hansei[langgraph]`), after
documents 1 and 2: load_playbook → search → generate → reflect → curate.

graph = build_reflection_graph(Hansei(), model)
graph.invoke({"query": "May I refund a pending order?", "dataset": "support"})["llm_response"]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NotRequired, TypedDict

from hansei._operations import Playbook
from hansei.client import Hansei
from hansei.errors import NotFoundError
from hansei.integrations.extras import needs_extra
from hansei.models import BulletEvaluation, BulletHit, Insight, Run
from hansei.params import SubmittedTrajectory

try:
    from langgraph.graph import END, START, StateGraph
except ModuleNotFoundError as error:
    raise needs_extra("langgraph", error) from None

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's types are partly generic without arguments.

PROMPT = "Context:\n{context}\n\nQuery: {query}\n\nAnswer:"
"""The template of document 2, section 10."""
CURATION_SECONDS = 300.0

Model = Callable[[str], Any]
"""A prompt → the answer, as a string or a LangChain message."""


class ReflectionState(TypedDict):
    """The state of the graph. `query` and `dataset` (the name of the playbook) are its input, with
    `ground_truth` and `test_report` if they are known.
    """

    query: str
    dataset: str
    ground_truth: NotRequired[str]
    test_report: NotRequired[str]
    playbook: Playbook | None
    search_results: list[BulletHit]
    retrieval_id: str | None
    llm_response: str
    trace_id: str
    insights: list[Insight]
    bullet_evaluations: list[BulletEvaluation]
    next_run_id: str | None
    curation_runs: list[Run]


def build_reflection_graph(
    client: Hansei,
    model: Any,
    *,
    project_id: str | None = None,
    top_k: int = 5,
    learns: bool = True,
    curation_timeout: float = CURATION_SECONDS,
) -> Any:
    """The compiled graph. `model` is a LangChain chat model or a function from prompt to answer.

    `curate` waits up to `curation_timeout` seconds until the service has curated the playbook.
    With `learns=False` the graph ends after `generate`, as in document 2. A node raises
    `HanseiError`.
    """
    nodes = ReflectionNodes(client, model, project_id, top_k, curation_timeout)
    names = ["load_playbook", "search", "generate"] + (["reflect", "curate"] if learns else [])
    graph = StateGraph(ReflectionState)
    for name in names:
        graph.add_node(name, getattr(nodes, name))
    for source, target in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(source, target)
    return graph.compile()


class ReflectionNodes:
    """The nodes. Each method takes the state and returns what it changes, so that other graphs can
    use them too.
    """

    def __init__(
        self,
        client: Hansei,
        model: Any,
        project_id: str | None,
        top_k: int,
        curation_timeout: float,
    ) -> None:
        self._client = client
        self._answer: Model = getattr(model, "invoke", model)
        self._project_id = project_id
        self._top_k = top_k
        self._wait = partial(client.runs.follow, timeout=curation_timeout)

    def load_playbook(self, state: ReflectionState) -> dict[str, Any]:
        """The playbook, or None if it does not exist yet."""
        try:
            loaded = self._client.playbooks.get(state["dataset"], project_id=self._project_id)
        except NotFoundError:
            return {"playbook": None}
        return {"playbook": loaded}

    def search(self, state: ReflectionState) -> dict[str, Any]:
        """The bullets that match the query, best first."""
        if state.get("playbook") is None:
            return {"search_results": [], "retrieval_id": None}
        found = self._client.playbooks.search(
            state["dataset"], state["query"], top_k=self._top_k, project_id=self._project_id
        )
        return {"search_results": found.results, "retrieval_id": found.retrieval_id}

    def generate(self, state: ReflectionState) -> dict[str, Any]:
        """The model's answer to the query with the bullets as context."""
        context = "\n".join(hit.bullet.content for hit in state["search_results"])
        answer = self._answer(PROMPT.format(context=context, query=state["query"]))
        content = getattr(answer, "text", answer)
        return {"llm_response": str(content)}

    def reflect(self, state: ReflectionState) -> dict[str, Any]:
        """Insights from the answer and a verdict on each bullet that the model saw."""
        trajectory: SubmittedTrajectory = {
            "query": state["query"],
            "generated_answer": state["llm_response"],
            "used_bullet_ids": [hit.bullet.id for hit in state["search_results"]],
            "dataset": state["dataset"],
        }
        result = self._client.trajectories.reflect(
            trajectory,
            ground_truth=state.get("ground_truth"),
            test_report=state.get("test_report"),
            playbook=state["dataset"],
            project_id=self._project_id,
            retrieval_id=state.get("retrieval_id"),
        )
        return {
            "trace_id": result.trace_id,
            "insights": result.insights,
            "bullet_evaluations": result.bullet_evaluations,
            "next_run_id": result.next_run_id,
        }

    def curate(self, state: ReflectionState) -> dict[str, Any]:
        """Waits until the service has applied the insights to the playbook, or proposed it."""
        run_id = state.get("next_run_id")
        return {"curation_runs": [] if run_id is None else list(self._wait(run_id))}
