"""Manifests of workloads → what lint looks at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.pods import check_terms, pod_from_proto, selector_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.kube.validation import CONSTRAINTS_FIELD
from topospread.spread.linting.workloads import (
    LintedWorkload,
    Rollout,
    Share,
)
from topospread_client import (
    CONTROLLER_LABELS,
    ManifestError,
    pod_from_manifest,
    selector_from_manifest,
    unknown_fields,
)

if TYPE_CHECKING:
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector

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

_GROUPS: Final = {
    "Deployment": ("apps", "extensions"),
    "StatefulSet": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "DaemonSet": ("apps", "extensions"),
    "ReplicationController": ("",),
    "Job": ("batch",),
    "CronJob": ("batch",),
}
"""Kubernetes' own kinds of workloads, each with its API groups; all must have a pod template."""

_SELECTING: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Rollout", "CloneSet"}
)
"""Kinds that must have a selector."""

_MOST_REPLICAS: Final = 2**31 - 1

_QUARTER: Final = Share(25, is_percentage=True)
_PERCENTAGE: Final = re.compile(r"^(\d{1,9})%$")
_TEMPLATE: Final = re.compile(r"^spec\.(?:jobTemplate\.spec\.)?template\.")


def is_workload(manifest: Manifest) -> bool:
    """Whether an object is a pod or has to do with a template of pods, and no other made it.

    Kubernetes' own kinds of workloads are such also where their template is missing, but patches
    are not.
    """
    owners = _part(manifest, "metadata").get("ownerReferences")
    if isinstance(owners, list) and any(_part(each).get("controller") for each in owners):
        return False
    if manifest.get("kind") == "Pod":
        return True
    if is_patch(manifest):
        return False
    return _is_own_kind(manifest) or _has_template(manifest)


def is_large(manifest: Manifest) -> bool:
    """Whether an object has more values, or more text, than is linted in a moment."""
    metadata = dict(_part(manifest, "metadata"))
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

    It lacks what its kind must have: the selector, or where there needs to be none, containers.
    """
    kind, spec = manifest.get("kind"), _part(manifest, "spec")
    if not isinstance(kind, str) or not spec or not _is_count(spec.get("replicas")):
        return False
    if kind not in _SELECTING:
        lacks = _has_template(manifest) and "containers" not in _pod_spec(manifest)
        return lacks and _is_own_kind(manifest)
    if not isinstance(spec.get("template", {}), Mapping):
        return False
    return spec.get("selector") is None and (_is_own_kind(manifest) or _has_template(manifest))


def _is_own_kind(manifest: Manifest) -> bool:
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(kind, str) or kind not in _GROUPS:
        return False
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    return not version or group in _GROUPS[kind]


def _has_template(manifest: Manifest) -> bool:
    spec = _pod_spec(manifest)
    return "containers" in spec or "topologySpreadConstraints" in spec


def workload_from_manifest(manifest: Manifest) -> LintedWorkload:
    """Convert a manifest for which :func:`is_workload` holds.

    Raises:
        ManifestError: a value of a wrong type, or too many constraints, expressions or values.
    """
    message = pod_from_manifest(manifest, known_labels_only=True)
    if _is_own_kind(manifest) and not _pod_spec(manifest):
        below = "jobTemplate.spec." if manifest.get("kind") == "CronJob" else ""
        raise ManifestError(f"spec.{below}template.spec", "required: it says what the pods are")
    if len(message.spec.topology_spread_constraints) > MOST_CONSTRAINTS:
        raise ManifestError(CONSTRAINTS_FIELD, f"at most {MOST_CONSTRAINTS}")
    try:
        check_terms(message.spec, MOST_TERMS)
    except InvalidRequest as error:
        raise ManifestError("spec", str(error)) from error
    pod = pod_from_proto(message)
    kind, spec = str(manifest.get("kind") or "Pod"), _part(manifest, "spec")
    selector = None if kind in ("Pod", "CronJob") else selector_from_manifest(manifest)
    if selector is not None and _terms(selector) > MOST_TERMS:
        raise ManifestError("spec.selector", f"at most {MOST_TERMS} expressions")
    return LintedWorkload(
        kind=kind,
        pod=pod,
        replicas=_replicas(kind, manifest),
        selector=None if selector is None else selector_from_proto(selector),
        added_labels=CONTROLLER_LABELS.get(kind, ()),
        rollout=_rollout(kind, spec),
        has_volume_claims=bool(spec.get("volumeClaimTemplates")),
        repelling_keys=_repelling_keys(_pod_spec(manifest), pod.labels, pod.namespace),
        unknown_fields=tuple(
            FieldViolation(_TEMPLATE.sub("", each.field), each.description)
            for each in unknown_fields(manifest)[:MOST_CONSTRAINTS]
        ),
        ignored=_ignored(manifest),
    )


def _terms(selector: LabelSelector) -> int:
    return len(selector.match_labels) + len(selector.match_expressions)


def _part(value: object, name: str = "") -> Mapping[str, Any]:
    """An object, or a member of one; an empty one where there is none."""
    part = value.get(name) if name and isinstance(value, Mapping) else value
    return part if isinstance(part, Mapping) else {}


def _template_owner(manifest: Manifest) -> Mapping[str, Any]:
    """What has the pod template: the object's spec, or that of a CronJob's job."""
    spec = _part(manifest, "spec")
    if manifest.get("kind") == "CronJob":
        return _part(_part(spec, "jobTemplate"), "spec")
    return spec


def _pod_spec(manifest: Manifest) -> Mapping[str, Any]:
    if manifest.get("kind") in (None, "", "Pod"):
        return _part(manifest, "spec")
    return _part(_part(_template_owner(manifest), "template"), "spec")


def _replicas(kind: str, manifest: Manifest) -> int | None:
    """How many pods there are; None where only the cluster knows."""
    if kind == "Pod":
        return 1
    is_job = kind in ("Job", "CronJob")
    name = "parallelism" if is_job else "replicas"
    given = _template_owner(manifest).get(name)
    if given is None:
        return 1 if is_job else None
    if _is_count(given):
        return int(given)
    if kind not in _GROUPS and kind not in _SELECTING:
        return None
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


def _rollout(kind: str, spec: Mapping[str, Any]) -> Rollout | None:
    """How a workload is rolled out, by its kind's defaults."""
    if kind == "Deployment":
        strategy = _part(spec, "strategy")
        rolling = strategy.get("type") in (None, "", "RollingUpdate")
        return _rolling(_part(strategy, "rollingUpdate"), kind) if rolling else None
    if kind == "Rollout":
        strategy = _part(spec, "strategy")
        if "blueGreen" in strategy:
            return Rollout(_QUARTER, Share(0), CONTROLLER_LABELS[kind][0], doubles=True)
        return _rolling(_part(strategy, "canary"), kind)
    if kind == "CloneSet":
        strategy = _part(spec, "updateStrategy")
        surge = _share(strategy.get("maxSurge"), "spec.updateStrategy.maxSurge") or Share(0)
        lacking = _share(strategy.get("maxUnavailable"), "spec.updateStrategy.maxUnavailable")
        return Rollout(surge, lacking or Share(20, is_percentage=True), CONTROLLER_LABELS[kind][0])
    return None


def _rolling(strategy: Mapping[str, Any], kind: str) -> Rollout:
    surge = _share(strategy.get("maxSurge"), "maxSurge")
    lacking = _share(strategy.get("maxUnavailable"), "maxUnavailable")
    return Rollout(
        _QUARTER if surge is None else surge,
        _QUARTER if lacking is None else lacking,
        CONTROLLER_LABELS[kind][0],
    )


def _share(value: object, path: str) -> Share | None:
    """A number or a percentage; None where none is given."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Share(value)
    if isinstance(value, str) and (found := _PERCENTAGE.match(value)):
        return Share(int(found[1]), is_percentage=True)
    raise ManifestError(path, "must be a number of pods, or a percentage as in 25%")


def _repelling_keys(
    spec: Mapping[str, Any], labels: Mapping[str, str], namespace: str
) -> tuple[str, ...]:
    """Topology keys of required anti-affinity that a pod has to others of its template."""
    anti = _part(_part(spec, "affinity"), "podAntiAffinity")
    terms = anti.get("requiredDuringSchedulingIgnoredDuringExecution")
    keys: list[str] = []
    for term in map(_part, terms[:MOST_CONSTRAINTS] if isinstance(terms, list) else ()):
        key, namespaces = term.get("topologyKey"), term.get("namespaces")
        if not isinstance(key, str) or term.get("matchLabelKeys"):
            continue
        if namespaces and (not isinstance(namespaces, list) or namespace not in namespaces):
            continue
        selector = selector_from_manifest({"spec": {"selector": term.get("labelSelector")}})
        try:
            given = None if selector is None else selector_from_proto(selector)
            if compile_selector(given).matches(labels):
                keys.append(key)
        except SelectorError:
            continue
    return tuple(dict.fromkeys(keys))


def _ignored(manifest: Manifest) -> frozenset[str]:
    annotations = _part(_part(manifest, "metadata"), "annotations")
    text = annotations.get(IGNORE_ANNOTATION)
    codes = text.split(",") if isinstance(text, str) else ()
    return frozenset(each.strip().lower() for each in codes if each.strip())
