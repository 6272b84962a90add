"""Kinds and names of objects: as people type them, and as `-o name` prints them.

A name is typed as ``NAME``, ``NAMESPACE/NAME``, ``KIND/NAME`` or ``KIND/NAMESPACE/NAME``, the kind
as kubectl takes it. All verbs print the last form, and ``KIND/NAME`` for kinds without namespaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli.errors import BadInput
from topospread.cli.options import ImpliedNamespace
from topospread.cli.output import NONE
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NODE: Final = "Node"
POD: Final = "Pod"
RESERVATION: Final = "Reservation"
WORKLOADS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
OBJECTS: Final = (
    "Job",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "Namespace",
    "ResourceClaim",
    "DeviceClass",
    "ResourceSlice",
)
"""Kinds of objects that a cluster may do without."""

STORED: Final = (NODE, POD, *WORKLOADS, *OBJECTS)
"""Kinds of objects that a server stores."""

_SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    NODE: ("no",),
    POD: ("po",),
    "Service": ("svc",),
    "ReplicationController": ("rc",),
    "ReplicaSet": ("rs",),
    "StatefulSet": ("sts",),
    "PersistentVolume": ("pv",),
    "PersistentVolumeClaim": ("pvc",),
    "StorageClass": ("sc",),
    "CSINode": (),
    "CSIDriver": (),
    "CSIStorageCapacity": (),
    "VolumeAttachment": (),
    "Namespace": ("ns",),
    "ResourceClaim": (),
    "DeviceClass": (),
    "ResourceSlice": (),
    RESERVATION: (),
    "Deployment": ("deploy",),
    "DaemonSet": ("ds",),
    "Job": (),
    "CronJob": ("cj",),
    "CloneSet": ("clone",),
}
"""Kinds in Kubernetes' spelling, with their short names."""

FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    "AutoscalingRunnerSet": (),
    "Rollout": ("ro",),
    "DeploymentConfig": ("dc",),
    "Elasticsearch": ("es",),
    "JobSet": (),
    "LeaderWorkerSet": ("lws",),
    "PipelineRun": ("pr", "prs"),
    "Prometheus": ("prom",),
    "RayCluster": (),
    "Revision": ("rev",),
    "RunnerDeployment": ("rdeploy",),
    # Of others that have the names of Kubernetes' own: OpenKruise, Knative, Volcano.
    "DaemonSet": ("ads",),
    "Job": ("vcjob", "vj"),
    "Service": ("ksvc",),
    "StatefulSet": ("asts",),
    "SparkApplication": ("sparkapp",),
    "StrimziPodSet": ("sps",),
    "TaskRun": ("tr", "trs"),
    "VirtualMachine": ("vm",),
    "VirtualMachineInstance": ("vmi",),
    "Workflow": ("wf",),
}
"""Kinds of well-known projects that control pods, with their short names; any other goes, too."""

OWNERS: Final = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "CronJob",
    "Job",
    "ReplicaSet",
    "ReplicationController",
    "CloneSet",
)
"""Kinds that control pods; the outer one of two stands before the inner."""

CLUSTER_SCOPED: Final = frozenset({NODE, *OBJECTS}) - {
    "Job",
    "PersistentVolumeClaim",
    "CSIStorageCapacity",
    "ResourceClaim",
}
"""Kinds whose objects have no namespace."""


def plural(kind: str) -> str:
    """Name of a kind's objects in small letters: ``csistoragecapacities``."""
    word = kind.lower()
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


_WORDS: Final = {
    word: label
    for label, short in _SHORT.items()
    for word in (label.lower(), plural(label), *short)
}
_OF_GET: Final = ("reservations", "constraints")
"""What `get` shows beside objects."""


NUMBERS: Final[Mapping[str, common_pb2.Kind.ValueType]] = {
    field.message_type.name: common_pb2.Kind.Value(f"KIND_{field.name.upper()}")
    for field in ClusterObject.DESCRIPTOR.fields
    if field.message_type is not None
}
"""Numbers of kinds in messages, by their labels: ``ReplicaSet``."""

LABELS: Final[Mapping[int, str]] = {number: kind for kind, number in NUMBERS.items()}
"""Kinds in Kubernetes' spelling by their numbers in messages."""


@dataclass(frozen=True, slots=True)
class ObjectName:
    """Name of an object that was typed, with its kind in Kubernetes' spelling."""

    kind: str
    namespace: str | None
    name: str

    @property
    def path(self) -> str:
        """Name as `-o name` prints it."""
        parts = (self.kind.lower(), self.namespace, self.name)
        return "/".join(part for part in parts if part is not None)

    @property
    def number(self) -> common_pb2.Kind.ValueType:
        """Kind as messages have it; only of kinds that a server stores, and reservations."""
        return NUMBERS[self.kind]

    @property
    def pod(self) -> common_pb2.PodReference:
        """Reference to the pod of this name."""
        return common_pb2.PodReference(namespace=self.namespace or "", name=self.name)


def complete_kinds(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Completion of a kind: `get` takes more than objects, and `delete` a cluster."""
    more = {"get": ["workloads", *_OF_GET], "delete": ["cluster"]}
    known = [plural(label) for label in STORED] + more.get(str(context.command.name), [])
    return [each for each in known if each.startswith(typed.lower())]


def is_reservation(word: str) -> bool:
    """Whether a person means reservations, which are no kind of object."""
    return kind_label(word) == RESERVATION


def kind_label(word: str) -> str | None:
    """Kind of a word such as ``pods``, ``po`` or kubectl's ``deployment.apps``."""
    return _WORDS.get(word.lower().partition(".")[0])


def written_kind(word: str) -> str | None:
    """Kind as manifests write it, of a word as :func:`kind_label` takes it, or of FOREIGN."""
    label = kind_label(word)
    return label or next((kind for kind in FOREIGN if is_kind(word, kind)), None)


def is_kind(word: str, kind: str) -> bool:
    """Whether a word means a kind, as kubectl takes it: ``ro``, ``rollouts.argoproj.io``."""
    word = word.lower().partition(".")[0]
    if word in {kind.lower(), plural(kind), *FOREIGN.get(kind, ())}:
        return True
    return kind_label(word) == kind


def is_cluster(word: str) -> bool:
    """Whether a person means a cluster as a whole."""
    return word.lower() in {"cluster", "clusters"}


def is_constraint(word: str) -> bool:
    """Whether a person means constraints of pods, which are no objects of their own."""
    return word.lower() in {"constraint", "constraints"}


def labels_named(word: str) -> tuple[str, ...]:
    """Kinds of a word such as ``pods``, ``Pod``, ``po`` or ``workloads``."""
    if word.lower() in {"workload", "workloads"}:
        return WORKLOADS
    label = kind_label(word)
    if label in STORED:
        return (label,)
    known = ", ".join(map(plural, STORED))
    unknown = f"a server stores no {label}s" if label else f"unknown kind {word!r}"
    text = f"{unknown}: there are {known}; `workloads` means services to statefulsets"
    context = click.get_current_context(silent=True)
    if context is not None and context.command.name == "get":
        text += f"; {' and '.join(_OF_GET)} are shown, too"
    raise BadInput(text)


def content_of(kept: ClusterObject) -> Any:
    """The object itself in its envelope: a Pod, a Node and so on."""
    return getattr(kept, kept.WhichOneof("content") or "")


def object_name(kept: ClusterObject) -> ObjectName:
    """Name of an object; its namespace is None for kinds without."""
    content = content_of(kept)
    label = content.DESCRIPTOR.name
    if label == RESERVATION:
        return ObjectName(label, content.pod.namespace, content.pod.name)
    namespace = None if label in CLUSTER_SCOPED else content.metadata.namespace or "default"
    return ObjectName(label, namespace, content.metadata.name)


def full_name(pod: common_pb2.PodReference) -> str:
    """Name of a pod with its namespace: ``prod/web-0``."""
    return f"{pod.namespace or 'default'}/{pod.name}"


def parse_name(
    text: str, namespace: str | None, kinds: Collection[str], default_kind: str | None = None
) -> ObjectName:
    """Name of an object in any of the forms that may be typed.

    The first of two words is a kind if it can be one. But where a kind need not be said, the plural
    of one that is not taken is a namespace, as in ``jobs/worker-0``; ``pod/jobs/worker-0`` says so
    anywhere. `namespace` is the value of -n, for names that have none; without `default_kind` a
    name must have its kind.
    """
    parts = text.split("/")
    forms = _forms(default_kind)
    label = kind_label(parts[0]) if len(parts) > 1 else None
    is_plural = label is not None and parts[0].lower() == plural(label)
    if default_kind and is_plural and label not in kinds and len(parts) == 2:
        label = None
    if len(parts) == 3 and label is None:
        raise BadInput(f"{text!r}: unknown kind {parts[0]!r}: write {forms}")
    kind = label or default_kind
    if kind is None:
        raise BadInput(f"{text!r} has no kind: write {forms}")
    if kind not in kinds:
        wanted = " or ".join(each.lower() for each in kinds)
        raise BadInput(f"{text!r} names a {kind.lower()}, not a {wanted}: write {forms}")
    *spaces, name = parts[1:] if label else parts
    if not name or not all(spaces) or len(spaces) > (kind not in CLUSTER_SCOPED):
        forms = _forms(default_kind and kind)
        raise BadInput(f"{text!r} is no name of a {kind.lower()}: write {forms}")
    if kind in CLUSTER_SCOPED:
        return ObjectName(kind, None, name)
    implied = isinstance(namespace, ImpliedNamespace)
    if spaces and namespace and spaces != [namespace] and not implied:
        raise BadInput(f"{text!r} is not in --namespace {namespace}: leave one of them out")
    return ObjectName(kind, spaces[0] if spaces else namespace or "default", name)


def _forms(default_kind: str | None) -> str:
    if default_kind == NODE:
        return "NAME or node/NAME"
    if not default_kind:
        return "KIND/NAME or KIND/NAMESPACE/NAME"
    return f"NAME, NAMESPACE/NAME or {default_kind.lower()}/NAMESPACE/NAME"


def named_pod(text: str, namespace: str | None) -> common_pb2.PodReference:
    """Pod of a name that was typed; a reservation has the name of its pod."""
    return parse_name(text, namespace, (POD, RESERVATION), POD).pod


def node_name(text: str) -> str:
    """Node of a name that was typed: ``NAME`` or ``node/NAME``."""
    return parse_name(text, None, (NODE,), NODE).name


def objects_named(
    what: str, names: Sequence[str], namespace: str | None, kinds: Collection[str]
) -> list[ObjectName]:
    """Objects of ``KIND NAME...`` or ``KIND/NAME...`` of the kinds that are taken, each once."""
    if "/" in what:
        typed = [parse_name(text, namespace, kinds) for text in (what, *names)]
        return list(dict.fromkeys(typed))
    label = kind_label(what)
    if label is None or label not in kinds:
        found = labels_named(what)
        if len(found) > 1:
            raise click.UsageError(f"{what} are of several kinds: name the kind of what is wanted")
        label = found[0]
    typed = [parse_name(text, namespace, (label,), label) for text in names]
    return list(dict.fromkeys(typed))


def path_of(kind: int | str, namespace: str | None, name: str) -> str:
    """Name of an object as all verbs print it: ``pod/prod/web-0``, ``node/a1``."""
    label = LABELS[kind] if isinstance(kind, int) else kind
    return ObjectName(label, namespace or None, name).path


def pod_path(pod: common_pb2.PodReference) -> str:
    """Name of a pod as `-o name` prints it: ``pod/prod/web-0``."""
    return path_of(POD, pod.namespace or "default", pod.name)


def node_path(node: str | None) -> str:
    """Name of a node as `-o name` prints it: ``node/a1``; ``<none>`` for none."""
    return path_of(NODE, None, node) if node else NONE


def reservation_path(pod: common_pb2.PodReference) -> str:
    """Reservation as `-o name` prints it, by its pod: ``reservation/prod/web-0``."""
    return path_of(RESERVATION, pod.namespace or "default", pod.name)


@dataclass(frozen=True, slots=True)
class TypedName:
    """A name of a pod or workload as it was typed.

    Attributes:
        meanings: what it may be, in the order of trial: ``jobs/x`` is a pod there before a Job. The
            kind of one may be a word that is no kind of Kubernetes' own, as it was typed.
        has_namespace: whether the namespace was typed, too.
        word: the first of two that may be a namespace, and a kind; empty where it is one of them.
    """

    meanings: Sequence[ObjectName]
    has_namespace: bool
    word: str = ""

    @property
    def subject(self) -> ObjectName:
        """What errors are about: a kind that is known, or else a pod."""
        last = self.meanings[-1]
        return last if last.kind == written_kind(last.kind) else self.meanings[0]


def typed_names(typed: Sequence[str], namespace: str | None) -> list[TypedName]:
    """Names of pods and workloads: NAME, KIND/NAME and so on, or all of one kind: ``pod a b``."""
    first, *rest = typed or ("",)
    kind = written_kind(first)
    if rest and kind in {POD, *OWNERS, *FOREIGN}:
        typed = [each if "/" in each else f"{kind}/{each}" for each in rest]
    return [_typed_name(text, namespace) for text in typed]


def _typed_name(text: str, namespace: str | None) -> TypedName:
    parts = text.split("/")
    word, *_ = parts
    explicit = bool(namespace) and not isinstance(namespace, ImpliedNamespace)
    if len(parts) == 1 or kind_label(word) is not None:
        found = parse_name(text, namespace, (POD, RESERVATION, *OWNERS), POD)
        has_namespace = explicit or len(parts) > 2
        if found.kind in OWNERS and len(parts) == 2 and word == plural(found.kind):
            pod = ObjectName(POD, word, found.name)
            return TypedName((pod, found), has_namespace)
        return TypedName((found,), has_namespace)
    if len(parts) > 3 or not all(parts):
        raise BadInput(f"{text!r} is no name of a pod or workload: write {_FORMS}")
    _, *spaces, name = parts
    if spaces and explicit and spaces != [namespace]:
        raise BadInput(f"{text!r} is not in --namespace {namespace}: leave one of them out")
    where = spaces[0] if spaces else namespace or "default"
    workload = ObjectName(written_kind(word) or word, where, name)
    if spaces or "." in word or word != word.lower() or (explicit and namespace != word):
        return TypedName((workload,), explicit or bool(spaces), "" if spaces else word)
    return TypedName((ObjectName(POD, word, name), workload), explicit, word)


_FORMS: Final = "NAME, NAMESPACE/NAME, KIND/NAME or KIND/NAMESPACE/NAME"
