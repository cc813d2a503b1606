"""Which bullets an agent says it used: ids in square brackets, read from its own messages (spec 4,
REQ-REFL-001).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from apps.memory_api.playbook.keys import parse_key

CITED_SLUGS = ("pat", "mis", "pref", "ctx", "oth")


def extract_cited_ids(
    messages: Iterable[Mapping[str, Any]], own_slugs: Iterable[str] = ()
) -> list[str]:
    """The ids cited in assistant messages, each once, in order of first mention.

    An id is `slug-digits` with one of the five slugs or one of the playbook's own, or `kpt_digits`.
    `content` is a string or a list of blocks, of which text and thinking are read; what is neither
    says nothing.
    """
    pattern = _pattern(tuple(sorted({*CITED_SLUGS, *own_slugs})))
    found: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "assistant":
            for text in _texts(message.get("content")):
                found |= dict.fromkeys(pattern.findall(text))
    return list(found)


@lru_cache(maxsize=256)
def _pattern(slugs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\[((?:{'|'.join(map(re.escape, slugs))})-[0-9]+|kpt_[0-9]+)\]")


def _texts(content: object) -> Iterable[str]:
    """What the assistant said: calls of tools and their results are not its words."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence):
        for block in cast("Sequence[object]", content):
            if isinstance(block, str):
                yield block
            elif isinstance(block, Mapping):
                fields = cast("Mapping[str, object]", block)
                yield from (v for k in ("text", "thinking") if isinstance(v := fields.get(k), str))


def resolve(
    cited: Iterable[str], keys: Collection[str], aliases: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Cited id → key of the bullet it means; ids that mean none, or not only one, are left out.

    The exact key first; then the same slug and number whatever the zeros (`pat-1` is pat-00001,
    `kpt_1` is kpt_001). A merged key, in `aliases`, means its survivor.
    """
    known = {key: key for key in keys}
    for merged, survivor in (aliases or {}).items():
        if survivor in known:
            known.setdefault(merged, survivor)
    by_number: dict[tuple[str, int], set[str]] = {}
    for key, target in known.items():
        if parsed := parse_key(key):
            by_number.setdefault(parsed, set()).add(target)
    meant: dict[str, str] = {}
    for name in cited:
        parsed = parse_key(name)
        same_number = by_number.get(parsed, set[str]()) if parsed else set[str]()
        if name in known:
            meant[name] = known[name]
        elif len(same_number) == 1:
            (meant[name],) = same_number
    return meant
