"""Converts messages to values: pods, nodes, workloads, and the versions that a sync has read.

Functions that are given the path of a part raise InvalidRequest where it is not valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.amounts import lenient_amounts
from topospread.codec.owners import controller_reference
from topospread.codec.parsing import parse_request
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.demands import in_units
from topospread.kube.objects import (
    DEFAULT_NAMESPACE,
    LabelExpression,
    LabelSelector,
    Node,
    NodeExpression,
    NodeRequirements,
    NodeTerm,
    OwnerReference,
    Pod,
    SpreadConstraint,
    Taint,
    Toleration,
    Workload,
)
from topospread.kube.selectors import Selector, SelectorError, compile_selector
from topospread.kube.validation import selector_violations
from topospread.kube.violations import Problems, duplicate, invalid, required, unknown
from topospread.store.values import OBSERVABLE, VERSION
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.kube.versions import KubernetesVersion
    from topospread.store.model import Kind
    from topospread.store.values import Observed


_METADATA: Final = b"\x0a"
"""The tag of a pod's metadata, its first field."""

WorkloadMessage = pb.Service | pb.ReplicationController | pb.ReplicaSet | pb.StatefulSet | pb.Job


def pod_from_proto(pod: pb.Pod) -> Pod:
    """The fields that spreading looks at; an absent namespace is ``default``."""
    meta, spec = pod.metadata, pod.spec
    return Pod(
        name=meta.name,
        namespace=meta.namespace or DEFAULT_NAMESPACE,
        uid=meta.uid,
        labels=dict(meta.labels),
        owner=controller_reference(meta.owner_references),
        terminating=meta.HasField("deletion_timestamp"),
        node_name=spec.node_name,
        phase=pod.status.phase,
        scheduler_name=spec.scheduler_name,
        requirements=_requirements(spec),
        tolerations=tuple(
            Toleration(t.key, t.operator, t.value, t.effect) for t in spec.tolerations
        ),
        constraints=tuple(map(constraint_from_proto, spec.topology_spread_constraints)),
    )


def split_template(encoded: bytes) -> tuple[OwnerReference | None, bytes]:
    """The controller of a pod, and what follows its metadata: labels and owners are not in it.

    Args:
        encoded: the bytes of a v1.Pod with its fields in order.
    """
    if not encoded.startswith(_METADATA):
        return None, encoded
    size = shift = 0
    start = 1
    while encoded[start] & 0x80:
        size |= (encoded[start] & 0x7F) << shift
        start, shift = start + 1, shift + 7
    size |= encoded[start] << shift
    end = start + 1 + size
    owners = pb.ObjectMeta.FromString(encoded[start + 1 : end]).owner_references
    return controller_reference(owners), encoded[end:]


def check_terms(spec: pb.PodSpec, most: int) -> None:
    """Refuse a pod with too many expressions and values, before there are objects of them."""
    affinity = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    terms = affinity.node_selector_terms
    selectors = [each.label_selector for each in spec.topology_spread_constraints]
    total = len(spec.node_selector) + len(spec.tolerations) + len(terms)
    total += sum(len(each.match_label_keys) for each in spec.topology_spread_constraints)
    total += sum(len(each.match_labels) + len(each.match_expressions) for each in selectors)
    if total > most:
        raise too_many_terms(most)
    of_selectors = [e for each in selectors for e in each.match_expressions]
    # A term counts as what is in it, and an empty one as one.
    total += sum(len(e.values) for e in of_selectors) - len(terms)
    total += sum(
        max(1, sum(1 + len(e.values) for e in (*t.match_expressions, *t.match_fields)))
        for t in terms
    )
    if total > most:
        raise too_many_terms(most)


def conditions_weight(spec: pb.PodSpec, most: int) -> int:
    """Cost, about, of compiling a pod's selectors and affinity, of which a batch has many.

    An expression is 5, and 1 is each of its values, a toleration, a label that is asked for.

    Args:
        spec: the pod's.
        most: past it nothing more is counted.
    """
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    weight = len(required.node_selector_terms) + len(spec.node_selector) + len(spec.tolerations)
    for constraint in spec.topology_spread_constraints:
        selector = constraint.label_selector
        weight += len(selector.match_labels) + len(constraint.match_label_keys)
        weight += sum(5 + len(e.values) for e in selector.match_expressions)
    for term in required.node_selector_terms:
        if weight > most:
            break
        for e in term.match_expressions:
            weight += 5 + len(e.values)
        for e in term.match_fields:
            weight += 5 + len(e.values)
    return weight


def too_many_terms(most: int) -> InvalidRequest:
    """The error for a pod with more expressions and values than that."""
    text = f"the pod's selectors and affinity have more than {most} expressions and values"
    return InvalidRequest.at("spec", text, "Too many")


def constraint_from_proto(constraint: pb.TopologySpreadConstraint) -> SpreadConstraint:
    """A constraint as written; absent fields are None."""
    has = constraint.HasField
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        label_selector=(
            selector_from_proto(constraint.label_selector) if has("label_selector") else None
        ),
        min_domains=constraint.min_domains if has("min_domains") else None,
        node_affinity_policy=(
            constraint.node_affinity_policy if has("node_affinity_policy") else None
        ),
        node_taints_policy=constraint.node_taints_policy if has("node_taints_policy") else None,
        match_label_keys=tuple(constraint.match_label_keys),
    )


def selector_from_proto(selector: pb.LabelSelector) -> LabelSelector:
    """A selector that is present, which is for the caller to check."""
    return LabelSelector(
        tuple(sorted(selector.match_labels.items())),
        tuple(
            LabelExpression(e.key, e.operator, tuple(e.values)) for e in selector.match_expressions
        ),
    )


def selector_of(selector: pb.LabelSelector, path: str) -> Selector:
    """Decode and compile a selector."""
    given = selector_from_proto(selector)
    try:
        return compile_selector(given)
    except SelectorError as cause:
        wrong = list(selector_violations(path, given))
        raise InvalidRequest.of(wrong or [FieldViolation(path, str(cause))]) from cause


def pod_from_source(
    source: common_pb2.PodSource, path: str
) -> tuple[pb.Pod | common_pb2.PodReference, str]:
    """A pod or its name in the state, and the path of that in the request."""
    match source.WhichOneof("source"):
        case "object":
            return source.object, f"{path}.object"
        case "object_proto":
            here = f"{path}.objectProto"
            try:
                return parse_request(pb.Pod, source.object_proto), here
            except InvalidRequest as refused:
                raise refused.under(here) from refused
        case "ref":
            here = f"{path}.ref"
            return checked_reference(source.ref, here), here
    raise InvalidRequest.of([required(path, "give one of object, objectProto and ref")])


def checked_reference(pod: common_pb2.PodReference, path: str) -> common_pb2.PodReference:
    """The name of a pod in the state."""
    if not pod.name:
        raise InvalidRequest.of([required(f"{path}.name", "")])
    return pod


def _requirements(spec: pb.PodSpec) -> NodeRequirements:
    terms = None
    affinity = spec.affinity.node_affinity
    if affinity.HasField("required_during_scheduling_ignored_during_execution"):
        terms = node_terms(affinity.required_during_scheduling_ignored_during_execution)
    return NodeRequirements(tuple(sorted(spec.node_selector.items())), terms)


def node_terms(selector: pb.NodeSelector) -> tuple[NodeTerm, ...]:
    """The terms of a selector of nodes."""
    return tuple(
        NodeTerm(_expressions(t.match_expressions), _expressions(t.match_fields))
        for t in selector.node_selector_terms
    )


def _expressions(
    expressions: Iterable[pb.NodeSelectorRequirement],
) -> tuple[NodeExpression, ...]:
    return tuple(NodeExpression(e.key, e.operator, tuple(e.values)) for e in expressions)


def node_from_proto(node: pb.Node) -> Node:
    """The fields of a node that spreading looks at."""
    return Node(
        name=node.metadata.name,
        labels=dict(node.metadata.labels),
        taints=tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints),
        unschedulable=node.spec.unschedulable,
        allocatable=tuple(sorted(in_units(lenient_amounts(node.status.allocatable)).items())),
        declared_features=tuple(sorted(set(node.status.declared_features))),
    )


def workload_from_proto(workload: WorkloadMessage) -> Workload:
    """A Service, or a workload that controls pods; its kind is the message's."""
    selector = None
    pairs: tuple[tuple[str, str], ...] = ()
    if isinstance(workload, pb.Service | pb.ReplicationController):
        pairs = tuple(sorted(workload.spec.selector.items()))
    elif not isinstance(workload, pb.Job) and workload.spec.HasField("selector"):
        selector = selector_from_proto(workload.spec.selector)
    return Workload(
        kind=workload.DESCRIPTOR.name,
        namespace=workload.metadata.namespace or DEFAULT_NAMESPACE,
        name=workload.metadata.name,
        selector=selector,
        match_labels=pairs,
        controller=controller_reference(workload.metadata.owner_references),
    )


_KINDS: Final = {kind.value: kind for kind in OBSERVABLE}


def check_version(version: str, path: str) -> None:
    """Refuse a text that is no version of the API server."""
    if VERSION.fullmatch(version) is None:
        text = "must be decimal digits without leading zeros, 255 at most"
        raise InvalidRequest.of([invalid(path, version[:512], text)])


def observed_from_proto(
    versions: Iterable[common_pb2.ResourceVersion], path: str
) -> dict[Kind, str]:
    """Read the version of each kind."""
    found: dict[Kind, str] = {}
    wrong = Problems()
    for position, each in enumerate(versions):
        here = f"{path}[{position}]"
        kind = _KINDS.get(each.kind)
        if kind is None:
            known = [f"KIND_{one.name}" for one in OBSERVABLE]
            wrong.add(unknown(f"{here}.kind", each.kind, known))
        elif kind in found:
            wrong.add(duplicate(f"{here}.kind", f"KIND_{kind.name}"))
        with wrong.under():
            check_version(each.resource_version, f"{here}.resourceVersion")
            if kind is not None:
                found[kind] = each.resource_version
        if len(wrong.violations) > len(_KINDS):
            break  # as many may be sent as a request holds
    wrong.raise_all()
    return found


def view_meta(token: str, observed: Observed, version: KubernetesVersion) -> bytes:
    """The serialized ResponseMeta of a state, of answers by its version's rules."""
    meta = common_pb2.ResponseMeta(
        revision=token, observed=observed_messages(observed), kubernetes_version=str(version)
    )
    return meta.SerializeToString()


def observed_messages(observed: Observed) -> list[common_pb2.ResourceVersion]:
    """Messages with the version that each kind was read up to."""
    return [
        common_pb2.ResourceVersion(
            kind=kind.value,  # type: ignore[arg-type] # the numbers are the same
            resource_version=version,
        )
        for kind, version in observed
    ]
