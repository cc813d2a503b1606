"""A playbook's life as a state machine: whatever happens, keys are never reused and no vote is
lost.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memory_api.playbooks.deltas import DeltaError, apply_deltas, clean_deltas
from memory_api.playbooks.models import (
    Bullet,
    DeltaContextItem,
    DeltaResult,
    Playbook,
    VerdictTag,
)
from memory_api.playbooks.state import PlaybookState

SECTIONS = st.sampled_from(["PATTERNS & APPROACHES", "mis", "USER PREFERENCES", "unknown"])
CONTENTS = st.one_of(st.integers(0, 30).map("lesson {}".format), st.just(" "))
VOTES = ("helpful", "harmful", "neutral")


def imported() -> Playbook:
    rows = [("pat-00003", "lesson 1"), ("kpt_007", "lesson 2"), ("mis-12", "lesson 1")]
    return Playbook(
        bullets=[
            Bullet(id=key, section="OTHERS", content=text, helpful=n, harmful=2 * n, pinned=n == 1)
            for n, (key, text) in enumerate(rows)
        ]
    )


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = PlaybookState.from_playbook(imported())
        self.ever = set(self.state.bullets)
        self.votes = {vote: self.total(vote) for vote in VOTES}

    def total(self, vote: str) -> int:
        return sum(getattr(bullet, vote) for bullet in self.state.bullets.values())

    def some_key(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*sorted(self.ever), "pat-77777"]))

    def draw(self, data: st.DataObject) -> DeltaContextItem:
        kind = data.draw(
            st.sampled_from(["ADD", "ADD", "UPDATE", "DELETE", "MERGE", "MERGE", "KEEP"])
        )
        fields: dict[str, Any] = {"type": kind, "content": data.draw(CONTENTS)}
        if kind == "ADD":
            fields["section"] = data.draw(SECTIONS)
        elif kind == "MERGE":
            fields["source_ids"] = [
                self.some_key(data) for _ in range(data.draw(st.integers(1, 3)))
            ]
        else:
            fields["bullet_id"] = self.some_key(data)
        return DeltaContextItem(**fields)

    def accept(self, after: PlaybookState, results: list[DeltaResult]) -> None:
        for result in results:
            if result.action == "added":
                assert result.key is not None
                assert result.key not in self.ever, "a key was given twice"
                self.ever.add(result.key)
            elif result.action == "deleted":
                assert result.before is not None
                for vote in VOTES:
                    self.votes[vote] -= getattr(result.before, vote)
        self.state = after

    @rule(data=st.data(), size=st.integers(1, 4))
    def apply_whole_or_not_at_all(self, data: st.DataObject, size: int) -> None:
        deltas = [self.draw(data) for _ in range(size)]
        before, as_it_was = self.state, copy.deepcopy(self.state)
        try:
            after, results = apply_deltas(before, deltas)
        except DeltaError:
            pass  # none was applied, which is checked below
        else:
            assert [result.index for result in results] == list(range(size))
            self.accept(after, results)
        assert before == as_it_was, "the state that was given has changed"

    @rule(data=st.data(), size=st.integers(1, 6))
    def clean_then_apply_never_fails(self, data: st.DataObject, size: int) -> None:
        deltas = [self.draw(data) for _ in range(size)]
        kept, dropped = clean_deltas(self.state, deltas)
        assert len(kept) + len(dropped) == size
        after, results = apply_deltas(self.state, kept)
        assert all(result.action != "rejected" for result in results)
        self.accept(after, results)

    @rule(data=st.data(), vote=st.sampled_from(VOTES))
    def vote(self, data: st.DataObject, vote: VerdictTag) -> None:
        key = self.some_key(data)
        if self.state.resolve(key) is not None:
            self.state = self.state.add_verdict(key, vote)
            self.votes[vote] += 1

    @invariant()
    def votes_are_never_lost(self) -> None:
        assert self.votes == {vote: self.total(vote) for vote in VOTES}

    @invariant()
    def aliases_lead_straight_to_a_bullet_that_was(self) -> None:
        for alias, survivor in self.state.aliases.items():
            assert alias not in self.state.bullets
            assert survivor not in self.state.aliases
            assert {alias, survivor} <= self.ever

    @invariant()
    def pinned_bullets_are_untouched(self) -> None:
        pinned = imported().bullets[1]
        now = self.state.bullets["kpt_007"]
        assert (now.content, now.section, now.pinned) == (pinned.content, pinned.section, True)

    @invariant()
    def bullets_stand_under_their_own_key(self) -> None:
        assert all(key == bullet.id for key, bullet in self.state.bullets.items())


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
