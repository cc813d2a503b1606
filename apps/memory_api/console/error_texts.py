"""Errors of the API in the words of the console and in the language of the person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memory_api.console.translations import N_, Translation

FIELD_LABELS: Mapping[str, str] = {
    "since": N_("From"),
    "until": N_("To"),
    "limit_usd": N_("US dollars"),
    "limit_tokens": N_("Tokens"),
    "content": N_("Text"),
    "when_to_use": N_("When to use"),
    "title": N_("Title"),
    "tags": N_("Tags"),
    "section": N_("Section"),
    "reason": N_("Reason"),
    "name": N_("Name"),
    "description": N_("Description"),
    "query": N_("Question"),
    "focus": N_("Focus"),
    "period": N_("Period"),
    "purpose": N_("Purpose"),
    "project_id": N_("Project"),
    "answer": N_("Answer"),
    "input": N_("Your answer"),
    "tag": N_("Verdict"),
    "status": N_("Status"),
    "version": N_("Version"),
}
"""Field of a body of the API → its label in the forms."""
MISSING: Mapping[str, str] = {
    "trace_id": N_("There is no such trace."),
    "run_id": N_("There is no such run."),
    "report_id": N_("There is no such report."),
    "agent_run_id": N_("There is no such question."),
    "question": N_("There is no such question."),
}
"""Part of an address → what is wrong if it is no ID."""
NO_PAGE = N_("There is no such page.")
NO_NUMBER = N_("Must be a number, such as 2.50.")
TOO_LONG = N_("At most %(count)s characters.")
KNOWN_ERRORS = (
    N_("Playbook not found."),
    N_("Trace not found."),
    N_("Agent run not found."),
    N_("Proposal not found."),
    N_("API key not found."),
    N_("Report not found."),
    N_("Resource not found."),
    N_("Version not found."),
    N_("Must not be empty."),
    N_("Check at least one bullet."),
    N_("Enter a reason. It becomes part of the history."),
    N_("Choose a version to restore."),
    N_("Create a collection first: there is nothing to search."),
    N_("Write a title and a text."),
    N_("Write a statement first."),
)
"""Texts that people see often."""


def describe_form_error(item: Mapping[str, Any], message: str) -> str:
    """The message of an error of pydantic, for people."""
    if item["type"] == "string_too_long":
        return TOO_LONG % {"count": item["ctx"]["max_length"]}
    return NO_NUMBER if item["type"] == "float_parsing" else message


def explain(text: str, translation: Translation) -> str:
    """The text of an error, with the label of the field that it begins with, if it is known."""
    label, separator, message = text.partition(": ")
    if separator and label in FIELD_LABELS.values():
        return f"{translation.gettext(label)}: {_translate(message, translation)}"
    return _translate(text, translation)


def _translate(text: str, translation: Translation) -> str:
    """A text that is known, also one that is known with another number."""
    found, number = translation.gettext(text), re.search(r"\d+", text)
    if found != text or number is None:
        return found
    pattern = text.replace(number[0], "%(count)s", 1)
    return translation.gettext(pattern).replace("%(count)s", number[0])
