"""What a recorded version stored is read by this one, or refused by a sentence."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.servers import Peer, served
from tests.store.backends import SqliteBackend, follow_all, objects, pod, put, replay
from tests.store.conftest import SETTINGS
from tests.upgrade.descriptors import RECORDED, current, recorded
from tests.waiting import PATIENCE
from topospread.store.model import WriteOutcome
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2, decision_service_pb2

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

CLUSTER = "prod"


@pytest.fixture
def backend(tmp_path: Path) -> SqliteBackend:
    """A file with the statements that `.dump` of sqlite3 printed of the recorded version's."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / "sqlite.sql").read_text())
    return SqliteBackend(f"sqlite://{path}")


def test_fields_of_stored_messages_keep_number_name_and_type():
    """The public messages are compared by `buf breaking`, see tools/proto_rules.py."""
    now = _stored_fields(current())
    then = _stored_fields(recorded())
    for name, fields in then.items():
        # What a version stores stays. Of what it reads of that, something may go, and a message
        # may be read by another one, whose fields are those of what is stored, too.
        stored = name.startswith("Stored")
        for number, field in fields.items():
            if stored and name in now:
                # A public message may take the place of one that is stored, with its numbers.
                here = now[name][number]
                assert here[:3] == field[:3], name
                assert here == field or str(here[3]).startswith(".topospread.kubernetes.v1."), name
            elif number in now.get(name, ()):
                assert now[name][number][:3] == field[:3], name


def _stored_fields(files: FileDescriptorSet) -> dict[str, dict[int, tuple[object, ...]]]:
    (stored,) = [each for each in files.file if each.name == "topospread/internal/v1/stored.proto"]
    return {
        message.name: {
            field.number: (field.name, field.type, field.label, field.type_name)
            for field in message.field
        }
        for message in stored.message_type
    }


def test_recorded_store_is_read_and_its_history_goes_on(backend):
    store = backend.open(replace(SETTINGS, tombstone_seconds=1e9))
    held = objects(store, CLUSTER)

    assert len(held) == 13
    assert replay({}, follow_all(store, CLUSTER)) == held
    assert store.clusters() == [CLUSTER]
    # What was deleted stays deleted.
    late = store.apply(CLUSTER, [put(pod("web-2", "shop"), "131", uid="u-web-2")])
    assert late.outcomes == (WriteOutcome.IGNORED_STALE,)
    # A reservation was due long ago: that write ended it.
    head, held = store.head(CLUSTER), objects(store, CLUSTER)
    assert len(held) == 12
    store.apply(CLUSTER, [put(pod("web-5", "shop"))])
    news = follow_all(store, CLUSTER, after=head.revision)
    assert replay(held, news) == objects(store, CLUSTER)
    store.close()


def test_decisions_on_a_recorded_store_are_as_they_were(backend):
    with served(store=backend.url) as server, Peer(server.address) as peer:
        waiting = common_pb2.PodSource(ref=common_pb2.PodReference(namespace="shop", name="web-3"))
        request = decision_service_pb2.EvaluatePodRequest(cluster=CLUSTER, pod=waiting)
        answer = peer.engine.EvaluatePod(request, timeout=PATIENCE)
        assert (answer.node_count, answer.feasible_node_count) == (4, 2)
        assert [each.node for each in answer.top_nodes] == ["b1", "c1"]
        (status,) = peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE).clusters
        assert status.corrupt_count == 0
