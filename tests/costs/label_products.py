"""Lists of conditions on labels and of what has labels; see :mod:`tests.costs.products`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.costs.products import (
    FEWER,
    HOSTNAME,
    SPREAD,
    ZONE,
    Product,
    cluster_object,
    evaluate,
    explain,
    node,
    pod,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    inspector_service_pb2,
    planner_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    from tests.costs.products import Json

Conditions = "Callable[[int], list[Json]]"


def excluding(size: int) -> list[Json]:
    """Many conditions on one label, which most pods meet."""
    return [{"key": "app", "operator": "NotIn", "values": [f"x{i}"]} for i in range(size)]


def any_of(size: int) -> list[Json]:
    """One condition with many values."""
    values = ["web", *(f"x{i}" for i in range(size))]
    return [{"key": "app", "operator": "In", "values": values}]


def each_of(size: int) -> list[Json]:
    """Many conditions with many values together: of each some."""
    per = max(1, int(size**0.5))
    values = [["web", *(f"x{k}-{i}" for k in range(per))] for i in range(per)]
    return [{"key": "app", "operator": "In", "values": each} for each in values]


def on_keys(size: int) -> list[Json]:
    """Conditions on many labels."""
    return [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(size)]


def workloads(size: int) -> Sequence[Json]:
    """Pods of so many workloads, each with a label of its own."""
    return [pod(f"p{i}", f"node-{i % 4}", {"app": f"a{i}"}) for i in range(size)]


def labelled(size: int) -> Sequence[Json]:
    """A pod with many labels."""
    return [pod("p", "node-0", {f"k{i}": "v" for i in range(size)})]


def spread_by(conditions: Any) -> Callable[[int], Json]:
    """A pod that spreads over those that meet the conditions."""

    def make(size: int) -> Json:
        selector = {"matchExpressions": conditions(size)}
        return pod("asked", topologySpreadConstraints=[{**SPREAD, "labelSelector": selector}])

    return make


def selector_message(conditions: list[Json]) -> kubernetes_pb2.LabelSelector:
    return kubernetes_pb2.LabelSelector(
        match_expressions=[
            kubernetes_pb2.LabelSelectorRequirement(
                key=each["key"], operator=each["operator"], values=each.get("values", ())
            )
            for each in conditions
        ]
    )


def listing(conditions: Any) -> tuple[str, Callable[[int], Message]]:
    return "ListObjects", lambda size: cluster_state_service_pb2.ListObjectsRequest(
        kind=common_pb2.KIND_POD, page_size=1, label_selector=selector_message(conditions(size))
    )


def constraints(conditions: Any) -> tuple[str, Callable[[int], Message]]:
    return "ListConstraints", lambda size: inspector_service_pb2.ListConstraintsRequest(
        page_size=1,
        filter=inspector_service_pb2.ConstraintFilter(
            label_selector=selector_message(conditions(size))
        ),
    )


def ranking(conditions: Any) -> tuple[str, Callable[[int], Message]]:
    return "RankDeletions", lambda size: planner_service_pb2.RankDeletionsRequest(
        delete_count=1, label_selector=selector_message(conditions(size))
    )


# ------------------------------ nodes


def required(*terms: Json) -> Json:
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod("asked", affinity={"nodeAffinity": node_affinity})


def of_terms(size: int) -> Json:
    """A pod with many terms, each with a value of its own."""
    return required(
        *(
            {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [f"x{i}"]}]}
            for i in range(size)
        )
    )


def of_conditions(size: int) -> Json:
    """A pod with a term of many conditions."""
    return required(
        {
            "matchExpressions": [
                {"key": HOSTNAME, "operator": "NotIn", "values": [f"x{i}"]} for i in range(size)
            ]
        }
    )


def of_values(size: int) -> Json:
    """A pod with a condition of many values."""
    values = [f"node-{i}" for i in range(size)]
    return required({"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": values}]})


def of_fields(size: int) -> Json:
    """A pod that names many nodes."""
    return required(
        *(
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{i}"]}]}
            for i in range(size)
        )
    )


def selecting(size: int) -> Json:
    """A pod with many labels in its node selector, which a node has."""
    return pod("asked", nodeSelector={f"k{i}": "v" for i in range(size)})


def much_labelled_nodes(size: int) -> Sequence[Json]:
    made = node(100)
    made["metadata"]["labels"] |= {f"k{i}": "v" for i in range(size)}
    return [made]


def nodes(size: int) -> Sequence[Json]:
    return [node(100 + i) for i in range(size)]


def spreading(size: int) -> Json:
    """A pod with many constraints, each with a selector of its own."""
    made = [
        {
            "maxSkew": 5,
            "topologyKey": ZONE if i % 2 else HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule" if i % 4 < 2 else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": f"a{i}"}},
        }
        for i in range(size)
    ]
    return pod("asked", topologySpreadConstraints=made)


def spreading_and_tolerating(size: int) -> Json:
    """The same, with as many tolerations, which each constraint honours."""
    made = spreading(size)
    for each in made["spec"]["topologySpreadConstraints"]:
        each["nodeTaintsPolicy"] = "Honor"
    made["spec"]["tolerations"] = [{"key": f"k{i}", "operator": "Exists"} for i in range(size)]
    return made


def by_keys(size: int) -> Json:
    """A pod whose constraint has many label keys, and the labels."""
    labels = {f"k{i}": "v" for i in range(size)}
    return pod(
        "asked",
        labels=labels,
        topologySpreadConstraints=[{**SPREAD, "matchLabelKeys": list(labels)}],
    )


# ------------------------------ inter-pod affinity


def apart(name: str, size: int, on: str = "", *, terms: Any) -> Json:
    """A pod that keeps others off its node."""
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms(size)}
    return pod(name, on, affinity={"podAntiAffinity": affinity})


def term(**more: Any) -> Json:
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": any_of(1)}, **more}


def named_and_valued(size: int) -> list[Json]:
    """A term of many namespaces and many values."""
    selector = {"matchExpressions": any_of(size)}
    return [term(namespaces=[f"n{i}" for i in range(size)], labelSelector=selector)]


def many_terms(size: int) -> list[Json]:
    """Many terms, each of a value of its own."""
    return [term(labelSelector={"matchLabels": {"app": f"a{i}"}}) for i in range(size)]


def chosen(size: int) -> list[Json]:
    """A term that selects namespaces by their labels, with many values."""
    return [
        term(
            namespaceSelector={"matchLabels": {"team": "a"}},
            labelSelector={"matchExpressions": any_of(size)},
        )
    ]


def chosen_by_each(size: int) -> list[Json]:
    """Many terms that select namespaces by their labels."""
    return [
        term(
            namespaceSelector={"matchExpressions": [{"key": f"no{i}", "operator": "DoesNotExist"}]},
            labelSelector={"matchLabels": {"app": f"a{i}"}},
        )
        for i in range(size)
    ]


def keyed(size: int) -> list[Json]:
    """A term with many label keys, those that must be equal and those that must not."""
    names = [f"k{i}" for i in range(size)]
    return [term(matchLabelKeys=names[::2], mismatchLabelKeys=names[1::2])]


def namespaces(size: int) -> Sequence[Json]:
    return [
        cluster_object("Namespace", f"n{i}", metadata={"labels": {"team": "a", "n": str(i)}})
        for i in range(size)
    ]


def both_ways(terms: Any) -> tuple[tuple[str, Callable[[int], Message]], Any]:
    """A question of a pod with such terms, and such a pod that comes."""
    return (
        explain(lambda n: apart("asked", n, terms=terms)),
        lambda n: [apart("there", n, "node-0", terms=terms)],
    )


def _of_terms(terms: Any, **more: Any) -> Product:
    ask, come = both_ways(terms)
    fields = (
        "PodAffinityTerm.namespaces",
        "PodAffinity.required_during_scheduling_ignored_during_execution",
    )
    return Product(more.pop("fields", fields), ask, come=come, **more)


SELECTORS: Final = ("LabelSelector.match_expressions", "LabelSelectorRequirement.values")
OF_POD: Final = (*SELECTORS, "ObjectMeta.labels")
OF_NODE: Final = (
    "NodeSelector.node_selector_terms",
    "NodeSelectorTerm.match_expressions",
    "NodeSelectorRequirement.values",
)
LISTED: Final = (20, 40, 80, 160)

CONSTRAINTS: Final = (8, 16, 32, 64)
"""A pod has no more."""

SPREADS: Final = "PodSpec.topology_spread_constraints"
KINDS: Final = {
    "conditions": excluding,
    "values": any_of,
    "conditions with values": each_of,
    "keys": on_keys,
}

OF_LABELS: Final[dict[str, Product]] = {
    **{
        f"{name} of a constraint × workloads": Product(
            OF_POD, evaluate(spread_by(conditions)), come=workloads
        )
        for name, conditions in KINDS.items()
    },
    **{
        f"{name} of a constraint × labels": Product(
            OF_POD, evaluate(spread_by(conditions)), come=labelled
        )
        for name, conditions in KINDS.items()
    },
    **{
        f"{name} of a list × pods": Product(OF_POD, listing(conditions), workloads)
        for name, conditions in KINDS.items()
    },
    **{
        f"{name} of a filter × constraints": Product(
            (*OF_POD, SPREADS), constraints(conditions), workloads, sizes=LISTED
        )
        for name, conditions in KINDS.items()
    },
    "conditions of a ranking × pods": Product(OF_POD, ranking(excluding), workloads),
    "terms × nodes": Product(OF_NODE, explain(of_terms), come=nodes),
    "conditions × nodes": Product(OF_NODE, explain(of_conditions), come=nodes),
    "values × nodes": Product(OF_NODE, explain(of_values), come=nodes),
    "fields × nodes": Product(
        ("NodeSelectorTerm.match_fields", OF_NODE[0]), explain(of_fields), come=nodes
    ),
    "node selector × labels of a node": Product(
        ("PodSpec.node_selector", "ObjectMeta.labels"), explain(selecting), come=much_labelled_nodes
    ),
    "constraints × nodes": Product((SPREADS,), evaluate(spreading), come=nodes, sizes=CONSTRAINTS),
    "constraints × workloads": Product(
        (SPREADS,), evaluate(spreading), come=workloads, sizes=CONSTRAINTS
    ),
    "constraints × tolerations": Product(
        (SPREADS, "PodSpec.tolerations"),
        evaluate(spreading_and_tolerating),
        come=nodes,
        sizes=CONSTRAINTS,
    ),
    "label keys × labels": Product(
        ("TopologySpreadConstraint.match_label_keys", "ObjectMeta.labels"),
        evaluate(by_keys),
        come=labelled,
    ),
    "namespaces × values of a term": _of_terms(named_and_valued),
    "terms × terms": _of_terms(many_terms, sizes=FEWER),
    "namespaces that a term selects × values": _of_terms(chosen, there=namespaces),
    "terms × namespaces that they select": _of_terms(chosen_by_each, there=namespaces, sizes=FEWER),
    "label keys of a term × labels": _of_terms(
        keyed,
        fields=("PodAffinityTerm.match_label_keys", "PodAffinityTerm.mismatch_label_keys"),
    ),
}
