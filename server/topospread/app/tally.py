"""What a supervisor counts by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


def exposition(configured: int, ready: int, restarts: int) -> bytes:
    """The families of a supervisor, in Prometheus' text format.

    Args:
        configured: workers that should serve.
        ready: workers that do.
        restarts: workers that were started to replace one that ended.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(configured, ready, restarts))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, configured: int, ready: int, restarts: int) -> None:
        self._workers = {"configured": configured, "ready": ready}
        self._restarts = restarts

    @override
    def collect(self) -> Iterator[Metric]:
        workers = GaugeMetricFamily(
            "topospread_workers", "Processes that should serve, and that do.", labels=("state",)
        )
        for state, count in self._workers.items():
            workers.add_metric((state,), count)
        yield workers
        yield CounterMetricFamily(
            "topospread_worker_restarts",
            "Processes that were started to replace one that ended.",
            self._restarts,
        )
