"""What a run did, in one sentence."""

from __future__ import annotations

from typing import Any, cast

from memory_api.console.translations import Translation
from memory_api.runs.schemas import Run


def describe_result(run: Run, translation: Translation) -> str:
    """The result of a step of learning; '' for other runs and before the end."""
    _, ngettext = translation.gettext, translation.ngettext
    result = cast("dict[str, Any]", run.result if isinstance(run.result, dict) else {})
    if run.state != "done" or not result:
        return ""
    if run.kind == "evaluate":
        return "" if result.get("reflect") else _("Nothing to reflect on")
    if run.kind == "reflect":
        if not result.get("reflection_id"):
            return _("Nothing to learn")
        count = len(result.get("strategies") or ())
        text = _("One reflection")
        if count:
            text += ngettext(", one strategy", ", %(count)s strategies", count) % {"count": count}
        return text
    if run.kind == "curate":
        count = len(result.get("deltas") or ())
        text = ngettext("One change proposed", "%(count)s changes proposed", count)
        return text % {"count": count} if count else _("No change")
    if run.kind == "apply":
        return ", ".join(map(str, result.get("keys") or ())) or _("No change")
    return ""
