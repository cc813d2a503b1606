"""Errors of requests on playbooks, with their HTTP status and code."""

from __future__ import annotations

from memory_api.core.errors import (
    Conflict,
    Forbidden,
    HanseiError,
    InvalidRequest,
    NotFound,
    ServiceUnavailable,
)
from memory_api.playbooks.deltas import DeltaError
from memory_api.playbooks.models import CorruptPlaybook
from memory_api.playbooks.tables import PlaybookRow


class PlaybookNotFound(NotFound):
    """Playbook not found."""


class BulletNotFound(NotFound):
    """Bullet not found in this playbook."""


class VersionMismatch(HanseiError):
    """The playbook is not at the version that `If-Match` requires."""

    status, code = 412, "precondition_failed"


class PlaybookFull(Conflict):
    """The playbook has reached `max_bullets`."""

    code = "playbook_full"


class ReviewRequired(Forbidden):
    """This playbook requires review: propose deltas (POST …/deltas), or use a key with the 'admin'
    scope.
    """

    code = "under_review"

    def __init__(self) -> None:
        super().__init__(" ".join((type(self).__doc__ or "").split()))


class PlaybookContended(ServiceUnavailable):
    """Too many concurrent changes of this playbook. Try again."""


def invalid_delta(error: DeltaError) -> InvalidRequest:
    return InvalidRequest(
        str(error), field=f"deltas.{error.index}.{error.field}", index=error.index
    )


def invalid_document(error: CorruptPlaybook) -> InvalidRequest:
    return InvalidRequest(str(error), field=error.location)


def bullet_not_found(playbook: PlaybookRow, key: str) -> BulletNotFound:
    """The error for a missing bullet. It names the survivor if the bullet was merged."""
    survivor = playbook.aliases.get(key)
    if survivor is None:
        return BulletNotFound()
    return BulletNotFound(f"Bullet {key} was merged into {survivor}.", merged_into=survivor)
