"""Playbooks through the clients, against the service itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from hansei import AsyncHansei, Hansei
from hansei.errors import NotFoundError, PreconditionFailedError
from hansei.models import PlaybookFormat
from hansei.params import Delta
from tests.conftest import TestTenant

LOOK: Delta = {
    "type": "ADD",
    "section": "MISTAKES TO AVOID",
    "content": "Look up a payment that timed out before trying it again.",
}
ASK: Delta = {"type": "ADD", "section": "OTHERS", "content": "Ask for the order number first."}


@pytest.fixture
def hansei(live: str, tenant: TestTenant) -> Iterator[Hansei]:
    with Hansei(live, tenant.keys["admin"]) as client:
        yield client


@pytest.fixture
async def asking(live: str, tenant: TestTenant) -> AsyncIterator[AsyncHansei]:
    async with AsyncHansei(live, tenant.keys["admin"]) as client:
        yield client


def test_agent_renders_cites_and_reports(hansei: Hansei) -> None:
    """The loop that a playbook is for."""
    (look, ask) = hansei.playbooks.apply_deltas("pay", [LOOK, ASK], reason="first words").results
    assert (look.key, look.action, ask.key) == ("mis-00001", "added", "oth-00001")
    block = hansei.playbooks.render("pay", "a payment timed out", top_k=1)
    assert block.bullet_keys == ["mis-00001"]
    assert "[mis-00001]" in block.text
    sent = hansei.traces.create(
        playbook="pay",
        retrieval_id=block.retrieval_id,
        used_bullet_keys=block.bullet_keys,
        outcome="success",
        events=[{"event_type": "llm_response", "content": "It had gone through."}],
        reflect="never",
    )
    judged = hansei.playbooks.bullets.verdicts.create(
        "pay", "mis-00001", "helpful", reason="Not charged twice.", trace_id=sent.trace_id
    )
    assert (judged.key, judged.counted, judged.bullet.helpful) == (
        "mis-00001",
        True,
        1,
    )
    (verdict,) = hansei.playbooks.bullets.verdicts.list("pay", "mis-00001")
    assert (verdict.tag, verdict.reason) == ("helpful", "Not charged twice.")
    (hit,) = hansei.playbooks.search("pay", "payment", tags=[], section_filter=["mis"]).results
    assert hit.bullet.id == "mis-00001"


def test_exported_playbook_can_be_imported(hansei: Hansei) -> None:
    hansei.playbooks.apply_deltas("pay", [LOOK, ASK])
    read = hansei.playbooks.get("pay")
    assert read.version == 1
    assert [bullet.id for bullet in read.bullets] == ["mis-00001", "oth-00001"]
    copied = hansei.playbooks.replace("copy", read)
    assert copied.active_bullet_count == 2
    assert hansei.playbooks.get("copy").bullets == read.bullets
    assert [each.name for each in hansei.playbooks.list()] == ["copy", "pay"]


@pytest.mark.parametrize("form", ["bullets", "sections", "ace"])
def test_every_format_is_exported_and_imported(hansei: Hansei, form: PlaybookFormat) -> None:
    hansei.playbooks.apply_deltas("pay", [LOOK, ASK])
    text = hansei.playbooks.export("pay", form)
    assert LOOK.get("content", "") in text
    hansei.playbooks.replace("again", text)
    assert hansei.playbooks.export("again", "ace") == hansei.playbooks.export("pay", "ace")


def test_change_of_stale_version_is_refused(hansei: Hansei) -> None:
    version = hansei.playbooks.apply_deltas("pay", [LOOK]).version
    assert hansei.playbooks.apply_deltas("pay", [ASK], if_match=version).version == version + 1
    for late in (
        lambda: hansei.playbooks.apply_deltas("pay", [LOOK], if_match=version),
        lambda: hansei.playbooks.replace("pay", {"bullets": []}, if_match=version),
        lambda: hansei.playbooks.bullets.update("pay", "mis-00001", if_match=version, pinned=True),
        lambda: hansei.playbooks.restore("pay", 0, if_match=version),
        lambda: hansei.playbooks.delete("pay", if_match=version),
    ):
        with pytest.raises(PreconditionFailedError):
            late()
    assert len(hansei.playbooks.get("pay").bullets) == 2


def test_dry_run_writes_nothing(hansei: Hansei) -> None:
    hansei.playbooks.apply_deltas("pay", [LOOK])
    tried = hansei.playbooks.apply_deltas("pay", [ASK], dry_run=True)
    assert (tried.applied, tried.results[0].action) == (False, "added")
    assert len(hansei.playbooks.get("pay").bullets) == 1


def test_bullet_methods(hansei: Hansei) -> None:
    made = hansei.playbooks.bullets.create(
        "pay", "Be brief.", section="USER PREFERENCES", tags=["tone"]
    )
    key = made.bullet.id
    changed = hansei.playbooks.bullets.update("pay", key, content="Be brief and kind.", pinned=True)
    assert changed.bullet.pinned is True
    assert hansei.playbooks.bullets.get("pay", key).content == "Be brief and kind."
    hansei.playbooks.bullets.update("pay", key, status="archived", reason="Not now.")
    assert list(hansei.playbooks.bullets.list("pay", status="active")) == []
    assert [
        each.id for each in hansei.playbooks.bullets.list("pay", tag="tone", status="archived")
    ] == [key]
    assert hansei.playbooks.bullets.get_provenance("pay", key).links == []
    hansei.playbooks.bullets.delete("pay", key, reason="Said elsewhere.")
    with pytest.raises(NotFoundError):
        hansei.playbooks.bullets.get("pay", key)


def test_history_diff_and_restore_methods(hansei: Hansei) -> None:
    hansei.playbooks.apply_deltas("pay", [LOOK], reason="one")
    hansei.playbooks.apply_deltas("pay", [ASK], reason="two")
    assert [each.reason for each in hansei.playbooks.versions.list("pay")] == ["two", "one"]
    assert [b.id for b in hansei.playbooks.get("pay", as_of=1).bullets] == ["mis-00001"]
    assert [b.id for b in hansei.playbooks.diff("pay", 1).added] == ["oth-00001"]
    assert [b.id for b in hansei.playbooks.diff("pay", 2, 1).removed] == ["oth-00001"]
    then = hansei.playbooks.bullets.get("pay", "mis-00001").created_at
    tried = hansei.playbooks.restore("pay", then, dry_run=True)
    assert (tried.version, tried.changed, tried.applied) == (2, True, False)
    back = hansei.playbooks.restore("pay", then, reason="back")
    assert (back.version, back.changed, back.applied) == (3, True, True)
    assert hansei.playbooks.restore("pay", 2).version == 4
    hansei.playbooks.delete("pay")
    with pytest.raises(NotFoundError):
        hansei.playbooks.get("pay")
    assert hansei.playbooks.restore("pay", 4).changed
    assert len(hansei.playbooks.get("pay").bullets) == 2


def test_review_methods(hansei: Hansei) -> None:
    hansei.playbooks.apply_deltas("pay", [LOOK])
    assert (
        hansei.playbooks.update("pay", review_mode="required", token_budget=500).active_bullet_count
        == 1
    )
    held = hansei.playbooks.apply_deltas("pay", [ASK])
    assert (held.held, held.applied) == (True, False)
    (waiting,) = hansei.playbooks.proposals.list("pay")
    assert waiting.id == held.proposal_id
    assert hansei.playbooks.proposals.accept("pay", waiting.id, reason="checked").applied
    more = hansei.playbooks.apply_deltas("pay", [ASK | {"content": "Ask twice."}])
    hansei.playbooks.proposals.reject("pay", str(more.proposal_id))
    assert [each.state for each in hansei.playbooks.proposals.list("pay", state="rejected")] == [
        "rejected"
    ]
    assert len(hansei.playbooks.get("pay").bullets) == 2


def test_effects_are_returned(hansei: Hansei) -> None:
    hansei.playbooks.apply_deltas("pay", [LOOK])
    assert list(hansei.playbooks.effects.list("pay")) == []


async def test_async_client_has_playbook_methods(asking: AsyncHansei) -> None:
    await asking.playbooks.apply_deltas("pay", [LOOK, ASK])
    assert [each.id async for each in asking.playbooks.bullets.list("pay")] == [
        "mis-00001",
        "oth-00001",
    ]
    assert (await asking.playbooks.get("pay")).version == 1
    assert "[mis-00001]" in await asking.playbooks.export("pay", "ace")
    assert (await asking.playbooks.render("pay")).bullet_keys
    assert [each.name async for each in asking.playbooks.list()] == ["pay"]
