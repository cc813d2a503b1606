"""`hansei reflect` of a session file: what the session shows, and what became of the playbook."""

from __future__ import annotations

import typer

from hansei.answers import Json, Run
from hansei.client import Hansei
from hansei.commands.report import show_playbook
from hansei.learnt import Learnt
from hansei.reflector import TranscriptReflected
from hansei.sessions import Session
from hansei.terminal import cause, count, err, say, show, show_json


def reflect_session(
    client: Hansei,
    session: Session,
    *,
    project: str | None,
    playbook: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Send it, wait for the steps that follow, and tell."""
    sent = client.reflect_transcript(
        session.messages,
        session_id=session.session_id,
        playbook=playbook,
        project_id=project,
        wait=False,
    )
    if not wait:
        _tell_queued(sent, as_json)
        return
    with err.status(f"Learning from {count(len(session.messages), 'message')}"):
        runs = list(client.steps(sent["run_id"]))
    learnt = Learnt()
    for run in runs:
        learnt.add_run(run)
    if as_json:
        show_json(_document(sent, runs[0], learnt))
    else:
        show(f"A session of {count(len(session.messages), 'message')}.", style="bold")
        _tell(sent, runs[0], learnt)
    if not learnt.good:
        raise typer.Exit(1)


def _tell_queued(sent: TranscriptReflected, as_json: bool) -> None:
    if as_json:
        show_json(sent)
    else:
        show(f"The session is queued as run {sent['run_id']}; see `hansei runs`.")


def _document(sent: TranscriptReflected, first: Run, learnt: Learnt) -> Json:
    report = learnt.as_json(seconds=0, waiting=())
    told = {name: report[name] for name in ("changes", "proposals", "failed")}
    return {**(first["result"] or {}), **sent, "state": first["state"], **told}


def _tell(sent: TranscriptReflected, first: Run, learnt: Learnt) -> None:
    if sent.get("duplicate"):
        say("This session was here already; it counts once.")
    answer: TranscriptReflected = first["result"] or {"run_id": first["id"], "trace_id": ""}
    if answer.get("analysis"):
        show(answer.get("analysis", ""))
    for tag in answer.get("bullet_tags", ()):
        show(f"{tag['name']} · {tag['tag']} · {tag['rationale']}", indent=2)
    if answer.get("reflection_id"):
        show(f"{answer.get('reflection_id')}", style="dim")
    show_playbook(learnt)
    for run in learnt.failed:
        say(f"error: {cause(run['error'])}")
        say(f"Try it again with `hansei runs --retry {run['id']}`.")
