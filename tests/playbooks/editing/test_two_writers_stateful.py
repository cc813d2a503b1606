"""Two connections that edit one playbook at once, against a model: what the pure rules say of one
edit after the other, in one order or the other.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from memory_api.auth.queries import create_tenant
from memory_api.bootstrap import open_runtime
from memory_api.core.db import Sessions, open_engine
from memory_api.core.errors import HanseiError
from memory_api.core.ids import new_id, to_tenant_id
from memory_api.core.settings import Settings
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.deltas import DeltaError, apply_deltas
from memory_api.playbooks.editing.edits import apply_deltas_to_playbook, require_playbook
from memory_api.playbooks.editing.plan import ChangeResult
from memory_api.playbooks.errors import PlaybookNotFound
from memory_api.playbooks.formats.transfer import load_playbook
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.queries import list_bullets_as_of, list_versions
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.state import PlaybookState
from memory_api.runtime import Runtime
from tests.conftest import Database

KEYS = [f"{slug}-{number:05d}" for slug in ("pat", "mis") for number in range(1, 5)]
TEXTS = [f"lesson {number}" for number in range(8)]
Edit = list[DeltaContextItem]
Results = list[tuple[str, str | None]] | None
"""Action and key of each delta; None when the edit was refused."""


@st.composite
def deltas(draw: st.DrawFn) -> DeltaContextItem:
    """Of few keys and few texts, so that the two are after the same ones."""
    kind = draw(st.sampled_from(["ADD", "ADD", "ADD", "UPDATE", "DELETE", "MERGE"]))
    fields: dict[str, Any] = {"type": kind, "content": draw(st.sampled_from(TEXTS))}
    if kind == "ADD":
        fields["section"] = draw(st.sampled_from(["pat", "mis"]))
    elif kind == "MERGE":
        fields["source_ids"] = draw(st.lists(st.sampled_from(KEYS), min_size=2, max_size=2))
    else:
        fields["bullet_id"] = draw(st.sampled_from(KEYS))
    return DeltaContextItem(**fields)


EDITS = st.lists(deltas(), min_size=1, max_size=2)


def by_the_rules(state: PlaybookState, edit: Edit) -> tuple[PlaybookState, Results]:
    try:
        after, results = apply_deltas(state, edit)
    except DeltaError:
        return state, None
    return after, [(result.action, result.key) for result in results]


def results_of(outcome: ChangeResult | HanseiError) -> Results:
    if isinstance(outcome, HanseiError):
        return None
    return [(result.action, result.key) for result in outcome.results]


class World:
    """Two runtimes, each with one connection of its own, and the loop they live on."""

    def __init__(self, database: Database) -> None:
        self.loop = asyncio.Runner()
        self.opened = AsyncExitStack()
        self.tenant_id = to_tenant_id(f"t-{new_id()}")
        self.one, self.two = self.loop.run(self.open(database))

    async def open(self, database: Database) -> list[Runtime]:
        owner = Sessions(open_engine(database.url("hansei_owner"), pool_size=1))
        async with owner.for_tenant(self.tenant_id) as session:
            await create_tenant(session, str(self.tenant_id))
        await owner.close()
        alone = Settings(_env_file=None, pool_size=1)  # type: ignore[call-arg]
        url = database.url("hansei_app")
        return [await self.opened.enter_async_context(open_runtime(alone, url)) for _ in range(2)]

    def close(self) -> None:
        self.loop.run(self.opened.aclose())
        self.loop.close()


class TwoWriters(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.place = PlaybookRef("default", f"book {new_id()}")
        self.model = PlaybookState()
        self.versions = 0

    def write(self, *edits: Edit) -> list[ChangeResult | HanseiError]:
        """All edits at once, each by the next of the two."""

        async def one(runtime: Runtime, edit: Edit) -> ChangeResult | HanseiError:
            try:
                return await apply_deltas_to_playbook(
                    runtime, self.world.tenant_id, self.place, edit, ChangeAuthor("me")
                )
            except HanseiError as refused:
                return refused

        async def together() -> list[ChangeResult | HanseiError]:
            writers = (self.world.one, self.world.two)
            return await asyncio.gather(*(one(*pair) for pair in zip(writers, edits, strict=False)))

        return self.world.loop.run(together())

    @rule(edit=EDITS)
    def one_writes(self, edit: Edit) -> None:
        self.model, expected = by_the_rules(self.model, edit)
        (outcome,) = self.write(edit)
        assert results_of(outcome) == expected
        self.count(outcome)

    @rule(first=EDITS, second=EDITS)
    def both_write_at_once(self, first: Edit, second: Edit) -> None:
        outcomes = self.write(first, second)
        seen = [results_of(outcome) for outcome in outcomes]
        explained: list[PlaybookState] = []
        for order in ((0, 1), (1, 0)):
            state, expected = self.model, list[Results]([None, None])
            for n in order:
                state, expected[n] = by_the_rules(state, (first, second)[n])
            if expected == seen and state.bullets == self.rows().bullets:
                explained.append(state)
        assert explained, f"no order of the two explains {seen}"
        self.model = explained[0]
        self.count(*outcomes)

    def count(self, *outcomes: ChangeResult | HanseiError) -> None:
        changed = [o.version for o in outcomes if isinstance(o, ChangeResult) and o.changed]
        after = self.versions + len(changed)
        assert sorted(changed) == list(range(self.versions + 1, after + 1))
        self.versions = after

    def rows(self) -> PlaybookState:
        return self.world.loop.run(self.read())

    async def read(self) -> PlaybookState:
        """The bullets as they stand, after a look at their history."""
        async with self.world.one.sessions.for_tenant(self.world.tenant_id) as session:
            try:
                playbook = await require_playbook(session, self.place)
            except PlaybookNotFound:
                return PlaybookState()
            bullets = {b.id: b for b in (await load_playbook(session, playbook)).bullets}
            then = await list_bullets_as_of(session, playbook.scope_id, playbook.version)
            assert {b.id: b for b in to_bullets(then)} == bullets
            known = await list_versions(session, playbook.scope_id, limit=1_000)
            assert [row.version for row in known] == list(range(playbook.version, 0, -1))
            return PlaybookState(bullets, (), playbook.key_counters, playbook.aliases)

    @invariant()
    def the_rows_are_the_model(self) -> None:
        rows = self.rows()
        assert rows.bullets == self.model.bullets
        assert rows.key_counters == self.model.key_counters
        standing = {k: v for k, v in self.model.aliases.items() if k not in self.model.bullets}
        assert rows.aliases == standing


def test_two_connections_make_one_history(database: Database) -> None:
    TwoWriters.world = World(database)
    try:
        run_state_machine_as_test(
            TwoWriters,
            settings=settings(
                max_examples=25,
                stateful_step_count=8,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        TwoWriters.world.close()
