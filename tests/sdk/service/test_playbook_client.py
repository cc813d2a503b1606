"""Playbooks through the clients, against the service itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from hansei import AsyncHansei, Hansei
from hansei.endpoints.bullets import Delta
from hansei.endpoints.playbooks import PlaybookFormat
from hansei.errors import NotFound, Stale
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
    (look, ask) = hansei.apply_deltas("pay", [LOOK, ASK], reason="first words")["results"]
    assert (look["key"], look["action"], ask["key"]) == ("mis-00001", "added", "oth-00001")
    block = hansei.render_playbook("pay", "a payment timed out", top_k=1)
    assert block["bullet_keys"] == ["mis-00001"]
    assert "[mis-00001]" in block["text"]
    sent = hansei.create_trace(
        {
            "playbook": "pay",
            "retrieval_id": block["retrieval_id"],
            "used_bullet_keys": block["bullet_keys"],
            "outcome": "success",
            "events": [{"event_type": "llm_response", "content": "It had gone through."}],
        },
        reflect="never",
    )
    judged = hansei.record_verdict(
        "pay", "mis-00001", "helpful", reason="Not charged twice.", trace_id=sent.get("trace_id")
    )
    assert (judged["key"], judged["is_counted"], judged["bullet"].get("helpful")) == (
        "mis-00001",
        True,
        1,
    )
    (verdict,) = hansei.list_verdicts("pay", "mis-00001")
    assert (verdict["tag"], verdict["reason"]) == ("helpful", "Not charged twice.")
    (hit,) = hansei.search_bullets("pay", "payment", tags=[], section_filter=["mis"])["results"]
    assert hit["bullet"]["id"] == "mis-00001"


def test_exported_playbook_can_be_imported(hansei: Hansei) -> None:
    hansei.apply_deltas("pay", [LOOK, ASK])
    read = hansei.get_playbook("pay")
    assert read["version"] == 1
    assert [bullet["id"] for bullet in read["bullets"]] == ["mis-00001", "oth-00001"]
    copied = hansei.replace_playbook("copy", read)
    assert copied["active_bullet_count"] == 2
    assert hansei.get_playbook("copy")["bullets"] == read["bullets"]
    assert [each["name"] for each in hansei.list_playbooks()] == ["copy", "pay"]


@pytest.mark.parametrize("form", ["bullets", "sections", "ace"])
def test_every_format_is_exported_and_imported(hansei: Hansei, form: PlaybookFormat) -> None:
    hansei.apply_deltas("pay", [LOOK, ASK])
    text = hansei.export_playbook("pay", form)
    assert LOOK.get("content", "") in text
    hansei.replace_playbook("again", text)
    assert hansei.export_playbook("again", "ace") == hansei.export_playbook("pay", "ace")


def test_change_of_stale_version_is_refused(hansei: Hansei) -> None:
    version = hansei.apply_deltas("pay", [LOOK])["version"]
    assert hansei.apply_deltas("pay", [ASK], if_match=version)["version"] == version + 1
    for late in (
        lambda: hansei.apply_deltas("pay", [LOOK], if_match=version),
        lambda: hansei.replace_playbook("pay", {"bullets": []}, if_match=version),
        lambda: hansei.update_bullet("pay", "mis-00001", if_match=version, pinned=True),
        lambda: hansei.restore_playbook("pay", 0, if_match=version),
        lambda: hansei.delete_playbook("pay", if_match=version),
    ):
        with pytest.raises(Stale):
            late()
    assert len(hansei.get_playbook("pay")["bullets"]) == 2


def test_dry_run_writes_nothing(hansei: Hansei) -> None:
    hansei.apply_deltas("pay", [LOOK])
    tried = hansei.apply_deltas("pay", [ASK], dry_run=True)
    assert (tried["applied"], tried["results"][0]["action"]) == (False, "added")
    assert len(hansei.get_playbook("pay")["bullets"]) == 1


def test_bullet_methods(hansei: Hansei) -> None:
    made = hansei.create_bullet("pay", "Be brief.", section="USER PREFERENCES", tags=["tone"])
    key = made["bullet"]["id"]
    changed = hansei.update_bullet("pay", key, content="Be brief and kind.", pinned=True)
    assert changed["bullet"].get("pinned") is True
    assert hansei.get_bullet("pay", key)["content"] == "Be brief and kind."
    hansei.update_bullet("pay", key, status="archived", reason="Not now.")
    assert list(hansei.list_bullets("pay", status="active")) == []
    assert [each["id"] for each in hansei.list_bullets("pay", tag="tone", status="archived")] == [
        key
    ]
    assert hansei.get_bullet_provenance("pay", key)["links"] == []
    hansei.delete_bullet("pay", key, reason="Said elsewhere.")
    with pytest.raises(NotFound):
        hansei.get_bullet("pay", key)


def test_history_diff_and_restore_methods(hansei: Hansei) -> None:
    hansei.apply_deltas("pay", [LOOK], reason="one")
    hansei.apply_deltas("pay", [ASK], reason="two")
    assert [each["reason"] for each in hansei.list_playbook_versions("pay")] == ["two", "one"]
    assert [b["id"] for b in hansei.get_playbook("pay", as_of=1)["bullets"]] == ["mis-00001"]
    assert [b["id"] for b in hansei.diff_playbook("pay", 1)["added"]] == ["oth-00001"]
    assert [b["id"] for b in hansei.diff_playbook("pay", 2, 1)["removed"]] == ["oth-00001"]
    then = hansei.get_bullet("pay", "mis-00001")["created_at"]
    tried = hansei.restore_playbook("pay", then, dry_run=True)
    assert (tried["version"], tried["changed"], tried["applied"]) == (2, True, False)
    back = hansei.restore_playbook("pay", then, reason="back")
    assert (back["version"], back["changed"], back["applied"]) == (3, True, True)
    assert hansei.restore_playbook("pay", 2)["version"] == 4
    hansei.delete_playbook("pay")
    with pytest.raises(NotFound):
        hansei.get_playbook("pay")
    assert hansei.restore_playbook("pay", 4)["changed"]
    assert len(hansei.get_playbook("pay")["bullets"]) == 2


def test_review_methods(hansei: Hansei) -> None:
    hansei.apply_deltas("pay", [LOOK])
    assert (
        hansei.update_playbook("pay", review_mode="required", token_budget=500)[
            "active_bullet_count"
        ]
        == 1
    )
    held = hansei.apply_deltas("pay", [ASK])
    assert (held["held"], held["applied"]) == (True, False)
    (waiting,) = hansei.list_proposals("pay")
    assert waiting["id"] == held["proposal_id"]
    assert hansei.accept_proposal("pay", waiting["id"], reason="checked")["applied"]
    more = hansei.apply_deltas("pay", [ASK | {"content": "Ask twice."}])
    hansei.reject_proposal("pay", str(more["proposal_id"]))
    assert [each["state"] for each in hansei.list_proposals("pay", state="rejected")] == [
        "rejected"
    ]
    assert len(hansei.get_playbook("pay")["bullets"]) == 2


def test_effects_are_returned(hansei: Hansei) -> None:
    hansei.apply_deltas("pay", [LOOK])
    assert list(hansei.list_bullet_effects("pay")) == []


async def test_async_client_has_playbook_methods(asking: AsyncHansei) -> None:
    await asking.apply_deltas("pay", [LOOK, ASK])
    assert [each["id"] async for each in asking.list_bullets("pay", limit=1)] == [
        "mis-00001",
        "oth-00001",
    ]
    assert (await asking.get_playbook("pay"))["version"] == 1
    assert "[mis-00001]" in await asking.export_playbook("pay", "ace")
    assert (await asking.render_playbook("pay"))["bullet_keys"]
    assert [each["name"] async for each in asking.list_playbooks()] == ["pay"]
