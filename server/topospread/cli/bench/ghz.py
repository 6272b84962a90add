"""The same questions asked by ghz (https://ghz.sh), for whoever knows its figures.

It spends more CPU a call than the server, so that on one machine it shows less of the server than
the client in :mod:`.load`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from topospread.cli.bench.load import MAX_CONNECTIONS, CallsFailedError
from topospread.cli.bench.questions import CLUSTER
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import FileDescriptor

    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

METHOD = "topospread.v1.DecisionService/EvaluatePod"


def ghz_rate(
    program: str, address: str, pods: Sequence[k8s.Pod], concurrency: int, seconds: float
) -> float:
    """Calls a second of EvaluatePod.

    Raises:
        CallsFailedError: ghz failed, or calls did.
    """
    with tempfile.TemporaryDirectory(prefix="topospread-ghz-") as directory:
        protoset, asked = Path(directory, "evaluate.protoset"), Path(directory, "asked.json")
        protoset.write_bytes(_descriptors())
        asked.write_text(json.dumps([_request(pod) for pod in pods]))
        told = subprocess.run(
            [
                *(program, "--insecure", "--protoset", str(protoset), "--call", METHOD),
                *("-D", str(asked), "-z", f"{seconds}s", "-c", str(concurrency)),
                *("--connections", str(min(concurrency, MAX_CONNECTIONS)), "-O", "json", address),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    if told.returncode:
        raise CallsFailedError(f"{program}: {told.stderr.strip()[:500]}")
    found = json.loads(told.stdout)
    # Calls that are under way when the time is up are cut off, and counted as failed.
    if found["statusCodeDistribution"].get("OK", 0) < found["count"] - concurrency:
        raise CallsFailedError(f"{program}: {found['statusCodeDistribution']}")
    rate: float = found["rps"]
    return rate


def _request(pod: k8s.Pod) -> dict[str, object]:
    asked = pb.EvaluatePodRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod))
    name, _, _ = pod.metadata.name.rpartition("-")
    asked.pod.object.metadata.name = f"{name}-{{{{.RequestNumber}}}}"
    request: dict[str, object] = json_format.MessageToDict(asked)
    return request


def _descriptors() -> bytes:
    """The API's files and all that they import, imports first."""
    found: dict[str, FileDescriptor] = {}

    def collect(file: FileDescriptor) -> None:
        for imported in file.dependencies:
            collect(imported)
        found.setdefault(file.name, file)

    collect(pb.DESCRIPTOR)
    files = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return files.SerializeToString()
