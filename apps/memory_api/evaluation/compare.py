"""An answer beside the right one: as code, as a number, else as text."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, cast

from apps.memory_api.evaluation.code import code_of, same_code
from apps.memory_api.evaluation.numbers import equal, quantities, whole
from apps.memory_api.evaluation.schemas import Comparison
from apps.memory_api.traces.quotes import cut

TOLERANCE = 1e-6
"""How far numbers may be apart, as a share of the right one, beside what rounding allows."""
SCORES = {"same": 1.0, "wider": 0.5, "narrower": 0.5, "different": 0.0}

_LONGEST = 20_000
_WORDS = 6
"""Right answers longer than this may be said in other words: wording cannot tell them apart."""
_ANYWHERE = frozenset({"the", "a", "an"})
_FIRST = frozenset(
    ["der", "die", "das", "ein", "eine", "le", "la", "les", "un", "une", "el", "los", "las", "una"]
)
_ELIDED = re.compile(r"\b[ldLD]['’](?=\w)")
_ASIDE = re.compile(r"\s*\([^)]{0,200}\)\s*$")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_ORDER = ("same", "wider", "narrower", "unknown", "different")


def compare(answer: Any, truth: Any, *, tolerance: float = TOLERANCE) -> Comparison:
    """How an answer stands to the right one, or to the nearest of several (a list). Values that are
    not text are compared as they are written. Never raises.
    """
    if isinstance(truth, list | tuple):
        options = [compare(answer, one, tolerance=tolerance) for one in cast("list[Any]", truth)]
        if options:
            return min(options, key=lambda found: _ORDER.index(found.relation))
    given, wanted = _text(answer), _text(truth)
    return (
        _as_code(given, wanted) or _as_number(given, wanted, tolerance) or _as_text(given, wanted)
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:_LONGEST].strip()


def _as_code(given: str, wanted: str) -> Comparison | None:
    right = code_of(wanted)
    if right is None:
        return None
    mine = code_of(given)
    if same_code(given if mine is None else mine, right):
        return Comparison("code", "same", 1.0, "the code is the same")
    return Comparison("code", "unknown", None, "other code, which may do the same")


def _as_number(given: str, wanted: str, tolerance: float) -> Comparison | None:
    """When the right answer is a quantity. A longer answer holds it or does not."""
    right = whole(wanted)
    if right is None:
        return None
    mine = whole(given)
    if mine is not None:
        same = equal(mine, right, tolerance)
        return _found("number", "same" if same else "different", given, wanted)
    if any(equal(one, right, tolerance) for one in quantities(given)):
        return _found("number", "wider", given, wanted)
    return _found("number", "different", given, wanted)


def _as_text(given: str, wanted: str) -> Comparison:
    said, right = normalised(given), normalised(wanted)
    bare = normalised(_ASIDE.sub("", wanted)) or right
    if not right:
        return Comparison("text", "unknown", None, "there is no right answer to compare with")
    if not said:
        return _found("text", "different", given, wanted)
    if _stem(said) in {_stem(right), _stem(bare)}:
        return _found("text", "same", given, wanted)
    if _holds(said, bare):
        return _found("text", "wider", given, wanted)
    if len(said) > 2 and _holds(right, said):
        return _found("text", "narrower", given, wanted)
    if len(right.split()) > _WORDS or (_UNSPACED.search(right) and len(right) > 4 * _WORDS):
        return Comparison("text", "unknown", None, "the right answer is long and worded otherwise")
    return _found("text", "different", given, wanted)


def _found(kind: Any, relation: Any, given: str, wanted: str) -> Comparison:
    words = {
        "same": "is right",
        "wider": f"holds the right answer {cut(wanted, 80)!r} and more",
        "narrower": f"is a part of the right answer {cut(wanted, 80)!r}",
        "different": f"is not the right answer {cut(wanted, 80)!r}",
    }
    said = cut(given, 80) or "(nothing)"
    return Comparison(kind, relation, SCORES[relation], f"{said!r} {words[relation]}")


def normalised(text: str) -> str:
    """Case, width, accents, quotation marks, punctuation and articles do not count."""
    folded = unicodedata.normalize("NFKD", _ELIDED.sub("", text)).casefold()
    folded = unicodedata.normalize("NFKC", _ACCENTS.sub("", folded))
    words = _PUNCTUATION.sub(" ", folded.replace("'", "").replace("’", "")).split()
    kept = [word for word in words if word not in _ANYWHERE] or words
    return " ".join(kept[1:] if len(kept) > 1 and kept[0] in _FIRST else kept)


def _holds(text: str, part: str) -> bool:
    """Whether the words of `part` stand together in `text`; scripts without spaces by character."""
    if _UNSPACED.search(part):
        return part.replace(" ", "") in text.replace(" ", "")
    return f" {part} " in f" {text} "


def _stem(text: str) -> str:
    return text.removesuffix("s") if len(text) > 3 else text
