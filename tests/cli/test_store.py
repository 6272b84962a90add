"""A store that lost its history, as the person at the command line sees it."""

from __future__ import annotations

import json
import os

import pytest

from tests.cli.manifests import CLUSTER
from tests.servers import served
from tests.waiting import until
from topospread_client import Client, PreconditionFailed
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1.common_pb2 import KIND_POD


@pytest.fixture
def emptied(bare, redis_server, redis_url, monkeypatch):
    """The command, with a server that followed a cluster until its Redis was flushed."""
    with served(store=redis_url, preload="shop") as server:
        monkeypatch.setenv("TOPOSPREAD_ADDRESS", server.address)
        monkeypatch.setenv("TOPOSPREAD_CLUSTER", "shop")
        assert bare("apply", "-f", "-", stdin=CLUSTER).code == 0
        with Client(server.address, cluster="shop") as client:
            assert client.get_node_table().node_names == ["a1", "a2", "b1"]
        with redis_server.client() as redis:
            redis.flushall()
        until(lambda: "store changed" in bare("status").out, "the server has found out")
        yield bare


def state(topospread):
    (cluster,) = json.loads(topospread("status", "-o", "json").out)["clusters"]
    return cluster["nodeCount"], cluster["identityChanged"], "storeUnreachableFor" in cluster


def test_the_old_state_is_kept_and_shown(emptied):
    assert state(emptied) == (3, True, True)


def test_status_says_what_to_do(emptied):
    said = emptied("status").lines[-1]
    assert "list every kind into it" in said
    assert "restart the servers" in said


def test_refused_write_says_what_to_do(emptied):
    said = emptied("apply", "-f", "-", stdin=CLUSTER)

    assert said.code == 2
    assert "list each kind into it (ReplaceObjects), or restart the server" in said.err
    assert "Traceback" not in said.err


def test_full_input_makes_the_store_whole_again(emptied, tmp_path):
    (tmp_path / "all.yaml").write_text(CLUSTER)
    assert emptied("apply", "--replace", "-f", tmp_path / "all.yaml").code == 0

    until(lambda: state(emptied) == (3, False, False), "the server follows the store")
    assert emptied("apply", "-f", "-", stdin=CLUSTER).code == 0
    assert emptied("get", "nodes").code == 0


def test_nodes_alone_do_not_make_it_whole(emptied):
    node = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "only"}}'
    assert emptied("apply", "--replace", "-f", "-", stdin=node).code == 0

    assert emptied("apply", "-f", "-", stdin=CLUSTER).code == 2
    assert state(emptied)[:2] == (3, True)


def test_refused_write_has_its_reason(emptied):
    pod = pb.ObjectReference(kind=KIND_POD, namespace="shop", name="web-0")
    with Client(os.environ["TOPOSPREAD_ADDRESS"], cluster="shop") as client:
        with pytest.raises(PreconditionFailed) as refused:
            client.delete_objects([pod])
        assert refused.value.reason == "STORE_IDENTITY_CHANGED"
