"""Random changes for the index. Names are few, so that slots, rows and label sets are reused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from topospread.index.changes import (
    IndexChange,
    NodeChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
    WorkloadChange,
)
from topospread.index.selector_keys import MOST_KEYS
from topospread.kube.affinity import compile_requirements
from topospread.kube.demands import AWS_EBS, CINDER, GCE_PD, RBD, Disk, Holds, HostPort
from topospread.kube.namespaces import ALL_NAMESPACES, NamespaceSet
from topospread.kube.objects import (
    LabelExpression,
    LabelSelector,
    Node,
    NodeExpression,
    NodeRequirements,
    NodeTerm,
    Taint,
    Toleration,
    Workload,
)
from topospread.kube.pod_affinity import AffinityTerm
from topospread.kube.selectors import compile_selector
from topospread.spread.topology import Eligibility, GroupKey, Traits

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from topospread.kube.demands import Requests

T = TypeVar("T")

ZONE = "zone"
HOST = "host"
KEYS = (ZONE, HOST, "nobody-has-it")

NAMESPACES = ("default", "other")
MANY = ("a", *(f"m{number}" for number in range(MOST_KEYS)))
# Their order as bytes is not their order as numbers or in a dictionary.
NODES = ("n1", "n10", "n2", "Z", "é", "\N{HIRAGANA LETTER A}", "\N{GRINNING FACE}")
PODS = tuple(f"p{number}" for number in range(10))
LABELS = (
    (("app", "a"),),
    (("app", "b"),),
    (("app", "a"), ("tier", "fe")),
    (("app", "a"), ("tier", "")),
    (("tier", "fe"),),
    (),
)


def group(
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    *expressions: tuple[str, str, tuple[str, ...]],
) -> GroupKey:
    """The pods of a namespace that have labels and fulfil expressions."""
    return GroupKey(
        namespace,
        compile_selector(
            LabelSelector(
                tuple(sorted((labels or {}).items())),
                tuple(LabelExpression(*expression) for expression in expressions),
            )
        ),
    )


def of_others(key: GroupKey, *namespaces: str) -> GroupKey:
    """The same as inter-pod affinity counts it: in these namespaces, with pods that terminate."""
    names = NamespaceSet(frozenset(namespaces))
    return GroupKey("" if names else key.namespace, key.selector, names, terminating=True)


GROUPS = (
    group(labels={"app": "a"}),
    group(labels={"app": "b"}),
    group("other", {"app": "a"}),
    group(labels={"app": "a", "tier": "fe"}),
    group("default", None, ("app", "In", ("a", "b"))),
    group("default", None, ("app", "NotIn", ("b",))),
    group("default", None, ("tier", "DoesNotExist", ())),
    group("default", None, ("tier", "Exists", ()), ("tier", "In", ("fe", "be"))),
    group("other", None, ("app", "DoesNotExist", ())),
    of_others(group(labels={"app": "a"})),
    of_others(group(labels={"app": "a"}), *NAMESPACES, "nobody-has-it"),
    of_others(group("default", None, ("app", "NotIn", ("b",))), *NAMESPACES),
    GroupKey("", group(labels={"app": "a"}).selector, NamespaceSet(frozenset(NAMESPACES))),
    # More values and namespaces than have keys of their own.
    group("default", None, ("app", "In", MANY)),
    of_others(group("default", None, ("app", "In", MANY)), *NAMESPACES, *MANY),
    of_others(group("default", None, ("app", "In", ("a", "b"))), *NAMESPACES, *MANY),
    of_others(group("default", None, ("tier", "Exists", ())), "other", *MANY),
    GroupKey("", group("default", None, ("app", "In", ("b", "c"))).selector, ALL_NAMESPACES),
)
PORTS = (HostPort(80), HostPort(80, ip="10.0.0.1"), HostPort(80, ip="::"), HostPort(80, "UDP"))
DISKS = (
    Disk(GCE_PD, "d"),
    Disk(GCE_PD, "d", read_only=True),
    Disk(AWS_EBS, "d"),
    Disk(AWS_EBS, "d", read_only=True),
    Disk(CINDER, "d"),
    Disk(RBD, "pool/image", monitors=("m1", "m2")),
    Disk(RBD, "pool/image", monitors=("m2", "m3")),
    Disk(RBD, "pool/image", monitors=("m4",)),
    Disk(RBD, "pool/image", read_only=True, monitors=("m1", "m4")),
)
CLAIMS = ("default/c1", "default/c2", "other/c1")
TERMS = (
    AffinityTerm(GROUPS[0].selector, ("default",), HOST),
    AffinityTerm(GROUPS[0].selector, NAMESPACES, ZONE),
    AffinityTerm(GROUPS[1].selector, (), ZONE, GROUPS[0].selector),
    AffinityTerm(GROUPS[1].selector, ("other",), ZONE, GROUPS[0].selector),
    AffinityTerm(GROUPS[13].selector, ("default",), HOST),
    AffinityTerm(GROUPS[13].selector, tuple(sorted((*MANY, "other"))), HOST),
    AffinityTerm(GROUPS[5].selector, tuple(sorted((*MANY, "default"))), ZONE),
)
PRIORITIES = (-10, 0, 7, 1000)


def requirements(node_selector: dict[str, str] | None = None, *terms: NodeTerm) -> NodeRequirements:
    """Where a pod may run."""
    return NodeRequirements(tuple(sorted((node_selector or {}).items())), terms or None)


ELIGIBILITIES = (
    Eligibility(),
    Eligibility(keys=(ZONE,)),
    Eligibility(keys=(ZONE, HOST)),
    Eligibility(requirements=compile_requirements(requirements({"disk": "ssd"}))),
    Eligibility(
        keys=(HOST,),
        requirements=compile_requirements(
            requirements(
                None,
                NodeTerm((NodeExpression("num", "Gt", ("3",)),)),
                NodeTerm((), (NodeExpression("metadata.name", "In", ("n1",)),)),
            )
        ),
    ),
    Eligibility(tolerations=()),
    Eligibility(
        keys=(ZONE,),
        tolerations=(Toleration("ded", "Gt", "5"),),
        comparison_operators=True,
    ),
)
TRAITS = (
    Traits(),
    Traits(keys=(ZONE,)),
    Traits(keys=(ZONE, HOST), labels=(HOST,), eligibilities=ELIGIBILITIES[3:6]),
)

nodes: SearchStrategy[Node] = st.builds(
    lambda name, zone, host, others, taints: Node(
        name,
        {
            key: value
            for key, value in ((ZONE, zone), (HOST, name if host == "own" else host))
            if value is not None
        }
        | others,
        taints,
    ),
    st.sampled_from(NODES),
    st.sampled_from(("z1", "z1", "z2", "z2", "z3", "", None)),
    st.sampled_from(("own", "own", "own", "shared", None)),
    st.sampled_from(({}, {"disk": "ssd"}, {"num": "5"}, {"num": "x", "disk": "hdd"})),
    st.sampled_from(
        ((), (), (Taint("ded", "7", "NoSchedule"),), (Taint("ded", "x", "PreferNoSchedule"),))
    ),
)
node_changes: SearchStrategy[IndexChange] = st.one_of(
    nodes.map(lambda node: NodeChange(node.name, node)),
    nodes.map(lambda node: NodeChange(node.name, node)),
    st.sampled_from(NODES).map(lambda name: NodeChange(name, None)),
)
RESOURCES = ("pods", "cpu", "memory", "nobody-takes-it")
requests = st.sampled_from(((), (("cpu", 1),), (("cpu", 250), ("memory", 7)), (("memory", 2**62),)))


def some(things: tuple[T, ...]) -> SearchStrategy[tuple[T, ...]]:
    """None of them mostly, or a few, each once."""
    return st.lists(st.sampled_from(things), max_size=2, unique=True).map(tuple)


holds: SearchStrategy[Holds | None] = st.builds(
    Holds, some(PORTS), some(DISKS), some(CLAIMS), some(TERMS), st.sampled_from(PRIORITIES)
).map(lambda each: None if each == Holds() else each)
holds = st.one_of(st.none(), holds)


def _row(
    labels: tuple[tuple[str, str], ...],
    node_name: str,
    remains: bool,
    taken: Requests | None,
    more: str,
    held: Holds | None,
    nominated: str,
) -> PodRow:
    row = PodRow(
        labels,
        node_name,
        bool(node_name) and remains,
        taken if node_name else None,
        template=repr((labels, more)).encode() if remains else None,
        holds=held if node_name and taken is not None else None,
    )
    if node_name or not nominated:
        return row
    there = PodRow(labels, nominated, counted=True, requests=(), holds=held)
    return replace(row, nominated=there)


rows = st.builds(
    _row,
    st.sampled_from(LABELS),
    st.sampled_from((*NODES, *NODES, "nobody", "", "", "")),
    # One that is terminating or has ended is in no class.
    st.sampled_from((True, True, True, False)),
    # A terminating pod takes its part without counting.
    st.one_of(requests, requests, st.none()),
    # Pods with equal labels may differ in what else decisions depend on.
    st.sampled_from(("", "", "spread")),
    holds,
    st.sampled_from(("", "", *NODES)),
)
pod_changes: SearchStrategy[IndexChange] = st.builds(
    PodChange,
    st.sampled_from(("default", "default", "default", "other")),
    st.sampled_from(PODS),
    st.one_of(rows, rows, rows, st.none()),
)
held = st.builds(
    ReservationRow,
    st.sampled_from(("", "u1", "u2")),
    st.sampled_from(LABELS),
    st.sampled_from((*NODES, "nobody")),
    st.integers(0, 9),
    requests,
    holds=holds,
)
# For pods that are there, too: both count.
reservation_changes: SearchStrategy[IndexChange] = st.builds(
    ReservationChange,
    st.sampled_from(("default", "default", "default", "other")),
    st.sampled_from(PODS[:4]),
    st.one_of(held, held, held, st.none()),
)
workloads = st.builds(
    lambda kind, namespace, name, app: Workload(
        kind, namespace, name, match_labels=(("app", app),)
    ),
    st.sampled_from(("Service", "Service", "ReplicationController")),
    st.sampled_from(NAMESPACES),
    st.sampled_from(("w1", "w2")),
    st.sampled_from("ab"),
)
workload_changes: SearchStrategy[IndexChange] = st.builds(
    lambda workload, gone: WorkloadChange(
        workload.kind, workload.namespace, workload.name, None if gone else workload
    ),
    workloads,
    st.sampled_from((False, False, True)),
)
changes = st.one_of(
    *[pod_changes] * 5, *[reservation_changes] * 2, *[node_changes] * 3, workload_changes
)
batches = st.lists(changes, max_size=8)


@dataclass(frozen=True)
class Fold:
    """Changes that are folded at once."""

    changes: list[IndexChange]


@dataclass(frozen=True)
class Keep:
    """Groups that are asked for."""

    groups: list[GroupKey]


@dataclass(frozen=True)
class Read:
    """Somebody reads everything of the newest snapshot."""


@dataclass(frozen=True)
class Hold:
    """Somebody goes on to use the newest snapshot."""


@dataclass(frozen=True)
class LookBack:
    """Those who hold older snapshots read everything of them."""


Step = Fold | Keep | Read | Hold | LookBack

folds = st.builds(Fold, batches)
steps: SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        *[folds] * 4,
        st.builds(Keep, st.lists(st.sampled_from(GROUPS), max_size=4)),
        st.builds(Read),
        st.builds(Hold),
        st.builds(LookBack),
    ),
    min_size=2,
    max_size=16,
)
