"""Inter-pod affinity looks at no pod one by one, and many nominated pods slow no call down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.counting import lines
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, PodChange, PodRow
from topospread.kube.affinity import compile_requirements
from topospread.kube.demands import Demand, Holds
from topospread.kube.objects import HOSTNAME_LABEL, Node, NodeRequirements, Pod
from topospread.kube.pod_affinity import AffinityTerm
from topospread.kube.selectors import selector_from_pairs
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.service.fit.nominated import MOST
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.spread.settings import Rules

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES = 200
PRIORITY = 10


def apart(app: str) -> AffinityTerm:
    """Keeps pods of an app off one another's nodes."""
    return AffinityTerm(selector_from_pairs([("app", app)]), ("default",), HOSTNAME_LABEL)


def question(pods: Iterable[PodChange]) -> FitQuestion:
    """About a pod of the app web beside others; all is counted."""
    builder = Builder()
    names = [f"n{i}" for i in range(NODES)]
    builder.fold(
        NodeChange(name, Node(name, {HOSTNAME_LABEL: name}, allocatable=(("pods", 9999),)))
        for name in names
    )
    builder.fold(pods)
    demand = Demand(anti_affinity=(apart("web"),), affinity=(apart("db"),))
    snapshot = builder.ensure_counted(counted_groups(demand, builder.snapshot.objects))
    anywhere = compile_requirements(NodeRequirements())
    pod = Pod("p", labels={"app": "web"})
    return FitQuestion(snapshot, pod, anywhere, demand, Rules(), "p")


def running(count: int) -> Iterable[PodChange]:
    """Pods of a hundred apps, each of which keeps its own apart."""
    for i in range(count):
        app = f"app-{i % 100}"
        row = PodRow((("app", app),), f"n{i % NODES}", True, (), holds=Holds(terms=(apart(app),)))
        yield PodChange("default", f"pod-{i}", row)


def waiting(count: int) -> Iterable[PodChange]:
    """Pods with a nominated node."""
    for i in range(count):
        row = PodRow((("app", "web"),), f"n{i % NODES}", True, (), holds=Holds(priority=PRIORITY))
        yield PodChange("default", f"pod-{i}", PodRow(row.labels, "", False, nominated=row))


def cost(asked: FitQuestion) -> int:
    """Lines of Python of an answer, where counts have been read before."""
    suited(asked, Fit.ALL)
    return lines(lambda: suited(asked, Fit.ALL))


def test_inter_pod_affinity_looks_at_no_pod_one_by_one() -> None:
    assert cost(question(running(5000))) <= cost(question(running(100))) + 20


def test_nominated_pods_past_the_most_are_named_and_cost_nothing() -> None:
    most, more = question(waiting(MOST)), question(waiting(MOST + 500))
    assert cost(more) <= cost(most) + 100
    assert list(suited(most, Fit.ALL).gaps) == []
    assert list(suited(more, Fit.ALL).gaps) == ["500 more pods with a nominated node"]
