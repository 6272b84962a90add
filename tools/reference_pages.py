"""Writes the pages of docs/ that say what the code says: settings, metrics, the output's schema.

make docs
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from tools import output_schema, service_config
from topospread.config.descriptions import GROUPS, SETTINGS
from topospread.telemetry.families import (
    CacheGauges,
    ClusterConstraints,
    ClusterGauges,
    ConstraintGauges,
    KindCounters,
    KindGauges,
    PoolGauges,
    SyncGauges,
    cache_families,
    constraint_families,
    pool_families,
    sync_families,
)
from topospread.telemetry.metrics import Metrics, connection_families, settings_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.samples import Sample

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEADER = "<!-- Written by `make docs` from the code; changes made here are lost. -->"
MIB = 1 << 20

SETTINGS_ARE = """\
A setting has three spellings: a flag of `topospread serve`, a variable, and a key of a
`TopospreadConfiguration` file. A flag goes before a variable, which goes before the file;
`topospread config check [FILE]` shows what would hold. Durations may be written `500ms`, `30s` or
`5m`, sizes `16MiB`; a switch is `--name` or `--no-name`, and `true` or `false` as a variable. The
reason for each default stands in italics. Servers that share a store should agree on the
configuration file, feature gates and limits: where they do not,
[an alert says so](operations.md#configuration-file)."""

METRICS_ARE = """\
Served at `/metrics` on the address of `--http`, in Prometheus' text format or OpenMetrics. Families
that begin with `scheduler_` have kube-scheduler's names, labels and buckets, so that its dashboards
and alerts work, with the one plugin that there is here. Two things differ: a Filter or Score of all
nodes is one observation, and no observation is left out. `--no-scheduler-metrics` leaves these
families out where a kube-scheduler is summed with this server. `topospread_sync_*` are there where
a cluster is synced (`--sync`). Series whose labels are known are there from the
start at 0, so that `rate()` and `increase()` see a first burst: of calls these are each method with
OK, DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED and UNAVAILABLE. `process_*` and `python_gc_*`
come from Prometheus' client library.

`topospread_constraint*` are what [reports](api.md#services) say, unless `--constraint-metrics` is
`none`. A cluster that changed is looked at after some 5 s, and where looks would take more than 2 %
of a core later, up to 30 s. Each cluster of the store is followed for them, also one that nobody
asks about; where its constraints are not counted, `topospread_constraints_missing` has the reason.
`topospread_constraint_*` have the namespace, the owner and the id of
the constraint as GetConstraint takes it; pods without an owner have an empty one, and
a value is cut to 253 bytes, with `?` for what cannot be printed. They are for the
constraints that `--constraint-metrics` chooses, up to `--max-constraint-series`, and go when it
chooses them no more. Where Prometheus gives targets a label `namespace` of their own, as its
operator does, scrape with `honor_labels`, as [deploy/kubernetes](../deploy/kubernetes/README.md)
does: else that of the workload is `exported_namespace`, and the alerts name the server's."""


def pages() -> dict[str, str]:
    """The content of each page by the name of its file in docs/."""
    return {
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "output.schema.json": output_schema.schema(),
        "service-config.json": service_config.service_config(),
    }


def settings_page() -> str:
    """Every setting with its spellings, its unit, its default and the reason for that."""
    sections = []
    for group in GROUPS:
        rows = []
        for setting in (SETTINGS[one.name] for one in fields(group)):
            default = shown(setting.default, setting.unit)
            if setting.name == "store":
                default = "`sqlite:///…/topospread/state.db`"
            spelled = f"`{setting.flag}`<br>`{setting.variable}`<br>`{setting.key}`"
            what = f"{setting.help}<br>*{setting.reason}*"
            rows.append([spelled, default, setting.unit or "–", what])
        heading, _, _ = (inspect.getdoc(group) or "").partition("\n")
        head = ["Flag, variable, key", "Default", "Unit", "What it does"]
        sections.append(f"## {heading.rstrip('.')}\n\n{table(head, rows)}")
    return page("Settings", SETTINGS_ARE, "\n\n".join(sections))


def metrics_page() -> str:
    """Every metric family with its type and labels."""
    rows = [
        [
            f"`{family.name}{'_total' if family.type == 'counter' else ''}`",
            family.type,
            ", ".join(f"`{label}`" for label in labels_of(family.samples)) or "–",
            family.documentation,
        ]
        for family in observed().families()
    ]
    return page(
        "Metrics",
        METRICS_ARE,
        table(["Metric", "Type", "Labels", "What it counts"], rows),
    )


def observed() -> Metrics:
    """Metrics with one observation in each family, so that labels show."""
    metrics = Metrics("0")
    metrics.call("m").observe("OK", 0.0)
    metrics.extension_point("Filter", "p").observe("Success", 0.0)
    metrics.attempt("scheduled", "p")
    metrics.consistency("minimize_latency").observe(0.0)
    metrics.store_error("apply")
    metrics.rejection("decisions")
    metrics.queue_wait("decisions").observe(0.0)
    metrics.transport("grpcio", "")
    metrics.placement("PlacePod", "held")
    metrics.placement_conflict("PlacePod")
    metrics.unknown_nodes("default")
    metrics.stale_decision("default")
    metrics.watch_refused("default", lambda: 0)
    metrics.http_dropped("malformed")
    metrics.watch(settings_families, str)
    metrics.watch(connection_families, lambda: {"grpc": 0})
    metrics.config_reloaded(1, accepted=True)
    metrics.watch_clusters(lambda: [ClusterGauges("default", {"Node": 1}, 0, 0, 0.0, 0.0, 0)])
    constraint = ConstraintGauges(("shop", "Deployment", "web", "zone", "", "id"), "", 0, 0, 0)
    metrics.watch(
        constraint_families,
        lambda: [ClusterConstraints("default", {"blocked": 1}, {}, 0.0, (constraint,))],
    )
    metrics.watch(pool_families, lambda: [PoolGauges("decisions", 0, 0)])
    metrics.watch(cache_families, lambda: [CacheGauges("shapes", 0, 0, 0)])
    pods = KindGauges("Pod", watching=True, lag_seconds=0.0, objects=0, counters=KindCounters())
    metrics.watch(sync_families, lambda: [SyncGauges("default", active=True, kinds=(pods,))])
    return metrics


def labels_of(samples: Sequence[Sample]) -> Sequence[str]:
    """The labels of a family, without a histogram's own."""
    return [label for label in samples[0].labels if label != "le"]


def shown(default: object, unit: str) -> str:
    """A default as one would write it."""
    if isinstance(default, bool):
        return "on" if default else "off"
    if default is None or default in ("", {}):
        return "–"
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    if unit.startswith("bytes") and isinstance(default, int) and default % MIB == 0:
        return f"`{default // MIB}MiB`"
    if unit == "seconds" and isinstance(default, float):
        return f"`{default:g}s`" if default >= 1 or not default else f"`{default * 1000:g}ms`"
    return f"`{default}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def page(title: str, introduction: str, body: str) -> str:
    """A whole page."""
    return f"# {title}\n\n{HEADER}\n\n{introduction}\n\n{body}\n"


if __name__ == "__main__":
    for name, content in pages().items():
        (DOCS / name).write_text(content, encoding="utf-8")
        print(f"docs/{name}")
