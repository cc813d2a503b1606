"""The clients: `Hansei` for plain code, `AsyncHansei` for asyncio. Both have the methods of
`Methods`, with the same arguments.

    with Hansei() as hansei:
        learnt = hansei.generate_reflection(events, "failure")
        for sent in hansei.send_traces("traces.jsonl", reflect="always"):
            ...
        hits = hansei.search("refund of a pending order", top_k=3)["results"]

With `AsyncHansei`, `await` what returns a value and use `async for` where items are given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, Self, TypeVar

import httpx2

from hansei import account, flows, money, reflector, routes, workflow
from hansei import bullets as of_bullets
from hansei import playbooks as of_playbooks
from hansei.credentials import resolve
from hansei.errors import NotConfigured
from hansei.exchange import Exchange, Pause
from hansei.flows import Flow, Give
from hansei.methods import Final, Items, Steps, Value
from hansei.request import Request

T = TypeVar("T")

TIMEOUT = 60.0
"""Seconds an answer may take; a reflection by a model can need many."""
CONNECT_TIMEOUT = 5.0
RETRIES = 3
"""How often a request is sent again after 429, 503 or a broken connection."""
HERE = ("127.0.0.1", "::1", "localhost")


class Methods:
    """What a client can do: one method a route, and a few that take several requests.

    Every method raises `HanseiError`.
    """

    generate_reflection = Value(routes.generate_reflection)
    bring_reflection = Value(routes.bring_reflection)
    query_reflections = Value(routes.query_reflections)
    reflect_trajectory = Value(reflector.reflect_trajectory)
    reflect_transcript = Value(reflector.reflect_transcript)
    run_workflow = Value(workflow.run_workflow)

    send_trace = Value(routes.send_trace)
    send_traces = Steps(flows.send_traces)
    add_events = Value(routes.add_events)
    tell_outcome = Value(routes.tell_outcome)
    close_trace = Value(routes.close_trace)
    traces = Items(routes.traces)
    trace = Value(routes.trace)
    evaluations = Items(routes.evaluations)

    bring_memory = Value(routes.bring_memory)
    memories = Items(routes.memories)
    memory = Value(routes.memory)
    update = Value(routes.update)
    forget = Value(routes.forget)
    revisions = Items(routes.revisions)
    links = Items(routes.links)
    search = Value(routes.search)

    playbooks = Items(of_playbooks.playbooks)
    playbook = Value(of_playbooks.playbook)
    export_playbook = Value(of_playbooks.export_playbook)
    put_playbook = Value(of_playbooks.put_playbook)
    configure_playbook = Value(of_playbooks.configure_playbook)
    delete_playbook = Value(of_playbooks.delete_playbook)
    search_playbook = Value(of_bullets.search_playbook)
    render_playbook = Value(of_bullets.render_playbook)
    edit_playbook = Value(of_bullets.edit_playbook)
    playbook_history = Items(of_playbooks.playbook_history)
    diff_playbook = Value(of_playbooks.diff_playbook)
    restore_playbook = Value(of_playbooks.restore_playbook)
    playbook_effects = Items(of_playbooks.playbook_effects)
    proposals = Items(of_playbooks.proposals)
    accept_proposal = Value(of_playbooks.accept_proposal)
    reject_proposal = Value(of_playbooks.reject_proposal)

    bullets = Items(of_bullets.bullets)
    bullet = Value(of_bullets.bullet)
    add_bullet = Value(of_bullets.add_bullet)
    update_bullet = Value(of_bullets.update_bullet)
    delete_bullet = Value(of_bullets.delete_bullet)
    judge_bullet = Value(of_bullets.judge_bullet)
    verdicts = Items(of_bullets.verdicts)
    provenance = Value(of_bullets.provenance)

    runs = Items(routes.runs)
    run = Value(routes.run)
    retry_run = Value(routes.retry_run)
    wait = Final(flows.wait)
    steps = Steps(flows.steps)
    unsettled = Steps(flows.unsettled)
    outcomes = Steps(flows.outcomes)

    budgets = Items(money.budgets)
    set_budgets = Value(money.set_budgets)
    usage = Items(money.usage)
    keys = Items(account.keys)
    make_key = Value(account.make_key)
    revoke_key = Value(account.revoke_key)
    tenants = Items(account.tenants)
    make_tenant = Value(account.make_tenant)
    health = Value(routes.health)
    ready = Value(routes.ready)

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        """Without arguments: HANSEI_URL and HANSEI_API_KEY, else what `hansei up` stored.

        `timeout` is how many seconds an answer may take. Raises `NotConfigured`.
        """
        known = resolve(url, api_key)
        address = _address(known.url)
        self.url = known.url
        self._has_key = known.api_key is not None
        self._options: dict[str, Any] = {
            "base_url": address,
            "headers": _headers(known.api_key),
            "timeout": httpx2.Timeout(timeout, connect=min(CONNECT_TIMEOUT, timeout)),
            # No proxy stands between us and our own machine, and reading certificates takes 0.1 s.
            "trust_env": address.host not in HERE,
            "verify": address.scheme == "https",
        }

    def _exchange(self, request: Request[T]) -> Exchange[T]:
        return Exchange(request, RETRIES, url=self.url, has_key=self._has_key)


class Hansei(Methods):
    """A client that blocks. Use it with `with`, or `close` it. Threads may share it."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        super().__init__(url, api_key, timeout=timeout)
        self._http = httpx2.Client(**self._options)

    def answer(self, request: Request[T]) -> T:
        """Send a request until it is answered or there is no use in trying again."""
        exchange = self._exchange(request)
        while True:
            try:
                outcome = self._http.request(**_arguments(request))
            except httpx2.RequestError as error:
                outcome = error
            verdict = exchange.judge(outcome)
            if not isinstance(verdict, Pause):
                return verdict.value
            time.sleep(verdict.seconds)

    def follow(self, flow: Flow[T]) -> Generator[T]:
        """Do what a flow asks for, and give what it gives."""
        with closing(flow):
            reply: Any = None
            while True:
                try:
                    step = flow.send(reply)
                except StopIteration:
                    return
                reply = None
                if isinstance(step, Give):
                    yield step.item
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    reply = self.answer(step)

    def last(self, flow: Flow[T]) -> T:
        """Do what a flow asks for, and return the one thing it gives."""
        with closing(self.follow(flow)) as items:
            return next(items)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncHansei(Methods):
    """A client for asyncio. Use it with `async with`, or `aclose` it. Tasks may share it."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        super().__init__(url, api_key, timeout=timeout)
        self._http = httpx2.AsyncClient(**self._options)

    async def answer(self, request: Request[T]) -> T:
        """As `Hansei.answer`."""
        exchange = self._exchange(request)
        while True:
            try:
                outcome = await self._http.request(**_arguments(request))
            except httpx2.RequestError as error:
                outcome = error
            verdict = exchange.judge(outcome)
            if not isinstance(verdict, Pause):
                return verdict.value
            await asyncio.sleep(verdict.seconds)

    async def follow(self, flow: Flow[T]) -> AsyncGenerator[T]:
        """As `Hansei.follow`."""
        with closing(flow):
            reply: Any = None
            while True:
                try:
                    step = flow.send(reply)
                except StopIteration:
                    return
                reply = None
                if isinstance(step, Give):
                    yield step.item
                elif isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    reply = await self.answer(step)

    async def last(self, flow: Flow[T]) -> T:
        """As `Hansei.last`."""
        async with aclosing(self.follow(flow)) as items:
            return await anext(items)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _arguments(request: Request[Any]) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path,
        "params": request.params or None,
        "content": request.body,
        "headers": request.headers,
    }


def _address(url: str) -> httpx2.URL:
    try:
        address = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise NotConfigured(f"'{url}' is not a URL: {error}.") from error
    if not address.host:
        raise NotConfigured(f"'{url}' is not a URL: it names no host.")
    return address


def _headers(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    key = api_key.strip()
    if not key.isascii() or not key.isprintable():
        raise NotConfigured("The API key has characters that no key has.")
    return {"Authorization": f"Bearer {key}"}
