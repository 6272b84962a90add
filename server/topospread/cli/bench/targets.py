"""What is to be reached, and whether a run reached it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.cli.bench.figures import Figures

MAX_ECHO_US: Final = 160.0
"""Above it the machine was too busy for the run's absolute figures to count."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure's median.

    Attributes:
        text: what is asked for.
        bench, figure: where it is measured.
        least, most: what the median must be between; None is no bound.
        unit: of the figure; ``%`` for shares of one.
    """

    text: str
    bench: str
    figure: str
    least: float | None = None
    most: float | None = None
    unit: str = ""

    def measured(self, found: Mapping[str, Figures]) -> float | None:
        """The median; None when it was not measured."""
        figures = found.get(self.bench)
        return None if figures is None else figures.median(self.figure)

    def met(self, value: float) -> bool:
        """Whether a median is within the bounds."""
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def shown(self, value: float) -> str:
        """A value with its unit."""
        if self.unit == "%":
            return f"{value * 100:.1f} %"
        text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        return f"{text} {self.unit}".rstrip()

    @property
    def bound(self) -> str:
        """The bounds as text."""
        if self.least is not None and self.most is not None:
            return f"{self.shown(self.least)} – {self.shown(self.most)}"
        if self.least is not None:
            return f"≥ {self.shown(self.least)}"
        assert self.most is not None, "a target has a bound"
        return f"≤ {self.shown(self.most)}"


_APPLIED: Final = "pod changes a replica takes in"
_SEEN: Final = "write → visible on another replica at 1,000 changes/s, p99"
_WAITING: Final = "the same for a caller that waits for its revision, p99"
_READY: Final = "ready after the port is open"

TARGETS: Final = (
    Target("EvaluatePod ÷ echo, calls a second, c=10", "decide", "evaluate_ratio", 0.60, unit="%"),
    Target(
        "EvaluatePod ÷ echo, calls a second, c=50", "decide", "evaluate_ratio_c50", 0.60, unit="%"
    ),
    Target("the same, results remembered, c=10", "decide", "evaluate_memo_ratio", 0.75, unit="%"),
    Target("and at c=50", "decide", "evaluate_memo_ratio_c50", 0.75, unit="%"),
    Target("server CPU of an EvaluatePod, c=10", "decide", "evaluate_cpu_us", most=205, unit="µs"),
    Target("EvaluatePod, p50 at c=1, unary", "decide", "evaluate_p50_ms_c1", most=0.35, unit="ms"),
    Target(
        "EvaluatePod, p50 at c=1, on a stream", "decide", "stream_p50_ms_c1", most=0.25, unit="ms"
    ),
    Target("server CPU of a PreFilter", "decide", "prefilter_cpu_us", most=250, unit="µs"),
    Target("server CPU of a Filter of all nodes", "decide", "filter_cpu_us", most=250, unit="µs"),
    Target("server CPU of a Score of all nodes", "decide", "score_cpu_us", most=250, unit="µs"),
    Target("pods without constraints ÷ echo", "decide", "unconstrained_ratio", 0.80, unit="%"),
    Target("rate lost to 1 % tracing", "tracing", "tracing_loss_1", most=0.10, unit="%"),
    Target("rate lost to 1,000 changes/s", "changes", "busy_loss", most=0.10, unit="%"),
    Target(
        "the same with 1,000 selectors", "changes", "busy_loss_1000_selectors", most=0.10, unit="%"
    ),
    Target("a tenth of the pods ÷ usual, CPU", "scale", "pods_x0.1_ratio", 0.85, 1.15),
    Target("ten times the pods ÷ usual, CPU", "scale", "pods_x10_ratio", 0.85, 1.15),
    Target("three times the nodes ÷ usual, CPU", "scale", "nodes_x3_ratio", most=3.5),
    Target("ten times the nodes ÷ usual, CPU", "scale", "nodes_x10_ratio", most=10),
    Target("first use of a selector, median", "cold", "cold_p50_ms", most=2, unit="ms"),
    Target("first use of a selector, slowest", "cold", "cold_max_ms", most=2, unit="ms"),
    Target("places held in one namespace, 2 servers", "placements", "places_per_s", 500, unit="/s"),
    Target(
        "server CPU of a PlacePod, 64 namespaces",
        "placements",
        "place_cpu_us_64_namespaces",
        most=500,
        unit="µs",
    ),
    Target("places that were not allowed", "placements", "breaches", most=0),
    Target("extender's filter, 500 candidates", "extender", "filter_rps", 1500, unit="/s"),
    Target("1,000 replicas simulated, p50", "planner", "simulate_p50_ms", most=1000, unit="ms"),
    Target(_APPLIED, "changes", "applied_per_s_20_selectors", 50_000, unit="/s"),
    Target(f"{_APPLIED}, 1,000 selectors", "changes", "applied_per_s_1000_selectors", 20_000),
    Target(f"{_SEEN}, Redis", "changes", "seen_p99_ms_redis", most=30, unit="ms"),
    Target(f"{_SEEN}, SQLite", "changes", "seen_p99_ms_sqlite", most=30, unit="ms"),
    Target(f"{_WAITING}, Redis", "changes", "waiting_p99_ms_redis", most=5, unit="ms"),
    Target(f"{_WAITING}, SQLite", "changes", "waiting_p99_ms_sqlite", most=5, unit="ms"),
    Target(f"{_READY}, Redis", "start", "ready_s_redis", most=1, unit="s"),
    Target(f"{_READY}, SQLite", "start", "ready_s_sqlite", most=1, unit="s"),
    Target(f"{_READY}, three times the pods, Redis", "start", "ready_s_x3_redis", most=3, unit="s"),
    Target(
        f"{_READY}, three times the pods, SQLite", "start", "ready_s_x3_sqlite", most=3, unit="s"
    ),
    Target(
        "memory at three times the pods, Redis",
        "start",
        "rss_used_mb_x3_redis",
        most=150,
        unit="MB",
    ),
    Target(
        "memory at three times the pods, each with its own labels, Redis",
        "start",
        "rss_used_mb_x3_own_labels_redis",
        most=450,
        unit="MB",
    ),
)
