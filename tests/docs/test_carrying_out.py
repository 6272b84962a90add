"""The recipe that carries a plan out, run as it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.docs.pages import ROOT, blocks
from tests.requirements import machine_has
from tests.servers import served
from topospread_client import Client

OBJECTS = ROOT / "examples" / "rebalance" / "objects.yaml"
KUBECTL = """\
#!/bin/bash
echo "$*" >> calls
[ "$1" != create ] || cat >> sent
"""

pytestmark = [machine_has("jq"), machine_has("bash")]


def test_each_step_is_evicted_before_the_next(tmp_path: Path) -> None:
    (recipe,) = [each for each in blocks(ROOT / "docs" / "rebalance.md", "sh") if "jq" in each]
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    with served() as server, Client(server.address) as client:
        objects = yaml.safe_load(OBJECTS.read_text())["items"]
        for each in objects:
            each["metadata"]["uid"] = f"uid-of-{each['metadata']['name']}"
        client.apply_objects(objects)
        pods = [each.pod for each in client.plan_rebalance(namespace="shop").evictions]
        path = os.pathsep.join(
            (str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"])
        )
        environment = {**os.environ, "PATH": path, "TOPOSPREAD_ADDRESS": server.address}
        subprocess.run(["bash", "-ec", recipe], check=True, cwd=tmp_path, env=environment)
    assert len(pods) == 2
    sent = [json.loads(line) for line in (tmp_path / "sent").read_text().splitlines()]
    assert sent == [
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": "shop", "name": pod.name},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        for pod in pods
    ]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [
        call
        for pod in pods
        for call in (
            f"create --raw /api/v1/namespaces/shop/pods/{pod.name}/eviction -f -",
            f"-n shop wait --for=delete pod/{pod.name} --timeout=10m",
            "-n shop wait --for=condition=Ready pod -l app=web --timeout=10m",
        )
    ]
