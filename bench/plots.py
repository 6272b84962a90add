"""The plots of the report, readable on light and dark pages alike: no background, middle tones."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from bench.figures import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from bench.figures import Figures

_TEXT: Final = "#768390"
_MEASURED: Final = "#2f81f7"
_ECHO: Final = "#db6d28"
_TARGET: Final = "#e5534b"
_WIDTH: Final = 7.6
_ROW: Final = 0.26
"""Inches: of a plot, and of the height of one bar."""

_STYLE: Final[dict[Any, Any]] = {
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.titlecolor": _TEXT,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "font.size": 9.0,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "topospread",
    "text.color": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
}
"""Text stays text; the salt makes equal figures equal files."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One horizontal bar.

    Attributes:
        low, high: the lowest and the highest round, drawn as a line over the end of the bar.
        target: a bound, drawn as a mark.
    """

    label: str
    value: float
    low: float
    high: float
    target: float | None
    colour: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: str


def plots(found: Mapping[str, Figures]) -> dict[str, tuple[str, str]]:
    """(title, SVG) by file name; names begin with the bench they belong to."""
    made: dict[str, tuple[str, str]] = {}
    for name, title, unit, bars in _bar_charts(found):
        if bars:
            made[name] = (title, _bar_chart(f"{title} ({unit})", bars))
    for name, title, unit, across, curves in _line_charts(found):
        if any(curve.points for curve in curves):
            made[name] = (title, _line_chart(f"{title} ({unit})", across, curves))
    return made


def _bar_chart(title: str, bars: Sequence[Bar]) -> str:
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(_ROW * len(bars) + 0.9)
        axes.set_title(title, loc="left")
        rows = range(len(bars))
        axes.barh(rows, [bar.value for bar in bars], 0.7, color=[bar.colour for bar in bars])
        largest = max(max(bar.value, bar.high, bar.target or 0.0) for bar in bars) or 1.0
        for row, bar in enumerate(bars):
            axes.plot([bar.low, bar.high], [row, row], color=_TEXT, linewidth=1.5)
            end = max(bar.value, bar.high)
            if bar.target is not None:
                axes.plot([bar.target] * 2, [row - 0.45, row + 0.45], color=_TARGET, linewidth=2.5)
                if end < bar.target < end + largest / 10:
                    end = bar.target
            text = _number(bar.value)
            axes.annotate(text, (end, row), (6, 0), textcoords="offset points", va="center")
        axes.set_yticks(rows, [bar.label for bar in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(0, largest * 1.12)
        axes.spines["bottom"].set_visible(False)
        axes.xaxis.set_visible(False)
        axes.tick_params(length=0)
        if any(bar.target is not None for bar in bars):
            axes.plot([], [], color=_TARGET, linewidth=2.5, label="target")
            figure.legend(loc="outside lower left", frameon=False)
        return _svg(figure)


def _line_chart(title: str, across: str, curves: Sequence[Curve]) -> str:
    """Lines over a logarithmic x; y begins at 0."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(3.3)
        axes.set_title(title, loc="left")
        xs = sorted({x for curve in curves for x, _ in curve.points})
        for curve in curves:
            along, up = zip(*curve.points, strict=True)
            axes.plot(along, up, color=curve.colour, marker="o", linewidth=2.5, label=curve.label)
        if len(curves) > 1:
            figure.legend(loc="outside lower left", frameon=False, ncols=len(curves))
        axes.set_xscale("log")
        axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, max(y for curve in curves for _, y in curve.points) * 1.15)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _number(y)))
        axes.grid(axis="y", color=_TEXT, linewidth=0.4)
        axes.set_xlabel(across)
        return _svg(figure)


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure((_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure) -> str:
    """The same bytes for the same figure: without a date."""
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    lines = written.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _number(value: float) -> str:
    """Three digits that matter; thousands are set apart."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bar_charts(found: Mapping[str, Figures]) -> Iterator[tuple[str, str, str, Sequence[Bar]]]:
    if "scheduler" in found:
        yield (
            "scheduler-p50",
            "One pod judged on all nodes, p50",
            "ms",
            _of(
                found["scheduler"],
                {
                    "kube-scheduler's plugin, in its process": "plugin_p50_ms",
                    "EvaluatePod, over gRPC": "evaluate_p50_ms",
                },
            ),
        )
    if "decide" in found:
        yield (
            "decide-cpu",
            "Server CPU of a call, 10 callers",
            "µs",
            _of(
                found["decide"],
                {
                    "empty call": "echo_cpu_us",
                    "EvaluatePod, remembered": "evaluate_memo_cpu_us",
                    "EvaluatePod": "evaluate_cpu_us",
                    "no constraints": "unconstrained_cpu_us",
                    "PreFilter": "prefilter_cpu_us",
                    "Filter, all nodes": "filter_cpu_us",
                    "Score, all nodes": "score_cpu_us",
                },
            ),
        )
    if "changes" in found:
        yield (
            "changes-applied",
            "Changes that a replica takes in",
            "1/s",
            _of(
                found["changes"],
                {
                    "20 selectors": "applied_per_s_20_selectors",
                    "1,000 selectors": "applied_per_s_1000_selectors",
                    "1,000 overlapping": "applied_per_s_1000_overlapping",
                },
            ),
        )
        yield (
            "changes-seen",
            "From write to view in another process, p99",
            "ms",
            _of(
                found["changes"],
                {
                    f"{what}, {store}": f"{figure}_p99_ms_{store.lower()}"
                    for store in ("Redis", "SQLite")
                    for what, figure in (("seen", "seen"), ("waited for", "waiting"))
                },
            ),
        )
    if "start" in found:
        sizes = {"usual": "", "3 × pods": "_x3", "3 ×, own labels": "_x3_own_labels"}
        for name, alt, unit, figure in (
            ("start-ready", "From open port to ready", "s", "ready_s"),
            ("start-memory", "Memory of a process", "MB", "rss_used_mb"),
        ):
            labelled = {
                f"{size}, {store}": f"{figure}{mark}_{store.lower()}"
                for size, mark in sizes.items()
                for store in ("Redis", "SQLite")
            }
            yield name, alt, unit, _of(found["start"], labelled)


def _of(figures: Figures, labelled: Mapping[str, str]) -> list[Bar]:
    """A bar for each figure that was measured, with its target."""
    bounds = {t.figure: t.least if t.most is None else t.most for t in TARGETS}
    rows = []
    for label, name in labelled.items():
        median = figures.median(name)
        if median is not None:
            samples = figures.samples[name]
            colour = _ECHO if name.startswith("echo") else _MEASURED
            target = bounds.get(name)
            rows.append(Bar(label, median, min(samples), max(samples), target, colour))
    return rows


CALLERS: Final = {1: "_c1", 10: "", 50: "_c50"}


def _line_charts(
    found: Mapping[str, Figures],
) -> Iterator[tuple[str, str, str, str, Sequence[Curve]]]:
    """File name, title, unit, what is across, and the lines."""
    if "decide" in found:
        for name, title, unit, figure in (
            ("decide-rate", "Calls a second, one server", "1/s", "rps"),
            ("decide-latency", "Latency of a call, p50", "ms", "p50_ms"),
        ):
            curves = [
                Curve("empty call", _by_callers(found["decide"], f"echo_{figure}"), _ECHO),
                Curve("EvaluatePod", _by_callers(found["decide"], f"evaluate_{figure}"), _MEASURED),
            ]
            yield name, title, unit, "callers", [each for each in curves if each.points]
    if "scale" in found:
        for across in ("pods", "nodes"):
            points = _points(found["scale"], across)
            title = f"CPU of an EvaluatePod by {across}"
            yield f"scale-{across}", title, "µs", across, [Curve("", points, _MEASURED)]


def _by_callers(figures: Figures, name: str) -> list[tuple[float, float]]:
    medians = ((callers, figures.median(name + mark)) for callers, mark in CALLERS.items())
    return [(callers, median) for callers, median in medians if median is not None]


def _points(figures: Figures, across: str) -> list[tuple[float, float]]:
    points = []
    for name in figures.samples:
        before, _, after = name.removeprefix("evaluate_us_").partition("_")
        if name.startswith("evaluate_us_") and before.isdecimal() and after == across:
            median = figures.median(name)
            assert median is not None, "it has samples"
            points.append((float(before), median))
    return sorted(points)
