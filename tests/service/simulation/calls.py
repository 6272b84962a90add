"""Ask a world to simulate, by way of requests and answers, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.in_process import call_of
from tests.service.world import CLUSTER
from topospread.api.planner import PlannerServicer
from topospread.calls.call import NO_SPAN
from topospread.errors import InvalidRequest
from topospread.kube.violations import Problems
from topospread.service.ranking.rank import DeletionRanker
from topospread.service.rebalancing.plan import RebalancePlanner
from topospread.service.simulation.request import checked
from topospread.service.simulation.scenario import ScenarioBuilder
from topospread_client import object_from_manifest, pod_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import common_pb2, planner_service_pb2, scenario_pb2
from topospread_proto.v1.scenario_pb2 import NodeGroup, PodsToPlace, SupposedChanges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.service.world import World
    from topospread.service.simulation.scenario import Scenario
    from topospread_proto.v1.planner_service_pb2 import SimulateRequest, SimulateResponse

Json = dict[str, Any]


def simulation(world: World, **arguments: Any) -> SimulateResponse:
    """What a caller gets to see; arguments as for :func:`request_of`."""
    return answered(world, request_of(**arguments))


def answered(world: World, request: SimulateRequest, seconds: float = 30.0) -> SimulateResponse:
    """The answer to a request."""
    if not request.HasField("consistency"):
        request.consistency.at_least_as_fresh = world.revision
    process = world.process
    planner = PlannerServicer(
        ScenarioBuilder(world.engine, world.store),
        DeletionRanker(world.store, process.replicas, process.rules),
        RebalancePlanner(world.store, world.engine),
    )
    call = call_of(NO_SPAN, seconds)
    with call.computation():
        return planner.simulate(request, call)


def scenario_of(world: World, **arguments: Any) -> Scenario | None:
    """The checked question; None when no pod could go to one of its templates."""
    try:
        question = checked(request_of(**arguments), world.ask(), None, Problems())
        return ScenarioBuilder(world.engine, world.store).make(question)
    except InvalidRequest as refused:
        if "no pod could go to these nodes" not in str(refused):
            raise
        return None


# ------------------------------ requests


def request_of(
    pods: Any = (),
    *,
    replicas: int | None = None,
    add_node_groups: Iterable[NodeGroup] = (),
    drain_nodes: Iterable[str] = (),
    taint_nodes: Iterable[str] = (),
    add_pods: Iterable[tuple[Json | kube.Pod, str]] = (),
    delete_pods: Iterable[str] = (),
    constraint_changes: Iterable[scenario_pb2.ConstraintChange] = (),
    find_fewest_nodes: bool = False,
    reschedule: bool = False,
    consistency: common_pb2.Consistency | None = None,
    **scenario: Any,
) -> SimulateRequest:
    """A request.

    Args:
        pods: one or several, each as for :func:`to_place` or such a message.
        replicas: of each that is no message.
        add_node_groups: as in the request.
        drain_nodes: nodes that are gone.
        taint_nodes: nodes that are emptied and stay.
        add_pods: pods and their nodes.
        delete_pods: as ``namespace/name``.
        constraint_changes: as in the request.
        find_fewest_nodes: as in the request.
        reschedule: as in the request.
        consistency: absent: at least the world's newest write.
        scenario: its other fields.
    """
    several = pods if isinstance(pods, list | tuple) else [pods]
    drained = [(name, scenario_pb2.DRAIN_MODE_GONE) for name in drain_nodes]
    drained += [(name, scenario_pb2.DRAIN_MODE_TAINTED) for name in taint_nodes]
    return planner_service_pb2.SimulateRequest(
        cluster=CLUSTER,
        pods=[
            each if isinstance(each, PodsToPlace) else to_place(each, replicas) for each in several
        ],
        scenario=scenario_pb2.Scenario(
            changes=SupposedChanges(
                add_node_groups=add_node_groups,
                drain_nodes=[
                    scenario_pb2.DrainedNode(node=name, mode=mode) for name, mode in drained
                ],
                add_pods=[
                    common_pb2.PodOnNode(pod=common_pb2.PodSource(object=_pod(pod)), node=node)
                    for pod, node in add_pods
                ],
                delete_pods=map(reference, delete_pods),
                constraint_changes=constraint_changes,
            ),
            **scenario,
        ),
        find_fewest_nodes=find_fewest_nodes,
        reschedule=reschedule,
        consistency=consistency,
    )


def to_place(pod: Json | kube.Pod | str, replicas: int | None = None) -> PodsToPlace:
    """Pods of a manifest or message, or a pod of the state as ``namespace/name``."""
    if isinstance(pod, str):
        source = common_pb2.PodSource(ref=reference(pod))
    else:
        source = common_pb2.PodSource(object=_pod(pod))
    return PodsToPlace(pod=source, replicas=replicas)


def node_group(
    template: Json | kube.Node,
    node_count: int | None = None,
    zones: Iterable[Mapping[str, str]] = (),
) -> NodeGroup:
    """Nodes of a manifest or message, that take labels in turn."""
    node = template if isinstance(template, kube.Node) else _node(template)
    variants = [scenario_pb2.NodeLabels(labels=labels) for labels in zones]
    return NodeGroup(template=node, node_count=node_count, variants=variants)


def change_of(
    topology_key: str, action: str = "", *, clear_min_domains: bool = False, **values: Any
) -> scenario_pb2.ConstraintChange:
    """Other values for the constraints with a key and, if given, an action."""
    return scenario_pb2.ConstraintChange(
        match=scenario_pb2.ConstraintMatch(topology_key=topology_key, when_unsatisfiable=action),
        set=scenario_pb2.ConstraintValues(**values),
        clear_min_domains=clear_min_domains,
    )


def reference(name: str) -> common_pb2.PodReference:
    """A pod of the state, from ``namespace/name``."""
    namespace, _, own = name.rpartition("/")
    return common_pb2.PodReference(namespace=namespace, name=own)


def _pod(pod: Json | kube.Pod) -> kube.Pod:
    return pod if isinstance(pod, kube.Pod) else pod_from_manifest(pod)


def _node(manifest: Json) -> kube.Node:
    made = object_from_manifest(manifest)
    assert made is not None
    return made.node
