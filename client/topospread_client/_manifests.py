"""Kubernetes manifests, decoded from JSON or YAML, to messages, and back.

Types are the API server's: a value of a wrong type is refused with its path, null is like absent,
and fields that spreading does not look at are passed over. An empty ``labelSelector: {}`` stays
there, because it means something else than none. Nothing is defaulted or validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from topospread_client._errors import INVALID_FIELDS, InvalidRequest, Violation
from topospread_client._manifest_fields import fill, plain
from topospread_client._manifest_values import MisfitError, misfit
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, Pod, PodTemplateSpec
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject as ClusterObject
from topospread_proto.v1.common_pb2 import PodTopologySpreadArgs

Manifest = Mapping[str, Any]

_CORE: Final = ("",)
_APPS: Final = ("apps", "extensions")
_KINDS: Final = {
    "Node": ("node", _CORE),
    "Pod": ("pod", _CORE),
    "Service": ("service", _CORE),
    "ReplicationController": ("replication_controller", _CORE),
    "ReplicaSet": ("replica_set", _APPS),
    "StatefulSet": ("stateful_set", _APPS),
}
_API_VERSIONS: Final = {"replica_set": "apps/v1", "stateful_set": "apps/v1"}

_OWNERS: Final = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})
"""Workloads that control their pods themselves and decide their default constraints."""


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
        """The same, with the path of the manifest in a request."""
        where = f"{path}.{self.path}".removesuffix(".")
        violation = Violation(where, "FIELD_VALUE_INVALID", self.message)
        self.args, self.violations = (violation.text,), (violation,)
        return self


def object_from_manifest(manifest: Manifest) -> ClusterObject | None:
    """An object in its envelope; None for kinds that are not kept.

    A kind of another API group (a Service of Knative) is another kind; without apiVersion, the
    group is taken for granted.

    Raises:
        ManifestError: no kind, or a value of a wrong type.
    """
    kind = _text(manifest, "kind")
    if not kind:
        raise ManifestError("kind", "required: this is no Kubernetes object")
    field, groups = _KINDS.get(kind, ("", ()))
    version = _text(manifest, "apiVersion")
    if not field or (version and version.rpartition("/")[0] not in groups):
        return None
    made = ClusterObject()
    content = getattr(made, field)
    content.SetInParent()
    _fill(content, manifest)
    return made


def pod_from_manifest(manifest: Manifest) -> Pod:
    """A pod, or the pod that a workload would make.

    Without kind it is taken for a pod. The pod of a workload (anything with a pod template in
    ``spec.template``, and CronJobs) has no name but a generateName, and the workload's namespace;
    a ReplicationController, ReplicaSet or StatefulSet becomes its controlling owner.

    Raises:
        ManifestError: another kind, or a value of a wrong type.
    """
    kind = _text(manifest, "kind")
    if kind in ("", "Pod"):
        pod = Pod()
        _fill(pod, manifest)
        return pod
    path = (
        ["spec", "jobTemplate", "spec", "template"] if kind == "CronJob" else ["spec", "template"]
    )
    template: Any = manifest
    for part in path:
        template = template.get(part) if isinstance(template, Mapping) else None
    if template is None:
        raise ManifestError(".".join(path), f"required: a {kind} has a pod template there")
    return _pod_of_workload(manifest, kind, ".".join(path), template)


def selector_from_manifest(manifest: Manifest) -> LabelSelector | None:
    """Which pods a workload takes for its own; None when it does not say.

    A ReplicationController says it with labels, all others with a label selector.

    Raises:
        ManifestError: a value of a wrong type.
    """
    spec = manifest.get("spec")
    given = spec.get("selector") if isinstance(spec, Mapping) else None
    if given is None:
        return None
    if _text(manifest, "kind") == "ReplicationController":
        given = {"matchLabels": given}
    selector = LabelSelector()
    _fill(selector, given, "spec.selector")
    return selector


def manifest_from_object(message: ClusterObject) -> dict[str, Any]:
    """An object as ``kubectl get -o json`` prints it, as far as it is kept.

    Raises:
        ManifestError: the message is empty.
    """
    field = message.WhichOneof("content")
    if field is None:
        raise ManifestError("", "an empty message is no object")
    content = getattr(message, field)
    version = _API_VERSIONS.get(field, "v1")
    return {"apiVersion": version, "kind": content.DESCRIPTOR.name, **plain(content)}


def args_from_manifest(manifest: Manifest) -> PodTopologySpreadArgs:
    """PodTopologySpreadArgs of a KubeSchedulerConfiguration; strict, as kube-scheduler is.

    Raises:
        ManifestError: another kind, an unknown field, or a value of a wrong type.
    """
    kind = _text(manifest, "kind")
    if kind not in ("", PodTopologySpreadArgs.DESCRIPTOR.name):
        raise ManifestError("kind", f'expected PodTopologySpreadArgs, got "{kind}"')
    _text(manifest, "apiVersion")
    args = PodTopologySpreadArgs()
    own = {k: v for k, v in manifest.items() if k not in ("kind", "apiVersion")}
    _fill(args, own, strict=True)
    return args


def _pod_of_workload(manifest: Manifest, kind: str, path: str, template: object) -> Pod:
    made = PodTemplateSpec()
    _fill(made, template, path)
    pod = Pod(metadata=made.metadata, spec=made.spec)
    # Of the workload itself only the metadata is read.
    workload = Pod()
    _fill(workload, {"metadata": manifest.get("metadata")})
    meta = workload.metadata
    pod.metadata.name = ""
    pod.metadata.generate_name = f"{meta.name}-"
    pod.metadata.namespace = meta.namespace
    if kind in _OWNERS:
        pod.metadata.owner_references.add(
            api_version=_text(manifest, "apiVersion"),
            kind=kind,
            name=meta.name,
            uid=meta.uid,
            controller=True,
        )
    return pod


def _fill(message: Any, fields: object, path: str = "", *, strict: bool = False) -> None:
    try:
        fill(message, fields, strict=strict)
    except MisfitError as wrong:
        where = path + "".join(reversed(wrong.path))
        raise ManifestError(where.removeprefix("."), str(wrong)) from None


def _text(manifest: Manifest, name: str) -> str:
    """A text of the manifest itself; empty when it is absent."""
    if not isinstance(manifest, Mapping):
        raise ManifestError("", str(misfit("object", manifest)))
    value = manifest.get(name)
    if value is not None and not isinstance(value, str):
        raise ManifestError(name, str(misfit("string", value)))
    return value or ""
