"""Prints playbooks, bullets, versions and diffs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from hansei._operations import Playbook
from hansei.cli.learned import print_waiting
from hansei.cli.terminal import (
    format_age,
    format_count,
    format_error,
    print_document,
    print_message,
    print_score_terms,
    print_table,
    print_text,
)
from hansei.models import (
    Bullet,
    BulletHit,
    PlaybookDiff,
    PlaybookSummary,
    PlaybookVersion,
    RenderPlaybookResponse,
    Run,
)

StatusFilter = Literal["active", "quarantined", "archived", "all"]


def filter_bullets(
    bullets: Iterable[Bullet], sections: Sequence[str], status: StatusFilter
) -> list[Bullet]:
    """The bullets of a status in any of these sections: names in any case, or slugs."""
    wanted = {section.casefold() for section in sections}
    return [
        bullet
        for bullet in bullets
        if status in ("all", bullet.status)
        and (not wanted or wanted & {bullet.section.casefold(), bullet.id.split("-")[0]})
    ]


def print_playbooks(playbooks: Iterable[PlaybookSummary]) -> None:
    rows = (
        (
            playbook.name,
            str(playbook.version),
            str(playbook.active_bullet_count),
            playbook.review_mode,
            format_age(playbook.updated_at),
        )
        for playbook in playbooks
    )
    print_table(("playbook", "version", "bullets", "review", "updated"), rows)


def print_playbook(
    name: str, playbook: Playbook, bullets: Sequence[Bullet], project: str | None
) -> None:
    """`bullets` are those of the playbook that match the filters."""
    count = format_count(len(bullets), "bullet")
    print_text(f"{name} · version {playbook.version} · {count}", style="bold")
    for section in dict.fromkeys(bullet.section for bullet in bullets):
        print_text()
        print_text(section, style="bold cyan")
        for bullet in bullets:
            if bullet.section == section:
                _print_bullet(bullet)
    shown = {bullet.id for bullet in bullets}
    hidden = [bullet for bullet in playbook.bullets if bullet.id not in shown]
    if hidden:
        count = format_count(len(hidden), "bullet")
        print_message(f"{count} not shown. `--status all` includes every status.")
    print_waiting(name, playbook.bullets, project)


def _print_bullet(bullet: Bullet) -> None:
    print_text(" · ".join(_bullet_facts(bullet)), style="dim")
    print_text(_bullet_text(bullet), indent=2)


def _bullet_facts(bullet: Bullet) -> list[str]:
    facts = [bullet.id]
    verdicts = {tag: getattr(bullet, tag) for tag in ("helpful", "harmful")}
    facts += [f"{number} {tag}" for tag, number in verdicts.items() if number]
    status = bullet.status
    if bullet.awaiting_confirmation:
        facts.append("awaiting confirmation")
    elif status != "active":
        facts.append(status)
    return facts + (["pinned"] if bullet.pinned else [])


def _bullet_text(bullet: Bullet) -> str:
    """The content, preceded by `when_to_use` if the content does not include it."""
    when, content = bullet.when_to_use, bullet.content
    return content if when.casefold() in content.casefold() else f"{when}: {content}"


def print_hit(hit: BulletHit, facts: list[str]) -> None:
    print_text(" · ".join([*facts, *_bullet_facts(hit.bullet), hit.bullet.section]), style="dim")
    print_text(_bullet_text(hit.bullet))
    print_score_terms(hit.explain or {})


def print_block(name: str, block: RenderPlaybookResponse) -> None:
    if block.text:
        print_document(block.text.rstrip("\n") + "\n")
    elif not block.version:
        print_message(f"The playbook {name} does not exist yet, or has no bullets.")
    else:
        print_message("No bullets: the playbook is empty or no bullet fits the token budget.")
    bullets = format_count(len(block.bullet_keys), "bullet")
    tokens = format_count(block.token_count, "token")
    print_message(f"{bullets}, {tokens}, version {block.version}.")
    print_message(f"Send this with the trace: retrieval_id {block.retrieval_id}")


def print_versions(versions: Iterable[PlaybookVersion]) -> None:
    rows = (
        (
            str(version.version),
            f"+{version.added_count} ~{version.updated_count} -{version.removed_count}",
            str(version.active_bullet_count),
            version.change_type,
            format_age(version.created_at),
            version.actor or "",
            version.reason or "",
        )
        for version in versions
    )
    print_table(("version", "changes", "bullets", "type", "created", "actor", "reason"), rows)


def print_diff(diff: PlaybookDiff) -> None:
    counts = f"+{len(diff.added)} ~{len(diff.changed)} -{len(diff.removed)}"
    print_text(f"version {diff.from_version} → {diff.to_version} · {counts}", style="bold")
    for bullet in diff.added:
        print_text(f"+ {bullet.id} {_bullet_text(bullet)}", style="green")
    for bullet in diff.removed:
        print_text(f"- {bullet.id} {_bullet_text(bullet)}", style="red")
    for change in diff.changed:
        _print_change(change.key, change.before, change.after)
    for section in diff.sections_added:
        print_text(f"+ section {section.name}", style="green")
    for section in diff.sections_removed:
        print_text(f"- section {section.name}", style="red")


def _print_change(key: str, before: Bullet, after: Bullet) -> None:
    print_text(f"~ {key}", style="yellow")
    if _bullet_text(before) != _bullet_text(after):
        print_text(f"- {_bullet_text(before)}", indent=2, style="red")
        print_text(f"+ {_bullet_text(after)}", indent=2, style="green")
    for name in ("section", "status", "pinned", "title", "tags", "keywords"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            print_text(f"{name}: {old} → {new}", indent=2)


def _refused_change(rejected: Mapping[str, Any]) -> str:
    delta: dict[str, Any] = rejected.get("delta") or {}
    keys = [delta.get("bullet_id"), *delta.get("source_ids", ())]
    what = " ".join(filter(None, [delta.get("type"), *keys]))
    return f"not applied: {what}: {rejected['reason']}" if what else rejected["reason"]


def print_consolidation(name: str, run: Run) -> None:
    """What a consolidation changed, or why it failed."""
    if run.state != "done":
        error = format_error(run.error) if run.error else run.state
        print_text(f"{name} is unchanged. Run {run.id}: {error}", style="red")
        return
    result: dict[str, Any] = run.result or {}
    lines = [f"merged {source} into {key}" for key, source in result.get("merged_keys", ())]
    consolidation: dict[str, Any] = result.get("consolidation", {})
    lines += [
        f"{change['action']} {change['key']}: {change['reason']}"
        for change in consolidation.get("changes", ())
    ]
    lines += map(_refused_change, consolidation.get("rejected", ()))
    if result.get("proposal_id"):
        lines.append(f"Proposal {result['proposal_id']} waits: `hansei proposal list {name}`.")
    if run.engine == "rules":
        lines.append("No model is configured: only duplicates are merged.")
    print_text("\n".join(lines or [f"{name} needs no change."]))
