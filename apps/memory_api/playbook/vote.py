"""A verdict that somebody gives over HTTP: who judges, what it is about, what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.sql import load
from apps.memory_api.playbook.evaluate import Counted, Verdict, evaluate
from apps.memory_api.playbook.quarantine import ACTOR, is_suspect, quarantine
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.playbook.servings import ServingLog
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Access, Identity

ABOUT = load(__file__, "vote_about.sql")
Voter = Literal["human", "llm"]


def judge_of(caller: Identity, asked: Voter | None) -> Voter:
    """An admin key is a person's, who may say that an agent judged; any other is an agent's. Raises
    `Forbidden` for an agent that would be a person.
    """
    if asked == "human":
        caller.require(Access.ADMIN)
    return asked or ("human" if caller.may(Access.ADMIN) else "llm")


async def vote(
    runtime: Runtime, servings: ServingLog, tenant_id: UUID, place: Place, verdict: Verdict
) -> Counted:
    """Record a verdict; a bullet that it makes harmful goes out of service at once.

    Raises `NoPlaybook`, `NoBullet`, and `Invalid` for a trace that is not in the project or a
    serving that is not the playbook's.
    """
    if verdict.render_id is not None:
        await servings.flush()  # it may have been handed out a moment ago
    async with runtime.sessions.tenant(tenant_id) as session:
        await _check(session, place, verdict)
    (counted,) = await evaluate(runtime, tenant_id, place, [verdict])
    if not is_suspect(counted.bullet):
        return counted
    gone = await quarantine(runtime, tenant_id, place, Author(ACTOR))
    return replace(counted, quarantined=counted.key in gone)


async def _check(session: AsyncSession, place: Place, verdict: Verdict) -> None:
    given = {
        "tenant": tenant_of(session),
        "project": place.project_id,
        "playbook": place.name,
        "trace": verdict.trace_id,
        "render": verdict.render_id,
    }
    known = (await session.execute(ABOUT, given)).one()
    if verdict.trace_id is not None and not known.trace:
        raise Invalid("There is no such trace in this project.", field="trace_id")
    if verdict.render_id is not None and not known.render:
        raise Invalid("This playbook handed out nothing under this id.", field="render_id")
