"""The resources of `Hansei`.

Generated from `openapi.json` by `make client`; do not edit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from os import PathLike
from typing import Any, Literal, Unpack

from hansei import _flows, _operations, params
from hansei._flows import ImportedTrace
from hansei._ndjson import Source
from hansei._operations import AgentEvent, ExecutionState, Playbook, PointInTime
from hansei._request import (
    OMIT,
    Id,
    Omit,
    RequestOptions,
    api_path,
    check_options,
    get_request,
    list_request,
    read_request,
    whole_list_request,
    write_request,
)
from hansei._resource import Client, Page, Resource
from hansei.models import (
    AgentCalibration,
    AgentExecution,
    AgentRun,
    AgentRunState,
    AnalyticsAnswer,
    ApiKey,
    ApplyDeltasResponse,
    AuditEvent,
    Budget,
    BulletEffect,
    BulletFormat,
    BulletOrder,
    BulletReceipt,
    BulletVersion,
    Collection,
    CreateApiKeyResponse,
    CreateReflectionResponse,
    CreateTenantResponse,
    CreateWebhookResponse,
    CuratedLesson,
    DeliveryState,
    Document,
    Erasure,
    ErasureTarget,
    ErrorCategory,
    EvaluationReport,
    EvaluationReportDetails,
    Fusion,
    GenerateReflectionResponse,
    Health,
    Intervention,
    InterventionAction,
    KeyScope,
    MaintenanceSchedule,
    MaintenanceTaskName,
    Match,
    MatchRule,
    Memory,
    MemoryKind,
    MemoryLayer,
    MemoryLink,
    MemoryRevision,
    OutcomeType,
    PlaybookDiff,
    PlaybookFormat,
    PlaybookSummary,
    PlaybookVersion,
    Proposal,
    ProposalState,
    Provenance,
    QueryReflectionsResponse,
    Question,
    QuestionInfo,
    RankBy,
    Readiness,
    RechunkedCollection,
    RecordVerdictResponse,
    ReflectionKind,
    ReflectMode,
    ReflectOnTrajectoryResponse,
    ReflectOnTranscriptResponse,
    RenderPlaybookResponse,
    ReplacePlaybookResponse,
    RestorePlaybookResponse,
    RetentionPolicy,
    ReviewMode,
    Run,
    RunAccepted,
    RunState,
    RunWorkflowResponse,
    SearchBulletsResponse,
    SearchCollectionResponse,
    SearchMemoriesResponse,
    SettableStatus,
    StoredBullet,
    StoredMemory,
    SubmittingJudge,
    Tenant,
    Trace,
    TraceEvaluation,
    TraceEvent,
    TraceFormat,
    TraceReceipt,
    TraceState,
    TraceWithEvents,
    UpdatedTrace,
    Usage,
    UsageDimension,
    Verdict,
    VerdictTag,
    WebhookDelivery,
    WebhookEndpoint,
)


class AgentsResource(Resource):
    """`client.agents`."""

    @cached_property
    def calibration(self) -> AgentsCalibrationResource:
        return AgentsCalibrationResource(self._client)

    @cached_property
    def runs(self) -> AgentsRunsResource:
        return AgentsRunsResource(self._client)

    def execute_plan_generator(
        self,
        query: str,
        *,
        project_id: str | None = None,
        playbook: str | None = None,
        collections: Sequence[str] | None = None,
        plan: Mapping[str, Any] | None = None,
        interactive: bool | None = None,
        confirm_plan: bool | None = None,
        previous_run_id: Id | None = None,
    ) -> Generator[ExecutionState]:
        """Ask the agent and yield its state, each time with what has happened since the last
        one, for a live user interface (S3.24). Ends when the run has ended or waits for a
        person. The arguments are those of `client.agents.runs.create`.
        """
        return self._iterate(
            _flows.execute_plan_generator(
                query,
                project_id=project_id,
                playbook=playbook,
                collections=collections,
                plan=plan,
                interactive=interactive,
                confirm_plan=confirm_plan,
                previous_run_id=previous_run_id,
            )
        )


class AgentsCalibrationResource(Resource):
    """`client.agents.calibration`."""

    def get(
        self, *, project_id: str | None = None, **options: Unpack[RequestOptions]
    ) -> AgentCalibration:
        """Returns the thresholds of a project, and how well its confidence fits the feedback.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.agents.calibration.get()
        """
        check_options(options, self.get)
        return self._send(
            get_request(
                api_path("agents", "calibration"),
                AgentCalibration,
                params={"project_id": project_id},
            ),
            options,
        )

    def reset(self, *, project_id: str | None = None, **options: Unpack[RequestOptions]) -> None:
        """Restores the configured thresholds. Earlier feedback no longer counts.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.agents.calibration.reset()
        """
        check_options(options, self.reset)
        return self._send(
            write_request(
                "DELETE", api_path("agents", "calibration"), None, params={"project_id": project_id}
            ),
            options,
        )


class AgentsRunsResource(Resource):
    """`client.agents.runs`."""

    @cached_property
    def interventions(self) -> AgentsRunsInterventionsResource:
        return AgentsRunsInterventionsResource(self._client)

    def create(
        self,
        query: str,
        *,
        project_id: str | None = None,
        playbook: str | None = None,
        collections: Sequence[str] | None = None,
        plan: Mapping[str, Any] | None = None,
        interactive: bool | None = None,
        confirm_plan: bool | None = None,
        previous_run_id: Id | None = None,
        **options: Unpack[RequestOptions],
    ) -> AgentRun:
        """Queues a run of the agent: it plans, searches the collections, answers with sources,
        and asks a person if it is not sure.

        Follow it with `GET /api/v1/agents/runs/{agent_run_id}/events`. Without a model, the
        plan is search and answer, and the answer consists of sentences of the documents.

        Args:
            playbook: The playbook that the agent follows and that learns from the run.
            collections: Search these only, in this order. Default: all of the project.
            plan: A plan of your own (`steps` as in `AgentRun.plan`) instead of the planner's.
            interactive: False: a result of middle confidence does not stop the run. Default:
                GRACE_INTERVENTION_INTERACTIVE.
            confirm_plan: True: a person confirms the plan before it is carried out. Default:
                False.
            previous_run_id: The run that this question follows up on. It must be done; its
                question and answer, and those before it, are context.

        Example:
            client.agents.runs.create("Which orders are late?")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("agents", "runs"),
                AgentRun,
                {
                    "query": query,
                    "project_id": project_id,
                    "playbook": playbook,
                    "collections": collections,
                    "plan": plan,
                    "interactive": interactive,
                    "confirm_plan": confirm_plan,
                    "previous_run_id": previous_run_id,
                },
            ),
            options,
        )

    def list(
        self,
        *,
        state: AgentRunState | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[AgentRun]:
        """Lists agent runs, newest first, without their steps.

        Args:
            state: Only runs in this state.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.agents.runs.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("agents", "runs"),
                AgentRun,
                limit,
                params={"state": state, "project_id": project_id},
            ),
            options,
        )

    def get(self, agent_run_id: Id, **options: Unpack[RequestOptions]) -> AgentRun:
        """Returns a run with its steps, their confidence, and the open question.

        Example:
            client.agents.runs.get(run.id)
        """
        check_options(options, self.get)
        return self._send(get_request(api_path("agents", "runs", agent_run_id), AgentRun), options)

    def get_execution(self, agent_run_id: Id, **options: Unpack[RequestOptions]) -> AgentExecution:
        """Returns the plan, the results of its steps and the outcome, in the form in which the
        agent works with them.

        Example:
            client.agents.runs.get_execution(run.id)
        """
        check_options(options, self.get_execution)
        return self._send(
            get_request(api_path("agents", "runs", agent_run_id, "execution"), AgentExecution),
            options,
        )

    def follow(self, agent_run_id: Id, *, after: int = 0) -> Generator[AgentEvent]:
        """Yield the events of an agent run after this number, until it has ended or waits for a
        person. Each request ends with the next events, so a lost connection loses none.
        """
        return self._iterate(_flows.follow_agent_run(agent_run_id, after=after))

    def cancel(self, agent_run_id: Id, **options: Unpack[RequestOptions]) -> AgentRun:
        """Cancels a run. A worker that executes it stops within about a second. A run that has
        ended stays as it is.

        Example:
            client.agents.runs.cancel(run.id)
        """
        check_options(options, self.cancel)
        return self._send(
            write_request("POST", api_path("agents", "runs", agent_run_id, "cancel"), AgentRun),
            options,
        )

    def record_feedback(
        self,
        agent_run_id: Id,
        feedback: Literal["right", "wrong"],
        *,
        answer: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AgentRun:
        """Records whether the answer was right. The trace of the run gets this outcome and is
        learned from; thresholds and calibration of the project are adjusted.

        Args:
            answer: The right answer, if it is known.

        Example:
            client.agents.runs.record_feedback(run.id, "right")
        """
        check_options(options, self.record_feedback)
        return self._send(
            write_request(
                "POST",
                api_path("agents", "runs", agent_run_id, "feedback"),
                AgentRun,
                {"feedback": feedback, "answer": answer},
            ),
            options,
        )


class AgentsRunsInterventionsResource(Resource):
    """`client.agents.runs.interventions`."""

    def list(self, agent_run_id: Id, **options: Unpack[RequestOptions]) -> Page[Intervention]:
        """Lists the questions of a run to a person, oldest first.

        Example:
            for item in client.agents.runs.interventions.list(run.id):
                ...
        """
        check_options(options, self.list)
        return self._list(
            whole_list_request(
                "GET", api_path("agents", "runs", agent_run_id, "interventions"), Intervention
            ),
            options,
        )

    def answer(
        self,
        agent_run_id: Id,
        intervention_id: Id,
        action: InterventionAction,
        *,
        input: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AgentRun:
        """Answers the open question of a run, which then goes on. Answers 409 if it is answered.

        Args:
            input: The text that it needs.

        Example:
            client.agents.runs.interventions.answer(run.id, question.id, "accept")
        """
        check_options(options, self.answer)
        return self._send(
            write_request(
                "POST",
                api_path(
                    "agents", "runs", agent_run_id, "interventions", intervention_id, "answer"
                ),
                AgentRun,
                {"action": action, "input": input},
            ),
            options,
        )


class AnalyticsResource(Resource):
    """`client.analytics`."""

    def list_questions(self, **options: Unpack[RequestOptions]) -> Page[QuestionInfo]:
        """Lists the questions that `GET /api/v1/analytics/{question}` answers.

        Example:
            for item in client.analytics.list_questions():
                ...
        """
        check_options(options, self.list_questions)
        return self._list(whole_list_request("GET", api_path("analytics"), QuestionInfo), options)

    def get(
        self,
        question: Question,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        playbook: str | None = None,
        section: str | None = None,
        key: str | None = None,
        limit: int | None = None,
        sql: bool | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AnalyticsAnswer:
        """Answers a question from the views of the schema `analytics`.

        A day is a day in UTC, and a question by day covers each day that the period touches.
        In CSV, a text that starts with `=`, `+`, `-` or `@` gets a leading apostrophe, so
        that a spreadsheet does not execute it.

        Args:
            since: Start, included. Default: midnight (UTC) 30 days before `until`; for
                `improvement` the Monday of the week 11 weeks before.
            until: End, excluded. Default: now.
            playbook: Default: all playbooks of the project.
            section: Name of a section, in its spelling.
            key: Key of one bullet.
            limit: Maximum number of rows. Default: 1000.
            sql: Return the statement too. Only for JSON. Default: False.
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.analytics.get("movers")
        """
        check_options(options, self.get)
        return self._send(
            get_request(
                api_path("analytics", question),
                AnalyticsAnswer,
                params={
                    "since": since,
                    "until": until,
                    "playbook": playbook,
                    "section": section,
                    "key": key,
                    "limit": limit,
                    "sql": sql,
                    "project_id": project_id,
                },
            ),
            options,
        )

    def get_csv(
        self,
        question: Question,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        playbook: str | None = None,
        section: str | None = None,
        key: str | None = None,
        project_id: str | None = None,
        limit: int = 10000,
        **options: Unpack[RequestOptions],
    ) -> str:
        """Answer a question as CSV with a header.

        A text that a spreadsheet would execute as a formula starts with an apostrophe. The
        arguments are those of `get`.
        """
        check_options(options, self.get_csv)
        return self._send(
            _operations.get_analytics_csv(
                question,
                since=since,
                until=until,
                playbook=playbook,
                section=section,
                key=key,
                project_id=project_id,
                limit=limit,
            ),
            options,
        )


class ApiKeysResource(Resource):
    """`client.api_keys`."""

    def list(self, *, limit: int | None = None, **options: Unpack[RequestOptions]) -> Page[ApiKey]:
        """Lists the API keys of the tenant without their secrets, the oldest first.

        An admin key bound to a project sees the keys of that project.

        Args:
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.api_keys.list():
                ...
        """
        check_options(options, self.list)
        return self._list(list_request(api_path("keys"), ApiKey, limit), options)

    def create(
        self,
        name: str | None = None,
        *,
        scopes: Sequence[KeyScope] | None = None,
        project_id: str | None = None,
        expires_at: str | datetime | None = None,
        **options: Unpack[RequestOptions],
    ) -> CreateApiKeyResponse:
        """Creates an API key of the tenant. The text of the key is in this response only.

        Args:
            name: What the key is for.
            scopes: `write` includes `read`; `admin` includes both. Default: `write`.
            project_id: Bind the key to one project. Null: all projects of the tenant.
            expires_at: Null: the key does not expire.

        Example:
            client.api_keys.create("support")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("keys"),
                CreateApiKeyResponse,
                {
                    "name": name,
                    "scopes": scopes,
                    "project_id": project_id,
                    "expires_at": expires_at,
                },
            ),
            options,
        )

    def revoke(self, key_id: Id, **options: Unpack[RequestOptions]) -> None:
        """Revokes an API key, immediately in this process and within five seconds in others.

        Example:
            client.api_keys.revoke(key.id)
        """
        check_options(options, self.revoke)
        return self._send(write_request("DELETE", api_path("keys", key_id), None), options)


class AuditLogResource(Resource):
    """`client.audit_log`."""

    def list(
        self,
        *,
        action: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[AuditEvent]:
        """Lists administrative acts, newest first: who created or revoked a key, set budgets,
        decided on a proposal or erased data.

        Entries cannot be changed or deleted through the service. Answers 403 for a key bound
        to one project.

        Args:
            action: Only this action, such as `key.created`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.audit_log.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(api_path("audit-log"), AuditEvent, limit, params={"action": action}),
            options,
        )


class BudgetsResource(Resource):
    """`client.budgets`."""

    def list(self, **options: Unpack[RequestOptions]) -> Page[Budget]:
        """Lists the limits on model calls, with what is spent, reserved and left.

        A key bound to one project sees the budgets of this project only.

        Example:
            for item in client.budgets.list():
                ...
        """
        check_options(options, self.list)
        return self._list(whole_list_request("GET", api_path("budgets"), Budget), options)

    def replace(
        self,
        items: Sequence[params.BudgetLimit | Mapping[str, Any]],
        **options: Unpack[RequestOptions],
    ) -> Page[Budget]:
        """Replaces all budgets of the tenant. An empty list removes every limit.

        A model call that could cost more than what is left is refused with 402, or replaced
        by the rules engine, as `when_spent` says. Answers 403 for a key bound to one project.

        Example:
            for item in client.budgets.replace([]):
                ...
        """
        check_options(options, self.replace)
        return self._list(
            whole_list_request("PUT", api_path("budgets"), Budget, body={"items": items}), options
        )


class CollectionsResource(Resource):
    """`client.collections`."""

    @cached_property
    def documents(self) -> CollectionsDocumentsResource:
        return CollectionsDocumentsResource(self._client)

    def create(
        self,
        name: str,
        *,
        project_id: str | None = None,
        description: str | None = None,
        chunk_tokens: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Collection:
        """Creates an empty collection. Answers 409 if the project has one of this name.

        Args:
            description: What it contains. A planner chooses by it.
            chunk_tokens: Size of a chunk in estimated tokens: a token is about four letters of
                English or one character of Japanese. Default: 256.

        Example:
            client.collections.create("support")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("collections"),
                Collection,
                {
                    "name": name,
                    "project_id": project_id,
                    "description": description,
                    "chunk_tokens": chunk_tokens,
                },
            ),
            options,
        )

    def list(
        self,
        *,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Collection]:
        """Lists the collections of a project with the numbers of their documents and chunks.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.collections.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("collections"), Collection, limit, params={"project_id": project_id}
            ),
            options,
        )

    def get(
        self, collection: str, *, project_id: str | None = None, **options: Unpack[RequestOptions]
    ) -> Collection:
        """Returns a collection with the numbers of its documents and chunks.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.collections.get("handbook")
        """
        check_options(options, self.get)
        return self._send(
            get_request(
                api_path("collections", collection), Collection, params={"project_id": project_id}
            ),
            options,
        )

    def delete(
        self, collection: str, *, project_id: str | None = None, **options: Unpack[RequestOptions]
    ) -> None:
        """Deletes a collection. A worker removes its chunks from searches.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.collections.delete("handbook")
        """
        check_options(options, self.delete)
        return self._send(
            write_request(
                "DELETE",
                api_path("collections", collection),
                None,
                params={"project_id": project_id},
            ),
            options,
        )

    def rechunk(
        self,
        collection: str,
        *,
        project_id: str | None = None,
        chunk_tokens: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> RechunkedCollection:
        """Splits all documents into chunks of another size. Searches find the earlier chunks of
        a document until its new ones are stored.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            chunk_tokens: Size of a chunk in estimated tokens: a token is about four letters of
                English or one character of Japanese. Default: 256.

        Example:
            client.collections.rechunk("handbook")
        """
        check_options(options, self.rechunk)
        return self._send(
            write_request(
                "POST",
                api_path("collections", collection, "rechunk"),
                RechunkedCollection,
                {"chunk_tokens": chunk_tokens},
                params={"project_id": project_id},
            ),
            options,
        )

    def search(
        self,
        collection: str,
        query_text: str,
        *,
        project_id: str | None = None,
        top_k: int | None = None,
        min_score: float | None = None,
        min_match: Match | None = None,
        **options: Unpack[RequestOptions],
    ) -> SearchCollectionResponse:
        """Hybrid full-text and vector search over the chunks of a collection, best first.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            top_k: Maximum number of results. Default: 5.
            min_score: Leave out chunks whose cosine similarity is lower. Default: 0.0.
            min_match: `strong`: only chunks that fit the query well. Default: none.

        Example:
            client.collections.search("handbook", "refund of a pending order")
        """
        check_options(options, self.search)
        return self._send(
            read_request(
                api_path("collections", collection, "search"),
                SearchCollectionResponse,
                {
                    "query_text": query_text,
                    "top_k": top_k,
                    "min_score": min_score,
                    "min_match": min_match,
                },
                params={"project_id": project_id},
            ),
            options,
        )


class CollectionsDocumentsResource(Resource):
    """`client.collections.documents`."""

    def add(
        self,
        name: str,
        document: str | PathLike[str] | bytes,
        *,
        source: str | None = None,
        title: str | None = None,
        media_type: str | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Document:
        """Add a document to a collection. Wait for it with `client.runs.wait(document.run_id)`.

        A document with the same `source` is replaced. The same document again changes
        nothing, so a lost response can be retried. Raises `OSError` if the file cannot be
        read.

        Args:
            name: The collection.
            document: The path of a file, or its bytes.
            source: Identifies the document. Default: the path.
            title: Default: from the document.
            media_type: Default: from the suffix of the path.
            project_id: Default: the project of the key, else `default`.
        """
        check_options(options, self.add)
        return self._send(
            _operations.upload_document(
                name,
                document,
                source=source,
                title=title,
                media_type=media_type,
                project_id=project_id,
            ),
            options,
        )

    def list(
        self,
        collection: str,
        *,
        state: Literal["queued", "running", "done", "failed", "deleting"] | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Document]:
        """Lists the documents of a collection, newest first.

        Args:
            state: Only documents in this state.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.collections.documents.list("handbook"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("collections", collection, "documents"),
                Document,
                limit,
                params={"state": state, "project_id": project_id},
            ),
            options,
        )

    def get(
        self,
        collection: str,
        document_id: Id,
        *,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Document:
        """Returns a document with its state and progress.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.collections.documents.get("handbook", document.id)
        """
        check_options(options, self.get)
        return self._send(
            get_request(
                api_path("collections", collection, "documents", document_id),
                Document,
                params={"project_id": project_id},
            ),
            options,
        )

    def delete(
        self,
        collection: str,
        document_id: Id,
        *,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Deletes a document. A worker removes its chunks from searches.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.collections.documents.delete("handbook", document.id)
        """
        check_options(options, self.delete)
        return self._send(
            write_request(
                "DELETE",
                api_path("collections", collection, "documents", document_id),
                None,
                params={"project_id": project_id},
            ),
            options,
        )


class ErasuresResource(Resource):
    """`client.erasures`."""

    def create(
        self,
        target_kind: ErasureTarget,
        target_id: str,
        *,
        reason: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Erasure:
        """Removes the content for good, in a run: also from history, versions, stored results
        and search. IDs, times, costs and the names of tags stay (except those of an erased
        tenant): put nothing about a person into a tag. Backups of the database are not
        changed.

        A trace is erased with all memories that were learned from it, and a bullet with its
        last source. Only an operator key erases a tenant.

        Args:
            target_id: ID of the memory or trace, the subject of the person, or the name of the
                tenant (with an operator key, any tenant).
            reason: Part of the audit log.

        Example:
            client.erasures.create("trace", trace.id)
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("erasures"),
                Erasure,
                {"target_kind": target_kind, "target_id": target_id, "reason": reason},
            ),
            options,
        )

    def list(self, *, limit: int | None = None, **options: Unpack[RequestOptions]) -> Page[Erasure]:
        """Lists the erasures of the tenant, newest first.

        Args:
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.erasures.list():
                ...
        """
        check_options(options, self.list)
        return self._list(list_request(api_path("erasures"), Erasure, limit), options)

    def get(self, erasure_id: Id, **options: Unpack[RequestOptions]) -> Erasure:
        """Returns an erasure with what it erased.

        Example:
            client.erasures.get(erasure.id)
        """
        check_options(options, self.get)
        return self._send(get_request(api_path("erasures", erasure_id), Erasure), options)


class EvaluationReportsResource(Resource):
    """`client.evaluation_reports`."""

    def create(
        self,
        report: Mapping[str, Any],
        *,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> EvaluationReport:
        """Stores a report of `hansei eval`, which the console shows. A report of the same
        evaluation is replaced. The project is `default`, that of the key, or one that has
        traces or memories. The body has at most 1 MB.

        Args:
            report: The content of `report.json`.

        Example:
            client.evaluation_reports.create()
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("evaluation-reports"),
                EvaluationReport,
                {"report": report, "project_id": project_id},
            ),
            options,
        )

    def list(
        self,
        *,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[EvaluationReport]:
        """Lists the reports of a project, the newest evaluation first.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.evaluation_reports.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("evaluation-reports"),
                EvaluationReport,
                limit,
                params={"project_id": project_id},
            ),
            options,
        )

    def get(self, report_id: Id, **options: Unpack[RequestOptions]) -> EvaluationReportDetails:
        """Returns a report with its content.

        Example:
            client.evaluation_reports.get()
        """
        check_options(options, self.get)
        return self._send(
            get_request(api_path("evaluation-reports", report_id), EvaluationReportDetails), options
        )

    def delete(self, report_id: Id, **options: Unpack[RequestOptions]) -> None:
        """Deletes a report for good.

        Example:
            client.evaluation_reports.delete()
        """
        check_options(options, self.delete)
        return self._send(
            write_request("DELETE", api_path("evaluation-reports", report_id), None), options
        )


class HealthResource(Resource):
    """`client.health`."""

    def get(self, **options: Unpack[RequestOptions]) -> Health:
        """Answers as long as the process runs. Does not check the database.

        Example:
            client.health.get()
        """
        check_options(options, self.get)
        return self._send(get_request("/health", Health), options)

    def ready(self, **options: Unpack[RequestOptions]) -> Readiness:
        """Check that the service can work: its database, queue, embedder and model."""
        check_options(options, self.ready)
        return self._send(_operations.check_readiness(), options)


class MaintenanceResource(Resource):
    """`client.maintenance`."""

    def list(self, **options: Unpack[RequestOptions]) -> Page[MaintenanceSchedule]:
        """Lists the maintenance tasks with their period and latest start.

        Example:
            for item in client.maintenance.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            whole_list_request("GET", api_path("maintenance"), MaintenanceSchedule), options
        )

    def start(
        self,
        task: MaintenanceTaskName,
        *,
        apply: bool | None = None,
        trace_ids: Sequence[Id] | None = None,
        session_ids: Sequence[str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Run:
        """Queues a run of the task now, also between its periods. The result is in the run.

        `dreaming` reads the recent episodes, or the chosen traces and sessions: at least 2
        and at most 100 closed traces. Answers 409 for it with `REFLECTIVE_MEMORY_MODE=lite`.

        Args:
            apply: For `pruning`: archive the memories of the latest report. Else: only report.
                Default: False.
            trace_ids: For `dreaming`: read these traces instead of the recent episodes.
            session_ids: For `dreaming`: read the traces of these sessions.

        Example:
            client.maintenance.start("decay")
        """
        check_options(options, self.start)
        return self._send(
            write_request(
                "POST",
                api_path("maintenance", task),
                Run,
                {"apply": apply, "trace_ids": trace_ids, "session_ids": session_ids},
            ),
            options,
        )


class MemoriesResource(Resource):
    """`client.memories`."""

    @cached_property
    def links(self) -> MemoriesLinksResource:
        return MemoriesLinksResource(self._client)

    @cached_property
    def revisions(self) -> MemoriesRevisionsResource:
        return MemoriesRevisionsResource(self._client)

    def create(
        self,
        content: str,
        *,
        project_id: str | None = None,
        kind: MemoryKind | None = None,
        title: str | None = None,
        when_to_use: str | None = None,
        keywords: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        confidence: float | None = None,
        source: str | None = None,
        session_id: str | None = None,
        trace_id: Id | None = None,
        metadata: Mapping[str, Any] | None = None,
        reason: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> StoredMemory:
        """Stores a memory that the client wrote. No model is called.

        Args:
            kind: Default: reflection.
            when_to_use: The condition under which the memory applies.
            keywords: Extra words that searches find.
            importance: How much the memory matters, 0 to 1. Default: 0.5.
            confidence: How certain its author is, 0 to 1.
            source: Where the memory comes from. Default: api.
            trace_id: The trace that it was learned from.
            reason: Why it is stored; part of the revision.

        Example:
            client.memories.create("Look up an order before changing it.")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("memories"),
                StoredMemory,
                {
                    "content": content,
                    "project_id": project_id,
                    "kind": kind,
                    "title": title,
                    "when_to_use": when_to_use,
                    "keywords": keywords,
                    "tags": tags,
                    "importance": importance,
                    "confidence": confidence,
                    "source": source,
                    "session_id": session_id,
                    "trace_id": trace_id,
                    "metadata": metadata,
                    "reason": reason,
                },
            ),
            options,
        )

    def list(
        self,
        *,
        kind: Sequence[MemoryKind] | None = None,
        layer: Sequence[MemoryLayer] | None = None,
        status: SettableStatus | None = None,
        tag: Sequence[str] | None = None,
        trace_id: Id | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Memory]:
        """Lists the memories of a project, newest first. Repeat `kind`, `layer` or `tag` for
        several values.

        Args:
            kind: Any of these kinds.
            layer: Any of these layers.
            status: Only memories with this status. Default: active.
            tag: Any of these tags.
            trace_id: Memories learned from this trace.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.memories.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("memories"),
                Memory,
                limit,
                params={
                    "kind": kind,
                    "layer": layer,
                    "status": status,
                    "tag": tag,
                    "trace_id": trace_id,
                    "project_id": project_id,
                },
            ),
            options,
        )

    def get(self, memory_id: Id, **options: Unpack[RequestOptions]) -> Memory:
        """Returns a memory that is not deleted.

        Example:
            client.memories.get(memory.id)
        """
        check_options(options, self.get)
        return self._send(get_request(api_path("memories", memory_id), Memory), options)

    def update(
        self,
        memory_id: Id,
        *,
        content: str | Omit = OMIT,
        title: str | None | Omit = OMIT,
        when_to_use: str | None | Omit = OMIT,
        keywords: Sequence[str] | Omit = OMIT,
        tags: Sequence[str] | Omit = OMIT,
        importance: float | Omit = OMIT,
        status: SettableStatus | Omit = OMIT,
        pinned: bool | Omit = OMIT,
        reason: str | None | Omit = OMIT,
        **options: Unpack[RequestOptions],
    ) -> StoredMemory:
        """Changes the fields that are sent; each change is a revision.

        Searches find only active memories. Answers 409 for a bullet, which its playbook
        changes.

        Example:
            client.memories.update(memory.id)
        """
        check_options(options, self.update)
        return self._send(
            write_request(
                "PATCH",
                api_path("memories", memory_id),
                StoredMemory,
                {
                    "content": content,
                    "title": title,
                    "when_to_use": when_to_use,
                    "keywords": keywords,
                    "tags": tags,
                    "importance": importance,
                    "status": status,
                    "pinned": pinned,
                    "reason": reason,
                },
            ),
            options,
        )

    def delete(
        self, memory_id: Id, *, reason: str | None = None, **options: Unpack[RequestOptions]
    ) -> None:
        """Deletes a memory: reads and searches no longer find it. Its revisions stay.

        Answers 409 for a bullet, which its playbook deletes.

        Args:
            reason: Stored with the revision.

        Example:
            client.memories.delete(memory.id)
        """
        check_options(options, self.delete)
        return self._send(
            write_request(
                "DELETE", api_path("memories", memory_id), None, params={"reason": reason}
            ),
            options,
        )

    def search(
        self,
        query_text: str,
        *,
        project_id: str | None = None,
        top_k: int | None = None,
        kinds: Sequence[MemoryKind] | None = None,
        section_filter: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        error_categories: Sequence[str] | None = None,
        status: SettableStatus | None = None,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        fusion: Fusion | None = None,
        alpha: float | None = None,
        rank_by: RankBy | None = None,
        min_match: Match | None = None,
        explain: bool | None = None,
        layers: Sequence[MemoryLayer] | None = None,
        playbook: str | None = None,
        related: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> SearchMemoriesResponse:
        """Hybrid full-text and vector search over all layers and kinds of a project, best first.

        An empty `query_text` orders by usefulness. By default a score means the same for
        every query: near 0 for a memory that has nothing to do with it. `explain` adds the
        cosine similarity and the BM25 score. Answers 404 for an unknown `playbook`.

        Args:
            query_text: Empty: order by usefulness.
            top_k: Maximum number of results. Default: 10.
            section_filter: Names or slugs of sections, in any case. An unknown section has no
                results.
            status: Memories that are not active have no index; searching them is slower.
                Default: active.
            min_confidence: Lower limit of `confidence_score`. Default: 0.0.
            min_importance: Lower limit of `importance`. Default: 0.0.
            fusion: How the vector and full-text scores are combined. Default: anchored.
            alpha: Weight of the vector score, 0 to 1. Default: that of the fusion.
            rank_by: `usefulness` orders by combined_score × (0.5 + usefulness). Default: score.
            min_match: Only results that fit as well. Default: none.
            explain: Add the parts of each score to the results. Default: False.
            related: Add, in `related`, at most `top_k` memories that mention the same tools,
                errors, files or libraries as the best results, or are in a cluster with them.
                Default: False.

        Example:
            client.memories.search("refund of a pending order")
        """
        check_options(options, self.search)
        return self._send(
            read_request(
                api_path("search"),
                SearchMemoriesResponse,
                {
                    "query_text": query_text,
                    "project_id": project_id,
                    "top_k": top_k,
                    "kinds": kinds,
                    "section_filter": section_filter,
                    "tags": tags,
                    "error_categories": error_categories,
                    "status": status,
                    "min_confidence": min_confidence,
                    "min_importance": min_importance,
                    "since": since,
                    "until": until,
                    "fusion": fusion,
                    "alpha": alpha,
                    "rank_by": rank_by,
                    "min_match": min_match,
                    "explain": explain,
                    "layers": layers,
                    "playbook": playbook,
                    "related": related,
                },
            ),
            options,
        )


class MemoriesLinksResource(Resource):
    """`client.memories.links`."""

    def list(
        self, memory_id: Id, *, limit: int | None = None, **options: Unpack[RequestOptions]
    ) -> Page[MemoryLink]:
        """Lists what a memory was derived from, what it supports and what supports it, oldest
        first.

        Args:
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.memories.links.list(memory.id):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(api_path("memories", memory_id, "links"), MemoryLink, limit), options
        )


class MemoriesRevisionsResource(Resource):
    """`client.memories.revisions`."""

    def list(
        self, memory_id: Id, *, limit: int | None = None, **options: Unpack[RequestOptions]
    ) -> Page[MemoryRevision]:
        """Lists the states of a memory after each change, oldest first. Works for deleted
        memories.

        Args:
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.memories.revisions.list(memory.id):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(api_path("memories", memory_id, "revisions"), MemoryRevision, limit),
            options,
        )


class PlaybooksResource(Resource):
    """`client.playbooks`."""

    @cached_property
    def bullets(self) -> PlaybooksBulletsResource:
        return PlaybooksBulletsResource(self._client)

    @cached_property
    def effects(self) -> PlaybooksEffectsResource:
        return PlaybooksEffectsResource(self._client)

    @cached_property
    def lessons(self) -> PlaybooksLessonsResource:
        return PlaybooksLessonsResource(self._client)

    @cached_property
    def proposals(self) -> PlaybooksProposalsResource:
        return PlaybooksProposalsResource(self._client)

    @cached_property
    def versions(self) -> PlaybooksVersionsResource:
        return PlaybooksVersionsResource(self._client)

    def list(
        self,
        *,
        deleted: bool | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[PlaybookSummary]:
        """Lists the playbooks of a project by name, without their bullets.

        Args:
            deleted: List the deleted playbooks, which can be restored, instead. Default: False.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks"),
                PlaybookSummary,
                limit,
                params={"deleted": deleted, "project_id": project_id},
            ),
            options,
        )

    def get(
        self,
        name: str,
        *,
        as_of: PointInTime | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Playbook:
        """Get a playbook with its bullets, by default the current version.

        Args:
            name: The playbook.
            as_of: A version number or a time. Counters are always the current ones.
            project_id: Default: the project of the key, else `default`.
        """
        check_options(options, self.get)
        return self._send(
            _operations.read_playbook(name, as_of=as_of, project_id=project_id), options
        )

    def export(
        self,
        name: str,
        format: PlaybookFormat = "bullets",
        *,
        as_of: PointInTime | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> str:
        """Get a playbook as text. `client.playbooks.replace` reads all formats.

        Args:
            name: The playbook.
            format: `ace` is lines of text, the others are JSON.
            as_of: A version number or a time. Default: now.
            project_id: Default: the project of the key, else `default`.
        """
        check_options(options, self.export)
        return self._send(
            _operations.export_playbook(name, format, as_of=as_of, project_id=project_id), options
        )

    def replace(
        self,
        name: str,
        content: str | bytes | Playbook | Mapping[str, Any],
        *,
        dry_run: bool = False,
        if_match: int | None = None,
        reason: str | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> ReplacePlaybookResponse:
        """Create a playbook or replace its content.

        Bullets that the content does not have are deleted; `client.playbooks.restore` undoes
        this.

        Args:
            name: The playbook.
            content: Text in any format of `export`, or the result of `get`.
            dry_run: Write nothing; `diff` shows the changes.
            if_match: The version that the playbook must be at; 0: it must not exist.
            reason: Why, for the history.
            project_id: Default: the project of the key, else `default`.
        """
        check_options(options, self.replace)
        return self._send(
            _operations.write_playbook(
                name,
                content,
                dry_run=dry_run,
                if_match=if_match,
                reason=reason,
                project_id=project_id,
            ),
            options,
        )

    def update(
        self,
        playbook: str,
        *,
        if_match: int | None = None,
        project_id: str | None | Omit = OMIT,
        sections: Sequence[params.SectionDefinition | Mapping[str, Any]] | Omit = OMIT,
        review_mode: ReviewMode | Omit = OMIT,
        token_budget: int | None | Omit = OMIT,
        max_bullets: int | None | Omit = OMIT,
        holdout_share: float | Omit = OMIT,
        focus: str | None | Omit = OMIT,
        reason: str | None | Omit = OMIT,
        **options: Unpack[RequestOptions],
    ) -> PlaybookSummary:
        """Changes sections, limits and the review mode, as a new version unless nothing changes.
        Creates the playbook if it does not exist.

        Only an admin key may change the review mode.

        Args:
            if_match: The version that the playbook must be at.
            project_id: Default: the project of the key, else `default`.
            holdout_share: Default: 0.0.
            focus: What the playbook should collect, in one sentence. The models that reflect
                and curate read it.

        Example:
            client.playbooks.update("support")
        """
        check_options(options, self.update)
        return self._send(
            write_request(
                "PATCH",
                api_path("playbooks", playbook),
                PlaybookSummary,
                {
                    "project_id": project_id,
                    "sections": sections,
                    "review_mode": review_mode,
                    "token_budget": token_budget,
                    "max_bullets": max_bullets,
                    "holdout_share": holdout_share,
                    "focus": focus,
                    "reason": reason,
                },
                if_match=if_match,
            ),
            options,
        )

    def delete(
        self,
        playbook: str,
        *,
        reason: str | None = None,
        project_id: str | None = None,
        if_match: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Deletes a playbook with its bullets. `restore` restores both.

        Args:
            reason: Why; part of the version's record.
            project_id: Project. Default: the project of the key, else `default`.
            if_match: The version that the playbook must be at.

        Example:
            client.playbooks.delete("support")
        """
        check_options(options, self.delete)
        return self._send(
            write_request(
                "DELETE",
                api_path("playbooks", playbook),
                None,
                params={"reason": reason, "project_id": project_id},
                if_match=if_match,
            ),
            options,
        )

    def render(
        self,
        playbook: str,
        query_text: str | None = None,
        *,
        project_id: str | None = None,
        token_budget: int | None = None,
        top_k: int | None = None,
        sections: Sequence[str] | None = None,
        min_match: Match | None = None,
        format: BulletFormat | None = None,
        holdout_share: float | None = None,
        session_id: str | None = None,
        include_trials: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> RenderPlaybookResponse:
        """Returns a prompt block: bullets and the request to cite them by key.

        Takes all bullets if they fit the token budget, else the best ones for the query;
        without a query, the most useful ones. Bullets that are proven harmful are left out.
        The text is empty if no bullet fits, and if the playbook does not exist yet. The
        `ETag` is a hash of the text.

        Args:
            project_id: Default: the project of the key, else `default`.
            token_budget: Maximum size of the text in estimated tokens. Default: the playbook's.
            top_k: Maximum number of bullets. Default: 100.
            sections: Names or slugs of sections. Default: all.
            min_match: For a playbook that does not fit the token budget, or has more than
                `top_k` bullets. `strong`: only bullets that fit the query well. Default: none.
            format: `ace`: lines `[id] helpful=… harmful=… :: text`. Default: prompt.
            holdout_share: Probability that one random bullet is left out. Default: the
                playbook's. 0: the whole block is not withheld either.
            session_id: Session of the agent. If HANSEI_ADVICE_HOLDOUT_SHARE withholds the
                block, it does so in all renders of a session.
            include_trials: False leaves out trials: bullets that begin with `Try:`, which
                nobody has shown to work. Later runs confirm or replace them, so leave them out
                only where nothing is learned from the runs, or a mistake is expensive. Default:
                True.

        Example:
            client.playbooks.render("support", "refund of a pending order")
        """
        check_options(options, self.render)
        return self._send(
            read_request(
                api_path("playbooks", playbook, "render"),
                RenderPlaybookResponse,
                {
                    "query_text": query_text,
                    "project_id": project_id,
                    "token_budget": token_budget,
                    "top_k": top_k,
                    "sections": sections,
                    "min_match": min_match,
                    "format": format,
                    "holdout_share": holdout_share,
                    "session_id": session_id,
                    "include_trials": include_trials,
                },
            ),
            options,
        )

    def search(
        self,
        playbook: str,
        query_text: str,
        *,
        project_id: str | None = None,
        top_k: int | None = None,
        kinds: Sequence[MemoryKind] | None = None,
        section_filter: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        error_categories: Sequence[str] | None = None,
        status: SettableStatus | None = None,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        fusion: Fusion | None = None,
        alpha: float | None = None,
        rank_by: RankBy | None = None,
        min_match: Match | None = None,
        explain: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> SearchBulletsResponse:
        """Returns the bullets for a query, best first. An empty query orders by usefulness.

        By default a score means the same for every query: near 0 for a bullet that has
        nothing to do with it. `match` says how well a bullet fits. Send `retrieval_id` with
        the trace of the agent, so that Hansei knows which bullets it had. `min_confidence` is
        0.3 unless given.

        Args:
            query_text: Empty: order by usefulness.
            top_k: Maximum number of results. Default: 10.
            section_filter: Names or slugs of sections, in any case. An unknown section has no
                results.
            status: Memories that are not active have no index; searching them is slower.
                Default: active.
            min_confidence: Lower limit of `confidence_score`. Default: 0.3.
            min_importance: Lower limit of `importance`. Default: 0.0.
            fusion: How the vector and full-text scores are combined. Default: anchored.
            alpha: Weight of the vector score, 0 to 1. Default: that of the fusion.
            rank_by: `usefulness` orders by combined_score × (0.5 + usefulness). Default: score.
            min_match: Only results that fit as well. Default: none.
            explain: Add the parts of each score to the results. Default: False.

        Example:
            client.playbooks.search("support", "refund of a pending order")
        """
        check_options(options, self.search)
        return self._send(
            read_request(
                api_path("playbooks", playbook, "search"),
                SearchBulletsResponse,
                {
                    "query_text": query_text,
                    "project_id": project_id,
                    "top_k": top_k,
                    "kinds": kinds,
                    "section_filter": section_filter,
                    "tags": tags,
                    "error_categories": error_categories,
                    "status": status,
                    "min_confidence": min_confidence,
                    "min_importance": min_importance,
                    "since": since,
                    "until": until,
                    "fusion": fusion,
                    "alpha": alpha,
                    "rank_by": rank_by,
                    "min_match": min_match,
                    "explain": explain,
                },
            ),
            options,
        )

    def apply_deltas(
        self,
        playbook: str,
        deltas: Sequence[params.Delta | Mapping[str, Any]],
        *,
        dry_run: bool | None = None,
        if_match: int | None = None,
        project_id: str | None = None,
        reason: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> ApplyDeltasResponse:
        """Applies deltas (ADD, UPDATE, MERGE, DELETE, KEEP) as one version, all or none.

        An invalid delta answers 422 with its index. A delta that is refused, such as a change
        of a pinned bullet or a duplicate, has the action `rejected` in `results`; the others
        are applied. If the playbook requires a review, the deltas become a proposal (202).

        Args:
            dry_run: Write nothing; the response shows what would change. Default: False.
            if_match: The version that the playbook must be at.
            project_id: Default: the project of the key, else `default`.

        Example:
            client.playbooks.apply_deltas("support", [{"type": "ADD", "section": "OTHERS", "content": "Ask for the order number."}])
        """
        check_options(options, self.apply_deltas)
        return self._send(
            write_request(
                "POST",
                api_path("playbooks", playbook, "deltas"),
                ApplyDeltasResponse,
                {"deltas": deltas, "project_id": project_id, "reason": reason},
                params={"dry_run": dry_run},
                if_match=if_match,
            ),
            options,
        )

    def diff(
        self,
        name: str,
        from_version: PointInTime,
        to_version: PointInTime | None = None,
        *,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> PlaybookDiff:
        """Compare two versions of a playbook.

        Args:
            name: The playbook.
            from_version: A version number or a time.
            to_version: Default: the current version.
            project_id: Default: the project of the key, else `default`.
        """
        check_options(options, self.diff)
        return self._send(
            _operations.compare_versions(name, from_version, to_version, project_id=project_id),
            options,
        )

    def restore(
        self,
        name: str,
        to: PointInTime,
        *,
        dry_run: bool = False,
        if_match: int | None = None,
        reason: str | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> RestorePlaybookResponse:
        """Restore the content of a version as a new version, also after a deletion.

        Args:
            name: The playbook.
            to: A version number or a time.
            dry_run: Write nothing; `diff` shows the changes.
            if_match: The version that the playbook must be at.
            reason: Why, for the history.
            project_id: Default: the project of the key, else `default`.
        """
        check_options(options, self.restore)
        return self._send(
            _operations.restore_version(
                name, to, dry_run=dry_run, if_match=if_match, reason=reason, project_id=project_id
            ),
            options,
        )

    def consolidate(
        self, playbook: str, *, project_id: str | None = None, **options: Unpack[RequestOptions]
    ) -> Run:
        """Queues a run that merges duplicates. With a model, the run also merges, generalizes,
        splits and deletes near bullets.

        The changes are one version, which `restore` undoes. Pinned bullets do not change.
        With `review_mode` = `required`, the changes become a proposal.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.playbooks.consolidate("support")
        """
        check_options(options, self.consolidate)
        return self._send(
            write_request(
                "POST",
                api_path("playbooks", playbook, "consolidate"),
                Run,
                params={"project_id": project_id},
            ),
            options,
        )


class PlaybooksBulletsResource(Resource):
    """`client.playbooks.bullets`."""

    @cached_property
    def verdicts(self) -> PlaybooksBulletsVerdictsResource:
        return PlaybooksBulletsVerdictsResource(self._client)

    @cached_property
    def versions(self) -> PlaybooksBulletsVersionsResource:
        return PlaybooksBulletsVersionsResource(self._client)

    def list(
        self,
        playbook: str,
        *,
        section: str | None = None,
        status: SettableStatus | None = None,
        tag: str | None = None,
        sort: BulletOrder | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[StoredBullet]:
        """Lists the bullets of a playbook, by key unless `sort` is given.

        Args:
            section: Name in any case, or slug.
            status: Default: all bullets that are not deleted.
            sort: `usefulness` lists the least useful first, `-usefulness` the most. Default:
                key.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.bullets.list("support"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "bullets"),
                StoredBullet,
                limit,
                params={
                    "section": section,
                    "status": status,
                    "tag": tag,
                    "sort": sort,
                    "project_id": project_id,
                },
            ),
            options,
        )

    def get(
        self,
        playbook: str,
        key: str,
        *,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> StoredBullet:
        """Returns a bullet.

        A key that was merged into another answers 404; `merged_into` of the error names that
        key.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.playbooks.bullets.get("support", "mis-00001")
        """
        check_options(options, self.get)
        return self._send(
            get_request(
                api_path("playbooks", playbook, "bullets", key),
                StoredBullet,
                params={"project_id": project_id},
            ),
            options,
        )

    def create(
        self,
        playbook: str,
        content: str,
        *,
        if_match: int | None = None,
        project_id: str | None = None,
        section: str | None = None,
        when_to_use: str | None = None,
        title: str | Literal[""] | None = None,
        keywords: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        reason: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> BulletReceipt:
        """Creates a bullet. The service assigns its key. Creates the playbook if it does not
        exist.

        Answers 409 if another bullet has the same content; `key` of the error names it.

        Args:
            if_match: The version that the playbook must be at.
            project_id: Default: the project of the key, else `default`.
            section: Name or slug of a section. Default: OTHERS.
            when_to_use: The condition under which the bullet applies.
            pinned: True: learning may not change the bullet. Default: False.

        Example:
            client.playbooks.bullets.create("support", "Look up an order before changing it.")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("playbooks", playbook, "bullets"),
                BulletReceipt,
                {
                    "content": content,
                    "project_id": project_id,
                    "section": section,
                    "when_to_use": when_to_use,
                    "title": title,
                    "keywords": keywords,
                    "tags": tags,
                    "pinned": pinned,
                    "reason": reason,
                },
                if_match=if_match,
            ),
            options,
        )

    def update(
        self,
        playbook: str,
        key: str,
        *,
        if_match: int | None = None,
        project_id: str | None | Omit = OMIT,
        content: str | Omit = OMIT,
        section: str | Omit = OMIT,
        when_to_use: str | Omit = OMIT,
        title: str | Literal[""] | Omit = OMIT,
        keywords: Sequence[str] | Omit = OMIT,
        tags: Sequence[str] | Omit = OMIT,
        status: SettableStatus | Omit = OMIT,
        pinned: bool | Omit = OMIT,
        reason: str | None | Omit = OMIT,
        **options: Unpack[RequestOptions],
    ) -> BulletReceipt:
        """Changes the fields that are sent, also of a pinned bullet.

        Searches and renders use only active bullets. Answers 409 if another bullet has the
        same content.

        Args:
            if_match: The version that the playbook must be at.
            project_id: Default: the project of the key, else `default`.

        Example:
            client.playbooks.bullets.update("support", "mis-00001")
        """
        check_options(options, self.update)
        return self._send(
            write_request(
                "PATCH",
                api_path("playbooks", playbook, "bullets", key),
                BulletReceipt,
                {
                    "project_id": project_id,
                    "content": content,
                    "section": section,
                    "when_to_use": when_to_use,
                    "title": title,
                    "keywords": keywords,
                    "tags": tags,
                    "status": status,
                    "pinned": pinned,
                    "reason": reason,
                },
                if_match=if_match,
            ),
            options,
        )

    def delete(
        self,
        playbook: str,
        key: str,
        *,
        reason: str | None = None,
        project_id: str | None = None,
        if_match: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Deletes a bullet. Its history stays, and its key is not used again.

        Args:
            reason: Why; part of the version's record.
            project_id: Project. Default: the project of the key, else `default`.
            if_match: The version that the playbook must be at.

        Example:
            client.playbooks.bullets.delete("support", "mis-00001")
        """
        check_options(options, self.delete)
        return self._send(
            write_request(
                "DELETE",
                api_path("playbooks", playbook, "bullets", key),
                None,
                params={"reason": reason, "project_id": project_id},
                if_match=if_match,
            ),
            options,
        )

    def get_provenance(
        self,
        playbook: str,
        key: str,
        *,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Provenance:
        """Returns the lessons that a bullet was made of, their traces and the source events.

        Args:
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            client.playbooks.bullets.get_provenance("support", "mis-00001")
        """
        check_options(options, self.get_provenance)
        return self._send(
            get_request(
                api_path("playbooks", playbook, "bullets", key, "provenance"),
                Provenance,
                params={"project_id": project_id},
            ),
            options,
        )


class PlaybooksBulletsVerdictsResource(Resource):
    """`client.playbooks.bullets.verdicts`."""

    def create(
        self,
        playbook: str,
        key: str,
        tag: VerdictTag,
        *,
        project_id: str | None = None,
        judge: SubmittingJudge | None = None,
        reason: str | None = None,
        trace_id: Id | None = None,
        retrieval_id: Id | None = None,
        **options: Unpack[RequestOptions],
    ) -> RecordVerdictResponse:
        """Records whether a bullet was helpful, harmful or neutral, in one trace or in general.

        An admin key records the verdict of a person (`human`), which overrules every other
        judge of the trace. Other keys record that of an agent (`llm`). A second verdict by
        the same API key on the same bullet and trace replaces the first (200). A verdict
        makes no new version. For a key that was merged, it goes to the bullet that remains.

        Args:
            project_id: Default: the project of the key, else `default`.
            judge: Default: `human` for an admin key, else `llm`. `human` needs an admin key.
            trace_id: The trace in which the bullet was used.
            retrieval_id: The search or render that gave the bullet.

        Example:
            client.playbooks.bullets.verdicts.create("support", "mis-00001", "helpful")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("playbooks", playbook, "bullets", key, "verdicts"),
                RecordVerdictResponse,
                {
                    "tag": tag,
                    "project_id": project_id,
                    "judge": judge,
                    "reason": reason,
                    "trace_id": trace_id,
                    "retrieval_id": retrieval_id,
                },
            ),
            options,
        )

    def list(
        self,
        playbook: str,
        key: str,
        *,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Verdict]:
        """Lists the verdicts on a bullet, newest first.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.bullets.verdicts.list("support", "mis-00001"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "bullets", key, "verdicts"),
                Verdict,
                limit,
                params={"project_id": project_id},
            ),
            options,
        )


class PlaybooksBulletsVersionsResource(Resource):
    """`client.playbooks.bullets.versions`."""

    def list(
        self,
        playbook: str,
        key: str,
        *,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[BulletVersion]:
        """Lists what changed in a bullet, when, by whom and why, oldest first.

        Works for bullets that were deleted or merged into another, and in deleted playbooks.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.bullets.versions.list("support", "mis-00001"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "bullets", key, "versions"),
                BulletVersion,
                limit,
                params={"project_id": project_id},
            ),
            options,
        )


class PlaybooksEffectsResource(Resource):
    """`client.playbooks.effects`."""

    def list(
        self,
        playbook: str,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[BulletEffect]:
        """Lists how agent runs ended with and without each bullet, by key.

        The question `effects` of analytics has the same numbers. `randomized` needs a
        playbook with a holdout share: the share of renders that leave out one random bullet.
        Deleted bullets are included; runs with a merged bullet count for the bullet that
        replaced it.

        Args:
            since: Start, included. Default: the oldest retrieval.
            until: End, excluded. Default: now.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.effects.list("support"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "effects"),
                BulletEffect,
                limit,
                params={"since": since, "until": until, "project_id": project_id},
            ),
            options,
        )


class PlaybooksLessonsResource(Resource):
    """`client.playbooks.lessons`."""

    def list(
        self,
        playbook: str,
        *,
        decision: Literal[
            "added", "updated", "merged", "already_known", "waiting", "proposed", "rejected"
        ]
        | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[CuratedLesson]:
        """Lists the lessons that the curator decided on, with the reason, the last decision
        first.

        `decision=rejected` lists the lessons that did not become a bullet.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.lessons.list("support"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "lessons"),
                CuratedLesson,
                limit,
                params={"decision": decision, "project_id": project_id},
            ),
            options,
        )


class PlaybooksProposalsResource(Resource):
    """`client.playbooks.proposals`."""

    def list(
        self,
        playbook: str,
        *,
        state: ProposalState | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Proposal]:
        """Lists the proposals of a playbook in one state, newest first.

        Args:
            state: Only proposals in this state. Default: waiting.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.proposals.list("support"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "proposals"),
                Proposal,
                limit,
                params={"state": state, "project_id": project_id},
            ),
            options,
        )

    def accept(
        self,
        playbook: str,
        proposal_id: Id,
        *,
        dry_run: bool | None = None,
        project_id: str | None = None,
        reason: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> ApplyDeltasResponse:
        """Applies the deltas of a proposal as one version. Needs an admin key.

        If the deltas no longer fit the playbook, answers 422 and the proposal stays open.
        Answers 409 if it was decided before.

        Args:
            dry_run: Write nothing; the response shows what would change. Default: False.
            project_id: Default: the project of the key, else `default`.

        Example:
            client.playbooks.proposals.accept("support", proposal.id)
        """
        check_options(options, self.accept)
        return self._send(
            write_request(
                "POST",
                api_path("playbooks", playbook, "proposals", proposal_id, "accept"),
                ApplyDeltasResponse,
                {"project_id": project_id, "reason": reason},
                params={"dry_run": dry_run},
            ),
            options,
        )

    def reject(
        self,
        playbook: str,
        proposal_id: Id,
        *,
        project_id: str | None = None,
        reason: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Rejects a proposal; its deltas are not applied. Needs an admin key.

        Args:
            project_id: Default: the project of the key, else `default`.

        Example:
            client.playbooks.proposals.reject("support", proposal.id)
        """
        check_options(options, self.reject)
        return self._send(
            write_request(
                "POST",
                api_path("playbooks", playbook, "proposals", proposal_id, "reject"),
                None,
                {"project_id": project_id, "reason": reason},
            ),
            options,
        )


class PlaybooksVersionsResource(Resource):
    """`client.playbooks.versions`."""

    def list(
        self,
        playbook: str,
        *,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[PlaybookVersion]:
        """Lists the changes of a playbook with author and reason, newest first. Works for
        deleted playbooks.

        Args:
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.playbooks.versions.list("support"):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("playbooks", playbook, "versions"),
                PlaybookVersion,
                limit,
                params={"project_id": project_id},
            ),
            options,
        )


class ReflectionsResource(Resource):
    """`client.reflections`."""

    def generate(
        self,
        events: Sequence[params.Event | Mapping[str, Any]],
        outcome: OutcomeType,
        *,
        project_id: str | None = None,
        playbook: str | None = None,
        session_id: str | None = None,
        error: str | params.ErrorInfo | Mapping[str, Any] | None = None,
        task_description: str | None = None,
        task_goal: str | None = None,
        related_memory_ids: Sequence[Id] | None = None,
        task_key: str | None = None,
        external_id: str | None = None,
        tools: Sequence[params.ToolDefinition | Mapping[str, Any] | str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> GenerateReflectionResponse:
        """Stores the events as a trace and generates a reflection: what happened and why, and a
        strategy for the next time.

        The trace and the run are stored first, so that no input is lost. If there is nothing
        to learn, `reflection_id` is null and `result` is `nothing_found`.

        Args:
            tools: The tools that the agent could call. Without them, the names come from the
                recorded calls, and whether a call changes anything is unknown.

        Example:
            client.reflections.generate([{"event_type": "user_message", "content": "Where is order 17?"}], "failure")
        """
        check_options(options, self.generate)
        return self._send(
            write_request(
                "POST",
                api_path("reflections", "generate"),
                GenerateReflectionResponse,
                {
                    "events": events,
                    "outcome": outcome,
                    "project_id": project_id,
                    "playbook": playbook,
                    "session_id": session_id,
                    "error": error,
                    "task_description": task_description,
                    "task_goal": task_goal,
                    "related_memory_ids": related_memory_ids,
                    "task_key": task_key,
                    "external_id": external_id,
                    "tools": tools,
                },
            ),
            options,
        )

    def enqueue(
        self,
        events: Sequence[params.Event | Mapping[str, Any]],
        outcome: OutcomeType,
        *,
        project_id: str | None = None,
        playbook: str | None = None,
        session_id: str | None = None,
        error: str | params.ErrorInfo | Mapping[str, Any] | None = None,
        task_description: str | None = None,
        task_goal: str | None = None,
        related_memory_ids: Sequence[Id] | None = None,
        task_key: str | None = None,
        external_id: str | None = None,
        tools: Sequence[params.ToolDefinition | Mapping[str, Any] | str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> RunAccepted:
        """Stores the events as a trace and generates a reflection: what happened and why, and a
        strategy for the next time.

        The trace and the run are stored first, so that no input is lost. If there is nothing
        to learn, `reflection_id` is null and `result` is `nothing_found`.

        Args:
            tools: The tools that the agent could call. Without them, the names come from the
                recorded calls, and whether a call changes anything is unknown.

        Example:
            client.reflections.enqueue([{"event_type": "user_message", "content": "Where is order 17?"}], "failure")
        """
        check_options(options, self.enqueue)
        return self._send(
            write_request(
                "POST",
                api_path("reflections", "generate"),
                RunAccepted,
                {
                    "events": events,
                    "outcome": outcome,
                    "project_id": project_id,
                    "playbook": playbook,
                    "session_id": session_id,
                    "error": error,
                    "task_description": task_description,
                    "task_goal": task_goal,
                    "related_memory_ids": related_memory_ids,
                    "task_key": task_key,
                    "external_id": external_id,
                    "tools": tools,
                },
                is_enqueued=True,
            ),
            options,
        )

    def create(
        self,
        reflection_text: str,
        *,
        project_id: str | None = None,
        session_id: str | None = None,
        strategy_text: str | None = None,
        importance: float | None = None,
        confidence: float | None = None,
        tags: Sequence[str] | None = None,
        error_category: ErrorCategory | None = None,
        trace_id: Id | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> CreateReflectionResponse:
        """Stores a reflection, and its strategy if there is one. No model is called.

        Args:
            importance: Default: 0.5.
            confidence: Default: 0.5.

        Example:
            client.reflections.create("The order was looked up by the wrong ID.")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("reflections"),
                CreateReflectionResponse,
                {
                    "reflection_text": reflection_text,
                    "project_id": project_id,
                    "session_id": session_id,
                    "strategy_text": strategy_text,
                    "importance": importance,
                    "confidence": confidence,
                    "tags": tags,
                    "error_category": error_category,
                    "trace_id": trace_id,
                    "metadata": metadata,
                },
            ),
            options,
        )

    def query(
        self,
        query_text: str | None = None,
        *,
        project_id: str | None = None,
        k: int | None = None,
        min_importance: float | None = None,
        tags: Sequence[str] | None = None,
        kinds: Sequence[ReflectionKind] | None = None,
        error_categories: Sequence[ErrorCategory] | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        **options: Unpack[RequestOptions],
    ) -> QueryReflectionsResponse:
        """Returns reflections, strategies and insights for a task, best first.

        `min_importance` is 0.5 unless given. Without `query_text`, orders by usefulness and
        importance.

        Args:
            k: Maximum number of results. `top_k` is accepted too. Default: 5.
            min_importance: Lower limit of `importance`. Default: 0.5.

        Example:
            client.reflections.query("refund of a pending order")
        """
        check_options(options, self.query)
        return self._send(
            read_request(
                api_path("reflections", "query"),
                QueryReflectionsResponse,
                {
                    "query_text": query_text,
                    "project_id": project_id,
                    "k": k,
                    "min_importance": min_importance,
                    "tags": tags,
                    "kinds": kinds,
                    "error_categories": error_categories,
                    "since": since,
                    "until": until,
                },
            ),
            options,
        )


class RetentionResource(Resource):
    """`client.retention`."""

    def list(self, **options: Unpack[RequestOptions]) -> Page[RetentionPolicy]:
        """Lists how many days the data of each project is stored.

        Example:
            for item in client.retention.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            whole_list_request("GET", api_path("retention"), RetentionPolicy), options
        )

    def replace(
        self,
        items: Sequence[params.RetentionPolicyRequest | Mapping[str, Any]],
        **options: Unpack[RequestOptions],
    ) -> Page[RetentionPolicy]:
        """Replaces all retention policies of the tenant. Once a day, the task `retention`
        deletes what is older.

        Example:
            for item in client.retention.replace([]):
                ...
        """
        check_options(options, self.replace)
        return self._list(
            whole_list_request(
                "PUT", api_path("retention"), RetentionPolicy, body={"items": items}
            ),
            options,
        )


class RunsResource(Resource):
    """`client.runs`."""

    def list(
        self,
        *,
        state: Sequence[RunState] | None = None,
        kind: str | None = None,
        trace_id: Id | None = None,
        parent_id: Id | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Run]:
        """Lists runs, newest first.

        `state=dead` lists the runs that failed on every attempt, with the cause in `error`.

        Args:
            state: States to include; repeat the parameter for several. Default: all.
            kind: Kind of work, such as `reflect`.
            trace_id: Runs about this trace.
            parent_id: The first run of a chain: lists the runs that follow it.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.runs.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("runs"),
                Run,
                limit,
                params={
                    "state": state,
                    "kind": kind,
                    "trace_id": trace_id,
                    "parent_id": parent_id,
                    "project_id": project_id,
                },
            ),
            options,
        )

    def get(self, run_id: Id, **options: Unpack[RequestOptions]) -> Run:
        """Returns a run with its state, result and error.

        Example:
            client.runs.get(run.id)
        """
        check_options(options, self.get)
        return self._send(get_request(api_path("runs", run_id), Run), options)

    def retry(self, run_id: Id, **options: Unpack[RequestOptions]) -> Run:
        """Queues a dead or failed run again, with all its attempts.

        In a chain, the earlier steps are not repeated; the later steps follow as usual.
        Answers 409 in any other state.

        Example:
            client.runs.retry(run.id)
        """
        check_options(options, self.retry)
        return self._send(write_request("POST", api_path("runs", run_id, "retry"), Run), options)

    def wait(self, run_id: Id, *, timeout: float | None = None) -> Run:
        """Wait until a run is done, failed or dead, and return it.

        Raises `APITimeoutError` after `timeout` seconds.
        """
        return self._run(_flows.wait_for_run(run_id, timeout=timeout))

    def follow(self, run_id: Id, *, timeout: float | None = None) -> Generator[Run]:
        """Yield a run and each run that follows it (evaluate, reflect, curate, apply) as it
        finishes.

        Raises `APITimeoutError` if one run takes longer than `timeout` seconds.
        """
        return self._iterate(_flows.follow_run(run_id, timeout=timeout))

    def poll_unfinished(
        self, run_ids: Iterable[str], *, project_id: str | None = None
    ) -> Generator[set[str]]:
        """Poll many runs and yield, after each poll, those whose chain is unfinished.

        Ends when none is left. It reads the list of unfinished runs instead of single runs;
        `project_id` shortens that list.
        """
        return self._iterate(_flows.poll_unfinished_runs(run_ids, project_id=project_id))

    def collect_finished(
        self, run_ids: Iterable[str], *, project_id: str | None = None
    ) -> Generator[Run]:
        """Yield many finished runs and the runs that followed them, in no particular order.

        Recent runs come from the list, others are fetched one by one. It waits for unfinished
        runs.
        """
        return self._iterate(_flows.collect_finished_runs(run_ids, project_id=project_id))


class TenantsResource(Resource):
    """`client.tenants`."""

    def list(self, **options: Unpack[RequestOptions]) -> Page[Tenant]:
        """Lists the tenant of the API key.

        Example:
            for item in client.tenants.list():
                ...
        """
        check_options(options, self.list)
        return self._list(whole_list_request("GET", api_path("tenants"), Tenant), options)

    def create(self, name: str, **options: Unpack[RequestOptions]) -> CreateTenantResponse:
        """Creates a tenant and its first admin key.

        Needs an operator key, which `hansei key create --scope operator` makes. The key of
        the new tenant is in this response only. The name of an erased tenant cannot be used
        again.

        Args:
            name: A UUID, or a slug (letters, digits, `.`, `_`, `-`) that gives the ID.

        Example:
            client.tenants.create("support")
        """
        check_options(options, self.create)
        return self._send(
            write_request("POST", api_path("tenants"), CreateTenantResponse, {"name": name}),
            options,
        )

    def suspend(self, tenant: str, **options: Unpack[RequestOptions]) -> Tenant:
        """Stops a tenant: its keys answer 401 within five seconds, its runs wait. Its data
        stays.

        `tenant` is the name or ID of the tenant. Needs an operator key.

        Example:
            client.tenants.suspend("acme")
        """
        check_options(options, self.suspend)
        return self._send(
            write_request("POST", api_path("tenants", tenant, "suspend"), Tenant), options
        )

    def resume(self, tenant: str, **options: Unpack[RequestOptions]) -> Tenant:
        """Lets a suspended tenant work again. Its waiting runs start within a minute.

        Example:
            client.tenants.resume("acme")
        """
        check_options(options, self.resume)
        return self._send(
            write_request("POST", api_path("tenants", tenant, "resume"), Tenant), options
        )

    def export(self, **options: Unpack[RequestOptions]) -> str:
        """Streams all rows of the tenant as NDJSON, table by table: `{"table": …, "row": {…}}`.

        The last line is `{"table": null, "counts": {…}}`; without it, the export is not
        complete. Vectors, the search index and secrets of API keys are left out. Rows that
        are written during the export may be missing.

        Example:
            client.tenants.export()
        """
        check_options(options, self.export)
        return self._send(get_request(api_path("export"), str), options)


class TracesResource(Resource):
    """`client.traces`."""

    @cached_property
    def evaluations(self) -> TracesEvaluationsResource:
        return TracesEvaluationsResource(self._client)

    @cached_property
    def events(self) -> TracesEventsResource:
        return TracesEventsResource(self._client)

    def create(
        self,
        *,
        reflect: ReflectMode | None = None,
        ground_truth: Any = None,
        match: MatchRule | None = None,
        project_id: str | None = None,
        external_id: str | None = None,
        task_key: str | None = None,
        playbook: str | None = None,
        parent_id: Id | None = None,
        session_id: str | None = None,
        task_description: str | None = None,
        task_goal: str | None = None,
        outcome: OutcomeType | None = None,
        state: TraceState | None = None,
        error: str | params.ErrorInfo | Mapping[str, Any] | None = None,
        query: str | None = None,
        generated_answer: str | None = None,
        reasoning_steps: Sequence[str] | None = None,
        test_report: str | None = None,
        used_bullet_keys: Sequence[str] | None = None,
        retrieval_id: Id | None = None,
        related_memory_ids: Sequence[Id] | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: Sequence[params.ToolDefinition | Mapping[str, Any] | str] | None = None,
        events: Sequence[params.Event | Mapping[str, Any]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> TraceReceipt:
        """Stores a trace and queues a reflection on it (`reflect`).

        A trace with a known `external_id` and the same content answers 200 with `duplicate:
        true`; with other content, 409. Send many traces as `application/x-ndjson`, one per
        line: the response is then a `CreateTracesResponse` with one item per line.

        Args:
            reflect: Whether to reflect on the trace. `auto`: on every outcome but success; on
                success too with `REFLECTIVE_MEMORY_MODE=full` or after a failed attempt at the
                task. Default: auto.
            ground_truth: What is correct: an answer, a list of accepted answers, or `{answer,
                actions, outputs}`. `match` is stored in it.
            match: How to compare the run with `ground_truth`. `exact`: the answer is equal,
                apart from Unicode form (NFKC), case, white space and punctuation at its end.
                `contains`: it contains the expected text, in the same form and not inside a
                word. `number`: it states the number in digits, in any notation, rounded to the
                expected decimals, with the same or no unit. `calls`: all `actions` were called
                with these arguments. Without `match`, an answer of another form is undecided.
            external_id: Your ID of the trace, unique in the project. Makes sending it again
                safe.
            task_key: Traces with the same key are attempts at one task and are compared.
            playbook: The playbook that learns from this trace.
            parent_id: The trace of the agent that started this one.
            session_id: Groups traces of one session.
            outcome: Null if it is not known yet.
            state: Events can be appended to an open trace until it is closed. Default: closed.
            query: What the agent was asked.
            generated_answer: The final answer of the agent.
            test_report: JUnit XML of tests, which decides the outcome. Other output is quoted.
            used_bullet_keys: Keys of the bullets that the agent used.
            retrieval_id: The search or render that gave the agent its bullets.
            language: Language of the texts, such as `en`.
            tools: The tools that the agent could call. Without them, the names come from the
                recorded calls, and whether a call changes anything is unknown.

        Example:
            client.traces.create()
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("traces"),
                TraceReceipt,
                {
                    "ground_truth": ground_truth,
                    "match": match,
                    "project_id": project_id,
                    "external_id": external_id,
                    "task_key": task_key,
                    "playbook": playbook,
                    "parent_id": parent_id,
                    "session_id": session_id,
                    "task_description": task_description,
                    "task_goal": task_goal,
                    "outcome": outcome,
                    "state": state,
                    "error": error,
                    "query": query,
                    "generated_answer": generated_answer,
                    "reasoning_steps": reasoning_steps,
                    "test_report": test_report,
                    "used_bullet_keys": used_bullet_keys,
                    "retrieval_id": retrieval_id,
                    "related_memory_ids": related_memory_ids,
                    "language": language,
                    "metadata": metadata,
                    "tools": tools,
                    "events": events,
                },
                params={"reflect": reflect},
            ),
            options,
        )

    def create_many(
        self,
        source: Source,
        *,
        reflect: ReflectMode = "auto",
        project_id: str | None = None,
        playbook: str | None = None,
        format: TraceFormat | None = None,
        outcome_from: str | None = None,
    ) -> Generator[ImportedTrace]:
        """Store many traces and yield one receipt for each, in order.

        `source` is an iterable of dicts, an open file, or the path of a JSON or JSONL file of
        any size. The client sends 100 traces at a time. A rejected trace has an `error` in
        its receipt and does not affect the others. If the queue is full, the client retries
        for about one minute. `project_id` and `playbook` override the fields of the traces.
        `format` is that of the records in `source`, if they are no traces of Hansei; a record
        may then have several receipts. `outcome_from` names the score of a record that is its
        outcome.
        """
        return self._iterate(
            _flows.create_traces(
                source,
                reflect=reflect,
                project_id=project_id,
                playbook=playbook,
                format=format,
                outcome_from=outcome_from,
            )
        )

    def list(
        self,
        *,
        outcome: OutcomeType | None = None,
        state: TraceState | None = None,
        task_key: str | None = None,
        playbook: str | None = None,
        external_id: str | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Trace]:
        """Lists the traces of a project without their events, newest first.

        Args:
            task_key: Attempts at this task.
            playbook: Traces that name this playbook.
            external_id: The trace with this ID of yours.
            project_id: Project. Default: the project of the key, else `default`.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.traces.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("traces"),
                Trace,
                limit,
                params={
                    "outcome": outcome,
                    "state": state,
                    "task_key": task_key,
                    "playbook": playbook,
                    "external_id": external_id,
                    "project_id": project_id,
                },
            ),
            options,
        )

    def get(self, trace_id: Id, **options: Unpack[RequestOptions]) -> TraceWithEvents:
        """Returns a trace with its evidence and its first 200 events, or fewer if they are
        larger than 1 MB.

        `GET /api/v1/traces/{trace_id}/events` with `next_cursor` lists the following events.

        Example:
            client.traces.get(trace.id)
        """
        check_options(options, self.get)
        return self._send(get_request(api_path("traces", trace_id), TraceWithEvents), options)

    def delete(
        self, trace_id: Id, *, reason: str | None = None, **options: Unpack[RequestOptions]
    ) -> None:
        """Deletes a trace for good, with its events, evaluations and episode, and what its runs
        stored.

        The lessons learned from it stay. `POST /api/v1/erasures` erases them too.

        Args:
            reason: Stored with the tombstone.

        Example:
            client.traces.delete(trace.id)
        """
        check_options(options, self.delete)
        return self._send(
            write_request("DELETE", api_path("traces", trace_id), None, params={"reason": reason}),
            options,
        )

    def record_outcome(
        self,
        trace_id: Id,
        outcome: OutcomeType,
        *,
        ground_truth: Any = None,
        match: MatchRule | None = None,
        error: str | params.ErrorInfo | Mapping[str, Any] | None = None,
        test_report: str | None = None,
        reflect: ReflectMode | None = None,
        **options: Unpack[RequestOptions],
    ) -> TraceReceipt:
        """Records the outcome of an agent run, or evidence of it, that became known later.

        A closed trace is then reflected on. Recording the same outcome again changes nothing;
        another outcome answers 409.

        Args:
            ground_truth: What is correct: an answer, a list of accepted answers, or `{answer,
                actions, outputs}`. `match` is stored in it.
            match: How to compare the run with `ground_truth`. `exact`: the answer is equal,
                apart from Unicode form (NFKC), case, white space and punctuation at its end.
                `contains`: it contains the expected text, in the same form and not inside a
                word. `number`: it states the number in digits, in any notation, rounded to the
                expected decimals, with the same or no unit. `calls`: all `actions` were called
                with these arguments. Without `match`, an answer of another form is undecided.
            reflect: Default: auto.

        Example:
            client.traces.record_outcome(trace.id, "failure")
        """
        check_options(options, self.record_outcome)
        return self._send(
            write_request(
                "POST",
                api_path("traces", trace_id, "outcome"),
                TraceReceipt,
                {
                    "outcome": outcome,
                    "ground_truth": ground_truth,
                    "match": match,
                    "error": error,
                    "test_report": test_report,
                    "reflect": reflect,
                },
            ),
            options,
        )

    def close(
        self,
        trace_id: Id,
        outcome: OutcomeType | None = None,
        *,
        error: str | params.ErrorInfo | Mapping[str, Any] | None = None,
        reflect: ReflectMode | None = None,
        **options: Unpack[RequestOptions],
    ) -> TraceReceipt:
        """Closes an open trace, which is then reflected on.

        Answers 409 if the trace is closed or already has another outcome.

        Args:
            reflect: Default: auto.

        Example:
            client.traces.close(trace.id, "failure")
        """
        check_options(options, self.close)
        return self._send(
            write_request(
                "POST",
                api_path("traces", trace_id, "close"),
                TraceReceipt,
                {"outcome": outcome, "error": error, "reflect": reflect},
            ),
            options,
        )


class TracesEvaluationsResource(Resource):
    """`client.traces.evaluations`."""

    def list(self, trace_id: Id, **options: Unpack[RequestOptions]) -> Page[TraceEvaluation]:
        """Lists the score of each evaluator and criterion, with reasons.

        A criterion without evidence in the trace has no score. The list is empty until the
        trace is evaluated.

        Example:
            for item in client.traces.evaluations.list(trace.id):
                ...
        """
        check_options(options, self.list)
        return self._list(
            whole_list_request("GET", api_path("traces", trace_id, "evaluations"), TraceEvaluation),
            options,
        )


class TracesEventsResource(Resource):
    """`client.traces.events`."""

    def list(
        self, trace_id: Id, *, limit: int | None = None, **options: Unpack[RequestOptions]
    ) -> Page[TraceEvent]:
        """Lists the events of a trace in order. A page has at most 1 MB of them, but at least
        one.

        Args:
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.traces.events.list(trace.id):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(api_path("traces", trace_id, "events"), TraceEvent, limit), options
        )

    def append(
        self,
        trace_id: Id,
        events: Sequence[params.Event | Mapping[str, Any]],
        *,
        tools: Sequence[params.ToolDefinition | Mapping[str, Any] | str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> UpdatedTrace:
        """Appends events to an open trace, in the order of the list. Answers 409 for a closed
        trace.

        Args:
            tools: The tools that the agent could call. Without them, the names come from the
                recorded calls, and whether a call changes anything is unknown.

        Example:
            client.traces.events.append(trace.id, [{"event_type": "user_message", "content": "Where is order 17?"}])
        """
        check_options(options, self.append)
        return self._send(
            write_request(
                "POST",
                api_path("traces", trace_id, "events"),
                UpdatedTrace,
                {"events": events, "tools": tools},
            ),
            options,
        )


class TrajectoriesResource(Resource):
    """`client.trajectories`."""

    def reflect(
        self,
        trajectory: params.SubmittedTrajectory | Mapping[str, Any],
        *,
        project_id: str | None = None,
        ground_truth: str | None = None,
        test_report: str | None = None,
        playbook: str | None = None,
        max_iterations: int | None = None,
        session_id: str | None = None,
        task_key: str | None = None,
        external_id: str | None = None,
        retrieval_id: Id | None = None,
        **options: Unpack[RequestOptions],
    ) -> ReflectOnTrajectoryResponse:
        """Returns insights about how an agent came to its answer, and a verdict on each bullet
        it used.

        The trace and the run are stored first. The same trajectory sent again gets the first
        result. If the model fails, the result is empty and the failed run has the cause.

        Args:
            ground_truth: The correct answer; empty if unknown.
            test_report: JUnit XML of tests, which decides the outcome. Other output is quoted.
            playbook: Default: `dataset` of the trajectory. `dataset` is accepted too.
            max_iterations: Accepted and not used: the service analyzes once. Default: 1.

        Example:
            client.trajectories.reflect(trajectory)
        """
        check_options(options, self.reflect)
        return self._send(
            write_request(
                "POST",
                api_path("trajectories", "reflect"),
                ReflectOnTrajectoryResponse,
                {
                    "trajectory": trajectory,
                    "project_id": project_id,
                    "ground_truth": ground_truth,
                    "test_report": test_report,
                    "playbook": playbook,
                    "max_iterations": max_iterations,
                    "session_id": session_id,
                    "task_key": task_key,
                    "external_id": external_id,
                    "retrieval_id": retrieval_id,
                },
            ),
            options,
        )

    def enqueue(
        self,
        trajectory: params.SubmittedTrajectory | Mapping[str, Any],
        *,
        project_id: str | None = None,
        ground_truth: str | None = None,
        test_report: str | None = None,
        playbook: str | None = None,
        max_iterations: int | None = None,
        session_id: str | None = None,
        task_key: str | None = None,
        external_id: str | None = None,
        retrieval_id: Id | None = None,
        **options: Unpack[RequestOptions],
    ) -> RunAccepted:
        """Returns insights about how an agent came to its answer, and a verdict on each bullet
        it used.

        The trace and the run are stored first. The same trajectory sent again gets the first
        result. If the model fails, the result is empty and the failed run has the cause.

        Args:
            ground_truth: The correct answer; empty if unknown.
            test_report: JUnit XML of tests, which decides the outcome. Other output is quoted.
            playbook: Default: `dataset` of the trajectory. `dataset` is accepted too.
            max_iterations: Accepted and not used: the service analyzes once. Default: 1.

        Example:
            client.trajectories.enqueue(trajectory)
        """
        check_options(options, self.enqueue)
        return self._send(
            write_request(
                "POST",
                api_path("trajectories", "reflect"),
                RunAccepted,
                {
                    "trajectory": trajectory,
                    "project_id": project_id,
                    "ground_truth": ground_truth,
                    "test_report": test_report,
                    "playbook": playbook,
                    "max_iterations": max_iterations,
                    "session_id": session_id,
                    "task_key": task_key,
                    "external_id": external_id,
                    "retrieval_id": retrieval_id,
                },
                is_enqueued=True,
            ),
            options,
        )


class TranscriptsResource(Resource):
    """`client.transcripts`."""

    def reflect(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        project_id: str | None = None,
        playbook: str | None = None,
        cited_ids: Sequence[str] | None = None,
        record_verdicts: bool | None = None,
        session_id: str | None = None,
        task_key: str | None = None,
        task_description: str | None = None,
        outcome: OutcomeType | None = None,
        retrieval_id: Id | None = None,
        external_id: str | None = None,
        tools: Sequence[params.ToolDefinition | Mapping[str, Any] | str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ReflectOnTranscriptResponse:
        """Returns what went well or badly in a session, and a tag for each bullet that it used.

        Uses the citations in the messages; without citations, the content. A session counts
        once, also if it is sent again after it has grown (with a `session_id`). If the model
        fails, the analysis is empty and the failed run has the cause.

        Args:
            messages: `{role, content}`, or the lines of a session file as objects.
            cited_ids: Keys of cited bullets. Default: read from the assistant's messages.
            record_verdicts: False: the playbook does not change. No verdict is recorded, and
                the insights are not sent to its curator. Default: True.
            session_id: Identifies a session that grows.
            tools: The tools that the agent could call. Without them, the names come from the
                recorded calls, and whether a call changes anything is unknown.

        Example:
            client.transcripts.reflect([{"role": "user", "content": "Where is order 17?"}])
        """
        check_options(options, self.reflect)
        return self._send(
            write_request(
                "POST",
                api_path("transcripts", "reflect"),
                ReflectOnTranscriptResponse,
                {
                    "messages": messages,
                    "project_id": project_id,
                    "playbook": playbook,
                    "cited_ids": cited_ids,
                    "record_verdicts": record_verdicts,
                    "session_id": session_id,
                    "task_key": task_key,
                    "task_description": task_description,
                    "outcome": outcome,
                    "retrieval_id": retrieval_id,
                    "external_id": external_id,
                    "tools": tools,
                },
            ),
            options,
        )

    def enqueue(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        project_id: str | None = None,
        playbook: str | None = None,
        cited_ids: Sequence[str] | None = None,
        record_verdicts: bool | None = None,
        session_id: str | None = None,
        task_key: str | None = None,
        task_description: str | None = None,
        outcome: OutcomeType | None = None,
        retrieval_id: Id | None = None,
        external_id: str | None = None,
        tools: Sequence[params.ToolDefinition | Mapping[str, Any] | str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> RunAccepted:
        """Returns what went well or badly in a session, and a tag for each bullet that it used.

        Uses the citations in the messages; without citations, the content. A session counts
        once, also if it is sent again after it has grown (with a `session_id`). If the model
        fails, the analysis is empty and the failed run has the cause.

        Args:
            messages: `{role, content}`, or the lines of a session file as objects.
            cited_ids: Keys of cited bullets. Default: read from the assistant's messages.
            record_verdicts: False: the playbook does not change. No verdict is recorded, and
                the insights are not sent to its curator. Default: True.
            session_id: Identifies a session that grows.
            tools: The tools that the agent could call. Without them, the names come from the
                recorded calls, and whether a call changes anything is unknown.

        Example:
            client.transcripts.enqueue([{"role": "user", "content": "Where is order 17?"}])
        """
        check_options(options, self.enqueue)
        return self._send(
            write_request(
                "POST",
                api_path("transcripts", "reflect"),
                RunAccepted,
                {
                    "messages": messages,
                    "project_id": project_id,
                    "playbook": playbook,
                    "cited_ids": cited_ids,
                    "record_verdicts": record_verdicts,
                    "session_id": session_id,
                    "task_key": task_key,
                    "task_description": task_description,
                    "outcome": outcome,
                    "retrieval_id": retrieval_id,
                    "external_id": external_id,
                    "tools": tools,
                },
                is_enqueued=True,
            ),
            options,
        )


class UsageResource(Resource):
    """`client.usage`."""

    def list(
        self,
        group_by: Sequence[UsageDimension] | None = None,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        project_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Usage]:
        """Sums the model calls by day, model, provider, purpose, project or playbook, with their
        cost.

        `group_by=lesson_id`, without others, lists what each lesson has cost, most expensive
        first. Failed attempts are included. A key bound to one project sees the calls of this
        project only.

        Args:
            group_by: Sums are made for each combination of these values. Default: ['day'].
            since: Start, included. Default: midnight (UTC) 30 days before `until`.
            until: End, excluded. Default: now.
            project_id: Project. Default: the project of the key, else `default`.

        Example:
            for item in client.usage.list():
                ...
        """
        check_options(options, self.list)
        return self._list(
            whole_list_request(
                "GET",
                api_path("usage"),
                Usage,
                params={
                    "group_by": group_by,
                    "since": since,
                    "until": until,
                    "project_id": project_id,
                },
            ),
            options,
        )


class WebhooksResource(Resource):
    """`client.webhooks`."""

    @cached_property
    def deliveries(self) -> WebhooksDeliveriesResource:
        return WebhooksDeliveriesResource(self._client)

    def create(
        self,
        url: str,
        *,
        event_types: Sequence[
            Literal[
                "reflection.created",
                "proposal.created",
                "bullet.quarantined",
                "budget.threshold_reached",
                "intervention.requested",
            ]
        ]
        | None = None,
        project_id: str | None = None,
        description: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> CreateWebhookResponse:
        """Creates an address that receives events by POST, and returns its secret once.

        Requests are signed as Standard Webhooks describe. A private address is refused when
        an event is sent, unless the operator allows it.

        Args:
            event_types: The events to send. Default: all.
            project_id: Only events of this project.

        Example:
            client.webhooks.create("https://example.com/hook")
        """
        check_options(options, self.create)
        return self._send(
            write_request(
                "POST",
                api_path("webhooks"),
                CreateWebhookResponse,
                {
                    "url": url,
                    "event_types": event_types,
                    "project_id": project_id,
                    "description": description,
                },
            ),
            options,
        )

    def list(
        self, *, limit: int | None = None, **options: Unpack[RequestOptions]
    ) -> Page[WebhookEndpoint]:
        """Lists the webhooks of the tenant, newest first, without their secrets.

        Args:
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.webhooks.list():
                ...
        """
        check_options(options, self.list)
        return self._list(list_request(api_path("webhooks"), WebhookEndpoint, limit), options)

    def update(
        self,
        webhook_id: Id,
        *,
        url: str | None | Omit = OMIT,
        event_types: Sequence[
            Literal[
                "reflection.created",
                "proposal.created",
                "bullet.quarantined",
                "budget.threshold_reached",
                "intervention.requested",
            ]
        ]
        | None
        | Omit = OMIT,
        description: str | None | Omit = OMIT,
        active: bool | None | Omit = OMIT,
        **options: Unpack[RequestOptions],
    ) -> WebhookEndpoint:
        """Changes the given fields. `POST …/rotate-secret` replaces the secret.

        Args:
            active: False pauses the webhook.

        Example:
            client.webhooks.update(webhook.id)
        """
        check_options(options, self.update)
        return self._send(
            write_request(
                "PATCH",
                api_path("webhooks", webhook_id),
                WebhookEndpoint,
                {
                    "url": url,
                    "event_types": event_types,
                    "description": description,
                    "active": active,
                },
            ),
            options,
        )

    def rotate_secret(
        self,
        webhook_id: Id,
        *,
        overlap_seconds: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> CreateWebhookResponse:
        """Replaces the secret and returns the new one once.

        During the overlap, requests carry the signatures of both secrets, so a receiver
        accepts them before and after it changes its secret. A rotation during the overlap
        ends the oldest secret.

        Args:
            overlap_seconds: How long the old secret signs too, in seconds. 0: not at all.
                Default: 86400.

        Example:
            client.webhooks.rotate_secret(webhook.id)
        """
        check_options(options, self.rotate_secret)
        return self._send(
            write_request(
                "POST",
                api_path("webhooks", webhook_id, "rotate-secret"),
                CreateWebhookResponse,
                {"overlap_seconds": overlap_seconds},
            ),
            options,
        )

    def send_test_event(self, webhook_id: Id, **options: Unpack[RequestOptions]) -> WebhookDelivery:
        """Sends the event `webhook.test`, signed and retried like the others.

        Every active webhook receives it, whatever its event types are.

        Example:
            client.webhooks.send_test_event(webhook.id)
        """
        check_options(options, self.send_test_event)
        return self._send(
            write_request("POST", api_path("webhooks", webhook_id, "test"), WebhookDelivery),
            options,
        )

    def delete(self, webhook_id: Id, **options: Unpack[RequestOptions]) -> None:
        """Deletes a webhook with the log of its deliveries. What waits is not sent.

        Example:
            client.webhooks.delete(webhook.id)
        """
        check_options(options, self.delete)
        return self._send(write_request("DELETE", api_path("webhooks", webhook_id), None), options)


class WebhooksDeliveriesResource(Resource):
    """`client.webhooks.deliveries`."""

    def list(
        self,
        webhook_id: Id,
        *,
        state: DeliveryState | None = None,
        limit: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[WebhookDelivery]:
        """Lists what was sent or waits, newest first.

        Args:
            state: Only this state.
            limit: Maximum number of items. Default: all.

        Example:
            for item in client.webhooks.deliveries.list(webhook.id):
                ...
        """
        check_options(options, self.list)
        return self._list(
            list_request(
                api_path("webhooks", webhook_id, "deliveries"),
                WebhookDelivery,
                limit,
                params={"state": state},
            ),
            options,
        )

    def replay(
        self, webhook_id: Id, delivery_id: Id, **options: Unpack[RequestOptions]
    ) -> WebhookDelivery:
        """Sends a delivery that has ended again, with the same `webhook-id`.

        Example:
            client.webhooks.deliveries.replay(webhook.id, delivery.id)
        """
        check_options(options, self.replay)
        return self._send(
            write_request(
                "POST",
                api_path("webhooks", webhook_id, "deliveries", delivery_id, "replay"),
                WebhookDelivery,
            ),
            options,
        )


class WorkflowResource(Resource):
    """`client.workflow`."""

    def run(
        self,
        query: str,
        playbook: str | None = None,
        *,
        project_id: str | None = None,
        task_key: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> RunWorkflowResponse:
        """Searches a playbook and answers the query with a model: load_playbook → search →
        generate.

        Without a model, the answer is the list of relevant bullets and `engine` is `rules`.
        The answer is stored as an open trace. Record its outcome with `POST
        /api/v1/traces/{trace_id}/outcome`, and Hansei learns from it. `/workflow/run` is
        another path of this route.

        Args:
            playbook: Default: default.
            task_key: Traces with the same key are attempts at one task.

        Example:
            client.workflow.run("Which orders are late?", "support")
        """
        check_options(options, self.run)
        return self._send(
            write_request(
                "POST",
                api_path("workflow", "run"),
                RunWorkflowResponse,
                {
                    "query": query,
                    "playbook": playbook,
                    "project_id": project_id,
                    "task_key": task_key,
                },
            ),
            options,
        )


class Resources(Client):
    """All resources, as attributes of `Hansei`."""

    @cached_property
    def agents(self) -> AgentsResource:
        return AgentsResource(self)

    @cached_property
    def analytics(self) -> AnalyticsResource:
        return AnalyticsResource(self)

    @cached_property
    def api_keys(self) -> ApiKeysResource:
        return ApiKeysResource(self)

    @cached_property
    def audit_log(self) -> AuditLogResource:
        return AuditLogResource(self)

    @cached_property
    def budgets(self) -> BudgetsResource:
        return BudgetsResource(self)

    @cached_property
    def collections(self) -> CollectionsResource:
        return CollectionsResource(self)

    @cached_property
    def erasures(self) -> ErasuresResource:
        return ErasuresResource(self)

    @cached_property
    def evaluation_reports(self) -> EvaluationReportsResource:
        return EvaluationReportsResource(self)

    @cached_property
    def health(self) -> HealthResource:
        return HealthResource(self)

    @cached_property
    def maintenance(self) -> MaintenanceResource:
        return MaintenanceResource(self)

    @cached_property
    def memories(self) -> MemoriesResource:
        return MemoriesResource(self)

    @cached_property
    def playbooks(self) -> PlaybooksResource:
        return PlaybooksResource(self)

    @cached_property
    def reflections(self) -> ReflectionsResource:
        return ReflectionsResource(self)

    @cached_property
    def retention(self) -> RetentionResource:
        return RetentionResource(self)

    @cached_property
    def runs(self) -> RunsResource:
        return RunsResource(self)

    @cached_property
    def tenants(self) -> TenantsResource:
        return TenantsResource(self)

    @cached_property
    def traces(self) -> TracesResource:
        return TracesResource(self)

    @cached_property
    def trajectories(self) -> TrajectoriesResource:
        return TrajectoriesResource(self)

    @cached_property
    def transcripts(self) -> TranscriptsResource:
        return TranscriptsResource(self)

    @cached_property
    def usage(self) -> UsageResource:
        return UsageResource(self)

    @cached_property
    def webhooks(self) -> WebhooksResource:
        return WebhooksResource(self)

    @cached_property
    def workflow(self) -> WorkflowResource:
        return WorkflowResource(self)
