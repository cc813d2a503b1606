"""A bullet's life: versions, verdicts, origin, use and effect; edit, pin, judge and delete it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.console.analytics.benefit_answers import why_unknown
from memory_api.console.bullets.life import MIN_VERDICTS, BulletLife, load_effects, load_life
from memory_api.console.charts import Chart, Series, draw_chart
from memory_api.console.comparison import TextComparer, field_text
from memory_api.console.forms import SentForm, validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.rendering import format_number, format_short_day, render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import HanseiError, InvalidRequest
from memory_api.playbooks.bullets.router import (
    delete_bullet,
    get_bullet,
    update_bullet,
)
from memory_api.playbooks.bullets.schemas import StoredBullet, UpdateBulletRequest
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.schemas import PlaybookSummary
from memory_api.playbooks.verdicts.router import record_verdict
from memory_api.playbooks.verdicts.schemas import RecordVerdictRequest
from memory_api.runtime import Runtime

router = APIRouter(
    prefix="/console/playbooks/{name}/bullets/{key}",
    route_class=ConsoleRoute,
    include_in_schema=False,
)

COMPARED_FIELDS = ("content", "when_to_use", "title", "tags", "section")


@router.get("")
async def show_bullet(
    name: str, key: str, visit: CurrentVisit, session: Session, caller: Reader, done: str = ""
) -> Response:
    ref = PlaybookRef(visit.project, name)
    shown: dict[str, Any] = {"name": name, "key": key, "done": done, "why_unknown": why_unknown}
    shown["min_verdicts"] = MIN_VERDICTS
    if visit.later:
        shown["since"], shown["effects"] = await load_effects(session, ref, key)
    if visit.later != "part":
        life = shown["life"] = await load_life(session, ref, key)
        shown["history"] = _verdict_chart(visit, life)
    return render_page(visit, "bullets/life.html", **shown)


def _verdict_chart(visit: Visit, life: BulletLife) -> Chart | None:
    if not life.weeks:
        return None
    _ = visit.translation.gettext
    return draw_chart(
        "bar",
        _("Verdicts by week"),
        [format_short_day(day, visit.translation) for day, _helpful, _harmful in life.weeks],
        [
            Series(_("Helpful"), [float(helpful) for _day, helpful, _harmful in life.weeks]),
            Series(_("Harmful"), [float(harmful) for _day, _helpful, harmful in life.weeks], True),
        ],
        format=format_number,
        summary=_("Last 12 weeks, by their Monday"),
    )


@router.get("/edit")
async def show_edit(
    name: str, key: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer
) -> Response:
    subject = await _load_subject(runtime, visit, name, key)
    return _edit_page(visit, subject, _to_form(subject.bullet))


@router.post("/edit")
async def edit_bullet(
    name: str, key: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """First shows the difference; `confirmed` saves it, unless the playbook changed meanwhile."""
    subject = await _load_subject(runtime, visit, name, key)
    try:
        body = validate_body(UpdateBulletRequest, _changes(visit, subject.bullet, form))
        if not form.is_set("confirmed"):
            return _confirm_page(visit, subject, form)
        version = form.integer("version")
        await update_bullet(name, key, body, Response(), runtime, caller, version, False)
    except HanseiError as error:
        return _edit_page(visit, subject, form, error)
    return RedirectResponse(visit.link("playbooks", name, "bullets", key, done="changed"), 303)


@router.post("/settings")
async def set_bullet_settings(
    name: str, key: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """Pin or unpin a bullet, or change its status: quarantine, release, archive."""
    values: dict[str, Any] = {"project_id": visit.project, "reason": form.text("reason") or None}
    if form.text("pinned"):
        values["pinned"] = form.text("pinned") == "yes"
    if form.text("status"):
        values["status"] = form.text("status")
    body = validate_body(UpdateBulletRequest, values)
    await update_bullet(name, key, body, Response(), runtime, caller, None, False)
    return _go_back(visit, form, name, key, "changed")


@router.post("/verdicts")
async def judge_bullet(
    name: str, key: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    body = validate_body(
        RecordVerdictRequest,
        {
            "project_id": visit.project,
            "tag": form.text("tag"),
            "reason": form.text("reason") or None,
            "trace_id": form.text("trace_id") or None,
        },
    )
    done = await record_verdict(name, key, body, Response(), runtime, caller, False)
    return _go_back(visit, form, name, done.key, "quarantined" if done.quarantined else "judged")


@router.post("/delete")
async def remove_bullet(
    name: str, key: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    if not form.text("reason"):
        raise InvalidRequest("Enter a reason. It becomes part of the history.", field="reason")
    reason = form.text("reason")[:2_000]
    await delete_bullet(name, key, runtime, caller, visit.project, None, reason)
    return _go_back(visit, form, name, key, "deleted")


def _go_back(visit: Visit, form: SentForm, name: str, key: str, done: str) -> Response:
    """To the page that the form was on: the review of the playbook, or the bullet."""
    if form.text("from") == "review":
        return RedirectResponse(visit.link("playbooks", name, "review", done=done), 303)
    return RedirectResponse(visit.link("playbooks", name, "bullets", key, done=done), 303)


def _to_form(bullet: StoredBullet) -> SentForm:
    return SentForm({name: [field_text(bullet, name)] for name in COMPARED_FIELDS})


def _changes(visit: Visit, bullet: StoredBullet, form: SentForm) -> dict[str, Any]:
    """The fields that differ from the bullet."""
    old = _to_form(bullet)
    changed = [name for name in COMPARED_FIELDS if form.text(name) != old.text(name)]
    values: dict[str, Any] = {name: form.text(name) for name in changed}
    if "tags" in values:
        values["tags"] = form.words("tags")
    return values | {"project_id": visit.project, "reason": form.text("reason") or None}


@dataclass(frozen=True)
class _Subject:
    """A bullet that is edited, in its playbook."""

    bullet: StoredBullet
    playbook: PlaybookSummary


async def _load_subject(runtime: Runtime, visit: Visit, name: str, key: str) -> _Subject:
    caller = visit.caller
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        bullet = await get_bullet(name, key, session, caller, visit.project)
        playbook = await require_playbook(session, PlaybookRef(visit.project, name))
        return _Subject(bullet, PlaybookSummary.from_row(playbook))


def _edit_page(
    visit: Visit, subject: _Subject, form: SentForm, error: HanseiError | None = None
) -> Response:
    return render_page(
        visit,
        "bullets/edit.html",
        error.status if error else 200,
        name=subject.playbook.name,
        bullet=subject.bullet,
        form=form,
        sections=[section.name for section in subject.playbook.sections],
        error=error,
    )


def _confirm_page(visit: Visit, subject: _Subject, form: SentForm) -> Response:
    old, comparer = _to_form(subject.bullet), TextComparer()
    pairs = [(name, old.text(name), form.text(name)) for name in COMPARED_FIELDS]
    return render_page(
        visit,
        "bullets/confirm.html",
        name=subject.playbook.name,
        bullet=subject.bullet,
        form=form,
        version=subject.playbook.version,
        changes=[comparer.compare_field(*pair) for pair in pairs if pair[1] != pair[2]],
    )
