"""The reasons of verdicts that no model gave, in the language of the trace."""

from __future__ import annotations

_REASONS = {
    "en": {
        "followed_right": "It says to call {tool}; the run did, and {source} it was right.",
        "followed_wrong": "It says to call {tool}; the run did, and {source} it was wrong.",
        "kept_from": "It says to leave {tool} alone; the run did, and {source} it was needed.",
        "broken": "The run went against its advice on {tool}, and {source} the advice was right.",
    },
    "ja": {
        "followed_right": "{tool} を呼ぶ助言どおりに動き、{source}それが正しかった。",
        "followed_wrong": "{tool} を呼ぶ助言どおりに動き、{source}それが誤りだった。",
        "kept_from": "{tool} を控える助言どおりに動いたが、{source}必要だった。",
        "broken": "{tool} についての助言に反して動き、{source}助言のほうが正しかった。",
    },
}
_SOURCES = {
    "en": {"test": "by the expected result", "rules": "by what the run shows"},
    "ja": {"test": "期待された結果では", "rules": "実行の経過では"},
}


def say(why: str, tool: str, judge: str, language: str) -> str:
    """One sentence; an unknown language is told in English."""
    known = language if language in _REASONS else "en"
    return _REASONS[known][why].format(tool=tool, source=_SOURCES[known][judge])
