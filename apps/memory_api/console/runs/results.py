"""What a run did, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from markupsafe import Markup, escape

from memory_api.console.translations import N_, Translation
from memory_api.console.visit import Visit
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

SHOWN_KEYS = 10


@dataclass(frozen=True)
class JudgedTrace:
    """What the page of a run knows about its trace."""

    outcome: str | None
    judged_count: int
    """Bullets that the run judged."""


def describe_result(run: Run, trace: JudgedTrace, visit: Visit) -> Markup:
    """The result of a step of learning, with links to what it made; empty for other runs and before
    the end.
    """
    result = _result_of(run)
    if run.state != "done" or not result:
        return Markup()
    if run.kind == "evaluate":
        return _describe_evaluation(run, result, trace, visit)
    if run.kind == "reflect":
        return _describe_reflection(run, result, visit)
    if run.kind == "curate":
        return _describe_plan(run, result, visit)
    if run.kind == "apply":
        return _describe_changes(run, result, visit)
    return Markup()


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
    run: Run, result: Mapping[str, Any], trace: JudgedTrace, visit: Visit
) -> Markup:
    """Such as "Success; 8 bullets judged; no reflection needed"."""
    _, ngettext = visit.translation.gettext, visit.translation.ngettext
    parts: list[str] = []
    if trace.outcome:
        parts.append(_(trace.outcome))
    if trace.judged_count:
        text = ngettext("one verdict", "%(count)s verdicts", trace.judged_count)
        parts.append(text % {"count": trace.judged_count})
    next_step = _("a reflection follows") if result.get("reflect") else _("no reflection needed")
    first, *others = [*parts, next_step]
    *texts, last = [first[:1].upper() + first[1:], *others]
    end = _next_run(run, last, visit) if result.get("reflect") else escape(last)
    return Markup("; ").join([*texts, end])


def _describe_reflection(run: Run, result: Mapping[str, Any], visit: Visit) -> Markup:
    _, ngettext = visit.translation.gettext, visit.translation.ngettext
    reflection_id = result.get("reflection_id")
    if not reflection_id:
        return escape(_("Nothing to learn"))
    if result.get("result") == "already_known":
        text = _("Nothing new: an earlier trace taught the same")
        return _lesson(run, reflection_id, text, visit)
    found = _lesson(run, reflection_id, _("One reflection"), visit)
    strategies = result.get("strategies") or ()
    if strategies:
        count = len(strategies)
        text = ngettext(", one strategy", ", %(count)s strategies", count) % {"count": count}
        found += _lesson(run, strategies[0]["id"], text, visit)
    return found


def _describe_plan(run: Run, result: Mapping[str, Any], visit: Visit) -> Markup:
    count = len(result.get("deltas") or ())
    if count:
        text = visit.translation.ngettext(
            "One change proposed", "%(count)s changes proposed", count
        )
        return _next_run(run, text % {"count": count}, visit)
    if result.get("known_keys"):
        text = visit.translation.gettext("No change: already said by %(keys)s")
        return escape(text) % {"keys": _bullets(run, result["known_keys"], visit)}
    return escape(visit.translation.gettext("No change"))


def _describe_changes(run: Run, result: Mapping[str, Any], visit: Visit) -> Markup:
    _, playbook = visit.translation.gettext, _playbook_of(run)
    if result.get("proposal_id"):
        text = _("A proposal, which waits for a review")
        return (
            _link(visit.link("playbooks", playbook, "review"), text) if playbook else escape(text)
        )
    if not result.get("keys"):
        return escape(_("No change"))
    keys = _bullets(run, result["keys"], visit)
    if not playbook or not result.get("version"):
        return escape(_("Created or changed: %(keys)s")) % {"keys": keys}
    version = _link(
        visit.link("playbooks", playbook, "timeline", at=result["version"]),
        _("version %(number)s") % {"number": result["version"]},
    )
    return escape(_("Created or changed: %(keys)s in %(version)s")) % {
        "keys": keys,
        "version": version,
    }


def _bullets(run: Run, keys: Sequence[object], visit: Visit) -> Markup:
    """The first bullets as links, and how many more there are."""
    playbook = _playbook_of(run)
    shown = [
        _link(visit.link("playbooks", playbook, "bullets", key), str(key)) if playbook else str(key)
        for key in dict.fromkeys(map(str, keys[:SHOWN_KEYS]))
    ]
    found = Markup(", ").join(shown)
    more = len(keys) - SHOWN_KEYS
    if more <= 0:
        return found
    text = visit.translation.gettext("%(ids)s and %(count)s more")
    return escape(text) % {"ids": found, "count": more}


def _playbook_of(run: Run) -> str | None:
    name = _result_of(run).get("playbook") or run.input.get("playbook")
    return name if isinstance(name, str) else None


def _lesson(run: Run, memory_id: object, text: str, visit: Visit) -> Markup:
    """A lesson on the page of the trace that the run read."""
    if run.trace_id is None:
        return escape(text)
    return _link(f"{visit.link('traces', str(run.trace_id))}#lesson-{memory_id}", text)


def _next_run(run: Run, text: str, visit: Visit) -> Markup:
    return (
        _link(visit.link("runs", str(run.next_run_id)), text) if run.next_run_id else escape(text)
    )


def _link(address: str, text: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address, text)
