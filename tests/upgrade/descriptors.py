"""Descriptors of what is offered and stored: of the code at hand, and of the release before it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.redis_server import ROOT

DESCRIPTORS = Path(__file__).parent / "released" / "descriptors.binpb"
OWN = {"frames.proto"}
"""How the server reads requests by itself: no other program sees these messages."""


def current() -> FileDescriptorSet:
    """What the code at hand offers and stores."""
    import_module("topospread.app.server")  # its process knows all of them
    pool = descriptor_pool.Default()
    found = FileDescriptorSet()
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        if path.name not in OWN:
            name = path.relative_to(ROOT / "proto").as_posix()
            pool.FindFileByName(name).CopyToProto(found.file.add())
    return found


def released() -> FileDescriptorSet:
    """What the release before offered and stored."""
    return FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
