"""Pages of traces and runs: which advice was in the prompt, and what came out, in words."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx2

BOOK = "/api/v1/playbooks/support"
EVENT = {"event_type": "user_message", "content": "Refund order 7"}


def plain(page: httpx2.Response) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page.text)).split())


async def send_traces(api: httpx2.AsyncClient, runtime: Any, monkeypatch: Any) -> dict[str, str]:
    """A trace with advice, one of a control and one of neither: kind → trace ID."""
    delta = {"type": "ADD", "section": "OTHERS", "content": "Look up the order first."}
    key = (await api.post(f"{BOOK}/deltas", json={"deltas": [delta]})).json()["results"][0]["key"]
    found: dict[str, str] = {}
    for kind, share, outcome in (("with", 0, "success"), ("control", 1, "failure")):
        monkeypatch.setattr(runtime.settings, "advice_holdout_share", share)
        body = {"query_text": "refund", "session_id": kind}
        block = (await api.post(f"{BOOK}/render", json=body)).json()
        assert block["advice_held_out"] is (kind == "control")
        sent = {"retrieval_id": block["retrieval_id"], "used_bullet_keys": [key][: 1 - share]}
        found[kind] = await _send(api, kind, outcome, **sent)
    found["none"] = await _send(api, "none", "success")
    return found


async def _send(api: httpx2.AsyncClient, name: str, outcome: str, **fields: Any) -> str:
    task = f"Task {name}"
    body = {"playbook": "support", "outcome": outcome, "events": [EVENT], "task_description": task}
    answer = await api.post("/api/v1/traces?reflect=never", json=body | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["trace_id"]


async def test_traces_are_counted_and_filtered_by_advice(
    owner_of, api, runtime, monkeypatch
) -> None:
    sent = await send_traces(api, runtime, monkeypatch)
    page = plain(await owner_of.get("/console/traces"))
    assert "3 traces; 2 succeeded." in page
    assert "With advice in the prompt: 1 of 1. Controls without advice: 0 of 1." in page
    others = "Other agent runs of a playbook, without known advice: 1 of 1."
    assert f"0 of 1. {others}" in page
    assert "Without a playbook" not in page
    for kind in sent:
        listed = (await owner_of.get(f"/console/traces?advice={kind}")).text
        assert [f"Task {other}" in listed for other in sent] == [other == kind for other in sent]
    for wrong in ("traces?advice=some", "traces?outcome=weird", "runs?kind=weird", "runs?state=x"):
        assert (await owner_of.get(f"/console/{wrong}")).status_code == 422
    await _send(api, "question", "failure", playbook=None)
    page = plain(await owner_of.get("/console/traces"))
    assert f"{others} Without a playbook: 0 of 1." in page
    assert "No trace matches" in (await owner_of.get("/console/traces?outcome=timeout")).text


async def test_trace_says_which_advice_it_had(owner_of, api, runtime, monkeypatch) -> None:
    sent = await send_traces(api, runtime, monkeypatch)
    pages = {kind: plain(await owner_of.get(f"/console/traces/{id}")) for kind, id in sent.items()}
    assert re.search(r"Advice in its prompt ?One bullet: \S+ \(used\)", pages["with"])
    assert "None: a control, whose advice was withheld." in pages["control"]
    assert "It taught nothing new." not in pages["control"]
    assert "the client asked for it when it sent the trace" in pages["control"]
    assert "the trace names no retrieval" in pages["none"]


async def test_run_says_how_the_agent_run_ended(
    owner_of, api, drain, tenant, runtime, monkeypatch
) -> None:
    monkeypatch.setattr(runtime.settings, "reflective_memory_mode", "lite")
    body = {"playbook": "support", "outcome": "success", "events": [EVENT]}
    run = (await api.post("/api/v1/traces", json=body)).json()["run_id"]
    await drain(tenant.id)
    assert "Nothing came out yet" in (await owner_of.get("/console/runs")).text
    listed = plain(await owner_of.get("/console/runs?kind=learning"))
    assert "Evaluation" in listed
    assert "Success; no reflection needed" in listed
    page = plain(await owner_of.get(f"/console/runs/{run}"))
    assert "Success; no reflection needed" in page
    assert "A plain success teaches nothing new" in page


async def test_error_pages_use_words_of_the_console(owner_of, api) -> None:
    assert (await api.get("/")).headers["location"] == "/console"
    page = await owner_of.get("/console/traces/not-an-id")
    assert page.status_code == 404
    assert "There is no such trace." in page.text
    wrong = await owner_of.send("/console/keys", name="a", scope="read", project="typing eror")
    assert wrong.status_code == 422
    assert "has no trace. Check its name" in wrong.text
    fields = {"name": "a", "scope": "read", "project": "new", "is_new": "1"}
    assert (await owner_of.send("/console/keys", **fields)).status_code == 201
    assert "hansei eval run" in (await owner_of.get("/console/more")).text
    asked = await owner_of.send("/console/agent-runs", query="When?")
    assert asked.status_code == 422
    assert "No collection to search" in asked.text
    await api.post(f"{BOOK}/bullets", json={"content": "Look up the order."})
    empty = await owner_of.send("/console/playbooks/support/new", content="", section="OTHERS")
    assert "Text: Must not be empty." in empty.text
