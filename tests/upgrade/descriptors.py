"""Descriptors of what is offered and stored: of the code at hand, and of the release before it."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.redis_server import ROOT
from topospread_proto.v1 import (  # noqa: F401 - known to the pool once they are imported
    cluster_state_pb2,
    expander_pb2,
    explain_pb2,
    feed_pb2,
    internal_pb2,
    placement_pb2,
    planner_pb2,
    rank_pb2,
    rebalance_pb2,
    simulate_pb2,
    spread_engine_pb2,
)

DESCRIPTORS = Path(__file__).parent / "released" / "descriptors.binpb"
OWN = {"frames.proto"}
"""How the server reads requests by itself: no other program sees these messages."""


def current() -> FileDescriptorSet:
    """What the code at hand offers and stores."""
    pool = descriptor_pool.Default()
    found = FileDescriptorSet()
    for path in sorted((ROOT / "proto" / "topospread_proto" / "v1").glob("*.proto")):
        if path.name not in OWN:
            pool.FindFileByName(f"topospread_proto/v1/{path.name}").CopyToProto(found.file.add())
    return found


def released() -> FileDescriptorSet:
    """What the release before offered and stored."""
    return FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
