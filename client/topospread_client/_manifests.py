"""Kubernetes manifests, decoded from JSON or YAML, to messages, and back.

Types are the API server's: a value of a wrong type is refused with its path, null is like absent,
and fields that spreading does not use are skipped. An empty ``labelSelector: {}`` stays, because it
has another meaning than none. Nothing is defaulted or validated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from topospread_client._controller_labels import add_controller_labels, add_name_label
from topospread_client._errors import INVALID_FIELDS, InvalidRequest, Violation, invalid
from topospread_client._manifest_fields import (
    FieldTypeError,
    check_text,
    field_type_error,
    field_values,
    plain,
)
from topospread_client._pod_templates import (
    PodTemplate,
    at_path,
    own_path,
    path_text,
    pod_templates,
)
from topospread_client._unknown_fields import GROUPS
from topospread_proto.kubernetes.v1.kubernetes_pb2 import (
    LabelSelector,
    LabelSelectorRequirement,
    PersistentVolumeClaim,
    Pod,
    PodTemplateSpec,
)
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject as ClusterObject
from topospread_proto.v1.common_pb2 import PodTopologySpreadArgs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor

Manifest = Mapping[str, Any]

CONTENTS: Final[Mapping[str, Any]] = {
    field.message_type.name: field
    for field in ClusterObject.DESCRIPTOR.fields
    if field.message_type is not None
}
"""Field of a ClusterObject for each kind."""

_FORMER_GROUPS: Final[Mapping[str, str]] = MappingProxyType({"apps": "extensions"})
"""What an API group was called once."""

_OTHER_FIELDS: Final = frozenset({"resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1"})
"""Versions that stand in these groups with other fields: as if they were other kinds."""

_OWNERS: Final = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})
"""Workloads that control their pods themselves and decide their default constraints."""

_MOST_NAMED: Final = 5
"""Pod templates that an error names."""

_SELECTING_BY_LABELS: Final = frozenset({"ReplicationController", "DeploymentConfig"})

_PART: Final = re.compile(r"(?:[^,(]|\([^)]*\)?)*")
_REQUIREMENT: Final = re.compile(
    r"(?:(?P<no>!)\s*)?(?P<key>[^\s=!(),]+)(?(no)|"
    r"(?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|\s*(?P<equal>==|=|!=)\s*(?P<value>[^\s=!()]*))?)$"
)


class ManifestError(InvalidRequest):
    """A manifest that cannot be read.

    Attributes:
        path: where in the manifest, as kubectl prints it; empty for the manifest itself. The text
            and the violation of a call's error have the path from the root of its request.
        message: what is wrong there.
    """

    def __init__(self, path: str, message: str) -> None:
        text = f"{path}: {message}" if path else message
        super().__init__(text, reason=INVALID_FIELDS)
        self.path = path
        self.message = message
        self.violations = (Violation(path, "FIELD_VALUE_INVALID", message),)

    def below(self, path: str) -> Self:
        """Prefix the path with that of the manifest in a request."""
        where = f"{path}.{self.path}".removesuffix(".")
        violation = Violation(where, "FIELD_VALUE_INVALID", self.message)
        self.args, self.violations = (violation.text,), (violation,)
        return self


def object_from_manifest(manifest: Manifest) -> ClusterObject | None:
    """Convert a manifest to a ClusterObject; None for kinds that are not stored.

    A kind of another API group (a Service of Knative) is another kind; without apiVersion, the
    group is not checked.

    Raises:
        ManifestError: no kind, or a value of a wrong type.
    """
    kind = _text(manifest, "kind")
    if not kind:
        raise ManifestError("kind", "required: this is no Kubernetes object")
    field = CONTENTS.get(kind)
    version = _text(manifest, "apiVersion")
    group = GROUPS.get(kind, "")
    groups = group, _FORMER_GROUPS.get(group, group)
    if (
        field is None
        or kind == "Reservation"
        or (version and version.rpartition("/")[0] not in groups)
        or version in _OTHER_FIELDS
    ):
        return None
    content: dict[str, Any] = {field.name: _values(field.message_type, manifest)}
    return ClusterObject(**content)


def pod_from_manifest(
    manifest: Manifest, *, template: str = "", known_labels_only: bool = False
) -> Pod:
    """Convert a manifest to a pod: its own, or the pod that a workload would make.

    Without kind it is taken for a pod. A workload is anything with a pod template: Kubernetes' own
    kinds, and others wherever they have it. Its pod has no name but a generateName, and the
    workload's namespace; a ReplicationController, ReplicaSet or StatefulSet becomes its controlling
    owner. It has the labels that the workload's controller would add to the first pod of a new
    revision, as far as that controller is known, and a volume for each of the
    ``volumeClaimTemplates`` beside the template, whose claim has no name: each pod gets its own.

    Args:
        manifest: of the pod or workload.
        template: path of the pod template, where the workload has several: a path of
            `pod_templates`.
        known_labels_only: of the controller's labels add only those whose value the manifest tells
            of all pods.

    Raises:
        ManifestError: another kind, several templates of which none is named, or a value of a wrong
            type.
    """
    pod = pod_or_values(manifest, template=template, known_labels_only=known_labels_only)
    return pod if isinstance(pod, Pod) else Pod(**pod)


def pod_or_values(
    manifest: Manifest,
    skipped: frozenset[str] = frozenset(),
    *,
    template: str = "",
    known_labels_only: bool = False,
) -> Pod | dict[str, Any]:
    """Convert a manifest as `pod_from_manifest` does; a pod's own to its message's fields.

    A request is made of them without a copy, and without the fields to skip.
    """
    kind = _text(manifest, "kind")
    if kind in ("", "Pod"):
        return _values(Pod.DESCRIPTOR, manifest, skipped=skipped)
    return pod_from_template(
        _template(manifest, kind, template), known_labels_only=known_labels_only
    )


def pod_from_template(template: PodTemplate, *, known_labels_only: bool = False) -> Pod:
    """Convert a pod template of `pod_templates`, as `pod_from_manifest` does.

    Raises:
        ManifestError: as `pod_from_manifest`; paths are from the root of the object.
    """
    if not isinstance(template, PodTemplate):
        raise ManifestError("", str(field_type_error("PodTemplate", template)))
    kind = _text(template.holder, "kind")
    if kind in ("", "Pod"):
        return Pod(**_values(Pod.DESCRIPTOR, template.content, template.text))
    if template.content is None:
        where = template.text or path_text(own_path(kind))
        raise ManifestError(where, f"required: a {kind} has a pod template there")
    return _pod_of_template(template, known_labels_only=known_labels_only)


def _template(manifest: Manifest, kind: str, wanted: str) -> PodTemplate:
    """The pod template of a workload that is meant."""
    found = pod_templates(manifest)
    if wanted:
        found = [each for each in found if each.text == wanted]
    elif not found and (given := at_path(manifest, (), own_path(kind))) is not None:
        return given
    if len(found) > 1:
        paths = ", ".join(each.text for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise ManifestError("", f"has {len(found)} pod templates, and none is named: {paths}{more}")
    if not found:
        where = wanted or path_text(own_path(kind))
        raise ManifestError(where, f"required: a {kind} has a pod template there")
    return found[0]


def selector_from_manifest(manifest: Manifest) -> LabelSelector | None:
    """Label selector of a workload; None where it has none.

    ReplicationControllers and DeploymentConfigs select with labels, all others with a selector.

    Raises:
        ManifestError: a value of a wrong type.
    """
    kind = _text(manifest, "kind")
    spec = manifest.get("spec")
    given = spec.get("selector") if isinstance(spec, Mapping) else None
    if given is None:
        return None
    if kind in _SELECTING_BY_LABELS:
        given = {"matchLabels": given}
    return LabelSelector(**_values(LabelSelector.DESCRIPTOR, given, "spec.selector"))


def selector_from_query(query: str, path: str = "labelSelector") -> LabelSelector:
    """Parse a label query of kubectl; an empty one selects everything.

    Args:
        query: requirements, separated by commas.
        path: of the selector, for errors.

    Raises:
        InvalidRequest: a part that is no requirement.
    """
    try:
        query, path = check_text(query), check_text(path)
    except FieldTypeError as wrong:
        raise invalid("labelSelector", str(wrong)) from None
    if not query.strip():
        return LabelSelector()
    parts = [part.strip() for part in _parts(query)]
    return LabelSelector(match_expressions=[_requirement(part, path) for part in parts])


def manifest_from_object(message: ClusterObject) -> dict[str, Any]:
    """Convert an object to a manifest as ``kubectl get -o json`` prints it, as far as stored.

    Raises:
        ManifestError: the message is empty, or of another type.
    """
    if not isinstance(message, ClusterObject):
        raise ManifestError("", str(field_type_error("ClusterObject", message)))
    field = message.WhichOneof("content")
    if field is None:
        raise ManifestError("", "an empty message is no object")
    content = getattr(message, field)
    kind = content.DESCRIPTOR.name
    group = GROUPS.get(kind, "")
    return {"apiVersion": f"{group}/v1".lstrip("/"), "kind": kind, **plain(content)}


def args_from_manifest(manifest: Manifest) -> PodTopologySpreadArgs:
    """Convert PodTopologySpreadArgs of a KubeSchedulerConfiguration; strict as kube-scheduler is.

    Raises:
        ManifestError: another kind, an unknown field, or a value of a wrong type.
    """
    kind = _text(manifest, "kind")
    if kind not in ("", PodTopologySpreadArgs.DESCRIPTOR.name):
        raise ManifestError("kind", f'expected PodTopologySpreadArgs, got "{kind}"')
    _text(manifest, "apiVersion")
    own = {k: v for k, v in manifest.items() if k not in ("kind", "apiVersion")}
    return PodTopologySpreadArgs(**_values(PodTopologySpreadArgs.DESCRIPTOR, own, strict=True))


def _pod_of_template(found: PodTemplate, *, known_labels_only: bool) -> Pod:
    holder, kind = found.holder, _text(found.holder, "kind")
    made = PodTemplateSpec(**_values(PodTemplateSpec.DESCRIPTOR, found.content, found.text))
    pod = Pod(metadata=made.metadata, spec=made.spec)
    # Of the workload itself only the metadata is read.
    workload = Pod(**_values(Pod.DESCRIPTOR, {"metadata": holder.get("metadata")}))
    meta = workload.metadata
    pod.metadata.name = ""
    pod.metadata.generate_name = f"{meta.name}-"
    pod.metadata.namespace = meta.namespace
    group, _, _ = _text(holder, "apiVersion").rpartition("/")
    add_name_label(pod, group, kind, meta.name)
    beside = found.around[-1] if found.around else None
    around = beside if isinstance(beside, Mapping) else {}  # templates may be elements of a list
    if len(found.around) == len(own_path(kind)):  # its controller's labels are those of its kind
        if kind in _OWNERS:
            pod.metadata.owner_references.add(
                api_version=_text(holder, "apiVersion"),
                kind=kind,
                name=meta.name,
                uid=meta.uid,
                controller=True,
            )
        add_controller_labels(pod, kind, meta.name, around, known_only=known_labels_only)
    _add_claims(pod, around.get("volumeClaimTemplates"), found.owner_text)
    return pod


def _add_claims(pod: Pod, templates: object, path: str) -> None:
    """Add volumes for the claims that are made with each pod, in the place of those so named."""
    if templates is None:
        return
    where = f"{path}.volumeClaimTemplates"
    if not isinstance(templates, list | tuple):
        raise ManifestError(where, str(field_type_error("array", templates)))
    names = []
    for number, template in enumerate(templates):
        claim = _values(PersistentVolumeClaim.DESCRIPTOR, template, f"{where}[{number}]")
        names.append(PersistentVolumeClaim(**claim).metadata.name)
    kept = [each for each in pod.spec.volumes if each.name not in names]
    del pod.spec.volumes[:]
    pod.spec.volumes.extend(kept)
    for name in filter(None, names):
        pod.spec.volumes.add(name=name).volume_source.persistent_volume_claim.SetInParent()


def _values(message: Descriptor, fields: object, path: str = "", **options: Any) -> dict[str, Any]:
    """Values of a message's fields."""
    try:
        return field_values(message, fields, **options)
    except FieldTypeError as wrong:
        where = path + "".join(reversed(wrong.path))
        raise ManifestError(where.removeprefix("."), str(wrong)) from None


def _text(manifest: Manifest, name: str) -> str:
    """String field of the manifest; empty when it is absent."""
    if not isinstance(manifest, Mapping):
        raise ManifestError("", str(field_type_error("object", manifest)))
    value = manifest.get(name)
    if value is not None and not isinstance(value, str):
        raise ManifestError(name, str(field_type_error("string", value)))
    return value or ""


def _parts(query: str) -> Iterator[str]:
    """Parts of a query between commas outside of parentheses."""
    at = 0
    while at <= len(query):
        found = _PART.match(query, at)
        assert found is not None, "it matches nothing, too"
        yield found[0]
        at = found.end() + 1


def _requirement(part: str, path: str) -> LabelSelectorRequirement:
    if not (found := _REQUIREMENT.match(part)):
        raise invalid(
            path,
            f"{part!r} is no requirement: write key=value, key!=value, key, !key, key in (a,b) or "
            "key notin (a,b)",
        )
    word = found["set"] or found["equal"]
    if word is None:
        operator = "DoesNotExist" if found["no"] else "Exists"
        return LabelSelectorRequirement(key=found["key"], operator=operator)
    operator = "NotIn" if word in ("notin", "!=") else "In"
    values = [found["value"]] if found["equal"] else found["values"].split(",")
    return LabelSelectorRequirement(
        key=found["key"], operator=operator, values=map(str.strip, values)
    )
