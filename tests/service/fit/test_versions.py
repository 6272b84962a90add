"""What 1.36 answers otherwise than 1.37."""

from __future__ import annotations

import pytest

from topospread.cli.render.explanation import fitting_text
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, VersionChange
from topospread.kube.affinity import compile_requirements
from topospread.kube.demands import Demand
from topospread.kube.objects import Node, NodeRequirements, Pod
from topospread.kube.versions import KubernetesVersion
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.spread.settings import NEWEST, OTHER_FIT, Rules, known_version

NARROWED = "node(s) didn't satisfy plugin(s) [NodeName]"
REFUSED = "node(s) didn't match the requested node name"
CORDONED = "node(s) were unschedulable"


@pytest.mark.parametrize(
    ("minor", "reasons", "gaps"),
    [
        (36, {REFUSED: 1, CORDONED: 1}, ["what differs in fit before 1.37"]),
        (37, {NARROWED: 2}, []),
        # The newest is what a cluster is judged by that says nothing.
        (38, {NARROWED: 2}, []),
    ],
)
def test_a_named_node_refuses_the_others(
    minor: int, reasons: dict[str, int], gaps: list[str]
) -> None:
    builder = Builder()
    nodes = [
        Node(name, {}, unschedulable=name == "b", allocatable=(("pods", 9),)) for name in "abc"
    ]
    builder.fold([NodeChange(node.name, node) for node in nodes])
    rules = Rules(version=KubernetesVersion(1, minor))
    anywhere = compile_requirements(NodeRequirements())
    asked = FitQuestion(builder.snapshot, Pod("p"), anywhere, Demand(node_name="a"), rules)
    suits = suited(asked, Fit.ALL)
    assert suits.reasons(builder.snapshot.nodes.order)[0] == reasons
    assert list(suits.gaps) == gaps
    found = suits.nodes & builder.snapshot.alive
    assert found.nonzero()[0].tolist() == [builder.snapshot.slot("a")]


@pytest.mark.parametrize(
    ("reported", "judged", "gap"),
    [
        (None, NEWEST, ""),
        (None, KubernetesVersion(1, 37), ""),
        (None, KubernetesVersion(1, 36), "what differs in fit before 1.37"),
        (KubernetesVersion(1, 35), None, "what differs in fit before 1.37"),
        (KubernetesVersion(1, 37), None, ""),
        (KubernetesVersion(1, 37), NEWEST, "what differs in fit since 1.37"),
        (KubernetesVersion(1, 38), None, "what differs in fit since 1.37"),
        (KubernetesVersion(1, 39), None, "what differs in fit since 1.37"),
    ],
)
def test_another_version_than_that_of_fit_is_named(
    reported: KubernetesVersion | None, judged: KubernetesVersion | None, gap: str
) -> None:
    builder = Builder()
    builder.fold([VersionChange(reported), NodeChange("a", Node("a", allocatable=(("pods", 9),)))])
    rules = Rules(version=judged or known_version(reported or NEWEST))
    anywhere = compile_requirements(NodeRequirements())
    asked = FitQuestion(builder.snapshot, Pod("p"), anywhere, Demand(), rules)
    assert list(suited(asked, Fit.ALL).gaps) == [gap] * bool(gap)
    assert list(suited(asked, Fit.SPREAD_ONLY).gaps).count(gap) == 0


@pytest.mark.parametrize(
    ("nodes", "gaps", "text"),
    [
        (2, (), "1 of 2 nodes"),
        (1, (), "1 of 1 node"),
        (2, OTHER_FIT[:1], "1 of 2 nodes"),
        (2, OTHER_FIT[1:], "1 of 2 nodes"),
        (2, ("preemption: 1 pod of lower priority stands on nodes",), "1 of 2 nodes"),
        (2, (*OTHER_FIT[:1], "extender x"), "at most 1 of 2 nodes"),
    ],
)
def test_gaps_that_could_refuse_make_it_at_most(
    nodes: int, gaps: tuple[str, ...], text: str
) -> None:
    assert fitting_text(1, nodes, gaps) == text
