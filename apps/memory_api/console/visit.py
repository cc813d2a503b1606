"""One request to the console: the browser's settings, the login, and the links of its page."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fastapi import Request

from memory_api.api.deps import api_state_of
from memory_api.auth.identity import Identity, KeyScope
from memory_api.console.session import COOKIE_PATH, SESSION_COOKIE, Login, find_login
from memory_api.console.translations import Translation, choose_language, load_translation
from memory_api.core.errors import Unauthorized
from memory_api.core.log_context import bind_log_context
from memory_api.runtime import Runtime

LANGUAGE_COOKIE = "hansei_language"
THEME_COOKIE = "hansei_theme"
THEMES = ("system", "light", "dark")
HOME = COOKIE_PATH


class LoginRequired(Unauthorized):
    """Log in to see this page."""


@dataclass(frozen=True)
class Visit:
    """The request, and what every page needs to know about it."""

    request: Request
    translation: Translation
    theme: str
    login: Login | None = None
    project: str = "default"

    def may(self, scope: str) -> bool:
        """Whether the API key has this scope: `read`, `write` or `admin`."""
        return self.login is not None and self.login.caller.has_scope(KeyScope(scope))

    @property
    def caller(self) -> Identity:
        """The owner of the session. Raises `LoginRequired`."""
        if self.login is None:
            raise LoginRequired
        return self.login.caller

    @property
    def csrf(self) -> str:
        return self.login.csrf if self.login else ""

    @property
    def own_project(self) -> str | None:
        """The project that the key is bound to."""
        return self.login.caller.project_id if self.login else None

    def link(self, *segments: str, **query: object) -> str:
        """The address of a page in the project of this visit: `link("playbooks", name, page=2)`.

        Parameters that are None or empty are left out.
        """
        path = "/".join([COOKIE_PATH, *(quote(str(s), safe="") for s in segments)])
        values = {name: value for name, value in query.items() if value not in (None, "", False)}
        if self.project != (self.own_project or "default"):
            values.setdefault("project", self.project)
        return f"{path}?{urlencode(values)}" if values else path

    @property
    def here(self) -> str:
        """The address of this page."""
        url = self.request.url
        return f"{url.path}?{url.query}" if url.query else url.path

    @property
    def section(self) -> str:
        """The first segment of the address, empty for the first page."""
        return (self.request.url.path.split("/") + [""] * 3)[2]

    @property
    def later(self) -> str:
        """Whether to load what takes long: empty in the first request for a page; `part` when
        `console.js` asks for it; `page` when a browser without scripts does.
        """
        wanted = self.request.query_params.get("later", "")
        return wanted if wanted in ("part", "page") else ""

    def later_address(self, kind: str) -> str:
        """The address of this page with `later`."""
        return str(self.request.url.include_query_params(later=kind).replace(scheme="", netloc=""))

    @property
    def is_partial(self) -> bool:
        """Whether `console.js` asks for a part of a page."""
        return self.request.headers.get("hansei-part") == "true"

    @property
    def is_form_of_script(self) -> bool:
        """Whether `console.js` sends a form."""
        return self.is_partial and self.request.method == "POST"


def anonymous_visit(request: Request) -> Visit:
    cookies = request.cookies
    language = choose_language(
        cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", "")
    )
    theme = cookies.get(THEME_COOKIE, "")
    return Visit(request, load_translation(language), theme if theme in THEMES else THEMES[0])


async def begin_visit(request: Request, runtime: Runtime) -> Visit:
    """The visit of a person with a valid session. Raises `LoginRequired`, and `Forbidden` for a
    project that the key may not see.
    """
    visit = anonymous_visit(request)
    login = await find_login(runtime, request.cookies.get(SESSION_COOKIE, ""))
    if login is None:
        raise LoginRequired
    bind_log_context(tenant_id=login.caller.tenant_id, key_id=login.caller.key_id)
    request.state.identity = login.caller  # `api.deps.authenticate` finds the caller here
    request.state.rate_limit = api_state_of(request).rate_limits.count_request(login.caller)
    project = login.caller.resolve_project(request.query_params.get("project") or None)
    return Visit(request, visit.translation, visit.theme, login, project)


def local_address(text: str) -> str:
    """The text if it is the address of a page of the console, else the address of the first one."""
    is_local = text == HOME or text.startswith((f"{HOME}/", f"{HOME}?"))
    is_plain = text.isascii() and text.isprintable() and "\\" not in text and "//" not in text
    return text if is_local and is_plain and "/.." not in text else HOME
