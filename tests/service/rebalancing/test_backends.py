"""Plans are the same whichever store holds the cluster."""

from __future__ import annotations

from typing import Any

import yaml

from tests.conformance.objects import object_of
from tests.redis_server import ROOT
from tests.servers import ZONE, Peer, at_least, served
from tests.waiting import PATIENCE
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
from topospread_proto.v1.deletion_order_pb2 import RankConstraint
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest, RankDeletionsRequest

EXAMPLES = ROOT / "examples"


def plans(**store: str) -> tuple[Any, ...]:
    objects = [
        item
        for name in ("scale-down", "rebalance")
        for item in yaml.safe_load((EXAMPLES / name / "objects.yaml").read_text())["items"]
    ]
    with served(**store) as server, Peer(server.address) as peer:
        fresh = at_least(peer.apply(*map(object_of, objects)))
        ranked = peer.planner.RankDeletions(
            RankDeletionsRequest(
                label_selector=LabelSelector(match_labels={"app": "web"}),
                namespace="shop",
                constraints=[RankConstraint(topology_key=ZONE)],
                consistency=fresh,
            ),
            timeout=PATIENCE,
        )
        plan = peer.planner.PlanRebalance(PlanRebalanceRequest(consistency=fresh), timeout=PATIENCE)
    return (*map(list, (ranked.pods, ranked.constraints, plan.evictions, plan.groups)),)


def test_redis_and_sqlite_give_the_same_plans(redis_url, tmp_path):
    in_redis = plans(store=redis_url)
    assert in_redis == plans(store=f"sqlite://{tmp_path}/state.db")
    assert all(in_redis)
