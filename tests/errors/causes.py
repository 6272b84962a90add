"""What each method refuses, and with which reason and path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration

from tests.errors.calls import NAMED, ask
from tests.servers import Peer, incoming, node, pod, two_zones
from topospread.generated.cluster_autoscaler import expander_pb2
from topospread.replica.view import Token
from topospread.store.model import Revision
from topospread_client import pod_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kubernetes
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import inspector_service_pb2 as inspector
from topospread_proto.v1 import placement_service_pb2 as placement
from topospread_proto.v1 import planner_service_pb2 as planner
from topospread_proto.v1 import rebalance_pb2 as rebalance
from topospread_proto.v1 import scenario_pb2 as scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

REQUIRED, INVALID = "FIELD_VALUE_REQUIRED", "FIELD_VALUE_INVALID"
MANY, LONG = "FIELD_VALUE_TOO_MANY", "FIELD_VALUE_TOO_LONG"
UNKNOWN, TWICE, MISSING = (
    "FIELD_VALUE_NOT_SUPPORTED",
    "FIELD_VALUE_DUPLICATE",
    "FIELD_VALUE_NOT_FOUND",
)
STRICT = common.CONSTRAINT_VALIDATION_STRICT
NODES = common.KIND_NODE
NO_VALUE: Any = 99
"""Of any enum."""

SKEW = "spec.topologySpreadConstraints[0].maxSkew"


@dataclass(frozen=True)
class Cause:
    """Why a method does not answer.

    Attributes:
        method: its name.
        reason: that it must give.
        request: of the method, or all messages of a stream; or made of the server's state.
        path: where the request is wrong.
        wrong: how it is.
    """

    method: str
    reason: str
    request: Any
    path: str = ""
    wrong: str = ""

    @property
    def name(self) -> str:
        return f"{self.method}-{self.reason}-{self.path}"


@dataclass
class World:
    """A server of two zones, and what requests need to know of it.

    Attributes:
        strange: a revision of another store.
        table: the id of its node table.
        pages: tokens of second pages, by method.
    """

    peer: Peer
    strange: str
    table: str
    pages: dict[str, str] = field(default_factory=dict)


def bad(path: str, wrong: str, **requests: Any) -> list[Cause]:
    """One field of several methods' requests."""
    return [Cause(name, "INVALID_FIELDS", each, path, wrong) for name, each in requests.items()]


def of_all(reason: str, **requests: Any) -> list[Cause]:
    return [Cause(name, reason, each) for name, each in requests.items()]


def given(name: str = "incoming", **constraint: Any) -> common.PodSource:
    manifest = incoming(**constraint)
    manifest["metadata"]["name"] = name
    return common.PodSource(object=pod_from_manifest(manifest))


def packed(**constraint: Any) -> common.PodSource:
    encoded = pod_from_manifest(incoming(**constraint)).SerializeToString()
    return common.PodSource(object_proto=encoded)


ABSENT = common.PodSource(ref=common.PodReference(name="nobody"))
CROOKED = common.PodSource(ref=common.PodReference(name="crooked"))
"""A pod of the state with a constraint that the API server would refuse."""

GIVEN, WRONG, PACKED = given(), given(maxSkew=0), packed(maxSkew=0)
OLD_TABLE = common.NodeSelection(indices=common.NodeIndices(node_table_id="gone", indices=[0]))
NO_SKEW = kubernetes.TopologySpreadConstraint(
    max_skew=0, topology_key="zone", when_unsatisfiable="ScheduleAnyway"
)
NO_FEED = common.Consistency(
    not_older_than=common.ObservedVersions(
        versions=[common.ResourceVersion(kind=common.KIND_POD, resource_version="5")]
    )
)


BROKEN = common.PodSource(object_proto=b"\xff")
UNREADABLE = kubernetes.LabelSelector(
    match_expressions=[kubernetes.LabelSelectorRequirement(key="app", operator="Like")]
)
SNAKE = {"resourceVersion": "resource_version"}


def greedy() -> common.PodSource:
    """A pod that asks for what is no quantity."""
    asking = pod_from_manifest(incoming())
    container = asking.spec.containers.add(name="c")
    container.resources.requests["cpu"].string = "much"
    return common.PodSource(object_proto=asking.SerializeToString())


def with_metadata(name: str, value: str) -> state.ClusterObject:
    made = node("m", "a")
    setattr(made.node.metadata, SNAKE.get(name, name), value)
    return made


def reference_with(name: str, value: str) -> state.ObjectReference:
    made = state.ObjectReference(kind=NODES, name="m")
    setattr(made, SNAKE.get(name, name), value)
    return made


def indices(world: World, *positions: int) -> common.NodeSelection:
    return common.NodeSelection(
        indices=common.NodeIndices(node_table_id=world.table, indices=positions)
    )


def fresh(revision: str) -> common.Consistency:
    return common.Consistency(at_least_as_fresh=revision)


def replace(*objects: state.ClusterObject, commit: bool = True, **start: Any) -> list[Message]:
    first = state.ReplaceStart(**{"kind": NODES} | start)
    messages: list[Message] = [
        state.ReplaceObjectsRequest(start=first),
        state.ReplaceObjectsRequest(batch=state.ReplaceBatch(objects=objects)),
    ]
    last = state.ReplaceObjectsRequest(commit=state.ReplaceCommit(object_count=len(objects)))
    return [*messages, last] if commit else messages


OF_ONE_POD: dict[str, Callable[..., Message]] = {
    "PreFilter": decision.PreFilterRequest,
    "Filter": decision.FilterRequest,
    "Score": decision.ScoreRequest,
    "EvaluatePod": decision.EvaluatePodRequest,
    "ExplainPod": decision.ExplainPodRequest,
    "PlacePod": placement.PlacePodRequest,
    "ReserveNode": lambda **more: placement.ReserveNodeRequest(node="a1", **more),
}

READING: dict[str, Callable[..., Message]] = {
    **{name: OF_ONE_POD[name] for name in ("PreFilter", "Filter", "Score", "EvaluatePod")},
    "ExplainPod": decision.ExplainPodRequest,
    "BatchEvaluatePods": decision.BatchEvaluatePodsRequest,
    "GetReservation": lambda **more: placement.GetReservationRequest(
        **{"pod": common.PodReference(name="x")} | {k: v for k, v in more.items() if k != "pod"}
    ),
    "GetObject": lambda **more: state.GetObjectRequest(
        kind=NODES, name="a1", **{k: v for k, v in more.items() if k != "pod"}
    ),
    "ListObjects": lambda **more: state.ListObjectsRequest(
        kind=NODES, **{k: v for k, v in more.items() if k != "pod"}
    ),
    "GetNodeTable": lambda **more: state.GetNodeTableRequest(
        **{k: v for k, v in more.items() if k != "pod"}
    ),
    "Simulate": lambda **more: planner.SimulateRequest(
        pods=[scenario.PodsToPlace(pod=GIVEN)], **{k: v for k, v in more.items() if k != "pod"}
    ),
    "RankDeletions": lambda **more: planner.RankDeletionsRequest(
        label_selector=kubernetes.LabelSelector(), **{k: v for k, v in more.items() if k != "pod"}
    ),
    "PlanRebalance": lambda **more: planner.PlanRebalanceRequest(
        **{k: v for k, v in more.items() if k != "pod"}
    ),
    "ListConstraints": lambda **more: inspector.ListConstraintsRequest(
        **{k: v for k, v in more.items() if k != "pod"}
    ),
    "GetConstraint": lambda **more: inspector.GetConstraintRequest(
        constraint_id="x", **{k: v for k, v in more.items() if k != "pod"}
    ),
}
"""Methods that say how fresh the state must be."""


def with_pod(name: str) -> dict[str, Any]:
    if name == "BatchEvaluatePods":
        return {"pods": [GIVEN]}
    return {"pod": GIVEN}


def reading(**more: Any) -> dict[str, Message]:
    return {name: make(**with_pod(name), **more) for name, make in READING.items()}


def in_cluster(cluster: str) -> dict[str, Any]:
    """Requests of all methods about a cluster."""
    found: dict[str, Any] = reading(cluster=cluster)
    found |= {name: make(pod=GIVEN, cluster=cluster) for name, make in OF_ONE_POD.items()}
    return found | {
        "ListReservations": placement.ListReservationsRequest(cluster=cluster),
        "WatchObjects": state.WatchObjectsRequest(cluster=cluster),
        "WatchConstraints": inspector.WatchConstraintsRequest(cluster=cluster),
        "GetCluster": state.GetClusterRequest(cluster=cluster),
    }


CAUSES: list[Cause] = [
    # ------------------------------ the pod that a question is about
    *bad("pod", REQUIRED, **{name: make() for name, make in OF_ONE_POD.items()}),
    *bad("pod.ref.name", REQUIRED, **{
        name: make(pod=common.PodSource(ref=common.PodReference()))
        for name, make in OF_ONE_POD.items()
    }),
    *bad(f"pod.object.{SKEW}", INVALID, **{
        name: make(pod=WRONG, validation=STRICT) for name, make in OF_ONE_POD.items()
    }),
    *bad(f"pod.objectProto.{SKEW}", INVALID, **{
        name: make(pod=PACKED, validation=STRICT) for name, make in OF_ONE_POD.items()
    }),
    *bad("pod.ref", INVALID, **{
        name: make(pod=CROOKED, validation=STRICT) for name, make in OF_ONE_POD.items()
    }),
    *bad("pods[0].pod.ref", INVALID, Simulate=planner.SimulateRequest(
        pods=[scenario.PodsToPlace(pod=CROOKED)], scenario=scenario.Scenario(validation=STRICT),
    )),
    *bad("pod.objectProto", INVALID, **{
        name: make(pod=common.PodSource(object_proto=b"\xff")) for name, make in OF_ONE_POD.items()
    }),
    *bad("validation", UNKNOWN, **{
        name: make(pod=GIVEN, validation=NO_VALUE) for name, make in OF_ONE_POD.items()
    }),
    *bad("settings.profile", MISSING, **{
        name: make(pod=GIVEN, settings=common.Settings(profile="none"))
        for name, make in OF_ONE_POD.items()
    }),
    *bad("settings.featureGates[Unheard]", UNKNOWN, **{
        name: make(pod=GIVEN, settings=common.Settings(feature_gates={"Unheard": True}))
        for name, make in OF_ONE_POD.items()
    }),
    *bad("settings.args.defaultConstraints[0].maxSkew", INVALID, **{
        name: make(pod=GIVEN, settings=common.Settings(args=common.PodTopologySpreadArgs(
            defaulting_type="List",
            default_constraints=[NO_SKEW],
        )))
        for name, make in OF_ONE_POD.items()
    }),
    *of_all("POD_NOT_FOUND", **{name: make(pod=ABSENT) for name, make in OF_ONE_POD.items()}),
    *of_all("POD_NOT_FOUND", Simulate=planner.SimulateRequest(
        pods=[scenario.PodsToPlace(pod=ABSENT)]
    )),
    # ------------------------------ the state
    *of_all("CLUSTER_NOT_FOUND", **in_cluster("nowhere")),
    *bad("cluster", INVALID, **in_cluster("No DNS label")),
    *bad("cluster", INVALID,
         ApplyObjects=state.ApplyObjectsRequest(cluster="A", objects=[node("n", "a")])),
    *bad("start.cluster", INVALID, ReplaceObjects=replace(cluster="A")),
    *bad("cluster", REQUIRED, DeleteCluster=state.DeleteClusterRequest()),
    *bad("consistency.atLeastAsFresh", INVALID, **reading(consistency=fresh("none of ours"))),
    *bad("consistency.minimizeLatency", INVALID, **reading(
        consistency=common.Consistency(minimize_latency=False)
    )),
    *bad("consistency.maxStaleness", INVALID, **reading(
        consistency=common.Consistency(max_staleness=Duration(seconds=-1))
    )),
    *of_all("NO_FEED_PROGRESS", **reading(consistency=NO_FEED)),
    *[
        Cause(name, "REVISION_OF_OTHER_HISTORY",
              lambda world, make=make, name=name: make(
                  **with_pod(name), consistency=fresh(world.strange)))
        for name, make in READING.items()
    ],
    Cause("WatchObjects", "REVISION_OF_OTHER_HISTORY",
          lambda world: state.WatchObjectsRequest(revision=world.strange)),
    # ------------------------------ decisions
    *of_all("CYCLE_EXPIRED", Filter=decision.FilterRequest(cycle="gone"),
            Score=decision.ScoreRequest(cycle="gone")),
    *of_all("NODE_TABLE_CHANGED", **{
        name: OF_ONE_POD[name](pod=GIVEN, candidates=OLD_TABLE)
        for name in ("Filter", "Score", "EvaluatePod", "PlacePod")
    }),
    *bad("addPods", MANY, EvaluatePod=decision.EvaluatePodRequest(
        pod=GIVEN, add_pods=[common.PodOnNode(pod=GIVEN, node="a1")] * 2001
    )),
    *bad("topK", INVALID, EvaluatePod=decision.EvaluatePodRequest(pod=GIVEN, top_k=-1),
         BatchEvaluatePods=decision.BatchEvaluatePodsRequest(pods=[GIVEN], top_k=5000)),
    *bad("pods", MANY, BatchEvaluatePods=decision.BatchEvaluatePodsRequest(pods=[ABSENT] * 1001)),
    *bad("domainLimit", INVALID, ExplainPod=decision.ExplainPodRequest(
        pod=GIVEN, domain_limit=1001
    )),
    *bad("replicaSelector.matchLabels", MANY, ExplainPod=decision.ExplainPodRequest(
        pod=GIVEN,
        replica_selector=kubernetes.LabelSelector(match_labels={f"{n}": "" for n in range(5001)}),
    )),
    *bad("replicaSelector", MANY, ExplainPod=decision.ExplainPodRequest(
        pod=GIVEN,
        replica_selector=kubernetes.LabelSelector(
            match_labels={f"{n}": "" for n in range(3000)},
            match_expressions=[
                kubernetes.LabelSelectorRequirement(key="a", operator="In", values=["b"] * 3000)
            ],
        ),
    )),
    *bad("replicaSelector.matchExpressions[0].operator", INVALID,
         ExplainPod=decision.ExplainPodRequest(
        pod=GIVEN,
        replica_selector=kubernetes.LabelSelector(
            match_expressions=[kubernetes.LabelSelectorRequirement(key="a", operator="Is")]
        ),
    )),
    *bad("fit", UNKNOWN, ExplainPod=decision.ExplainPodRequest(pod=GIVEN, fit=NO_VALUE),
         PlacePod=placement.PlacePodRequest(pod=GIVEN, fit=NO_VALUE)),
    *[
        Cause(name, "INVALID_FIELDS",
              lambda world, name=name: OF_ONE_POD[name](
                  pod=GIVEN, candidates=indices(world, 0, 99)),
              "candidates.indices.indices[1]", INVALID)
        for name in ("Filter", "Score", "EvaluatePod", "PlacePod")
    ],
    *bad("addPods[1].pod.objectProto", INVALID, EvaluatePod=decision.EvaluatePodRequest(
        pod=GIVEN, add_pods=[common.PodOnNode(pod=GIVEN), common.PodOnNode(pod=BROKEN)]
    )),
    *bad("scenario.changes.addPods[0].pod.objectProto.spec.containers[0].resources.requests[cpu]",
         INVALID, Simulate=planner.SimulateRequest(
             pods=[scenario.PodsToPlace(pod=GIVEN)],
             scenario=scenario.Scenario(changes=scenario.SupposedChanges(
                 add_pods=[common.PodOnNode(pod=greedy(), node="a1")]
             )),
         )),
    *bad("candidates", TWICE, EvaluatePod=decision.EvaluatePodRequest(
        pod=GIVEN, candidates=common.NodeSelection(names=common.NodeNames(names=["a1", "a1"]))
    )),
    # ------------------------------ places
    *bad("pod.object.metadata.name", REQUIRED, **{
        name: OF_ONE_POD[name](pod=given("")) for name in ("PlacePod", "ReserveNode")
    }),
    *bad("pod.namespace", INVALID, ReleaseReservation=placement.ReleaseReservationRequest(
        pod=common.PodReference(namespace="a/b", name="c"))),
    *bad("pod.name", INVALID, ReleaseReservation=placement.ReleaseReservationRequest(
        pod=common.PodReference(name="x" * 254))),
    *bad("pod.object.metadata.name", INVALID, **{
        name: OF_ONE_POD[name](pod=given("a/b")) for name in ("PlacePod", "ReserveNode")
    }),
    *bad("reservationTtl", INVALID, **{
        name: OF_ONE_POD[name](pod=GIVEN, reservation_ttl=Duration(seconds=-1))
        for name in ("PlacePod", "ReserveNode")
    }),
    *bad("requestId", LONG, **{
        name: OF_ONE_POD[name](pod=GIVEN, request_id="x" * 37)
        for name in ("PlacePod", "ReserveNode")
    }),
    *bad("node", REQUIRED, ReserveNode=placement.ReserveNodeRequest(pod=GIVEN)),
    *bad("pod.name", REQUIRED, ReleaseReservation=placement.ReleaseReservationRequest(),
         GetReservation=placement.GetReservationRequest()),
    *of_all("OBJECT_NOT_FOUND", GetReservation=placement.GetReservationRequest(
        pod=common.PodReference(name="nobody")
    )),
    # ------------------------------ pages
    *bad("pageSize", INVALID, ListReservations=placement.ListReservationsRequest(page_size=-1),
         ListObjects=state.ListObjectsRequest(kind=NODES, page_size=-1),
         ListClusters=state.ListClustersRequest(page_size=-1)),
    *bad("pageToken", INVALID, ListReservations=placement.ListReservationsRequest(page_token="x"),
         ListObjects=state.ListObjectsRequest(kind=NODES, page_token="x"),
         ListClusters=state.ListClustersRequest(page_token="x")),
    Cause("ListObjects", "PAGE_TOKEN_MISMATCH", lambda world: state.ListObjectsRequest(
        kind=common.KIND_POD, page_token=world.pages["ListObjects"]
    ), "pageToken", INVALID),
    # ------------------------------ objects
    *bad("objects[1]", REQUIRED, ApplyObjects=state.ApplyObjectsRequest(
        objects=[node("n", "a"), state.ClusterObject()]
    )),
    *bad("objects[0].pod.metadata.name", REQUIRED, ApplyObjects=state.ApplyObjectsRequest(
        objects=[state.ClusterObject(pod=kubernetes.Pod())]
    )),
    *[
        cause
        for name, wrong in {"name": "a/b", "resourceVersion": "abc", "uid": "u 1"}.items()
        for cause in (
            *bad(f"objects[1].node.metadata.{name}", INVALID,
                 ApplyObjects=state.ApplyObjectsRequest(
                     objects=[node("n", "a"), with_metadata(name, wrong)])),
            *bad(f"batch.objects[1].node.metadata.{name}", INVALID,
                 ReplaceObjects=replace(node("n", "a"), with_metadata(name, wrong))),
            *bad(f"objects[0].{name}", INVALID,
                 DeleteObjects=state.DeleteObjectsRequest(objects=[reference_with(name, wrong)])),
        )
    ],
    *bad("batch.objects[1]", TWICE, ReplaceObjects=replace(node("n", "a"), node("n", "a"))),
    *bad("batch.objects[0]", INVALID, ReplaceObjects=replace(pod("p", "a1"))),
    *bad("labelSelector.matchExpressions[0].operator", INVALID,
         ListObjects=state.ListObjectsRequest(kind=NODES, label_selector=UNREADABLE),
         ListReservations=placement.ListReservationsRequest(label_selector=UNREADABLE),
         RankDeletions=planner.RankDeletionsRequest(label_selector=UNREADABLE),
         PlanRebalance=planner.PlanRebalanceRequest(label_selector=UNREADABLE)),
    *bad("filters.protectSelector.matchExpressions[0].operator", INVALID,
         PlanRebalance=planner.PlanRebalanceRequest(
             filters=rebalance.EvictionFilters(protect_selector=UNREADABLE))),
    *bad("objects[1]", TWICE,
         ApplyObjects=state.ApplyObjectsRequest(objects=[node("n", "a")] * 2),
         DeleteObjects=state.DeleteObjectsRequest(
             objects=[state.ObjectReference(kind=NODES, name="n")] * 2)),
    *bad("objects", MANY, ApplyObjects=state.ApplyObjectsRequest(
        objects=[node(f"n-{n}", "a") for n in range(501)]
    )),
    *bad("objects[0].kind", UNKNOWN, DeleteObjects=state.DeleteObjectsRequest(
        objects=[state.ObjectReference(name="x")]
    )),
    *bad("start", REQUIRED, ReplaceObjects=replace()[1:]),
    *bad("start.kind", UNKNOWN, ReplaceObjects=replace(kind=0)),
    *bad("start.kinds[1]", UNKNOWN, ReplaceObjects=replace(cluster="new", kinds=[NODES, 7])),
    *bad("start.kinds", REQUIRED, ReplaceObjects=replace(cluster="new", kinds=[common.KIND_POD])),
    *bad("commit.objectCount", INVALID, ReplaceObjects=[
        *replace(node("n", "a"), commit=False),
        state.ReplaceObjectsRequest(commit=state.ReplaceCommit(object_count=2)),
    ]),
    *of_all("REPLACE_INCOMPLETE", ReplaceObjects=replace(node("n", "a"), commit=False)),
    *bad("kind", UNKNOWN, GetObject=state.GetObjectRequest(name="x"),
         ListObjects=state.ListObjectsRequest()),
    *bad("name", REQUIRED, GetObject=state.GetObjectRequest(kind=NODES)),
    *of_all("OBJECT_NOT_FOUND", GetObject=state.GetObjectRequest(kind=NODES, name="none")),
    *bad("kinds[0]", UNKNOWN, WatchObjects=state.WatchObjectsRequest(kinds=[NO_VALUE])),
    *bad("revision", INVALID, WatchObjects=state.WatchObjectsRequest(revision="x")),
    # ------------------------------ plans
    *bad("pods", REQUIRED, Simulate=planner.SimulateRequest()),
    *bad(f"pods[1].pod.object.{SKEW}", INVALID, Simulate=planner.SimulateRequest(
        pods=[scenario.PodsToPlace(pod=GIVEN), scenario.PodsToPlace(pod=WRONG)],
        scenario=scenario.Scenario(validation=STRICT),
    )),
    *bad("scenario.changes.drainNodes[0].node", MISSING, Simulate=planner.SimulateRequest(
        pods=[scenario.PodsToPlace(pod=GIVEN)],
        scenario=scenario.Scenario(changes=scenario.SupposedChanges(drain_nodes=[scenario.DrainedNode(node="x")])),
    )),
    *bad("strategy", UNKNOWN, RankDeletions=planner.RankDeletionsRequest(
        label_selector=kubernetes.LabelSelector(), strategy=NO_VALUE
    )),
    *bad("labelSelector", REQUIRED, RankDeletions=planner.RankDeletionsRequest()),
    *bad("searchTimeout", INVALID, PlanRebalance=planner.PlanRebalanceRequest(
        search_timeout=Duration(seconds=61)
    )),
    *bad("settings.profile", MISSING, PlanRebalance=planner.PlanRebalanceRequest(
        settings=common.Settings(profile="none")
    )),
    # ------------------------------ constraints
    *bad("filter.states[0]", UNKNOWN,
         ListConstraints=inspector.ListConstraintsRequest(
             filter=inspector.ConstraintFilter(states=[NO_VALUE])),
         WatchConstraints=inspector.WatchConstraintsRequest(
             filter=inspector.ConstraintFilter(states=[NO_VALUE]))),
    *bad("filter.labelSelector.matchExpressions[0].operator", INVALID,
         ListConstraints=inspector.ListConstraintsRequest(
             filter=inspector.ConstraintFilter(label_selector=UNREADABLE)),
         WatchConstraints=inspector.WatchConstraintsRequest(
             filter=inspector.ConstraintFilter(label_selector=UNREADABLE))),
    *bad("order", UNKNOWN, ListConstraints=inspector.ListConstraintsRequest(order=NO_VALUE)),
    *bad("pageSize", INVALID, ListConstraints=inspector.ListConstraintsRequest(page_size=-1)),
    *bad("constraintId", REQUIRED, GetConstraint=inspector.GetConstraintRequest()),
    *of_all("OBJECT_NOT_FOUND", GetConstraint=inspector.GetConstraintRequest(constraint_id="x")),
    *bad("podLimit", INVALID, GetConstraint=inspector.GetConstraintRequest(
        constraint_id="x", pod_limit=1001
    )),
    *bad("options", REQUIRED, BestOptions=expander_pb2.BestOptionsRequest()),
    *bad("options[0].nodeGroupId", REQUIRED, BestOptions=expander_pb2.BestOptionsRequest(
        options=[expander_pb2.Option(node_group_id="g")]
    )),
]  # fmt: skip


def make_world(peer: Peer) -> World:
    """Write two zones and a crooked pod to a server."""
    manifest = incoming(maxSkew=0)
    manifest["metadata"]["name"] = "crooked"
    crooked = state.ClusterObject(pod=pod_from_manifest(manifest))
    revision = Token.decode(peer.apply(*two_zones(), crooked))
    strange = Token("another", Revision(revision.revision.number, "tag")).encode()
    table = one_answer(
        peer, "GetNodeTable", state.GetNodeTableResponse, state.GetNodeTableRequest()
    )
    made = World(peer, strange, table.node_table_id)
    page = state.ListObjectsRequest(kind=NODES, page_size=1)
    listed = one_answer(peer, "ListObjects", state.ListObjectsResponse, page)
    made.pages["ListObjects"] = listed.next_page_token
    return made


def one_answer(peer: Peer, name: str, kind: Any, request: Message) -> Any:
    """Call a method by name; its answer."""
    (raw,) = ask(peer.channel, NAMED[name], [request])
    return kind.FromString(raw)


def messages_of(cause: Cause, world: World) -> Sequence[Message]:
    """The requests that are refused for a cause."""
    request = cause.request(world) if callable(cause.request) else cause.request
    return request if isinstance(request, list) else [request]
