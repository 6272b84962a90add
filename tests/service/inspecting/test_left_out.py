"""Pods that have no rows: those for one node, and those that scheduling gates hold."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tests.service.explaining.cases import SERVICE
from tests.service.inspecting.cases import pod_of
from tests.service.world import CLUSTER, PATIENCE, World, node
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.decisions.request import NO_OVERRIDE
from topospread.service.inspecting import inventory
from topospread.service.inspecting.inspector import Inspector

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from topospread.index.pod_classes import PodClass
    from topospread.kube.demands import Demand
    from topospread.service.decisions.pods import PodShape
    from topospread.service.inspecting.cluster_inspector import Inspection

NODES = 50


def inspected(world: World, inspector: Inspector) -> Inspection:
    """All constraints at the newest state."""
    newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(world.revision))
    return inspector.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))


def daemon(number: int) -> dict[str, Any]:
    """A DaemonSet's pod for one node."""
    name = f"n{number}"
    return pod_of(name, node=name, owner="DaemonSet/agent", only_on=name, constraints=[])


def cluster_of(world: World, pods: Iterable[dict[str, Any]]) -> None:
    """Nodes, a Service that selects the pods, and so default constraints for them."""
    world.apply(SERVICE, *[node(f"n{i}", "abc"[i % 3]) for i in range(NODES)], *pods)


def test_a_daemon_sets_pods_add_no_row_and_nothing_to_count(
    empty_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(inventory.PodTemplate):
        def __post_init__(self) -> None:
            made.append(self.pod)
            super().__post_init__()

    monkeypatch.setattr(inventory, "PodTemplate", Counted)
    daemons = [daemon(number) for number in range(NODES)]
    web = pod_of("web", node="n1", owner="StatefulSet/web", constraints=[])
    cluster_of(empty_world, [*daemons, web])
    inspector = Inspector(empty_world.engine)
    found = inspected(empty_world, inspector)
    assert {each.key.owner.name for each in found.statuses.values()} == {"web"}
    assert len(found.statuses) == 2, "zone and hostname by default"
    assert len(made) == 1
    assert len(found.view.snapshot.groups) == 1
    assert all(each.spread.pods == NODES + 1 for each in found.statuses.values()), (
        "they count for others all the same"
    )


def test_each_of_them_is_read_once(empty_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_of(empty_world, [daemon(number) for number in range(NODES)])
    engine = empty_world.engine
    read: list[PodClass] = []
    template_of = engine.template_of

    def counted(pod_class: PodClass) -> tuple[PodShape, Demand]:
        read.append(pod_class)
        return template_of(pod_class)

    monkeypatch.setattr(engine, "template_of", counted)
    kept = inventory.Inventory(engine, NO_OVERRIDE, 100)
    inspector = Inspector(engine)
    snapshot = inspected(empty_world, inspector).view.snapshot
    read.clear()
    kept.update(snapshot, lambda: None)
    assert len(read) == NODES
    empty_world.apply(daemon(NODES))
    kept.update(inspected(empty_world, inspector).view.snapshot, lambda: None)
    assert len(read) == NODES + 2, "the new one, by the inspector and here"


def test_a_pod_waits_as_soon_as_its_gates_are_gone(empty_world: World) -> None:
    empty_world.apply(node("n1", "a"))
    constraints = [{"key": "zone"}]
    inspector = Inspector(empty_world.engine)
    empty_world.apply(pod_of("p", owner="Job/j", constraints=constraints, gates=["queue"]))
    assert not inspected(empty_world, inspector).statuses
    empty_world.apply(pod_of("p", owner="Job/j", constraints=constraints))
    (row,) = inspected(empty_world, inspector).statuses.values()
    assert row.pending == 1


def test_the_log_names_constraints_that_do_not_parse(
    empty_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]}
    constraints = [{"key": "zone", "labelSelector": odd}]
    pods = [pod_of(f"p{n}", owner="StatefulSet/w", constraints=constraints) for n in range(3)]
    empty_world.apply(node("n1", "a"), *pods)
    with caplog.at_level(logging.DEBUG, logger="topospread.service.inspecting"):
        assert not inspected(empty_world, Inspector(empty_world.engine)).statuses
    (line,) = [each.getMessage() for each in caplog.records if "have no rows" in each.getMessage()]
    assert line.startswith("constraints of default StatefulSet/w have no rows: ")
    assert "Like" in line
