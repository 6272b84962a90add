"""What a call asks about is read when its wait is over, whatever names it and what it waits for.

The news of the server's store are held back. A call begins and waits; what it names is written; the
news come. Its answer is that of a call which is made afterwards.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.app.all_calls import messages, methods_of_the_api
from tests.conformance.objects import object_of
from tests.rpc.conftest import HeldBack
from tests.servers import Peer, served
from tests.service.world import constraint, node, running, soft
from tests.waiting import PATIENCE, until
from topospread.app import parts as app_parts
from topospread.app.stores import open_store
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from topospread.app.server import Server

Json = dict[str, Any]

CALLS: Final = {name.partition("/")[2]: f"topospread.v1.{name}" for name in methods_of_the_api()}
"""Full names of methods."""

REQUIREMENTS: Final = {
    each.name for each in common_pb2.Consistency.DESCRIPTOR.oneofs_by_name["requirement"].fields
}

WAITS: Final = {"at_least_as_fresh", "fully_consistent", "not_older_than"}
"""The others ask for no wait."""

NAMING: Final = {"PodReference", "ObjectReference"}

REF: Final = {"ref": {"namespace": "default", "name": "subject"}}
WEB: Final = {"matchLabels": {"app": "web"}}
UNNAMED: Final[Json] = {"object": {"metadata": {"labels": {"app": "web"}}, "spec": {}}}
UNNAMED["object"]["spec"] = {"topologySpreadConstraints": [constraint(maxSkew=2), soft()]}


@dataclass(frozen=True)
class Ask:
    """A request that names the pod `subject` or finds it.

    Attributes:
        bound: the pod runs, else it waits.
        reads: answers by the store itself, so that it does not wait for the newest state.
        alike: the answer is the same whatever the pod's labels are, as long as it is one state's.
    """

    request: Json
    bound: bool = False
    reads: bool = False
    alike: bool = False


def of_point(method: str) -> dict[str, Ask]:
    """Of a method with what-ifs."""
    joins = {"pod": REF, "node": "n-b"}
    counts = {"withCounts": True} if method == "PreFilter" else {}
    unnamed = {"pod": UNNAMED, **counts}
    return {
        f"{method} pod.ref": Ask({"pod": REF}),
        f"{method} add_pods.pod.ref": Ask({**unnamed, "addPods": [joins]}),
        f"{method} remove_pods.pod.ref": Ask(
            {**unnamed, "removePods": [{"pod": REF}]}, bound=True, alike=True
        ),
    }


def simulated(**changes: Any) -> Json:
    """Another pod is placed in a state with changes."""
    return {"pods": [{"pod": UNNAMED}], "scenario": {"changes": changes}}


ASKS: Final[dict[str, Ask]] = {
    **of_point("PreFilter"),
    **of_point("Filter"),
    **of_point("Score"),
    **of_point("EvaluatePod"),
    "BatchEvaluatePods pods.ref": Ask({"pods": [REF]}),
    "ExplainPod pod.ref": Ask({"pod": REF}),
    "Simulate pods.pod.ref": Ask({"pods": [{"pod": REF}]}),
    "Simulate pods.pod.ref of a version": Ask(
        {"pods": [{"pod": REF}], "scenario": {"settings": {"kubernetesVersion": "1.37"}}}
    ),
    "Simulate pods.workload": Ask(
        {"pods": [{"pod": UNNAMED, "replicas": 1, "workload": {"kind": "ReplicaSet", "name": "w"}}]}
    ),
    "Simulate scenario.changes.add_pods.pod.ref": Ask(
        simulated(addPods=[{"pod": REF, "node": "n-b"}])
    ),
    "Simulate scenario.changes.delete_pods": Ask(simulated(deletePods=[REF["ref"]]), bound=True),
    "RankDeletions label_selector": Ask({"labelSelector": WEB}, bound=True),
    "RankDeletions workload": Ask(
        {"workload": {"kind": "ReplicaSet", "name": "w"}}, bound=True, alike=True
    ),
    "PlanRebalance label_selector": Ask({"labelSelector": WEB}, bound=True),
    "GetObject name": Ask({"kind": "KIND_POD", "name": "subject"}, reads=True),
    "ListObjects label_selector": Ask({"kind": "KIND_POD", "labelSelector": WEB}, reads=True),
    "ListConstraints filter": Ask({"filter": {"namespace": "default"}}, bound=True),
}

NAMES_NOTHING: Final = {
    "GetNodeTable": "it is of the snapshot, which the wait is for",
    "GetCluster": "as GetNodeTable",
    "ListReservations": "as GetNodeTable",
    "GetReservation pod": "a hold is of the snapshot, which the wait is for",
    "GetConstraint": "its id is of the snapshot, which the wait is for",
}
"""Methods with a consistency, or their fields that name, where nothing is read by a name."""

WITHOUT_CONSISTENCY: Final = {
    "PlacePod pod.ref": "the place is written on the condition that nothing relevant is newer",
    "ReserveNode pod.ref": "as PlacePod",
    "ReleaseReservation pod": "it is a write",
    "ApplyObjects objects.reservation.pod": "it is a write",
    "DeleteObjects objects": "it is a write",
    "ReplaceObjects batch.objects.reservation.pod": "it is a write",
}


def naming_fields(message: Descriptor, path: str = "") -> Iterator[str]:
    """The paths of the fields of a request that name pods or objects of the state."""
    for field in message.fields:
        if field.message_type is None or field.message_type.file.package != message.file.package:
            continue
        here = f"{path}.{field.name}".lstrip(".")
        if field.message_type.name in NAMING:
            yield here
        else:
            yield from naming_fields(field.message_type, here)


def requests() -> dict[str, Any]:
    """The requests of all methods, by the names of these."""
    return {method: messages(call)[0].DESCRIPTOR for method, call in CALLS.items()}


def asks_consistency(message: Descriptor) -> bool:
    field: FieldDescriptor | None = message.fields_by_name.get("consistency")
    return field is not None


def test_all_methods_and_all_that_names_are_tried_or_have_a_reason() -> None:
    fresh: set[str] = set()
    others: set[str] = set()
    for method, message in requests().items():
        named = {f"{method} {path}" for path in naming_fields(message)}
        (fresh if asks_consistency(message) else others).update(named)
    tried = {*ASKS, *NAMES_NOTHING}
    assert fresh <= tried
    assert others == {*WITHOUT_CONSISTENCY}
    methods = {method for method, message in requests().items() if asks_consistency(message)}
    assert methods == {each.partition(" ")[0] for each in tried}


def test_all_requirements_are_tried_or_ask_for_no_wait() -> None:
    assert {*WAITS, "minimize_latency"} == REQUIREMENTS
    others = {each.name for each in common_pb2.Consistency.DESCRIPTOR.fields} - REQUIREMENTS
    assert others == {"max_staleness"}


class Cluster:
    """A cluster of its own on a server whose news can be held back."""

    def __init__(self, server: Server, peer: Peer, news: Any, name: str) -> None:
        self.server = server
        self.peer = peer
        self.news = news
        self.name = name
        two = [running(f"web-{number}", "n-a") for number in range(2)]
        revision = self.write([node("n-a", "a"), node("n-b", "b"), *two], version=1)
        # Else the first call would load what is there then, and wait for nothing.
        peer.await_revision(revision, cluster=name)

    def write(self, manifests: list[Json], version: int) -> str:
        request = pb.ApplyObjectsRequest(
            cluster=self.name,
            objects=[object_of(each) for each in manifests],
            observed=[self.version(version)],
        )
        revision: str = self.peer.state.ApplyObjects(request, timeout=PATIENCE).meta.revision
        return revision

    @staticmethod
    def version(number: int) -> common_pb2.ResourceVersion:
        return common_pb2.ResourceVersion(kind=common_pb2.KIND_POD, resource_version=str(number))

    def begin(self, method: str, ask: Ask, consistency: Json) -> grpc.Future:
        sent, answered = messages(CALLS[method])
        fields = {"cluster": self.name, "consistency": consistency, **ask.request}
        request = ParseDict(fields, sent())
        unary: Any = self.peer.channel.unary_unary(
            f"/{CALLS[method]}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answered.FromString,
        )
        future: grpc.Future = unary.future(request, timeout=PATIENCE)
        return future

    def waits(self) -> bool:
        """Whether a call waits for a state."""
        replica = self.server.parts.replicas.get(self.name)
        return replica is not None and replica.has_waiters


def answer_of(call: grpc.Future) -> Any:
    """What was answered, without what differs from one call to the next; or how it failed."""
    try:
        found = MessageToDict(call.result(PATIENCE))
    except grpc.RpcError as error:
        return error.code().name
    for changing in ("meta", "cycle"):
        found.pop(changing, None)
    return found


def subject(app: str, *, bound: bool) -> Json:
    """The pod that is asked about."""
    made = running("subject", "n-a" if bound else "", app=app, uid="u-subject")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
    ]
    made["spec"]["topologySpreadConstraints"] = [constraint(maxSkew=2), soft()]
    made["status"] = {"phase": "Running" if bound else "Pending"}
    return made


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[], Cluster]]:
    news, numbers = threading.Event(), itertools.count()
    news.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            app_parts, "open_store", lambda *arguments: HeldBack(open_store(*arguments), news)
        )
        with served() as server, Peer(server.address) as peer:
            yield lambda: Cluster(server, peer, news, f"of-{next(numbers)}")
            news.set()


@pytest.mark.parametrize("change", ["created", "relabelled"])
@pytest.mark.parametrize("wait", sorted(WAITS))
@pytest.mark.parametrize("asked", ASKS)
def test_answer_is_of_what_is_there_when_the_wait_is_over(
    clusters: Callable[[], Cluster], asked: str, wait: str, change: str
) -> None:
    here, ask, method = clusters(), ASKS[asked], asked.partition(" ")[0]
    newest: Json = {"fullyConsistent": True}
    if change == "relabelled":
        here.write([subject("other", bound=ask.bound)], version=1)
    before = answer_of(here.begin(method, ask, newest))
    here.news.clear()
    try:
        held = here.write([running("elsewhere", "n-b", app="elsewhere")], version=1)
        fresh: dict[str, Json] = {
            "at_least_as_fresh": {"atLeastAsFresh": held},
            "fully_consistent": newest,
            "not_older_than": {
                "notOlderThan": {"versions": [{"kind": "KIND_POD", "resourceVersion": "2"}]}
            },
        }
        if ask.reads and wait == "fully_consistent":
            here.write([subject("web", bound=ask.bound)], version=2)
        call = here.begin(method, ask, fresh[wait])
        until(lambda: here.waits() or call.done(), "the call waits")
        here.write([subject("web", bound=ask.bound)], version=2)
    finally:
        here.news.set()
    found = answer_of(call)
    assert found == answer_of(here.begin(method, ask, newest))
    assert found != before or (ask.alike and change == "relabelled")
    here.peer.state.DeleteCluster(pb.DeleteClusterRequest(cluster=here.name), timeout=PATIENCE)
