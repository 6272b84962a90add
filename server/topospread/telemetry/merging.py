"""One exposition out of those of several processes.

Counters and histograms add up. A gauge is merged by a rule that suits its meaning: processes that
follow one cluster report the same objects, so the largest value stands (a lag, an age and a
staleness are then the worst one); what each process has for itself is added; and a flag that must
hold everywhere is the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from typing_extensions import override

from topospread.telemetry.constraint_metrics import AGE, PREFIX

Rule = Callable[[float, float], float]

_ADDED: Final = frozenset({"counter", "histogram"})


def _sum(one: float, other: float) -> float:
    return one + other


GAUGE_RULES: Final[dict[str, Rule]] = {
    "topospread_queue_depth": _sum,
    "topospread_inflight_calls": _sum,
    "topospread_waiting_calls": _sum,
    "topospread_cache_bytes": _sum,
    "topospread_cache_limit_bytes": _sum,
    "topospread_config_last_reload_successful": min,
    "topospread_file_last_reload_successful": min,
    "process_resident_memory_bytes": _sum,
    "process_virtual_memory_bytes": _sum,
    "process_open_fds": _sum,
    "process_start_time_seconds": min,
}
"""By family name; a gauge that is not named here: the largest value."""


def merge_expositions(live: Iterable[bytes], retired: Iterable[bytes] = ()) -> bytes:
    """Merge expositions in Prometheus' text format into one in the same format.

    Args:
        live: of the processes that run.
        retired: the last ones of processes that ended. Their counters and histograms still count:
            without them a sum would fall, and Prometheus would take that for a restart of all.
            What this function makes of them alone can stand for them from then on.
    """
    merged = _Merged()
    processes = [list(text_string_to_metric_families(each.decode())) for each in live]
    newest = _newest_constraints(processes)
    for number, families in enumerate(processes):
        merged.add(families, {cluster for cluster, (_, which) in newest.items() if which == number})
    for exposition in retired:
        ended = text_string_to_metric_families(exposition.decode())
        merged.add(family for family in ended if family.type in _ADDED)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(merged)
    return generate_latest(registry)


def _newest_constraints(processes: Sequence[Iterable[Metric]]) -> dict[str, tuple[float, int]]:
    """By cluster, the age of its newest constraints and the number of the process that has them."""
    found: dict[str, tuple[float, int]] = {}
    for number, families in enumerate(processes):
        for sample in (
            each for family in families if family.name == AGE for each in family.samples
        ):
            cluster, seen = sample.labels["cluster"], (sample.value, number)
            found[cluster] = min(seen, found.get(cluster, seen))
    return found


class _Merged(Collector):
    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}

    def add(self, families: Iterable[Metric], inspected: Collection[str] = ()) -> None:
        """Add the families of a process, with the constraints of these clusters alone."""
        for family in families:
            self._families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            rule = _sum if family.type in _ADDED else GAUGE_RULES.get(family.name, max)
            values = self._values.setdefault(family.name, {})
            of_constraints = family.name.startswith(PREFIX)
            for sample in family.samples:
                if of_constraints and sample.labels["cluster"] not in inspected:
                    continue
                key = (sample.name, tuple(sample.labels.items()))
                known = values.get(key)
                values[key] = sample.value if known is None else rule(known, sample.value)

    @override
    def collect(self) -> Iterable[Metric]:
        for name, family in self._families.items():
            for (sample, labels), value in self._values[name].items():
                family.add_sample(sample, dict(labels), value)
            yield family
