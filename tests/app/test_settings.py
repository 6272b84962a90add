"""Settings of running servers: digests by which they are compared, and changes of the file."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.servers import ServerProcess, served
from tests.waiting import until
from topospread_client import Client

if TYPE_CHECKING:
    from pathlib import Path

    from topospread.app.server import Server

OWN = "apiVersion: topospread.io/v1\nkind: TopospreadConfiguration\n"
BY_ZONE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
"""


def digest(server: Server) -> str:
    """The digest of GetServerInfo, which the metric has, too."""
    with Client(server.address) as client:
        found = client.get_server_info().settings_digest
    metric = f'topospread_settings_info{{digest="{found}"}} 1.0\n'
    assert metric in server.metrics.expose()[0].decode()
    return found


def test_servers_that_answer_alike_have_one_digest():
    with (
        served() as first,
        # Nothing that an answer depends on.
        served(decision_queue=3, log_level="error") as same,
        served(max_request_bytes="7KiB") as limited,
        served(feature_gates="NodeInclusionPolicyInPodTopologySpread=false") as gated,
    ):
        assert digest(first) == digest(same)
        assert len({digest(first), digest(limited), digest(gated)}) == 3


def test_digest_follows_the_profiles(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(BY_ZONE)
    with served(config=str(file)) as changed, served() as other:
        assert digest(changed) != digest(other)
        file.write_text(BY_ZONE.replace("List", "System").partition("      defaultConstr")[0])
        assert changed.reload()
        assert digest(changed) == digest(other)


def warnings(log: Path) -> list[str]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["message"] for line in lines if line["level"] == "warning"]


def test_changed_settings_that_wait_for_a_restart_are_logged(tmp_path: Path) -> None:
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    config.write_text(f"{OWN}decisionQueue: 16\nmaxConnections: 9\n")
    flags = ("--store", "memory:", "--config", str(config), "--max-connections", "7")
    with ServerProcess(*flags, stderr=str(log)) as server:

        def reload(text: str, generation: int) -> None:
            config.write_text(f"{OWN}{text}")
            server.process.send_signal(signal.SIGHUP)
            with Client(server.address) as client:
                until(
                    lambda: client.get_server_info().config_generation == generation, "it is read"
                )

        # maxConnections is given by a flag: the file plays no part.
        reload("decisionQueue: 32\nmaxConnections: 10\nstore: redis://user:secret@127.0.0.1:1\n", 2)
        until(lambda: warnings(log), "it is logged")
        (warned,) = warnings(log)
        assert warned == "settings of the file wait for a restart: decisionQueue"
        # As at the start, but for what no restart is needed for.
        reload("decisionQueue: 16\nfeatureGates: {MinDomainsInPodTopologySpread: true}\n", 3)
    assert warnings(log) == [warned]
    assert "secret" not in log.read_text()
