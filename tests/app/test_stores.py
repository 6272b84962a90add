"""Servers and the store they share: one truth, also after restarts, outages and drops."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.servers import Peer, at_least, evaluate_request, node, pod, served, two_zones
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread_client import Unavailable
from topospread_client._status import error_of
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb
from topospread_proto.v1.common_pb2 import Consistency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from topospread.app.server import Server

CODE = grpc.StatusCode
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class Site:
    """A server and a peer of it."""

    def __init__(self, server: Server, peer: Peer) -> None:
        self.server = server
        self.peer = peer

    def feasible(self, **more: Any) -> int:
        return self.peer.evaluate(**more).feasible_node_count

    def drop(self, cluster: str = "default") -> int:
        request = state_pb.DeleteClusterRequest(cluster=cluster)
        count: int = self.peer.state.DeleteCluster(request, timeout=PATIENCE).object_count
        return count

    def code(self, **more: Any) -> grpc.StatusCode:
        try:
            self.peer.evaluate(**more)
        except grpc.RpcError as error:
            return code_of(error)
        return CODE.OK

    def metric(self, name: str, **labels: str) -> float:
        return value(self.server.metrics.expose()[0], name, **labels) or 0.0


def code_of(error: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()
    return code


@contextmanager
def site(**flags: Any) -> Iterator[Site]:
    with served(**flags) as server, Peer(server.address) as peer:
        yield Site(server, peer)


@pytest.fixture(params=["redis", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def two(store: str) -> Iterator[tuple[Site, Site]]:
    with site(store=store) as first, site(store=store) as second:
        yield first, second


# ------------------------------ one truth


def test_two_servers_agree_at_the_revision_of_a_write(two):
    first, second = two
    first.peer.apply(*two_zones())
    for number in range(20):
        writer, reader = (first, second) if number % 2 else (second, first)
        zone = "a1" if number % 3 else "b1"
        revision = at_least(writer.peer.apply(pod(f"more-{number}", zone)))
        mine, theirs = (s.peer.evaluate(consistency=revision) for s in (writer, reader))
        for answer in (mine, theirs):
            answer.meta.ClearField("store_unreachable_for")
        assert mine == theirs


def test_two_servers_share_their_node_tables(two):
    revision = at_least(two[0].peer.apply(*two_zones()))
    request = state_pb.GetNodeTableRequest(consistency=revision)
    tables = [s.peer.state.GetNodeTable(request, timeout=PATIENCE) for s in two]
    assert tables[0].node_table_id == tables[1].node_table_id
    assert list(tables[0].node_names) == ["a1", "a2", "b1"]


def test_fully_consistent_sees_what_another_server_has_acknowledged(two):
    first, second = two
    first.peer.apply(*two_zones())
    newest = Consistency(fully_consistent=True)
    assert second.feasible(consistency=newest) == 1
    for number in range(10):
        first.peer.apply(pod(f"more-{number}", "b1"))
        answer = second.peer.evaluate(consistency=newest)
        assert answer.meta.revision == first.peer.evaluate(consistency=newest).meta.revision


def test_a_server_restarted_answers_from_the_store_alone(store):
    with site(store=store) as before:
        revision = before.peer.apply(*two_zones())
        answer = before.peer.evaluate()
    with site(store=store) as after:
        # It was loaded before the server was ready: nothing is waited for.
        assert after.peer.evaluate() == answer
        assert answer.meta.revision == revision
        waits = {"mode": "minimize_latency", "le": "0.0"}
        assert after.metric("topospread_consistency_wait_seconds_bucket", **waits) == 1


def test_a_revision_outlives_the_server_that_returned_it(store):
    with site(store=store) as before:
        revision = at_least(before.peer.apply(*two_zones()))
    with site(store=store, preload="") as after:
        assert after.feasible(consistency=revision) == 1


# ------------------------------ drops


def test_a_drop_on_one_server_is_seen_by_the_other(two):
    first, second = two
    first.peer.apply(*two_zones())
    assert second.feasible() == 1
    assert first.drop() == 6
    assert first.code() is CODE.NOT_FOUND
    until(lambda: second.code() is CODE.NOT_FOUND, "the other server finds out")
    assert second.code(consistency=Consistency(fully_consistent=True)) is CODE.NOT_FOUND


def test_a_cluster_made_again_works_on_both_at_once(two):
    first, second = two
    old = at_least(first.peer.apply(*two_zones()))
    assert second.feasible(consistency=old) == 1
    for _ in range(5):
        first.drop()
        revision = at_least(first.peer.apply(node("only", "a")))
        # The other server may not have noticed yet; whoever names the new history must not wait.
        assert second.peer.evaluate(consistency=revision).node_count == 1
        assert first.peer.evaluate(consistency=revision).node_count == 1
        newest = Consistency(fully_consistent=True)
        assert second.peer.evaluate(consistency=newest).node_count == 1
    assert second.code(consistency=old) is CODE.OUT_OF_RANGE
    assert first.code(consistency=old) is CODE.OUT_OF_RANGE


def test_clusters_that_come_and_go_leave_no_thread_behind(two):
    first, second = two
    first.peer.apply(*two_zones(), cluster="stays")
    for each in two:
        assert each.feasible(cluster="stays") == 1
    # The two that follow what stays are there from now on.
    before = set(threading.enumerate())
    for number in range(100):
        name = f"conf-{number}"
        revision = at_least(first.peer.apply(*two_zones(), cluster=name))
        assert first.feasible(cluster=name) == 1
        if number % 4 == 0:
            assert second.feasible(cluster=name, consistency=revision) == 1
        first.drop(name)
    until(lambda: _followers() <= _named(before), "all followers end")
    assert first.feasible(cluster="stays") == second.feasible(cluster="stays") == 1


def _followers() -> set[threading.Thread]:
    return _named(set(threading.enumerate()))


def _named(threads: set[threading.Thread]) -> set[threading.Thread]:
    return {thread for thread in threads if thread.name.startswith("follow-")}


# ------------------------------ loading while others write


def test_a_replica_that_loads_while_others_write_misses_nothing(store):
    """Each round a server begins to follow a cluster that is written to all the time."""
    over = threading.Event()
    written: list[str] = []
    with site(store=store) as writer:
        writer.peer.apply(*two_zones())

        def write() -> None:
            number = 0
            with Peer(writer.server.address) as peer:
                while not over.is_set():
                    names = [f"w-{number}-{i}" for i in range(20)]
                    written.append(peer.apply(*(pod(name, "a1") for name in names)))
                    request = state_pb.DeleteObjectsRequest(
                        objects=[
                            state_pb.ObjectReference(kind=common_pb2.KIND_POD, name=name)
                            for name in names[::2]
                        ]
                    )
                    written.append(
                        peer.state.DeleteObjects(request, timeout=PATIENCE).meta.revision
                    )
                    number += 1

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            for _ in range(8):
                until(lambda: len(written) > 4, "writes are on")
                with site(store=store, preload="") as late:
                    revision = at_least(written[-1])
                    answers = [
                        each.peer.evaluate(consistency=revision, top_k=3) for each in (late, writer)
                    ]
                    assert {answer.node_count for answer in answers} == {3}
                    written.clear()
        finally:
            over.set()
            thread.join(PATIENCE)
        newest = Consistency(fully_consistent=True)
        expected = counts(writer, newest)
        with site(store=store, preload="") as last:
            assert counts(last, newest) == expected


def counts(at: Site, consistency: Consistency) -> tuple[str, list[tuple[str, int]]]:
    """The revision and the pods counted in each zone."""
    asked = evaluate_request()
    request = engine_pb.PreFilterRequest(pod=asked.pod, with_counts=True, consistency=consistency)
    answer = at.peer.engine.PreFilter(request, timeout=PATIENCE)
    return answer.meta.revision, [
        (d.value, d.pod_count) for d in answer.constraints[0].domain_counts
    ]


# ------------------------------ outages


@pytest.fixture
def durable(start_redis: Callable[..., Any]) -> Any:
    """A Redis that keeps what it has acknowledged."""
    return start_redis(options=DURABLE)


def stale(at: Site) -> bool:
    return at.peer.evaluate().meta.HasField("store_unreachable_for")


def write_fails(at: Site) -> Unavailable:
    with pytest.raises(grpc.RpcError) as failed:
        at.peer.state.ApplyObjects(
            state_pb.ApplyObjectsRequest(objects=[pod("late", "b1")]), timeout=PATIENCE
        )
    error: Any = failed.value
    unavailable = error_of(error)
    assert isinstance(unavailable, Unavailable)
    return unavailable


def test_without_its_store_a_server_reads_on_and_says_how_old_it_is(durable):
    with ExitStack() as running:
        first, second = (running.enter_context(site(store=durable.url)) for _ in range(2))
        first.peer.apply(*two_zones())
        newest = Consistency(fully_consistent=True)
        before = [each.peer.evaluate(consistency=newest) for each in (first, second)]
        assert not any(answer.meta.HasField("store_unreachable_for") for answer in before)
        durable.kill()
        for each in (first, second):
            until(partial(stale, each), "it notices")
            answer = each.peer.evaluate()
            assert (answer.meta.revision, answer.feasible_node_count) == (
                before[0].meta.revision,
                1,
            )
            assert each.server.ready()[0]
            assert write_fails(each).retry_after == 1.0
            fresh = Consistency(fully_consistent=True)
            assert each.code(consistency=fresh) is CODE.UNAVAILABLE
            strict = Consistency()
            strict.max_staleness.FromMilliseconds(1)
            assert each.code(consistency=strict) is CODE.UNAVAILABLE
            lenient = Consistency()
            lenient.max_staleness.FromSeconds(3600)
            assert each.feasible(consistency=lenient) == 1
            assert each.metric("topospread_store_unreachable_seconds", cluster="default") > 0
            assert each.metric("topospread_store_errors_total", operation="apply") == 1
        durable.start()
        revision = at_least(first.peer.apply(pod("web-3", "b1")))
        for each in (first, second):
            answer = each.peer.evaluate(consistency=revision)
            assert (answer.feasible_node_count, answer.meta.HasField("store_unreachable_for")) == (
                3,
                False,
            )
            assert each.metric("topospread_store_unreachable_seconds", cluster="default") == 0


def test_a_store_that_is_back_is_followed_from_where_it_was_left(durable):
    with site(store=durable.url) as only:
        only.peer.apply(*two_zones())
        assert only.feasible() == 1
        first_load = only.server.parts.replicas.running()[0]._builder
        durable.kill()
        until(partial(stale, only), "it notices")
        durable.start()
        revision = at_least(only.peer.apply(pod("web-3", "b1")))
        assert only.feasible(consistency=revision) == 3
        # Nothing was loaded anew.
        assert only.server.parts.replicas.running()[0]._builder is first_load


def test_a_server_may_be_unready_while_it_is_stale(durable):
    with site(store=durable.url, unready_when_stale=True) as only:
        only.peer.apply(*two_zones())
        assert only.feasible() == 1
        assert only.server.ready() == (True, ())
        durable.kill()
        until(lambda: not only.server.ready()[0], "it says so")
        assert only.server.ready()[1] == ["default: store out of reach"]
        durable.start()
        until(lambda: only.server.ready()[0], "it is ready again")


def test_a_store_that_hangs_holds_up_no_decision(durable):
    """Redis is frozen: whoever needs it waits, and nobody else does."""
    with site(store=durable.url) as only:
        only.peer.apply(*two_zones())
        assert only.feasible() == 1
        durable.pause()
        try:
            newest = evaluate_request(consistency=Consistency(fully_consistent=True))
            waiting = [
                only.peer.engine.EvaluatePod.future(newest, timeout=PATIENCE) for _ in "abcd"
            ]
            # Longer than three tries to connect.
            request = state_pb.ApplyObjectsRequest(objects=[pod("late", "b1")])
            waiting += [only.peer.state.ApplyObjects.future(request, timeout=9) for _ in "abcd"]
            for _ in range(20):
                assert only.feasible() == 1
            table = only.peer.state.GetNodeTable(state_pb.GetNodeTableRequest(), timeout=PATIENCE)
            assert len(table.node_names) == 3
            assert not all(call.done() for call in waiting)
            until(lambda: all(call.done() for call in waiting), "they are told")
            assert {call.code() for call in waiting} == {CODE.UNAVAILABLE}
        finally:
            durable.resume()
        assert only.feasible(consistency=Consistency(fully_consistent=True)) in (1, 3)


def test_lag_and_age_are_those_of_the_view(store):
    with site(store=store) as only:
        revision = at_least(only.peer.apply(*two_zones()))
        assert only.feasible(consistency=revision) == 1
        assert only.metric("topospread_revision_lag", cluster="default") == 0
        assert only.metric("topospread_snapshot_age_seconds", cluster="default") < PATIENCE
