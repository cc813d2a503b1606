"""Dependencies of playbook routes: `If-Match`, `ETag`, and the author of a change."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header, Response

from memory_api.auth.identity import Identity, KeyScope
from memory_api.core.errors import InvalidRequest
from memory_api.core.secret_redaction import redact
from memory_api.playbooks.ref import ChangeAuthor

_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?')


def change_author(caller: Identity, reason: str | None) -> ChangeAuthor:
    """The author of a change over HTTP. Changes by an admin key need no review. Secrets in the
    reason are replaced, because it is stored and may come from a query parameter.
    """
    clean = redact(reason).text if reason else reason
    return ChangeAuthor(caller.actor, clean, may_bypass_review=caller.has_scope(KeyScope.ADMIN))


async def read_if_match(
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            description='The version that the playbook must have, as its `ETag`: `"7"`. Else 412.',
        ),
    ] = None,
) -> int | None:
    """The version in `If-Match`; None without the header and for `*`."""
    if if_match is None or if_match.strip() == "*":
        return None
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise InvalidRequest(
            '`If-Match` must be a version as in the `ETag` header, such as "7".', field="If-Match"
        )
    return int(match[1])


IfMatch = Annotated[int | None, Depends(read_if_match)]


def set_etag(response: Response, version: int) -> None:
    response.headers["ETag"] = f'"{version}"'
