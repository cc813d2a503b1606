"""Edits of a playbook as plain code: a list of deltas is applied whole or not at all.

`apply_deltas` raises `DeltaError`, which names the index, for a delta that makes no sense. One that
makes sense but is refused (a pinned bullet, the same words again, no change) is a result with
action `rejected`, and the rest goes on. `clean_deltas` keeps what would be applied, for deltas that
a model wrote.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from apps.memory_api.playbook.keys import lift, next_key
from apps.memory_api.playbook.schemas import (
    Bullet,
    DeltaAction,
    DeltaContextItem,
    DeltaResult,
    Playbook,
)
from apps.memory_api.playbook.sections import (
    SectionDefinition,
    find_section,
    with_fallback,
)
from apps.memory_api.playbook.state import PlaybookState

MAX_DELTAS = 10
"""What `clean_deltas` lets one run change, unless told otherwise."""
_FIELDS = {"type"} | {
    name
    for model_field, info in DeltaContextItem.model_fields.items()
    for name in (model_field, *getattr(info.validation_alias, "choices", ()))
}


class DeltaError(ValueError):
    """A delta that cannot be applied: none of its list was. `index` is its place, `field` what is
    wrong in it.
    """

    def __init__(self, index: int, field: str, reason: str) -> None:
        self.index = index
        self.field = field
        self.reason = reason
        super().__init__(f"deltas[{index}].{field}: {reason}")


@dataclass(frozen=True)
class DroppedDelta:
    """A delta that `clean_deltas` took out. `delta` is as it was given."""

    index: int
    reason: str
    delta: DeltaContextItem | Mapping[str, Any]


def apply_deltas(
    state: PlaybookState, deltas: Sequence[DeltaContextItem]
) -> tuple[PlaybookState, list[DeltaResult]]:
    """The new state, and one result per delta in their order. Each delta sees what those before it
    did.

    Raises DeltaError for an unknown or merged key, a second delta on a key, a MERGE of fewer than
    two bullets and an empty text; the given state is never changed.
    """
    draft = _Draft(state)
    results = [draft.apply(index, delta) for index, delta in enumerate(deltas)]
    return draft.state(), results


def clean_deltas(
    playbook: Playbook | PlaybookState,
    deltas: Sequence[DeltaContextItem | Mapping[str, Any]],
    limit: int = MAX_DELTAS,
) -> tuple[list[DeltaContextItem], list[DroppedDelta]]:
    """What can be applied to this playbook, at most `limit` deltas, and what was dropped and why.

    Of a mapping, fields that no delta has, and nulls, are ignored.
    """
    state = playbook if isinstance(playbook, PlaybookState) else PlaybookState.of(playbook)
    draft = _Draft(state)
    kept: list[DeltaContextItem] = []
    dropped: list[DroppedDelta] = []
    for index, given in enumerate(deltas):
        if len(kept) == limit:
            dropped.append(DroppedDelta(index, f"more than {limit} deltas", given))
            continue
        try:
            delta = _parse(given)
            result = draft.apply(index, delta)
        except DeltaError as error:
            dropped.append(DroppedDelta(index, error.reason, given))
        except ValidationError as error:
            dropped.append(DroppedDelta(index, _first_problem(error), given))
        else:
            if result.action == "rejected":
                dropped.append(DroppedDelta(index, result.reason, given))
            else:
                kept.append(delta)
    return kept, dropped


def _parse(given: DeltaContextItem | Mapping[str, Any]) -> DeltaContextItem:
    if isinstance(given, DeltaContextItem):
        return given
    said = {k: v for k, v in given.items() if k in _FIELDS and v is not None}
    return DeltaContextItem.model_validate(said)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def plain_words(text: str) -> str:
    """The text without case, width and spacing: two texts equal in this say the same words."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _union(lists: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(item for items in lists for item in items))


class _Draft:
    """A state while deltas are being applied to it; thrown away when one fails."""

    def __init__(self, state: PlaybookState) -> None:
        self._sections = state.sections
        self._bullets = dict(state.bullets)
        self._aliases = dict(state.aliases)
        self._numbers = lift(state.last_numbers, [*state.bullets, *state.aliases])
        self._words: dict[str, list[str]] = {}
        for bullet in self._bullets.values():
            self._words.setdefault(plain_words(bullet.content), []).append(bullet.id)
        self._touched: dict[str, int] = {}

    def state(self) -> PlaybookState:
        return PlaybookState(self._bullets, self._sections, self._numbers, self._aliases)

    def apply(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        """Checks first and changes last, so that a delta that fails leaves the draft as it was."""
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
                key = self._target(index, "bullet_id", delta.bullet_id)
                self._touched[key] = index
                bullet = self._bullets[key]
                return self._result(index, delta, "kept", key, before=bullet, after=bullet)

    def _add(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        if not delta.content.strip():
            raise DeltaError(index, "content", "an ADD needs a text")
        if twin := self._twin(delta.content):
            return self._rejected(index, delta, twin, f"the same words as {twin}")
        section = find_section(self._sections, delta.section) or self._fallback()
        last = self._numbers.get(section.slug, 0)
        key, number = next_key(section.slug, last, self._bullets, self._aliases)
        self._numbers[section.slug] = number
        bullet = bullet_of(delta, key, section.name)
        self._touched[key] = index
        self._put(bullet)
        return self._result(index, delta, "added", key, after=bullet)

    def _update(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        key = self._target(index, "bullet_id", delta.bullet_id)
        before = self._bullets[key]
        changes = {k: v for k, v in _changes(delta).items() if v != getattr(before, k)}
        if before.pinned:
            return self._rejected(index, delta, key, f"{key} is pinned")
        if not changes:
            return self._rejected(index, delta, key, "it changes nothing")
        twin = self._twin(changes.get("content", ""))
        if twin and twin != key:
            return self._rejected(index, delta, key, f"the same words as {twin}")
        after = _rewritten(before, changes)
        self._touched[key] = index
        self._put(after)
        return self._result(index, delta, "updated", key, before=before, after=after)

    def _delete(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        key = self._target(index, "bullet_id", delta.bullet_id)
        if self._bullets[key].pinned:
            return self._rejected(index, delta, key, f"{key} is pinned")
        self._touched[key] = index
        return self._result(index, delta, "deleted", key, before=self._pop(key))

    def _merge(self, index: int, delta: DeltaContextItem) -> DeltaResult:
        named = [delta.bullet_id] if delta.bullet_id else []
        keys = list(dict.fromkeys([*named, *delta.source_ids]))
        if len(keys) < 2:
            raise DeltaError(index, "source_ids", "a MERGE needs two different bullets or more")
        for key in keys:
            self._target(index, "bullet_id" if key in named else "source_ids", key)
        survivor = keys[0]
        for key in keys:
            if self._bullets[key].pinned:
                return self._rejected(index, delta, survivor, f"{key} is pinned")
        twin = self._twin(delta.content)
        if twin and twin not in keys:
            return self._rejected(index, delta, survivor, f"the same words as {twin}")
        before = self._bullets[survivor]
        after = _merged([self._bullets[key] for key in keys], _changes(delta))
        absorbed = [self._pop(key) for key in keys[1:]]
        self._touched |= dict.fromkeys(keys, index)
        self._redirect(keys[1:], survivor)
        self._put(after)
        return self._result(
            index, delta, "merged", survivor, before=before, after=after, absorbed=absorbed
        )

    def _target(self, index: int, where: str, key: str | None) -> str:
        """The key, known and not yet touched by another delta of the list."""
        if not key:
            raise DeltaError(index, where, "it does not say which bullet")
        if (earlier := self._touched.get(key)) is not None:
            raise DeltaError(index, where, f"{key} is already changed by deltas[{earlier}]")
        if key in self._aliases:
            raise DeltaError(index, where, f"{key} was merged into {self._aliases[key]}")
        if key not in self._bullets:
            raise DeltaError(index, where, f"there is no bullet {key}")
        return key

    def _twin(self, content: str) -> str | None:
        same = self._words.get(plain_words(content)) if content.strip() else None
        return same[0] if same else None

    def _fallback(self) -> SectionDefinition:
        """OTHERS, which the playbook gets when it has something to put there."""
        self._sections = with_fallback(self._sections)
        section = find_section(self._sections, "OTHERS")
        assert section is not None, "with_fallback put one there"
        return section

    def _put(self, bullet: Bullet) -> None:
        if old := self._bullets.get(bullet.id):
            self._words[plain_words(old.content)].remove(bullet.id)
        self._bullets[bullet.id] = bullet
        self._words.setdefault(plain_words(bullet.content), []).append(bullet.id)

    def _pop(self, key: str) -> Bullet:
        bullet = self._bullets.pop(key)
        self._words[plain_words(bullet.content)].remove(key)
        return bullet

    def _redirect(self, gone: list[str], survivor: str) -> None:
        for alias, target in self._aliases.items():
            if target in gone:
                self._aliases[alias] = survivor
        self._aliases |= dict.fromkeys(gone, survivor)

    def _rejected(self, index: int, delta: DeltaContextItem, key: str, reason: str) -> DeltaResult:
        return self._result(index, delta, "rejected", key, reason=reason)

    def _result(
        self,
        index: int,
        delta: DeltaContextItem,
        action: DeltaAction,
        key: str,
        **rest: Any,
    ) -> DeltaResult:
        reason = rest.pop("reason", delta.reasoning)
        return DeltaResult(
            index=index, type=delta.type, action=action, key=key, reason=reason, **rest
        )


def bullet_of(delta: DeltaContextItem, key: str, section: str) -> Bullet:
    """The bullet that an ADD makes."""
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
    """What the delta says about the text of a bullet; an empty content says nothing."""
    given = {
        "content": delta.content if delta.content.strip() else None,
        "when_to_use": delta.when_to_use,
        "title": delta.title,
        "keywords": delta.keywords,
        "tags": delta.tags,
    }
    return {name: value for name, value in given.items() if value is not None}


def _rewritten(bullet: Bullet, changes: Mapping[str, Any]) -> Bullet:
    """The bullet with these changes; its search text is made anew, as it was of the old words."""
    after = bullet.model_copy(update=dict(changes))
    return after.model_copy(update={"searchable_text": after.default_searchable_text()})


def _merged(bullets: Sequence[Bullet], changes: Mapping[str, Any]) -> Bullet:
    """The first bullet with the counters of all; keywords and tags are joined unless given."""
    joined: dict[str, Any] = {
        "keywords": _union(b.keywords for b in bullets),
        "tags": _union(b.tags for b in bullets),
        "source_trajectory": ", ".join(
            _union([b.source_trajectory] for b in bullets if b.source_trajectory)
        ),
        "helpful": sum(b.helpful for b in bullets),
        "harmful": sum(b.harmful for b in bullets),
        "neutral": sum(b.neutral for b in bullets),
    }
    return _rewritten(bullets[0], joined | dict(changes))
