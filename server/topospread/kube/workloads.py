"""Default selectors: the pods that a pod without constraints is spread with (KEP-1258).

Source: kube-scheduler's ``helper.DefaultSelector``; upstream facts 23 and 24.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.selectors import (
    NOTHING,
    Selector,
    SelectorError,
    compile_selector,
    selector_from_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from topospread.kube.objects import OwnerReference, Pod, Workload

SERVICE: Final = "Service"
REPLICATION_CONTROLLER: Final = "ReplicationController"
REPLICA_SET: Final = "ReplicaSet"
STATEFUL_SET: Final = "StatefulSet"

DEPLOYMENT: Final = "Deployment"
JOB: Final = "Job"
CRON_JOB: Final = "CronJob"

TEMPLATE_HASH: Final = "pod-template-hash"
"""The label by which a Deployment tells the pods of its ReplicaSets apart."""

_OWNER_GROUPS: Final = {REPLICATION_CONTROLLER: "", REPLICA_SET: "apps", STATEFUL_SET: "apps"}


def outer_controller(kind: str, name: str, pod_labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Kind and name of what controls a pod's controller, as far as names tell; None where not.

    A Deployment's ReplicaSet is called as it is with the hash that its pods have as a label, a
    CronJob's Job with a number. Neither Deployments nor Jobs are stored.
    """
    outer, _, suffix = name.rpartition("-")
    if outer and kind == REPLICA_SET and pod_labels.get(TEMPLATE_HASH) == suffix:
        return DEPLOYMENT, outer
    if outer and kind == JOB and suffix.isdecimal():
        return CRON_JOB, outer
    return None


def default_selector(
    pod: Pod,
    workloads: Iterable[Workload],
    lookup: Callable[[str, str], Workload | None],
) -> Selector:
    """The selector that default constraints get; empty when nothing selects the pod.

    All Services that match the pod are merged, and the controlling ReplicationController,
    ReplicaSet or StatefulSet is added, whether or not its selector matches the pod.

    Args:
        pod: the incoming pod.
        workloads: those of the pod's namespace; all but Services are passed over.
        lookup: finds a workload of the pod's namespace by kind and name; None when there is none.
    """
    labels: dict[str, str] = {}
    for workload in workloads:
        if workload.kind == SERVICE and _selects(workload, pod):
            labels.update(workload.match_labels)
    owner = None
    if pod.owner is not None and _is_looked_at(pod.owner):
        owner = lookup(pod.owner.kind, pod.owner.name)
    if owner is not None and owner.kind == REPLICATION_CONTROLLER:
        # A map like a Service's: its pairs take the place of equal keys.
        labels.update(owner.match_labels)
    selector = selector_from_pairs(labels.items())
    if owner is None or owner.kind == REPLICATION_CONTROLLER:
        return selector
    return selector.and_requirements(_of_owner(owner))


def _is_looked_at(owner: OwnerReference) -> bool:
    group, _, version = owner.api_version.rpartition("/")
    return version == "v1" and _OWNER_GROUPS.get(owner.kind) == group


def _selects(service: Workload, pod: Pod) -> bool:
    return all(pod.labels.get(key) == value for key, value in service.match_labels)


def _of_owner(owner: Workload) -> Selector:
    try:
        return compile_selector(owner.selector)
    except SelectorError:
        return NOTHING
