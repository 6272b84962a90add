"""Manifests → the content of requests: objects to store, and pods to judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import BadInput, FailedCall, Subject, at_most
from topospread.cli.kinds import (
    CLUSTER_SCOPED,
    OWNERS,
    POD,
    RESERVATION,
    ObjectName,
    full_name,
    parse_name,
)
from topospread_client import (
    KUBERNETES_VERSION,
    InvalidRequest,
    ManifestError,
    NotFound,
    object_from_manifest,
    pod_from_manifest,
    unknown_fields,
)
from topospread_proto.v1.common_pb2 import (
    CONSTRAINT_VALIDATION_IGNORE,
    CONSTRAINT_VALIDATION_STRICT,
    PodReference,
    PodSource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.cli.manifest_files import Manifest
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject
    from topospread_proto.v1.common_pb2 import ConstraintValidation

_R = TypeVar("_R")
_T = TypeVar("_T")

POD_KINDS: Final = (POD, *OWNERS)
"""Kinds that can be judged: pods, and workloads for the pod that they would make."""

_NOT_LOOKED_AT: Final = "kinds that no answer depends on"
_NOT_READ: Final = "kinds that are not read: answers name what they may decide"
_DECIDING: Final = frozenset({"DeviceTaintRule", "PriorityClass"})
_NO_POD_KINDS: Final = "no pod, and nothing that makes pods"

_NOT_KNOWN: Final = f"Kubernetes {KUBERNETES_VERSION} has no such fields"
_ADVICE: Final = f"{_NOT_KNOWN}; --validate=warn takes the manifests all the same"
_LEFT_OUT: Final = f"{_NOT_KNOWN}; they are left out"


class FieldValidation(StrEnum):
    """What becomes of fields that Kubernetes does not have."""

    STRICT = "strict"
    WARN = "warn"
    IGNORE = "ignore"

    @property
    def of_constraints(self) -> ConstraintValidation.ValueType:
        """How strictly a server validates the constraints of pods."""
        if self is FieldValidation.IGNORE:
            return CONSTRAINT_VALIDATION_IGNORE
        return CONSTRAINT_VALIDATION_STRICT


class ManifestErrors:
    """A collector of what is wrong with manifests, which reports all of it at once."""

    def __init__(self, validation: FieldValidation) -> None:
        self._validation = validation
        self._errors: list[str] = []
        self._unknown: list[str] = []

    def check_fields(self, manifest: Manifest) -> None:
        """Look for fields that Kubernetes does not have."""
        if self._validation is not FieldValidation.IGNORE:
            lines = [f"{manifest.title}: {each.text}" for each in unknown_fields(manifest.content)]
            self._unknown += lines
            if self._validation is FieldValidation.STRICT:
                self._errors += lines

    def add(self, manifest: Manifest, error: Exception) -> None:
        """Keep the error of a manifest that cannot be read."""
        self._errors.append(f"{manifest.title}: {error}")

    def raise_all(self) -> None:
        """Raise what was collected; warn of unknown fields where they are no error."""
        if self._unknown and self._validation is FieldValidation.WARN:
            output.warn("\n".join([*at_most(self._unknown), _LEFT_OUT]))
        if self._errors:
            refused = self._unknown and self._validation is FieldValidation.STRICT
            raise BadInput(*self._errors, advice=_ADVICE if refused else "")


@dataclass(frozen=True, slots=True)
class NextReplica:
    """What stands for the next replica of a workload of the state.

    `like_pod` is its newest pod, whose template it has; pods that run have a node and stay.
    """

    like_pod: PodReference
    pending_pod_count: int
    running_pod_count: int


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Pod that a server is asked about, in full or by its name in the state.

    Attributes:
        subject: the pod as answers and errors show it.
        label: kind and name, for people.
        validation: how strictly its constraints are checked.
        replicas: how many a workload makes; None for a pod.
        next_replica: what the pod is made of; None unless it is that of a workload of the state.
    """

    source: PodSource
    subject: Subject
    label: str
    validation: ConstraintValidation.ValueType
    replicas: int | None = None
    next_replica: NextReplica | None = None

    @property
    def title(self) -> str:
        """Source and label, which begin error messages about the pod."""
        return f"{self.subject.source}: {self.label}".removeprefix(": ")

    @property
    def heading(self) -> str:
        """Label and source, as a heading."""
        return self.label + (f"  ({self.subject.source})" if self.subject.source else "")


def ask_about(
    requests: Sequence[_R], doing: str, ask: Callable[[_R], _T], about: Callable[[_R], PodRequest]
) -> tuple[list[_T], list[FailedCall]]:
    """Answers about pods, and those about pods that are refused or not there."""
    found: list[_T] = []
    failed: list[FailedCall] = []
    with output.progress(doing) as progress:
        for done, request in enumerate(requests, start=1):
            try:
                found.append(ask(request))
            except (InvalidRequest, NotFound) as error:
                pod = about(request)
                failed.append(FailedCall(error, pod.title, pod.subject))
            progress(done, len(requests))
    return found, failed


def storable_objects(
    manifests: Iterable[Manifest],
    validation: FieldValidation,
    namespace: str | None = None,
    *,
    named: bool = True,
) -> tuple[list[tuple[Manifest, ClusterObject]], Counter[str]]:
    """Objects of the kinds that a server stores, and the number of objects of each other kind.

    Namespaced objects that name no namespace get that one. Unless `named` is off, all need a name.
    """
    found: list[tuple[Manifest, ClusterObject]] = []
    skipped: Counter[str] = Counter()
    errors = ManifestErrors(validation)
    for manifest in manifests:
        set_namespace(manifest, namespace)
        try:
            converted = object_from_manifest(manifest.content)
        except ManifestError as error:
            errors.check_fields(manifest)
            errors.add(manifest, error)
            continue
        if converted is None:
            skipped[manifest.kind] += 1
            continue
        errors.check_fields(manifest)
        if named and not (manifest.content.get("metadata") or {}).get("name"):
            # A server says so of one batch, by a number, when those before it are written.
            errors.add(manifest, ManifestError("metadata.name", "name is required"))
        found.append((manifest, converted))
    errors.raise_all()
    return found, skipped


def manifest_pods(
    manifests: Sequence[Manifest], validation: FieldValidation, namespace: str | None = None
) -> tuple[list[tuple[Manifest, Pod]], Counter[str]]:
    """Pods of manifests and of workloads that make pods, and the number of each other kind."""
    pods: list[tuple[Manifest, Pod]] = []
    skipped: Counter[str] = Counter()
    errors = ManifestErrors(validation)
    for manifest in manifests:
        if manifest.kind not in POD_KINDS:
            skipped[manifest.kind] += 1
            continue
        set_namespace(manifest, namespace)
        errors.check_fields(manifest)
        try:
            pods.append((manifest, pod_from_manifest(manifest.content)))
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
    """Pods that are named on the command line, then those of files."""
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
                PodSource(object=pod),
                _subject(manifest),
                manifest.label,
                validation.of_constraints,
                _replicas(manifest),
            )
            for manifest, pod in pods
        ]
    return requests


def refuse_workloads(requests: Sequence[PodRequest]) -> None:
    """Refuse pods that a workload would make: they have no name to reserve a node for."""
    workloads = [each for each in requests if each.replicas is not None]
    if workloads:
        text = (
            "a place is held for a pod, by its name: give pods; `simulate` places what a workload "
            "would make, and holds nothing"
        )
        raise BadInput(*(f"{each.title}: {text}" for each in workloads))


def warn_not_stored(skipped: Counter[str]) -> None:
    """Name on stderr the kinds of objects that no server stores."""
    deciding = Counter({kind: skipped[kind] for kind in _DECIDING & skipped.keys()})
    warn_skipped(skipped - deciding, _NOT_LOOKED_AT)
    warn_skipped(deciding, _NOT_READ)


def warn_skipped(skipped: Counter[str], reason: str) -> None:
    """Name on stderr the kinds of objects that were skipped."""
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        output.warn(f"skipped: {kinds} ({reason})")


def named_request(name: ObjectName) -> PodRequest:
    """Request about a pod of the state, by its name; or what errors about a workload's name say."""
    kind = POD if name.kind == RESERVATION else name.kind
    # Pods of the state are taken as they are: validating them again could refuse them.
    return PodRequest(
        PodSource(ref=name.pod),
        Subject(name.pod, kind),
        f"{kind} {full_name(name.pod)}",
        CONSTRAINT_VALIDATION_IGNORE,
    )


def _subject(manifest: Manifest) -> Subject:
    metadata = manifest.content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
    uid = metadata.get("uid") if manifest.kind == "Pod" else None
    pod = PodReference(namespace=str(namespace), name=str(name), uid=str(uid) if uid else "")
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
    if namespace is None or manifest.kind in CLUSTER_SCOPED or not isinstance(metadata, dict):
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = namespace
