"""Objects as `get` shows them: in tables, and those that change one after the other."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from topospread.cli import documents, output
from topospread.cli.kinds import content_of, object_name, path_of
from topospread.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topospread.cli.options import ClientOptions
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import (
        CSINode,
        LabelSelector,
        Node,
        PersistentVolume,
        Pod,
        ResourceClaim,
    )
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject, WatchObjectsResponse

_Columns: TypeAlias = "tuple[Column, ...]"


def _taints(node: Node) -> str:
    return ", ".join(f"{each.key}={each.value}:{each.effect}" for each in node.spec.taints)


def _phase(content: Any) -> str:
    gone = content.metadata.HasField("deletion_timestamp")
    return "Terminating" if gone else str(content.status.phase)


def _claim(volume: PersistentVolume) -> str:
    claim = volume.spec.claim_ref
    return f"{claim.namespace}/{claim.name}" if volume.spec.HasField("claim_ref") else ""


def _drivers(node: CSINode) -> str:
    return ", ".join(each.name for each in node.spec.drivers)


def _device_classes(claim: ResourceClaim) -> str:
    requests = claim.spec.devices.requests
    return ", ".join(each.exactly.device_class_name for each in requests)


def _owners(pod: Pod) -> str:
    return ", ".join(f"{owner.kind}/{owner.name}" for owner in pod.metadata.owner_references)


def _replicas(workload: Any) -> object:
    has_any = "replicas" in workload.spec.DESCRIPTOR.fields_by_name
    return workload.spec.replicas if has_any and workload.spec.HasField("replicas") else ""


def _selector(workload: Any) -> str:
    """Labels that a workload selects, as kubectl's query language writes them."""
    selector = workload.spec.selector
    return _query(selector) if hasattr(selector, "match_labels") else _pairs(selector)


def _query(selector: LabelSelector) -> str:
    parts = [_pairs(selector.match_labels)] if selector.match_labels else []
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


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _labels(content: Any) -> Mapping[str, str]:
    """Labels of an object; those of a reservation are its own."""
    found: Mapping[str, str] = getattr(content, "metadata", content).labels
    return found


def _label_column(key: str, heading: str) -> Column:
    return Column(heading, lambda content: _labels(content).get(key))


_NAMESPACE: Final = Column("NAMESPACE", attrgetter("metadata.namespace"))
_NAME: Final = Column("NAME", attrgetter("metadata.name"))

_WORKLOADS: Final = (
    Column("KIND", attrgetter("DESCRIPTOR.name")),
    _NAMESPACE,
    _NAME,
    Column("#REPLICAS", _replicas),
    Column("SELECTOR", _selector),
)

_TABLES: Final[Mapping[str, _Columns]] = {
    "Node": (
        _NAME,
        _label_column("topology.kubernetes.io/zone", "ZONE"),
        _label_column("kubernetes.io/hostname", "HOSTNAME"),
        Column("SCHEDULING", lambda node: "cordoned" if node.spec.unschedulable else "yes"),
        Column("TAINTS", _taints),
    ),
    "Pod": (
        _NAMESPACE,
        _NAME,
        Column("NODE", attrgetter("spec.node_name")),
        Column("PHASE", _phase),
        Column("#CONSTRAINTS", lambda pod: len(pod.spec.topology_spread_constraints)),
        Column("CONTROLLED BY", _owners, wide=True),
    ),
    **dict.fromkeys(("Service", "ReplicationController", "ReplicaSet", "StatefulSet"), _WORKLOADS),
    "Job": (_NAMESPACE, _NAME, Column("CONTROLLED BY", _owners)),
    "PersistentVolume": (
        _NAME,
        Column("CLASS", attrgetter("spec.storage_class_name")),
        Column("PHASE", _phase),
        Column("CLAIM", _claim),
    ),
    "PersistentVolumeClaim": (
        _NAMESPACE,
        _NAME,
        Column("CLASS", attrgetter("spec.storage_class_name")),
        Column("PHASE", _phase),
        Column("VOLUME", attrgetter("spec.volume_name")),
    ),
    "StorageClass": (
        _NAME,
        Column("PROVISIONER", attrgetter("provisioner")),
        Column("BINDING MODE", attrgetter("volume_binding_mode")),
    ),
    "CSINode": (_NAME, Column("DRIVERS", _drivers)),
    "CSIDriver": (
        _NAME,
        Column("TELLS CAPACITY", lambda driver: "yes" if driver.spec.storage_capacity else "no"),
    ),
    "CSIStorageCapacity": (
        _NAMESPACE,
        _NAME,
        Column("CLASS", attrgetter("storage_class_name")),
        Column("CAPACITY", attrgetter("capacity.string")),
        Column("NODES", lambda each: _query(each.node_topology)),
    ),
    "VolumeAttachment": (
        _NAME,
        Column("NODE", attrgetter("spec.node_name")),
        Column("VOLUME", attrgetter("spec.source.persistent_volume_name")),
        Column("ATTACHER", attrgetter("spec.attacher")),
    ),
    "Namespace": (_NAME,),
    "ResourceClaim": (
        _NAMESPACE,
        _NAME,
        Column("CLASSES", _device_classes),
        Column("ALLOCATED", lambda c: "yes" if c.status.HasField("allocation") else "no"),
    ),
    "DeviceClass": (_NAME,),
    "ResourceSlice": (
        _NAME,
        Column("NODE", attrgetter("spec.node_name")),
        Column("DRIVER", attrgetter("spec.driver")),
        Column("POOL", attrgetter("spec.pool.name")),
        Column("#DEVICES", lambda each: len(each.spec.devices)),
    ),
    "Reservation": (
        Column("NAMESPACE", attrgetter("pod.namespace")),
        Column("NAME", attrgetter("pod.name")),
        Column("NODE", attrgetter("node")),
        Column("EXPIRES", lambda held: documents.moment(held.expire_time)),
        Column("UID", attrgetter("pod.uid"), wide=True),
    ),
}
"""Columns of the table of a kind; those of all workloads are in one table."""


class ObjectTables:
    """Prints objects in tables, those of a kind always below the same headings.

    Labels are shown in one column, or in one of their own by `label_keys`.
    """

    def __init__(
        self, wide: bool, labels: bool, label_keys: Sequence[str], *, headings: bool
    ) -> None:
        self._wide: Final = wide
        self._headings: Final = headings
        self._labels: Final = [
            _label_column(key, key.rpartition("/")[2].upper()) for key in label_keys
        ]
        if labels or wide:
            self._labels.append(Column("LABELS", lambda content: _pairs(_labels(content))))
        self._widths: dict[_Columns, Sequence[int]] = {}

    def print(self, found: Iterable[ClusterObject]) -> None:
        """Print a table of the nodes, one of the pods, one of the workloads, and so on."""
        rows: dict[_Columns, list[Any]] = {columns: [] for columns in _TABLES.values()}
        for content in map(content_of, found):
            rows[_TABLES[content.DESCRIPTOR.name]].append(content)
        tables = [(columns, contents) for columns, contents in rows.items() if contents]
        for position, (columns, contents) in enumerate(tables):
            if position:
                click.echo()
            before = self._widths.get(columns, ())
            self._widths[columns] = output.print_items(
                (*columns, *self._labels),
                contents,
                wide=self._wide,
                headings=self._headings and not before,
                least=before,
            )


def follow(
    found: Iterable[ClusterObject],
    watch: Iterable[WatchObjectsResponse],
    is_shown: Callable[[ClusterObject], bool],
    options: ClientOptions,
    tables: ObjectTables,
) -> None:
    """Print objects, and then each that changes until the watch ends; what goes as it was last."""
    known = {object_name(each).path: each for each in found}
    _print_each(known.values(), options, tables)
    for answer in watch:
        changed: list[ClusterObject] = []
        for event in answer.events:
            if not event.HasField("ref"):
                continue
            name = path_of(event.ref.kind, event.ref.namespace, event.ref.name)
            before = known.pop(name, None)
            if event.HasField("object") and is_shown(event.object):
                known[name] = event.object
            last = event.object if event.HasField("object") else before
            if last is not None and (before is not None or name in known):
                changed.append(last)
        _print_each(changed, options, tables)


def _print_each(
    found: Iterable[ClusterObject], options: ClientOptions, tables: ObjectTables
) -> None:
    if options.output == "table":
        tables.print(found)
        return
    for each in found:
        if options.output == "name":
            output.echo(object_name(each).path)
        else:
            output.dump_line(documents.plain(each), options.output)
