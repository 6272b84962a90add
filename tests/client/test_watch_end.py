"""A watch outlives its connection and its server, and tells when it cannot go on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.redis_server import free_port
from tests.servers import ZONE, Peer, pod, served, two_zones
from tests.telemetry.expositions import samples
from tests.waiting import PATIENCE, until
from topospread.rpc import server as grpc_server
from topospread_client import (
    Connection,
    ConstraintTable,
    NotFound,
    RevisionUnavailable,
    Unavailable,
)
from topospread_client._methods import METHODS
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2, inspector_service_pb2
from topospread_proto.v1.common_pb2 import ResponseMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = grpc.StatusCode


class Watches:
    """A server whose watches follow a script, one after the other.

    Attributes:
        script: for each the revisions that it tells, and then the status that it ends with.
        asked: what each was asked.
    """

    def __init__(self, *script: tuple[list[str], grpc.StatusCode]) -> None:
        self.address = ""
        self.script = list(script)
        self.asked: list[Any] = []

    def watch(self, request: pb.WatchObjectsRequest, context: grpc.ServicerContext) -> Any:
        for revision in self._follow(request, context):
            yield pb.WatchObjectsResponse(meta=ResponseMeta(revision=revision))

    def watch_constraints(self, request: Any, context: grpc.ServicerContext) -> Any:
        for revision in self._follow(request, context):
            yield inspector_service_pb2.WatchConstraintsResponse(
                meta=ResponseMeta(revision=revision.rstrip(".")), partial=revision.endswith(".")
            )

    def _follow(self, request: Any, context: grpc.ServicerContext) -> Iterator[str]:
        self.asked.append(request)
        revisions, code = self.script.pop(0)
        yield from revisions
        if code is not CODE.OK:
            context.abort(code, "no more")


@contextmanager
def watches(*script: tuple[list[str], grpc.StatusCode]) -> Iterator[Watches]:
    with ThreadPoolExecutor(2) as pool:
        made, server = Watches(*script), grpc.server(pool)
        for rpc, method in (
            (METHODS["WatchObjects"], made.watch),
            (METHODS["WatchConstraints"], made.watch_constraints),
        ):
            handler = grpc.unary_stream_rpc_method_handler(
                method,
                request_deserializer=rpc.request.FromString,
                response_serializer=rpc.response.SerializeToString,
            )
            service, name = rpc.path.strip("/").split("/")
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, {name: handler}),)
            )
        made.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield made
        finally:
            server.stop(None).wait()


def followed(client: Any, seen: list[str], timeout: float = PATIENCE, **asked: Any) -> None:
    seen.extend(changes.meta.revision for changes in client.watch_objects(timeout=timeout, **asked))


def test_watch_that_ends_with_ok_raises_an_error(connect):
    seen: list[str] = []
    ended = pytest.raises(Unavailable, match="open another one")
    with watches((["one"], CODE.OK)) as server, ended:
        followed(connect(server.address), seen)
    assert seen == ["one"]


@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.CANCELLED])
def test_watch_continues_after_its_last_revision_while_that_is_possible(connect, code):
    seen: list[str] = []
    script = [(["", "one", "two"], code), ([], code), (["three"], code), ([], CODE.OUT_OF_RANGE)]
    with watches(*script) as server, pytest.raises(RevisionUnavailable):
        followed(connect(server.address, cluster="own"), seen, send_initial=True, kinds=["POD"])
    assert seen == ["", "one", "two", "three"]
    own: dict[str, Any] = {"cluster": "own", "kinds": [common_pb2.KIND_POD]}
    assert server.asked == [
        pb.WatchObjectsRequest(**own, send_initial=True),
        pb.WatchObjectsRequest(**own, revision="two"),
        pb.WatchObjectsRequest(**own, revision="two"),
        pb.WatchObjectsRequest(**own, revision="three"),
    ]


def test_initial_objects_are_not_sent_twice(connect):
    """Who has taken half of it would keep what was deleted meanwhile."""
    seen: list[str] = []
    ended = pytest.raises(Unavailable, match="no more")
    with watches(([""], CODE.UNAVAILABLE)) as server, ended:
        followed(connect(server.address), seen, send_initial=True)
    assert (seen, len(server.asked)) == ([""], 1)


def test_watch_of_constraints_that_is_cut_begins_with_all(connect):
    seen: list[str] = []
    script = [
        (["one.", "one"], CODE.UNAVAILABLE),
        (["two."], CODE.UNAVAILABLE),
        (["three"], CODE.UNAVAILABLE),
        ([], CODE.NOT_FOUND),
    ]
    with watches(*script) as server:
        client = connect(server.address)
        watch = client.watch_constraints(filter={"namespace": "shop"}, timeout=PATIENCE)
        seen_revisions = (changes.meta.revision for changes in watch)
        with pytest.raises(NotFound):
            seen.extend(seen_revisions)
    assert seen == ["one", "one", "two", "three"]
    assert {each.filter.namespace for each in server.asked} == {"shop"}


def test_watch_without_retries_is_not_opened_again(connect):
    seen: list[str] = []
    ended = pytest.raises(Unavailable, match="no more")
    with watches((["one"], CODE.UNAVAILABLE)) as server, ended:
        followed(connect(Connection(server.address, retries=False)), seen)
    assert (seen, len(server.asked)) == (["one"], 1)


@pytest.fixture
def short_lived(monkeypatch):
    """A server whose connections are cut after a second or so."""
    monkeypatch.setattr(grpc_server, "MAX_AGE_GRACE_MS", 50)
    with served(max_connection_age=1.0) as server:
        yield server


def owned_pod(name: str, on: str) -> pb.ClusterObject:
    """A pod of a controller of its name, with a constraint."""
    made = pod(name, on, name)
    metadata = made.pod.metadata
    metadata.owner_references.add(kind="StatefulSet", name=name, controller=True)
    made.pod.spec.topology_spread_constraints.add(
        max_skew=1,
        topology_key=ZONE,
        when_unsatisfiable="DoNotSchedule",
        label_selector={"match_labels": {"app": name}},
    )
    return made


def cuts(server: Any) -> float:
    """How many watches it has seen the end of."""
    found = samples(server.metrics.expose()[0]).items()
    return sum(
        count
        for (name, labels), count in found
        if name == "topospread_calls_total"
        and dict(labels)["method"] == "ClusterStateService/WatchObjects"
    )


def written(server: Any, *objects: pb.ClusterObject) -> str:
    with Peer(server.address) as peer:
        return peer.apply(*objects)


def names(changes: Any) -> list[str]:
    return [event.ref.name for event in changes.events if event.HasField("ref")]


def test_watch_has_the_changes_while_its_connection_was_cut(connect, short_lived):
    written(short_lived, *two_zones())
    watch = connect(short_lived.address).watch_objects()
    assert [event.type for event in next(watch).events] == [pb.WATCH_EVENT_TYPE_BOOKMARK]
    until(lambda: cuts(short_lived) == 1, "the watch is cut")
    revisions = [written(short_lived, pod(name, "a1")) for name in ("p", "q")]
    found = [next(watch), next(watch)]
    assert [names(changes) for changes in found] == [["p"], ["q"]]
    assert [changes.meta.revision for changes in found] == revisions
    watch.close()


def test_silent_watch_survives_any_number_of_cuts(connect, short_lived):
    """A server that answers nothing because nothing happens is no server that is away."""
    revision = written(short_lived, *two_zones())
    client = connect(Connection(short_lived.address, retry_timeout=0.5))
    watch = client.watch_objects(revision=revision)
    found: list[list[str]] = []
    reader = threading.Thread(target=lambda: found.append(names(next(watch))))
    reader.start()
    until(lambda: cuts(short_lived) == 2, "the watch is cut twice")
    written(short_lived, pod("p", "a1"))
    reader.join(PATIENCE)
    assert found == [["p"]]
    watch.close()


def test_a_watch_outlives_its_server(connect, tmp_path):
    store, listen = f"sqlite:///{tmp_path}/state.db", f"127.0.0.1:{free_port()}"
    with served(store=store, listen=listen) as first:
        written(first, *two_zones())
        watch = connect(listen).watch_objects()
        next(watch)
    with served(store=store, listen=listen) as second:
        written(second, pod("p", "a1"))
        assert names(next(watch)) == ["p"]
        watch.close()


def test_watch_of_constraints_has_all_anew_from_another_server(connect, tmp_path):
    """One that went meanwhile is not in the table any more."""
    store, listen = f"sqlite:///{tmp_path}/state.db", f"127.0.0.1:{free_port()}"
    owned = [owned_pod(name, "a1") for name in ("stays", "goes")]
    table = ConstraintTable()
    with served(store=store, listen=listen) as first:
        written(first, *two_zones(), *owned)
        watch = connect(listen).watch_constraints()
        while not table.apply(next(watch)) or len(table.constraints) < 2:
            pass
    with served(store=store, listen=listen) as second, Peer(second.address) as peer:
        gone = common_pb2.KIND_POD
        peer.state.DeleteObjects(
            pb.DeleteObjectsRequest(
                objects=[pb.ObjectReference(kind=gone, namespace="default", name="goes")]
            )
        )
        while not table.apply(next(watch)) or len(table.constraints) > 1:
            pass
        watch.close()
    assert [each.owner.name for each in table.constraints.values()] == ["stays"]


def test_watch_ends_when_no_server_comes_back(connect):
    with served() as server:
        written(server, *two_zones())
        watch = connect(Connection(server.address, retry_timeout=1.5)).watch_objects()
        next(watch)
    with pytest.raises(Unavailable) as failed:
        next(watch)
    assert not failed.value.reached
