"""Constraints at /metrics of real servers, and where there are none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.conformance.objects import object_of
from tests.servers import Peer, ServerProcess, served
from tests.service.inspecting.cases import pod_of
from tests.service.world import node
from tests.telemetry.expositions import samples
from tests.waiting import PATIENCE, until
from topospread.service.inspecting import monitoring
from topospread_proto.v1 import cluster_state_service_pb2 as state

if TYPE_CHECKING:
    from pathlib import Path

    from topospread.app.server import Server

OBJECTS = [
    object_of(each)
    for each in (
        *(node(f"n-{zone}", zone) for zone in "abc"),
        *(
            pod_of(
                f"{name}-{i}",
                node="n-a",
                owner=f"StatefulSet/{name}",
                labels={"app": name},
                constraints=[
                    {"key": "zone", "labelSelector": {"matchLabels": {"app": name}}, "soft": soft}
                ],
            )
            for name, soft in (("hard", False), ("soft", True))
            for i in range(3)
        ),
    )
]


def skews(exposition: bytes) -> dict[str, float]:
    """Skew by owner; each has one series."""
    series = [
        (dict(labels)["owner_name"], value)
        for (name, labels), value in samples(exposition).items()
        if name == "topospread_constraint_skew"
    ]
    assert len({owner for owner, _ in series}) == len(series)
    return dict(series)


def test_constraint_has_one_series(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    with served(store=store) as first, Peer(first.address) as peer:
        peer.apply(*OBJECTS)
    with ServerProcess("--store", store, "--http", "127.0.0.1:0") as server:
        until(
            lambda: skews(server.get("/metrics")[1].encode()) == {"hard": 3, "soft": 3},
            "the constraints are counted",
        )


def shown(server: Server) -> bytes:
    return server.metrics.expose()[0]


def test_a_cluster_that_is_deleted_takes_its_series_along() -> None:
    with (
        served(http="127.0.0.1:0", max_constraint_series=1) as server,
        Peer(server.address) as peer,
    ):
        peer.apply(*OBJECTS)
        peer.evaluate(cluster="default")
        until(lambda: skews(shown(server)) == {"hard": 3}, "the worst hard one is shown")
        peer.state.DeleteCluster(state.DeleteClusterRequest(cluster="default"), timeout=PATIENCE)
        until(lambda: not skews(shown(server)), "it is gone")


def test_an_unused_cluster_has_its_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "CLUSTERS_PAUSE", 0.1)
    with served(http="127.0.0.1:0") as server, Peer(server.address) as peer:
        peer.state.ApplyObjects(
            state.ApplyObjectsRequest(cluster="made-later", objects=OBJECTS), timeout=PATIENCE
        )
        until(lambda: skews(shown(server)) == {"hard": 3, "soft": 3}, "they are counted")


def test_a_cluster_with_too_many_says_so_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    with served(store=store) as first, Peer(first.address) as peer:
        peer.apply(*OBJECTS)
    reason = (
        "topospread_constraints_missing",
        frozenset({("cluster", "default"), ("reason", "too_many")}),
    )
    with served(store=store, http="127.0.0.1:0", max_cluster_constraints=1) as server:
        until(lambda: samples(shown(server)).get(reason) == 1, "it is said why")
        names = {name for name, _ in samples(shown(server))}
        assert "topospread_constraints_age_seconds" in names
        assert "topospread_constraints" not in names


@pytest.mark.parametrize(
    "flags", [{"constraint_metrics": "none", "http": "127.0.0.1:0"}, {"http": "off"}]
)
def test_constraints_are_not_counted_where_they_are_not_shown(flags: dict[str, str]) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with served(**flags) as server:
        began = {thread.name for thread in threading.enumerate()} - before
        assert b"topospread_constraint" not in shown(server)
        assert "constraints" not in began
