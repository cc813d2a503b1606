"""Groups of bullets that a model consolidates together.

A playbook that fits the prompt has one group for each domain. Of a larger one, each bullet that
changed is a leader, and its group are the bullets that are nearest to it: a rank, because a
threshold joins all long bullets of one domain, or none (docs/decisions/consolidation.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory_api.curation.content_checks import is_too_long
from memory_api.curation.context import NearbyBullet

MAX_GROUP_BULLETS = 8
"""Bullets of a group around a leader, the leader included."""
SHOWN_NEIGHBORS = 3
"""Bullets that the prompt names as the nearest of a bullet."""

ToolsByKey = Mapping[str, Collection[str]]
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class BulletGroup:
    """Bullets of one domain, near ones next to each other. `neighbors`: key → the keys of the
    nearest other bullets of the group, the nearest first.
    """

    bullets: Sequence[NearbyBullet]
    neighbors: Mapping[str, Sequence[str]]


def group_by_domain(
    bullets: Sequence[NearbyBullet], vectors: Sequence[NDArray[np.float32]], tools: ToolsByKey
) -> list[BulletGroup]:
    """One group for each domain, the largest first. Bullets whose traces share a tool have one
    domain. A bullet without tools has the domain of the bullet that is nearest to it.

    `vectors` are unit vectors, or zero, parallel to `bullets`. The cost grows with the square of
    the number of bullets.
    """
    nearness = np.array(vectors) @ np.array(vectors).T
    np.fill_diagonal(nearness, -1.0)
    domains = _find_domains(bullets, tools)
    with_tools = sorted(n for domain in domains for n in domain)
    for n in sorted(set(range(len(bullets))) - set(with_tools)):
        nearest = max(with_tools, key=lambda other: nearness[n, other], default=None)
        if nearest is None:
            domains = domains or [[]]
            domains[0].append(n)
        else:
            next(domain for domain in domains if nearest in domain).append(n)
    ordered = sorted(domains, key=lambda domain: (-len(domain), min(domain)))
    return [_to_group(domain, bullets, nearness) for domain in ordered]


def group_around_leaders(
    leaders: Sequence[NearbyBullet],
    nearest: Mapping[str, Sequence[NearbyBullet]],
    tools: ToolsByKey,
) -> list[BulletGroup]:
    """Groups of a leader and the bullets nearest to it, the group with the nearest pair first. No
    bullet is in two groups, and no group has bullets of disjoint tools. A leader that is too long
    has a group, if need be of its own: it is to be split.

    `nearest`: key of a leader → the bullets near to it, with the cosines.
    """
    ranked: dict[str, list[NearbyBullet]] = {}
    for leader in leaders:
        key = leader.bullet.id
        others = [
            other
            for other in nearest.get(key, ())
            if other.bullet.id != key
            and not other.bullet.pinned
            and _may_share_domain(tools.get(key, ()), tools.get(other.bullet.id, ()))
        ]
        ranked[key] = sorted(others, key=lambda other: (-(other.cosine or 0), other.bullet.id))
    by_nearness = sorted(
        (leader for leader in leaders if ranked[leader.bullet.id]),
        key=lambda leader: (-(ranked[leader.bullet.id][0].cosine or 0), leader.bullet.id),
    )
    groups: list[BulletGroup] = []
    grouped: set[str] = set()
    for leader in by_nearness:
        key = leader.bullet.id
        free = [other for other in ranked[key] if other.bullet.id not in grouped]
        if key in grouped or not free:
            continue
        members = [leader, *free[: MAX_GROUP_BULLETS - 1]]
        keys = [member.bullet.id for member in members]
        grouped.update(keys)
        groups.append(BulletGroup(members, {key: keys[1 : SHOWN_NEIGHBORS + 1]}))
    alone = (n for n in leaders if n.bullet.id not in grouped and is_too_long(n.bullet))
    return [*groups, *(BulletGroup([leader], {}) for leader in alone)]


def _find_domains(bullets: Sequence[NearbyBullet], tools: ToolsByKey) -> list[list[int]]:
    """The indexes of the bullets with tools: those that share one directly or through others."""
    domains: list[tuple[set[str], list[int]]] = []
    for n, nearby in enumerate(bullets):
        names = set(tools.get(nearby.bullet.id, ()))
        if not names:
            continue
        joined = [domain for domain in domains if domain[0] & names]
        domains = [domain for domain in domains if not domain[0] & names]
        all_names = names.union(*(domain[0] for domain in joined))
        domains.append((all_names, [*(m for domain in joined for m in domain[1]), n]))
    return [members for _, members in domains]


def _to_group(
    domain: Sequence[int], bullets: Sequence[NearbyBullet], nearness: Matrix
) -> BulletGroup:
    ordered = _order_by_nearness(domain, nearness)
    neighbors: dict[str, Sequence[str]] = {}
    for n in ordered:
        others = sorted((m for m in domain if m != n), key=lambda m: (-nearness[n, m], m))
        neighbors[bullets[n].bullet.id] = [bullets[m].bullet.id for m in others[:SHOWN_NEIGHBORS]]
    return BulletGroup([bullets[n] for n in ordered], neighbors)


def _order_by_nearness(domain: Sequence[int], nearness: Matrix) -> list[int]:
    """The nearest pair first; then always the bullet that is nearest to the last one."""
    remaining = sorted(domain)
    if len(remaining) < 2:
        return remaining
    ordered = [max(remaining, key=lambda n: max(nearness[n, m] for m in remaining))]
    remaining.remove(ordered[0])
    while remaining:
        last = ordered[-1]
        ordered.append(max(remaining, key=lambda n: nearness[last, n]))
        remaining.remove(ordered[-1])
    return ordered


def _may_share_domain(first: Collection[str], second: Collection[str]) -> bool:
    return not first or not second or bool(set(first) & set(second))
