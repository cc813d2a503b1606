"""What routes of playbooks depend on, and how they page and tag."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request, Response

from apps.memory_api.core.errors import Invalid
from apps.memory_api.playbook.compose import section_loader
from apps.memory_api.playbook.rows import Author
from apps.memory_api.playbook.servings import ServingLog
from apps.memory_api.tenants.identity import Access, Identity

_TAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?')


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Servings are written in the background for as long as the API runs. A broken file of sections
    keeps it from starting.
    """
    section_loader(app.state.runtime.settings).check()
    async with ServingLog(app.state.runtime.sessions).running() as servings:
        app.state.servings = servings
        yield


def servings_of(request: Request) -> ServingLog:
    return request.app.state.servings


def author_of(caller: Identity, reason: str | None) -> Author:
    """Who changes a playbook over HTTP. An admin key needs nobody's consent."""
    return Author(caller.actor, reason, decides=caller.may(Access.ADMIN))


Servings = Annotated[ServingLog, Depends(servings_of)]


def read_if_match(
    if_match: Annotated[
        str | None, Header(description="The version the playbook must be at; else 412.")
    ] = None,
) -> int | None:
    """The version that If-Match asks for; None for none and for `*`."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        raise Invalid('A version as its ETag says it, like "7".', field="If-Match")
    return int(found[1])


IfMatch = Annotated[int | None, Depends(read_if_match)]


def tag(response: Response, version: int) -> None:
    """The version as an ETag, to be sent back in If-Match."""
    response.headers["ETag"] = f'"{version}"'


def encode_cursor(place: str) -> str:
    return base64.urlsafe_b64encode(f"p {place}".encode()).decode().rstrip("=")


def decode_cursor(text: str | None) -> str | None:
    """Where a page of an ordered list ended. Raises `Invalid` for a cursor of another list."""
    if text is None:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        kind, _, place = raw.decode().partition(" ")
    except (binascii.Error, ValueError):
        kind, place = "", ""
    if kind != "p" or not place or "\0" in place:
        raise Invalid("This cursor did not come from this list.", field="cursor")
    return place
