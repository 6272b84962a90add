"""Places that are held, through either client, on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.client.manifests import TWO_ZONES, incoming, pod, spread
from topospread_client import NotFound, trace_id
from topospread_proto.v1 import common_pb2 as common


@pytest.fixture
def zones(client):
    """A client of a cluster in which only b1 passes for the incoming pod."""
    client.apply_objects(TWO_ZONES)
    return client


def test_node_is_chosen_and_reserved(zones):
    placed = zones.place_pod(incoming(), reservation_ttl=3600)

    assert (placed.node, placed.verdict.code, placed.already_bound) == (
        "b1",
        common.VERDICT_CODE_SUCCESS,
        False,
    )
    left = placed.expire_time.ToDatetime(UTC) - datetime.now(UTC)
    assert timedelta(minutes=50) < left < timedelta(minutes=70)
    assert placed.meta.revision
    assert trace_id(placed)
    (held,) = zones.list_reservations()
    assert (held.pod.namespace, held.pod.name, held.node) == ("default", "incoming", "b1")
    assert held.labels == {"app": "web"}
    assert held.expire_time == placed.expire_time
    assert zones.get_cluster().cluster.reservation_count == 1
    assert zones.get_reservation("incoming").reservation == held


def test_a_node_is_reserved_and_released(zones):
    assert zones.reserve_node(incoming(), "b1").verdict.code == common.VERDICT_CODE_SUCCESS
    refused = zones.reserve_node(pod("x", topologySpreadConstraints=[spread(maxSkew=1)]), "missing")
    assert refused.verdict.code == common.VERDICT_CODE_ERROR
    assert not refused.HasField("expire_time")

    assert zones.release_reservation("incoming").released
    assert not zones.release_reservation("incoming").released
    with pytest.raises(NotFound):
        zones.get_reservation("incoming")
    assert list(zones.list_reservations(namespace="default")) == []
