"""Clusters of bullets that may give the same advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apps.memory_api.curation.lesson_comparison import NearbyBullet
from apps.memory_api.curation.nearness import MIN_NEARNESS, NearnessScale

MAX_CLUSTER_BULLETS = 8
"""A cluster does not grow beyond this; the nearest pairs are joined first."""


@dataclass(frozen=True)
class NearPair:
    """Two bullets (by key) and the cosine of their vectors."""

    first: str
    second: str
    cosine: float


@dataclass
class BulletClusters:
    """Joins near pairs to clusters."""

    bullets: dict[str, NearbyBullet] = field(default_factory=dict[str, NearbyBullet])
    pairs: list[NearPair] = field(default_factory=list[NearPair])

    def add(self, nearby: NearbyBullet, others: Sequence[NearbyBullet]) -> None:
        """Add a bullet and its nearest bullets, with the cosines to it."""
        for other in (nearby, *others):
            if _is_free(other):
                self.bullets.setdefault(other.bullet.id, other)
        key = nearby.bullet.id
        self.pairs += [
            NearPair(key, other.bullet.id, other.cosine or 0.0)
            for other in others
            if other.bullet.id != key and {key, other.bullet.id} <= self.bullets.keys()
        ]

    def join(self) -> list[list[NearbyBullet]]:
        """The clusters of two or more bullets, the one with the nearest pair first."""
        texts = {key: advice_text(nearby) for key, nearby in self.bullets.items()}
        scale = NearnessScale(texts.values())
        scored = sorted(
            (
                (scale.measure(texts[pair.first], texts[pair.second], pair.cosine), pair)
                for pair in self.pairs
            ),
            key=lambda item: (-item[0], item[1].first, item[1].second),
        )
        return _join_pairs([pair for score, pair in scored if score >= MIN_NEARNESS], self.bullets)


def _join_pairs(
    pairs: Sequence[NearPair], bullets: Mapping[str, NearbyBullet]
) -> list[list[NearbyBullet]]:
    """Clusters of these pairs, the nearest first."""
    cluster_by_key: dict[str, list[str]] = {}
    clusters: list[list[str]] = []
    for pair in pairs:
        first = cluster_by_key.get(pair.first) or [pair.first]
        second = cluster_by_key.get(pair.second) or [pair.second]
        if first is second or len(first) + len(second) > MAX_CLUSTER_BULLETS:
            continue
        if not any(cluster is first for cluster in clusters):
            clusters.append(first)
        first += second
        clusters = [cluster for cluster in clusters if cluster is not second]
        cluster_by_key |= dict.fromkeys(first, first)
    return [[bullets[key] for key in cluster] for cluster in clusters]


def advice_text(nearby: NearbyBullet) -> str:
    """When and what a bullet advises."""
    return f"{nearby.bullet.when_to_use} {nearby.bullet.content}".strip()


def _is_free(nearby: NearbyBullet) -> bool:
    return nearby.bullet.status == "active" and not nearby.bullet.pinned
