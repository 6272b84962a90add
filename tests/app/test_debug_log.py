"""What `--log-level debug` adds, and that nothing of a call's content is in it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.servers import incoming, served, two_zones
from tests.waiting import until
from topospread_client import Client, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.app.server import Server


def contains(log: pytest.LogCaptureFixture, text: str) -> bool:
    return text in log.text


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as running:
        yield running


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_debug_has_a_line_for_each_call(
    server: Server, caplog: pytest.LogCaptureFixture, level: str
) -> None:
    caplog.set_level(getattr(logging, level), logger="topospread")
    with Client(server.address) as client:
        client.apply_objects(two_zones())
        client.evaluate_pod(incoming())
        with pytest.raises(NotFound):
            client.get_cluster(cluster="missing")
    if level == "INFO":
        assert " in " not in "".join(
            each.message for each in caplog.records if each.name.endswith("handlers")
        )
        return
    for text in ("ApplyObjects OK in", "EvaluatePod OK in", "GetCluster NOT_FOUND in"):
        until(partial(contains, caplog, text), text)
    assert "web-0" not in caplog.text
