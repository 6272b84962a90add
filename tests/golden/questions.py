"""Questions to every method of a server, about clusters that never change, and its answers.

All that a question says is fixed, so that two servers, or one server in two versions, answer the
same. An answer is recorded below a title; a call that is refused, with its code and details.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import yaml
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from bench.cluster import Size, cluster_objects
from bench.requests import incoming_pods
from tests.errors.calls import API, EXPANDER, OF_EXPANDER
from tests.errors.causes import CAUSES, make_world, messages_of
from tests.golden.answers import failure, plain
from tests.servers import Peer, node, pod, replacement, two_zones
from tests.waiting import PATIENCE
from topospread.generated.cluster_autoscaler import expander_pb2
from topospread_client import object_from_manifest, pod_from_manifest, selector_from_query
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kubernetes
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import deletion_order_pb2 as deletion
from topospread_proto.v1 import inspector_service_pb2 as inspector
from topospread_proto.v1 import placement_service_pb2 as placement
from topospread_proto.v1 import planner_service_pb2 as planner
from topospread_proto.v1 import rebalance_pb2 as rebalance
from topospread_proto.v1 import scenario_pb2 as scenario
from topospread_proto.v1 import server_service_pb2 as server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.protobuf.message import Message

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
SAMPLES: Final = ROOT / "tests" / "samples"

SETTINGS: Final[dict[str, Any]] = {"extender": "filter", "expander_cluster": "sample"}
"""Settings of a server that is asked."""

METHODS: Final = {
    **{method.input_type.full_name: (path, method) for path, method in API.items()},
    OF_EXPANDER.input_type.full_name: (EXPANDER, OF_EXPANDER),
}
"""Path and method by the name of the request: no two methods share one."""

NOW: Final = common.Consistency(fully_consistent=True)
NOON: Final = Timestamp(seconds=1_780_000_000)
HOUR: Final = Duration(seconds=3600)
FITS: Final = (common.FIT_SPREAD_ONLY, common.FIT_NODE, common.FIT_ALL)


class Conversation:
    """Calls to one server, whose answers are recorded.

    Args:
        address: host:port of gRPC.
        http: host:port of HTTP.

    Attributes:
        answers: by part and title.
        asked: the messages of each call.
        peer: what calls the server.
    """

    def __init__(self, address: str, http: str) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self.asked: list[Sequence[Message]] = []
        self._http = http
        self.peer = Peer(address)
        self._part: dict[str, Any] = {}

    def close(self) -> None:
        """End its connection."""
        self.peer.channel.close()

    def begin(self, part: str) -> None:
        """Record what follows as a part of its own."""
        self._part = self.answers.setdefault(part, {})

    def ask(self, title: str, *requests: Message, last: Callable[[Any], bool] | None = None) -> Any:
        """Call the method whose requests these are, and record its answers.

        Args:
            title: tells questions of one method apart.
            requests: several for a method that takes a stream.
            last: the answer after which a watch is ended.

        Returns:
            The last answer as it came; None where there is none.
        """
        path, method = METHODS[requests[0].DESCRIPTOR.full_name]
        name = f"{method.name}: {title}".removesuffix(": ")
        assert name not in self._part, f"two questions have the title {name!r}"
        self.asked.append(requests)
        kind: Any = GetMessageClass(method.output_type)
        stub: Any = self.peer.channel.stream_stream(path)
        call = stub(iter([each.SerializeToString() for each in requests]), timeout=PATIENCE)
        answers = []
        try:
            for raw in call:
                answers.append(kind.FromString(raw))
                if last is not None and last(answers[-1]):
                    call.cancel()
                    break
        except grpc.RpcError as error:
            self._part[name] = failure(error)
            return None
        shown = [plain(kind.FromString(each.SerializeToString())) for each in answers]
        self._part[name] = shown if method.server_streaming else shown[0]
        return answers[-1] if answers else None

    def post(self, title: str, path: str, body: bytes) -> None:
        """Send JSON to HTTP, and record status and body."""
        connection = http.client.HTTPConnection(self._http, timeout=PATIENCE)
        try:
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            self._part[f"{path}: {title}"] = [answer.status, json.loads(answer.read())]
        finally:
            connection.close()


def ask_everything(talk: Conversation) -> None:
    """Ask all that is recorded."""
    talk.begin("sample")
    sample = [*manifests("cluster/*.yaml")]
    fill(talk, "sample", sample)
    pods = {
        path.stem: pod_from_manifest(manifest)
        for path in sorted(EXAMPLES.glob("pods/*.yaml"))
        for manifest in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader)
    }
    for name, given in pods.items():
        decisions(talk, "sample", name, given)
    choices(talk, "sample", pods["fits"])
    inspections(talk, "sample")
    plans(talk, "sample", pods["fits"], "shop", "app=web", "general-eu-central-a-00")
    reads(talk, "sample", ("shop", "web"))
    places(talk, "sample", pods)

    talk.begin("report")
    fill(talk, "report", [*manifests("report/*.yaml")])
    waiting = state.ListObjectsRequest(cluster="report", kind=common.KIND_POD, consistency=NOW)
    listed = talk.ask("pods", waiting)
    for each in listed.objects:
        if not each.pod.spec.node_name:
            name = f"{each.pod.metadata.namespace}/{each.pod.metadata.name}"
            reference(talk, "report", name)
    inspections(talk, "report")
    plans(talk, "report", pods["fits"], "shop", "app=cart", listed.objects[0].pod.spec.node_name)

    talk.begin("large")
    fill(talk, "large", [*cluster_objects(Size(1000, 5000))])
    many = incoming_pods()
    for number, given in enumerate(many):
        given.metadata.name = f"incoming-{number}"
        source = common.PodSource(object=given)
        request = decision.EvaluatePodRequest(cluster="large", pod=source, top_k=10)
        talk.ask(f"{number}", request)
    for number in (0, 4, 8, 12, 17):
        decisions(talk, "large", f"incoming {number}", many[number], top_k=3)
    inspections(talk, "large")
    plans(talk, "large", many[0], "default", "app=app-09", "node-00017")

    talk.begin("methods")
    writes(talk)
    options(talk)
    extender(talk)


def ask_refusals(talk: Conversation) -> None:
    """Ask what each method refuses, with each cause that the tests of errors know."""
    talk.begin("refusals")
    world = make_world(talk.peer)
    seen: Counter[str] = Counter()
    for cause in CAUSES:
        seen[cause.name] += 1
        title = f"{cause.reason} {cause.path} {seen[cause.name]}"
        talk.ask(title, *messages_of(cause, world))


def manifests(pattern: str) -> Iterable[state.ClusterObject]:
    """Return the objects of examples that are stored."""
    for path in sorted(EXAMPLES.glob(pattern)):
        for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            for each in document["items"] if document["kind"] == "List" else [document]:
                if (found := object_from_manifest(each)) is not None:
                    yield found


def fill(talk: Conversation, cluster: str, objects: Sequence[state.ClusterObject]) -> None:
    """Write a cluster, and count what there is."""
    for at in range(0, len(objects), 500):
        talk.peer.apply(*objects[at : at + 500], cluster=cluster)
    talk.ask("", state.GetClusterRequest(cluster=cluster, consistency=NOW))


def decisions(
    talk: Conversation, cluster: str, name: str, given: kubernetes.Pod, top_k: int = 5
) -> None:
    """Ask about one pod as a scheduler does, and why it fits or not."""
    about: Any = {"cluster": cluster, "pod": common.PodSource(object=given)}
    packed = common.PodSource(object_proto=given.SerializeToString())
    talk.ask(f"top of {name}", decision.EvaluatePodRequest(**about, top_k=top_k))
    talk.ask(f"{name} packed", decision.EvaluatePodRequest(cluster=cluster, pod=packed))
    first = talk.ask(name, decision.PreFilterRequest(**about, with_counts=True))
    cycle = first.cycle if first is not None else ""
    talk.ask(name, decision.FilterRequest(**about))
    talk.ask(f"{name}, cycle", decision.FilterRequest(cluster=cluster, cycle=cycle))
    talk.ask(name, decision.ScoreRequest(**about))
    for fit in FITS:
        title = f"{name}, {common.Fit.Name(fit)}"
        talk.ask(title, decision.ExplainPodRequest(**about, fit=fit, domain_limit=10, top_k=2))


def reference(talk: Conversation, cluster: str, name: str) -> None:
    """Ask about a pod of the state."""
    namespace, _, own = name.partition("/")
    source = common.PodSource(ref=common.PodReference(namespace=namespace, name=own))
    talk.ask(name, decision.EvaluatePodRequest(cluster=cluster, pod=source, top_k=3))
    talk.ask(name, decision.ExplainPodRequest(cluster=cluster, pod=source))


def choices(talk: Conversation, cluster: str, given: kubernetes.Pod) -> None:
    """Ask about one pod with each thing that a request may say beside it."""
    source = common.PodSource(object=given)
    about: Any = {"cluster": cluster, "pod": source}
    table = talk.ask("", state.GetNodeTableRequest(cluster=cluster))
    names = table.node_names[::7]
    selections = {
        "names": common.NodeSelection(names=common.NodeNames(names=names)),
        "indices": common.NodeSelection(
            indices=common.NodeIndices(indices=[0, 5, 9], node_table_id=table.node_table_id)
        ),
    }
    for title, candidates in selections.items():
        talk.ask(title, decision.EvaluatePodRequest(**about, candidates=candidates))
        talk.ask(title, decision.FilterRequest(**about, candidates=candidates))
        talk.ask(title, decision.ScoreRequest(**about, candidates=candidates))
    own_names = decision.FilterRequest(**about, node_table_id=table.node_table_id)
    talk.ask("by table", own_names)
    there = [common.PodOnNode(pod=source, node=each) for each in names]
    gone = [
        common.PodOnNode(
            pod=common.PodSource(ref=common.PodReference(namespace="shop", name=each)),
            node=where,
        )
        for each, where in _running(talk, cluster)
    ]
    talk.ask("with more pods", decision.EvaluatePodRequest(**about, add_pods=there))
    talk.ask("with fewer pods", decision.EvaluatePodRequest(**about, remove_pods=gone))
    for title, chosen in {
        "system defaults": common.Settings(
            args=common.PodTopologySpreadArgs(defaulting_type="System")
        ),
        "own defaults": common.Settings(
            args=common.PodTopologySpreadArgs(
                defaulting_type="List",
                default_constraints=[
                    kubernetes.TopologySpreadConstraint(
                        max_skew=1,
                        topology_key="example.com/rack",
                        when_unsatisfiable="DoNotSchedule",
                    )
                ],
            )
        ),
        "gates": common.Settings(feature_gates={"MatchLabelKeysInPodTopologySpread": False}),
    }.items():
        talk.ask(title, decision.EvaluatePodRequest(**about, settings=chosen))
        plainly = kubernetes.Pod(metadata=given.metadata)
        talk.ask(
            f"{title}, no constraints",
            decision.EvaluatePodRequest(
                cluster=cluster, pod=common.PodSource(object=plainly), settings=chosen
            ),
        )
    several = [source, common.PodSource(ref=common.PodReference(name="nobody")), source]
    talk.ask("", decision.BatchEvaluatePodsRequest(cluster=cluster, pods=several, top_k=2))


def _running(talk: Conversation, cluster: str) -> list[tuple[str, str]]:
    request = state.ListObjectsRequest(
        cluster=cluster, kind=common.KIND_POD, namespace="shop",
        label_selector=selector_from_query("app=web"), page_size=3,
    )  # fmt: skip
    listed = talk.ask("some pods", request)
    return [(each.pod.metadata.name, each.pod.spec.node_name) for each in listed.objects]


def inspections(talk: Conversation, cluster: str) -> None:
    """Ask about the constraints of a cluster."""
    listed = talk.ask("", inspector.ListConstraintsRequest(cluster=cluster, consistency=NOW))
    by_name = inspector.CONSTRAINT_ORDER_NAME
    request = inspector.ListConstraintsRequest(
        cluster=cluster, order=by_name, page_size=3, domain_limit=2
    )
    talk.ask("by name", request)
    hard = inspector.ConstraintFilter(
        namespace="shop", when_unsatisfiable="DoNotSchedule",
        states=[inspector.SPREAD_STATE_VIOLATED, inspector.SPREAD_STATE_BLOCKED],
    )  # fmt: skip
    talk.ask("hard", inspector.ListConstraintsRequest(cluster=cluster, filter=hard))
    for each in listed.constraints[:3]:
        one = inspector.GetConstraintRequest(
            cluster=cluster, constraint_id=each.constraint_id, node_limit=3, pod_limit=3
        )
        talk.ask(each.constraint_id, one)
    watch = inspector.WatchConstraintsRequest(cluster=cluster, filter=hard)
    talk.ask("", watch, last=lambda answer: not answer.partial)


def plans(
    talk: Conversation,
    cluster: str,
    given: kubernetes.Pod,
    namespace: str,
    query: str,
    drained: str,
) -> None:
    """Ask the planner."""
    selector = selector_from_query(query)
    source = common.PodSource(object=given)
    replicas = scenario.PodsToPlace(pod=source, replicas=12)
    template = kubernetes.Node(
        metadata=kubernetes.ObjectMeta(
            name="grown", labels={"topology.kubernetes.io/zone": "eu-central-f"}
        )
    )
    template.status.allocatable["cpu"].string = "8"
    template.status.allocatable["memory"].string = "32Gi"
    template.status.allocatable["pods"].string = "110"
    group = scenario.NodeGroup(name="grown", template=template, node_count=2)
    drain = scenario.DrainedNode(node=drained)
    looser = scenario.ConstraintChange(
        match=scenario.ConstraintMatch(
            topology_key="topology.kubernetes.io/zone", when_unsatisfiable="DoNotSchedule"
        ),
        set=scenario.ConstraintValues(max_skew=9),
    )
    for title, changes in {
        "as it is": scenario.SupposedChanges(),
        "more nodes": scenario.SupposedChanges(add_node_groups=[group]),
        "drained": scenario.SupposedChanges(drain_nodes=[drain]),
        "looser": scenario.SupposedChanges(constraint_changes=[looser]),
    }.items():
        for fit in FITS[::2]:
            changed = scenario.Scenario(changes=changes, fit=fit)
            request = planner.SimulateRequest(cluster=cluster, pods=[replicas], scenario=changed)
            talk.ask(f"{title}, {common.Fit.Name(fit)}", request)
    away = scenario.Scenario(changes=scenario.SupposedChanges(drain_nodes=[drain]))
    again = planner.SimulateRequest(cluster=cluster, scenario=away, reschedule=True)
    talk.ask("rescheduled", again)
    open_group = scenario.NodeGroup(name="grown", template=template)
    grown = scenario.Scenario(changes=scenario.SupposedChanges(add_node_groups=[open_group]))
    fewest = planner.SimulateRequest(
        cluster=cluster, pods=[replicas], scenario=grown, find_fewest_nodes=True
    )
    talk.ask("fewest nodes", fewest)
    for strategy in deletion.RankStrategy.values():
        ranked = planner.RankDeletionsRequest(
            cluster=cluster, namespace=namespace, label_selector=selector, delete_count=5,
            strategy=strategy, evaluation_time=NOON,
        )  # fmt: skip
        talk.ask(deletion.RankStrategy.Name(strategy), ranked)
    limits = rebalance.EvictionLimits(max_evictions=1)
    chosen: dict[str, dict[str, Any]] = {
        "": {},
        "soft": {"include_soft": True},
        "limited": {"include_soft": True, "eviction_limits": limits},
        "bare": {"filters": rebalance.EvictionFilters(evict_bare_pods=True)},
    }
    for title, more in chosen.items():
        asked: Any = {"namespace": namespace, "label_selector": selector, **more}
        talk.ask(title, planner.PlanRebalanceRequest(cluster=cluster, **asked))


def reads(talk: Conversation, cluster: str, workload: tuple[str, str]) -> None:
    """Read the state."""
    namespace, name = workload
    for kind in (common.KIND_NODE, common.KIND_REPLICA_SET, common.KIND_SERVICE):
        request = state.ListObjectsRequest(cluster=cluster, kind=kind, page_size=2)
        title = common.Kind.Name(kind)
        listed = talk.ask(title, request)
        if listed.next_page_token:
            request.page_token = listed.next_page_token
            talk.ask(f"{title}, second page", request)
    one = state.GetObjectRequest(
        cluster=cluster, kind=common.KIND_SERVICE, namespace=namespace, name=name
    )
    talk.ask("", one)
    watched = state.WatchObjectsRequest(
        cluster=cluster, kinds=[common.KIND_SERVICE, common.KIND_STATEFUL_SET], send_initial=True
    )
    talk.ask("initial", watched, last=bookmarked)


def bookmarked(answer: Any) -> bool:
    """Whether a watch has told all that there was."""
    return any(each.type == state.WATCH_EVENT_TYPE_BOOKMARK for each in answer.events)


def places(talk: Conversation, cluster: str, pods: dict[str, kubernetes.Pod]) -> None:
    """Hold places, read and give them back."""
    for name, template in pods.items():
        given = kubernetes.Pod.FromString(template.SerializeToString())
        given.metadata.name = name
        source = common.PodSource(object=given)
        for fit in FITS:
            place = placement.PlacePodRequest(
                cluster=cluster, pod=source, fit=fit, reservation_ttl=HOUR
            )
            talk.ask(f"{name}, {common.Fit.Name(fit)}", place)
    given = pods["fits"]
    reference = common.PodReference(namespace=given.metadata.namespace, name=given.metadata.name)
    fixed = placement.ReserveNodeRequest(
        cluster=cluster, pod=common.PodSource(object=given), node="general-eu-central-d-01",
        reservation_ttl=HOUR,
    )  # fmt: skip
    talk.ask("", fixed)
    fixed.node = "nowhere"
    talk.ask("no such node", fixed)
    held: Any = {"cluster": cluster, "consistency": NOW}
    talk.ask("", placement.GetReservationRequest(pod=reference, **held))
    talk.ask("", placement.ListReservationsRequest(**held))
    free = placement.ReleaseReservationRequest(cluster=cluster, pod=reference)
    talk.ask("", free)
    talk.ask("again", free)
    talk.ask("none", placement.ListReservationsRequest(**held, namespace="elsewhere"))


def writes(talk: Conversation) -> None:
    """Change a small cluster in each way, and follow it."""
    about: Any = {"cluster": "small"}
    first = talk.ask("two zones", state.ApplyObjectsRequest(**about, objects=two_zones()))
    begun = first.meta.revision
    moved = pod("web-0", "b1")
    talk.ask("moved", state.ApplyObjectsRequest(**about, objects=[moved, node("c1", "c")]))
    talk.ask("unchanged", state.ApplyObjectsRequest(**about, objects=[moved]))
    versioned = node("v1", "c")
    versioned.node.metadata.resource_version = "5"
    talk.ask("version 5", state.ApplyObjectsRequest(**about, objects=[versioned]))
    versioned.node.metadata.resource_version = "4"
    talk.ask("version 4", state.ApplyObjectsRequest(**about, objects=[versioned]))
    talk.ask("forced", state.ApplyObjectsRequest(**about, objects=[versioned], force=True))
    gone = [
        state.ObjectReference(kind=common.KIND_POD, namespace="default", name=name)
        for name in ("web-1", "nobody")
    ]
    talk.ask("", state.DeleteObjectsRequest(**about, objects=gone))
    nodes = [node("a1", "a"), node("d1", "d")]
    replaced = talk.ask("", *replacement(*nodes, **about, kind=common.KIND_NODE))
    latest = replaced.meta.revision
    followed = state.WatchObjectsRequest(**about, revision=begun)
    talk.ask("followed", followed, last=lambda answer: answer.meta.revision == latest)
    talk.ask("", state.GetClusterRequest(**about, consistency=NOW))
    talk.ask("afterwards", inspector.ListConstraintsRequest(**about, consistency=NOW))
    talk.ask("", state.DeleteClusterRequest(**about))
    talk.ask("gone", state.GetClusterRequest(**about))
    talk.ask("", state.ListClustersRequest())
    talk.ask("", server.GetServerInfoRequest())


def options(talk: Conversation) -> None:
    """Ask as a cluster-autoscaler does."""
    sent = (SAMPLES / "expander-request-real-ca.bin").read_bytes()
    talk.ask("", expander_pb2.BestOptionsRequest.FromString(sent))


def extender(talk: Conversation) -> None:
    """Ask as a kube-scheduler with an extender does."""
    sent = json.loads((SAMPLES / "extender-full-filter.raw").read_bytes())
    nodes = [object_from_manifest({"kind": "Node", **each}) for each in sent["Nodes"]["items"]]
    talk.peer.apply(*filter(None, nodes), cluster="extended")
    for path in sorted(SAMPLES.glob("extender-*.raw")):
        verb = path.stem.rpartition("-")[2]
        talk.post(path.stem, f"/extender/v1/{verb}?cluster=extended", path.read_bytes())
