"""The report as one HTML file without scripts or external files."""

from __future__ import annotations

import re
from html import escape

from hansei._model import Json
from hansei.evaluation.text_report import Section, sections
from hansei.evaluation.wording import curve_line, first_pass_line, headline, plan_line

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 48, 12, 12, 32
STYLE = """
:root { color-scheme: light dark; --quiet: #555; --line: #ddd; --note: #fff3cd; --none: #777;
  --hansei: #0b6e4f; --icl: #c05a00; --examples: #5b4bb5; --full: #0067a5 }
@media (prefers-color-scheme: dark) { :root { --quiet: #aaa; --line: #444; --note: #3d3210;
  --none: #999; --hansei: #4cc79b; --icl: #f09a4a; --examples: #a99cf5; --full: #5cb3ea } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.wide { overflow-x: auto } svg.curve { min-width: 32rem } .legend { display: flex; gap: 1.5rem;
  flex-wrap: wrap }
table { border-collapse: collapse; overflow-wrap: normal } th, .plan { color: var(--quiet) }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line) }
td:not(:first-child, :last-child) { white-space: nowrap }
.note { background: var(--note); padding: .5rem .8rem; border-left: 4px solid #c98a00 }
.headline { font-size: 1.15rem; font-weight: 600 }
svg text { font: 12px system-ui, sans-serif; fill: currentColor } svg line { stroke: var(--line) }
"""

ABOUT = (
    "Hansei is a memory for agents: it learns from their runs and advises the next ones. Here an "
    "agent answered the same tasks without a memory and with one."
)


def format_html(report: Json) -> str:
    plan = report["plan"]
    notes = "".join(f'<p class="note">{_inline(note)}</p>' for note in report["notes"])
    learning = first_pass_line(report)
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Evaluation {escape(plan['id'])}</title><style>{STYLE}</style>",
        "<h1>Does the memory help the agent?</h1>",
        f'<p class="plan">{ABOUT}</p>',
        f'<p class="headline">{_inline(headline(report))}</p>',
        *([f"<p>{_inline(learning)}</p>"] if learning else []),
        notes,
        "<h2>Learning curve</h2>",
        _chart(report),
        *(_section(section) for section in sections(report, on_page=True)),
        f"<h2>Plan of evaluation {escape(plan['id'])}</h2>",
        f'<p class="plan">{_inline(plan_line(report))}</p>',
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _inline(text: str) -> str:
    """Text with code between backticks."""
    return re.sub("`(.+?)`", r"<code>\1</code>", escape(text))


def _section(section: Section) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>"
        for row in section.rows
    )
    table = f"<table><tr>{head}</tr>{rows}</table>"
    shown = f'<div class="wide">{table}</div>' if section.rows else ""
    lines = "".join(f"<p>{_inline(line)}</p>" for line in section.lines)
    return f"<h2>{escape(section.title)}</h2>{shown}{lines}"


def _chart(report: Json) -> str:
    """Accuracy by window, a line for each arm. The line of a later arm is thinner and has gaps, so
    that equal lines do not hide each other.
    """
    curve, arms = report["curve"], report["plan"]["protocol"]["arms"]
    if not curve:
        return "<p>No window is complete.</p>"
    step = (WIDTH - LEFT - RIGHT) / max(1, len(curve) - 1)

    def y(share: float) -> float:
        return TOP + (1 - share) * (HEIGHT - BOTTOM - TOP)

    parts = [f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}"']
    parts.append(' role="img" aria-label="Accuracy by window">')
    legend: list[str] = []
    for percent in (0, 25, 50, 75, 100):
        height = y(percent / 100)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(f'<text x="4" y="{height + 4}">{percent} %</text>')
    for index, row in enumerate(curve):
        parts.append(
            f'<text x="{LEFT + index * step - 4:.1f}" y="{HEIGHT - 10}">{row["window"]}</text>'
        )
    for number, arm in enumerate(arms):
        width = 2 + 3 * (len(arms) - 1 - number)
        dashes = f' stroke-dasharray="9 7" stroke-dashoffset="{8 * number}"' if number else ""
        stroke = f'fill="none" stroke="var(--{arm})" stroke-width="{width}"{dashes}'
        points = [
            (LEFT + i * step, y(row["arms"][arm]))
            for i, row in enumerate(curve)
            if arm in row["arms"]
        ]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" {stroke}/>')
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{width / 2 + 2}" fill="var(--{arm})"/>'
            for px, py in points
        ]
        sample = f'<svg width="41" height="16"><path d="M0 8H41" {stroke}/></svg>'
        legend.append(f"<span>{sample} {escape(arm)}</span>")
    return (
        f'<div class="wide">{"".join(parts)}</svg></div><p class="legend">{"".join(legend)}</p>'
        f"<p>{curve_line(report)}</p>"
    )
