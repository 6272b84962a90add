"""Manifests → the content of requests: objects to store, and pods to judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import BadInput, Subject
from topospread.cli.field_validation import ManifestErrors
from topospread.cli.kinds import POD, RESERVATION, ObjectName, parse_name
from topospread_client import (
    ConstraintValidation,
    Kind,
    ManifestError,
    ObjectReference,
    PodReference,
    kind_of,
    object_from_manifest,
    pod_from_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.cli.field_validation import FieldValidation
    from topospread.cli.manifest_files import Manifest
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

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
"""Kinds that can be judged: pods, and workloads for the pod that they would make."""

_NODE: Final = Kind.NODE.label
_NO_POD_KINDS: Final = "no pod, and nothing that makes pods"


@dataclass(frozen=True, slots=True)
class StorableObjects:
    """Objects of the kinds that a server stores, and the number of objects of other kinds."""

    objects: list[tuple[Manifest, ClusterObject]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ManifestPod:
    """Pod of a manifest, or the pod that its workload would make."""

    manifest: Manifest
    pod: Pod


@dataclass(frozen=True, slots=True)
class NextReplica:
    """What stands for the next replica of a workload of the state.

    Attributes:
        like_pod: the newest pod of the workload, whose template it has.
        pending_pod_count: pods of the workload without a node.
        running_pod_count: those with one, less those that have ended or are being deleted.
    """

    like_pod: PodReference
    pending_pod_count: int
    running_pod_count: int


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Pod that a server is asked about.

    Attributes:
        pod: in full, or by its name in the state.
        subject: the pod as answers and errors show it.
        label: kind and name, for people.
        validation: how strictly its constraints are checked.
        replicas: how many a workload makes; None for a pod.
        next_replica: what the pod is made of; None unless it is that of a workload of the state.
    """

    pod: Pod | PodReference
    subject: Subject
    label: str
    validation: ConstraintValidation
    replicas: int | None = None
    next_replica: NextReplica | None = None

    @property
    def title(self) -> str:
        """Source and label, which begin error messages about the pod."""
        return f"{self.subject.source}: {self.label}".removeprefix(": ")


def storable_objects(
    manifests: Iterable[Manifest],
    validation: FieldValidation,
    namespace: str | None = None,
    *,
    named: bool = True,
) -> StorableObjects:
    """Convert the manifests of kinds that a server stores.

    Args:
        manifests: of any kind.
        validation: of the fields of those that are converted.
        namespace: for namespaced objects that name none.
        named: whether each must have a name.

    Raises:
        BadInput: all manifests that cannot be read, whose fields are refused, or that lack a name.
    """
    found, errors = StorableObjects(), ManifestErrors(validation)
    for manifest in manifests:
        set_namespace(manifest, namespace)
        try:
            converted = object_from_manifest(manifest.content)
        except ManifestError as error:
            errors.check_fields(manifest)
            errors.add(manifest, error)
            continue
        if converted is None:
            found.skipped[manifest.kind] += 1
        else:
            errors.check_fields(manifest)
            if named and not (manifest.content.get("metadata") or {}).get("name"):
                # A server says so of one batch, by a number, when those before it are written.
                errors.add(manifest, ManifestError("metadata.name", "name is required"))
            found.objects.append((manifest, converted))
    errors.raise_all()
    return found


def reference_of(converted: ClusterObject) -> ObjectReference:
    """Reference to the object of a manifest; its namespace is None for a node."""
    kind = kind_of(converted)
    if kind is None:
        raise AssertionError("manifests give no empty objects")
    metadata = getattr(converted, kind.field).metadata
    namespace = None if kind is Kind.NODE else metadata.namespace or "default"
    return ObjectReference(kind, metadata.name, namespace)


def manifest_pods(
    manifests: Sequence[Manifest], validation: FieldValidation, namespace: str | None = None
) -> tuple[list[ManifestPod], Counter[str]]:
    """Convert the manifests of pods and of workloads that make pods.

    Returns:
        The pods, and the number of objects of each other kind.

    Raises:
        BadInput: all manifests that cannot be read, or whose fields are refused; or none is a pod
            or makes one.
    """
    pods: list[ManifestPod] = []
    skipped: Counter[str] = Counter()
    errors = ManifestErrors(validation)
    for manifest in manifests:
        if manifest.kind not in POD_KINDS:
            skipped[manifest.kind] += 1
            continue
        set_namespace(manifest, namespace)
        errors.check_fields(manifest)
        try:
            pods.append(ManifestPod(manifest, pod_from_manifest(manifest.content)))
        except ManifestError as error:
            errors.add(manifest, error)
    errors.raise_all()
    if not pods:
        raise BadInput(f"no pod to evaluate in the input: give one of {', '.join(POD_KINDS)}")
    return pods, skipped


def pod_requests(
    stored: Sequence[str],
    paths: Sequence[str],
    *,
    recursive: bool,
    namespace: str | None,
    validation: FieldValidation,
) -> list[PodRequest]:
    """Pods that are named on the command line, then those of files.

    Raises:
        UsageError: neither names nor files are given.
        BadInput: a name of no pod, or files that cannot be read.
    """
    if not stored and not paths:
        raise click.UsageError("say which pods: -f PATH, or NAMESPACE/NAME of pods in the state")
    requests = [
        named_request(parse_name(text, namespace, (POD, RESERVATION), POD)) for text in stored
    ]
    if paths:
        manifests = manifest_files.read(paths, recursive=recursive)
        pods, skipped = manifest_pods(manifests, validation, namespace)
        warn_skipped(skipped, _NO_POD_KINDS)
        requests += [
            PodRequest(
                each.pod,
                _subject(each.manifest),
                each.manifest.label,
                validation.of_constraints,
                _replicas(each.manifest),
            )
            for each in pods
        ]
    return requests


def refuse_workloads(requests: Sequence[PodRequest]) -> None:
    """Refuse pods that a workload would make: they have no name to reserve a node for.

    Raises:
        BadInput: with each workload.
    """
    workloads = [each for each in requests if each.replicas is not None]
    if workloads:
        raise BadInput(
            *(
                f"{each.title}: a place is held for a pod, by its name: give pods; "
                "`simulate` places what a workload would make, and holds nothing"
                for each in workloads
            )
        )


def warn_skipped(skipped: Counter[str], reason: str) -> None:
    """Name on stderr the kinds of objects that were skipped."""
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        output.warn(f"skipped: {kinds} ({reason})")


def named_request(name: ObjectName) -> PodRequest:
    """Request about a pod of the state, by its name; or what errors about a workload's name say."""
    reference = PodReference(name.name, name.namespace)
    kind = POD if name.kind == RESERVATION else name.kind
    # Pods of the state are taken as they are: validating them again could refuse them.
    return PodRequest(
        reference,
        Subject(reference, kind),
        f"{kind} {reference.full_name}",
        ConstraintValidation.IGNORE,
    )


def _subject(manifest: Manifest) -> Subject:
    metadata = manifest.content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
    uid = metadata.get("uid") if manifest.kind == "Pod" else None
    pod = PodReference(str(name), str(namespace), str(uid) if uid else None)
    return Subject(pod, manifest.kind, manifest.source)


def _replicas(manifest: Manifest) -> int | None:
    """Number of pods that a workload makes, by default one as in the API server; None for a pod."""
    if manifest.kind == "Pod":
        return None
    spec = manifest.content.get("spec")
    given = spec.get("replicas", spec.get("parallelism")) if isinstance(spec, dict) else None
    return given if isinstance(given, int) and given >= 0 else 1


def set_namespace(manifest: Manifest, namespace: str | None) -> None:
    """Set the namespace of an object that names none and has one."""
    metadata = manifest.content.get("metadata")
    if namespace is None or manifest.kind == _NODE or not isinstance(metadata, dict):
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = namespace
