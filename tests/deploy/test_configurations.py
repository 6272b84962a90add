"""What stands around the servers is configured for services and ports that there are."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.deploy.files import FOLDER, binds, parsed, services
from tests.requirements import need

SERVICES = services()
BALANCER = FOLDER / "haproxy.cfg"
COLLECTOR = FOLDER / "otel-collector.yaml"
PROMETHEUS = FOLDER / "prometheus.yaml"

# Where each service listens for the others.
LISTENING = {
    "topospread-1": {7946, 7947},
    "topospread-2": {7946, 7947},
    "balancer": {7946, 8404},
    "otel-collector": {4317, 8888},
    "jaeger": {4317, 13133, 16686},
    "redis": {6379},
}


def reachable(address):
    host, _, port = address.rpartition(":")
    return int(port) in LISTENING.get(host, ())


def test_every_configuration_is_mounted_by_somebody():
    mounted = {source for each in SERVICES.values() for source, _ in binds(each)}
    for file in (BALANCER, COLLECTOR, PROMETHEUS, FOLDER / "load" / "evaluate.json"):
        assert f"./{file.relative_to(FOLDER.parents[1]).as_posix()}" in mounted


@pytest.mark.parametrize("name", ["otel-collector", "prometheus"])
def test_programs_are_pointed_at_the_file_that_is_mounted(name):
    (mounted,) = [v.split(":")[1] for v in SERVICES[name]["volumes"] if v.startswith("./")]
    assert any(argument.endswith(f"={mounted}") for argument in SERVICES[name]["command"])


def test_prometheus_scrapes_each_server_and_not_the_balancer_in_their_stead():
    jobs = {job["job_name"]: job for job in parsed(PROMETHEUS)["scrape_configs"]}
    targets = {
        name: {t for config in job["static_configs"] for t in config["targets"]}
        for name, job in jobs.items()
    }
    assert targets["topospread"] == {"topospread-1:7947", "topospread-2:7947"}
    for target in set().union(*targets.values()):
        assert reachable(target), target


def test_spans_go_from_the_servers_to_the_collector_to_jaeger():
    endpoint = SERVICES["topospread-1"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert reachable(endpoint.removeprefix("http://"))
    config = parsed(COLLECTOR)
    receiver = config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert int(receiver.rpartition(":")[2]) in LISTENING["otel-collector"]
    traces = config["service"]["pipelines"]["traces"]
    for part in ("receivers", "processors", "exporters"):
        assert set(traces[part]) == set(config[part])
    (exporter,) = config["exporters"].values()
    assert exporter["endpoint"] == "jaeger:4317"
    (reader,) = config["service"]["telemetry"]["metrics"]["readers"]
    port = reader["pull"]["exporter"]["prometheus"]["port"]
    assert port in LISTENING["otel-collector"]


def test_the_balancer_knows_both_servers_and_asks_whether_they_are_ready():
    text = BALANCER.read_text()
    servers = dict(re.findall(r"^  server (\S+) (\S+) proto h2 ", text, re.MULTILINE))
    assert servers == {name: f"{name}:7946" for name in ("topospread-1", "topospread-2")}
    assert "http-check send meth GET uri /readyz" in text
    assert re.search(r"default-server check port 7947\b", text)
    assert "balance roundrobin" in text


def test_the_balancer_listens_where_others_look_for_it():
    bound = set(map(int, re.findall(r"^  bind :(\d+)", BALANCER.read_text(), re.MULTILINE)))
    published = {int(port.rpartition(":")[2]) for port in SERVICES["balancer"]["ports"]}
    assert bound == published == LISTENING["balancer"]


def test_haproxy_itself_takes_the_balancers_configuration():
    command = [need("haproxy"), "-c", "-f", str(BALANCER)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_prometheus_itself_takes_its_configuration():
    command = [need("promtool", target="prometheus"), "check", "config", str(PROMETHEUS)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
