"""ListConstraints, GetConstraint and WatchConstraints through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, ZONE, node, pod, spread
from tests.waiting import PATIENCE
from topospread_client import (
    Consistency,
    ConstraintOrder,
    ConstraintPod,
    ConstraintStatus,
    ConstraintTable,
    DomainCount,
    ErrorReason,
    FindingCode,
    InvalidRequest,
    Kind,
    MinimumReason,
    NotFound,
    ObjectReference,
    PodReference,
    ResponseMeta,
    SpreadState,
    SpreadStateCount,
    WatchConstraintsResponse,
    WorkloadReference,
)

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
    client.fresh = Consistency(at_least_as_fresh=written.revision)
    return client


def owners(constraints):
    return [each.owner.name for each in constraints]


def test_constraints_are_listed_worst_first(zones):
    page = zones.list_constraints_page(consistency=zones.fresh)
    assert owners(page.constraints) == ["web", "log", "db"]
    assert page.next_page_token == ""
    assert page.totals == (
        SpreadStateCount(SpreadState.BLOCKED, 0),
        SpreadStateCount(SpreadState.VIOLATED, 1),
        SpreadStateCount(SpreadState.INEFFECTIVE, 1),
        SpreadStateCount(SpreadState.SATISFIED, 1),
    )
    assert page.revision
    assert page.trace_id


def test_a_constraint_has_the_numbers_that_make_its_state(zones):
    web, log, db = zones.list_constraints(consistency=zones.fresh)
    assert web.owner == WorkloadReference("StatefulSet", "web")
    assert (web.state, web.state.label) == (SpreadState.VIOLATED, "Violated")
    assert (web.constraint.namespace, web.constraint.topology_key) == ("default", ZONE)
    assert (web.skew, web.constraint.max_skew, web.global_minimum) == (3, 1, 0)
    assert web.minimum_reason is MinimumReason.LOWEST
    assert (web.lowest_pod_count, web.highest_pod_count, web.pod_count) == (0, 3, 3)
    assert (web.bound_pod_count, web.pending_pod_count, web.blocked_pod_count) == (3, 0, 0)
    assert (web.domain_count, web.eligible_domain_count, web.allowed_domain_count) == (2, 2, 1)
    assert web.domains == (DomainCount("b", 0), DomainCount("a", 3))
    assert web.message
    assert (web.defaulted, web.findings) == (False, ())
    assert [each.code for each in log.findings] == [FindingCode.KEY_ON_NO_NODE]
    assert (db.state, db.message) == (SpreadState.SATISFIED, "")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"namespace": "default"}, ["web", "log", "db"]),
        ({"namespace": "shop"}, []),
        ({"label_selector": "app in (web,db)"}, ["web", "db"]),
        ({"states": [SpreadState.VIOLATED, "INEFFECTIVE"]}, ["web", "log"]),
        ({"topology_key": TEAMS}, ["log"]),
        ({"owner": WorkloadReference("Job", "")}, ["log"]),
        ({"owner": WorkloadReference("", "db")}, ["db"]),
        ({"when_unsatisfiable": "ScheduleAnyway"}, ["log", "db"]),
        ({"order": ConstraintOrder.NAME}, ["log", "db", "web"]),
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
    states = (state for state in SpreadState)  # is asked for with each page
    found = zones.list_constraints(states=states, page_size=1, consistency=zones.fresh)
    assert owners(found) == ["web", "log", "db"]


def test_domains_that_are_left_out_are_counted(zones):
    (web,) = zones.list_constraints(
        states=[SpreadState.VIOLATED], domain_limit=1, consistency=zones.fresh
    )
    assert len(web.domains) == 1
    assert web.unlisted_domain_count == 1


def test_one_constraint_has_its_nodes_and_pods(zones):
    zones.apply_objects([owned("web-9", by="web")])
    web = next(iter(zones.list_constraints(consistency=Consistency(fully_consistent=True))))
    found = zones.get_constraint(web.constraint_id, node_limit=1, pod_limit=2)
    assert found.constraint == web
    empty, full = found.domains
    assert (empty.domain.value, empty.domain.pod_count, empty.domain.allowed) == ("b", 0, True)
    assert (full.domain.value, full.domain.pod_count, full.domain.allowed) == ("a", 3, False)
    (most,) = full.nodes
    assert (most.node, most.pod_count, most.reserved_pod_count) == ("a1", 2, 0)
    assert (most.eligible, most.usable, full.unlisted_node_count) == (True, True, 1)
    assert found.pods == (
        ConstraintPod(PodReference("web-9", "default"), None, None),
        ConstraintPod(PodReference("web-0", "default"), "a1", "a"),
    )
    assert found.unlisted_pod_count == 2
    assert found.trace_id


def test_a_constraint_that_is_not_there_is_not_found(zones):
    with pytest.raises(NotFound) as missing:
        zones.get_constraint("0123456789abcdef")
    assert missing.value.reason == ErrorReason.OBJECT_NOT_FOUND
    with pytest.raises(NotFound) as missing:
        list(zones.list_constraints(cluster="missing"))
    assert missing.value.reason == ErrorReason.CLUSTER_NOT_FOUND
    with pytest.raises(InvalidRequest, match=r"filter\.whenUnsatisfiable"):
        list(zones.list_constraints(when_unsatisfiable="Never"))


def test_a_watch_begins_with_all_constraints_and_goes_on_with_changes(zones):
    watch = zones.watch_constraints(timeout=PATIENCE)
    table = ConstraintTable()
    assert table.apply(next(watch))
    assert sorted(owners(table.constraints.values())) == ["db", "log", "web"]
    zones.delete_objects([ObjectReference(Kind.POD, "log-0", "default")])
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
    assert (web.skew, web.state) == (2, SpreadState.VIOLATED)
    assert SpreadStateCount(SpreadState.INEFFECTIVE, 0) in table.totals


def test_a_watch_goes_on_after_a_list(zones):
    listed = zones.list_constraints_page(consistency=zones.fresh)
    zones.apply_objects([node("c1", "c")])
    zones.apply_objects([owned("web-9", "b1", by="web")])
    watch = zones.watch_constraints(
        revision=listed.revision, states=[SpreadState.VIOLATED], timeout=PATIENCE
    )
    seen: list[ConstraintStatus] = []
    while not (seen and seen[-1].domains[-1].pod_count == 3 and len(seen[-1].domains) == 3):
        changes = next(watch)
        assert not changes.complete
        seen += changes.constraints
    watch.close()
    assert set(owners(seen)) == {"web"}


def message(revision, *constraints, gone=(), complete=False, partial=False):
    return WatchConstraintsResponse(
        meta=ResponseMeta(revision),
        complete=complete,
        constraints=constraints,
        deleted_constraint_ids=gone,
        partial=partial,
        totals=(),
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
