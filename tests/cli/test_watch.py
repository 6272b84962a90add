"""`topospread watch`, as a process of its own that is ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from tests.cli.conftest import check_document
from tests.cli.manifests import CLUSTER
from tests.servers import Peer, pod, served, two_zones
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread.rpc import server as grpc_server


@pytest.mark.parametrize("form", ["table", "json", "name"])
def test_initial_objects_and_changes_are_printed(topospread, address, cluster, form):
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    command = [sys.executable, "-m", "topospread", "watch", "nodes", "--send-initial", "-o", form]
    environment = {**os.environ, "TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert topospread("delete", "node", "a1").code == 0
        # A revision may hold the name of the node by chance.
        last = '"Deleted"' if form == "json" else "a1"
        while last not in lines[-1]:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    if form != "json":
        words = ["node/b1"] if form == "name" else ["applied", "node/b1"]
        assert lines[2].split() == words
        return
    documents = [json.loads(line) for line in lines]
    for document in documents:
        check_document(document)
    assert [each["type"] for each in documents if each["type"] != "Bookmark"] == [
        *["Applied"] * 3,
        "Deleted",
    ]
    assert documents[0]["object"]["kind"] == "Node"


def test_watch_continues_when_its_connection_is_cut(monkeypatch):
    monkeypatch.setattr(grpc_server, "MAX_AGE_GRACE_MS", 50)
    command = [sys.executable, "-m", "topospread", "watch", "pods", "-o", "name"]
    labels = {"method": "ClusterStateService/WatchObjects", "code": "CANCELLED"}
    with served(max_connection_age=1.0) as server:

        def write(*objects):
            with Peer(server.address) as peer:
                peer.apply(*objects)

        def cut(times):
            name = "topospread_calls_total"
            return (value(server.metrics.expose()[0], name, **labels) or 0) >= times

        write(*two_zones())
        environment = {**os.environ, "TOPOSPREAD_ADDRESS": server.address}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for number in (1, 2):
                    until(partial(cut, number), "the watch is cut")
                    write(pod(f"p{number}", "a1"))
                    assert process.stdout.readline() == f"pod/default/p{number}\n"
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 130
                assert process.stderr.read().split() == ["topospread:", "interrupted"]
            finally:
                process.kill()
