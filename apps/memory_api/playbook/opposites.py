"""Words that turn a lesson round, and words that tell nothing of what it is about."""

from __future__ import annotations


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    words = text.replace(",", " ").split()
    return tuple(zip(words[::2], words[1::2], strict=True))


def _halves(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((w[: len(w) // 2], w[len(w) // 2 :]) for w in text.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH = _pairs(
    """always never, most least, more less, more fewer, maximum minimum, max min, highest
    lowest, high low, higher lower, largest smallest, larger smaller, large small, longest
    shortest, long short, newest oldest, new old, earliest latest, early late, earlier
    later, first last, before after, previous next, enable disable, add remove, add delete,
    create delete, insert delete, include exclude, increase decrease, with without, send
    receive, sent received, ascending descending, open close, opened closed, left right,
    approve reject, accept reject, accept decline, allow deny, allow forbid, true false, on
    off, success failure, succeed fail, upper lower, start stop, start end, begin end,
    public private, read write, push pull, encode decode, encrypt decrypt, required
    optional, mandatory optional, up down, above below, over under, internal external, input
    output, import export, local remote, upload download, login logout, sync async, best
    worst, positive negative, same different, single multiple, one all, many few, buy sell,
    fast slow, inside outside, past future, yes no, use avoid, keep remove, keep discard,
    top bottom, horizontal vertical, absolute relative, client server"""
)
JAPANESE = _halves(
    """最大最小 最多最少 最新最古 最初最後 最高最低 有効無効 追加削除 開始終了 成功失敗
    許可拒否 入力出力 必要不要 可能不可 前後 上下 増減 多少 高低 長短 左右 早遅
    大小 新古 男女 朝夜 昼夜 夏冬 白黒 内外 東西 南北 買売 送受 開閉 着脱 強弱
    軽重"""
)
PLAIN = _words(
    """a an the and or but if when whenever while then than that this these those there here it
    its they them their you your we our i he she his her who whom whose which what how why
    where of in on at to from by for with about into onto over under as is are was were be
    been being am has have had having can could will would shall should may might so such
    also just only even very first before after any each every all both some more most other
    another same own again once until unless because since between during up down out off e
    g ie etc"""
)
"""English function words."""
