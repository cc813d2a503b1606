"""Citations: bullet keys in square brackets in the messages of an agent (S4, REQ-REFL-001)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from memory_api.playbooks.models import parse_key

CITED_SLUGS = ("pat", "mis", "pref", "ctx", "oth")


def extract_cited_ids(
    messages: Iterable[Mapping[str, Any]], own_slugs: Iterable[str] = ()
) -> list[str]:
    """The keys cited in assistant messages, without repetition, in order of first mention.

    A key is `slug-digits` with one of the five default slugs or one of `own_slugs`, or
    `kpt_digits`. `content` is a string or a list of blocks. Only text and thinking blocks are read.
    """
    pattern = _pattern(tuple(sorted({*CITED_SLUGS, *own_slugs})))
    cited: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "assistant":
            for text in _texts(message.get("content")):
                cited |= dict.fromkeys(pattern.findall(text))
    return list(cited)


@lru_cache(maxsize=256)
def _pattern(slugs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        rf"\[((?:{'|'.join(map(re.escape, slugs))})-[0-9]{{1,100}}|kpt_[0-9]{{1,100}})\]"
    )


def _texts(content: object) -> Iterable[str]:
    """The text and thinking of a message, without tool calls and their results."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence):
        for block in cast("Sequence[object]", content):
            if isinstance(block, str):
                yield block
            elif isinstance(block, Mapping):
                fields = cast("Mapping[str, object]", block)
                for name in ("text", "thinking"):
                    if isinstance(text := fields.get(name), str):
                        yield text


def resolve_citations(
    cited: Iterable[str], keys: Collection[str], aliases: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Maps each citation to the key of its bullet. Unknown and ambiguous citations are omitted.

    An exact key wins. Otherwise the slug and the number must match, without leading zeros (`pat-1`
    is pat-00001, `kpt_1` is kpt_001). A merged key, found in `aliases`, resolves to its survivor.
    """
    known = {key: key for key in keys}
    for merged, survivor in (aliases or {}).items():
        if survivor in known:
            known.setdefault(merged, survivor)
    by_number: dict[tuple[str, int], set[str]] = {}
    for key, target in known.items():
        if parsed := parse_key(key):
            by_number.setdefault(parsed, set()).add(target)
    resolved: dict[str, str] = {}
    for citation in cited:
        parsed = parse_key(citation)
        same_number = by_number.get(parsed, set[str]()) if parsed else set[str]()
        if citation in known:
            resolved[citation] = known[citation]
        elif len(same_number) == 1:
            (resolved[citation],) = same_number
    return resolved
