"""The sentences and numbers of a report, in the language of its reader."""

from __future__ import annotations

from collections.abc import Callable

from hansei._model import Json
from hansei.evaluation.plan import SERVICE_ARMS
from hansei.evaluation.report_format import PRIMARY_LABELS
from hansei.evaluation.statistics import MIN_CHANGES, format_p

Translate = Callable[[str], str]
"""Returns a text in the language of the reader."""
MEMORIES = {
    "hansei": "advice from Hansei",
    "full": "the whole playbook of Hansei",
    "icl": "a prompt with earlier attempts",
    "examples": "a prompt with similar solved tasks",
}
"""What each arm gives to the agent."""
DECIDING_TASKS = {
    "held-out tasks": "%(tasks)s kept out of learning in this run",
    "second pass": "%(tasks)s asked again after learning from them",
    "stream": "%(tasks)s asked while learning",
    "stream after its first window": "%(tasks)s asked after the first lessons",
}


def headline(report: Json, _: Translate = str) -> str:
    """Whether the memory helps, in one sentence. A summary of a report is enough."""
    row = _main_row(report["comparisons"])
    if row is None:
        return _no_comparison(report, _)
    arm, phase = row["first"], report["primary"]
    memory = _(MEMORIES[arm])
    # A summary has no plan, and one of an older version no playbook.
    playbook = starting_playbook(report["plan"]["protocol"] if "plan" in report else report)
    if playbook:
        text = _("%(memory)s (starting playbook: %(playbook)s)")
        memory = text % {"memory": memory, "playbook": playbook}
    if is_unused(report, arm):
        return _("Nothing was measured: the agent never got %(memory)s.") % {"memory": memory}
    direction = shown_direction(row)
    if direction > 0:
        text = _("%(memory)s helped: %(result)s.")
    elif direction < 0:
        text = _("%(memory)s did harm: %(result)s.")
    elif row["low"] > 0 or row["high"] < 0:
        text = _("It is uncertain whether %(memory)s made a difference: %(result)s.")
    else:
        text = _("No difference is shown with %(memory)s: %(result)s.")
    right = {r["arm"]: percent(r["mean"]) for r in report["accuracy"] if r["phase"] == "primary"}
    if report.get("partial_scores"):
        result = _(
            "of %(tasks)s, the mean score was %(first)s with it and %(second)s without (%(points)s)"
        )
    else:
        result = _("of %(tasks)s, %(first)s were right with it and %(second)s without (%(points)s)")
    result %= {
        "tasks": _(DECIDING_TASKS[phase]) % {"tasks": count_tasks(row["tasks"], _)},
        "first": right[arm],
        "second": right[row["second"]],
        "points": _points(report, row, _),
    }
    sentence = text % {"memory": memory, "result": result}
    return sentence[:1].upper() + sentence[1:]


def count_tasks(count: int, _: Translate) -> str:
    text = _("%(count)s task") if count == 1 else _("%(count)s tasks")
    return text % {"count": count}


def shown_direction(row: Json) -> int:
    """1 or -1 if a difference counts as shown: p is below .05 and the interval leaves out 0. Else
    0.
    """
    return ((row["low"] > 0) - (row["high"] < 0)) * (row["p"] < 0.05)


def _no_comparison(report: Json, _: Translate) -> str:
    arms = {row["arm"] for row in report["accuracy"] if row["phase"] == "primary"}
    if "none" not in arms or len(arms) < 2:
        return _("There is no comparison: it needs the arm `none` and another one.")
    phase = PRIMARY_LABELS[report["primary"]]
    return _(
        "There is no comparison yet. What decides: %(phase)s. No task there is answered by both"
        " `none` and another arm."
    ) % {"phase": _(phase)}


def first_pass_line(report: Json, _: Translate = str) -> str:
    """The difference while the memory learned, or "" if it decides or was not measured."""
    row = _main_row(report.get("first_pass", []))
    if row is None or is_unused(report, row["first"]):
        return ""
    return _("While it was still learning (first pass, %(tasks)s): %(points)s.") % {
        "tasks": count_tasks(row["tasks"], _),
        "points": _points(report, row, _),
    }


def starting_playbook(protocol: Json) -> str | None:
    """The playbook that the memory of Hansei was copied from, if any."""
    playbook = protocol.get("playbook")
    return playbook if playbook and SERVICE_ARMS.intersection(protocol["arms"]) else None


def playbook_warning(protocol: Json, _: Translate = str) -> str:
    """What is unknown about the starting playbook, or ""."""
    playbook = starting_playbook(protocol)
    if not playbook:
        return ""
    return _(
        "STARTING PLAYBOOK: `%(playbook)s` may have learned from these tasks, those held out"
        " included. Whether it has is unknown."
    ) % {"playbook": playbook}


def plan_line(report: Json, _: Translate = str) -> str:
    plan = report["plan"]
    written = _(
        "The plan was written on %(time)s, before the first call; SHA-256 %(hash)s, without its ID"
        " and time %(repeated)s."
    ) % {"time": plan["created_at"], "hash": plan["sha256"], "repeated": plan["repeated_sha256"]}
    return f"{protocol_line(plan, report['tasks'], report['primary'], _)} {written}"


def protocol_line(plan: Json, tasks: Json, primary: str, _: Translate = str) -> str:
    protocol = plan["protocol"]
    setup = _(
        "%(stream)s in the stream, %(held_out)s held out, controls: %(controls)s;"
        " windows of %(window)s; repeats: %(repeats)s; seed %(seed)s; feedback: %(feedback)s;"
        " agent: %(agent)s."
    ) % {
        **tasks,
        "stream": count_tasks(tasks["stream"], _),
        "window": plan["window"],
        "repeats": protocol["repeats"],
        "seed": protocol["seed"],
        "feedback": protocol["feedback"],
        "agent": plan["agent"] or _("none"),
    }
    if playbook := starting_playbook(protocol):
        setup += " " + _("Starting playbook: %(playbook)s.") % {"playbook": playbook}
    count = tasks["held_out" if primary == "held-out tasks" else "stream"]
    if primary == "stream after its first window":
        count -= plan["window"]
    decides = _(
        "Decides: %(phase)s, %(tasks)s. p < .05 needs at least %(least)s tasks that change"
        " in the same direction: to show a gain, have at least %(least)s that fail today. Repeats"
        " do not add tasks."
    ) % {
        "phase": _(PRIMARY_LABELS[primary]),
        "tasks": count_tasks(count, _),
        "least": MIN_CHANGES,
    }
    return f"{setup} {decides}"


def curve_line(report: Json, _: Translate = str) -> str:
    """What the learning curve shows."""
    if report.get("partial_scores"):
        return _("Mean score in each window of the first pass.")
    return _("Share of right answers in each window of the first pass.")


def is_unused(report: Json, arm: str) -> bool:
    """Whether the arm never got advice, so that nothing was measured."""
    return any(r["arm"] == arm and r["measures_nothing"] for r in report["advice"])


def _main_row(rows: list[Json]) -> Json | None:
    """`hansei` against `none`, or else the first arm against it."""
    with_none = [row for row in rows if row["second"] == "none"]
    return min(with_none, key=lambda row: row["first"] != "hansei", default=None)


def _points(report: Json, row: Json, _: Translate) -> str:
    """Without p if there are partial scores: it counts changes, whatever their size."""
    numbers = {"points": signed(row["mean"]), "range": signed_range(row, _)}
    if report.get("partial_scores"):
        return _("%(points)s points; 95 %% interval %(range)s") % numbers
    return _("%(points)s points; 95 %% interval %(range)s; p %(p)s") % {
        **numbers,
        "p": text if (text := format_p(row["p"])).startswith("<") else f"= {text}",
    }


def signed(value: float) -> str:
    """A difference of shares in points."""
    return f"{100 * value:+.1f}".replace("-", "−")


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def signed_range(row: Json, _: Translate) -> str:
    """The interval of a difference."""
    return _between(signed(row["low"]), signed(row["high"]), _)


def percent_range(row: Json, _: Translate) -> str:
    """The interval of an accuracy."""
    return _between(percent(row["low"]), percent(row["high"]), _)


def _between(low: str, high: str, _: Translate) -> str:
    return _("%(low)s to %(high)s") % {"low": low, "high": high}
