"""Plans are the same whichever store holds the cluster."""

from __future__ import annotations

import yaml

from tests.redis_server import ROOT
from tests.servers import ZONE, served
from topospread_client.client import Client
from topospread_client.requests import Consistency

EXAMPLES = ROOT / "examples"


def plans(**store: str):
    objects = [
        item
        for name in ("scale-down", "rebalance")
        for item in yaml.safe_load((EXAMPLES / name / "objects.yaml").read_text())["items"]
    ]
    with served(**store) as server, Client(server.address) as client:
        fresh = Consistency(at_least_as_fresh=client.apply(objects).revision)
        ranked = client.rank_for_deletion(
            {"app": "web"}, namespace="shop", constraints=[ZONE], consistency=fresh
        )
        plan = client.plan_rebalance(consistency=fresh)
    return ranked.pods, ranked.constraints, plan.evictions, plan.groups


def test_redis_and_sqlite_give_the_same_plans(redis_url, tmp_path):
    in_redis = plans(store=redis_url)
    assert in_redis == plans(store=f"sqlite://{tmp_path}/state.db")
    assert all(in_redis)
