"""How fresh answers are: what each demand promises, what it costs, and how waiting ends."""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import current_thread

import pytest

from tests.replica.servers import CLUSTER, NEWEST, Server, at_least
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE
from topospread.errors import (
    ClusterNotFound,
    DeadlineExceeded,
    RevisionUnavailable,
    TopospreadError,
)
from topospread.replica.view import DEFAULT_CONSISTENCY, Freshness, Token
from topospread.store.model import Kind, Revision
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
