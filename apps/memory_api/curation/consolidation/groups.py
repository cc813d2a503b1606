"""Groups of bullets that a model consolidates together: one for each domain, with near bullets next
to each other. A threshold of nearness would join all long bullets of one domain, or none
(docs/decisions/consolidation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory_api.curation.context import NearbyBullet

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


def split_group(
    group: BulletGroup, count_tokens: Callable[[NearbyBullet], int], budget: int
) -> list[BulletGroup]:
    """The group in parts of at most `budget` tokens. Near bullets are next to each other, so most
    of them stay together.
    """
    parts: list[list[NearbyBullet]] = []
    left = 0
    for nearby in group.bullets:
        left -= count_tokens(nearby)
        if left < 0 or not parts:
            parts.append([])
            left = budget - count_tokens(nearby)
        parts[-1].append(nearby)
    return [_part(group, part) for part in parts]


def _part(group: BulletGroup, bullets: Sequence[NearbyBullet]) -> BulletGroup:
    keys = [nearby.bullet.id for nearby in bullets]
    neighbors = {key: [k for k in group.neighbors[key] if k in keys] for key in keys}
    return BulletGroup(bullets, neighbors)


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
