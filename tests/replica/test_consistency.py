"""How fresh answers are: what each demand promises, what it costs, and how waiting ends."""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import current_thread

import pytest

from tests.replica.servers import CLUSTER, NEWEST, Server, at_least, nodes, untraced
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE
from topospread.errors import (
    ClusterNotFound,
    DeadlineExceeded,
    NoFeedProgress,
    NotFound,
    RevisionUnavailable,
    TopospreadError,
    Unavailable,
)
from topospread.replica.view import (
    DEFAULT_CONSISTENCY,
    Consistency,
    Freshness,
    HistoryStatus,
    Token,
    status_of,
)
from topospread.store.model import Head, Kind, Revision
from topospread.store.observed import observed_store


def changed(token: str, *, identity: str = "", number: int = 0, tag: str = "") -> str:
    """A token with something else in it; ``number`` is added."""
    real = Token.decode(token)
    revision = Revision(real.revision.number + number, tag or real.revision.tag)
    return Token(identity or real.identity, revision).encode()


@pytest.fixture
def eager_threads():
    """Threads that interrupt one another almost anywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_write_to_one_server_can_be_read_from_every_server(here, there):
    here.apply("n-0")
    for number in range(1, 30):
        writer, reader = (here, there) if number % 2 else (there, here)

        token = writer.apply(f"n-{number}")

        assert f"n-{number}" in reader.nodes(at_least(token))


def test_a_fully_consistent_reader_sees_every_finished_write(here, there):
    here.apply("n-0")
    for number in range(1, 30):
        writer, reader = (here, there) if number % 2 else (there, here)

        writer.apply(f"n-{number}")

        assert f"n-{number}" in reader.nodes(NEWEST)


def test_the_token_of_a_write_is_that_of_the_view_that_has_it(here):
    token = here.apply("a")

    assert here.view().token == token


def test_a_state_at_hand_costs_no_look_at_the_store(backend):
    askers = []

    @contextmanager
    def asking():
        askers.append(current_thread())
        yield

    store = backend.open(SETTINGS)
    here = Server(observed_store(store, lambda _: None, asking))
    token = here.apply("a")
    here.view(at_least(token))
    here.waits.clear()
    askers.clear()

    assert here.nodes(DEFAULT_CONSISTENCY) == ["a"]
    assert here.nodes(at_least(token)) == ["a"]

    assert here.waits == [(Freshness.MINIMIZE_LATENCY, 0.0), (Freshness.AT_LEAST_AS_FRESH, 0.0)]
    assert current_thread() not in askers
    assert here.nodes(NEWEST) == ["a"]
    assert askers.count(current_thread()) == 1
    here.replicas.close()
    store.close()


def test_a_write_is_one_look_at_the_store(backend):
    operations = []

    @contextmanager
    def asking():
        operations.append(current_thread())
        yield

    store = backend.open(SETTINGS)
    here = Server(observed_store(store, lambda _: None, asking))

    here.apply("a")
    here.delete("a")

    assert len(operations) == 2
    here.replicas.close()
    store.close()


def test_every_demand_is_counted_by_its_mode(here, there):
    token = here.apply("a")
    there.view(DEFAULT_CONSISTENCY)
    there.view(at_least(token))
    there.view(NEWEST)
    with pytest.raises(RevisionUnavailable):
        there.view(at_least(changed(token, tag="f" * 16)))

    assert [mode for mode, _ in there.waits] == [
        Freshness.MINIMIZE_LATENCY,
        Freshness.AT_LEAST_AS_FRESH,
        Freshness.FULLY_CONSISTENT,
        Freshness.AT_LEAST_AS_FRESH,
    ]
    # The first had to wait until the cluster was loaded.
    assert [seconds > 0 for _, seconds in there.waits] == [True, False, True, False]


def test_a_wait_ends_with_the_deadline(here):
    token = here.apply("a")
    here.view(at_least(token))
    began = time.monotonic()

    with pytest.raises(DeadlineExceeded):
        here.view(at_least(changed(token, number=1)), seconds=0.05)

    # A little before it, so that the caller learns why.
    assert time.monotonic() - began >= 0.04


def test_waiting_for_what_will_never_come_ends_before_the_deadline(here):
    token = here.apply("a")
    here.view(at_least(token))

    with pytest.raises(RevisionUnavailable, match="no part of the store's history"):
        here.view(at_least(changed(token, number=1)), seconds=PATIENCE)


def test_a_write_ends_the_waits_of_many(here, there):
    token = here.apply("a")
    there.view(at_least(token))
    with ThreadPoolExecutor(16) as pool:
        tokens = [here.apply(f"b-{number}") for number in range(16)]
        waiting = [pool.submit(there.nodes, at_least(token)) for token in tokens]

        for number, found in enumerate(waiting):
            assert f"b-{number}" in found.result(PATIENCE)


@pytest.mark.parametrize("other", [{"identity": "0" * 32}, {"tag": "f" * 16}])
def test_a_token_of_another_history_is_refused(here, other):
    token = here.apply("a")
    here.view(at_least(token))

    with pytest.raises(RevisionUnavailable):
        here.view(at_least(changed(token, **other)))


def test_a_token_from_before_the_server_started_is_checked_as_well(here, there):
    old = here.apply("a")
    here.apply("b")
    there.view(NEWEST)

    assert there.nodes(at_least(old)) == ["a", "b"]
    with pytest.raises(RevisionUnavailable):
        there.view(at_least(changed(old, tag="f" * 16)))


def test_an_unknown_cluster_is_not_found(here):
    for demand in (DEFAULT_CONSISTENCY, NEWEST):
        with pytest.raises(ClusterNotFound, match=CLUSTER):
            here.view(demand)
    here.apply("a")
    assert here.nodes(DEFAULT_CONSISTENCY) == ["a"]


def test_an_unknown_cluster_is_not_found_by_any_who_ask_at_once(here, eager_threads):
    """Callers that wait for the first load get the cause, not that following stopped."""
    del eager_threads

    def ask(_: int) -> type[Exception]:
        try:
            here.view(DEFAULT_CONSISTENCY)
        except TopospreadError as refused:
            return type(refused)
        raise AssertionError("there is nothing to see")

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(ask, range(6000))) == {ClusterNotFound: 6000}


def test_an_empty_list_makes_a_cluster_without_anything(here, there):
    token = here.list_kind(Kind.NODE)

    assert here.nodes(at_least(token)) == there.nodes(NEWEST) == []
    assert there.nodes(at_least(here.apply("a"))) == ["a"]


AT = Revision(1, "t")

HEADS = {
    "it is there": (Head("x", AT), HistoryStatus.SAME),
    "it is there and complete": (Head("x", AT, complete=True), HistoryStatus.SAME),
    "it is missing": (Head("", Revision()), HistoryStatus.LOST),
    "it is another one": (Head("y", AT), HistoryStatus.LOST),
    "another one was dropped there": (Head("y", AT, replaced=("z",)), HistoryStatus.LOST),
    "another one is complete": (Head("y", AT, complete=True), HistoryStatus.REPLACED),
    "it was dropped": (Head("", Revision(), replaced=("x",)), HistoryStatus.DROPPED),
    "it was dropped and made again": (
        Head("y", AT, replaced=("z", "x")),
        HistoryStatus.DROPPED,
    ),
    "it was dropped, and the next one is complete": (
        Head("y", AT, complete=True, replaced=("x",)),
        HistoryStatus.DROPPED,
    ),
}


@pytest.mark.parametrize(("head", "status"), HEADS.values(), ids=HEADS)
def test_the_head_decides(head, status):
    assert status_of("x", head) is status


def not_older(**kinds: str) -> Consistency:
    wanted = tuple((Kind[name.upper()], version) for name, version in kinds.items())
    return Consistency(Freshness.NOT_OLDER_THAN, observed=wanted)


def write_progress(server, *names, **kinds: str) -> str:
    observed = {Kind[name.upper()]: version for name, version in kinds.items()}
    return server.writes.apply(
        CLUSTER,
        nodes(*names),
        force=False,
        timeout=PATIENCE,
        traced=untraced,
        observed=observed,
    ).token


def test_every_server_waits_for_progress_written_by_one(here, there):
    write_progress(here, "n-0", node="1")
    for number in range(1, 30):
        writer, reader = (here, there) if number % 2 else (there, here)
        write_progress(writer, f"n-{number}", node=f"{number}0")

        view = reader.view(not_older(node=f"{number}0"))

        assert view.snapshot.slot(f"n-{number}") >= 0
        assert int(dict(view.observed)[Kind.NODE]) >= number * 10


def test_a_server_that_begins_later_knows_it_from_the_store(here, start):
    write_progress(here, "a", node="70", pod="80")
    assert start().view().observed == ((Kind.NODE, "70"), (Kind.POD, "80"))
    assert start().view(not_older(pod="80")).observed == ((Kind.NODE, "70"), (Kind.POD, "80"))


def test_waiting_ends_with_the_deadline(here):
    write_progress(here, "a", node="99")
    assert here.view(not_older(node="99"))
    with pytest.raises(DeadlineExceeded, match="observed"):
        here.view(not_older(node="100"), 0.05)


def test_progress_that_no_feed_reports_is_an_error(here, there):
    write_progress(here, "a", node="99")
    with pytest.raises(NoFeedProgress, match="POD"):
        there.view(not_older(pod="1", node="1"))


def test_groups_that_are_counted_later_change_nothing_of_it(here):
    write_progress(here, "a", node="7")
    view = here.view(NEWEST)
    again = here.replica.ensure_counted([])
    assert (again.token, again.observed) == (view.token, view.observed)


def test_a_wait_ends_when_the_history_does(here, there):
    """A cluster that was dropped has no sync that would ever come so far."""
    write_progress(here, "a", node="7")
    there.view(NEWEST)
    with ThreadPoolExecutor(1) as waiting:
        waits = waiting.submit(there.view, not_older(node="8"))
        there.writes.drop(CLUSTER)
        with pytest.raises((NotFound, RevisionUnavailable, Unavailable)):
            waits.result(PATIENCE)
