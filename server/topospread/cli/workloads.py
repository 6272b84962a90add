"""Workloads as their pods in the state show them: Deployments are not stored, their pods are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.cli.errors import Subject
from topospread.cli.kinds import OWNERS, ObjectName
from topospread.cli.manifest_objects import NextReplica, PodRequest
from topospread.kube.workloads import outer_controller
from topospread_client import ConstraintValidation, Kind, NotFound, PodReference
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import Client, Consistency

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_PAGE_SIZE: Final = 5000


@dataclass(frozen=True, slots=True)
class StatePods:
    """Reads pods of the state, of one namespace at a time or of all, each once.

    Attributes:
        consistency: how fresh they must be; None for the state at hand.
    """

    client: Client
    consistency: Consistency | None
    _read: dict[str | None, Sequence[Pod]] = field(default_factory=dict)

    def of(self, namespace: str | None) -> Sequence[Pod]:
        """All pods of a namespace; None for those of all."""
        if namespace not in self._read:
            listed = self.client.list_objects(
                Kind.POD, namespace=namespace, page_size=_PAGE_SIZE, consistency=self.consistency
            )
            self._read[namespace] = [each.pod for each in listed]
        return self._read[namespace]

    def next_replica(self, workload: ObjectName) -> PodRequest:
        """Pod that a workload would make next, as its newest pod shows it.

        Raises:
            NotFound: no pod of the workload is in the state.
        """
        pods = self.of(workload.namespace)
        own = [pod for pod in pods if workload in owners_of(pod)]
        if own:
            return _next_replica(workload, own)
        raise NotFound(
            f"no pod of {workload.path} is in the state, and no more than its pods is known of it: "
            f"explain its manifest with -f",
            reason="POD_NOT_FOUND",
        )

    def workload_named(self, missing: ObjectName) -> PodRequest:
        """Next replica of the workload that has the name of a pod that is not in the state.

        Raises:
            NotFound: no workload has it.
        """
        pods = self.of(missing.namespace)
        owners = {owner for pod in pods for owner in owners_of(pod)}
        found = sorted(
            (owner for owner in owners if owner.name == missing.name),
            key=lambda owner: OWNERS.index(owner.kind) if owner.kind in OWNERS else len(OWNERS),
        )
        if found:
            return _next_replica(found[0], [pod for pod in pods if found[0] in owners_of(pod)])
        raise NotFound(
            f"pod {missing.namespace}/{missing.name} is not in the state, nor a pod of a "
            f"workload of that name",
            reason="POD_NOT_FOUND",
        )


def owners_of(pod: Pod) -> Sequence[ObjectName]:
    """Controllers of a pod, the outer one last: a ReplicaSet, and its Deployment.

    Those of ReplicaSets and Jobs are not stored: names tell them.
    """
    metadata = pod.metadata
    owner = next((each for each in metadata.owner_references if each.controller), None)
    if owner is None:
        return ()
    direct = ObjectName(owner.kind, metadata.namespace, owner.name)
    outer = outer_controller(owner.kind, owner.name, metadata.labels)
    if outer is None:
        return (direct,)
    kind, name = outer
    return (direct, ObjectName(kind, metadata.namespace, name))


def is_pending(pod: Pod) -> bool:
    """Whether a pod waits for a node: neither bound nor ended nor being deleted."""
    return not (pod.spec.node_name or _is_going(pod))


def _is_going(pod: Pod) -> bool:
    return pod.status.phase in _ENDED or pod.metadata.HasField("deletion_timestamp")


def _next_replica(workload: ObjectName, pods: Sequence[Pod]) -> PodRequest:
    # What goes may be of an older template; where all go, it is all that is known.
    staying = [pod for pod in pods if not _is_going(pod)]
    newest = max(
        staying or pods,
        key=lambda pod: (
            pod.metadata.creation_timestamp.seconds,
            is_pending(pod),
            pod.metadata.name,
        ),
    )
    pending = sum(map(is_pending, pods))
    replica = Pod()
    replica.CopyFrom(newest)
    replica.metadata.generate_name = f"{workload.name}-"
    for own in ("name", "uid", "resource_version", "creation_timestamp", "deletion_timestamp"):
        replica.metadata.ClearField(own)
    replica.spec.ClearField("node_name")
    replica.ClearField("status")
    return PodRequest(
        replica,
        Subject(PodReference(workload.name, workload.namespace), workload.kind),
        f"{workload.kind} {workload.namespace}/{workload.name}",
        ConstraintValidation.IGNORE,
        next_replica=NextReplica(
            PodReference(newest.metadata.name, newest.metadata.namespace),
            pending_pod_count=pending,
            running_pod_count=len(staying) - pending,
        ),
    )
