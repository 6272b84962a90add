"""Which pods a person means: by labels, by a workload's manifest, or by the pods themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.cli import objects
from topospread.cli.complaints import BadInput
from topospread_client import (
    ManifestError,
    pod_from_manifest,
    selector_from_manifest,
    selector_from_query,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.documents import Manifest
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, Node, Pod, ReplicaSet

OWNERS: Final = ("Deployment", "CloneSet", "StatefulSet", "ReplicationController", "Job")
"""Kinds that say which pods are theirs."""

_REPLICA_SET: Final = "ReplicaSet"
_ADVICE: Final = "say which with --selector"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen.

    Attributes:
        selector: None only where pods are given.
        namespace: None for the default one.
        pods: to look at in place of the state's.
        nodes: likewise.
        replica_sets: beside those of the state.
        template: the pod that the workload would make; None without a workload.
    """

    selector: LabelSelector | None
    namespace: str | None
    pods: Sequence[Pod]
    nodes: Sequence[Node]
    replica_sets: Sequence[ReplicaSet]
    template: Pod | None


def chosen(manifests: Sequence[Manifest], namespace: str | None, query: str | None) -> Chosen:
    """The pods that manifests and a label query mean.

    Args:
        manifests: pods; or a workload, for the pods that it selects; and nodes and ReplicaSets.
        namespace: of the pods, and of objects that name none.
        query: labels; empty or None for what the manifests say.

    Raises:
        BadInput: they mean no pods, or those of several workloads.
        InvalidRequest: a query that is none.
    """
    read = [each for _, each in objects.to_keep(manifests, namespace).kept]
    pods = [each.pod for each in read if each.HasField("pod")]
    nodes = [each.node for each in read if each.HasField("node")]
    replica_sets = [each.replica_set for each in read if each.HasField("replica_set")]
    if query:
        labels = selector_from_query(query, "--selector")
        return Chosen(labels, namespace, pods, nodes, replica_sets, None)
    owner = _owner(manifests, pods_given=bool(pods))
    if owner is None:
        if not pods:
            raise BadInput(
                "say which pods: with --selector, or with -f and a file of pods or of one workload"
            )
        return Chosen(None, namespace, pods, nodes, replica_sets, None)
    try:
        selector = selector_from_manifest(owner.content)
        template = pod_from_manifest(owner.content)
    except ManifestError as error:
        raise BadInput(f"{owner.title}: {error}") from error
    if selector is None:
        raise BadInput(f"{owner.title}: it selects no pods: {_ADVICE}")
    space = template.metadata.namespace or namespace
    own = [each for each in pods if _namespace(each, namespace) == (space or "default")]
    if pods and not own:
        raise BadInput(f"{owner.title}: none of the pods in the input is in its namespace")
    return Chosen(selector, space, own, nodes, replica_sets, template)


def _owner(manifests: Sequence[Manifest], *, pods_given: bool) -> Manifest | None:
    """The one workload that is meant. A Deployment's ReplicaSets may stand beside its pods."""
    owners = [each for each in manifests if each.kind in OWNERS]
    if not owners and not pods_given:
        owners = [each for each in manifests if each.kind == _REPLICA_SET]
    if len(owners) > 1:
        labels = ", ".join(each.label for each in owners)
        raise BadInput(f"the input has several workloads ({labels}): {_ADVICE}")
    return owners[0] if owners else None


def _namespace(pod: Pod, namespace: str | None) -> str:
    return pod.metadata.namespace or namespace or "default"
