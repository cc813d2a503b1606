"""Playbooks for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from hansei.bullets import Bullet, BulletHit
from hansei.playbooks import Difference, Playbook, PlaybookView, Version
from hansei.terminal import ago, count, say, show, show_parts, show_table

Shown = Literal["active", "quarantined", "archived", "all"]


def choose(bullets: Iterable[Bullet], sections: Sequence[str], status: Shown) -> list[Bullet]:
    """Those of a status, in any of these sections: their names in any case, or slugs."""
    wanted = {section.casefold() for section in sections}
    return [
        bullet
        for bullet in bullets
        if status in ("all", bullet.get("status", "active"))
        and (not wanted or wanted & {bullet["section"].casefold(), bullet["id"].split("-")[0]})
    ]


def show_playbooks(found: Iterable[PlaybookView]) -> None:
    rows = (
        (
            one["name"],
            str(one["version"]),
            str(one["active"]),
            one["review"],
            ago(one["updated_at"]),
        )
        for one in found
    )
    show_table(("playbook", "version", "bullets", "review", "changed"), rows)


def show_playbook(name: str, found: Playbook, bullets: Sequence[Bullet]) -> None:
    """`bullets` are those of `found` that are to be shown."""
    show(f"{name} · version {found['version']} · {count(len(bullets), 'bullet')}", style="bold")
    for section in dict.fromkeys(bullet["section"] for bullet in bullets):
        show()
        show(section, style="bold cyan")
        for bullet in bullets:
            if bullet["section"] == section:
                _show_bullet(bullet)
    hidden = len(found["bullets"]) - len(bullets)
    if hidden:
        say(f"{count(hidden, 'bullet')} not shown; --status all shows every status.")


def _show_bullet(bullet: Bullet) -> None:
    show(" · ".join(_facts(bullet)), style="dim")
    show(_said(bullet), indent=2)


def _facts(bullet: Bullet) -> list[str]:
    facts = [bullet["id"]]
    votes = {tag: bullet.get(tag, 0) for tag in ("helpful", "harmful")}
    facts += [f"{number} {tag}" for tag, number in votes.items() if number]
    facts += [status for status in (bullet.get("status", "active"),) if status != "active"]
    return facts + (["pinned"] if bullet.get("pinned") else [])


def _said(bullet: Bullet) -> str:
    """The advice, with when to use it where it does not say so itself."""
    when, content = bullet.get("when_to_use", ""), bullet["content"]
    return content if when.casefold() in content.casefold() else f"{when}: {content}"


def show_found(hits: Sequence[BulletHit]) -> None:
    if not hits:
        say("Nothing found.")
    for place, hit in enumerate(hits, start=1):
        bullet = hit["bullet"]
        facts = [f"{place}. {hit['combined_score']:.3f}", *_facts(bullet), bullet["section"]]
        if place > 1:
            show()
        show(" · ".join(facts), style="dim")
        show(_said(bullet))
        show_parts(hit["explain"] or {})


def show_versions(found: Iterable[Version]) -> None:
    rows = (
        (
            str(one["version"]),
            f"+{one['added']} ~{one['updated']} -{one['removed']}",
            str(one["active"]),
            one["change"],
            ago(one["created_at"]),
            one["actor"] or "",
            one["reason"] or "",
        )
        for one in found
    )
    show_table(("version", "bullets", "active", "change", "when", "by", "why"), rows)


def show_difference(found: Difference) -> None:
    total = f"+{len(found['added'])} ~{len(found['changed'])} -{len(found['removed'])}"
    show(f"version {found['from_version']} → {found['to_version']} · {total}", style="bold")
    for bullet in found["added"]:
        show(f"+ {bullet['id']} {_said(bullet)}", style="green")
    for bullet in found["removed"]:
        show(f"- {bullet['id']} {_said(bullet)}", style="red")
    for change in found["changed"]:
        _show_change(change["key"], change["before"], change["after"])
    for section in found["sections_added"]:
        show(f"+ section {section['name']}", style="green")
    for section in found["sections_removed"]:
        show(f"- section {section['name']}", style="red")


def _show_change(key: str, before: Bullet, after: Bullet) -> None:
    """The texts when they differ, and whatever else does."""
    show(f"~ {key}", style="yellow")
    if _said(before) != _said(after):
        show(f"- {_said(before)}", indent=2, style="red")
        show(f"+ {_said(after)}", indent=2, style="green")
    told = ("section", "status", "pinned", "title", "tags", "keywords")
    for name in told:
        if before.get(name) != after.get(name):
            show(f"{name}: {before.get(name)} → {after.get(name)}", indent=2)
