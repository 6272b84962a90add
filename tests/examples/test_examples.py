"""The examples are run as the documentation says."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples import make_cluster
from examples.scheduler_loop import schedule
from tests.servers import served
from topospread.cli.manifest_files import read
from topospread_client import Client

ROOT = Path(__file__).parents[2]
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def server():
    with served() as server:
        yield server


@pytest.fixture
def client(server):
    with Client(server.address) as client:
        yield client


def manifests(path):
    return [manifest.content for manifest in read([str(ROOT / "examples" / path)])]


def test_the_demonstration_ends_by_itself():
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert "fits:     32 of 60 nodes (spreading alone leaves 36)" in ended.stdout
    assert "fits:     11 of 60 nodes (spreading alone leaves 12)" in ended.stdout
    assert "fits:     0 of 60 nodes" in ended.stdout
    assert "message:  0/60 nodes are available: 1 node(s) were unschedulable, " in ended.stdout
    assert ended.stdout.count("trace: ") >= 5
    assert ended.stdout.count(" runs on ") == 9


def test_the_sample_cluster_is_what_its_script_writes(tmp_path, monkeypatch):
    (tmp_path / "cluster").mkdir()
    monkeypatch.setattr(make_cluster, "HERE", tmp_path)
    make_cluster.main()
    for made in (tmp_path / "cluster").iterdir():
        assert made.read_text() == (ROOT / "examples" / "cluster" / made.name).read_text()


def test_the_sample_cluster_has_what_the_demonstration_says():
    kinds = Counter(manifest["kind"] for manifest in manifests("cluster"))
    assert (kinds["Node"], kinds["Pod"]) == (60, 400)
    zones = {node["metadata"]["labels"][ZONE] for node in manifests("cluster/nodes.yaml")}
    assert len(zones) == 5


def test_the_scheduler_loop_places_pods_within_their_constraints(client):
    client.apply_objects(manifests("cluster"))
    written = client.apply_objects(manifests("waiting"))
    after = written.meta.revision
    zones = {
        each.node.metadata.name: each.node.metadata.labels[ZONE]
        for each in client.list_objects("NODE", consistency=after)
    }
    placed = schedule(client)
    assert len(placed) == 9
    per_zone = Counter(zones[node] for node in placed.values())
    assert max(per_zone.values()) - min(per_zone.values()) <= 1
    assert len(set(placed.values())) == 9, "the soft constraint keeps them on nodes of their own"
    assert schedule(client) == {}, "nothing waits any more"


def test_two_scheduler_loops_at_once_keep_the_constraints_together(server, client):
    client.apply_objects(manifests("cluster"))
    client.apply_objects(manifests("waiting"))
    newest = {"fully_consistent": True}
    nodes = client.list_objects("NODE", consistency=newest)
    zones = {each.node.metadata.name: each.node.metadata.labels[ZONE] for each in nodes}
    with (
        Client(server.address) as one,
        Client(server.address) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        first, second = pool.map(schedule, (one, other))
    placed = first | second
    assert len(placed) == 9
    assert placed == second | first, "both put each pod on the same node"
    per_zone = Counter(zones[node] for node in placed.values())
    assert max(per_zone.values()) - min(per_zone.values()) <= 1
    stored = {
        f"{each.pod.metadata.namespace}/{each.pod.metadata.name}": each.pod.spec.node_name
        for each in client.list_objects("POD", consistency=newest)
    }
    assert placed.items() <= stored.items()


def test_the_scheduler_loop_leaves_waiting_what_fits_nowhere(client, capsys):
    client.apply_objects(manifests("cluster"))
    client.apply_objects(manifests("pods/fits-nowhere.yaml"))
    client.get_node_table(consistency={"fully_consistent": True})
    assert schedule(client) == {}
    assert "data/ledger-5 waits: 0/60 nodes are available" in capsys.readouterr().out
