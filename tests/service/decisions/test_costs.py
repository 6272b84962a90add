"""What callers may name at will costs nothing for each node, and is not kept."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.counting import lines
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange
from topospread.index.nodes import NodeTable
from topospread.index.snapshot import MAX_PENDING, NO_USAGE, PODS, Counted
from topospread.kube.affinity import compile_requirements
from topospread.kube.demands import Demand
from topospread.kube.objects import (
    HOSTNAME_LABEL,
    LabelSelector,
    Node,
    NodeExpression,
    NodeRequirements,
    NodeTerm,
    Pod,
    SpreadConstraint,
    Taint,
    Toleration,
)
from topospread.kube.selectors import Requirement, Selector
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.spread.constraints import pod_constraints
from topospread.spread.settings import Rules
from topospread.spread.topology import Eligibility

NODES = 400


def _nodes() -> list[Node]:
    return [
        Node(
            f"node-{i}",
            {HOSTNAME_LABEL: f"node-{i}", "rank": str(i), "disk": ("ssd", "hdd")[i % 2]},
            taints=(Taint("dedicated", f"team-{i % 5}", "NoSchedule"),) if i % 3 else (),
            allocatable=(("cpu", 4000), ("pods", 110)),
        )
        for i in range(NODES)
    ]


def _agrees(requirements: NodeRequirements) -> None:
    compiled = compile_requirements(requirements)
    nodes = _nodes()
    mask = NodeTable(0, nodes).mask(Eligibility(requirements=compiled))
    assert mask.tolist() == [compiled.matches(n.name, n.labels) for n in nodes]


@pytest.mark.parametrize(
    ("of", "few", "many"),
    [
        ("nodeSelector", 1, 1000),
        ("keys of terms", 10, 1000),
        ("values", 10, 4000),
        ("names", 10, 1000),
        ("Gt", 10, 1000),
        ("tolerations", 10, 1000),
    ],
)
def test_pod_fields_cost_no_loop_over_nodes_each(of: str, few: int, many: int) -> None:
    def cost(count: int) -> int:
        table = NodeTable(0, _nodes())
        asked = _eligibility(of, count)
        return lines(lambda: table.mask(asked))

    per_thing = (cost(many) - cost(few)) / (many - few)
    assert per_thing < NODES / 4


def _eligibility(of: str, count: int) -> Eligibility:
    if of == "tolerations":
        return Eligibility(
            tolerations=tuple(Toleration(f"key-{i}", "Equal", "v") for i in range(count))
        )
    if of == "nodeSelector":
        selector = tuple((f"key-{i}", "v") for i in range(count))
        return Eligibility(requirements=compile_requirements(NodeRequirements(selector)))
    made = {
        "keys of terms": lambda i: NodeTerm((NodeExpression(f"key-{i}", "Exists"),)),
        "names": lambda i: NodeTerm((), (NodeExpression("metadata.name", "In", (f"node-{i}",)),)),
        "Gt": lambda i: NodeTerm((NodeExpression("rank", "Gt", (str(i),)),)),
    }
    if of == "values":
        values = tuple(f"value-{i}" for i in range(count))
        terms = [NodeTerm((NodeExpression(HOSTNAME_LABEL, "NotIn", values),))]
    else:
        terms = [made[of](i) for i in range(count)]
    return Eligibility(requirements=compile_requirements(NodeRequirements((), tuple(terms))))


def test_masks_of_many_terms_equal_matching_each_node() -> None:
    chosen = random.Random(7)
    keys, operators = (HOSTNAME_LABEL, "rank", "disk", "absent"), ("In", "NotIn", "Gt", "Lt")

    def expression() -> NodeExpression:
        number = chosen.randrange(NODES)
        operator, key = chosen.choice((*operators, "Exists", "DoesNotExist")), chosen.choice(keys)
        if operator in ("Gt", "Lt"):
            return NodeExpression(key, operator, (str(number),))
        values = (f"node-{number}", str(number), "ssd") if operator in operators else ()
        return NodeExpression(key, operator, values)

    for _ in range(60):
        terms = [
            NodeTerm(tuple(expression() for _ in range(chosen.randrange(4))))
            for _ in range(chosen.randrange(1, 6))
        ]
        name = f"node-{chosen.randrange(2 * NODES)}"
        field = NodeExpression(
            chosen.choice(("metadata.name", "metadata.namespace")),
            chosen.choice(("In", "NotIn")),
            (name,),
        )
        selector = tuple((key, "ssd") for key in keys if not chosen.randrange(9))
        alone = NodeTerm((), (field,))
        _agrees(NodeRequirements(selector, (*terms, NodeTerm((expression(),), (field,)))))
        _agrees(NodeRequirements(selector, (alone,)))
        _agrees(NodeRequirements(selector, (NodeTerm((expression(),)),)))


def test_the_masks_of_one_pod_look_at_its_terms_once() -> None:
    """Constraints of a pod differ in their policies, and PlacePod asks for affinity alone."""
    requirements = _eligibility("Gt", 2000).requirements
    every = [
        Eligibility(requirements=requirements),
        Eligibility(keys=("rank",), requirements=requirements),
        Eligibility(keys=("disk",), requirements=requirements, tolerations=()),
        Eligibility(keys=("rank", "disk"), requirements=requirements),
    ]

    def cost(eligibilities: list[Eligibility]) -> int:
        table = NodeTable(0, _nodes())
        return lines(lambda: [table.mask(each) for each in eligibilities * 10])

    assert cost(every) < 1.5 * cost(every[:1])


def test_constraints_do_not_look_at_all_of_a_pods_affinity_each() -> None:
    def cost(constraints: int) -> int:
        terms = tuple(
            NodeTerm((NodeExpression("rank", "NotIn", (str(i), "x")),)) for i in range(1000)
        )
        pod = Pod(
            "p",
            requirements=NodeRequirements((), terms),
            constraints=tuple(
                SpreadConstraint(1, HOSTNAME_LABEL, "DoNotSchedule", LabelSelector(()))
                for _ in range(constraints)
            ),
        )
        table = NodeTable(0, _nodes())

        def judge() -> None:
            made = pod_constraints(pod, Rules(), None)
            for constraint in made.hard.constraints:
                table.membership(constraint.eligibility, HOSTNAME_LABEL)

        judge()  # what is equal to what is kept is looked up, too
        return lines(judge)

    assert cost(64) - cost(1) < 63 * 200


def test_resources_that_no_node_has_cost_no_array_each() -> None:
    builder = Builder()
    builder.fold([NodeChange(node.name, node) for node in _nodes()])
    snapshot = builder.snapshot
    requests = tuple((f"example.com/r{i}", 1) for i in range(1000))
    demand = Demand((("cpu", 100), *requests))
    anywhere = compile_requirements(NodeRequirements())
    suits = suited(FitQuestion(snapshot, Pod("p"), anywhere, demand, Rules()), Fit.ALL)
    assert not suits.nodes[snapshot.alive].any()
    *_, never, resources = suits.rules()
    arrays = {id(refused) for _, refused in (*never.reasons, *resources.reasons)}
    assert len(resources.reasons) == 1002
    assert len(arrays) <= 6  # pods, cpu and all the others, with either code
    before = set(snapshot.usage._made)
    for name, _ in requests:
        snapshot.usage.taken(name, snapshot.nodes.capacity)
    assert set(snapshot.usage._made) == before


def test_resources_of_a_few_pods_have_no_arrays_however_many_they_are() -> None:
    usage = NO_USAGE
    names = (f"example.com/r{i}" for i in range(2 * MAX_PENDING))
    many: dict[tuple[Counted, int], int] = {(name, i % 3): 1 for i, name in enumerate(names)}
    usage = usage.changed({**many, (PODS, 2): 1})
    usage = usage.changed({(PODS, 4): 1})
    assert not usage._base
    assert usage.taken("example.com/r4", 6).tolist() == [0, 1, 0, 0, 0, 0]
    for each in range(MAX_PENDING):
        usage = usage.changed({(PODS, each): 1})
    usage = usage.changed(dict.fromkeys(many, -1)).changed({(PODS, 0): 1})
    usage = usage.changed({(PODS, 0): 1})
    assert set(usage._base) == {PODS}
    assert set(usage._pending) == {PODS}, "what nobody takes any more is forgotten"
    assert int(usage.taken(PODS, MAX_PENDING).sum()) == MAX_PENDING + 4


def test_selectors_of_many_requirements_match_as_each_of_them_does() -> None:
    random = np.random.default_rng(7)
    labels = [{f"k{j}": f"v{random.integers(3)}" for j in range(4)} for _ in range(50)]
    for _ in range(200):
        requirements = tuple(
            Requirement(
                f"k{random.integers(8)}",
                ("In", "NotIn", "Exists", "DoesNotExist")[
                    int(random.choice(4, p=[0.2, 0.3, 0.1, 0.4]))
                ],
                ("v0", "v1"),
            )
            for _ in range(int(random.integers(1, 14)))
        )
        selector = Selector(requirements)
        for each in labels:
            expected = all(r.accepts(each.get(r.key)) for r in requirements)
            assert selector.matches(each) == expected
    many = Selector(tuple(Requirement(f"no{i}", "DoesNotExist") for i in range(4000)))
    assert lines(lambda: many.matches(labels[0])) < 100
