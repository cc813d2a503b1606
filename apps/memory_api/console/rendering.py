"""Pages from templates, and how they show times, numbers and money."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from hansei.hidden_text import HIDDEN
from memory_api.console.error_texts import explain
from memory_api.console.navigation import NAVIGATION
from memory_api.console.stored_reasons import translate_reason
from memory_api.console.translations import LANGUAGES, N_, Translation, load_translation
from memory_api.console.visit import THEMES, Visit
from memory_api.core.errors import NotFound

FOLDER = Path(__file__).parent
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
NO_VALUE = "–"
DURATIONS = {
    86_400: N_("%(count)s d"),
    3_600: N_("%(count)s h"),
    60: N_("%(count)s min"),
    1: N_("%(count)s s"),
}
"""Seconds of each unit, largest first."""


@cache
def load_static_file(name: str) -> tuple[bytes, str]:
    """The content and media type of a file in `static/`. Raises `NotFound`."""
    path = FOLDER / "static" / name
    if path.suffix not in MEDIA_TYPES or path.name != name or not path.is_file():
        raise NotFound
    return path.read_bytes(), MEDIA_TYPES[path.suffix]


def static_address(name: str) -> str:
    """The address of a static file. It changes with the content, so that browsers may store it."""
    digest = hashlib.sha256(load_static_file(name)[0]).hexdigest()[:12]
    return f"/console/static/{name}?v={digest}"


def show_hidden(value: Any) -> Any:
    """A text with its hidden characters as codes, so that a person confirms what a model reads.
    The parts of markup were shown when it was made.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or value.isascii():
        return value
    return HIDDEN.sub(lambda match: "".join(f"[U+{ord(c):04X}]" for c in match[0]), value)


@cache
def _environment(language: str) -> Environment:
    translation = load_translation(language)
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=show_hidden,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.install_gettext_callables(  # type: ignore[attr-defined]
        translation.gettext, translation.ngettext, newstyle=True
    )
    environment.filters.update(_filters(translation))
    available = cast("dict[str, Any]", environment.globals)
    available |= {"static": cache(static_address), "navigation": NAVIGATION}
    available |= {"languages": LANGUAGES, "themes": THEMES}
    return environment


def _filters(translation: Translation) -> Mapping[str, Any]:
    def when(value: datetime | None) -> Markup | str:
        """A time in UTC, to the minute."""
        if value is None:
            return NO_VALUE
        moment = value.astimezone(UTC)
        day = format_day(moment, translation)
        return Markup('<time datetime="{}" title="{} {:%H:%M:%S} UTC">{} {:%H:%M}</time>').format(
            moment.isoformat(), day, moment, day, moment
        )

    def duration(value: timedelta | None) -> str:
        """A duration in the largest unit that fits, such as "40 ms", "12 s" or "3 min"."""
        return NO_VALUE if value is None else format_duration(value, translation)

    def day(value: date | None) -> str:
        return NO_VALUE if value is None else format_day(value, translation)

    def cell(value: object) -> Markup | str:
        return _cell(value, translation)

    def actor(value: str | None) -> Markup | str:
        return format_actor(value, translation)

    return {
        "when": when,
        "number": format_number,
        "percent": format_share,
        "points": partial(format_points, translation=translation),
        "usd": format_usd,
        "duration": duration,
        "day": day,
        "cell": cell,
        "actor": actor,
        "code_spans": code_spans,
        "explain": partial(explain, translation=translation),
        "stored_reason": partial(translate_reason, translation=translation),
        "readable_json": readable_json,
        "translate": translation.gettext,
    }


def format_day(value: date, translation: Translation) -> str:
    return translation.gettext("{0:%b} {0.day}, {0.year}").format(value)


def format_short_day(value: date, translation: Translation) -> str:
    """A day without its year, for axes."""
    return translation.gettext("{0:%b} {0.day}").format(value)


def short_id(value: UUID | str) -> Markup:
    """The end of an ID; its start is the time and similar in all IDs of one day."""
    return Markup('<code title="{}">{}</code>').format(value, str(value)[-8:])


def format_actor(value: str | None, translation: Translation) -> Markup | str:
    """The author of a change: a person by name, an API key by the end of its ID."""
    kind, _, name = (value or "").partition(":")
    if kind == "person":
        return name
    if kind == "key":
        return Markup("{} {}").format(translation.gettext("key"), short_id(name))
    is_service = kind in ("curator", "engine", "judge")
    return translation.gettext("Hansei") if is_service else kind.replace("_", " ")


def code_spans(value: str) -> Markup:
    """A text with `code` as elements. A backtick without a partner stays."""
    parts = show_hidden(value).split("`")
    last = len(parts) - 1
    return Markup("").join(
        Markup("<code>{}</code>").format(part)
        if number % 2 and number < last
        else escape(("`" if number % 2 else "") + part)
        for number, part in enumerate(parts)
    )


def readable_json(value: object) -> str:
    """JSON with line breaks and without escapes of letters."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def format_number(value: float | None, digits: int = 0) -> str:
    return NO_VALUE if value is None else f"{value:,.{digits}f}"


def format_share(value: float | None) -> str:
    """A share from 0 to 1 in percent."""
    return NO_VALUE if value is None else f"{100 * value:.0f} %"


def format_points(value: float | None, translation: Translation) -> str:
    """The difference of two shares. Percent would be read as a share of one of them."""
    if value is None:
        return NO_VALUE
    points = round(100 * value) + 0  # no -0
    return translation.gettext("%(count)s points") % {"count": format_number(points)}


def format_duration(value: timedelta, translation: Translation) -> str:
    seconds = max(0.0, value.total_seconds())
    for size, text in DURATIONS.items():
        if seconds >= size:
            return translation.gettext(text) % {"count": round(seconds / size)}
    return f"{round(seconds * 1000)} ms"


def format_usd(value: float | None) -> str:
    """US dollars. Small amounts get more digits."""
    if value is None:
        return NO_VALUE
    amount = abs(float(value))
    shown = f"{amount:,.2f}" if amount == 0 or amount >= 0.1 else _shortest(amount, 2)
    return f"{'-' if value < 0 else ''}${shown}"


def _shortest(value: float, min_digits: int) -> str:
    """At most four decimals, without zeros at the end beyond `min_digits`."""
    whole, _, decimals = f"{value:,.4f}".partition(".")
    return f"{whole}.{decimals[:min_digits]}{decimals[min_digits:].rstrip('0')}".rstrip(".")


def _cell(value: object, translation: Translation) -> Markup | str:
    """Any value of a table as text. Markup stays as it is."""
    if value is None:
        return NO_VALUE
    if isinstance(value, Markup):
        return value
    if isinstance(value, bool):
        return "✓" if value else NO_VALUE
    if isinstance(value, int):
        return format_number(value)
    if isinstance(value, float):
        return _shortest(value, 0)
    if isinstance(value, datetime):
        return Markup("<time>{} {:%H:%M}</time>").format(format_day(value, translation), value)
    if isinstance(value, date):
        return Markup("<time>{}</time>").format(format_day(value, translation))
    if isinstance(value, UUID):
        return short_id(value)
    return escape(str(value))


def render_page(visit: Visit, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page, or a part of one, as a response."""
    environment = _environment(visit.translation.language)
    context = {"visit": visit, "link": visit.link, "may": visit.may, "project": visit.project}
    html = environment.get_template(template).render(context | values)
    return HTMLResponse(html, status, headers={"Vary": "Accept-Language, Cookie, Hansei-Part"})
