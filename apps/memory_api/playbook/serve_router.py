"""Handing bullets out over HTTP."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Response

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.openapi import example
from apps.memory_api.deps import Reader, RuntimeDep
from apps.memory_api.memory.find import how_of
from apps.memory_api.playbook.requests import Servings
from apps.memory_api.playbook.rows import Place, to_bullet
from apps.memory_api.playbook.serve import Order, render_playbook, search_bullets
from apps.memory_api.playbook.wire_serving import (
    BulletsFound,
    Hit,
    RenderAnswer,
    RenderIn,
    SearchIn,
)

router = APIRouter(prefix="/{name}", route_class=SecretlessRoute)

SEARCH = {"query_text": "refund of a pending order", "top_k": 5}
RENDER = {"query_text": "refund of a pending order", "token_budget": 800}


@router.post("/search", openapi_extra=example(SEARCH))
async def search(
    name: str, body: SearchIn, runtime: RuntimeDep, caller: Reader, servings: Servings
) -> BulletsFound:
    """The bullets that matter for a query, best first (spec 2). An empty query lists by usefulness.

    Scores are relative to the best candidate of this search. `render_id` names this serving.
    """
    place = Place(caller.project(body.project_id), name)
    how = how_of(body, runtime.settings)
    found = await search_bullets(runtime, servings, caller.tenant_id, place, body.query_text, **how)
    results = [
        Hit(
            bullet=to_bullet(hit.memory),
            vector_score=hit.vector_score,
            bm25_score=hit.bm25_score,
            combined_score=hit.combined_score,
            explain=hit.explained() if body.explain else None,
        )
        for hit in found.hits
    ]
    return BulletsFound(results=results, version=found.version, render_id=found.render_id)


@router.post("/render", openapi_extra=example(RENDER))
async def render(
    name: str,
    body: RenderIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Reader,
    servings: Servings,
) -> RenderAnswer:
    """The block to put in a prompt, with the request to cite. The ETag is of the text.

    The best bullets for the query (without one: the most useful) that fit the token budget. Those
    that surely do more harm than good stay out. A small budget gets a short request to cite, one
    that is too small for any bullet an empty text with `left_out` above 0; an empty playbook gives
    an empty text.
    """
    place = Place(caller.project(body.project_id), name)
    order = Order(
        query_text=body.query_text,
        token_budget=body.token_budget,
        top_k=body.top_k,
        form=body.format,
        sections=body.section_filter or (),
        holdout=body.holdout,
    )
    block = await render_playbook(runtime, servings, caller.tenant_id, place, order)
    text = block.rendered.text
    response.headers["ETag"] = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    return RenderAnswer(
        text=text,
        keys=list(block.rendered.keys),
        tokens=block.rendered.tokens,
        version=block.version,
        render_id=block.render_id,
        left_out=block.left_out,
        held_out=block.held_out,
    )
