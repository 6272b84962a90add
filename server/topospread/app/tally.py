"""What a supervisor counts by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from topospread.telemetry.families import ended_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric


def exposition(
    configured: int, ready: int, restarts: int, ended: Mapping[tuple[str, ...], float]
) -> bytes:
    """The families of a supervisor, in Prometheus' text format.

    Args:
        configured: workers that should serve.
        ready: workers that do.
        restarts: workers that were started to replace one that ended.
        ended: HTTP connections by why they were ended.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Tally((*families(configured, ready, restarts), ended_family(ended))))
    return generate_latest(registry)


def families(configured: int, ready: int, restarts: int) -> Iterator[Metric]:
    """The same as :func:`exposition`, before it is written."""
    workers = GaugeMetricFamily(
        "topospread_workers",
        "With several processes: how many should serve, and how many do.",
        labels=("state",),
    )
    workers.add_metric(("configured",), configured)
    workers.add_metric(("ready",), ready)
    yield workers
    yield CounterMetricFamily(
        "topospread_worker_restarts",
        "With several processes: those that were started to replace one that ended.",
        restarts,
    )


class _Tally(Collector):
    def __init__(self, read: Iterable[Metric]) -> None:
        self._read = read

    @override
    def collect(self) -> Iterable[Metric]:
        return self._read
