"""A real Prometheus scrapes a real server, and alerts on how its pods are spread.

tests/deploy/alerts_test.yaml has how long it takes; here the rules wait for a second.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.objects import object_of
from tests.deploy.files import ROOT, parsed
from tests.redis_server import free_port
from tests.requirements import need
from tests.servers import Peer, ServerProcess, http_get
from tests.service.inspecting.cases import pod_of
from tests.service.world import node
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MONITORING = ROOT / "deploy/kubernetes/monitoring"
(ENDPOINT,) = parsed(MONITORING / "servicemonitor.yaml")["spec"]["endpoints"]

Json = dict[str, Any]


def spread(app: str, zones: str, *, pending: int = 0, **constraint: Any) -> Iterator[Json]:
    """Pods of a StatefulSet in the namespace shop with a hard constraint over zones."""
    asked = {"key": "zone", "labelSelector": {"matchLabels": {"app": app}}, **constraint}
    for number in range(len(zones) + pending):
        pod = pod_of(
            f"{app}-{number}",
            node=f"n-{zones[number]}" if number < len(zones) else "",
            owner=f"StatefulSet/{app}",
            labels={"app": app},
            constraints=[asked],
        )
        pod["metadata"]["namespace"] = "shop"
        yield pod


SATISFIED = [*(node(f"n-{zone}", zone) for zone in "abc"), *spread("even", "abc")]
BAD = [
    *spread("uneven", "aaa"),
    *spread("full", "abc", pending=2, minDomains=9),
    *spread("useless", "abc", labelSelector={"matchLabels": {"app": "nobody"}}),
]
ALERTS = {
    "TopospreadConstraintViolated": "StatefulSet/uneven in shop (default): skew 3 over"
    " topology.kubernetes.io/zone is above maxSkew.",
    "TopospreadPodsBlocked": "StatefulSet/full in shop (default): 2 pods wait, because no domain"
    " of topology.kubernetes.io/zone allows another.",
    "TopospreadConstraintIneffective": "StatefulSet/useless in shop (default): the hard constraint"
    " on topology.kubernetes.io/zone does not do what it says.",
}


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess("--store", "memory:", "--http", "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def prometheus(server: ServerProcess, tmp_path: Path) -> Iterator[str]:
    """The URL of a Prometheus that scrapes the server as the ServiceMonitor says, each second."""
    program = need("prometheus")
    rules = parsed(MONITORING / "alerts.yaml")["spec"]
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
    (tmp_path / "rules.yaml").write_text(json.dumps(rules))
    target = server.http.removeprefix("http://")
    config = {
        "global": {"evaluation_interval": "1s", "scrape_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": [str(tmp_path / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": "topospread",
                "metrics_path": ENDPOINT["path"],
                "honor_labels": ENDPOINT["honorLabels"],
                # What the operator gives each target.
                "static_configs": [{"targets": [target], "labels": {"namespace": "topospread"}}],
            }
        ],
    }
    (tmp_path / "prometheus.yaml").write_text(json.dumps(config))
    port = free_port()
    command = [
        program,
        f"--config.file={tmp_path}/prometheus.yaml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with ExitStack() as ending:
        log = ending.enter_context((tmp_path / "log").open("w"))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        ending.callback(process.wait)
        ending.callback(process.kill)
        yield f"http://127.0.0.1:{port}/api/v1"


def firing(prometheus: str) -> list[Json]:
    """The alerts that fire; none before Prometheus answers."""
    try:
        found = json.loads(http_get(f"{prometheus}/alerts")[1])
    except (OSError, ValueError):
        return []
    return [each for each in found["data"]["alerts"] if each["state"] == "firing"]


def values(prometheus: str, query: str) -> list[str]:
    """The values of a query; none before there are any."""
    try:
        found = json.loads(http_get(f"{prometheus}/query?query={query}")[1])
    except (OSError, ValueError):
        return []
    return [each["value"][1] for each in found["data"]["result"]]


def test_workloads_that_are_badly_spread_fire_until_they_are_not(
    server: ServerProcess, prometheus: str
) -> None:
    with Peer(server.address) as peer:
        peer.apply(*map(object_of, SATISFIED))
        peer.evaluate()
        satisfied = 'topospread_constraints{state="satisfied"}'
        until(lambda: values(prometheus, satisfied) == ["1"], "Prometheus has the totals")
        assert firing(prometheus) == []
        peer.apply(*map(object_of, BAD))
        until(lambda: len(firing(prometheus)) == len(ALERTS), "the alerts fire")
        fired = {each["labels"]["alertname"]: each for each in firing(prometheus)}
        assert {name: each["annotations"]["summary"] for name, each in fired.items()} == ALERTS
        for each in fired.values():
            assert each["labels"]["namespace"] == "shop"
            assert each["labels"]["cluster"] == "default"
        references = [
            state.ObjectReference(
                kind=common_pb2.KIND_POD, namespace="shop", name=each["metadata"]["name"]
            )
            for each in BAD
        ]
        request = state.DeleteObjectsRequest(cluster="default", objects=references)
        peer.state.DeleteObjects(request, timeout=PATIENCE)
        until(lambda: firing(prometheus) == [], "the alerts end")
