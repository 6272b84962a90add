"""Descriptors of what is offered and stored: of the code at hand, and of an earlier version it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.redis_server import ROOT

DESCRIPTORS = Path(__file__).parent / "recorded" / "descriptors.binpb"


def current() -> FileDescriptorSet:
    """Descriptors of the code at hand."""
    import_module("topospread.app.server")  # its process knows all of them
    pool = descriptor_pool.Default()
    found = FileDescriptorSet()
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        name = path.relative_to(ROOT / "proto").as_posix()
        pool.FindFileByName(name).CopyToProto(found.file.add())
    return found


def recorded() -> FileDescriptorSet:
    """Descriptors of the earlier version that recorded/ is of."""
    return FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
