"""Which playbook a change is for, and who makes it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from memory_api.core.errors import InvalidRequest
from memory_api.core.schemas import MAX_NAME_LENGTH, is_playbook_name
from memory_api.memories.index.scopes import ScopeAddress


@dataclass(frozen=True)
class PlaybookRef:
    """Identifies a playbook of the tenant. Raises `InvalidRequest` for an invalid name."""

    project_id: str
    name: str

    def __post_init__(self) -> None:
        if not is_playbook_name(self.name):
            raise InvalidRequest(
                f"'{self.name[:MAX_NAME_LENGTH]}' is not a valid playbook name.", field="name"
            )

    @property
    def address(self) -> ScopeAddress:
        return (self.project_id, "playbook", self.name)


@dataclass(frozen=True)
class ChangeAuthor:
    """Who changes a playbook, why, and in which run."""

    actor: str | None = None
    reason: str | None = None
    run_id: UUID | None = None
    may_bypass_review: bool = True
    """Whether the change is written without review if `review_mode` is `required`. True for admin
    keys and for changes of the service itself.
    """
