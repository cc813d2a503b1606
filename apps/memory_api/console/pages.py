"""The route class of the console. It checks the session before a page is made, and the CSRF token
of every form. Errors become pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import structlog
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from memory_api.api.bodies import spool_large_response
from memory_api.api.deps import runtime_of
from memory_api.api.problems import to_problem
from memory_api.api.route import refuse_nul
from memory_api.console.error_texts import MISSING, NO_PAGE, explain
from memory_api.console.forms import CSRF_FIELD, SentForm, read_form
from memory_api.console.rendering import render_page
from memory_api.console.session import (
    COOKIE_PATH,
    LOGIN_COOKIE,
    SESSION_COOKIE,
    csrf_token,
    is_csrf_token,
)
from memory_api.console.visit import LoginRequired, Visit, anonymous_visit, begin_visit
from memory_api.core.errors import Forbidden, NotFound

log = structlog.get_logger()

CONSOLE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""`Content-Security-Policy` of all pages: no inline script or style, nothing from other hosts."""
LOGIN_PATH = f"{COOKIE_PATH}/login"
SAFE_METHODS = {"GET", "HEAD"}


class InvalidCsrfToken(Forbidden):
    """This form is too old or was not made by the console. Load the page again."""

    code = "invalid_csrf_token"


class ConsoleRoute(APIRoute):
    """A page that needs a session. A form also needs its CSRF token."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        run_route = super().get_route_handler()

        async def handle(request: Request) -> Response:
            request.state.visit = anonymous_visit(request)
            try:
                refuse_nul(request)
                await self.admit(request)
                response = _answer_form(request, await run_route(request))
            except LoginRequired:
                response = _go_to_login(request)
            except Exception as error:
                await roll_back(request, error)
                response = error_page(request.state.visit, error)
                if response.status_code >= 500:
                    route = self.path_format
                    log.error("console_page_failed", route=route, exc_info=error)
            response.headers.setdefault("Content-Security-Policy", CONSOLE_POLICY)
            response.headers.setdefault("Cache-Control", "no-store")
            return await spool_large_response(response)

        return handle

    async def admit(self, request: Request) -> None:
        runtime = runtime_of(request)
        visit = await begin_visit(request, runtime)
        request.state.visit = visit
        if request.method not in SAFE_METHODS:
            await runtime.upkeep_schedule.mark_active(visit.caller.tenant_id)
            await check_form(request, visit.csrf)


class PublicConsoleRoute(ConsoleRoute):
    """A page without a session. A form needs the token of the login cookie."""

    async def admit(self, request: Request) -> None:
        if request.method not in SAFE_METHODS:
            secret = request.cookies.get(LOGIN_COOKIE, "")
            # The token of an empty secret is the same everywhere, so it proves nothing.
            await check_form(request, csrf_token(secret) if secret else "")


async def check_form(request: Request, token: str) -> None:
    """Read the form into `request.state.form`. Raises `InvalidCsrfToken`."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise InvalidCsrfToken
    form = await read_form(request)
    if not token or not is_csrf_token(form.text(CSRF_FIELD), token):
        raise InvalidCsrfToken
    request.state.form = form


async def roll_back(request: Request, error: Exception) -> None:
    """End the transaction of the request as failed. FastAPI would commit it, because an error page
    is a response like any other.
    """
    transaction = getattr(request.state, "transaction", None)
    if transaction is not None:
        await transaction.__aexit__(type(error), error, error.__traceback__)


def _answer_form(request: Request, response: Response) -> Response:
    """For `console.js`, a redirect after a form becomes a header: a script cannot read where a
    redirect leads before it has followed it.
    """
    if request.state.visit.is_form_of_script and "location" in response.headers:
        response.status_code = 204
        response.headers["Hansei-Location"] = response.headers["location"]
        del response.headers["location"], response.headers["content-length"]
    return response


def _go_to_login(request: Request) -> Response:
    visit = anonymous_visit(request)
    if visit.is_form_of_script:
        return render_page(visit, "form_error.html", 401, detail="", field="")
    if visit.is_partial:
        return Response(status_code=401)  # console.js loads the page again, which goes to the login
    target = visit.link(
        "login",
        next=visit.here if request.method in SAFE_METHODS else None,
        ended="yes" if SESSION_COOKIE in request.cookies else None,
    )
    return RedirectResponse(target, 303)


def error_page(visit: Visit, error: Exception) -> Response:
    """Any error as a page, with the status and the text of the API; for `console.js`, what is wrong
    with its form.
    """
    problem = to_problem(_as_missing_page(error))
    body = json.loads(bytes(problem.body))
    status, detail = problem.status_code, explain(body["detail"], visit.translation)
    if visit.is_form_of_script:
        field = next((item["field"] for item in body.get("errors") or ()), "")
        response = render_page(visit, "form_error.html", status, detail=detail, field=field)
    else:
        response = render_page(visit, "error.html", status, detail=detail, code=status)
    if "retry-after" in problem.headers:
        response.headers["Retry-After"] = problem.headers["retry-after"]
    return response


def _as_missing_page(error: Exception) -> Exception:
    """A mistyped ID or name in the address is a page that does not exist."""
    if isinstance(error, RequestValidationError):
        item = error.errors()[0]
        if item["type"] in ("uuid_parsing", "enum") and item["loc"][0] == "path":
            return NotFound(MISSING.get(item["loc"][-1], NO_PAGE))
    return error


async def _get_visit(request: Request) -> Visit:
    return request.state.visit


async def _get_form(request: Request) -> SentForm:
    return request.state.form


CurrentVisit = Annotated[Visit, Depends(_get_visit)]
Form = Annotated[SentForm, Depends(_get_form)]
