"""Pods of the state by what controls them: names as people type them, and next replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.cli import manifest_files
from topospread.cli.errors import Subject
from topospread.cli.kinds import (
    NUMBERS,
    OWNERS,
    POD,
    RESERVATION,
    ObjectName,
    content_of,
    full_name,
    is_kind,
    typed_names,
    written_kind,
)
from topospread.cli.manifest_objects import (
    NextReplica,
    PodRequest,
    manifest_request,
    named_request,
)
from topospread.cli.options import pages
from topospread.cli.pod_calls import ask_about
from topospread.codec.owners import controller_reference
from topospread.kube.workloads import CONTROLLED, controllers_of, workload_of
from topospread_client import ORDINAL_LABELS, ManifestError, NotFound, pod_from_manifest
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.cluster_state_service_pb2 import ListObjectsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from topospread.cli.errors import FailedCall
    from topospread.cli.kinds import TypedName
    from topospread.cli.manifest_documents import Manifest
    from topospread.cli.options import ApiCaller
    from topospread.kube.objects import OwnerReference
    from topospread.kube.workloads import KnownControllers
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

    _R = TypeVar("_R")

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_PAGE_SIZE: Final = 5000

_NAMED: Final = 3
"""Objects of other namespaces that an error names."""


@dataclass(frozen=True, slots=True)
class StatePods:
    """Reads pods of the state, of one namespace at a time or of all, each once.

    `files` are what the state was loaded from, where that is files that can be read again.
    """

    client: ApiCaller
    consistency: common_pb2.Consistency | None
    files: Sequence[str] = ()
    _read: dict[str | None, Sequence[Pod]] = field(default_factory=dict)
    _known: dict[tuple[str | None, str], dict[str, KnownControllers]] = field(default_factory=dict)
    _named: dict[str, Sequence[Manifest]] = field(default_factory=dict)

    def of(self, namespace: str | None) -> Sequence[Pod]:
        """All pods of a namespace; None for those of all."""
        if namespace not in self._read:
            self._read[namespace] = [each.pod for each in self._objects(POD, namespace)]
        return self._read[namespace]

    def _objects(self, kind: str, namespace: str | None) -> Iterator[ClusterObject]:
        request = ListObjectsRequest(
            kind=NUMBERS[kind],
            namespace=namespace or "",
            page_size=_PAGE_SIZE,
            consistency=self.consistency,
        )
        for page in pages(self.client, "ListObjects", request):
            yield from page.objects

    def typed_names(self, typed: Sequence[str], namespace: str | None) -> list[TypedName]:
        """Names as of :func:`typed_names`, also all of one kind that the state alone knows."""
        first, *rest = typed or ("",)
        word = first.partition(".")[0]
        if rest and word.isalnum() and not any("/" in each for each in rest):
            pods = self.of(namespace or "default") if written_kind(first) is None else ()
            there = [each for pod in pods for each in self.controllers(pod)]
            names = {each.name for each in there} | {pod.metadata.name for pod in pods}
            if first not in names and any(is_kind(first, each.kind) for each in there):
                typed = [f"{first}/{each}" for each in rest]
        return typed_names(typed, namespace)

    def ask(
        self,
        typed: Sequence[str],
        namespace: str | None,
        given: Sequence[PodRequest],
        doing: str,
        answer: Callable[[PodRequest], _R],
    ) -> tuple[list[_R], list[FailedCall]]:
        """Answers about names that were typed, then about `given`; and those that are not there."""
        wanted: list[PodRequest | TypedName] = [*self.typed_names(typed, namespace), *given]
        return ask_about(
            wanted,
            doing,
            lambda each: answer(each) if isinstance(each, PodRequest) else self.find(each, answer),
            lambda each: each if isinstance(each, PodRequest) else named_request(each.subject),
        )

    def placeable(
        self, typed: Sequence[str], namespace: str | None
    ) -> tuple[list[PodRequest], list[FailedCall]]:
        """Pods, and next replicas of workloads, of names that were typed; and what is not there.

        A workload that other workloads make the pods of, as those of a Prometheus, is these.
        """
        found, failed = self.ask(typed, namespace, (), "looking up", self._there)
        made = [each for request in found for each in self._makers(request)]
        # Each once, as where one is named by its kind and without.
        once = {(each.subject.kind, full_name(each.subject.pod)): each for each in made}
        return list(once.values()), failed

    def _there(self, request: PodRequest) -> PodRequest:
        pod = request.subject.pod
        pods = self.of(pod.namespace) if request.source.HasField("ref") else None
        if pods is not None and all(each.metadata.name != pod.name for each in pods):
            raise NotFound("", reason="POD_NOT_FOUND")
        return request

    def _makers(self, request: PodRequest) -> Sequence[PodRequest]:
        pod = request.subject.pod
        workload = ObjectName(request.subject.kind, pod.namespace, pod.name)
        pods = self.pods_of(workload)
        makers = {self.workload(each) for each in pods}
        if not pods or workload in makers | {self.controllers(each)[0] for each in pods}:
            return [request]
        return [_next_replica(each, self.pods_of(each)) for each in sorted(makers, key=str)]

    def find(self, name: TypedName, explained: Callable[[PodRequest], _R]) -> _R:
        """The answer about a pod of the state, or about the next replica of a workload.

        Raises:
            NotFound: there is no such pod, and none of such a workload.
        """
        code = None
        for each in name.meanings:
            if each.kind in (POD, RESERVATION):
                try:
                    return explained(named_request(each))
                except NotFound as error:
                    if error.reason != "POD_NOT_FOUND":
                        raise
                    code = error.code
                replica = self._workload_named(each) if name.subject == each else None
            elif each.kind == name.word and each != name.meanings[0] and self.of(name.word):
                continue  # a namespace, and no kind that is known
            else:
                replica = self._next_replica(each) or self._template(each)
            if replica is not None:
                return explained(replica)
        raise NotFound(self._missing(name), code=code, reason="POD_NOT_FOUND")

    def controllers(self, pod: Pod) -> Sequence[ObjectName]:
        """Controllers of a pod, the outer one last: a ReplicaSet, and its Deployment."""
        return [
            ObjectName(each.kind, pod.metadata.namespace, each.name) for each in self._chain(pod)
        ]

    def pods_of(self, workload: ObjectName) -> Sequence[Pod]:
        """Pods that a workload controls, also by what it controls, without those that go."""
        return [
            pod
            for pod in self.of(workload.namespace)
            if not _is_going(pod) and workload in self.controllers(pod)
        ]

    def workload(self, pod: Pod) -> ObjectName:
        """The controller that people know a pod by; one without a name for pods without any."""
        chain = self._chain(pod)
        if not chain:
            return ObjectName(POD, pod.metadata.namespace, "")
        found = workload_of(chain)
        return ObjectName(found.kind, pod.metadata.namespace, found.name)

    def beginning(self, name: str, namespace: str | None) -> Sequence[ObjectName]:
        """Workloads that an operator may have made of one with a name: KIND/NAME-broker."""
        owners = {self.workload(pod) for pod in self.of(namespace)}
        return sorted(
            (each for each in owners if each.name.startswith(f"{name}-")),
            key=lambda each: each.path,
        )

    def _chain(self, pod: Pod) -> Sequence[OwnerReference]:
        owner = controller_reference(pod.metadata.owner_references)
        if owner is None:
            return ()
        known: KnownControllers = {}
        if owner.kind in CONTROLLED:
            known = self._controllers(owner.kind, pod.metadata.namespace)
        return controllers_of(owner, pod.metadata.labels, known)

    def _controllers(self, kind: str, namespace: str) -> KnownControllers:
        """The controllers of a kind's objects; of all namespaces, once the pods of all are read."""
        where = None if None in self._read else namespace
        if (where, kind) not in self._known:
            found: dict[str, dict[tuple[str, str], OwnerReference | None]] = {}
            for each in self._objects(kind, where):
                content = content_of(each)
                meta = content.metadata
                found.setdefault(meta.namespace, {})[kind, meta.name] = controller_reference(
                    meta.owner_references
                )
            self._known[where, kind] = dict(found)
        return self._known[where, kind].get(namespace, {})

    def _next_replica(self, workload: ObjectName) -> PodRequest | None:
        """Pod that a workload would make next, as its newest pod shows it; None without one."""
        own: dict[ObjectName, list[Pod]] = {}
        for pod in self.of(workload.namespace):
            for each in self.controllers(pod):
                if each.name == workload.name and is_kind(workload.kind, each.kind):
                    own.setdefault(each, []).append(pod)
        return next((self._replica_of(*item) for item in own.items()), None)

    def _replica_of(self, workload: ObjectName, pods: Sequence[Pod]) -> PodRequest:
        # A Cluster's Jobs make pods of other templates beside its own.
        return _next_replica(
            workload, [pod for pod in pods if self.workload(pod) == workload] or pods
        )

    def _workload_named(self, missing: ObjectName) -> PodRequest | None:
        """Next replica of the workload that has the name of a missing pod; None without one."""
        pods = self.of(missing.namespace)
        owners = {each for pod in pods for each in self.controllers(pod)}
        found = sorted(
            (owner for owner in owners if owner.name == missing.name),
            key=lambda owner: OWNERS.index(owner.kind) if owner.kind in OWNERS else len(OWNERS),
        )
        if not found:
            return None
        return self._replica_of(
            found[0], [pod for pod in pods if found[0] in self.controllers(pod)]
        )

    def _template(self, workload: ObjectName) -> PodRequest | None:
        """Pod that a workload without pods would make, by its manifest beside the state."""
        for name, manifest, pod in self._manifests(workload.name):
            if name.namespace == workload.namespace and is_kind(workload.kind, name.kind):
                return manifest_request(manifest, pod, common_pb2.CONSTRAINT_VALIDATION_IGNORE)
        return None

    def _manifests(self, name: str) -> Iterator[tuple[ObjectName, Manifest, Pod]]:
        """Workloads of a name in the files, with the pods that they would make."""
        if name not in self._named:
            self._named[name] = [
                each
                for each in manifest_files.stream(self.files, None)
                if _metadata(each).get("name") == name and each.kind != POD
            ]
        for each in self._named[name]:
            namespace = _metadata(each).get("namespace") or "default"
            try:
                pod = pod_from_manifest(each.content)
            except ManifestError:
                continue
            yield ObjectName(each.kind, namespace, name), each, pod

    def _missing(self, name: TypedName) -> str:
        subject = name.subject
        is_namespace = bool(name.word and self.of(name.word))
        if is_namespace and name.has_namespace and subject.namespace != name.word:
            typed = f"{name.word}/{subject.name}"
            return f"{typed!r} is not in --namespace {subject.namespace}: leave one of them out"
        if subject.kind in (POD, RESERVATION):
            text = (
                f"pod {subject.namespace}/{subject.name} is not in the state, nor a pod of a "
                "workload of that name"
            )
            if len(name.meanings) > 1 and not is_namespace:
                text += f"; {name.word} is no namespace of pods, nor the kind of an owner of theirs"
        else:
            text = f"no pod of {subject.path} is in the state"
        similar = self._similar(name, everywhere=not (name.has_namespace or is_namespace)) or [
            each.path for each in self.beginning(subject.name, subject.namespace)
        ]
        if similar:
            more = f" and {len(similar) - _NAMED} more" if len(similar) > _NAMED else ""
            return f"{text}: there is {', '.join(similar[:_NAMED])}{more}"
        if subject.kind in (POD, RESERVATION):
            return text
        return f"{text}, and no more than its pods is known of it: give its manifest with -f"

    def _similar(self, name: TypedName, *, everywhere: bool) -> Sequence[str]:
        """Workloads of other kinds that have the name, or what has it in other namespaces."""
        last = name.meanings[-1] if everywhere else name.subject
        written = {each for each, *_ in self._manifests(last.name)}
        here = {each for each in written if each.namespace == last.namespace} | {
            each
            for pod in self.of(last.namespace)
            for each in self.controllers(pod)
            if each.name == last.name
        }
        if here or not everywhere:
            return sorted(each.path for each in here)
        kinds = {meaning.kind for meaning in name.meanings}
        for pod in self.of(None):
            written.add(ObjectName(POD, pod.metadata.namespace, pod.metadata.name))
            written.update(self.controllers(pod))
        found = (
            each.path
            for each in written
            if each.name == last.name
            and any(kind == POD or is_kind(kind, each.kind) for kind in kinds)
        )
        return sorted(found)


def _metadata(manifest: Manifest) -> Mapping[str, Any]:
    metadata = manifest.content.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def pod_reference(pod: Pod) -> common_pb2.PodReference:
    """Name of a pod of the state."""
    return common_pb2.PodReference(namespace=pod.metadata.namespace, name=pod.metadata.name)


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
    for label in ORDINAL_LABELS & replica.metadata.labels.keys():
        # They count up from the first.
        values = (pod.metadata.labels.get(label, "") for pod in pods)
        replica.metadata.labels[label] = min(
            filter(None, values), key=lambda each: (len(each), each)
        )
    for volume in replica.spec.volumes:
        # A StatefulSet makes another for the next.
        claim = volume.volume_source.persistent_volume_claim
        if claim.claim_name.endswith(f"-{newest.metadata.name}"):
            claim.claim_name = ""
    return PodRequest(
        common_pb2.PodSource(object=replica),
        Subject(workload.pod, workload.kind),
        f"{workload.kind} {workload.namespace}/{workload.name}",
        common_pb2.CONSTRAINT_VALIDATION_IGNORE,
        next_replica=NextReplica(
            pod_reference(newest),
            pending_pod_count=pending,
            running_pod_count=len(staying) - pending,
        ),
    )
