"""Manifests → what requests carry: objects to keep, and pods to judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.cli import printing
from topospread.cli.complaints import BadInput
from topospread_client import Kind, ManifestError, object_from_manifest, pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.cli.documents import Manifest
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_NODE: Final = Kind.NODE.label

POD_KINDS: Final = (
    "Pod",
    "Deployment",
    "CloneSet",
    "Job",
    "CronJob",
    "DaemonSet",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
)
"""What can be judged: pods, and workloads for the pod that they would make."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects of the kinds that a server keeps, and how many of other kinds were left out."""

    kept: list[tuple[Manifest, ClusterObject]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class PodToJudge:
    """A pod, or the pod that a workload would make."""

    manifest: Manifest
    pod: Pod


def to_keep(manifests: Iterable[Manifest], namespace: str | None = None) -> Objects:
    """The objects that a server keeps.

    Args:
        manifests: of any kind.
        namespace: for namespaced objects that name none.

    Raises:
        BadInput: everything that cannot be read, at once.
    """
    found, wrong = Objects(), []
    for manifest in manifests:
        _give_namespace(manifest, namespace)
        try:
            made = object_from_manifest(manifest.content)
        except ManifestError as error:
            wrong.append(f"{manifest.title}: {error}")
            continue
        if made is None:
            found.skipped[manifest.kind] += 1
        else:
            found.kept.append((manifest, made))
    if wrong:
        raise BadInput(*wrong)
    return found


def to_judge(
    manifests: Sequence[Manifest], namespace: str | None = None
) -> tuple[list[PodToJudge], Counter[str]]:
    """The pods, and how many objects of other kinds were left out.

    Raises:
        BadInput: everything that cannot be read, at once; or nothing there is a pod or makes one.
    """
    pods: list[PodToJudge] = []
    skipped: Counter[str] = Counter()
    wrong = []
    for manifest in manifests:
        if manifest.kind not in POD_KINDS:
            skipped[manifest.kind] += 1
            continue
        _give_namespace(manifest, namespace)
        try:
            pods.append(PodToJudge(manifest, pod_from_manifest(manifest.content)))
        except ManifestError as error:
            wrong.append(f"{manifest.title}: {error}")
    if wrong:
        raise BadInput(*wrong)
    if not pods:
        raise BadInput(f"no pod to evaluate in the input: give one of {', '.join(POD_KINDS)}")
    return pods, skipped


def say_skipped(skipped: Counter[str], why: str) -> None:
    """Name on stderr what was left out."""
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        printing.note(f"skipped: {kinds} ({why})")


def _give_namespace(manifest: Manifest, namespace: str | None) -> None:
    metadata = manifest.content.get("metadata")
    if namespace is None or manifest.kind == _NODE or not isinstance(metadata, dict):
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = namespace
