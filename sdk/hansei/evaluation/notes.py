"""What a reader must know before the figures of a report."""

from __future__ import annotations

from hansei._model import Json
from hansei.evaluation import demo
from hansei.evaluation.memory import PLAYBOOK
from hansei.evaluation.text_report import Translate
from hansei.nothing_learned import CONFIRMATION_RULE


def find_notes(report: Json, _: Translate = str) -> list[str]:
    """`report` needs no `notes`."""
    notes = [_(demo.TITLE)] if report["plan"]["agent"] == demo.AGENT else []
    calls = report["calls"]
    if calls["done"] < calls["planned"]:
        notes.append(_("INCOMPLETE: %(done)s of %(planned)s calls were made.") % calls)
    for row in report["advice"]:
        if row["measures_nothing"]:
            text = _("NO ADVICE: the arm `%(arm)s` never got any. It measures nothing.")
            notes.append(text % row)
        elif row["cited"] == 0 and not row["followed"]:
            text = _(
                "ADVICE NEVER CITED: `%(arm)s` got advice in %(rendered)s of %(calls)s calls, and"
                " the agent named no bullet."
            )
            note = text % row
            if row["judged"]:
                note += " " + _("No reflection found that one was followed.")
            notes.append(note)
    if learning := report["learning"]:
        notes += _learning_notes(learning, _)
    if failed := len(report["failures"]):
        text = _("Calls that failed for good: %(count)s. They count as wrong.")
        notes.append(text % {"count": failed})
    return notes


def _learning_notes(learning: Json, _: Translate) -> list[str]:
    """What the service did in a run."""
    notes: list[str] = []
    if learning["failed_runs"]:
        text = _("LEARNING FAILED in %(count)s runs of the service: see `hansei run list`.")
        notes.append(text % {"count": len(learning["failed_runs"])})
    if not learning["calls"]:
        notes.append(
            _(
                "NO MODEL: the service learned by its rules, which find little. Let your agent"
                " return `events` with errors, or start the service with the key of a model"
                " (`OPENAI_API_KEY=… hansei up`)."
            )
        )
    show = f"hansei playbook show {PLAYBOOK}"
    projects = learning["projects"]
    if learning["bullets"]:
        text = _(
            "TO SEE THE BULLETS: `%(command)s`. To use them, export that playbook and import it"
            " into yours (`hansei playbook export`, `hansei playbook import`)."
        )
        notes.append(text % {"command": f"{show} --project {projects[-1]}"})
    elif learning["waiting"]:
        text = _(
            "ALL ADVICE WAITS: each bullet repeats text of a tool or task. %(rule)s `%(command)s`"
            " lists the bullets. To measure them, confirm the same ones in your playbook"
            " (`hansei playbook confirm NAME KEY`) and run again with `--playbook NAME`."
        )
        command = f"{show} --status all --project {projects[0]}"
        notes.append(text % {"rule": _(CONFIRMATION_RULE), "command": command})
    else:
        notes.append(_("NOTHING LEARNED: the playbook has no bullet after the last window."))
    if learning["unpriced_calls"]:
        text = _(
            "%(count)s model calls of the service have no known price: the cost of learning is"
            " unknown, and no budget counts it."
        )
        notes.append(text % {"count": learning["unpriced_calls"]})
    return notes
