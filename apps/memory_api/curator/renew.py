"""A curation against the playbook as it is now: others may have written since it was thought out.

Pure: what changed since comes in as rows that were read under the playbook's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apps.memory_api.curator.clean import clean
from apps.memory_api.curator.duplicates import Near, opponents, relative, same, twins
from apps.memory_api.curator.rules import grown
from apps.memory_api.curator.schemas import Candidate, Curation, KeptLesson, LeftOut
from apps.memory_api.curator.view import Known
from apps.memory_api.playbook.rolls import join
from apps.memory_api.playbook.schemas import DeltaContextItem
from apps.memory_api.playbook.state import PlaybookState


@dataclass(frozen=True)
class Today:
    """The playbook now: the bullets that the curation names or that say its words, those that
    changed since, and what was decided on its lessons meanwhile.
    """

    state: PlaybookState
    fresh: Sequence[Near] = ()
    """Bullets that changed since, or that say the very words of a lesson."""
    changed: frozenset[str] = frozenset()
    """The keys of those that changed since."""
    known: Mapping[int, Known] = field(default_factory=dict[int, Known])
    waiting: Sequence[str] = ()
    """Texts that wait for a person."""


@dataclass(frozen=True)
class Renewed:
    """What is still to be done."""

    candidates: Sequence[Candidate]
    kept: Sequence[KeptLesson]
    dropped: Sequence[LeftOut]

    @property
    def deltas(self) -> list[DeltaContextItem]:
        return [candidate.delta for candidate in self.candidates]


def renew(curation: Curation, today: Today) -> Renewed:
    """The curation with what others did meanwhile taken into account: a lesson that somebody added
    is kept out, a bullet that was merged is looked for under its survivor, a bullet that was
    rewritten is not rewritten again.
    """
    wanted: list[Candidate] = []
    kept: list[KeptLesson] = []
    dropped = list(curation.dropped)
    for candidate in curation.candidates:
        again = _again(candidate, curation, today)
        if isinstance(again, Candidate):
            wanted.append(again)
        elif isinstance(again, str):
            kept += [KeptLesson(lesson=n, key=again) for n in candidate.lessons]
        else:
            dropped.append(again)
    for keep in curation.kept:
        key = today.state.resolve(keep.key)
        if key is None:
            dropped.append(LeftOut(reason=f"{keep.key} was taken out", lessons=[keep.lesson]))
        else:
            kept.append(keep.model_copy(update={"key": key}))
    good, left = clean(today.state, wanted)
    return Renewed(good, kept, [*dropped, *left])


def _again(candidate: Candidate, curation: Curation, today: Today) -> Candidate | str | LeftOut:
    """The candidate as it is wanted today, the key that says it by now, or why it is dropped."""
    change = candidate.delta
    if change.type == "ADD":
        return _add(candidate, curation, today)
    gone = [key for key in _keys(change) if today.state.resolve(key) is None]
    if gone:
        return LeftOut(reason=f"{gone[0]} is not there any more", lessons=candidate.lessons)
    changed = today.changed | today.state.aliases.keys()
    moved = [key for key in _keys(change) if key in changed]
    if not moved:
        return candidate
    survivor = today.state.resolve(_keys(change)[0])
    near = [n for n in today.fresh if n.bullet.id == survivor]
    if change.content and (family := relative(change.content, near)):
        return _grown(candidate, family)
    if survivor and change.content and twins(change.content, near):
        return survivor
    return LeftOut(reason=f"{moved[0]} was changed meanwhile", lessons=candidate.lessons)


def _add(candidate: Candidate, curation: Curation, today: Today) -> Candidate | str | LeftOut:
    decided = [today.known[n] for n in candidate.lessons if n in today.known]
    for known in decided:
        if known.key is not None:
            return known.key
    texts = [candidate.delta.content, *(curation.lessons[n].text for n in candidate.lessons)]
    if family := relative(candidate.delta.content or "", today.fresh):
        return _grown(candidate, family)
    for text in texts:
        if said := twins(text, today.fresh):
            return said[0].bullet.id
    if decided:
        return LeftOut(reason=decided[0].reason, lessons=candidate.lessons)
    if any(same(text, other) for text in texts for other in today.waiting):
        return LeftOut(reason="a person was asked already", lessons=candidate.lessons)
    against = [n.bullet.id for n in opponents(candidate.delta.content, today.fresh)]
    keys = [today.state.resolve(key) for key in (*candidate.contradicts, *against)]
    return candidate.model_copy(
        update={"contradicts": list(dict.fromkeys(key for key in keys if key is not None))}
    )


def _grown(candidate: Candidate, family: Near) -> Candidate | str:
    """What the bullet of the family does not have yet goes into its roll."""
    bullet = family.bullet
    whole = join(bullet.content, candidate.delta.content or "")
    if whole is None or whole == bullet.content or bullet.pinned:
        return bullet.id
    return candidate.model_copy(update={"delta": grown(bullet.id, whole), "contradicts": []})


def _keys(change: DeltaContextItem) -> list[str]:
    return [key for key in (change.bullet_id, *change.source_ids) if key]
