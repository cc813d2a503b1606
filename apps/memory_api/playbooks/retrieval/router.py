"""Search and render of a playbook over HTTP."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request, Response

from memory_api.api.deps import Reader, runtime_of
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.schemas import body_example
from memory_api.memories.search.query import to_search_options
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval import retrieve
from memory_api.playbooks.retrieval.retrieve import RenderOptions
from memory_api.playbooks.retrieval.schemas import (
    BulletHit,
    RenderPlaybookRequest,
    RenderPlaybookResponse,
    SearchBulletsRequest,
    SearchBulletsResponse,
)
from memory_api.playbooks.sections import requested_spelling

router = APIRouter(
    prefix="/api/v1/playbooks/{playbook}", tags=["playbooks"], route_class=RedactingRoute
)

SEARCH = {"query_text": "refund of a pending order", "top_k": 5}
RENDER = {"query_text": "refund of a pending order", "token_budget": 800}


@router.post(
    "/search",
    summary="Search the bullets of a playbook",
    responses=problems(404),
    openapi_extra=body_example(SEARCH),
)
async def search_bullets(
    playbook: str,
    body: SearchBulletsRequest,
    request: Request,
    caller: Reader,
) -> SearchBulletsResponse:
    """Returns the bullets for a query, best first. An empty query orders by usefulness.

    By default a score means the same for every query: near 0 for a bullet that has nothing to do
    with it. `match` says how well a bullet fits. Send `retrieval_id` with the trace of
    the agent, so that Hansei knows which bullets it had. `min_confidence` is 0.3 unless given.
    """
    runtime = runtime_of(request)
    ref = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    options = to_search_options(body, runtime.settings)
    found = await retrieve.search_bullets(
        runtime, caller.tenant_id, ref, body.query_text, **options
    )
    bullets = to_bullets(hit.memory._asdict() for hit in found.hits)
    for bullet in bullets if body.section_filter else ():
        bullet.section = requested_spelling(
            found.sections, bullet.section, body.section_filter or ()
        )
    results = [
        BulletHit(
            bullet=bullet,
            vector_score=hit.vector_score,
            bm25_score=hit.bm25_score,
            combined_score=hit.combined_score,
            match=hit.match,
            explain=hit.explain() if body.explain else None,
        )
        for bullet, hit in zip(bullets, found.hits, strict=True)
    ]
    return SearchBulletsResponse(
        results=results, version=found.version, retrieval_id=found.retrieval_id
    )


@router.post(
    "/render",
    summary="Render a playbook for a prompt",
    openapi_extra=body_example(RENDER),
)
async def render_playbook(
    playbook: str,
    body: RenderPlaybookRequest,
    response: Response,
    request: Request,
    caller: Reader,
) -> RenderPlaybookResponse:
    """Returns a prompt block: bullets and the request to cite them by key.

    Takes all bullets if they fit the token budget, else the best ones for the query; without a
    query, the most useful ones. Bullets that are proven harmful are left out. The text is empty if
    no bullet fits, and if the playbook does not exist yet. The `ETag` is a hash of the text.
    """
    runtime = runtime_of(request)
    ref = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    options = RenderOptions(
        query_text=body.query_text,
        token_budget=body.token_budget,
        top_k=body.top_k,
        form=body.format,
        sections=body.sections or (),
        min_match=body.min_match,
        holdout=body.holdout_share,
        session_id=body.session_id,
        include_trials=body.include_trials,
    )
    rendered = await retrieve.render_playbook(runtime, caller.tenant_id, ref, options)
    text = rendered.block.text
    response.headers["ETag"] = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    return RenderPlaybookResponse(
        text=text,
        bullet_keys=list(rendered.block.keys),
        token_count=rendered.block.tokens,
        version=rendered.version,
        retrieval_id=rendered.retrieval_id,
        left_out_count=rendered.left_out,
        held_out=rendered.held_out,
        advice_held_out=rendered.advice_held_out,
    )
