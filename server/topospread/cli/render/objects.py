"""Tables of the objects that `get` shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from topospread.cli import documents, output
from topospread_client import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread_client import Reservation
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Node, Pod
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_NODE_COLUMNS: Final = ("NAME", "ZONE", "HOSTNAME", "SCHEDULING", "TAINTS")
_POD_COLUMNS: Final = ("NAMESPACE", "NAME", "NODE", "PHASE", "#CONSTRAINTS")
_WORKLOAD_COLUMNS: Final = ("KIND", "NAMESPACE", "NAME", "#REPLICAS", "SELECTOR")
_RESERVATION_COLUMNS: Final = ("NAMESPACE", "NAME", "NODE", "EXPIRES")

_Row: TypeAlias = "tuple[Sequence[object], Sequence[object], Mapping[str, str]]"
"""Cells of an object, those of a wide table, and its labels."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns that a table has beside those that it always has.

    Attributes:
        wide: those of `-o wide`, with the labels.
        labels: all labels, in one column.
        label_keys: a column for each of these labels.
        headings: whether to print the headings.
        widths: of the columns of tables so far: rows that follow stand below them.
    """

    wide: bool = False
    labels: bool = False
    label_keys: Sequence[str] = ()
    headings: bool = True
    widths: dict[tuple[str, ...], Sequence[int]] = field(default_factory=dict)

    def table(
        self,
        columns: Sequence[str],
        wide_columns: Sequence[str],
        rows: Sequence[_Row],
    ) -> None:
        """Print rows under these columns, those of a wide table, and those of labels.

        Columns that were printed before have no headings again.
        """
        shown = list(columns)
        if self.wide:
            shown += wide_columns
        shown += [key.rpartition("/")[2].upper() for key in self.label_keys]
        all_labels = self.labels or self.wide
        if all_labels:
            shown.append("LABELS")
        before = self.widths.get(tuple(shown), ())
        self.widths[tuple(shown)] = output.table(
            shown,
            [
                (
                    *cells,
                    *(wide if self.wide else ()),
                    *(labels.get(key) for key in self.label_keys),
                    *([_pairs(labels)] if all_labels else []),
                )
                for cells, wide, labels in rows
            ],
            headings=self.headings and not before,
            least=before,
        )


def print_objects(found: Sequence[tuple[Kind, ClusterObject]], columns: Columns) -> None:
    """Print a table of the nodes, one of the pods and one of the workloads that there are."""
    nodes = [_node_row(each.node) for kind, each in found if kind is Kind.NODE]
    pods = [_pod_row(each.pod) for kind, each in found if kind is Kind.POD]
    workloads = [
        _workload_row(kind, getattr(each, kind.field))
        for kind, each in found
        if kind not in {Kind.NODE, Kind.POD}
    ]
    tables = (
        (_NODE_COLUMNS, (), nodes),
        (_POD_COLUMNS, ("CONTROLLED BY",), pods),
        (_WORKLOAD_COLUMNS, (), workloads),
    )
    for position, (own, wide, rows) in enumerate(table for table in tables if table[-1]):
        if position:
            click.echo()
        columns.table(own, wide, rows)


def _node_row(node: Node) -> _Row:
    taints = [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints]
    labels = node.metadata.labels
    scheduling = "cordoned" if node.spec.unschedulable else "yes"
    where = (node.metadata.name, labels.get(_ZONE), labels.get(_HOSTNAME))
    return (*where, scheduling, ", ".join(taints)), (), labels


def _pod_row(pod: Pod) -> _Row:
    metadata, spec = pod.metadata, pod.spec
    phase = "Terminating" if metadata.HasField("deletion_timestamp") else pod.status.phase
    constraints = len(spec.topology_spread_constraints)
    owners = [f"{owner.kind}/{owner.name}" for owner in metadata.owner_references]
    cells = (metadata.namespace, metadata.name, spec.node_name, phase, constraints)
    return cells, (", ".join(owners),), metadata.labels


def _workload_row(kind: Kind, workload: Any) -> _Row:
    spec, metadata = workload.spec, workload.metadata
    replicas = "" if kind is Kind.SERVICE or not spec.HasField("replicas") else spec.replicas
    if kind in {Kind.REPLICA_SET, Kind.STATEFUL_SET}:
        text = _selector_text(spec.selector) if spec.HasField("selector") else ""
    else:
        text = _pairs(spec.selector)
    return (kind.label, metadata.namespace, metadata.name, replicas, text), (), metadata.labels


def print_reservations(found: Sequence[Reservation], columns: Columns) -> None:
    """Print a table of reservations."""
    rows: list[_Row] = []
    for each in found:
        expires = documents.moment(each.expire_time) if each.expire_time else ""
        cells = (each.pod.namespace, each.pod.name, each.node, expires)
        rows.append((cells, (each.pod.uid,), each.labels))
    columns.table(_RESERVATION_COLUMNS, ("UID",), rows)


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _selector_text(selector: Any) -> str:
    """Label selector as kubectl's query language writes it."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        key, values = expression.key, ",".join(expression.values)
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(texts.get(expression.operator, f"{key} {expression.operator} ({values})"))
    return ",".join(parts)
