"""What can be wrong with a request about a playbook, as HTTP says it."""

from __future__ import annotations

from apps.memory_api.core.errors import (
    Conflict,
    Forbidden,
    HanseiError,
    Invalid,
    NotFound,
    Unavailable,
)
from apps.memory_api.playbook.deltas import DeltaError
from apps.memory_api.playbook.schemas import CorruptPlaybook


class NoPlaybook(NotFound):
    """There is no such playbook."""


class NoBullet(NotFound):
    """There is no such bullet in this playbook."""


class Stale(HanseiError):
    """The playbook is not at the version of If-Match any more."""

    status, code = 412, "precondition_failed"


class Full(Conflict):
    """The playbook has as many bullets as it may have."""

    code = "playbook_full"


class UnderReview(Forbidden):
    """This playbook is under review: propose deltas (POST …/deltas), or use a key with the 'admin'
    scope.
    """

    code = "under_review"

    def __init__(self) -> None:
        super().__init__(" ".join((type(self).__doc__ or "").split()))


class TooBusy(Unavailable):
    """Too many others are changing this playbook; try again."""


def delta_refused(error: DeltaError) -> Invalid:
    return Invalid(str(error), field=f"deltas[{error.index}].{error.field}", index=error.index)


def corrupt(error: CorruptPlaybook) -> Invalid:
    return Invalid(str(error), field=error.place)
