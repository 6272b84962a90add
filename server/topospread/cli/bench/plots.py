"""The plots of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.cli.bench.svg import Bar, Series, bars, lines
from topospread.cli.bench.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.cli.bench.figures import Figures


def plots(found: Mapping[str, Figures]) -> dict[str, tuple[str, str]]:
    """(what it shows, SVG) by file name; names begin with the bench they belong to."""
    made: dict[str, tuple[str, str]] = {}
    for name, alt, unit, rows in _bars(found):
        if rows:
            made[name] = (alt, bars(alt, unit, rows))
    if "scale" in found:
        for of in ("pods", "nodes"):
            alt = f"CPU of an EvaluatePod in process by {of}"
            points = _points(found["scale"], of)
            if points:
                made[f"scale-{of}"] = (alt, lines(alt, "µs", of, [Series("EvaluatePod", points)]))
    return made


def _bars(found: Mapping[str, Figures]) -> Iterator[tuple[str, str, str, Sequence[Bar]]]:
    if "decide" in found:
        decide = found["decide"]
        yield (
            "decide-cpu",
            "Server CPU of a call, 10 under way",
            "µs",
            _of(
                decide,
                {
                    "echo": "echo_cpu_us",
                    "no constraints": "unconstrained_cpu_us",
                    "EvaluatePod": "evaluate_cpu_us",
                    "PreFilter": "prefilter_cpu_us",
                    "Filter, 5,000 nodes": "filter_cpu_us",
                    "Score, 5,000 nodes": "score_cpu_us",
                },
            ),
        )
        yield (
            "decide-rate",
            "Calls a second by calls under way",
            "1/s",
            _of(
                decide,
                {
                    f"{what}, {calls} under way": f"{what}_rps{mark}"
                    for calls, mark in ((1, "_c1"), (10, ""), (50, "_c50"))
                    for what in ("echo", "evaluate")
                },
            ),
        )
        yield (
            "decide-latency",
            "Latency of one caller after the other, p50",
            "ms",
            _of(
                decide,
                {
                    "echo": "echo_p50_ms_c1",
                    "EvaluatePod, stream": "stream_p50_ms_c1",
                    "EvaluatePod, unary": "evaluate_p50_ms_c1",
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
            colour = 1 if name.startswith("echo") else 0
            target = bounds.get(name)
            rows.append(Bar(label, median, min(samples), max(samples), target, colour))
    return rows


def _points(figures: Figures, of: str) -> list[tuple[float, float]]:
    points = []
    for name in figures.samples:
        before, _, after = name.removeprefix("evaluate_us_").partition("_")
        if name.startswith("evaluate_us_") and before.isdecimal() and after == of:
            median = figures.median(name)
            assert median is not None, "it has samples"
            points.append((float(before), median))
    return sorted(points)
