"""The session file of a coding agent, sent from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.conftest import Home, StartUp

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
    (folder / "session.jsonl").write_text(text)


def test_a_session_file_is_reflected_on_once(home: Home, up: StartUp) -> None:
    running = up()
    home.extra = {"HANSEI_URL": running.told["url"], "HANSEI_API_KEY": running.told["api_key"]}
    write_session(home.folder)
    put = home.run("playbook", "import", "coding", "-", input=PLAYBOOK, capture_output=True)
    assert put.returncode == 0, put.stderr

    sent = ("reflect", "session.jsonl", "--playbook", "coding")
    told = home.run(*sent, capture_output=True)
    assert told.returncode == 0, told.stderr
    heading, analysis, reflection_id = told.stdout.splitlines()
    assert heading == "A session of 5 messages."
    assert "forms.yaml" in analysis
    seen = home.run("memory", "show", reflection_id, "--json", capture_output=True)
    assert json.loads(seen.stdout)["content"] == analysis
    again = home.run(*sent, "--json", capture_output=True)
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert report["duplicate"] is True
    assert report["cited_ids"] == ["ctx-00001"]
    assert report["state"] == "done"
