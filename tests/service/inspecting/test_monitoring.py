"""Looks at constraints in the background: what metrics show of them, and what that costs."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.inspecting.cases import pod_of
from tests.service.world import CLUSTER, Clock, node
from tests.waiting import PATIENCE, until
from topospread.errors import StoreUnavailable
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.inspecting.inspector import Inspector
from topospread.service.inspecting.monitoring import (
    CLUSTERS_PAUSE,
    PAUSE,
    ConstraintMonitor,
    Missing,
    ShownConstraints,
    pause_after,
)
from topospread.store.model import Kind
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.world import World
    from topospread.replica.replica import Replica
    from topospread.service.inspecting.cluster_inspector import ClusterInspector
    from topospread.store.model import Revision

NODES = [node(f"n-{zone}", zone) for zone in "abc"]


def spread(app: str, *zones: str, pending: int = 0, **constraint: Any) -> list[dict[str, Any]]:
    """The pods of a StatefulSet that spreads over zones: one in each of these, and pending ones."""
    about: dict[str, Any] = {
        "owner": f"StatefulSet/{app}",
        "labels": {"app": app},
        "constraints": [{"key": "zone", "labelSelector": {"matchLabels": {"app": app}}}],
    }
    about["constraints"][0] |= constraint
    bound = [pod_of(f"{app}-{i}", node=f"n-{zone}", **about) for i, zone in enumerate(zones)]
    return [*bound, *(pod_of(f"{app}-p{i}", **about) for i in range(pending))]


class CountingInspector(Inspector):
    """Counts the inspections; fails, or waits in the middle of one, when told to."""

    def __init__(self, engine: Any, most: int) -> None:
        super().__init__(engine, most)
        self.inspections = 0
        self.failing = False
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def of(self, replica: Replica) -> ClusterInspector:
        self.inspections += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        if self.failing:
            raise StoreUnavailable("told to")
        return super().of(replica)


class Monitored:
    """A world, and a monitor of it that looks when it is told to."""

    def __init__(
        self, world: World, chosen: str = "violated", limit: int = 100, most: int = 100
    ) -> None:
        self.world = world
        self.clock = Clock()
        self.inspector = CountingInspector(world.engine, most)
        self.replicas = world.process.replicas
        self.clusters: list[str] = []
        self.monitor = ConstraintMonitor(
            self.inspector, self.replicas, chosen, limit, lambda: self.clusters, clock=self.clock
        )

    def look(self) -> None:
        """Look at the newest state, however short the last look is ago."""
        for name in ("prod", "dev"):
            revision = self.world.store.head(name).revision
            if revision.number:
                self.replicas.preload([name], seconds_from_now(PATIENCE))
                until(partial(self.follows, name, revision), "it is followed")
        self.clock.now += PAUSE
        self.monitor.look()

    def follows(self, name: str, revision: Revision) -> bool:
        replica = self.replicas.get(name)
        return replica is not None and replica.current_view().revision == revision

    @property
    def seen(self) -> dict[str, ShownConstraints]:
        return {each.cluster: each for each in self.monitor.constraints()}

    def owners(self, cluster: str = CLUSTER) -> list[str]:
        return [each.key.owner.name for each in self.seen[cluster].shown]


@pytest.fixture
def cluster(empty_world: World) -> World:
    """Constraints in each state, hard and soft."""
    empty_world.apply(
        *NODES,
        *spread("blocked", "a", "b", "c", pending=2, minDomains=9),
        *spread("violated", "a", "a", "a", "b", "b", "c"),
        *spread("worse", "a", "a", "a"),
        *spread("soft", "a", "a", "a", "a", "a", soft=True),
        *spread("ineffective", "a", labelSelector={"matchLabels": {"app": "other"}}),
        *spread("satisfied", "a", "b", "c"),
    )
    return empty_world


def test_all_constraints_count_in_the_totals(cluster: World) -> None:
    monitored = Monitored(cluster)
    assert monitored.seen == {}
    monitored.look()
    assert monitored.seen[CLUSTER].missing is None
    assert dict(monitored.seen[CLUSTER].totals) == {
        pb.SPREAD_STATE_BLOCKED: 1,
        pb.SPREAD_STATE_VIOLATED: 3,
        pb.SPREAD_STATE_INEFFECTIVE: 1,
        pb.SPREAD_STATE_SATISFIED: 1,
    }


@pytest.mark.parametrize(
    ("chosen", "owners"),
    [
        ("violated", ["blocked", "worse", "violated", "ineffective", "soft"]),
        ("hard", ["blocked", "worse", "violated", "ineffective", "satisfied"]),
        ("all", ["blocked", "worse", "violated", "ineffective", "satisfied", "soft"]),
    ],
)
def test_hard_ones_are_shown_first_and_the_worst_of_them(
    cluster: World, chosen: str, owners: list[str]
) -> None:
    monitored = Monitored(cluster, chosen)
    monitored.look()
    assert monitored.owners() == owners


@pytest.mark.parametrize("limit", [0, 2, 5])
def test_constraints_beyond_the_limit_are_counted_by_state(cluster: World, limit: int) -> None:
    monitored = Monitored(cluster, "violated", limit)
    monitored.look()
    seen = monitored.seen[CLUSTER]
    assert monitored.owners() == ["blocked", "worse", "violated", "ineffective", "soft"][:limit]
    left = {0: (1, 3, 1), 2: (0, 2, 1), 5: (0, 0, 0)}[limit]
    assert tuple(seen.omitted.values()) == (*left, 0)


def test_the_limit_is_of_all_clusters_together(cluster: World) -> None:
    cluster.apply(*NODES, *spread("dev", "a", "a", "a", "a"), cluster="dev")
    monitored = Monitored(cluster, limit=2)
    monitored.look()
    assert (monitored.owners(), monitored.owners("dev")) == (["blocked"], ["dev"])
    assert sum(monitored.seen[CLUSTER].omitted.values()) == 4


def test_a_constraint_that_is_satisfied_again_is_shown_no_more(cluster: World) -> None:
    monitored = Monitored(cluster)
    monitored.look()
    assert "worse" in monitored.owners()
    cluster.delete(Kind.POD, "worse-0", "default")
    cluster.delete(Kind.POD, "worse-1", "default")
    monitored.look()
    assert "worse" not in monitored.owners()
    assert monitored.seen[CLUSTER].totals[pb.SPREAD_STATE_SATISFIED] == 2


def test_a_cluster_that_goes_takes_its_constraints_along(cluster: World) -> None:
    cluster.apply(*NODES, *spread("dev", "a", "a", "a", "a"), cluster="dev")
    monitored = Monitored(cluster, limit=1)
    monitored.look()
    monitored.replicas.forget(CLUSTER)
    assert set(monitored.seen) == {"dev"}
    monitored.monitor.look()
    assert monitored.owners("dev") == ["dev"]  # there is room for it now


def test_a_cluster_at_rest_is_not_inspected_again(cluster: World) -> None:
    monitored = Monitored(cluster)
    for _ in range(5):
        monitored.look()
    assert monitored.inspector.inspections == 1
    assert monitored.seen[CLUSTER].age_seconds == 0
    cluster.apply(*spread("another", "a"))
    monitored.look()
    assert monitored.inspector.inspections == 2


def test_a_cluster_that_changes_all_the_time_is_inspected_now_and_then(cluster: World) -> None:
    monitored = Monitored(cluster)
    monitored.look()
    cluster.apply(*spread("another", "a"))
    revision = cluster.store.head(CLUSTER).revision
    until(lambda: monitored.follows(CLUSTER, revision), "it is followed")
    monitored.clock.now += PAUSE - 1
    monitored.monitor.look()
    assert monitored.inspector.inspections == 1
    assert monitored.seen[CLUSTER].age_seconds == PAUSE - 1
    monitored.clock.now += 1
    monitored.monitor.look()
    assert monitored.inspector.inspections == 2
    assert monitored.seen[CLUSTER].age_seconds == 0


def test_age_grows_while_a_cluster_cannot_be_inspected(cluster: World) -> None:
    monitored = Monitored(cluster)
    monitored.look()
    monitored.inspector.failing = True
    cluster.apply(*spread("another", "a", "a", "a"))
    monitored.look()
    assert monitored.seen[CLUSTER].age_seconds == PAUSE
    assert "another" not in monitored.owners()
    assert monitored.seen[CLUSTER].missing is Missing.FAILED
    monitored.inspector.failing = False
    monitored.look()
    assert monitored.seen[CLUSTER].missing is None
    assert monitored.seen[CLUSTER].age_seconds == 0
    assert "another" in monitored.owners()


def test_the_log_has_it_once_that_there_are_too_many_constraints(
    cluster: World, caplog: pytest.LogCaptureFixture
) -> None:
    monitored = Monitored(cluster, most=6)
    monitored.look()
    assert len(monitored.owners()) == 5

    def warnings() -> int:
        return caplog.text.count("more than 6 constraints are in force")

    cluster.apply(*spread("another", "a"))
    for _ in range(3):
        monitored.look()
    assert warnings() == 1
    assert monitored.seen[CLUSTER].age_seconds > 0
    assert monitored.seen[CLUSTER].missing is Missing.TOO_MANY
    cluster.delete(Kind.POD, "another-0", "default")
    monitored.look()
    assert monitored.seen[CLUSTER].age_seconds == 0
    cluster.apply(*spread("another", "a"))
    monitored.look()
    assert warnings() == 2


def test_there_are_too_many_from_the_start_on(cluster: World) -> None:
    monitored = Monitored(cluster, most=2)
    monitored.look()
    monitored.look()
    seen = monitored.seen[CLUSTER]
    assert (seen.totals, seen.shown, seen.missing) == ({}, (), Missing.TOO_MANY)
    assert seen.age_seconds == PAUSE


def test_an_unused_cluster_of_the_store_is_followed(cluster: World) -> None:
    monitored = Monitored(cluster)
    monitored.clusters = [CLUSTER]
    monitored.monitor.look()
    assert monitored.replicas.get(CLUSTER) is not None
    assert monitored.seen[CLUSTER].missing in (Missing.LOADING, None)
    monitored.look()
    assert monitored.seen[CLUSTER].missing is None


def test_a_cluster_that_cannot_be_followed_says_so(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored = Monitored(cluster)
    monitored.clusters = [CLUSTER, "dev"]
    monkeypatch.setattr(monitored.replicas, "_max_clusters", 1)
    monitored.look()
    monitored.clock.now += CLUSTERS_PAUSE
    monitored.monitor.look()
    seen = monitored.seen["dev"]
    assert (seen.totals, seen.missing, seen.age_seconds) == (
        {},
        Missing.NOT_FOLLOWED,
        CLUSTERS_PAUSE,
    )


def test_a_list_of_a_caller_finds_what_was_inspected(cluster: World) -> None:
    monitored = Monitored(cluster)
    monitored.look()
    again = monitored.inspector.inspect(CLUSTER, DEFAULT_CONSISTENCY, seconds_from_now(PATIENCE))
    assert again is monitored.inspector.of(again.replica).inspect(again.view, 0.0)
    assert (
        again.statuses[monitored.seen[CLUSTER].shown[0].key.id]
        is (monitored.seen[CLUSTER].shown[0])
    )


@pytest.fixture
def looking(cluster: World) -> Iterator[Monitored]:
    """A monitor that is in the middle of its second look."""
    monitored = Monitored(cluster)
    monitored.look()
    cluster.apply(*spread("another", "a", "a", "a"))
    monitored.clock.now += PAUSE
    monitored.inspector.begun.clear()
    monitored.inspector.go_on.clear()
    monitored.monitor.start()
    assert monitored.inspector.begun.wait(PATIENCE)
    yield monitored
    monitored.inspector.go_on.set()
    monitored.monitor.stop()


def test_a_scrape_amid_a_look_has_what_was_seen_before(looking: Monitored) -> None:
    assert "worse" in looking.owners()
    assert "another" not in looking.owners()
    looking.inspector.go_on.set()
    until(lambda: "another" in looking.owners(), "the look is done")


def test_a_look_ends_when_the_server_stops(looking: Monitored) -> None:
    stopping = threading.Thread(target=looking.monitor.stop)
    stopping.start()
    assert looking.monitor._stopped.wait(PATIENCE)
    looking.inspector.go_on.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()


def test_looks_take_a_share_of_a_core_unless_they_would_come_too_late() -> None:
    assert [pause_after(spent) for spent in (0.0, 0.1, 60.0)] == [1.0, 6.0, 30.0]
