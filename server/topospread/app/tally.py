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
    registry.register(_Tally(configured, ready, restarts))
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
    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    @override
    def collect(self) -> Iterator[Metric]:
        return families(*self._numbers)
