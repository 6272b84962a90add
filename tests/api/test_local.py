"""A cluster in this process answers as a server does: with what was recorded of one."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from google.protobuf.message_factory import GetMessageClass

from bench.cluster import Size, cluster_objects
from bench.requests import incoming_pods
from tests.errors.calls import API, NAMED
from tests.errors.causes import CAUSES, NODES, World, messages_of
from tests.golden import questions
from tests.golden.answers import plain, status_form
from tests.golden.questions import EXAMPLES, METHODS, Conversation, manifests
from tests.golden.recorded import difference, read
from tests.servers import evaluate_request, incoming, node, pod, two_zones
from topospread.api.local import LocalApi, local_api
from topospread.calls.status import status_of
from topospread.codec.stored import stored
from topospread.errors import (
    DeadlineExceeded,
    MethodNotServed,
    RevisionUnavailable,
    TopospreadError,
)
from topospread.replica.view import Token
from topospread.spread.settings import DEFAULT_RULES
from topospread.store.model import Key, Kind, Put, Remove, Revision
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import inspector_service_pb2 as inspector
from topospread_proto.v1 import placement_service_pb2 as placement
from topospread_proto.v1 import server_service_pb2 as server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from google.protobuf.message import Message

WRITING = {
    "ApplyObjects", "DeleteObjects", "ReplaceObjects", "DeleteCluster",
    "PlacePod", "ReserveNode", "ReleaseReservation",
}  # fmt: skip


def loaded(objects: Iterable[state.ClusterObject], cluster: str = "default") -> LocalApi:
    return local_api([stored(each) for each in objects], DEFAULT_RULES, cluster)


class LocalConversation(Conversation):
    """Calls to a cluster in this process, recorded as those to a server are."""

    def __init__(self, api: LocalApi) -> None:
        self.api = api
        self.answers = {}
        self._part = {}

    def ask(self, title: str, *requests: Message, last: Callable[[Any], bool] | None = None) -> Any:
        (request,) = requests
        _, method = METHODS[request.DESCRIPTOR.full_name]
        name = f"{method.name}: {title}".removesuffix(": ")
        answers = []
        try:
            if method.server_streaming:
                for answer in self.api.stream(method.name, request):
                    answers.append(answer)
                    if last is not None and last(answer):
                        break
            else:
                answers.append(self.api.call(method.name, request, timeout=60.0))
        except TopospreadError as error:
            self._part[name] = refusal(error)
            return None
        kind: Any = GetMessageClass(method.output_type)
        shown = [plain(kind.FromString(each.SerializeToString())) for each in answers]
        self._part[name] = shown if method.server_streaming else shown[0]
        return answers[-1]


def refusal(error: TopospreadError) -> dict[str, Any]:
    return {"code": error.code, **status_form(status_of(error))}


def sample() -> LocalConversation:
    talk = LocalConversation(loaded(manifests("cluster/*.yaml"), "sample"))
    talk.begin("sample")
    pods = {
        path.stem: pod_from_manifest(manifest)
        for path in sorted(EXAMPLES.glob("pods/*.yaml"))
        for manifest in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader)
    }
    talk.ask("", state.GetClusterRequest(cluster="sample", consistency=questions.NOW))
    for name, given in pods.items():
        questions.decisions(talk, "sample", name, given)
    questions.choices(talk, "sample", pods["fits"])
    questions.inspections(talk, "sample")
    questions.plans(talk, "sample", pods["fits"], "shop", "app=web", "general-eu-central-a-00")
    questions.reads(talk, "sample", ("shop", "web"))
    return talk


def large() -> LocalConversation:
    talk = LocalConversation(loaded(cluster_objects(Size(1000, 5000)), "large"))
    talk.begin("large")
    many = incoming_pods()
    for number, given in enumerate(many):
        given.metadata.name = f"incoming-{number}"
    questions.decisions(talk, "large", "incoming 4", many[4], top_k=3)
    questions.inspections(talk, "large")
    questions.plans(talk, "large", many[0], "default", "app=app-09", "node-00017")
    return talk


@pytest.mark.parametrize("conversation", [sample, large])
def test_answers_are_those_of_a_server(conversation):
    talk = conversation()
    ((part, answers),) = talk.answers.items()
    assert len(answers) > 20
    recorded = {title: answer for title, answer in read(part).items() if title in answers}
    assert recorded.keys() == answers.keys()
    assert not difference(part, {**read(part), **answers})


def test_each_method_that_reads_is_asked():
    asked = {title.partition(":")[0] for title in read("sample")}
    also = {"GetServerInfo", "ListClusters", "GetReservation", "ListReservations"}
    assert loaded(two_zones()).methods.keys() == NAMED.keys() - WRITING
    assert NAMED.keys() - WRITING <= asked | also


def test_the_methods_beside_a_cluster():
    api = loaded(two_zones())
    info = api.call("GetServerInfo", server.GetServerInfoRequest())
    assert info.version
    assert info.limits.max_batch_pods
    listed = api.call("ListClusters", state.ListClustersRequest())
    assert [(each.name, each.node_count, each.pod_count) for each in listed.clusters] == [
        ("default", 3, 3)
    ]
    held = api.call("ListReservations", placement.ListReservationsRequest())
    assert not held.reservations
    assert held.meta.revision


# ------------------------------ refusals


@pytest.fixture(scope="module")
def world() -> tuple[LocalConversation, World]:
    manifest = incoming(maxSkew=0)
    manifest["metadata"]["name"] = "crooked"
    crooked = state.ClusterObject(pod=pod_from_manifest(manifest))
    talk = LocalConversation(loaded([*two_zones(), crooked]))
    table = talk.api.call("GetNodeTable", state.GetNodeTableRequest())
    revision = Token.decode(table.meta.revision).revision
    strange = Token("another", Revision(revision.number, "tag")).encode()
    unused: Any = None
    found = World(unused, strange, table.node_table_id)
    page = talk.api.call("ListObjects", state.ListObjectsRequest(kind=NODES, page_size=1))
    found.pages["ListObjects"] = page.next_page_token
    return talk, found


def test_refusals_are_those_of_a_server(world):
    talk, known = world
    talk.begin("refusals")
    seen: Counter[str] = Counter()
    for cause in CAUSES:
        seen[str(cause)] += 1
        if cause.method in talk.api.methods:
            title = f"{cause.reason} {cause.path} {seen[str(cause)]}"
            talk.ask(title, *messages_of(cause, known))
    answers = talk.answers["refusals"]
    assert len(answers) > 100
    assert not difference("refusals", {**read("refusals"), **answers})


@pytest.mark.parametrize("method", sorted(WRITING))
def test_methods_that_write_are_not_served(method):
    request = GetMessageClass(API[NAMED[method]].input_type)()
    with pytest.raises(MethodNotServed):
        loaded(two_zones()).call(method, request)


def test_nothing_is_computed_past_the_deadline():
    api = loaded(cluster_objects(Size(200, 2000)))
    request = inspector.ListConstraintsRequest()
    for seconds in (1e-9, 0.005):
        with pytest.raises(DeadlineExceeded):
            api.call("ListConstraints", request, timeout=seconds)
    assert api.call("ListConstraints", request, timeout=1e9).constraints


# ------------------------------ changes


def put(each: state.ClusterObject) -> Put:
    return Put(stored(each))


def test_calls_see_changes_that_were_applied():
    api = loaded(two_zones())
    before = api.call("EvaluatePod", evaluate_request(top_k=1))
    assert before.top_nodes[0].node == "b1"
    assert before.feasible_node_count == 1
    api.apply([put(pod("web-3", "b1")), put(node("c1", "c"))])
    after = api.call("EvaluatePod", evaluate_request(top_k=1))
    assert (after.top_nodes[0].node, after.node_count) == ("c1", 4)
    api.apply([Remove(Key(Kind.NODE, "", "c1")), Remove(Key(Kind.POD, "default", "web-3"))])
    again = api.call("EvaluatePod", evaluate_request(top_k=1))
    for each in (before, again):
        each.ClearField("meta")
    assert again == before
    with pytest.raises(TopospreadError, match="node c1 is not in cluster 'default'"):
        api.call("GetObject", state.GetObjectRequest(kind=NODES, name="c1"))


def test_changes_without_an_effect_make_no_revision():
    api = loaded(two_zones())
    before = api.call("GetNodeTable", state.GetNodeTableRequest()).meta.revision
    api.apply([put(two_zones()[0]), Remove(Key(Kind.NODE, "", "nobody"))])
    api.apply([])
    assert api.call("GetNodeTable", state.GetNodeTableRequest()).meta.revision == before


def test_a_list_goes_on_after_its_last_page_and_sees_what_is_new_there():
    api = loaded([node(name, "a") for name in ("a", "c", "e", "g")])
    request = state.ListObjectsRequest(kind=NODES, page_size=2)
    names = []
    while True:
        page = api.call("ListObjects", request)
        names += [each.node.metadata.name for each in page.objects]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
        api.apply([put(node("d", "a")), Remove(Key(Kind.NODE, "", "g"))])
    assert names == ["a", "c", "d", "e"]


def constrained(name: str, on: str) -> state.ClusterObject:
    manifest = incoming()
    manifest["metadata"]["name"] = name
    manifest["spec"]["nodeName"] = on
    return state.ClusterObject(pod=pod_from_manifest(manifest))


def test_a_watch_of_constraints_sees_changes():
    api = loaded([node("a1", "a"), node("b1", "b"), constrained("w-0", "a1")])
    answers = api.stream("WatchConstraints", inspector.WatchConstraintsRequest())
    first = next(answers)
    assert first.complete
    (row,) = first.constraints
    assert row.skew == 1
    later = threading.Timer(0.05, api.apply, [[put(constrained("w-1", "a1"))]])
    later.start()
    second = next(answers)
    later.join()
    assert not second.complete
    assert [each.skew for each in second.constraints] == [2]
    answers.close()


def test_a_watch_of_objects_goes_on_from_a_list():
    api = loaded(two_zones())
    listed = api.call("ListObjects", state.ListObjectsRequest(kind=NODES))
    api.apply([put(node("c1", "c"))])
    api.apply([Remove(Key(Kind.NODE, "", "a1"))])
    request = state.WatchObjectsRequest(revision=listed.meta.revision, kinds=[NODES])
    answers = api.stream("WatchObjects", request)
    events = [event for answer in (next(answers), next(answers)) for event in answer.events]
    answers.close()
    assert [(each.type, each.ref.name) for each in events] == [
        (state.WATCH_EVENT_TYPE_APPLIED, "c1"),
        (state.WATCH_EVENT_TYPE_DELETED, "a1"),
    ]


def test_a_caller_may_ask_for_what_it_has_seen():
    api = loaded(two_zones())
    seen = api.call("EvaluatePod", evaluate_request()).meta.revision
    api.apply([put(node("c1", "c"))])
    demand = common.Consistency(at_least_as_fresh=seen)
    answer = api.call("EvaluatePod", evaluate_request(consistency=demand))
    assert answer.node_count == 4
    assert answer.meta.revision != seen
    strange = common.Consistency(at_least_as_fresh=Token("other", Revision(1, "t")).encode())
    with pytest.raises(RevisionUnavailable):
        api.call("EvaluatePod", evaluate_request(consistency=strange))


def test_no_thread_is_started():
    before = threading.enumerate()
    api = loaded(two_zones())
    api.call("EvaluatePod", evaluate_request())
    with pytest.raises(TopospreadError):
        api.call("EvaluatePod", evaluate_request(cluster="other"))
    api.apply([put(node("c1", "c"))])
    next(api.stream("WatchConstraints", inspector.WatchConstraintsRequest()))
    assert threading.enumerate() == before


def test_each_answer_has_a_trace_of_its_own():
    api = loaded(two_zones())
    batch = decision.BatchEvaluatePodsRequest(pods=[evaluate_request().pod])
    traces = {api.call("BatchEvaluatePods", batch).meta.traceparent for _ in range(3)}
    assert len(traces) == 3
    assert {len(each) for each in traces} == {55}
