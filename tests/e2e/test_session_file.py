"""The session file of a coding agent, sent from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import httpx2

from tests.e2e.conftest import Up

SAID = [
    ("user", "Add a field for the phone number to the form. Run the tests before you say done."),
    ("assistant", "I added it to forms.yaml, see [ctx-00001]. Done."),
    ("user", "No, the tests fail. You did not run the tests."),
    ("assistant", "You are right. I ran them now and mended the field; they pass."),
]
PLAYBOOK = "## PROJECT CONTEXT\n[ctx-00001] helpful=0 harmful=0 :: Forms are in forms.yaml.\n"


def write_session(folder: Path) -> None:
    lines = [
        {"type": role, "sessionId": "monday-1", "message": {"role": role, "content": text}}
        for role, text in SAID
    ]
    summary = {"type": "summary", "summary": "A form", "leafUuid": "x"}
    text = "".join(json.dumps(line) + "\n" for line in [summary, *lines])
    half_written = '{"type": "user", "message": {"role": "us'
    (folder / "session.jsonl").write_text(text + half_written)


def test_session_file_is_reflected_on_once(running: Up) -> None:
    access = {"HANSEI_URL": running.told["url"], "HANSEI_API_KEY": running.told["api_key"]}
    home = replace(running.home, extra=access)
    write_session(home.folder)
    put = home.run("playbook", "import", "coding", "-", input=PLAYBOOK, capture_output=True)
    assert put.returncode == 0, put.stderr

    sent = ("reflect", "session.jsonl", "--playbook", "coding")
    told = home.run(*sent, capture_output=True)
    assert told.returncode == 0, told.stderr
    read, skipped, learned = told.stdout.splitlines()
    assert read == "6 lines read: 4 messages, 1 without a message, 1 skipped."
    assert skipped.startswith("  line 6 skipped: not JSON: ")
    assert learned == "4 events, 1 cited bullet, 0 insights, 0 verdicts, 0 counted."
    again = home.run(*sent, "--json", capture_output=True)
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert report["duplicate"] is True
    assert report["cited_ids"] == ["ctx-00001"]
    assert report["state"] == "done"
    assert (report["lines"], [line["number"] for line in report["skipped"]]) == (6, [6])


def test_retrieval_and_outcome_of_a_session_reach_its_trace(running: Up) -> None:
    """The bullets of the render count as used, and the outcome is that of the trace."""
    access = {"HANSEI_URL": running.told["url"], "HANSEI_API_KEY": running.told["api_key"]}
    home = replace(running.home, extra=access)
    home.run("playbook", "import", "phones", "-", input=PLAYBOOK, capture_output=True)
    headers = {"Authorization": f"Bearer {access['HANSEI_API_KEY']}"}
    with httpx2.Client(base_url=access["HANSEI_URL"] + "/api/v1", headers=headers) as api:
        rendered = api.post("/playbooks/phones/render", json={}).json()
        assert rendered["bullet_keys"] == ["ctx-00001"]
        said = [SAID[0], ("assistant", "I added it to forms.yaml. Done."), *SAID[2:]]
        entries = [
            {"type": role, "sessionId": "tuesday-1", "message": {"role": role, "content": text}}
            for role, text in said
        ]
        (home.folder / "tuesday.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in entries))
        retrieval = rendered["retrieval_id"]
        sent = ("reflect", "tuesday.jsonl", "--playbook", "phones", "--json")
        told = home.run(
            *sent, "--retrieval-id", retrieval, "--outcome", "failure", capture_output=True
        )
        assert told.returncode == 0, told.stderr
        report = json.loads(told.stdout)
        assert report["state"] == "done"
        trace = api.get(f"/traces/{report['trace_id']}").json()
        assert trace["outcome"] == "failure"
        (verdict,) = api.get("/playbooks/phones/bullets/ctx-00001/verdicts").json()["items"]
        assert (verdict["trace_id"], verdict["retrieval_id"]) == (report["trace_id"], retrieval)
        assert (verdict["judge"], verdict["evidence"]["how"]) == ("outcome", "served")
