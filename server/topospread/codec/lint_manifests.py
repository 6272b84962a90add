"""Manifests of workloads → what lint looks at."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from topospread.codec.manifest_parts import part_of
from topospread.codec.pods import check_terms, pod_from_proto, selector_from_proto
from topospread.codec.repulsions import repulsions
from topospread.codec.rollouts import REVISION_LABELS, rollout_of
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.validation import CONSTRAINTS_FIELD
from topospread.spread.linting.workloads import LintedWorkload
from topospread_client import (
    CONTROLLER_LABELS,
    ManifestError,
    has_known_template,
    is_own_kind,
    known_template,
    selector_from_manifest,
    spread_parts,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.kube.objects import LabelSelector
    from topospread_client import PodTemplate

_T = TypeVar("_T")

Manifest = Mapping[str, Any]

IGNORE_ANNOTATION: Final = "topospread.io/ignore"
"""Codes that an object does not want to hear of, with commas between."""

MOST_CONSTRAINTS: Final = 100
MOST_TERMS: Final = 10_000
"""Constraints of a pod, and expressions and values of its selectors and affinity: far more than a
person writes.
"""

MOST_VALUES: Final = 20_000
MOST_TEXT: Final = 512 << 10
"""Values of an object, and characters of its keys and strings, that are linted in some tens of
milliseconds; managedFields, which are not read, aside. Annotations may have half of that text.
"""

SELECTING: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Rollout", "CloneSet"}
)
"""Kinds that must have a selector."""

_MOST_IGNORED: Final = 4096
"""Characters of the annotation that are read: all codes several times."""

_MOST_REPLICAS: Final = 2**31 - 1


def is_linted(manifest: Manifest) -> bool:
    """Whether an object has parts to lint: it is a pod, or has a pod template or constraints.

    Kubernetes' own kinds of workloads are such also where their template is missing.
    """
    if has_controller(manifest):
        return False
    if manifest.get("kind") == "Pod" or is_own_kind(manifest):
        return True
    return any(spread_parts(manifest))


def has_controller(manifest: Manifest) -> bool:
    """Whether another object made this one."""
    owners = part_of(manifest, "metadata").get("ownerReferences")
    return isinstance(owners, list) and any(part_of(each).get("controller") for each in owners)


def is_large(manifest: Manifest) -> bool:
    """Whether an object has more values, or more text, than is linted in a moment."""
    metadata = dict(part_of(manifest, "metadata"))
    metadata.pop("managedFields", None)
    parts: list[object] = [{**manifest, "metadata": metadata}]
    values = text = 0
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            text += len(part)
        elif isinstance(part, Mapping | list):
            values += len(part)
            if values > MOST_VALUES:
                return True
            parts.extend(part)
            if isinstance(part, Mapping):
                parts.extend(part.values())
    return text > MOST_TEXT


def is_patch(manifest: Manifest) -> bool:
    """Whether an object is a part of a workload alone, as a patch of kustomize is.

    It lacks what its kind must have: the spec, the selector, or where there needs to be none, the
    template or its containers.
    """
    kind, spec = manifest.get("kind"), part_of(manifest, "spec")
    if not isinstance(kind, str) or not _is_count(spec.get("replicas")):
        return False
    if not spec:
        return "spec" not in manifest and kind != "PodTemplate" and is_own_kind(manifest)
    template = known_template(manifest)
    pod_spec = {} if template is None else _pod_spec(template)
    has_template = "containers" in pod_spec or "topologySpreadConstraints" in pod_spec
    if kind not in SELECTING:
        lacks = ("jobTemplate" if kind == "CronJob" else "template") not in spec
        return (lacks or (has_template and "containers" not in pod_spec)) and is_own_kind(manifest)
    if not isinstance(spec.get("template", {}), Mapping):
        return False
    return spec.get("selector") is None and (is_own_kind(manifest) or has_template)


def workload_from_template(template: PodTemplate, message: k8s.Pod | None) -> LintedWorkload:
    """What lint looks at, of a pod template.

    Its `malformed` is what is wrong beside the pod, and what is more than is looked at.

    Args:
        template: a pod's is the pod.
        message: the pod that it would make, with the labels alone that are known; None where it
            cannot be read.
    """
    holder = template.holder
    # Without a kind it is a pod, or what has the template are values of a chart.
    kind = str(holder.get("kind") or ("" if template.path else "Pod"))
    spec = part_of(holder, "spec")
    malformed: list[FieldViolation] = []

    def read(convert: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return convert()
        except ManifestError as error:
            malformed.append(FieldViolation(error.path, error.message))
            return otherwise

    if message is not None:
        message = read(partial(_bounded, template.text, message), None)
        if is_own_kind(holder) and not _pod_spec(template):
            where = f"{template.text}.spec"
            malformed.append(FieldViolation(where, "required: it says what the pods are"))
    wrong: list[FieldViolation] = []
    rollout = rollout_of(kind, spec, wrong)
    pod = pod_from_proto(k8s.Pod() if message is None else message)
    return LintedWorkload(
        kind=kind,
        pod=pod,
        replicas=read(partial(_replicas, template, kind), None),
        selector=read(partial(_selector, holder, kind), None),
        path=template.text,
        added_labels=CONTROLLER_LABELS.get(kind, ()),
        rollout=None if wrong else rollout,
        has_volume_claims=bool(part_of(_owner(template)).get("volumeClaimTemplates")),
        repulsions=()
        if message is None
        else read(
            partial(
                repulsions,
                _pod_spec(template),
                message.spec,
                pod.labels,
                pod.namespace,
                REVISION_LABELS.get(kind, ""),
            ),
            (),
        ),
        malformed=(*malformed, *wrong),
        is_readable=message is not None,
        ignored=ignored_codes(holder),
    )


def _bounded(path: str, message: k8s.Pod) -> k8s.Pod:
    """A pod of which no more is looked at than takes a moment."""
    if len(message.spec.topology_spread_constraints) > MOST_CONSTRAINTS:
        where = ".".join(filter(None, (path, CONSTRAINTS_FIELD)))
        raise ManifestError(where, f"at most {MOST_CONSTRAINTS}")
    try:
        check_terms(message.spec, MOST_TERMS)
    except InvalidRequest as error:
        raise ManifestError(".".join(filter(None, (path, "spec"))), str(error)) from error
    return message


def _selector(holder: Manifest, kind: str) -> LabelSelector | None:
    """A workload's own selector; None where it has none, or none whose meaning is known."""
    if kind in ("Pod", "CronJob", "PodTemplate") or not has_known_template(holder):
        return None
    selector = selector_from_manifest(holder)
    if selector is not None and _terms(selector) > MOST_TERMS:
        raise ManifestError("spec.selector", f"at most {MOST_TERMS} expressions")
    return None if selector is None else selector_from_proto(selector)


def _terms(selector: k8s.LabelSelector) -> int:
    return len(selector.match_labels) + len(selector.match_expressions)


def _owner(template: PodTemplate) -> object:
    """What has the pod template: the object's spec, or that of a CronJob's job."""
    return template.around[-1] if template.around else {}


def _pod_spec(template: PodTemplate) -> Mapping[str, Any]:
    return part_of(template.content, "spec")


def _replicas(template: PodTemplate, kind: str) -> int | None:
    """How many pods there are; None where only the cluster knows."""
    if kind == "Pod":
        return 1
    if not has_known_template(template.holder):
        return None if template.replicas is None else min(template.replicas, _MOST_REPLICAS)
    is_job = kind in ("Job", "CronJob")
    name = "parallelism" if is_job else "replicas"
    given = part_of(_owner(template)).get(name)
    if given is None:
        return 1 if is_job else None
    if _is_count(given):
        return int(given)
    below = "jobTemplate.spec." if kind == "CronJob" else ""
    raise ManifestError(
        f"spec.{below}{name}", f"must be a number of pods, from 0 to {_MOST_REPLICAS}"
    )


def _is_count(value: object) -> bool:
    """Whether a value is a number of pods as the API server takes it, or none is given."""
    if value is None:
        return True
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value <= _MOST_REPLICAS


def ignored_codes(manifest: Manifest) -> frozenset[str]:
    """Codes that an object's annotation silences, in small letters."""
    annotations = part_of(part_of(manifest, "metadata"), "annotations")
    text = annotations.get(IGNORE_ANNOTATION)
    codes = text[:_MOST_IGNORED].split(",") if isinstance(text, str) else ()
    return frozenset(each.strip().lower() for each in codes if each.strip())
