"""Update a curation plan to the current playbook, which may have changed since the plan was
computed.

Pure: the caller loads the changes under the playbook's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from memory_api.curation.context import EarlierDecision
from memory_api.curation.rules import OPEN_PROPOSAL_REASON
from memory_api.curation.schemas import (
    CurationPlan,
    Decisions,
    KnownLesson,
    ProposedChange,
    RejectedLesson,
)
from memory_api.memories.index.drafts import fingerprint
from memory_api.playbooks.deltas import clean_deltas
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.state import PlaybookState

MAX_PLAN_DELTAS = 48
"""Changes of one plan: a batch of 16 lessons needs fewer."""


def drop_inapplicable(
    state: PlaybookState, candidates: Sequence[ProposedChange], limit: int = MAX_PLAN_DELTAS
) -> tuple[list[ProposedChange], list[RejectedLesson]]:
    """The candidates that `apply_deltas` accepts on this state, at most `limit`, and the rejected
    ones with reasons. None changes a pinned bullet, or a bullet twice.
    """
    deltas = [candidate.delta for candidate in candidates]
    reasons = {dropped.index: dropped.reason for dropped in clean_deltas(state, deltas, limit)[1]}
    rejected = [
        RejectedLesson(
            reason=reason,
            lessons=candidates[index].lessons,
            delta=deltas[index].model_dump(mode="json", exclude_defaults=True),
            retry=True,
        )
        for index, reason in reasons.items()
    ]
    return [each for index, each in enumerate(candidates) if index not in reasons], rejected


@dataclass(frozen=True)
class CurrentPlaybook:
    """The current playbook: the bullets that the curation names, those with the text of a lesson or
    of a change, and the decisions on its lessons.
    """

    state: PlaybookState
    same_text: Mapping[bytes, str] = field(default_factory=dict[bytes, str])
    """Fingerprint of a text → the key of its bullet."""
    changed: frozenset[str] = frozenset()
    """The keys of the bullets that changed since the plan was made."""
    known: Mapping[int, EarlierDecision] = field(default_factory=dict[int, EarlierDecision])
    waiting: Collection[bytes] = ()
    """Fingerprints of the texts that open proposals would add."""


def rebase_plan(plan: CurationPlan, current: CurrentPlaybook) -> Decisions:
    """The plan after the changes of others. A lesson that was added meanwhile is known, a merged
    bullet is replaced by its survivor, and a rewritten bullet is not rewritten again.
    """
    changes: list[ProposedChange] = []
    known_lessons: list[KnownLesson] = []
    rejected_lessons = list(plan.rejected_lessons)
    for candidate in plan.changes:
        rebased = _rebase_change(candidate, plan, current)
        if isinstance(rebased, ProposedChange):
            changes.append(rebased)
        elif isinstance(rebased, str):
            known_lessons += [KnownLesson(lesson=index, key=rebased) for index in candidate.lessons]
        else:
            rejected_lessons.append(rebased)
    for known_lesson in plan.known_lessons:
        key = current.state.resolve(known_lesson.key)
        if key is None:
            rejected_lessons.append(
                RejectedLesson(
                    reason=f"Bullet {known_lesson.key} was deleted.", lessons=[known_lesson.lesson]
                )
            )
        else:
            known_lessons.append(known_lesson.model_copy(update={"key": key}))
    applicable, rejected = drop_inapplicable(current.state, changes)
    decided = {n for change in applicable for n in change.lessons}
    decided |= {known.lesson for known in known_lessons}
    final = set(plan.final_lessons) - decided
    all_rejected = _finalize([*rejected_lessons, *rejected], final)
    return Decisions(applicable, known_lessons, all_rejected)


def _finalize(
    rejected_lessons: Sequence[RejectedLesson], final_lessons: Collection[int]
) -> list[RejectedLesson]:
    """The rejections, permanent for lessons that no further curation decides on."""
    finalized: list[RejectedLesson] = []
    for rejected in rejected_lessons:
        final = [n for n in rejected.lessons if rejected.retry and n in final_lessons]
        if not final:
            finalized.append(rejected)
            continue
        others = [n for n in rejected.lessons if n not in final]
        reason = f"No curation decided on this lesson. The last one: {rejected.reason}"
        finalized.append(RejectedLesson(reason=reason, lessons=final, remember=True))
        if others:
            finalized.append(rejected.model_copy(update={"lessons": others}))
    return finalized


def _rebase_change(
    candidate: ProposedChange, plan: CurationPlan, current: CurrentPlaybook
) -> ProposedChange | str | RejectedLesson:
    """The updated candidate, the key of a matching bullet, or the rejection."""
    change = candidate.delta
    if change.type == "ADD":
        return _rebase_add(candidate, plan, current)
    deleted_keys = [key for key in _target_keys(change) if current.state.resolve(key) is None]
    if deleted_keys:
        return RejectedLesson(
            reason=f"Bullet {deleted_keys[0]} no longer exists.",
            lessons=candidate.lessons,
            retry=True,
        )
    changed = current.changed | current.state.aliases.keys()
    changed_keys = [key for key in _target_keys(change) if key in changed]
    if not changed_keys:
        return candidate
    if change.content and (key := current.same_text.get(fingerprint(change.content))):
        return key
    return RejectedLesson(
        reason=f"Bullet {changed_keys[0]} changed after the curation was computed.",
        lessons=candidate.lessons,
        retry=True,
    )


def _rebase_add(
    candidate: ProposedChange, plan: CurationPlan, current: CurrentPlaybook
) -> ProposedChange | str | RejectedLesson:
    changed = current.changed | current.state.aliases.keys()
    if candidate.depends_on is not None and (
        candidate.depends_on in changed or current.state.resolve(candidate.depends_on) is None
    ):
        return RejectedLesson(reason=f"Bullet {candidate.depends_on} changed.", lessons=[])
    earlier_decisions = [
        current.known[index] for index in candidate.lessons if index in current.known
    ]
    for decision in earlier_decisions:
        if decision.key is not None:
            return decision.key
    texts = [candidate.delta.content, *(plan.lessons[index].text for index in candidate.lessons)]
    fingerprints = [fingerprint(text) for text in texts]
    for text in fingerprints:
        if text in current.same_text:
            return current.same_text[text]
    if earlier_decisions:
        return RejectedLesson(reason=earlier_decisions[0].reason, lessons=candidate.lessons)
    if any(text in current.waiting for text in fingerprints):
        return RejectedLesson(reason=OPEN_PROPOSAL_REASON, lessons=candidate.lessons)
    keys = [current.state.resolve(key) for key in candidate.contradicts]
    return candidate.model_copy(
        update={"contradicts": list(dict.fromkeys(key for key in keys if key is not None))}
    )


def _target_keys(change: DeltaContextItem) -> list[str]:
    return [key for key in (change.bullet_id, *change.source_ids) if key]
