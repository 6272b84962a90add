"""What servers do when the store's history of a cluster is another one than before."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.heads import CHANGES, Heads
from tests.replica.servers import CLUSTER, NEWEST, at_least, nodes
from tests.store.backends import CLUSTER as STORED
from tests.store.backends import node
from tests.waiting import PATIENCE, until
from topospread.errors import (
    ClusterLoading,
    DeadlineExceeded,
    IdentityChanged,
    InvalidRequest,
    NotFound,
    RevisionOfOtherHistory,
    RevisionUnavailable,
    Unavailable,
)
from topospread.replica.replica import Replica
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency, Freshness, Token
from topospread.service.state.write import FEED_KINDS
from topospread.store.model import Kind


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


def refused_writes(server):
    """All writes but ReplaceObjects."""
    return (
        lambda: server.apply("c"),
        lambda: server.delete("a"),
        lambda: server.writes.drop(CLUSTER),
    )


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
        with pytest.raises(IdentityChanged, match="restart the server"):
            server.view(NEWEST)
        with pytest.raises(Unavailable, match="max_staleness"):
            server.view(Consistency(max_staleness=0.0))


def test_no_write_but_a_list_goes_into_another_history(both, backend):
    backend.empty(both[0].store)

    for server in both:
        for write in refused_writes(server):
            with pytest.raises(IdentityChanged, match="ReplaceObjects"):
                write()
    assert both[0].store.clusters() == []


@pytest.mark.parametrize("feed", [(), (Kind.NODE, Kind.POD)], ids=["six kinds", "declared"])
def test_lists_of_all_kinds_make_the_stores_history_the_truth(both, backend, feed):
    backend.empty(both[0].store)
    lost(both[0])
    token = ""
    *others, last = sorted(feed or FEED_KINDS, reverse=True)
    for kind in others:
        token = both[0].list_kind(kind, feed=feed)
        assert both[0].nodes(DEFAULT_CONSISTENCY) == ["a", "b"]
        for write in refused_writes(both[0]):
            with pytest.raises(IdentityChanged):
                write()
    with pytest.raises(IdentityChanged):
        both[0].view(at_least(token))

    assert last is Kind.NODE
    token = both[0].list_kind(last, "c", feed=feed)

    follow(both, ["c"])
    assert all(server.replica.identity_changed is False for server in both)
    assert both[1].nodes(at_least(token)) == ["c"]
    assert both[1].nodes(at_least(both[0].apply("d"))) == ["c", "d"]


def test_feed_that_declares_more_kinds_is_not_whole_without_them(both, backend):
    backend.empty(both[0].store)
    feed = (Kind.NODE, Kind.POD, Kind.SERVICE)
    for kind in feed[:2]:
        both[0].list_kind(kind, feed=feed)

    lost(both[1])
    with pytest.raises(IdentityChanged):
        both[1].apply("d")
    both[0].list_kind(feed[2], feed=feed)
    follow(both, [])


def test_lists_may_come_by_way_of_several_servers(both, backend, start):
    backend.empty(both[0].store)
    lost(both[0])
    fresh = start()

    for number, kind in enumerate(sorted(FEED_KINDS)):
        server = (*both, fresh)[number % 3]
        server.list_kind(kind, *(["c"] if kind is Kind.NODE else []))

    follow((*both, fresh), ["c"])


def test_reader_with_a_revision_of_the_new_history_waits_for_it(both, backend):
    """Also on a server that has not noticed yet."""
    backend.empty(both[0].store)
    token = both[0].list_all("c")

    for server in both:
        assert retried(lambda server=server: server.nodes(at_least(token))) == ["c"]
        assert retried(lambda server=server: server.nodes(NEWEST)) == ["c"]


def retried(ask):
    """The answer to a caller who tries again while a server loads."""
    answers = []

    def asked() -> bool:
        try:
            answers.append(ask())
        except Unavailable:
            return False
        return True

    until(asked, "it is answered")
    return answers[0]


def test_restarted_server_takes_what_there_is(both, backend, start):
    backend.empty(both[0].store)
    both[0].list_kind(Kind.NODE, "c")

    assert start().nodes() == ["c"]
    lost(both[1])
    with pytest.raises(IdentityChanged):
        both[1].apply("d")


def test_restarted_server_takes_that_there_is_nothing(both, backend, start):
    backend.empty(both[0].store)

    fresh = start()
    with pytest.raises(NotFound):
        fresh.view(DEFAULT_CONSISTENCY)
    fresh.apply("c")
    assert fresh.nodes() == ["c"]
    for server in both:
        lost(server)
        assert server.nodes(DEFAULT_CONSISTENCY) == ["a", "b"]


def test_writer_goes_on_however_often_others_dropped_the_cluster(start):
    here, there = start(), start()
    here.apply("a")
    for _ in range(10):
        there.writes.drop(CLUSTER)
        there.apply("b")

    here.apply("c")
    assert there.nodes() == ["b", "c"]


@pytest.mark.parametrize("complete", [True, False])
def test_another_store_is_the_truth_if_everything_was_listed_into_it(start, backend, complete):
    other = start()
    if complete:
        other.list_all("other")
    else:
        other.list_kind(Kind.NODE, "other")
    saved = backend.save(other.store)
    backend.empty(other.store)
    both = start(), start()
    both[0].apply("a")
    assert both[0].nodes() == both[1].nodes() == ["a"]

    backend.restore(both[0].store, saved)

    if complete:
        follow(both, ["other"])
        return
    for server in both:
        lost(server)
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
    until(lambda: both[1].replica.stale_for == 0, "it is followed")


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


def test_list_that_cannot_be_written_completes_nothing(both, backend):
    backend.empty(both[0].store)
    lost(both[0])
    for kind in FEED_KINDS - {Kind.NODE}:
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


def test_revision_of_a_history_that_is_being_loaded_is_to_be_tried_again_until_it_is_shown(
    both, backend
):
    """The store has it, and what is followed is of the history that lost it."""
    saved = backend.save(both[0].store)
    both[0].apply("phantom")
    stands = Replica(CLUSTER, both[0].store, ReplicaOptions(follows=False))
    stands.start()
    backend.restore(both[0].store, saved)
    follow(both, ["a", "b"])
    token = Token.decode(both[0].apply("instead"))
    assert token.revision.number == stands.current_view().revision.number

    with pytest.raises(ClusterLoading, match="lost writes"):
        stands.wait_for(token, time.monotonic() + PATIENCE)
    stands.begin_rebuild()
    with pytest.raises(ClusterLoading):
        stands.wait_for(token, time.monotonic() + PATIENCE)
    stands.start()
    assert stands.wait_for(token, time.monotonic() + PATIENCE).revision == token.revision


@pytest.fixture
def alone(here):
    """A replica that nothing moves but the test."""
    here.apply("a", "b")
    replica = Replica(CLUSTER, here.store, ReplicaOptions(follows=False))
    replica.start()
    return replica


def test_index_that_is_being_loaded_anew_does_not_pass_for_caught_up(alone, here):
    alone.begin_rebuild()
    here.apply("c")

    with pytest.raises(RevisionOfOtherHistory, match="loaded anew"):
        alone.catch_up()
    alone.start()
    assert list(alone.catch_up().snapshot.nodes.sorted_names) == ["a", "b", "c"]


def test_load_begun_while_the_store_is_asked_does_not_pass_for_caught_up(alone, here, monkeypatch):
    ask = here.store.follow

    def follow(*given, **options):
        found = ask(*given, **options)
        alone.begin_rebuild()
        return found

    monkeypatch.setattr(here.store, "follow", follow)
    with pytest.raises(RevisionOfOtherHistory, match="loaded anew"):
        alone.catch_up()


def test_index_that_is_being_loaded_anew_says_that_the_history_is_gone(alone, here, backend):
    alone.begin_rebuild()
    backend.empty(here.store)

    with pytest.raises(IdentityChanged):
        alone.catch_up()


def test_the_same_revision_is_another_view_once_it_is_loaded_again(alone):
    lost = alone.view
    alone.begin_rebuild()
    with pytest.raises(DeadlineExceeded):
        alone.wait_replaced(lost, time.monotonic())

    alone.start()
    assert alone.view.revision == lost.revision
    alone.wait_replaced(lost, time.monotonic())


def test_no_other_view_is_awaited_when_the_store_has_the_history_again(both):
    """It was back before a server noticed, so that nothing is loaded anew."""
    for server in both:
        server.replica.wait_replaced(server.view(), time.monotonic() + PATIENCE)


@CHANGES
def test_load_of_two_histories_is_refused(here, change):
    here.apply("a")
    here.apply("b")
    head = here.store.head(CLUSTER)
    store: Any = Heads(here.store, head, change(head))
    with pytest.raises(RevisionUnavailable):
        Replica(CLUSTER, store, ReplicaOptions(follows=False)).start()
