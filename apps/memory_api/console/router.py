"""Log-in, log-out, settings of the browser, static files, and all pages of the console."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Reader, RuntimeDep, Session, authenticate_key
from memory_api.auth.identity import KeyScope
from memory_api.auth.rate_limits import RateLimited
from memory_api.console.agent_runs.router import router as agent_runs_router
from memory_api.console.analytics.router import router as analytics_router
from memory_api.console.bullets.router import router as bullets_router
from memory_api.console.collections.router import router as collections_router
from memory_api.console.costs.router import router as costs_router
from memory_api.console.error_texts import NO_PAGE
from memory_api.console.evaluations.router import router as evaluations_router
from memory_api.console.keys.router import router as keys_router
from memory_api.console.overview.router import router as overview_router
from memory_api.console.pages import (
    ConsoleRoute,
    CurrentVisit,
    Form,
    PublicConsoleRoute,
)
from memory_api.console.playbooks.router import router as playbooks_router
from memory_api.console.rendering import load_static_file, render_page
from memory_api.console.review.router import router as review_router
from memory_api.console.runs.router import router as runs_router
from memory_api.console.session import (
    COOKIE_PATH,
    LOGIN_COOKIE,
    SESSION_COOKIE,
    create_console_session,
    csrf_token,
    delete_console_session,
    set_cookie,
)
from memory_api.console.sql.router import router as sql_router
from memory_api.console.timeline.router import router as timeline_router
from memory_api.console.traces.router import router as traces_router
from memory_api.console.translations import LANGUAGES
from memory_api.console.visit import (
    LANGUAGE_COOKIE,
    THEME_COOKIE,
    THEMES,
    Visit,
    local_address,
)
from memory_api.core.errors import Forbidden, NotFound, Unauthorized
from memory_api.tenants.queries import list_projects

PAGES = (
    *(overview_router, playbooks_router, bullets_router, review_router, timeline_router),
    *(traces_router, runs_router, agent_runs_router, collections_router),
    *(analytics_router, evaluations_router, sql_router, costs_router, keys_router),
)
"""The routers of the pages."""
SUGGESTED_PROJECTS = 200
PREFERENCE_SECONDS = 365 * 86_400

public = APIRouter(prefix=COOKIE_PATH, route_class=PublicConsoleRoute, include_in_schema=False)
private = APIRouter(prefix=COOKIE_PATH, route_class=ConsoleRoute, include_in_schema=False)


@public.get("/static/{name}")
async def get_static_file(name: str) -> Response:
    content, media_type = load_static_file(name)
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, media_type=media_type, headers=headers)


@public.get("/login")
async def show_login(
    request: Request, visit: CurrentVisit, next: str = "", ended: str = ""
) -> Response:
    return _login_page(request, visit, next, "session_ended" if ended else "")


@public.post("/login")
async def log_in(
    request: Request, runtime: RuntimeDep, visit: CurrentVisit, form: Form
) -> Response:
    """Exchange an API key for a session cookie. Wrong keys are counted per client address, as those
    of the API (`HANSEI_RATE_LIMIT_FAILED_KEYS`).
    """
    target = local_address(form.text("next"))
    try:
        caller = await authenticate_key(request, form.text("key"))
        caller.require_scope(KeyScope.READ)
    except (Unauthorized, Forbidden, RateLimited) as error:
        return _login_page(request, visit, target, error.code, error.status)
    token = await create_console_session(runtime, caller)
    await delete_console_session(runtime, request.cookies.get(SESSION_COOKIE, ""))
    response = RedirectResponse(target, 303)
    set_cookie(request, response, SESSION_COOKIE, token.text)
    return response


def _login_page(
    request: Request, visit: Visit, target: str, error: str = "", status: int = 200
) -> Response:
    secret = request.cookies.get(LOGIN_COOKIE) or secrets.token_urlsafe(32)
    response = render_page(
        visit,
        "login.html",
        status,
        next=local_address(target),
        error=error,
        form_token=csrf_token(secret),
    )
    set_cookie(request, response, LOGIN_COOKIE, secret)
    return response


@private.get("/projects")
async def suggest_projects(visit: CurrentVisit, session: Session, caller: Reader) -> Response:
    """The first names of projects that have traces, as suggestions for a field."""
    names = sorted(await list_projects(session))[:SUGGESTED_PROJECTS]
    return render_page(visit, "projects.html", names=[] if caller.project_id else names)


@private.post("/logout")
async def log_out(request: Request, runtime: RuntimeDep) -> Response:
    await delete_console_session(runtime, request.cookies.get(SESSION_COOKIE, ""))
    response = RedirectResponse(f"{COOKIE_PATH}/login", 303)
    response.delete_cookie(SESSION_COOKIE, path=COOKIE_PATH)
    return response


@public.get("/preferences")
async def set_preferences(
    request: Request,
    language: str = "",
    theme: str = "",
    next: Annotated[str, Query(max_length=4_000)] = "",
) -> Response:
    """Store the language and the theme in cookies. They change how pages look, nothing else."""
    response = RedirectResponse(local_address(next), 303)
    chosen = {LANGUAGE_COOKIE: (language, tuple(LANGUAGES)), THEME_COOKIE: (theme, THEMES)}
    for name, (value, known) in chosen.items():
        if value in known:
            response.set_cookie(
                name,
                value,
                max_age=PREFERENCE_SECONDS,
                path=COOKIE_PATH,
                secure=request.url.scheme == "https",
                httponly=True,
                samesite="strict",
            )
    return response


@private.get("/more")
async def show_more(visit: CurrentVisit, caller: Reader) -> Response:
    """What the console does not do, and the command that does it."""
    return render_page(visit, "more.html")


@private.get("/{path:path}")
async def show_missing_page(path: str) -> Response:
    raise NotFound(NO_PAGE)


root = APIRouter(include_in_schema=False)


@root.get("/")
async def go_to_console() -> Response:
    return RedirectResponse(COOKIE_PATH, 307)


router = APIRouter()
for part in (root, public, *PAGES, private):
    router.include_router(part)
