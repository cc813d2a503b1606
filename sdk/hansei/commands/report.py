"""The report of `hansei reflect` for people."""

from __future__ import annotations

from collections.abc import Collection

from hansei.learnt import Learnt, Lesson
from hansei.terminal import cause, count, cut, show

MOST = 5
"""Lessons shown."""
MOST_REFUSED = 20
LONGEST_TEXT = 600
OTHER_ACTIONS = {
    "updated": "updated", "merged": "merged", "deleted": "deleted", "kept": "said before"
}  # fmt: skip
"""What else may happen to a bullet, and in what words."""


def show_report(learnt: Learnt, seconds: float, waiting: Collection[str]) -> None:
    """`waiting` are the runs nobody waited for."""
    if learnt.sent == 0:
        show("There is no trace in it.")
        return
    show(_summary(learnt, seconds))
    _show_refused(learnt)
    if waiting:
        show(f"{count(len(waiting), 'reflection')} queued; see how they get on with `hansei runs`.")
        return
    if learnt.new or learnt.most_important():
        show(_outcome(learnt))
    show_playbook(learnt)
    _show_failed(learnt)
    lessons = learnt.most_important()
    if len(lessons) > MOST:
        show()
        show("The most important of them:", style="bold")
    for lesson in lessons[:MOST]:
        _show_lesson(lesson)


def _summary(learnt: Learnt, seconds: float) -> str:
    if learnt.duplicates == learnt.sent:
        which = "The trace was" if learnt.sent == 1 else f"All {learnt.sent} traces were"
        return f"{which} here already; nothing new to reflect on."
    parts = [f"{learnt.new} new", f"{learnt.duplicates} here already"]
    parts.append(f"{len(learnt.refused)} refused")
    return f"{count(learnt.sent, 'trace')} in {seconds:.1f} s: {', '.join(parts)}."


def _outcome(learnt: Learnt) -> str:
    parts = [
        count(learnt.reflections, "new reflection") + _before(learnt.witnessed),
        count(learnt.strategies, "new strategy", "new strategies")
        + _before(learnt.strategies_witnessed),
        f"{learnt.nothing_found} with nothing to learn",
        f"{len(learnt.failed)} failed",
    ]
    if learnt.left_out:
        parts.append(f"{learnt.left_out} that needed no reflection")
    if learnt.resent:
        parts.append(f"{learnt.resent} sent before without a name")
    if learnt.degraded:
        parts.append(f"{learnt.degraded} by rules, because the model failed")
    return f"Learnt: {', '.join(parts)}."


def _before(number: int) -> str:
    return f" ({number} said before)" if number else ""


def show_playbook(learnt: Learnt) -> None:
    """What became of the bullets."""
    if learnt.verdicts:
        told = ", ".join(f"{number} {tag}" for tag, number in learnt.verdicts.most_common())
        show(f"Verdicts on the bullets that were used: {told}.")
    if learnt.changes:
        done = [f"{count(learnt.counted('added'), 'bullet')} added"]
        others = ((learnt.counted(action), told) for action, told in OTHER_ACTIONS.items())
        done += [f"{number} {told}" for number, told in others if number]
        names = sorted({change.playbook for change in learnt.changes})
        more = f"`hansei playbook show {names[0]}` prints it."
        show(f"Playbook {', '.join(names)}: {', '.join(done)}. {more}")
    if learnt.proposals:
        show(f"{count(learnt.proposals, 'proposal')} wait for a person to accept them.")
    for change in [each for each in learnt.changes if each.action == "added"][:MOST]:
        show(f"+ {change.key} {cut(change.content, LONGEST_TEXT)}", indent=2, style="green")


def _show_refused(learnt: Learnt) -> None:
    for sent in learnt.refused[:MOST_REFUSED]:
        show(f"line {sent.get('line')} refused: {cause(sent.get('error'))}", indent=2)
    if len(learnt.refused) > MOST_REFUSED:
        show(f"… and {len(learnt.refused) - MOST_REFUSED} more; --json lists all.", indent=2)


def _show_failed(learnt: Learnt) -> None:
    for run in learnt.failed[:MOST_REFUSED]:
        line = learnt.line_of(run)
        show(f"line {line} failed: {cause(run['error'])} (run {run['id']})", indent=2)
    if learnt.failed:
        show("Try them again with `hansei runs --retry ID`.", indent=2)


def _show_lesson(lesson: Lesson) -> None:
    answer = lesson.answer
    lines = ", ".join(str(line) for line in sorted(lesson.lines)[:5])
    more = f" and {len(lesson.lines) - 5} more" if len(lesson.lines) > 5 else ""
    where = f"{'line' if len(lesson.lines) == 1 else 'lines'} {lines}{more}"
    why = answer.get("error_category")
    facts = [f"importance {lesson.importance:.2f}", *([why] if why else []), where]
    show()
    show(" · ".join(facts), style="dim")
    show(cut(answer.get("reflection_text") or "", LONGEST_TEXT))
    strategy = answer.get("strategy_text")
    if strategy:
        show(f"→ {cut(strategy, LONGEST_TEXT)}", style="green")
    show(f"{answer.get('reflection_id')}", style="dim")
