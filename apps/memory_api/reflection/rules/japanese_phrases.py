"""Phrases that the Japanese sentences and strategies share."""

from __future__ import annotations

from collections.abc import Sequence

from memory_api.trace_analysis.arguments import (
    BODY_CHANGE,
    QUOTES_CHANGE,
    WHITESPACE_CHANGE,
    ArgumentChange,
    is_named,
)
from memory_api.trace_analysis.failures import is_exit_code


def change(c: ArgumentChange) -> str:
    """What changed from one call to the next, as a noun phrase."""
    if c.name == WHITESPACE_CHANGE:
        return "空白のみの変更"
    if c.name == QUOTES_CHANGE:
        return "引用符の追加" if (c.after or "")[:1] in "\"'" else "引用符の削除"
    if c.name == BODY_CHANGE:
        return "2行目以降の変更"
    if not is_named(c):
        return _reworded(c)
    if c.before is None:
        return f"{code(f'{c.name}={c.after}')} の追加"
    if c.after is None:
        return f"{code(f'{c.name}={c.before}')} の削除"
    return f"{code(c.name)} を {code(c.before)} から {code(c.after)} に変更"


def _reworded(c: ArgumentChange) -> str:
    if max(len(c.before or ""), len(c.after or "")) > 60:
        return "引数の書き換え"
    if not c.after:
        return f"「{c.before}」の削除"
    if not c.before:
        return f"「{c.after}」の追加"
    return f"「{c.before}」を「{c.after}」に変更"


def changes(items: Sequence[ArgumentChange]) -> str:
    return listed([change(c) for c in items])


def differs(c: ArgumentChange) -> str:
    """The two values of an argument in a failed (before) and a successful call (after)."""
    if not is_named(c):
        return change(c)
    before, after = code(c.before) if c.before else "なし", code(c.after) if c.after else "なし"
    return f"{code(c.name)} は失敗側が {before}、成功側が {after}"


def listed(items: Sequence[str]) -> str:
    return "、".join(items)


def code(text: str) -> str:
    """A call, a tool or an argument in backticks; in quotation marks if it contains a backtick."""
    return f"「{text}」" if "`" in text else f"`{text}`"


def codes(items: Sequence[str]) -> str:
    return listed([code(item) for item in items])


def quoted(items: Sequence[str]) -> str:
    return "".join(f"「{item}」" for item in items)


def quote(text: str) -> str:
    """A quotation that ends the sentence."""
    return f"「{text.rstrip('。')}」。"


def cause(message: str) -> str:
    """Why a call failed, at the end of its sentence. An exit code is no quotation."""
    if is_exit_code(message):
        return f"（終了コード {message.split()[-1]}）。"
    return f"：{quote(message)}"


def stop(text: str) -> str:
    """The text with a mark at its end."""
    return text if text.endswith(("。", "！", "？", "…", "!", "?")) else text + "。"
