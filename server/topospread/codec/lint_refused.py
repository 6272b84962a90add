"""What the API server refuses of workloads beside constraints, as far as spreading rests on it.

Texts are the API server's. Fields of a wrong type are left out before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.lint_manifests import SELECTING
from topospread.codec.manifest_parts import part_of
from topospread.codec.pods import selector_from_proto
from topospread.errors import FieldViolation
from topospread.kube.affinity import EFFECTS
from topospread.kube.selectors import IN, NODE_OPERATORS, NOT_IN, compile_selector
from topospread.kube.validation import (
    label_key_violations,
    label_value_violations,
    selector_violations,
)
from topospread.kube.violations import (
    forbidden,
    invalid,
    not_supported,
    required,
    violation_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.spread.linting.workloads import LintedWorkload
    from topospread_client import PodTemplate
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

_STRATEGIES: Final[Mapping[str, tuple[str, tuple[str, str]]]] = {
    "Deployment": ("strategy", ("Recreate", "RollingUpdate")),
    "DaemonSet": ("updateStrategy", ("OnDelete", "RollingUpdate")),
    "StatefulSet": ("updateStrategy", ("OnDelete", "RollingUpdate")),
}
"""By kind: the field that says how it is rolled out, and its types."""

_VERSIONS: Final = {
    "Pod": "v1",
    "PodTemplate": "v1",
    "ReplicationController": "v1",
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
}
_FORMER: Final = {"apps": ("extensions",)}
_GROUPS: Final = frozenset({"", "apps", "batch", "extensions"})
"""API groups of Kubernetes' own workloads."""

_ZERO: Final = (0, "0", "0%")
_MOST_PORT: Final = 65535

_TOLERATION_OPERATORS: Final = ("Equal", "Exists")
_REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def refused(
    template: PodTemplate, workload: LintedWorkload, message: k8s.Pod, *, labels_known: bool
) -> Iterator[FieldViolation]:
    """What is refused of an object of Kubernetes' own, with the texts as descriptions.

    Args:
        template: of the object; a pod's is the pod.
        workload: what is linted of it.
        message: the pod that it would make.
        labels_known: whether its labels are all of the template.
    """
    found = [*_of_workload(template, workload, labels_known=labels_known)]
    root = f"{template.text}." if template.text else ""
    given = part_of(part_of(template.content, "metadata"), "labels")
    found += _of_labels(f"{root}metadata.labels", given)
    found += _of_pod(f"{root}spec", message.spec)
    for each in found:
        text = violation_text(each).removeprefix(f"{each.field}: ")
        yield FieldViolation(each.field, text)


def refused_kind(manifest: Mapping[str, Any]) -> FieldViolation | None:
    """What is wrong with the kind or the version of an object; None where nothing is known."""
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if version is None or not isinstance(kind, str):
        return None
    if not isinstance(version, str):
        return FieldViolation("apiVersion", "must be a text")
    given = version.rpartition("/")[0]
    if given not in _GROUPS:
        return None
    if kind in _VERSIONS:
        group = _VERSIONS[kind].rpartition("/")[0]
        is_right = given in (group, *_FORMER.get(group, ()))
        text = f'"{version}" has no {kind}: write {_VERSIONS[kind]}'
        return None if is_right else FieldViolation("apiVersion", text)
    for each in _VERSIONS:
        if kind.lower() in (each.lower(), f"{each.lower()}s"):
            return FieldViolation("kind", f'no kind is called "{kind}": did you mean "{each}"?')
    return None


def _of_workload(
    template: PodTemplate, workload: LintedWorkload, *, labels_known: bool
) -> Iterator[FieldViolation]:
    kind, spec = workload.kind, part_of(template.holder, "spec")
    if kind in SELECTING and workload.selector is not None:
        yield from _of_selector(kind, spec, workload, labels_known=labels_known)
    if kind in _STRATEGIES:
        name, types = _STRATEGIES[kind]
        yield from _of_strategy(f"spec.{name}", spec.get(name), types, kind)


def _of_selector(
    kind: str, spec: Mapping[str, Any], workload: LintedWorkload, *, labels_known: bool
) -> Iterator[FieldViolation]:
    assert workload.selector is not None
    path, given = "spec.selector", part_of(spec, "selector")
    if wrong := [*selector_violations(path, workload.selector)]:
        yield from wrong
        return
    selector = compile_selector(workload.selector)
    if selector.empty and not given:
        yield invalid(path, given, f"empty selector is invalid for {kind.lower()}")
    elif labels_known and not selector.empty and not selector.matches(workload.pod.labels):
        yield invalid(path, given, "`selector` does not match template `labels`")


def _of_strategy(
    path: str, strategy: object, types: tuple[str, str], kind: str
) -> Iterator[FieldViolation]:
    if strategy is None:
        return
    if not isinstance(strategy, Mapping):
        yield invalid(path, strategy, "must be an object with the field type")
        return
    given, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if given is not None and given not in types and given != "":
        yield not_supported(f"{path}.type", str(given), types)
    below = f"{path}.rollingUpdate"
    if rolling is None:
        return
    if not isinstance(rolling, Mapping):
        yield invalid(below, rolling, "must be an object")
    elif given == types[0] and kind == "Deployment":
        yield forbidden(below, f"may not be specified when strategy `type` is '{given}'")
    else:
        lacking, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        if _is_zero(lacking) and (_is_zero(surge) or (surge is None and kind == "DaemonSet")):
            detail = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"{below}.maxUnavailable", lacking, detail)
        percent = lacking.removesuffix("%") if isinstance(lacking, str) else ""
        if percent != lacking and percent.isdecimal() and int(percent[:9]) > 100:
            yield invalid(f"{below}.maxUnavailable", lacking, "must not be greater than 100%")


def _is_zero(value: object) -> bool:
    return not isinstance(value, bool) and value in _ZERO


def _of_labels(path: str, labels: Mapping[Any, Any]) -> Iterator[FieldViolation]:
    for key, value in labels.items():
        for each in label_key_violations(path, str(key)):
            yield replace(each, field=f"{path}[{key}]")
        yield from label_value_violations(f"{path}[{key}]", value or "")


def _of_pod(path: str, spec: k8s.PodSpec) -> Iterator[FieldViolation]:
    for number, toleration in enumerate(spec.tolerations):
        yield from _of_toleration(f"{path}.tolerations[{number}]", toleration)
    affinity, at = spec.affinity, f"{path}.affinity"
    terms = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    for number, term in enumerate(terms.node_selector_terms):
        below = f"{at}.nodeAffinity.{_REQUIRED_TERMS}.nodeSelectorTerms[{number}]"
        for index, each in enumerate(term.match_expressions):
            yield from _of_node_expression(f"{below}.matchExpressions[{index}]", each)
    for name, pods in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        required_terms = pods.required_during_scheduling_ignored_during_execution
        for number, pod_term in enumerate(required_terms):
            yield from _of_pod_term(f"{at}.{name}.{_REQUIRED_TERMS}[{number}]", pod_term)
    for name, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for number, container in enumerate(containers):
            for index, port in enumerate(container.ports):
                if not 0 <= port.host_port <= _MOST_PORT:
                    field = f"{path}.{name}[{number}].ports[{index}].hostPort"
                    yield invalid(field, port.host_port, f"must be between 1 and {_MOST_PORT}")


def _of_toleration(path: str, given: k8s.Toleration) -> Iterator[FieldViolation]:
    operator = given.operator
    if operator and operator not in (*_TOLERATION_OPERATORS, "Gt", "Lt"):
        yield not_supported(f"{path}.operator", operator, _TOLERATION_OPERATORS)
    elif not given.key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values"'
        yield invalid(f"{path}.operator", operator, detail)
    elif operator == "Exists" and given.value:
        yield invalid(
            f"{path}.value", given.value, "value must be empty when `operator` is 'Exists'"
        )
    if given.effect and given.effect not in EFFECTS:
        yield not_supported(f"{path}.effect", given.effect, EFFECTS)


def _of_node_expression(path: str, given: Any) -> Iterator[FieldViolation]:
    if given.operator not in NODE_OPERATORS:
        yield not_supported(f"{path}.operator", given.operator, NODE_OPERATORS)
    elif given.operator in (IN, NOT_IN) and not given.values:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        yield required(f"{path}.values", detail)
    yield from label_key_violations(f"{path}.key", given.key)


def _of_pod_term(path: str, given: k8s.PodAffinityTerm) -> Iterator[FieldViolation]:
    if not given.topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    else:
        yield from label_key_violations(f"{path}.topologyKey", given.topology_key)
    if given.HasField("label_selector"):
        selector = selector_from_proto(given.label_selector)
        yield from selector_violations(f"{path}.labelSelector", selector)
