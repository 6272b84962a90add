"""Servers that share a store and answer by different settings are seen."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.servers import served
from tests.waiting import until
from topospread.app import shared_settings
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.app.server import Server
    from topospread_client import GetServerInfoResponse

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


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path) -> str:
    if request.param == "redis":
        found: str = request.getfixturevalue("redis_url")
        return found
    return f"sqlite://{tmp_path}/state.db"


@pytest.fixture
def run(store, monkeypatch) -> Iterator[Callable[..., Server]]:
    """Starts servers on the store that look often."""
    monkeypatch.setattr(shared_settings, "PAUSE", 0.02)
    monkeypatch.setattr(shared_settings, "SOON", 0.02)
    with ExitStack() as running:
        yield lambda **flags: running.enter_context(served(store=store, **flags))


def status(server: Server) -> GetServerInfoResponse:
    with Client(server.address) as client:
        return client.get_server_info()


def named(server: Server, settings: tuple[str, ...]) -> bool:
    """Whether it says that these are different on another one."""
    return status(server).differing_settings == settings


def shown(server: Server) -> list[str]:
    """Metrics about it."""
    lines = server.metrics.expose()[0].decode().splitlines()
    return [line for line in lines if line.startswith("topospread_settings_")]


def test_each_of_them_names_the_settings_that_differ(run, store, caplog):
    first = run()
    same = run(max_waiting_calls=3, log_level="error")  # nothing that an answer depends on
    assert status(first).settings_digest == status(same).settings_digest

    with served(
        store=store,
        max_what_if_pods=7,
        feature_gates="NodeInclusionPolicyInPodTopologySpread=false",
    ) as other:
        digest = status(other).settings_digest
        assert digest != status(first).settings_digest
        for server in (first, same, other):
            until(partial(named, server, ("feature gates", "--max-what-if-pods")), "it is seen")
        assert shown(other) == [
            f'topospread_settings_info{{digest="{digest}"}} 1.0',
            "topospread_settings_differ 1.0",
        ]
    reported = [each for each in caplog.records if "other settings" in each.getMessage()]
    assert [each.levelno for each in reported] == [logging.WARNING] * 3
    assert all(each.getMessage().endswith("feature gates, --max-what-if-pods") for each in reported)

    for server in (first, same):
        until(partial(named, server, ()), "the other is gone")
        assert shown(server)[1] == "topospread_settings_differ 0.0"


def test_a_configuration_that_is_read_anew_is_compared_anew(run, tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(BY_ZONE)
    one, other = run(config=str(file)), run()
    for server in (one, other):
        until(partial(named, server, ("profiles",)), "it is seen")
    before = status(one).settings_digest

    file.write_text(BY_ZONE.replace("List", "System").partition("      defaultConstraints")[0])
    assert one.reload()

    for server in (one, other):
        until(partial(named, server, ()), "they are the same again")
    assert before != status(one).settings_digest == status(other).settings_digest
