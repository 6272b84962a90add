"""What servers do when the store's history of a cluster is another one than before."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.replica.servers import CLUSTER, NEWEST, at_least, nodes
from tests.store.backends import CLUSTER as STORED
from tests.store.backends import node
from tests.waiting import PATIENCE, until
from topospread.errors import (
    IdentityChanged,
    InvalidRequest,
    NotFound,
    RevisionUnavailable,
    Unavailable,
)
from topospread.replica.history import LISTED_KINDS
from topospread.replica.replica import Replica
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency, Freshness, Token
from topospread.store.model import Kind, Revision


def lost(server) -> None:
    """Until a server has found out that the store has another history."""
    until(lambda: server.replica.identity_changed, "the change is noticed")


@pytest.fixture
def both(here, there):
    """Two servers that follow the same history."""
    assert STORED == CLUSTER
    here.apply("a", "b")
    assert here.nodes() == there.nodes() == ["a", "b"]
    return here, there


def follow(servers, names) -> None:
    until(
        lambda: all(server.nodes(DEFAULT_CONSISTENCY) == names for server in servers),
        f"all see {names}",
    )


def test_a_store_that_was_emptied_is_not_taken_for_an_empty_cluster(both, backend):
    old = both[0].view().token
    backend.empty(both[0].store)

    for server in both:
        lost(server)
        assert server.nodes(DEFAULT_CONSISTENCY) == ["a", "b"]
        assert server.nodes(at_least(old)) == ["a", "b"]
        assert server.replica.stale_for > 0
        with pytest.raises(IdentityChanged, match="topospread store accept"):
            server.view(NEWEST)
        with pytest.raises(Unavailable, match="max_staleness"):
            server.view(Consistency(max_staleness=0.0))


def test_no_write_but_a_list_goes_into_another_history(both, backend):
    backend.empty(both[0].store)

    for server in both:
        for write in (
            lambda server=server: server.apply("c"),
            lambda server=server: server.delete("a"),
            lambda server=server: server.writes.drop(CLUSTER),
        ):
            with pytest.raises(IdentityChanged, match="replace all kinds"):
                write()
    assert both[0].store.clusters() == []


def test_lists_of_all_kinds_make_the_stores_history_the_truth(both, backend):
    backend.empty(both[0].store)
    lost(both[0])
    token = ""
    for kind in LISTED_KINDS[:-1]:
        token = both[0].list_kind(kind, *(["c"] if kind is Kind.NODE else []))
        assert both[0].nodes(DEFAULT_CONSISTENCY) == ["a", "b"]
        with pytest.raises(IdentityChanged):
            both[0].apply("d")
    with pytest.raises(IdentityChanged):
        both[0].view(at_least(token))

    token = both[0].list_kind(LISTED_KINDS[-1])

    follow(both, ["c"])
    assert all(server.replica.identity_changed is False for server in both)
    assert both[1].nodes(at_least(token)) == ["c"]
    assert both[1].nodes(at_least(both[0].apply("d"))) == ["c", "d"]


def test_lists_may_come_by_way_of_several_servers(both, backend, start):
    backend.empty(both[0].store)
    lost(both[0])
    fresh = start()

    for number, kind in enumerate(LISTED_KINDS):
        server = (*both, fresh)[number % 3]
        server.list_kind(kind, *(["c"] if kind is Kind.NODE else []))

    follow((*both, fresh), ["c"])


def test_lists_at_once_after_the_loss_reach_servers_that_had_not_noticed_yet(both, backend):
    backend.empty(both[0].store)

    both[0].list_all("c")

    follow(both, ["c"])


def test_accepting_at_one_server_counts_for_all(both, backend):
    backend.empty(both[0].store)
    for server in both:
        lost(server)
    both[0].list_kind(Kind.NODE, "c")

    token = both[0].accept()

    assert both[0].nodes(at_least(token)) == ["c"]
    follow(both, ["c"])
    both[1].apply("d")


def test_accepting_before_anybody_noticed(both, backend):
    backend.empty(both[0].store)
    both[0].list_kind(Kind.NODE, "c")

    both[0].accept()

    follow(both, ["c"])


def test_accepting_that_there_is_nothing(both, backend):
    backend.empty(both[0].store)

    both[0].accept()

    until(lambda: not any(server.replicas.running() for server in both), "it is let go")
    for server in both:
        with pytest.raises(NotFound):
            server.view(DEFAULT_CONSISTENCY)
    both[1].apply("c")
    assert both[0].nodes() == ["c"]


def test_accepting_what_is_followed_anyway_changes_nothing(both):
    token = both[0].accept()

    assert both[0].view(at_least(token)).token == token
    assert both[1].nodes() == ["a", "b"]
    both[1].apply("c")


def test_writer_goes_on_however_often_others_dropped_the_cluster(start):
    here, there = start(), start()
    here.apply("a")
    for _ in range(10):
        there.writes.drop(CLUSTER)
        there.apply("b")

    here.apply("c")
    assert there.nodes() == ["b", "c"]


def test_another_store_is_not_the_truth_because_it_was_once(start, backend):
    both = start(), start()
    start().list_all("other")
    other = backend.save(both[0].store)
    backend.empty(both[0].store)
    both[0].apply("a")
    assert both[0].nodes() == both[1].nodes() == ["a"]

    backend.restore(both[0].store, other)

    for server in both:
        lost(server)
        assert server.nodes(DEFAULT_CONSISTENCY) == ["a"]
    both[1].list_all("c")
    follow(both, ["c"])


def test_an_old_copy_in_a_store_that_was_empty_is_not_the_truth(start, backend):
    both = start(), start()
    start().list_all("other")
    other = backend.save(both[0].store)
    backend.empty(both[0].store)
    both[0].apply("a")
    assert both[0].nodes() == both[1].nodes() == ["a"]
    backend.empty(both[0].store)
    for server in both:
        lost(server)

    backend.restore(both[0].store, other)

    for server in both:
        with pytest.raises(IdentityChanged):
            server.apply("d")
        assert server.nodes(DEFAULT_CONSISTENCY) == ["a"]
    both[1].list_all("c")
    follow(both, ["c"])


def test_the_same_history_is_followed_when_it_is_back(both, backend):
    saved = backend.save(both[0].store)
    backend.empty(both[0].store)
    for server in both:
        lost(server)

    backend.restore(both[0].store, saved)

    until(lambda: not any(server.replica.identity_changed for server in both), "it is back")
    token = both[0].apply("c")
    assert both[1].nodes(at_least(token)) == ["a", "b", "c"]
    assert both[1].replica.stale_for == 0


def test_a_dropped_cluster_is_let_go_by_all(both):
    old = both[0].view().token

    assert both[0].writes.drop(CLUSTER) == 2

    with pytest.raises(NotFound):
        both[0].view(DEFAULT_CONSISTENCY)
    until(lambda: not both[1].replicas.running(), "the other server lets go")
    with pytest.raises(NotFound):
        both[1].view(DEFAULT_CONSISTENCY)
    new = both[1].apply("c")
    assert both[0].nodes(at_least(new)) == ["c"]
    with pytest.raises(RevisionUnavailable):
        both[0].view(at_least(old))


def test_writes_go_on_at_once_after_another_server_dropped_the_cluster(both):
    both[0].writes.drop(CLUSTER)
    new = both[1].apply("c")
    both[1].delete("c")
    both[0].writes.drop(CLUSTER)
    newer = both[1].apply("d")

    assert both[0].nodes(at_least(newer)) == ["d"]
    with pytest.raises(RevisionUnavailable):
        both[1].view(at_least(new))


def test_list_that_cannot_be_written_confirms_nothing(both, backend):
    backend.empty(both[0].store)
    lost(both[0])
    for kind in LISTED_KINDS:
        if kind is not Kind.NODE:
            both[0].list_kind(kind)
    with pytest.raises(InvalidRequest, match="twice"):
        both[0].list_kind(Kind.NODE, "c", "c")

    assert both[0].nodes(DEFAULT_CONSISTENCY) == ["a", "b"]
    with pytest.raises(IdentityChanged):
        both[0].apply("d")


@pytest.fixture
def fail_over(both, backend):
    """Runs a failover that loses what was written after the fixture began."""
    saved = backend.save(both[0].store)

    def lose(*instead: str) -> None:
        backend.restore(both[0].store, saved)
        for name in instead:
            both[0].store.apply(CLUSTER, [incoming.put for incoming in nodes(name)])

    return lose


@pytest.mark.parametrize("instead", [(), ("x",), ("x", "y")])
def test_writes_that_a_failover_lost_are_gone_everywhere(both, fail_over, instead):
    phantom = both[0].apply("phantom")
    assert both[1].nodes(at_least(phantom)) == ["a", "b", "phantom"]

    fail_over(*instead)

    follow(both, ["a", "b", *instead])
    for server in both:
        with pytest.raises(RevisionUnavailable, match="failed over"):
            server.view(at_least(phantom))


@pytest.mark.parametrize("instead", [(), ("x",), ("x", "y")])
def test_a_fully_consistent_reader_never_sees_what_was_lost(both, fail_over, instead):
    both[0].apply("phantom")
    for server in both:
        assert "phantom" in server.nodes()

    fail_over(*instead)

    # Refused while the state is made anew, and right as soon as it is answered.
    until(
        lambda: all(newest(server) == ["a", "b", *instead] for server in both),
        "it is answered",
    )


def newest(server):
    try:
        found = server.nodes(NEWEST)
    except Unavailable:
        return None
    assert "phantom" not in found
    return found


def test_waits_end_when_the_state_is_made_anew(both, fail_over):
    token = both[0].apply("phantom")
    follow(both, ["a", "b", "phantom"])
    never = Token.decode(token)
    never = replace(never, revision=replace(never.revision, number=never.revision.number + 1))
    demand = Consistency(Freshness.AT_LEAST_AS_FRESH, never)

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(server.view, demand) for server in both]
        fail_over("x")
        for found in waiting:
            with pytest.raises((Unavailable, RevisionUnavailable)):
                found.result(PATIENCE)


def test_a_value_that_cannot_be_read_is_left_out_and_the_rest_is_served(both, backend, start):
    token = both[0].apply("c")
    backend.overwrite(both[0].store, CLUSTER, node("a"), b"\x07damaged")

    fresh = start()

    assert fresh.nodes(at_least(token)) == ["b", "c"]
    assert fresh.replica.corrupt == 1
    # Written anew it heals, everywhere.
    healed = both[0].apply("a")
    assert fresh.nodes(at_least(healed)) == ["a", "b", "c"]
    assert fresh.replica.corrupt == 0


def test_revision_of_a_history_that_is_being_loaded_is_refused_until_it_is_shown():
    before, present = Revision(2, "a" * 16), Revision(2, "b" * 16)
    source: Any = None  # both tags are known: the store is not asked
    replica = Replica(CLUSTER, source, ReplicaOptions())
    replica.start_decoding_anew(before)
    replica.publish(replica.new_builder(), "identity", before)

    replica.begin_rebuild()
    replica.start_decoding_anew(present)
    token = Token("identity", present)
    with pytest.raises(RevisionUnavailable):
        replica.wait_for(token, time.monotonic() + PATIENCE)
    replica.publish(replica.new_builder(), "identity", present)
    assert replica.wait_for(token, time.monotonic() + PATIENCE).revision == present
