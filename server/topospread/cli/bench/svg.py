"""Small charts as SVG, readable on light and dark pages alike: no background, middle tones only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT: Final = "#768390"
COLOURS: Final = ("#2f81f7", "#db6d28", "#3fa34d", "#a371f7")
TARGET: Final = "#e5534b"

_WIDTH: Final = 760
_LEFT: Final = 210
_RIGHT: Final = 90
_ROW: Final = 26
_TOP: Final = 44
_STEPS: Final = 4
_FONT: Final = "font-family='system-ui, sans-serif' font-size='13'"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        low, high: the spread, drawn as a line over the end of the bar.
        target: a bound, drawn as a mark.
        colour: index into COLOURS.
    """

    label: str
    value: float
    low: float
    high: float
    target: float | None = None
    colour: int = 0


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """A chart of horizontal bars."""
    largest = max(max(row.value, row.high, row.target or 0.0) for row in rows) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    parts = []
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW
        middle, end = y + _ROW / 2, _LEFT + row.value * scale
        parts += [
            _text(_LEFT - 8, middle + 4, row.label, "end"),
            _rect(_LEFT, y + 4, max(1.0, row.value * scale), _ROW - 8, COLOURS[row.colour]),
            _line(_LEFT + row.low * scale, middle, _LEFT + row.high * scale, middle, TEXT),
            _text(max(end, _LEFT + row.high * scale) + 8, middle + 4, _number(row.value)),
        ]
        if row.target is not None:
            x = _LEFT + row.target * scale
            parts.append(_line(x, y + 1, x, y + _ROW - 1, TARGET, 2.5))
    height = _TOP + len(rows) * _ROW + 16
    if any(row.target is not None for row in rows):
        parts.append(_line(_LEFT, height - 2, _LEFT, height - 14, TARGET, 2.5))
        parts.append(_text(_LEFT + 8, height - 4, "target"))
        height += 8
    return _chart(f"{title} ({unit})", height, parts)


@dataclass(frozen=True, slots=True)
class Series:
    """One line through points (x, y)."""

    label: str
    points: Sequence[tuple[float, float]]


def lines(title: str, unit: str, across: str, series: Sequence[Series]) -> str:
    """A chart of lines; x is logarithmic, y begins at 0."""
    left, right, top, height = 70, 150, _TOP + 8, 240
    xs = sorted({x for each in series for x, _ in each.points})
    step = _step(max(y for each in series for _, y in each.points))
    largest = step * _STEPS
    span = math.log(xs[-1] / xs[0]) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + math.log(x / xs[0]) / span * (_WIDTH - left - right),
            top + height * (1 - y / largest),
        )

    parts = []
    for y in (step * number for number in range(_STEPS + 1)):
        _, at = place(xs[0], y)
        parts.append(_line(left, at, _WIDTH - right, at, TEXT, 0.4))
        parts.append(_text(left - 8, at + 4, _number(y), "end"))
    parts += [_text(place(x, 0)[0], top + height + 20, f"{x:,.0f}", "middle") for x in xs]
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(x, y) for x, y in each.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.5'/>"
        )
        parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{colour}'/>" for x, y in placed]
        x, y = placed[-1]
        parts.append(_text(x + 10, y + 4, each.label))
    parts.append(_text((left + _WIDTH - right) / 2, top + height + 40, across, "middle"))
    return _chart(f"{title} ({unit})", top + height + 52, parts)


def _step(largest: float) -> float:
    """A round number, so many of which are just above the largest value."""
    ten = 10.0 ** math.floor(math.log10(largest / _STEPS))
    return next(ten * by for by in (1, 2, 2.5, 5, 10) if ten * by * _STEPS > largest)


def _chart(title: str, height: float, parts: Sequence[str]) -> str:
    size = f"viewBox='0 0 {_WIDTH} {height:.0f}' width='{_WIDTH}' height='{height:.0f}'"
    heading = f"fill='{TEXT}' font-size='15' font-weight='600'>{escape(title)}</text>"
    return "\n".join(
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' {_FONT}>",
            f"<title>{escape(title)}</title>",
            f"<text x='8' y='24' {heading}",
            *parts,
            "</svg>\n",
        )
    )


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f"width='{width:.1f}' height='{height:.1f}'"
    return f"<rect x='{x:.1f}' y='{y:.1f}' {size} rx='2' fill='{colour}'/>"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' fill='{TEXT}' text-anchor='{anchor}'>{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.5) -> str:
    return (
        f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' "
        f"stroke='{colour}' stroke-width='{width}'/>"
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
