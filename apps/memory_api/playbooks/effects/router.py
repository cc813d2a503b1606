"""The measured effect of bullets over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from memory_api.api.deps import CursorQuery, Limit, ProjectQuery, Reader, Session
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.pagination import Cursor, to_page
from memory_api.core.schemas import UtcDatetime
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.effects.holdout import EffectPeriod, list_effects
from memory_api.playbooks.effects.schemas import BulletEffectPage
from memory_api.playbooks.ref import PlaybookRef

router = APIRouter(
    prefix="/api/v1/playbooks/{playbook}/effects", tags=["bullets"], route_class=RedactingRoute
)


@router.get("", summary="List the measured effect of each bullet", responses=problems(404))
async def list_bullet_effects(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    since: Annotated[
        UtcDatetime | None, Query(description="Start, included. Default: the oldest retrieval.")
    ] = None,
    until: Annotated[UtcDatetime | None, Query(description="End, excluded. Default: now.")] = None,
    limit: Limit = 50,
) -> BulletEffectPage:
    """Lists how agent runs ended with and without each bullet, by key.

    The question `effects` of analytics has the same numbers. `randomized` needs a playbook with a
    holdout share: the share of renders that leave out one random bullet. Deleted bullets are
    included; runs with a merged bullet count for the bullet that replaced it.
    """
    ref = PlaybookRef(caller.resolve_project(project_id), playbook)
    await require_playbook(session, ref)
    after = cursor.text("bullet_effects") if cursor else None
    period = EffectPeriod(since, until)
    rows = await list_effects(session, ref, period, after=after, limit=limit)
    return to_page(
        BulletEffectPage,
        rows,
        limit,
        lambda row: {"key": row.key, "status": row.status, **row.sides},
        lambda row: Cursor("bullet_effects", (row.key,)),
    )
