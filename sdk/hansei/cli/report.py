"""Prints the report of `hansei reflect`."""

from __future__ import annotations

from collections.abc import Collection

from hansei.cli.terminal import format_count, format_error, print_text, truncate
from hansei.learning_summary import LearnedReflection, LearningSummary

MAX_LESSONS = 5
MAX_ERRORS = 20
MAX_LINES_NAMED = 5
MAX_REASONS = 3
MAX_TEXT_LENGTH = 600
CHANGE_NAMES = {
    "updated": "updated", "merged": "merged", "deleted": "deleted", "kept": "already known"
}  # fmt: skip
"""Changes other than "added", and how the report names them."""


def print_report(summary: LearningSummary, seconds: float, unfinished: Collection[str]) -> None:
    """`unfinished` holds the IDs of the runs that the command does not wait for."""
    if summary.total_traces == 0:
        print_text("The file contains no trace.")
        return
    print_text(_format_receipts(summary, seconds))
    _print_rejected(summary)
    if unfinished:
        reflections = format_count(len(unfinished), "reflection")
        print_text(f"{reflections} queued; see `hansei run list`.")
        return
    lessons = summary.most_important()
    if summary.new_traces or lessons:
        print_text(_format_lesson_counts(summary))
    print_playbook_changes(summary)
    for reason, number in summary.why_nothing.most_common(MAX_REASONS):
        print_text(f"{format_count(number, 'trace')}: {reason}")
    _print_failed(summary)
    if len(lessons) > MAX_LESSONS:
        print_text()
        print_text("The most important of them:", style="bold")
    for lesson in lessons[:MAX_LESSONS]:
        _print_lesson(lesson)


def _format_receipts(summary: LearningSummary, seconds: float) -> str:
    total = summary.total_traces
    if summary.duplicates == total:
        subject = "The trace is" if total == 1 else f"All {total} traces are"
        return f"{subject} already stored; nothing new to reflect on."
    return (
        f"{format_count(total, 'trace')} in {seconds:.1f} s: {summary.new_traces} new, "
        f"{summary.duplicates} already stored, {len(summary.rejected)} rejected."
    )


def _format_lesson_counts(summary: LearningSummary) -> str:
    reflections = format_count(summary.new_reflections, "new reflection")
    strategies = format_count(summary.new_strategies, "new strategy", "new strategies")
    parts = [
        reflections + _format_known(summary.known_reflections),
        strategies + _format_known(summary.known_strategies),
        f"{summary.nothing_found} with nothing to learn",
        f"{len(summary.failed)} failed",
    ]
    if summary.not_reflected:
        parts.append(f"{summary.not_reflected} not reflected on")
    if summary.resent:
        parts.append(f"{summary.resent} sent before without an `external_id`")
    if summary.degraded:
        parts.append(f"{summary.degraded} by rules because the model failed")
    return f"Learned: {', '.join(parts)}."


def _format_known(number: int) -> str:
    return f" ({number} already known)" if number else ""


def print_playbook_changes(summary: LearningSummary) -> None:
    if summary.verdicts:
        counts = ", ".join(f"{number} {tag}" for tag, number in summary.verdicts.most_common())
        print_text(f"Verdicts on the bullets used: {counts}.")
    if summary.changes:
        parts = [f"{format_count(summary.count_changes('added'), 'bullet')} added"]
        others = ((summary.count_changes(action), name) for action, name in CHANGE_NAMES.items())
        parts += [f"{number} {name}" for number, name in others if number]
        playbooks = sorted({change.playbook for change in summary.changes})
        hint = f"`hansei playbook show {playbooks[0]}` prints it."
        print_text(f"Playbook {', '.join(playbooks)}: {', '.join(parts)}. {hint}")
    if summary.proposals:
        print_text(f"Proposals that wait for review: {summary.proposals}.")
    added = [change for change in summary.changes if change.action == "added"]
    for change in added[:MAX_LESSONS]:
        text = f"+ {change.key} {truncate(change.content, MAX_TEXT_LENGTH)}"
        print_text(text, indent=2, style="green")


def _print_rejected(summary: LearningSummary) -> None:
    for receipt in summary.rejected[:MAX_ERRORS]:
        error = format_error(receipt.error)
        print_text(f"line {receipt.line} rejected: {error}", indent=2)
    if len(summary.rejected) > MAX_ERRORS:
        more = len(summary.rejected) - MAX_ERRORS
        print_text(f"… and {more} more; --json lists all.", indent=2)


def _print_failed(summary: LearningSummary) -> None:
    for run in summary.failed[:MAX_ERRORS]:
        line, error = summary.line_of(run), format_error(run.error)
        print_text(f"line {line} failed: {error} (run {run.id})", indent=2)
    if summary.failed:
        print_text("Run `hansei run retry ID` to try again.", indent=2)


def _print_lesson(lesson: LearnedReflection) -> None:
    response = lesson.response
    category = response.error_category
    facts = [f"importance {lesson.importance:.2f}", *([category] if category else [])]
    print_text()
    print_text(" · ".join([*facts, _format_lines(lesson.lines)]), style="dim")
    print_text(truncate(response.reflection_text or "", MAX_TEXT_LENGTH))
    strategy = response.strategy_text
    if strategy:
        print_text(f"→ {truncate(strategy, MAX_TEXT_LENGTH)}", style="green")
    print_text(f"{response.reflection_id}", style="dim")


def _format_lines(lines: list[int]) -> str:
    named = ", ".join(str(line) for line in sorted(lines)[:MAX_LINES_NAMED])
    hidden = len(lines) - MAX_LINES_NAMED
    more = f" and {hidden} more" if hidden > 0 else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {named}{more}"
