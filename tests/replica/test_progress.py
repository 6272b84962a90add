"""How far the API server was read, as every server of a store shows it and waits for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.replica.servers import CLUSTER, NEWEST, nodes, untraced
from tests.waiting import PATIENCE
from topospread.errors import (
    DeadlineExceeded,
    NoFeedProgress,
    NotFound,
    RevisionUnavailable,
    Unavailable,
)
from topospread.replica.view import Consistency, Freshness
from topospread.store.model import Kind


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
