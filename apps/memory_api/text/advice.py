"""The format of an advice text: an advice, followed by tool lists that show where it was needed.

    Before a call that changes data, do not guess an argument. Previously wrong: `book` (`date`,
    `payment_id`), `cancel`.

A tool list has a label ("Previously wrong") and tools, each with optional details in parentheses.
Two texts with the same advice are merged by joining the lists with the same label. Tools and
details are sorted, so that the result does not depend on the order of merging. Japanese texts use
`：`, `、`, `（）` and `。`. An advice may also contain examples of its run, "(in this run: …)".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MAX_LISTED_TOOLS = 12
"""Per tool list. Further tools are not added."""
MAX_LISTED_DETAILS = 6
"""Per tool. Further details are not added."""

_PLAIN = re.compile(r"[^`\n]{1,80}")
_NAME = rf"`{_PLAIN.pattern}`"
_ENTRY = rf"{_NAME}(?: \({_NAME}(?:, {_NAME})*\)|（{_NAME}(?:、{_NAME})*）)?"
_TOOL_LIST = re.compile(
    rf"(?:(?<=[.!?] )(?P<label>[^.!?:`\n]{{2,60}}): (?P<tools>{_ENTRY}(?:, {_ENTRY})*)\.(?: |$)"
    rf"|(?<=。)(?P<ja_label>[^。：`\n]{{1,30}})：(?P<ja_tools>{_ENTRY}(?:、{_ENTRY})*)。)"
)
Details = frozenset[str]
ToolList = Mapping[str, Details]
"""Tool name → its details, all without backticks."""


@dataclass(frozen=True)
class AdviceWithLists:
    """A parsed text with at least one tool list."""

    advice: str
    tool_lists: Mapping[str, ToolList]
    """By label."""

    def __str__(self) -> str:
        is_japanese = self.advice.endswith("。")
        sentences = [
            _format_tool_list(label, self.tool_lists[label], is_japanese)
            for label in sorted(self.tool_lists)
        ]
        return ("" if is_japanese else " ").join((self.advice, *sentences))


def append_tool_list(advice: str, label: str, entries: Mapping[str, Iterable[str]]) -> str:
    """Append a tool list to `advice`, which must be whole sentences. Leaves out names and details
    with a backtick or a line break, or over 80 characters.
    """
    tool_list = {
        name: frozenset(filter(_PLAIN.fullmatch, details))
        for name, details in entries.items()
        if _PLAIN.fullmatch(name)
    }
    return str(AdviceWithLists(advice, {label: tool_list})) if tool_list else advice


def parse_tool_lists(text: str) -> AdviceWithLists | None:
    """Split a text into its advice and its tool lists. None if it does not end with a tool list."""
    text = text.strip()
    matches = list(_TOOL_LIST.finditer(text))
    while matches and "".join(m[0] for m in matches) != text[matches[0].start() :]:
        matches.pop(0)
    if not matches:
        return None
    tool_lists: dict[str, ToolList] = {}
    for match in matches:
        label = match["label"] or match["ja_label"]
        entries = re.findall(_ENTRY, match["tools"] or match["ja_tools"])
        names = ([name.strip("`") for name in re.findall(_NAME, entry)] for entry in entries)
        tool_list = {name: frozenset(details) for name, *details in names}
        tool_lists[label] = _merge(tool_lists.get(label, {}), tool_list)
    return AdviceWithLists(text[: matches[0].start()].rstrip(), tool_lists)


def strip_tool_lists(text: str) -> str:
    parsed = parse_tool_lists(text)
    return parsed.advice if parsed else text


def merge_tool_lists(text: str, other: str) -> str | None:
    """Add the tool lists of `other` to `text`. Returns `text` if there is nothing to add, and None
    if the advice is not the same.
    """
    first, second = parse_tool_lists(text), parse_tool_lists(other)
    if first is None or second is None or _fold(first.advice) != _fold(second.advice):
        return None
    labels = first.tool_lists.keys() | second.tool_lists.keys()
    merged = {
        label: _merge(first.tool_lists.get(label, {}), second.tool_lists.get(label, {}))
        for label in labels
    }
    return text if merged == first.tool_lists else str(AdviceWithLists(first.advice, merged))


def _merge(tools: ToolList, other: ToolList) -> ToolList:
    """Add the tools and details of `other`, up to the limits."""
    free_count = max(0, MAX_LISTED_TOOLS - len(tools))
    new = sorted(other.keys() - tools.keys())[:free_count]
    return {name: _merge_details(tools.get(name), other.get(name)) for name in (*tools, *new)}


def _merge_details(details: Details | None, other: Details | None) -> Details:
    details = details or frozenset()
    free_count = max(0, MAX_LISTED_DETAILS - len(details))
    return details | frozenset(sorted((other or frozenset()) - details)[:free_count])


def _format_tool_list(label: str, tools: ToolList, is_japanese: bool) -> str:
    separator, colon, end = ("、", "：", "。") if is_japanese else (", ", ": ", ".")
    opening, closing = ("（", "）") if is_japanese else (" (", ")")
    entries: list[str] = []
    for name in sorted(tools):
        details = separator.join(f"`{detail}`" for detail in sorted(tools[name]))
        entries.append(f"`{name}`{opening}{details}{closing}" if details else f"`{name}`")
    return f"{label}{colon}{separator.join(entries)}{end}"


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


_NESTED_PARENTHESES = r"[^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*"
_RUN_EXAMPLE = re.compile(
    rf"(?<!\s)\s*\(in this run: {_NESTED_PARENTHESES}\)|（この実行では[^（）]*）"
)
_SAME_TASK = re.compile(r"\battempts at this task\b|このタスクの成功した試行")


def strip_run_examples(text: str) -> str:
    """Remove the examples of a run. Texts that differ only in these examples are the same rule."""
    return _RUN_EXAMPLE.sub("", text)


def is_task_specific(text: str) -> bool:
    """Whether the rules engine wrote the text for the next attempt at the same task.

    Such a text does not name the task, so it is shown to the next attempt
    (`reflection/task_comparison.py`) but would not be clear in a playbook.
    """
    return _SAME_TASK.search(text) is not None
