"""Manifests → the content of requests: objects to store, and pods to judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import BadInput, Subject, at_most
from topospread.cli.kinds import (
    CLUSTER_SCOPED,
    OWNERS,
    POD,
    RESERVATION,
    ObjectName,
    full_name,
    parse_name,
)
from topospread.cli.template_references import with_templates
from topospread_client import (
    KUBERNETES_VERSION,
    ManifestError,
    has_known_template,
    is_own_kind,
    object_from_manifest,
    pod_from_manifest,
    pod_templates,
    spread_parts,
    template_reference,
    unknown_fields,
)
from topospread_proto.v1.common_pb2 import (
    CONSTRAINT_VALIDATION_IGNORE,
    CONSTRAINT_VALIDATION_STRICT,
    PodReference,
    PodSource,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.cli.manifest_documents import Manifest
    from topospread_client import PodTemplate
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject
    from topospread_proto.v1.common_pb2 import ConstraintValidation

_NOT_NEEDED: Final = "answers look at pods, not at what makes them"
_NOT_READ: Final = "kinds that are not read: answers name what they may decide"
_DECIDING: Final = frozenset({"DeviceTaintRule", "PriorityClass"})
_NUMBERS_OF_PODS: Final = ("replicas", "parallelism", "completions")
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
        says_replicas: whether its manifest says so.
        completions: of a Job, how many are to succeed; None where it does not say.
        several_templates: whether its object makes pods of others, too.
        template_path: of the pod in its manifest; empty for a pod's own.
        next_replica: what the pod is made of; None unless it is that of a workload of the state.
        manifest: what it is read from; None for a pod of the state.
    """

    source: PodSource
    subject: Subject
    label: str
    validation: ConstraintValidation.ValueType
    replicas: int | None = None
    says_replicas: bool = False
    completions: int | None = None
    several_templates: bool = False
    template_path: str = ""
    next_replica: NextReplica | None = None
    manifest: Manifest | None = None

    @property
    def title(self) -> str:
        """Source and label, which begin error messages about the pod."""
        return f"{self.subject.source}: {self.label}".removeprefix(": ")

    @property
    def heading(self) -> str:
        """Label and source, as a heading."""
        return self.label + (f"  ({self.subject.source})" if self.subject.source else "")


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
    """Pods of manifests and of what has pod templates, and the number of each other kind.

    The manifest beside a pod says which of its templates made it, where it has several.
    """
    pods: list[tuple[Manifest, Pod]] = []
    skipped: list[Manifest] = []
    errors = ManifestErrors(validation)
    for manifest in with_templates(manifests):
        made = _pods_of(manifest)
        if not made:
            skipped.append(manifest)
            continue
        set_namespace(manifest, namespace)
        errors.check_fields(manifest)
        _check_replicas(manifest, errors)
        for each in made:
            try:
                pod = pod_from_manifest(each.content, template=each.template)
            except ManifestError as error:
                errors.add(each, error)
                continue
            pods.append((each, pod))
            _warn_of_template(each, pod)
    errors.raise_all()
    without = [f"{each.title}: {why}" for each in skipped if (why := _why_no_pod(each))]
    if not pods:
        raise BadInput(
            "no pod to evaluate in the input: give a pod, or an object with a pod template, as a "
            "Deployment is",
            *at_most(without),
        )
    if without:
        output.warn("\n".join(f"skipped: {each}" for each in at_most(without)))
    return pods, Counter(each.kind for each in skipped if not _why_no_pod(each))


def _pods_of(manifest: Manifest) -> list[Manifest]:
    """A manifest for each pod that it is or would make."""
    if manifest.kind == POD or _has_one_template(manifest):
        return [manifest]
    found = pod_templates(manifest.content)
    return [
        _held_pod(manifest, each)
        or (manifest if len(found) == 1 else replace(manifest, template=each.text))
        for each in found
    ]


def _held_pod(manifest: Manifest, template: PodTemplate) -> Manifest | None:
    """A pod that an object holds with its name, as a StrimziPodSet does; None for templates."""
    held = template.content
    metadata = held.get("metadata") if isinstance(held, dict) and held.get("kind") == POD else None
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return None
    holder = manifest.content.get("metadata")
    space = {"namespace": holder.get("namespace")} if isinstance(holder, dict) else {}
    content = {**held, "metadata": {**space, **metadata}}
    return replace(manifest, content=content, source=f"{manifest.source} {template.text}")


def _check_replicas(manifest: Manifest, errors: ManifestErrors) -> None:
    """Look for numbers of pods that are none, where a controller of a known kind reads them."""
    for template in pod_templates(manifest.content):
        owner = template.around[-1] if has_known_template(template.holder) else None
        for name in _NUMBERS_OF_PODS:
            given = owner.get(name) if isinstance(owner, Mapping) else None
            whole = isinstance(given, int) and not isinstance(given, bool) and given >= 0
            if given is not None and not whole:
                path = f"{template.owner_text}.{name}"
                errors.add(manifest, ManifestError(path, "must be a number of pods"))


def _has_one_template(manifest: Manifest) -> bool:
    """Whether its kind has a pod template, at a known place; also where the manifest lacks it."""
    return manifest.kind in OWNERS and has_known_template(manifest.content)


def _why_no_pod(manifest: Manifest) -> str:
    """Why an object of a kind that may have a pod template has none; empty for other kinds."""
    pod = _subject(manifest).pod
    named = f"{ObjectName(manifest.kind, pod.namespace, pod.name).path} for its pods in the state"
    if reference := template_reference(manifest.content):
        return f"its template is that of {reference}: give that, or {named}"
    lists = spread_parts(manifest.content).lists
    if not lists:
        return ""
    return (
        f"has constraints at {lists[0].text} and no pod template: give {named}, or one of the pods "
        "that its controller makes; `topospread lint` looks at the constraints"
    )


def _warn_of_template(manifest: Manifest, pod: Pod) -> None:
    """Say what is not known of a pod whose controller is not known."""
    if manifest.kind == "Pod" or has_known_template(manifest.content):
        return
    found = (
        each for each in pod_templates(manifest.content) if manifest.template in ("", each.text)
    )
    holder = next((each.holder for each in found), manifest.content)
    if holder.get("kind") == "Pod" or has_known_template(holder):
        return
    lacking: list[str] = []
    labels = pod.metadata.labels
    for number, each in enumerate(pod.spec.topology_spread_constraints):
        wanted = each.label_selector.match_labels
        missing = sorted(key for key in wanted if labels.get(key) != wanted[key])
        if missing:
            lacking.append(
                f"constraint {number} counts pods with {missing[0]}={wanted[missing[0]]}"
            )
    if lacking:
        output.warn(
            f"{manifest.title}: {lacking[0]}, which the template lacks: if the controller adds it, "
            "add it to the template's labels to see what counts"
        )


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
            manifest_request(manifest, pod, validation.of_constraints) for manifest, pod in pods
        ]
    return requests


def manifest_request(
    manifest: Manifest, pod: Pod, validation: ConstraintValidation.ValueType
) -> PodRequest:
    """Request about the pod of a manifest, or about one that its workload would make."""
    return PodRequest(
        PodSource(object=pod),
        _subject(manifest),
        manifest.label,
        validation,
        _replicas(manifest),
        _said_replicas(manifest) is not None,
        _completions(manifest),
        several_templates=bool(manifest.template),
        manifest=manifest,
        template_path=_template_path(manifest),
    )


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
    rest = Counter({kind: skipped[kind] for kind in skipped.keys() - _DECIDING})
    if rest:
        output.warn(f"not needed: {kinds_text(rest)} ({_NOT_NEEDED})")
    warn_not_read(skipped)


def warn_not_read(skipped: Counter[str]) -> None:
    """Name on stderr the kinds of objects that are not read and that may decide something."""
    warn_skipped(Counter({kind: skipped[kind] for kind in _DECIDING & skipped.keys()}), _NOT_READ)


def warn_skipped(skipped: Counter[str], reason: str) -> None:
    """Name on stderr the kinds of objects that were skipped."""
    if skipped:
        output.warn(f"skipped: {kinds_text(skipped)} ({reason})")


def kinds_text(counts: Counter[str]) -> str:
    """The number of objects of each kind."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


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
    source = f"{manifest.source} {manifest.template}".rstrip()
    return Subject(pod, manifest.kind, source)


def _replicas(manifest: Manifest) -> int | None:
    """Number of pods that a workload makes, by default one as in the API server; None for a pod."""
    if manifest.kind == "Pod":
        return None
    given, completions = _said_replicas(manifest), _completions(manifest)
    given = 1 if given is None else given
    return given if completions is None else min(given, completions)


def _said_replicas(manifest: Manifest) -> int | None:
    """Number of pods that its manifest says a workload makes; None where nothing says so."""
    found = pod_templates(manifest.content)
    given = [each for each in found if manifest.template in ("", each.text)]
    return given[0].replicas if given else None


def _template_path(manifest: Manifest) -> str:
    if manifest.kind == POD or manifest.template:
        return manifest.template
    return next((each.text for each in pod_templates(manifest.content)), "")


def is_job(manifest: Manifest) -> bool:
    """Whether it is a Job of Kubernetes' own, and not one of another API group."""
    return manifest.kind == "Job" and is_own_kind(manifest.content)


def _completions(manifest: Manifest) -> int | None:
    """How many pods of a Job are to succeed; None where it does not say, and for other kinds."""
    spec = manifest.content.get("spec")
    if not is_job(manifest) or not isinstance(spec, dict):
        return None
    said = spec.get("completions")
    if isinstance(said, int) and said >= 0:
        return said
    return 1 if spec.get("parallelism") is None else None


def set_namespace(manifest: Manifest, namespace: str | None) -> None:
    """Set the namespace of an object that names none and has one."""
    metadata = manifest.content.get("metadata")
    if namespace is None or manifest.kind in CLUSTER_SCOPED or not isinstance(metadata, dict):
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = namespace
