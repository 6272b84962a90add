"""Descriptors of what is offered and stored: of the code at hand, and of a recorded version.

python -m tests.upgrade.descriptors   # record those of the code at hand
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.redis_server import ROOT

RECORDED = Path(__file__).parent / "recorded"
DESCRIPTORS = RECORDED / "descriptors.binpb"


def current() -> FileDescriptorSet:
    """Descriptors of the code at hand."""
    import_module("topospread.app.server")  # which knows all of them
    pool = descriptor_pool.Default()
    found = FileDescriptorSet()
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        name = path.relative_to(ROOT / "proto").as_posix()
        pool.FindFileByName(name).CopyToProto(found.file.add())
    return found


def recorded() -> FileDescriptorSet:
    """Descriptors of the recorded version."""
    return FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(current().SerializeToString(deterministic=True))
    sys.stdout.write(f"{DESCRIPTORS}\n")
