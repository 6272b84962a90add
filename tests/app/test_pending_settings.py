"""What changes in the configuration file of a running server and waits for a restart is named."""

from __future__ import annotations

import json
import signal

import pytest

from tests.servers import ServerProcess
from tests.waiting import until
from topospread_client import Client

OWN = "apiVersion: topospread.io/v1\nkind: TopospreadConfiguration\n"
ENOUGH = 8
"""Connections that reach each of two workers, as good as surely."""


def infos(server):
    for _ in range(1 if server.size == 1 else ENOUGH):
        with Client(server.address) as client:
            yield client.get_server_info()


def generations(server):
    return {info.config_generation for info in infos(server)}


def pending(server):
    return {info.pending_settings for info in infos(server)}


def warnings(log):
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["message"] for line in lines if line["level"] == "warning"]


def waiting(log):
    return [line for line in warnings(log) if "wait for a restart" in line]


@pytest.mark.parametrize("workers", [1, 2])
def test_changed_settings_are_named_until_they_are_changed_back(tmp_path, redis_url, workers):
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    before = f"{OWN}maxWaitingCalls: 16\nmaxStreams: 9\n"
    config.write_text(before)
    flags = ("--store", redis_url, "--config", str(config), "--workers", str(workers))
    with ServerProcess(*flags, "--max-streams", "7", stderr=str(log)) as server:
        server.size = workers
        config.write_text(f"{OWN}maxWaitingCalls: 32\nmaxStreams: 10\nlogLevel: error\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: generations(server) == {2}, "it was read")
        # The other one is given by a flag: what the file has plays no part, now or later.
        assert pending(server) == {("maxWaitingCalls", "logLevel")}
        until(lambda: len(waiting(log)) == workers, "each worker has said it")
        text = ": maxWaitingCalls (16 → 32), logLevel (info → error)"
        assert all(line.endswith(text) for line in waiting(log))
        config.write_text(before)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: generations(server) == {3}, "it was read")
        assert pending(server) == {()}
    assert len(waiting(log)) == workers


def test_no_password_is_shown(tmp_path, redis_url):
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    config.write_text(f"{OWN}store: {redis_url}\n")
    with ServerProcess("--config", str(config), stderr=str(log)) as server:
        config.write_text(f"{OWN}store: redis://user:geheim@127.0.0.1:1/0\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: pending(server) == {("store",)}, "it was read")
        until(lambda: waiting(log), "it was said")
    assert any("→ redis://***@127.0.0.1:1/0" in line for line in warnings(log))
    assert "geheim" not in log.read_text()


def test_profiles_and_feature_gates_wait_for_nothing(tmp_path, redis_url):
    config = tmp_path / "config.yaml"
    config.write_text(OWN)
    with ServerProcess("--store", redis_url, "--config", str(config)) as server:
        config.write_text(f"{OWN}featureGates: {{MinDomainsInPodTopologySpread: true}}\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: generations(server) == {2}, "it was read")
        assert pending(server) == {()}
