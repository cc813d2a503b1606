"""Charts as SVG: positions of bars, lines, steps, axes and labels. `components.html` draws them,
with a table of the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

ChartKind = Literal["bar", "line", "step"]
WIDE = 720
NARROW = 400
HEIGHT = 220
MARGIN_LEFT = 58
MARGIN_RIGHT = 12
MARGIN_TOP = 12
MARGIN_BOTTOM = 28
TICK_COUNT = 4
MIN_RANGE = 1e-9
"""Values that differ by less are drawn as zero: ticks have ten decimals."""
LABEL_WIDTH = 64
"""Pixels that a label of the horizontal axis gets at least."""
LETTER_WIDTH = 7
WIDE_LETTER_WIDTH = 12
"""Pixels of a letter of a label, and of a Japanese one."""
MAX_BAR_WIDTH = 28
TURNED_WIDTH = 18
"""Pixels that a turned name gets at least."""
MAX_NAME_LENGTH = 24
"""Characters of a name on the horizontal axis. The table has all."""
TURNED_SINE = 0.77
"""Of the angle of names that do not fit next to each other, 50 degrees."""


@dataclass(frozen=True)
class Series:
    """One line, or one color of bars. A value of None is a gap. What does harm is red."""

    name: str
    values: Sequence[float | None]
    is_harm: bool = False


@dataclass(frozen=True)
class Axis:
    """The horizontal axis. `is_named`: its labels are names, so that all are shown. With
    `positions`, from 0 on, it is a scale of numbers.
    """

    is_named: bool = False
    positions: Sequence[float] | None = None


DEFAULT_AXIS = Axis()


@dataclass(frozen=True)
class Mark:
    """A bar or a point, with the text that a pointer shows."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class DrawnSeries:
    """Positions of one series. `path` is the line, empty for bars."""

    path: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Tick:
    """A label of an axis and its position."""

    position: float
    text: str


@dataclass(frozen=True)
class Drawing:
    """A chart at one width, in pixels."""

    width: int
    height: int
    left: float
    right: float
    base: float
    """Vertical position of zero."""
    label_base: float
    """Vertical position of the labels of the horizontal axis."""
    is_turned: bool
    """Whether these labels are names that fit only if they are turned."""
    series: Sequence[DrawnSeries]
    y_ticks: Sequence[Tick]
    x_ticks: Sequence[Tick]


@dataclass(frozen=True)
class Chart:
    """A chart at both widths, and its values for the table. `rows` has a label and a text for each
    series.
    """

    title: str
    summary: str
    names: Sequence[tuple[str, str]]
    """Of the series, each with the class of its color."""
    rows: Sequence[tuple[str, Sequence[str]]]
    drawings: Sequence[tuple[str, Drawing]]
    label: str
    """The heading of the first column of the table."""
    has_legend: bool
    """Whether a single series is named, too."""

    @property
    def is_empty(self) -> bool:
        return not self.rows


def draw_chart(
    kind: ChartKind,
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    format: Callable[[float | None], str],
    summary: str = "",
    label: str = "",
    axis: Axis = DEFAULT_AXIS,
    has_legend: bool = False,
) -> Chart:
    """Draw a chart. Each series has a value for each label. `format` makes the text of a value."""
    sizes = (("wide", WIDE), ("narrow", NARROW))
    return Chart(
        title=title,
        summary=summary,
        names=[
            (one.name, "bad" if one.is_harm else f"s{number}") for number, one in enumerate(series)
        ],
        rows=[
            (name, [format(one.values[index]) for one in series])
            for index, name in enumerate(labels)
        ],
        drawings=[
            (name, _draw(kind, (width, axis), labels, series, format)) for name, width in sizes
        ],
        label=label,
        has_legend=has_legend,
    )


def nice_ticks(
    low: float, high: float, count: int = TICK_COUNT, *, whole: bool = False
) -> list[float]:
    """Round numbers that cover `low` to `high`, about `count` of them, with zero. `whole`: only
    whole numbers.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < MIN_RANGE:
        return [0.0, 1.0]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def _draw(
    kind: ChartKind,
    place: tuple[int, Axis],
    labels: Sequence[str],
    series: Sequence[Series],
    format: Callable[[float | None], str],
) -> Drawing:
    width, axis = place
    positions = axis.positions
    values = [v for one in series for v in one.values if v is not None]
    is_whole = all(float(value).is_integer() for value in values)
    ticks = nice_ticks(min(values, default=0.0), max(values, default=0.0), whole=is_whole)
    margin_left = max(MARGIN_LEFT, 12 + max(_text_width(format(tick)) for tick in ticks))
    inner_width = width - margin_left - MARGIN_RIGHT
    inner_height = HEIGHT - MARGIN_TOP - MARGIN_BOTTOM
    slot = inner_width / max(1, len(labels))

    def y(value: float) -> float:
        share = (value - ticks[0]) / (ticks[-1] - ticks[0])
        return round(MARGIN_TOP + inner_height * (1 - share), 1)

    shown = _labeled(labels, slot)
    is_turned = axis.is_named and len(shown) < len(labels)
    turned_height = 0.0
    if is_turned:
        shown = range(0, len(labels), max(1, math.ceil(TURNED_WIDTH / slot)))
        turned_height = TURNED_SINE * max(_text_width(_short(label)) for label in labels)
    scale = nice_ticks(0.0, max(positions or [0.0]), whole=True)

    def at(number: float) -> float:
        return round(margin_left + inner_width * number / scale[-1], 1)

    def x(index: int) -> float:
        if positions is not None:
            return at(positions[index])
        return round(margin_left + slot * (index + 0.5), 1)

    x_ticks = (
        [Tick(x(index), _short(labels[index])) for index in shown]
        if positions is None
        else [Tick(at(number), f"{number:.0f}") for number in scale]
    )
    if not is_turned:
        x_ticks = [
            Tick(min(t.position, width - 1 - _text_width(t.text) / 2), t.text) for t in x_ticks
        ]
    drawn: list[DrawnSeries] = []
    for number, one in enumerate(series):
        marks = _marks(kind, one, (number, len(series)), labels, (x, y, slot, format))
        drawn.append(DrawnSeries(_path(kind, one, x, y), marks))
    return Drawing(
        width=width,
        height=HEIGHT + round(turned_height),
        left=margin_left,
        right=width - MARGIN_RIGHT,
        base=y(0.0),
        label_base=HEIGHT - 8.0,
        is_turned=is_turned,
        series=drawn,
        y_ticks=[Tick(y(value), format(value)) for value in ticks],
        x_ticks=x_ticks,
    )


def _labeled(labels: Sequence[str], slot: float) -> Sequence[int]:
    """The indexes of the labels that fit next to each other. The last one may be moved to the left,
    so that it ends in the picture.
    """
    width = max(map(_text_width, labels), default=0)
    every = max(1, math.ceil(max(LABEL_WIDTH, width + LETTER_WIDTH) / slot))
    shown = list(range(0, len(labels), every))
    if len(shown) < 2:
        return shown
    moved = width / 2 - MARGIN_RIGHT - (len(labels) - shown[-1] - 0.5) * slot
    return shown[:-1] if every * slot - moved < width + LETTER_WIDTH else shown


def _short(label: str) -> str:
    return label if len(label) <= MAX_NAME_LENGTH else f"{label[: MAX_NAME_LENGTH - 1]}…"


def _text_width(text: str) -> int:
    return sum(LETTER_WIDTH if letter.isascii() else WIDE_LETTER_WIDTH for letter in text)


def _marks(
    kind: ChartKind,
    series: Series,
    place: tuple[int, int],
    labels: Sequence[str],
    scale: tuple[
        Callable[[int], float], Callable[[float], float], float, Callable[[float | None], str]
    ],
) -> list[Mark]:
    """Bars next to each other, or points. `place` is the number of the series and their count."""
    x, y, slot, format = scale
    number, count = place
    width = max(1.0, min(MAX_BAR_WIDTH, slot * 0.7) / count)
    marks: list[Mark] = []
    for index, value in enumerate(series.values):
        if value is None:
            continue
        text = f"{labels[index]}: {series.name} {format(value)}"
        top, base = min(y(value), y(0.0)), y(0.0)
        if kind == "bar":
            left = round(x(index) - width * count / 2 + width * number, 1)
            height = round(abs(base - y(value)), 1)
            marks.append(Mark(left, top, round(width, 1), height, text))
        else:
            marks.append(Mark(x(index), y(value), 0, 0, text))
    return marks


def _path(
    kind: ChartKind, series: Series, x: Callable[[int], float], y: Callable[[float], float]
) -> str:
    """The line of a series: straight, or in steps that hold a value until the next one."""
    if kind == "bar":
        return ""
    parts: list[str] = []
    is_drawing = False
    for index, value in enumerate(series.values):
        if value is None:
            is_drawing = False
            continue
        if not is_drawing:
            parts.append(f"M{x(index)} {y(value)}")
        elif kind == "step":
            parts.append(f"H{x(index)}V{y(value)}")
        else:
            parts.append(f"L{x(index)} {y(value)}")
        is_drawing = True
    return "".join(parts)
