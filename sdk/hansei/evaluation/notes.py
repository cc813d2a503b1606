"""What a reader must know before the figures of a report."""

from __future__ import annotations

from hansei._model import Json
from hansei.evaluation import demo
from hansei.evaluation.memory import PLAYBOOK
from hansei.evaluation.statistics import MIN_CHANGES
from hansei.evaluation.wording import Translate, playbook_warning
from hansei.nothing_learned import CONFIRMATION_RULE


def find_notes(report: Json, _: Translate = str) -> list[str]:
    """`report` needs no `notes`."""
    is_demo = report["plan"]["agent"] in demo.AGENTS
    about = _(demo.TITLE) if is_demo else report.get("about")
    notes = [about] if about else []
    notes += find_gaps(report["calls"], len(report["failures"]), _)
    answered = {row["arm"]: row["calls"] for row in report["costs"]}
    for row in report["advice"]:
        if row["measures_nothing"]:
            text = _("NO ADVICE: the arm `%(arm)s` never got any. It measures nothing.")
            notes.append(text % row)
        elif row["cited"] == 0 and not row["followed"] and answered.get(row["arm"]) != 0:
            text = _(
                "ADVICE NEVER CITED: `%(arm)s` got advice (calls: %(rendered)s of %(calls)s), and"
                " the agent named no bullet."
            )
            note = text % row
            if row["judged"]:
                note += " " + _("No reflection found that one was followed.")
            notes.append(note)
    if report["primary"] == "second pass":
        text = _(
            "THE SAME TASKS: the memory has learned from the tasks that decide (feedback:"
            " %(feedback)s). To measure it on other tasks, hold some out: `--held-out N`."
        )
        notes.append(text % report["plan"]["protocol"])
    if warning := playbook_warning(report["plan"]["protocol"], _):
        notes.append(warning)
    if any(row["tasks"] < MIN_CHANGES for row in report["comparisons"]):
        text = _(
            "TOO FEW TASKS: no result can reach p < .05, which needs at least %(count)s tasks that"
            " change in the same direction. Repeats do not add tasks."
        )
        notes.append(text % {"count": MIN_CHANGES})
    low = [
        row
        for row in report["comparisons"]
        if row["second"] == "none" and row.get("can_improve") is not None
        if row["can_improve"] < MIN_CHANGES <= row["tasks"]
    ]
    if low:
        text = _(
            "NO GAIN CAN BE SHOWN: only %(wrong)s of the %(tasks)s tasks that decide can improve,"
            " because the others are fully right without advice. p would still be at least .05:"
            " have at least %(least)s that fail today."
        )
        numbers = {"tasks": low[0]["tasks"], "wrong": low[0]["can_improve"]}
        notes.append(text % {**numbers, "least": MIN_CHANGES})
    if learning := report["learning"]:
        notes += _learning_notes(learning, _)
    return notes


def find_gaps(calls: Json, failed: int, _: Translate) -> list[str]:
    """Which answers a report lacks."""
    notes: list[str] = []
    if calls["done"] < calls["planned"]:
        notes.append(_("INCOMPLETE: %(done)s of %(planned)s calls were made.") % calls)
    if failed:
        text = _("Calls that failed for good: %(count)s. They count as wrong, not as harmed.")
        notes.append(text % {"count": failed})
    return notes


def _learning_notes(learning: Json, _: Translate) -> list[str]:
    """What the service did in a run."""
    notes: list[str] = []
    if learning["failed_runs"]:
        text = _("LEARNING FAILED. Failed runs of the service: %(count)s. See `hansei run list`.")
        notes.append(text % {"count": len(learning["failed_runs"])})
    if not learning["calls"]:
        notes.append(
            _(
                "NO MODEL: the service learned by its rules, which find little. Let your agent"
                " return `events` with errors, or start the service with the key of a model"
                " (`OPENAI_API_KEY=… hansei up`)."
            )
        )
    project = learning["projects"][-1] if learning["projects"] else None
    waiting = learning["waiting"]
    if project and waiting:
        text = _(
            "LESSONS WAIT for a person or a second run: %(count)s. No agent gets them."
            " %(rule)s To see them: `%(command)s`. To confirm one: `%(confirm)s`. To measure it,"
            " export that playbook, import it under a new name, and run again with `--playbook"
            " NAME` and the same tasks, `--seed` and `--held-out`: it must not have learned from"
            " the tasks that are held out."
        )
        words = {
            "count": f"{waiting:g}",
            "rule": _(CONFIRMATION_RULE),
            "command": f"hansei playbook show {PLAYBOOK} --status all --project {project}",
            "confirm": f"hansei playbook confirm {PLAYBOOK} KEY --project {project}",
        }
        notes.append(text % words)
    if project and learning["bullets"]:
        text = _(
            "TO SEE THE BULLETS: `%(command)s`. To use them, export that playbook (`hansei playbook"
            " export`) and import it under a new name (`hansei playbook import`): an import"
            " replaces the bullets of a playbook. To add bullets to a playbook that you have, run"
            " with `--playbook` and its name, and import what that run exports into it."
        )
        notes.append(text % {"command": f"hansei playbook show {PLAYBOOK} --project {project}"})
    elif not waiting and not learning["bullets"]:
        notes.append(_("NOTHING LEARNED: the playbook has no bullet after the last window."))
    if learning["unpriced_calls"]:
        text = _(
            "Model calls of the service without a known price: %(count)s. The cost of learning is"
            " unknown, and no budget counts it."
        )
        notes.append(text % {"count": learning["unpriced_calls"]})
    return notes
