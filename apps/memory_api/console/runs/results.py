"""What a run did, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from memory_api.console.translations import N_, Translation
from memory_api.runs.schemas import Run

REASONS = {
    "Success without a failed attempt before it; lite mode does not reflect on it.": N_(
        "A plain success teaches nothing new, so nothing was reflected on."
    ),
    "Routine success: earlier successes of the playbook made the same calls.": N_(
        "A routine success teaches nothing new: earlier successes made the same calls."
    ),
    "The outcome is unknown.": N_("No outcome is known. State it, and Hansei learns from it."),
    "Reflection is turned off for this trace.": N_("The client asked not to learn from it."),
    "The request asks for a reflection.": N_("The request asks for a reflection."),
    "Success after a failed attempt at the same task.": N_(
        "It succeeded after a failed attempt at the same task."
    ),
    "Full mode reflects on every success.": N_("Every success is reflected on."),
}
"""The reasons that an evaluation gives for or against a reflection, for people."""


@dataclass(frozen=True)
class JudgedTrace:
    """What the page of a run knows about its trace."""

    outcome: str | None
    judged_count: int
    """Bullets that the run judged."""


def describe_result(run: Run, trace: JudgedTrace, translation: Translation) -> str:
    """The result of a step of learning; '' for other runs and before the end."""
    _ = translation.gettext
    result = _result_of(run)
    if run.state != "done" or not result:
        return ""
    if run.kind == "evaluate":
        return _describe_evaluation(result, trace, translation)
    if run.kind == "reflect":
        return _describe_reflection(result, translation)
    if run.kind == "curate":
        return _describe_plan(result, translation)
    if run.kind == "apply":
        return _describe_changes(result, translation)
    return ""


def count_traces(run: Run) -> int:
    """The traces whose lessons a curation decided on, or a change applied."""
    lessons = cast("list[dict[str, Any]]", _result_of(run).get("lessons") or [])
    return len({item.get("trace_id") for item in lessons})


def describe_reason(result: object, translation: Translation) -> str:
    """Why an evaluation led to a reflection or to none; '' for the results of other runs."""
    is_evaluation = isinstance(result, dict) and "reflect" in result
    reason = cast("dict[str, Any]", result).get("reason") if is_evaluation else None
    return translation.gettext(REASONS.get(reason, reason)) if isinstance(reason, str) else ""


def _result_of(run: Run) -> Mapping[str, Any]:
    return cast("dict[str, Any]", run.result if isinstance(run.result, dict) else {})


def _describe_evaluation(
    result: Mapping[str, Any], trace: JudgedTrace, translation: Translation
) -> str:
    """Such as "Success; 8 bullets judged; no reflection needed"."""
    _, ngettext = translation.gettext, translation.ngettext
    parts: list[str] = []
    if trace.outcome:
        parts.append(_(trace.outcome))
    if trace.judged_count:
        text = ngettext("one verdict", "%(count)s verdicts", trace.judged_count)
        parts.append(text % {"count": trace.judged_count})
    parts.append(_("a reflection follows") if result.get("reflect") else _("no reflection needed"))
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _describe_reflection(result: Mapping[str, Any], translation: Translation) -> str:
    _, ngettext = translation.gettext, translation.ngettext
    if not result.get("reflection_id"):
        return _("Nothing to learn")
    if result.get("result") == "already_known":
        return _("Nothing new: an earlier trace taught the same")
    count = len(result.get("strategies") or ())
    text = _("One reflection")
    if count:
        text += ngettext(", one strategy", ", %(count)s strategies", count) % {"count": count}
    return text


def _describe_plan(result: Mapping[str, Any], translation: Translation) -> str:
    count = len(result.get("deltas") or ())
    if count:
        text = translation.ngettext("One change proposed", "%(count)s changes proposed", count)
        return text % {"count": count}
    known = ", ".join(map(str, result.get("known_keys") or ()))
    if known:
        return translation.gettext("No change: %(keys)s says it already") % {"keys": known}
    return translation.gettext("No change")


def _describe_changes(result: Mapping[str, Any], translation: Translation) -> str:
    if result.get("proposal_id"):
        return translation.gettext("A proposal, which waits for a review")
    keys = ", ".join(map(str, result.get("keys") or ()))
    return (
        translation.gettext("Changed: %(keys)s") % {"keys": keys}
        if keys
        else (translation.gettext("No change"))
    )
