"""How far the API server was read, as every server of a store shows it and waits for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.replica.servers import CLUSTER, NEWEST, PATIENCE, nodes, untraced
from topospread.errors import (
    DeadlineExceeded,
    NoFeedProgress,
    NotFound,
    RevisionUnavailable,
    Unavailable,
)
from topospread.replica.replicas import Consistency, Freshness
from topospread.store.api import Kind


def not_older(**kinds: str) -> Consistency:
    wanted = tuple((Kind[name.upper()], version) for name, version in kinds.items())
    return Consistency(Freshness.NOT_OLDER_THAN, observed=wanted)


def tell(server, *names, **kinds: str) -> str:
    observed = {Kind[name.upper()]: version for name, version in kinds.items()}
    return server.writes.apply(
        CLUSTER,
        nodes(*names),
        force=False,
        timeout=PATIENCE,
        traced=untraced,
        observed=observed,
    ).token


def test_what_one_server_was_told_every_server_waits_for(here, there):
    tell(here, "n-0", node="1")
    for number in range(1, 30):
        writer, reader = (here, there) if number % 2 else (there, here)
        tell(writer, f"n-{number}", node=f"{number}0")

        view = reader.view(not_older(node=f"{number}0"))

        assert view.snapshot.slot(f"n-{number}") >= 0
        assert int(dict(view.observed)[Kind.NODE]) >= number * 10


def test_a_server_that_begins_later_knows_it_from_the_store(here, start):
    tell(here, "a", node="70", pod="80")
    assert start().view().observed == ((Kind.NODE, "70"), (Kind.POD, "80"))
    assert start().view(not_older(pod="80")).observed == ((Kind.NODE, "70"), (Kind.POD, "80"))


def test_waiting_ends_with_the_deadline(here):
    tell(here, "a", node="99")
    assert here.view(not_older(node="99"))
    with pytest.raises(DeadlineExceeded, match="observed"):
        here.view(not_older(node="100"), 0.05)


def test_nobody_waits_for_what_nobody_tells(here, there):
    tell(here, "a", node="99")
    with pytest.raises(NoFeedProgress, match="POD"):
        there.view(not_older(pod="1", node="1"))


def test_groups_that_are_counted_later_change_nothing_of_it(here):
    tell(here, "a", node="7")
    view = here.view(NEWEST)
    again = here.replica.keep([])
    assert (again.token, again.observed) == (view.token, view.observed)


def test_a_wait_ends_when_the_history_does(here, there):
    """A cluster that was dropped has no feed that would ever come so far."""
    tell(here, "a", node="7")
    there.view(NEWEST)
    with ThreadPoolExecutor(1) as waiting:
        waits = waiting.submit(there.view, not_older(node="8"))
        there.writes.drop(CLUSTER)
        with pytest.raises((NotFound, RevisionUnavailable, Unavailable)):
            waits.result(PATIENCE)
