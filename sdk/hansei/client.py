"""The clients: `Hansei` for synchronous code, `AsyncHansei` for asyncio.

    with Hansei() as hansei:
        block = hansei.render_playbook("support", "refund of a pending order")
        hits = hansei.search_memories("refund of a pending order", top_k=3)["results"]
        for receipt in hansei.create_traces("traces.jsonl", reflect="always"):
            ...

Both have the same methods with the same arguments. With `AsyncHansei`, `await` a result and use
`async for` with a list.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, Self, TypeVar

import httpx2

from hansei import _flows
from hansei._flows import Flow, Item
from hansei._methods import FlowMethod, ListMethod, RequestMethod, ResultMethod
from hansei._request import Request
from hansei._retry import Pause, RequestAttempts
from hansei.credentials import account_id, resolve_credentials
from hansei.endpoints import (
    account,
    agents,
    analytics,
    bullets,
    collections,
    memories,
    operations,
    playbooks,
    reflections,
    runs,
    traces,
    webhooks,
)
from hansei.errors import NotConfigured

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
"""How long a response may take. A reflection by a model can take many seconds."""
CONNECT_TIMEOUT_SECONDS = 5.0
MAX_RETRIES = 3
"""Retries after 408, 429, 5xx or a lost connection."""
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


class Methods:
    """The methods of both clients: one for each operation of the API, and four that combine
    several requests. Every method raises `HanseiError`.
    """

    generate_reflection = RequestMethod(reflections.generate_reflection)
    create_reflection = RequestMethod(reflections.create_reflection)
    query_reflections = RequestMethod(reflections.query_reflections)
    reflect_on_trajectory = RequestMethod(reflections.reflect_on_trajectory)
    reflect_on_transcript = RequestMethod(reflections.reflect_on_transcript)
    run_workflow = RequestMethod(reflections.run_workflow)

    create_trace = RequestMethod(traces.create_trace)
    create_traces = FlowMethod(_flows.create_traces)
    list_traces = ListMethod(traces.list_traces)
    get_trace = RequestMethod(traces.get_trace)
    list_trace_events = ListMethod(traces.list_trace_events)
    append_events = RequestMethod(traces.append_events)
    record_outcome = RequestMethod(traces.record_outcome)
    close_trace = RequestMethod(traces.close_trace)
    list_trace_evaluations = ListMethod(traces.list_trace_evaluations)

    create_memory = RequestMethod(memories.create_memory)
    list_memories = ListMethod(memories.list_memories)
    get_memory = RequestMethod(memories.get_memory)
    update_memory = RequestMethod(memories.update_memory)
    delete_memory = RequestMethod(memories.delete_memory)
    list_memory_revisions = ListMethod(memories.list_memory_revisions)
    list_memory_links = ListMethod(memories.list_memory_links)
    search_memories = RequestMethod(memories.search_memories)

    list_playbooks = ListMethod(playbooks.list_playbooks)
    get_playbook = RequestMethod(playbooks.get_playbook)
    export_playbook = RequestMethod(playbooks.export_playbook)
    replace_playbook = RequestMethod(playbooks.replace_playbook)
    update_playbook = RequestMethod(playbooks.update_playbook)
    delete_playbook = RequestMethod(playbooks.delete_playbook)
    apply_deltas = RequestMethod(bullets.apply_deltas)
    search_bullets = RequestMethod(bullets.search_bullets)
    render_playbook = RequestMethod(bullets.render_playbook)
    list_playbook_versions = ListMethod(playbooks.list_playbook_versions)
    diff_playbook = RequestMethod(playbooks.diff_playbook)
    restore_playbook = RequestMethod(playbooks.restore_playbook)
    list_bullet_effects = ListMethod(playbooks.list_bullet_effects)
    list_lessons = ListMethod(playbooks.list_lessons)
    consolidate_playbook = RequestMethod(playbooks.consolidate_playbook)
    list_proposals = ListMethod(playbooks.list_proposals)
    accept_proposal = RequestMethod(playbooks.accept_proposal)
    reject_proposal = RequestMethod(playbooks.reject_proposal)

    list_bullets = ListMethod(bullets.list_bullets)
    get_bullet = RequestMethod(bullets.get_bullet)
    create_bullet = RequestMethod(bullets.create_bullet)
    update_bullet = RequestMethod(bullets.update_bullet)
    delete_bullet = RequestMethod(bullets.delete_bullet)
    record_verdict = RequestMethod(bullets.record_verdict)
    list_verdicts = ListMethod(bullets.list_verdicts)
    list_bullet_versions = ListMethod(bullets.list_bullet_versions)
    get_bullet_provenance = RequestMethod(bullets.get_bullet_provenance)

    create_collection = RequestMethod(collections.create_collection)
    list_collections = ListMethod(collections.list_collections)
    get_collection = RequestMethod(collections.get_collection)
    delete_collection = RequestMethod(collections.delete_collection)
    rechunk_collection = RequestMethod(collections.rechunk_collection)
    search_collection = RequestMethod(collections.search_collection)
    add_document = RequestMethod(collections.add_document)
    list_documents = ListMethod(collections.list_documents)
    get_document = RequestMethod(collections.get_document)
    delete_document = RequestMethod(collections.delete_document)

    create_agent_run = RequestMethod(agents.create_agent_run)
    list_agent_runs = ListMethod(agents.list_agent_runs)
    get_agent_run = RequestMethod(agents.get_agent_run)
    get_agent_execution = RequestMethod(agents.get_agent_execution)
    stream_agent_events = RequestMethod(agents.stream_agent_events)
    list_interventions = ListMethod(agents.list_interventions)
    answer_intervention = RequestMethod(agents.answer_intervention)
    cancel_agent_run = RequestMethod(agents.cancel_agent_run)
    record_agent_feedback = RequestMethod(agents.record_agent_feedback)
    get_calibration = RequestMethod(agents.get_calibration)
    reset_agent_calibration = RequestMethod(agents.reset_agent_calibration)
    follow_agent_run = FlowMethod(_flows.follow_agent_run)
    execute_plan_generator = FlowMethod(_flows.execute_plan_generator)

    list_runs = ListMethod(runs.list_runs)
    get_run = RequestMethod(runs.get_run)
    retry_run = RequestMethod(runs.retry_run)
    wait_for_run = ResultMethod(_flows.wait_for_run)
    follow_chain = FlowMethod(_flows.follow_chain)
    _unfinished_runs = FlowMethod(_flows.unfinished_runs)
    _finished_runs = FlowMethod(_flows.finished_runs)

    list_audit_log = ListMethod(account.list_audit_log)
    list_budgets = ListMethod(account.list_budgets)
    replace_budgets = RequestMethod(account.replace_budgets)
    list_usage = ListMethod(account.list_usage)
    list_questions = RequestMethod(analytics.list_questions)
    get_analytics = RequestMethod(analytics.get_analytics)
    get_analytics_csv = RequestMethod(analytics.get_analytics_csv)
    list_api_keys = ListMethod(account.list_api_keys)
    create_api_key = RequestMethod(account.create_api_key)
    revoke_api_key = RequestMethod(account.revoke_api_key)
    list_tenants = ListMethod(account.list_tenants)
    create_tenant = RequestMethod(account.create_tenant)
    list_maintenance_tasks = ListMethod(operations.list_maintenance_tasks)
    start_maintenance = RequestMethod(operations.start_maintenance)
    list_retention = ListMethod(operations.list_retention)
    replace_retention = RequestMethod(operations.replace_retention)
    create_erasure = RequestMethod(operations.create_erasure)
    list_erasures = ListMethod(operations.list_erasures)
    get_erasure = RequestMethod(operations.get_erasure)
    suspend_tenant = RequestMethod(operations.suspend_tenant)
    resume_tenant = RequestMethod(operations.resume_tenant)
    export_tenant = RequestMethod(operations.export_tenant)
    create_webhook = RequestMethod(webhooks.create_webhook)
    list_webhooks = ListMethod(webhooks.list_webhooks)
    update_webhook = RequestMethod(webhooks.update_webhook)
    rotate_webhook_secret = RequestMethod(webhooks.rotate_webhook_secret)
    send_test_event = RequestMethod(webhooks.send_test_event)
    delete_webhook = RequestMethod(webhooks.delete_webhook)
    list_webhook_deliveries = ListMethod(webhooks.list_webhook_deliveries)
    replay_webhook_delivery = RequestMethod(webhooks.replay_webhook_delivery)
    delete_trace = RequestMethod(traces.delete_trace)
    get_health = RequestMethod(runs.get_health)
    get_readiness = RequestMethod(runs.get_readiness)

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """By default, uses HANSEI_URL and HANSEI_API_KEY, then the credentials of `hansei up`.

        `timeout` is the number of seconds that a response may take. The client sends it to the
        service, which ends its model calls in time. A request that fails in a way that may pass is
        retried `max_retries` times. Raises `NotConfigured`.
        """
        credentials = resolve_credentials(url, api_key)
        base_url = _parse_url(credentials.url)
        self.url = credentials.url
        self.account_id = account_id(credentials)
        self._max_retries = max_retries
        self._has_key = credentials.api_key is not None
        self._http_options: dict[str, Any] = {
            "base_url": base_url,
            "headers": _auth_headers(credentials.api_key) | _wait_header(timeout),
            "timeout": httpx2.Timeout(timeout, connect=min(CONNECT_TIMEOUT_SECONDS, timeout)),
            # A local service needs no proxy, and plain HTTP no certificates (0.1 s to load).
            "trust_env": base_url.host not in LOCAL_HOSTS,
            "verify": base_url.scheme == "https",
        }

    def _start_attempts(self, request: Request[T]) -> RequestAttempts[T]:
        return RequestAttempts(request, self._max_retries, url=self.url, has_key=self._has_key)


class Hansei(Methods):
    """The synchronous client. Use it in a `with` block or call `close`. Threads may share it."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        super().__init__(url, api_key, timeout=timeout, max_retries=max_retries)
        self._http = httpx2.Client(**self._http_options)

    def _send(self, request: Request[T]) -> T:
        """Send a request, with retries."""
        attempts = self._start_attempts(request)
        while True:
            try:
                outcome = self._http.request(**_http_arguments(request))
            except httpx2.RequestError as error:
                outcome = error
            result = attempts.evaluate(outcome)
            if not isinstance(result, Pause):
                return result.value
            time.sleep(result.seconds)

    def _iterate(self, flow: Flow[T]) -> Generator[T]:
        """Execute a flow and yield its items."""
        with closing(flow):
            response: Any = None
            while True:
                try:
                    step = flow.send(response)
                except StopIteration:
                    return
                response = None
                if isinstance(step, Item):
                    yield step.value
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    response = self._send(step)

    def _run_to_end(self, flow: Flow[T]) -> T:
        """Execute a flow and return its only item."""
        with closing(self._iterate(flow)) as items:
            return next(items)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncHansei(Methods):
    """The asyncio client. Use it in an `async with` block or call `aclose`. Tasks may share it."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` replaces the network, for example by `httpx2.ASGITransport`."""
        super().__init__(url, api_key, timeout=timeout, max_retries=max_retries)
        self._http = httpx2.AsyncClient(transport=transport, **self._http_options)

    async def _send(self, request: Request[T]) -> T:
        """Send a request, with retries."""
        attempts = self._start_attempts(request)
        while True:
            try:
                outcome = await self._http.request(**_http_arguments(request))
            except httpx2.RequestError as error:
                outcome = error
            result = attempts.evaluate(outcome)
            if not isinstance(result, Pause):
                return result.value
            await asyncio.sleep(result.seconds)

    async def _iterate(self, flow: Flow[T]) -> AsyncGenerator[T]:
        """Execute a flow and yield its items."""
        with closing(flow):
            response: Any = None
            while True:
                try:
                    step = flow.send(response)
                except StopIteration:
                    return
                response = None
                if isinstance(step, Item):
                    yield step.value
                elif isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    response = await self._send(step)

    async def _run_to_end(self, flow: Flow[T]) -> T:
        """Execute a flow and return its only item."""
        async with aclosing(self._iterate(flow)) as items:
            return await anext(items)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _http_arguments(request: Request[Any]) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path,
        "params": request.params or None,
        "content": request.body,
        "headers": request.headers,
    }


def _parse_url(url: str) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise NotConfigured(f"'{url}' is not a valid URL: {error}.") from error
    if not parsed.host:
        raise NotConfigured(f"'{url}' is not a valid URL: it has no host.")
    return parsed


def _wait_header(timeout: float) -> dict[str, str]:
    """The service answers within the time that the client waits (RFC 7240)."""
    return {"Prefer": f"wait={max(1, int(timeout))}"}


def _auth_headers(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    key = api_key.strip()
    if not key.isascii() or not key.isprintable():
        raise NotConfigured("The API key contains invalid characters.")
    return {"Authorization": f"Bearer {key}"}
