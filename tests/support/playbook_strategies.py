"""Playbooks of every kind, for property tests."""

from __future__ import annotations

import string
from datetime import UTC

from hypothesis import strategies as st

from memory_api.playbooks.models import Bullet, Playbook, PlaybookMetadata

words = st.sampled_from(
    [
        "retry",
        "timeout",
        "注文番号",
        "確認",
        "รหัส",
        "never",
        "ask first",
        "{x}",
        "😀",
        "[pat-001]",
        "a::b",
    ]
)
texts = st.one_of(st.text(max_size=40), st.lists(words, max_size=6).map(" ".join))
keys = st.one_of(
    st.builds("{}-{:05d}".format, st.sampled_from(["pat", "mis", "shr"]), st.integers(1, 99_999)),
    st.builds("kpt_{:03d}".format, st.integers(1, 999)),
    st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=12),
)
section_names = st.sampled_from(
    ["PATTERNS & APPROACHES", "MISTAKES TO AVOID", "OTHERS", "strategies_and_hard_rules", "注意点"]
)
counts = st.integers(0, 1_000)
spec_bullets = st.builds(
    Bullet,
    id=keys,
    section=section_names,
    content=texts,
    searchable_text=texts,
    keywords=st.lists(texts, max_size=3),
    helpful=counts,
    harmful=counts,
    source_trajectory=texts,
)
bullets = st.builds(
    Bullet,
    id=keys,
    section=section_names,
    content=texts,
    keywords=st.lists(texts, max_size=3),
    helpful=counts,
    harmful=counts,
    neutral=counts,
    when_to_use=texts,
    title=texts,
    tags=st.lists(texts, max_size=2),
    pinned=st.booleans(),
)
any_bullets = st.one_of(spec_bullets, bullets)
times = st.datetimes(timezones=st.just(UTC))


def playbooks(
    of: st.SearchStrategy[Bullet] = any_bullets, max_size: int = 8
) -> st.SearchStrategy[Playbook]:
    """Playbooks in which no two bullets share a key."""
    return st.builds(
        Playbook,
        metadata=st.builds(PlaybookMetadata, created_at=times, updated_at=times),
        bullets=st.lists(of, max_size=max_size, unique_by=lambda bullet: bullet.id),
    )
