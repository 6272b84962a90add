"""Which constraints are in force: changes, profiles, what is left out, and too many of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance.objects import object_of
from tests.errors.error_status import error_status
from tests.servers import Peer, served
from tests.service.explaining.cases import SERVICE
from tests.service.inspecting.cases import pod_of
from tests.service.world import CLUSTER, PATIENCE, World, node
from topospread.errors import TooLarge
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.decisions.request import NO_OVERRIDE
from topospread.service.inspecting import cluster_inspector, inventory
from topospread.service.inspecting.inspector import Inspector
from topospread.service.inspecting.judging import count, judge
from topospread.spread.settings import DEFAULT_PROFILE, ConfiguredRules, Profile
from topospread.store.model import Kind
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread.index.pod_classes import PodClass
    from topospread.kube.demands import Demand
    from topospread.service.decisions.pods import PodShape
    from topospread.service.inspecting.cluster_inspector import Inspection


def pod_of_app(app: str, number: int) -> dict[str, Any]:
    """A pod of a workload whose constraint counts its own pods."""
    return pod_of(
        f"{app}-{number}",
        node="n1",
        owner=f"StatefulSet/{app}",
        labels={"app": app},
        constraints=[{"key": "zone", "labels": {"app": app}}],
    )


def test_others_of_the_namespace_are_not_judged_again(
    empty_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def judging(key: Any, *rest: Any) -> Any:
        judged.append(key.owner.name)
        return judge(key, *rest)

    monkeypatch.setattr(cluster_inspector, "judge", judging)
    looks_at = Inspector(empty_world.engine)

    def inspected() -> Inspection:
        newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(empty_world.revision))
        return looks_at.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))

    empty_world.apply(node("n1", "a"), *(pod_of_app(app, 0) for app in "abcd"))
    first = inspected()
    assert sorted(judged) == ["a", "b", "c", "d"]
    judged.clear()
    empty_world.apply(pod_of_app("b", 1))
    second = inspected()
    assert judged == ["b"]
    assert {each.key.owner.name: each.bound for each in second.statuses.values()} == {
        "a": 1,
        "b": 2,
        "c": 1,
        "d": 1,
    }
    assert first.statuses != second.statuses


def test_new_defaults_are_in_force_at_once(three_zones: World) -> None:
    three_zones.apply(SERVICE)
    inspector = Inspector(three_zones.engine)
    newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(three_zones.revision))

    def keys() -> set[str]:
        found = inspector.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))
        return {each.key.constraint.topology_key for each in found.statuses.values()}

    assert keys() == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    none = Profile(DEFAULT_PROFILE, "List")
    three_zones.process.rules.replace(ConfiguredRules({DEFAULT_PROFILE: none}))
    assert keys() == set()


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
    (held,) = inspected(empty_world, inspector).statuses.values()
    assert (held.gated, held.pending, held.blocked) == (1, 0, 0)
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


MOST = 4

CALLS: dict[str, Callable[[Peer], Any]] = {
    "ListConstraints": lambda peer: peer.inspector.ListConstraints(
        pb.ListConstraintsRequest(consistency=common_pb2.Consistency(fully_consistent=True)),
        timeout=PATIENCE,
    ),
    "GetConstraint": lambda peer: peer.inspector.GetConstraint(
        pb.GetConstraintRequest(constraint_id="some"), timeout=PATIENCE
    ),
    "WatchConstraints": lambda peer: next(
        peer.inspector.WatchConstraints(pb.WatchConstraintsRequest(), timeout=PATIENCE)
    ),
}


def owned(count: int) -> list[dict[str, Any]]:
    """A node, and so many workloads in two namespaces, each with one constraint."""
    pods = [
        pod_of("p", node="n1", owner=f"StatefulSet/w{number}", constraints=[{"key": "zone"}])
        for number in range(count)
    ]
    for number, each in enumerate(pods):
        each["metadata"] |= {"name": f"p{number}", "namespace": f"ns-{number % 2}"}
    return [node("n1", "a"), *pods]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_too_many_are_refused_and_not_shown_in_part(call: Callable[[Peer], Any]) -> None:
    with served(max_cluster_constraints=MOST) as server, Peer(server.address) as peer:
        objects = [object_of(each) for each in owned(MOST + 1)]
        peer.state.ApplyObjects(state.ApplyObjectsRequest(objects=objects), timeout=PATIENCE)
        with pytest.raises(grpc.RpcError) as refused:
            call(peer)
        found = error_status(refused.value)
        assert found.status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        (limit,) = found.details["QuotaFailure"].violations
        assert (limit.subject, limit.quota_value) == ("--max-cluster-constraints", MOST)
        assert "raise --max-cluster-constraints" in found.status.message


def test_none_is_counted_where_there_are_too_many(
    empty_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def counting(key: Any, snapshot: Any) -> Any:
        counted.append(key)
        return count(key, snapshot)

    monkeypatch.setattr("topospread.service.inspecting.cluster_inspector.count", counting)
    looks_at = Inspector(empty_world.engine, MOST)

    def inspected() -> Inspection:
        newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(empty_world.revision))
        return looks_at.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))

    empty_world.apply(*owned(MOST + 1))
    with pytest.raises(TooLarge):
        inspected()
    assert not counted
    empty_world.delete(Kind.POD, "p0", "ns-0")
    assert len(inspected().statuses) == len(counted) == MOST
