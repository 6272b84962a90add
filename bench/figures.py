"""Figures of benches, the environment in which they were measured, and their targets."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PACKAGES: Final = (
    "topospread",
    "grpcio",
    "protobuf",
    "numpy",
    "redis",
    "hiredis",
    "opentelemetry-sdk",
    "prometheus-client",
)
MAX_OTHERS: Final = 0.2
"""Cores that other programs take: above it the run's absolute figures do not count."""

_APPLIED: Final = "pod changes a replica takes in"
_SEEN: Final = "write → visible on another replica at 1,000 changes/s, p99"
_WAITING: Final = "the same for a caller that waits for its revision, p99"
_READY: Final = "ready after the port is open"


@dataclass(slots=True)
class Figures:
    """The results of a bench.

    Attributes:
        samples: by the figure's name, one for each round.
        missing: names of figures that cannot be measured here, and why.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Note one sample."""
        self.samples.setdefault(name, []).append(value)

    def lack(self, names: Iterable[str], reason: str) -> None:
        """Note what cannot be measured."""
        self.missing.update(dict.fromkeys(names, reason))

    def median(self, name: str) -> float | None:
        """The median of a figure; None without samples."""
        samples = self.samples.get(name)
        return statistics.median(samples) if samples else None

    def plain(self) -> dict[str, Any]:
        """The figures for JSON: medians by name, then the lowest and highest sample of each."""
        medians: dict[str, Any] = {name: rounded(self.median(name)) for name in self.samples}
        medians.update(dict.fromkeys(self.missing))
        spread = {name: [rounded(min(s)), rounded(max(s))] for name, s in self.samples.items()}
        return {**medians, "spread": spread, "missing": self.missing}


def rounded(value: float | None) -> float | None:
    """Four digits that matter."""
    return None if value is None else float(f"{value:.4g}")


def environment() -> dict[str, Any]:
    """The machine, the versions, and how busy the machine is now."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": _model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the source, with a + when it was changed since; empty outside a repository."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return described.stdout.strip()


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


TARGETS: Final = (
    Target("kube-scheduler's plugin ÷ EvaluatePod over gRPC, p50", "scheduler", "faster", 40),
    Target("EvaluatePod ÷ echo, calls a second, c=10", "decide", "evaluate_ratio", 0.95),
    Target("the same, c=50", "decide", "evaluate_ratio_c50", 0.95),
    Target("EvaluatePod ÷ echo, p50, c=1", "decide", "evaluate_p50_ratio_c1", most=0.85),
    Target("EvaluatePod ÷ echo, server CPU, c=10", "decide", "evaluate_cpu_ratio", most=1.0),
    Target("the same, result remembered", "decide", "evaluate_memo_cpu_ratio", most=0.58),
    Target("Filter of all nodes ÷ echo, server CPU", "decide", "filter_cpu_ratio", most=1.07),
    Target("Score of all nodes ÷ echo, server CPU", "decide", "score_cpu_ratio", most=1.41),
    Target(
        "BatchEvaluatePods of 20, decisions a second and core",
        "decide",
        "batch_decisions_per_core_s",
        20_000,
    ),
    Target("client ÷ stub, p50: small pod as a message", "client", "small_proto_ratio", most=1.15),
    Target("large pod as a message", "client", "large_proto_ratio", most=1.15),
    Target("small pod as a dict", "client", "small_dict_ratio", most=1.25),
    Target("large pod as a dict", "client", "large_dict_ratio", most=1.25),
    Target("rate lost to 1 % tracing", "tracing", "tracing_loss_1", most=0.10, unit="%"),
    Target("rate lost to 1,000 changes/s", "changes", "busy_loss", most=0.12, unit="%"),
    Target(
        "the same with 1,000 selectors", "changes", "busy_loss_1000_selectors", most=0.12, unit="%"
    ),
    Target("a tenth of the pods ÷ usual, CPU", "scale", "pods_x0.1_ratio", 0.85, 1.15),
    Target("ten times the pods ÷ usual, CPU", "scale", "pods_x10_ratio", 0.85, 1.15),
    Target("ten times the nodes ÷ usual, CPU", "scale", "nodes_x10_ratio", most=1.3),
    Target("first use of a selector, median", "cold", "cold_p50_ms", most=2, unit="ms"),
    Target("first use of a selector, slowest", "cold", "cold_max_ms", most=2, unit="ms"),
    Target("places held in one namespace, 2 servers", "placements", "places_per_s", 250, unit="/s"),
    Target("places that were not allowed", "placements", "breaches", most=0),
    Target("extender's filter, 500 candidates", "extender", "filter_rps", 1500, unit="/s"),
    Target("1,000 replicas simulated, p50", "planner", "simulate_p50_ms", most=1000, unit="ms"),
    Target("explain, p50", "planner", "explain_p50_ms", most=5, unit="ms"),
    Target("ranking of everything, p50", "planner", "rank_all_p50_ms", most=500, unit="ms"),
    Target("rebalance of everything, p50", "planner", "rebalance_all_p50_ms", most=2500, unit="ms"),
    Target("first list of 2,000 constraints", "inspector", "first_ms", most=300, unit="ms"),
    Target("the same after 20 changes, p50", "inspector", "changed_p50_ms", most=30, unit="ms"),
    Target(
        "CPU of a decision beside metrics of constraints ÷ without, 1,000 changes/s",
        "inspector",
        "decision_cpu_ratio_metrics",
        most=1.05,
    ),
    Target(_APPLIED, "changes", "applied_per_s_20_selectors", 50_000, unit="/s"),
    Target(f"{_APPLIED}, 1,000 selectors", "changes", "applied_per_s_1000_selectors", 20_000),
    Target(f"{_SEEN}, Redis", "changes", "seen_p99_ms_redis", most=30, unit="ms"),
    Target(f"{_SEEN}, SQLite", "changes", "seen_p99_ms_sqlite", most=30, unit="ms"),
    Target(f"{_WAITING}, Redis", "changes", "waiting_p99_ms_redis", most=5, unit="ms"),
    Target(f"{_WAITING}, SQLite", "changes", "waiting_p99_ms_sqlite", most=5, unit="ms"),
    Target(f"{_READY}, Redis", "start", "ready_s_redis", most=0.3, unit="s"),
    Target(f"{_READY}, SQLite", "start", "ready_s_sqlite", most=0.3, unit="s"),
    Target(f"{_READY}, three times the pods, Redis", "start", "ready_s_x3_redis", most=1, unit="s"),
    Target(
        f"{_READY}, three times the pods, SQLite", "start", "ready_s_x3_sqlite", most=1, unit="s"
    ),
    Target(
        "memory at three times the pods, Redis",
        "start",
        "rss_used_mb_x3_redis",
        most=130,
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
