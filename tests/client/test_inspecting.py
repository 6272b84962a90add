"""ListConstraints, GetConstraint and WatchConstraints through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, pod, spread
from tests.waiting import PATIENCE
from topospread_client import ConstraintTable, trace_id
from topospread_proto.v1 import inspector_service_pb2 as pb
from topospread_proto.v1.common_pb2 import ResponseMeta, WorkloadReference

TEAMS = "example.com/team"

ZONES = [each for each in TWO_ZONES if each["kind"] == "Node"]


def owned(name, on="", *, by, app="web", kind="StatefulSet", **constraint):
    """A pod of a controller, with one constraint of its own."""
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    made = pod(name, on, app, topologySpreadConstraints=[spread(**{**selector, **constraint})])
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": kind, "name": by, "uid": by, "controller": True}
    ]
    return made


ASKEW = [owned(f"web-{i}", f"a{i % 2 + 1}", by="web") for i in range(3)]
"""Three pods in zone a, none in b."""

EVEN = [
    owned("db-0", "a1", by="db", app="db", action="ScheduleAnyway"),
    owned("db-1", "b1", by="db", app="db", action="ScheduleAnyway"),
]
IDLE = [owned("log-0", "a1", by="log", app="log", kind="Job", key=TEAMS, action="ScheduleAnyway")]


@pytest.fixture
def zones(client):
    """A client of a cluster with one constraint that is violated, and others."""
    written = client.apply_objects([*ZONES, *ASKEW, *EVEN, *IDLE])
    client.fresh = written.meta.revision
    return client


def owners(constraints):
    return [each.owner.name for each in constraints]


def test_constraints_are_listed_worst_first_with_totals(zones):
    page = zones.list_constraints_page(consistency=zones.fresh)
    assert owners(page.constraints) == ["web", "log", "db"]
    assert page.next_page_token == ""
    assert [(each.state, each.constraint_count) for each in page.totals] == [
        (pb.SPREAD_STATE_BLOCKED, 0),
        (pb.SPREAD_STATE_VIOLATED, 1),
        (pb.SPREAD_STATE_INEFFECTIVE, 1),
        (pb.SPREAD_STATE_SATISFIED, 1),
    ]
    assert (page.constraints[0].skew, page.constraints[0].owner.kind) == (3, "StatefulSet")
    assert trace_id(page)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"filter": {"namespace": "default"}}, ["web", "log", "db"]),
        ({"filter": {"namespace": "shop"}}, []),
        ({"filter": {"label_selector": "app in (web,db)"}}, ["web", "db"]),
        ({"filter": {"states": [pb.SPREAD_STATE_VIOLATED, "Ineffective"]}}, ["web", "log"]),
        ({"filter": {"topology_key": TEAMS}}, ["log"]),
        ({"filter": {"owner": {"kind": "Job"}}}, ["log"]),
        ({"filter": {"owner": WorkloadReference(name="db")}}, ["db"]),
        ({"filter": {"when_unsatisfiable": "ScheduleAnyway"}}, ["log", "db"]),
        ({"order": "name"}, ["log", "db", "web"]),
    ],
    ids=str,
)
def test_lists_are_filtered_and_ordered(zones, asked, found):
    assert owners(zones.list_constraints(consistency=zones.fresh, **asked)) == found


def test_iteration_fetches_all_pages(zones):
    first = zones.list_constraints_page(page_size=2, consistency=zones.fresh)
    assert owners(first.constraints) == ["web", "log"]
    second = zones.list_constraints_page(
        page_size=2, page_token=first.next_page_token, consistency=zones.fresh
    )
    assert (owners(second.constraints), second.next_page_token) == (["db"], "")
    states = iter(["violated", "ineffective", "satisfied"])  # is asked for with each page
    found = zones.list_constraints(filter={"states": states}, page_size=1, consistency=zones.fresh)
    assert owners(found) == ["web", "log", "db"]


def test_a_watch_begins_with_all_constraints_and_goes_on_with_changes(zones):
    watch = zones.watch_constraints(timeout=PATIENCE)
    table = ConstraintTable()
    assert table.apply(next(watch))
    assert sorted(owners(table.constraints.values())) == ["db", "log", "web"]
    zones.delete_objects([{"kind": "POD", "name": "log-0", "namespace": "default"}])
    zones.apply_objects([owned("web-9", "b1", by="web")])
    changed: list[object] = []
    while len(changed) < 2:
        changes = next(watch)
        assert not changes.complete
        changed += [*changes.deleted_constraint_ids, *changes.constraints]
        table.apply(changes)
    watch.close()
    assert sorted(owners(table.constraints.values())) == ["db", "web"]
    (web,) = (each for each in table.constraints.values() if owners([each]) == ["web"])
    assert (web.skew, web.state) == (2, pb.SPREAD_STATE_VIOLATED)
    assert {each.state: each.constraint_count for each in table.totals}[
        pb.SPREAD_STATE_INEFFECTIVE
    ] == 0


def message(revision, *constraints, gone=(), complete=False, partial=False):
    return pb.WatchConstraintsResponse(
        meta=ResponseMeta(revision=revision),
        complete=complete,
        constraints=constraints,
        deleted_constraint_ids=gone,
        partial=partial,
    )


def test_a_table_is_that_of_a_revision_when_all_of_its_messages_came(zones):
    web, log, db = zones.list_constraints(consistency=zones.fresh)
    table = ConstraintTable()
    assert not table.apply(message("one", web, complete=True, partial=True))
    assert table.apply(message("one", log, complete=True))
    assert set(table.constraints) == {web.constraint_id, log.constraint_id}
    assert table.apply(message("two", db, gone=(web.constraint_id,)))
    assert set(table.constraints) == {db.constraint_id, log.constraint_id}


def test_a_table_forgets_what_came_in_part(zones):
    """A watch that was cut amid a revision begins again with all constraints."""
    web, log, db = zones.list_constraints(consistency=zones.fresh)
    table = ConstraintTable()
    table.apply(message("one", web, complete=True, partial=True))
    assert table.apply(message("two", log, complete=True))
    assert set(table.constraints) == {log.constraint_id}
    table.apply(message("three", db, partial=True))
    assert table.apply(message("three", web, complete=True))
    assert set(table.constraints) == {web.constraint_id}
