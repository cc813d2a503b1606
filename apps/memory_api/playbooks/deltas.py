"""Applies deltas to a playbook state, all or none. Pure: no database, no model.

`apply_deltas` raises `DeltaError`, which names the index, for an invalid delta. A valid delta that
cannot be applied (pinned bullet, duplicate content, no change) gets a result with action
`rejected`, and the other deltas are applied. `clean_deltas` selects the applicable deltas of a
model.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from memory_api.core.errors import field_problem
from memory_api.playbooks.models import (
    Bullet,
    DeltaAction,
    DeltaContextItem,
    DeltaResult,
    Playbook,
)
from memory_api.playbooks.sections import SectionDefinition, find_section, with_fallback
from memory_api.playbooks.state import PlaybookState, next_key, raise_counters

MAX_DELTAS = 10
"""Default maximum number of deltas that `clean_deltas` accepts."""
_FIELDS = {"type"} | {
    name
    for model_field, info in DeltaContextItem.model_fields.items()
    for name in (model_field, *getattr(info.validation_alias, "choices", ()))
}


class DeltaError(ValueError):
    """An invalid delta: no delta of its list was applied. `index` is its index in the list, `field`
    the invalid field.
    """

    def __init__(self, index: int, field: str, reason: str) -> None:
        self.index = index
        self.field = field
        self.reason = reason
        super().__init__(f"deltas.{index}.{field}: {reason}")


@dataclass(frozen=True)
class DroppedDelta:
    """A delta that `clean_deltas` rejected, as it was passed."""

    index: int
    reason: str
    delta: DeltaContextItem | Mapping[str, Any]


def apply_deltas(
    state: PlaybookState, deltas: Sequence[DeltaContextItem]
) -> tuple[PlaybookState, list[DeltaResult]]:
    """Returns the new state and one result per delta, in their order. A delta sees the changes of
    the deltas before it.

    Raises DeltaError for an unknown or merged key, a second delta on a key, a MERGE of fewer than
    two bullets and an empty content. Never changes the given state.
    """
    application = _DeltaApplication(state)
    results = [application.apply(index, delta) for index, delta in enumerate(deltas)]
    return application.state(), results


def clean_deltas(
    playbook: Playbook | PlaybookState,
    deltas: Sequence[DeltaContextItem | Mapping[str, Any]],
    limit: int = MAX_DELTAS,
) -> tuple[list[DeltaContextItem], list[DroppedDelta]]:
    """Returns the deltas that can be applied, at most `limit`, and the dropped ones with a reason.

    Unknown fields and nulls of a mapping are ignored.
    """
    state = (
        playbook if isinstance(playbook, PlaybookState) else PlaybookState.from_playbook(playbook)
    )
    application = _DeltaApplication(state)
    accepted: list[DeltaContextItem] = []
    dropped: list[DroppedDelta] = []
    for index, item in enumerate(deltas):
        if len(accepted) == limit:
            dropped.append(DroppedDelta(index, f"More than {limit} deltas.", item))
            continue
        try:
            delta = _parse(item)
            result = application.apply(index, delta)
        except DeltaError as error:
            dropped.append(DroppedDelta(index, error.reason, item))
        except ValidationError as error:
            dropped.append(DroppedDelta(index, _first_problem(error), item))
        else:
            if result.action == "rejected":
                dropped.append(DroppedDelta(index, result.reason, item))
            else:
                accepted.append(delta)
    return accepted, dropped


def _parse(item: DeltaContextItem | Mapping[str, Any]) -> DeltaContextItem:
    if isinstance(item, DeltaContextItem):
        return item
    fields = {k: v for k, v in item.items() if k in _FIELDS and v is not None}
    return DeltaContextItem.model_validate(fields)


def _first_problem(error: ValidationError) -> str:
    return str(field_problem(error.errors(include_url=False)[0]))


def normalize_content(text: str) -> str:
    """The text in one case, width and spacing. Two bullets with equal results are duplicates."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _union(lists: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(item for items in lists for item in items))


class _DeltaApplication:
    """A mutable copy of a state. It is discarded if a delta is invalid."""

    def __init__(self, state: PlaybookState) -> None:
        self._sections = state.sections
        self._bullets = dict(state.bullets)
        self._aliases = dict(state.aliases)
        self._key_counters = raise_counters(state.key_counters, [*state.bullets, *state.aliases])
        self._keys_by_content: dict[str, list[str]] = {}
        for bullet in self._bullets.values():
            self._keys_by_content.setdefault(normalize_content(bullet.content), []).append(
                bullet.id
            )
        self._changed_by: dict[str, int] = {}

    def state(self) -> PlaybookState:
        return PlaybookState(self._bullets, self._sections, self._key_counters, self._aliases)

    def apply(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        """Validates before it changes anything, so an invalid delta has no effect."""
        match delta.type:
            case "ADD":
                return self._add(index, delta)
            case "MERGE":
                return self._merge(index, delta)
            case "UPDATE":
                return self._update(index, delta)
            case "DELETE":
                return self._delete(index, delta)
            case "KEEP":
                key = self._require_key(index, "bullet_id", delta.bullet_id)
                self._changed_by[key] = index
                bullet = self._bullets[key]
                return self._result(index, delta, "kept", key, before=bullet, after=bullet)

    def _add(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        if not delta.content.strip():
            raise DeltaError(index, "content", "ADD requires `content`")
        if duplicate := self._find_duplicate(delta.content):
            return self._rejected(
                index, delta, duplicate, f"Bullet {duplicate} already has this content."
            )
        section = find_section(self._sections, delta.section) or self._fallback_section()
        last = self._key_counters.get(section.slug, 0)
        key, number = next_key(section.slug, last, self._bullets, self._aliases)
        self._key_counters[section.slug] = number
        bullet = bullet_from_delta(delta, key, section.name)
        self._changed_by[key] = index
        self._set_bullet(bullet)
        return self._result(index, delta, "added", key, after=bullet)

    def _update(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        key = self._require_key(index, "bullet_id", delta.bullet_id)
        before = self._bullets[key]
        changes = {k: v for k, v in _changes(delta).items() if v != getattr(before, k)}
        if before.pinned:
            return self._rejected(index, delta, key, f"Bullet {key} is pinned.")
        if not changes:
            return self._rejected(index, delta, key, "The delta changes nothing.")
        duplicate = self._find_duplicate(changes.get("content", ""))
        if duplicate and duplicate != key:
            return self._rejected(
                index, delta, key, f"Bullet {duplicate} already has this content."
            )
        after = _rewritten(before, changes)
        self._changed_by[key] = index
        self._set_bullet(after)
        return self._result(index, delta, "updated", key, before=before, after=after)

    def _delete(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        key = self._require_key(index, "bullet_id", delta.bullet_id)
        if self._bullets[key].pinned:
            return self._rejected(index, delta, key, f"Bullet {key} is pinned.")
        self._changed_by[key] = index
        return self._result(index, delta, "deleted", key, before=self._remove_bullet(key))

    def _merge(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        target = [delta.bullet_id] if delta.bullet_id else []
        keys = list(dict.fromkeys([*target, *delta.source_ids]))
        if len(keys) < 2:
            raise DeltaError(index, "source_ids", "MERGE requires at least two different bullets")
        for key in keys:
            self._require_key(index, "bullet_id" if key in target else "source_ids", key)
        survivor = keys[0]
        for key in keys:
            if self._bullets[key].pinned:
                return self._rejected(index, delta, survivor, f"Bullet {key} is pinned.")
        duplicate = self._find_duplicate(delta.content)
        if duplicate and duplicate not in keys:
            return self._rejected(
                index, delta, survivor, f"Bullet {duplicate} already has this content."
            )
        before = self._bullets[survivor]
        after = _merged([self._bullets[key] for key in keys], _changes(delta))
        absorbed = [self._remove_bullet(key) for key in keys[1:]]
        self._changed_by |= dict.fromkeys(keys, index)
        self._add_aliases(keys[1:], survivor)
        self._set_bullet(after)
        return self._result(
            index, delta, "merged", survivor, before=before, after=after, absorbed=absorbed
        )

    def _require_key(self, index: int, field: str, key: str | None) -> str:
        """The key. Raises DeltaError if it is unknown or already changed by another delta."""
        if not key:
            raise DeltaError(index, field, "a bullet key is required")
        if (earlier := self._changed_by.get(key)) is not None:
            raise DeltaError(index, field, f"{key} is already changed by deltas.{earlier}")
        if key in self._aliases:
            raise DeltaError(index, field, f"{key} was merged into {self._aliases[key]}")
        if key not in self._bullets:
            raise DeltaError(index, field, f"bullet {key} not found")
        return key

    def _find_duplicate(self, content: str) -> str | None:
        keys = self._keys_by_content.get(normalize_content(content)) if content.strip() else None
        return keys[0] if keys else None

    def _fallback_section(self) -> SectionDefinition:
        """The section OTHERS. It is added to the playbook if it is missing."""
        self._sections = with_fallback(self._sections)
        section = find_section(self._sections, "OTHERS")
        assert section is not None, "with_fallback adds OTHERS"
        return section

    def _set_bullet(self, bullet: Bullet) -> None:
        if old := self._bullets.get(bullet.id):
            self._keys_by_content[normalize_content(old.content)].remove(bullet.id)
        self._bullets[bullet.id] = bullet
        self._keys_by_content.setdefault(normalize_content(bullet.content), []).append(bullet.id)

    def _remove_bullet(self, key: str) -> Bullet:
        bullet = self._bullets.pop(key)
        self._keys_by_content[normalize_content(bullet.content)].remove(key)
        return bullet

    def _add_aliases(self, merged: list[str], survivor: str) -> None:
        for alias, target in self._aliases.items():
            if target in merged:
                self._aliases[alias] = survivor
        self._aliases |= dict.fromkeys(merged, survivor)

    def _rejected(self, index: int, delta: DeltaContextItem, key: str, reason: str) -> DeltaResult:
        return self._result(index, delta, "rejected", key, reason=reason)

    def _result(
        self,
        index: int,
        delta: DeltaContextItem,
        action: DeltaAction,
        key: str,
        **fields: Any,
    ) -> DeltaResult:
        reason = fields.pop("reason", delta.reasoning)
        return DeltaResult(
            index=index, type=delta.type, action=action, key=key, reason=reason, **fields
        )


def bullet_from_delta(delta: DeltaContextItem, key: str, section: str) -> Bullet:
    return Bullet(
        id=key,
        section=section,
        content=delta.content,
        when_to_use=delta.when_to_use or "",
        title=delta.title or "",
        keywords=delta.keywords or [],
        tags=delta.tags or [],
    )


def _changes(delta: DeltaContextItem) -> dict[str, Any]:
    """The fields of a bullet that the delta sets. An empty content sets nothing."""
    fields = {
        "content": delta.content if delta.content.strip() else None,
        "when_to_use": delta.when_to_use,
        "title": delta.title,
        "keywords": delta.keywords,
        "tags": delta.tags,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _rewritten(bullet: Bullet, changes: Mapping[str, Any]) -> Bullet:
    """The bullet with these changes and a new default search text."""
    after = bullet.model_copy(update=dict(changes))
    return after.model_copy(update={"searchable_text": after.default_searchable_text()})


def _merged(bullets: Sequence[Bullet], changes: Mapping[str, Any]) -> Bullet:
    """The first bullet with the summed counters of all. Keywords and tags are united unless
    `changes` sets them.
    """
    united: dict[str, Any] = {
        "keywords": _union(b.keywords for b in bullets),
        "tags": _union(b.tags for b in bullets),
        "source_trajectory": ", ".join(
            _union([b.source_trajectory] for b in bullets if b.source_trajectory)
        ),
        "helpful": sum(b.helpful for b in bullets),
        "harmful": sum(b.harmful for b in bullets),
        "neutral": sum(b.neutral for b in bullets),
    }
    return _rewritten(bullets[0], united | dict(changes))
