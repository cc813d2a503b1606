"""What each bullet does to the runs it is served to, over HTTP."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Model, Page
from apps.memory_api.deps import Limit, ProjectQuery, Reader, Session
from apps.memory_api.playbook.edit import find_playbook
from apps.memory_api.playbook.holdout import list_effects
from apps.memory_api.playbook.requests import decode_cursor, encode_cursor
from apps.memory_api.playbook.rows import Place

router = APIRouter(prefix="/{name}/effect", route_class=SecretlessRoute)


class Sides(Model):
    """Runs that ended in success or not, with the bullet and without it. `difference` is the rate
    with it minus the rate without, `low` to `high` its 95 % interval (Newcombe); null where a side
    is empty.
    """

    with_n: int
    with_won: int
    without_n: int
    without_won: int
    with_rate: float | None
    without_rate: float | None
    difference: float | None
    low: float | None
    high: float | None


class Effect(Model):
    """One bullet. Only `randomised` says what it causes."""

    model_config = Model.model_config | shown(
        {
            "key": "mis-00001",
            "randomised": {
                "with_n": 60,
                "with_won": 45,
                "without_n": 55,
                "without_won": 28,
                "with_rate": 0.75,
                "without_rate": 0.509,
                "difference": 0.241,
                "low": 0.064,
                "high": 0.401,
            },
            "observational": None,
        }
    )

    key: str
    randomised: Sides | None = Field(
        None, description="Renders that drew this bullet: left out by lot, or not."
    )
    observational: Sides | None = Field(
        None,
        description="Runs that had it against all others of the playbook since it is there; these "
        "may differ in what they were about.",
    )


@router.get("")
async def effects(
    name: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: str | None = None,
    limit: Limit = 50,
) -> Page[Effect]:
    """Outcomes with and without each bullet that a run which ended had, by key.

    Runs are joined with renders and searches by their `render_id`. The playbook's `holdout` is the
    share of renders that leave out the bullet they drew; without it there is no randomised part.
    """
    playbook = await find_playbook(session, Place(caller.project(project_id), name))
    behind = decode_cursor(cursor)
    rows = await list_effects(session, playbook.scope, behind=behind, limit=limit)
    items = [Effect.model_validate({"key": row.key, **row.sides}) for row in rows[:limit]]
    following = encode_cursor(items[-1].key) if len(rows) > limit else None
    return Page[Effect](items=items, next_cursor=following)
