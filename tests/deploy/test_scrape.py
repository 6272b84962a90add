"""A real Prometheus, told what the README's kustomization renders, scrapes a real server."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.access.callers import AccessFile
from tests.deploy.test_kustomize import README, rendered
from tests.redis_server import free_port
from tests.requirements import machine_has, need
from tests.servers import ServerProcess, http_get
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = machine_has("kubectl")


def scrape_config(endpoint: dict[str, Any], target: str, folder: Path) -> dict[str, Any]:
    """What the operator makes of an endpoint of a ServiceMonitor, for one target."""
    made: dict[str, Any] = {
        "job_name": "topospread",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint["honorLabels"],
        "static_configs": [{"targets": [target]}],
    }
    if "scheme" in endpoint:
        made["scheme"] = endpoint["scheme"]
    if "tlsConfig" in endpoint:
        key = endpoint["tlsConfig"]["ca"]["secret"]["key"]
        name = endpoint["tlsConfig"]["serverName"]
        made["tls_config"] = {"ca_file": str(folder / key), "server_name": name}
    if "authorization" in endpoint:
        key = endpoint["authorization"]["credentials"]["key"]
        kind = endpoint["authorization"]["type"]
        made["authorization"] = {"type": kind, "credentials_file": str(folder / key)}
    return made


def targets(port: int) -> list[tuple[str, str]]:
    """Health and last error of Prometheus' targets; none before it answers."""
    try:
        found = json.loads(http_get(f"http://127.0.0.1:{port}/api/v1/targets")[1])
    except (OSError, ValueError):
        return []
    return [(each["health"], each["lastError"]) for each in found["data"]["activeTargets"]]


@pytest.mark.parametrize("lacks", ["nothing", "authorization", "tlsConfig"])
def test_the_example_is_scraped(tmp_path: Path, lacks: str) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    objects = rendered(tmp_path / "readme", example)
    (endpoint,) = objects["ServiceMonitor/topospread"]["spec"]["endpoints"]
    endpoint.pop(lacks, None)
    # The keys of the Secrets that the README makes.
    authority = trustme.CA()
    certificate = authority.issue_cert("topospread.topospread.svc")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    access = AccessFile(tmp_path / "access.yaml", prometheus=["read"])
    (tmp_path / "token").write_text(access.tokens["prometheus"].text)
    port = free_port()
    flags = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    store = ("--store", "memory:", "--http", "127.0.0.1:0", "--access-file", str(access))
    with ExitStack() as ending:
        server = ending.enter_context(ServerProcess(*store, *flags))
        target = server.http.removeprefix("https://")
        config = {"scrape_configs": [scrape_config(endpoint, target, tmp_path)]}
        (tmp_path / "prometheus.yaml").write_text(json.dumps(config))
        command = [
            need("prometheus"),
            f"--config.file={tmp_path}/prometheus.yaml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        log = ending.enter_context((tmp_path / "log").open("w"))
        prometheus = subprocess.Popen(command, stdout=log, stderr=log)
        ending.callback(prometheus.wait)
        ending.callback(prometheus.kill)
        until(lambda: any(health != "unknown" for health, _ in targets(port)), "it has scraped")
        if lacks == "nothing":
            until(lambda: [each for each, _ in targets(port)] == ["up"], "it scrapes")
            asked = f"http://127.0.0.1:{port}/api/v1/query?query=topospread_queue_depth"
            until(
                lambda: json.loads(http_get(asked)[1])["data"]["result"] != [], "series are there"
            )
        else:
            ((health, error),) = targets(port)
            said = {"authorization": "401", "tlsConfig": "certificate"}[lacks]
            assert (health, said in error) == ("down", True)
