"""Playbooks through the clients, against the service itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from hansei import AsyncHansei, Hansei
from hansei.bullets import Delta
from hansei.errors import NotFound, Stale
from hansei.playbooks import Form
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


def test_an_agent_renders_cites_and_reports(hansei: Hansei) -> None:
    """The loop that a playbook is for."""
    (look, ask) = hansei.edit_playbook("pay", [LOOK, ASK], reason="first words")["results"]
    assert (look["key"], look["action"], ask["key"]) == ("mis-00001", "added", "oth-00001")
    block = hansei.render_playbook("pay", "a payment timed out", top_k=1)
    assert block["keys"] == ["mis-00001"]
    assert "[mis-00001]" in block["text"]
    sent = hansei.send_trace(
        {
            "playbook": "pay",
            "render_id": block["render_id"],
            "used_keys": block["keys"],
            "outcome": "success",
            "events": [{"event_type": "llm_response", "content": "It had gone through."}],
        },
        reflect="never",
    )
    judged = hansei.judge_bullet(
        "pay", "mis-00001", "helpful", reason="Not charged twice.", trace_id=sent.get("trace_id")
    )
    assert (judged["key"], judged["counts"], judged["bullet"].get("helpful")) == (
        "mis-00001",
        True,
        1,
    )
    (verdict,) = hansei.verdicts("pay", "mis-00001")
    assert (verdict["tag"], verdict["reason"]) == ("helpful", "Not charged twice.")
    (hit,) = hansei.search_playbook("pay", "payment", tags=[], section_filter=["mis"])["results"]
    assert hit["bullet"]["id"] == "mis-00001"


def test_what_is_read_can_be_put_back(hansei: Hansei) -> None:
    hansei.edit_playbook("pay", [LOOK, ASK])
    read = hansei.playbook("pay")
    assert read["version"] == 1
    assert [bullet["id"] for bullet in read["bullets"]] == ["mis-00001", "oth-00001"]
    copied = hansei.put_playbook("copy", read)
    assert copied["active"] == 2
    assert hansei.playbook("copy")["bullets"] == read["bullets"]
    assert [each["name"] for each in hansei.playbooks()] == ["copy", "pay"]


@pytest.mark.parametrize("form", ["spec2", "spec4", "ace"])
def test_every_form_comes_out_and_goes_in(hansei: Hansei, form: Form) -> None:
    hansei.edit_playbook("pay", [LOOK, ASK])
    text = hansei.export_playbook("pay", form)
    assert LOOK.get("content", "") in text
    hansei.put_playbook("again", text)
    assert hansei.export_playbook("again", "ace") == hansei.export_playbook("pay", "ace")


def test_a_change_at_another_version_is_refused(hansei: Hansei) -> None:
    version = hansei.edit_playbook("pay", [LOOK])["version"]
    assert hansei.edit_playbook("pay", [ASK], if_match=version)["version"] == version + 1
    for late in (
        lambda: hansei.edit_playbook("pay", [LOOK], if_match=version),
        lambda: hansei.put_playbook("pay", {"bullets": []}, if_match=version),
        lambda: hansei.update_bullet("pay", "mis-00001", if_match=version, pinned=True),
        lambda: hansei.restore_playbook("pay", 0, if_match=version),
        lambda: hansei.delete_playbook("pay", if_match=version),
    ):
        with pytest.raises(Stale):
            late()
    assert len(hansei.playbook("pay")["bullets"]) == 2


def test_a_dry_run_writes_nothing(hansei: Hansei) -> None:
    hansei.edit_playbook("pay", [LOOK])
    tried = hansei.edit_playbook("pay", [ASK], dry_run=True)
    assert (tried["applied"], tried["results"][0]["action"]) == (False, "added")
    assert len(hansei.playbook("pay")["bullets"]) == 1


def test_bullets_one_by_one(hansei: Hansei) -> None:
    made = hansei.add_bullet("pay", "Be brief.", section="USER PREFERENCES", tags=["tone"])
    key = made["bullet"]["id"]
    changed = hansei.update_bullet("pay", key, content="Be brief and kind.", pinned=True)
    assert changed["bullet"].get("pinned") is True
    assert hansei.bullet("pay", key)["content"] == "Be brief and kind."
    hansei.update_bullet("pay", key, status="archived", reason="Not now.")
    assert list(hansei.bullets("pay", status="active")) == []
    assert [each["id"] for each in hansei.bullets("pay", tag="tone", status="archived")] == [key]
    assert hansei.provenance("pay", key)["links"] == []
    hansei.delete_bullet("pay", key, reason="Said elsewhere.")
    with pytest.raises(NotFound):
        hansei.bullet("pay", key)


def test_how_it_evolved_and_the_way_back(hansei: Hansei) -> None:
    hansei.edit_playbook("pay", [LOOK], reason="one")
    hansei.edit_playbook("pay", [ASK], reason="two")
    assert [each["reason"] for each in hansei.playbook_history("pay")] == ["two", "one"]
    assert [b["id"] for b in hansei.playbook("pay", as_of=1)["bullets"]] == ["mis-00001"]
    assert [b["id"] for b in hansei.diff_playbook("pay", 1)["added"]] == ["oth-00001"]
    assert [b["id"] for b in hansei.diff_playbook("pay", 2, 1)["removed"]] == ["oth-00001"]
    then = hansei.bullet("pay", "mis-00001")["created_at"]
    tried = hansei.restore_playbook("pay", then, apply=False)
    assert (tried["version"], tried["changed"], tried["applied"]) == (2, True, False)
    back = hansei.restore_playbook("pay", then, reason="back")
    assert (back["version"], back["changed"], back["applied"]) == (3, True, True)
    assert hansei.restore_playbook("pay", 2)["version"] == 4
    hansei.delete_playbook("pay")
    with pytest.raises(NotFound):
        hansei.playbook("pay")
    assert hansei.restore_playbook("pay", 4)["changed"]
    assert len(hansei.playbook("pay")["bullets"]) == 2


def test_a_playbook_under_review(hansei: Hansei) -> None:
    hansei.edit_playbook("pay", [LOOK])
    assert hansei.configure_playbook("pay", review="required", token_budget=500)["active"] == 1
    held = hansei.edit_playbook("pay", [ASK])
    assert (held["held"], held["applied"]) == (True, False)
    (waiting,) = hansei.proposals("pay")
    assert waiting["id"] == held["proposal_id"]
    assert hansei.accept_proposal("pay", waiting["id"], reason="checked")["applied"]
    more = hansei.edit_playbook("pay", [ASK | {"content": "Ask twice."}])
    hansei.reject_proposal("pay", str(more["proposal_id"]))
    assert [each["state"] for each in hansei.proposals("pay", state="rejected")] == ["rejected"]
    assert len(hansei.playbook("pay")["bullets"]) == 2


def test_effects_are_there_for_the_asking(hansei: Hansei) -> None:
    hansei.edit_playbook("pay", [LOOK])
    assert list(hansei.playbook_effects("pay")) == []


async def test_the_async_client_has_them_too(asking: AsyncHansei) -> None:
    await asking.edit_playbook("pay", [LOOK, ASK])
    assert [each["id"] async for each in asking.bullets("pay", limit=1)] == [
        "mis-00001",
        "oth-00001",
    ]
    assert (await asking.playbook("pay"))["version"] == 1
    assert "[mis-00001]" in await asking.export_playbook("pay", "ace")
    assert (await asking.render_playbook("pay"))["keys"]
    assert [each["name"] async for each in asking.playbooks()] == ["pay"]
