"""The prompt of a consolidation: groups of bullets with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from memory_api.core.secret_redaction import redact
from memory_api.curation.consolidation.groups import BulletGroup, split_group
from memory_api.curation.consolidation.model_output import ConsolidationEvidence
from memory_api.curation.content_checks import is_too_long
from memory_api.curation.context import NearbyBullet
from memory_api.curation.model_output import ModelCuration
from memory_api.curation.prompt import format_bullet
from memory_api.llm.prompts import Prompt, PromptMessages, split_cacheable_prefix
from memory_api.llm.structured_output import schema_text
from memory_api.llm.untrusted_text import fence_text, fit_text
from memory_api.playbooks.models import Bullet
from memory_api.text.terms import estimate_tokens

NAME = "curation/consolidate"
MAX_BULLET_TOKENS = 400
MAX_PINNED_TOKENS = 150
PINNED_HEADING = "Pinned bullets, which no operation may name"


def pack_groups(
    groups: Sequence[BulletGroup], evidence: ConsolidationEvidence, budget: int
) -> list[list[BulletGroup]]:
    """The groups as prompts of at most `budget` estimated tokens."""
    prompts: list[list[BulletGroup]] = []
    left = 0
    for group in groups:
        for part in split_group(group, partial(_count_tokens, group, evidence), budget):
            size = sum(_count_tokens(group, evidence, nearby) for nearby in part.bullets)
            if not prompts or size > left:
                prompts.append([])
                left = budget
            prompts[-1].append(part)
            left -= size
    return prompts


def _count_tokens(group: BulletGroup, evidence: ConsolidationEvidence, nearby: NearbyBullet) -> int:
    return estimate_tokens(_format_bullet(nearby, group, evidence)) + 1


def build_messages(
    prompt: Prompt,
    groups: Sequence[BulletGroup],
    evidence: ConsolidationEvidence,
    pinned: Sequence[NearbyBullet] = (),
) -> PromptMessages:
    """The messages for these groups, which are numbered from 1. Pinned bullets come last, as
    context: the answer may not name them.
    """
    lines: list[str] = []
    for number, group in enumerate(groups, start=1):
        lines.append(f"Group {number}")
        lines += [_format_bullet(nearby, group, evidence) for nearby in group.bullets]
    if pinned:
        lines.append(PINNED_HEADING)
        lines += [_format_pinned(nearby.bullet) for nearby in pinned]
    values = {
        "schema": schema_text(ModelCuration),
        "groups": fence_text("\n".join(lines), label="bullets"),
    }
    keys = tuple(nearby.bullet.id for group in groups for nearby in group.bullets)
    return split_cacheable_prefix(prompt.text, values, keys)


def _format_pinned(bullet: Bullet) -> str:
    when = f"{bullet.when_to_use}: " if bullet.when_to_use else ""
    return fit_text(redact(f"[{bullet.id}] {when}{bullet.content}").text, MAX_PINNED_TOKENS)


def _format_bullet(
    nearby: NearbyBullet, group: BulletGroup, evidence: ConsolidationEvidence
) -> str:
    bullet = nearby.bullet
    counters = f"helpful {bullet.helpful}, harmful {bullet.harmful}, neutral {bullet.neutral}"
    taught = f"taught by {nearby.observation_count}"
    if tasks := evidence.task_counts.get(bullet.id):
        taught += f" (tasks: {tasks})"
    notes: list[str] = []
    if is_too_long(bullet):
        notes.append(f"length: {len(bullet.content):,} characters, too long")
    if near := group.neighbors.get(bullet.id):
        notes.append(f"nearest: {', '.join(near)}")
    text = format_bullet(bullet, [counters, taught], evidence.tools.get(bullet.id, ()), notes)
    return fit_text(redact(text).text, MAX_BULLET_TOKENS)
