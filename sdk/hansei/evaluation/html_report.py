"""The report as one HTML file without scripts or external files."""

from __future__ import annotations

from html import escape

from hansei._model import Json
from hansei.evaluation.text_report import Section, headline, sections

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 300, 44, 32
COLORS = {
    "none": "#777777",
    "hansei": "#0b6e4f",
    "icl": "#c05a00",
    "examples": "#5b4bb5",
    "full": "#0067a5",
}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } th { color: #555 } .plan { color: #555 }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #ddd }
.note { background: #fff3cd; padding: .5rem .8rem; border-left: 4px solid #c98a00 }
.headline { font-size: 1.15rem; font-weight: 600 } svg text { font: 12px system-ui, sans-serif }
"""


def format_html(report: Json) -> str:
    plan = report["plan"]
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in report["notes"])
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Evaluation {escape(plan['id'])}</title><style>{STYLE}</style>",
        f"<h1>Do the agents get better? Evaluation {escape(plan['id'])}</h1>",
        f'<p class="headline">{escape(headline(report))}</p>',
        notes,
        f'<p class="plan">{escape(plan_line(report))}</p>',
        "<h2>Learning curve</h2>",
        _chart(report),
        *(_section(section) for section in sections(report) if section.title != "Learning curve"),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def plan_line(report: Json) -> str:
    plan, tasks = report["plan"], report["tasks"]
    protocol = plan["protocol"]
    counts = f"{tasks['stream']} tasks in the stream, {tasks['held_out']} held out"
    options = f"repeats: {protocol['repeats']}; seed {protocol['seed']}"
    return (
        f"{counts}, {tasks['controls']} controls; windows of {plan['window']}; {options}; "
        f"feedback: {protocol['feedback']}; agent: {plan['agent']}. The plan was written on "
        f"{plan['created_at']}, before the first call; SHA-256 {plan['sha256']}."
    )


def _section(section: Section) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in section.rows
    )
    table = f"<table><tr>{head}</tr>{rows}</table>" if section.rows else ""
    lines = "".join(f"<p>{escape(line)}</p>" for line in section.lines)
    return f"<h2>{escape(section.title)}</h2>{table}{lines}"


def _chart(report: Json) -> str:
    """Accuracy by window, a line for each arm."""
    curve, arms = report["curve"], report["plan"]["protocol"]["arms"]
    if not curve:
        return "<p>No window is complete.</p>"
    step = (WIDTH - LEFT - 80) / max(1, len(curve) - 1)

    def y(share: float) -> float:
        return 12 + (1 - share) * (HEIGHT - BOTTOM - 12)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Accuracy by window">']
    for percent in (0, 25, 50, 75, 100):
        height = y(percent / 100)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 80}" y1="{height}" y2="{height}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="4" y="{height + 4}">{percent} %</text>')
    for index, row in enumerate(curve):
        parts.append(
            f'<text x="{LEFT + index * step - 4:.1f}" y="{HEIGHT - 10}">{row["window"]}</text>'
        )
    for number, arm in enumerate(arms):
        color = COLORS[arm]
        points = [
            (LEFT + i * step, y(row["arms"][arm]))
            for i, row in enumerate(curve)
            if arm in row["arms"]
        ]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{color}"/>' for px, py in points
        ]
        parts.append(
            f'<text x="{WIDTH - 70}" y="{24 + 18 * number}" fill="{color}">● {escape(arm)}</text>'
        )
    return "".join(parts) + "</svg><p>Share of right answers by window of the stream.</p>"
