"""Splits English and Japanese text into sentences. Pure.

A period ends no sentence after a title, an initial or another abbreviation, in a number or before a
lowercase letter. 。 ends none inside 「…」, and 」 none before a particle. Lowercase letters and
closing marks follow UAX #29 (SB8, SB9). The abbreviations are chosen from the English suppressions
of Unicode CLDR (common/segments/en.xml), without those that are also words ("In.", "Job."), with
more titles and the abbreviations before a number. An abbreviation may end a sentence too ("in the
U.S. The law …"): the next word decides, if it often begins a sentence.
"""

from __future__ import annotations

import re

Span = tuple[int, int]

_END = re.compile(
    r"(?P<mark>[。｡！？．!?]+|\.+)(?P<close>[」』）〉》】)\]\"'”’]*)(?P<space>\s*)|\n[ \t]*\n\s*"
)
_QUOTED = re.compile(r"「[^「」\n]{0,400}」|『[^『』\n]{0,400}』|（[^（）\n]{0,400}）")
_CONTINUES = re.compile(r"[とをがはにのもで、。，．・」』）]|って|だ|など|から")
"""What follows a closing mark in the same Japanese sentence."""
_DOTTED = re.compile(r"(?:[A-Za-z]{1,3}\.)+[A-Za-z]{1,3}")
_WORD = re.compile(r"[A-Za-z]+")
_OPENING = "([{\"'“‘「『（"
MAX_ABBREVIATION_LENGTH = 20


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INSIDE = _words(
    "mr mrs ms messrs dr prof rev hon gen col capt cmdr lt sgt maj gov sen rep pres mt ft"
    " e.g i.e cf vs viz approx ca esp incl"
)
"""Abbreviations that never end a sentence."""
_BEFORE_NUMBER = _words(
    "no nos nr p pp vol fig figs eq ch sec art ed jan feb mar apr jun jul aug sep sept oct nov dec"
    " c"
)
"""Abbreviations if a number follows."""
_ANYWHERE = _words(
    "st ave blvd rd dept est inc ltd co corp bros jr sr etc al univ assn div dist hr min sq"
)
_STARTERS = _words(
    "the this that these those it its he she they we you there here his her their our my in on at"
    " as but and or so for from if when while after before although though because since however"
    " by with without during until under about over some many most several such what which who why"
    " how where then thus also according despite today"
)
"""Words that often begin a sentence, and rarely a name."""


def split_sentences(text: str) -> list[Span]:
    """The spans of the sentences of a text, with the spaces that follow them."""
    spans: list[Span] = []
    quotes = [match.span() for match in _QUOTED.finditer(text)]
    start = passed = 0
    for match in _END.finditer(text):
        while passed < len(quotes) and quotes[passed][1] <= match.start():
            passed += 1
        within = passed < len(quotes) and quotes[passed][0] < match.start()
        if within and match["mark"] and match.end("close") < quotes[passed][1]:
            continue
        if _is_end(text, start, match):
            spans.append((start, match.end()))
            start = match.end()
    if start < len(text):
        spans.append((start, len(text)))
    return spans


def _is_end(text: str, start: int, match: re.Match[str]) -> bool:
    mark, end = match["mark"], match.end()
    if (
        mark is None
        or end == len(text)
        or "\n" in match["space"].lstrip(" \t").replace("\n", "", 1)
    ):
        return True  # the end of a paragraph
    following = text[end]
    if mark[-1] == ".":
        if not match["space"] or following.islower():
            return False
        return len(mark) > 1 or not _is_abbreviation(text, start, match, following)
    if mark[-1] in "!?":
        if not match["space"]:
            return not (following.isascii() and following.isalnum())
        return not (match["close"] and following.islower())
    if mark[-1] == "．" and following.isdigit():
        return False
    return not (match["close"] and _CONTINUES.match(text, end))


def _is_abbreviation(text: str, start: int, match: re.Match[str], following: str) -> bool:
    """Whether the period belongs to the word before it and does not end the sentence."""
    point = match.start()
    before = text[max(start, point - MAX_ABBREVIATION_LENGTH) : point]
    word = before.split()[-1].lstrip(_OPENING) if before and not before[-1].isspace() else ""
    if word.isdigit():
        return text[start:point].strip() == word  # the number of an item: "1. Open the lid."
    lower = word.lower()
    if lower in _INSIDE or (lower in _BEFORE_NUMBER and following.isdigit()):
        return True
    is_initial = len(word) == 1 and word.isascii() and word.isupper()
    if not (is_initial or lower in _ANYWHERE or _DOTTED.fullmatch(word)):
        return False
    after = _WORD.match(text, match.end())
    return after is not None and after[0].lower() not in _STARTERS
