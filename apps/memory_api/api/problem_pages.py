"""The pages that explain the `type` of a problem."""

from __future__ import annotations

import html

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from memory_api.api.problems import PROBLEM_TYPES
from memory_api.api.response_headers import PAGE_POLICY
from memory_api.core.errors import NotFound

router = APIRouter(include_in_schema=False)

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title} ({status}) - Hansei</title></head>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto">
<h1>{title}</h1>
<p>Status <strong>{status}</strong>, code <code>{code}</code></p>
<h2>What it means</h2>
<p>{meaning}</p>
<h2>What to do</h2>
<p>{remedy}</p>
</body>
</html>
"""


@router.get("/problems/{code}")
async def show_problem_type(code: str) -> HTMLResponse:
    """The page of one problem type. Needs no API key."""
    kind = PROBLEM_TYPES.get(code)
    if kind is None:
        raise NotFound(f"There is no problem type '{code[:64]}'.")
    texts = {"title": kind.title, "meaning": kind.meaning, "remedy": kind.remedy}
    escaped = {name: _as_html(text) for name, text in texts.items()}
    return HTMLResponse(
        _PAGE.format(code=code, status=kind.status, **escaped),
        headers={"Content-Security-Policy": PAGE_POLICY},
    )


def _as_html(text: str) -> str:
    """Escaped text with `code` as elements."""
    parts = html.escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts)
    )
