"""The reflection service."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from topospread.calls.access import AccessControl
from topospread.calls.executor import Executor
from topospread.calls.memory import MemoryGuard, Sweeper
from topospread.calls.pipeline import Parts, Pipeline
from topospread.calls.sizes import MessageLimits
from topospread.rpc.standard_services import reflection_handler
from topospread_proto.v1 import decision_service_pb2

SERVICE = decision_service_pb2.DESCRIPTOR.services_by_name["DecisionService"].full_name


@pytest.fixture
def ask():
    server = grpc.server(ThreadPoolExecutor(2))
    streams = Executor("streams", 4, 0)
    parts = Parts(None, None, AccessControl(), MessageLimits(), MemoryGuard(1 << 20), Sweeper())
    server.add_generic_rpc_handlers((reflection_handler([SERVICE], Pipeline(parts), streams),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)

        def answer(**question):
            request = reflection_pb2.ServerReflectionRequest(**question)
            method: Any = stub.ServerReflectionInfo  # the stubs do not know its type
            return next(iter(method(iter([request]), timeout=10)))

        yield answer
    server.stop(None).wait()
    streams.shutdown()


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        (SERVICE, "decision_service.proto"),
        (f"{SERVICE}.EvaluatePod", "decision_service.proto"),
        ("topospread.v1.EvaluatePodRequest", "decision_service.proto"),
        ("topospread.v1.VerdictCode", "common.proto"),
    ],
)
def test_reflection_finds_the_file_of_any_kind_of_symbol(ask, symbol, file):
    files = ask(file_containing_symbol=symbol).file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(files[0]).name == f"topospread/v1/{file}"


def test_reflection_has_every_fields_json_name(ask):
    """grpcurl prints the names that it is told, and violations name fields as JSON does."""
    found = ask(file_containing_symbol=SERVICE).file_descriptor_response.file_descriptor_proto
    files = [FileDescriptorProto.FromString(each) for each in found]
    names = dict(json_names([message for file in files for message in file.message_type]))
    assert names["EvaluatePodResponse.feasible_node_count"] == "feasibleNodeCount"
    assert names["FeatureGatesEntry.key"] == "key"
    assert [field for field, name in names.items() if not name] == []


def json_names(messages):
    for message in messages:
        for field in message.field:
            yield f"{message.name}.{field.name}", field.json_name
        yield from json_names(message.nested_type)


def test_reflection_finds_the_error_reasons():
    """In a process of its own: whatever else was imported here is found as well."""
    find = "descriptor_pool.Default().FindFileContainingSymbol('topospread.v1.ErrorReason')"
    modules = "from google.protobuf import descriptor_pool; import topospread.app.server"
    subprocess.run([sys.executable, "-c", f"{modules}; {find}"], check=True)


@pytest.mark.parametrize("symbol", [f"{SERVICE}.Nothing", "topospread.v1.Nothing", ""])
def test_reflection_does_not_find_an_undeclared_symbol(ask, symbol):
    error = ask(file_containing_symbol=symbol).error_response
    assert error.error_code == grpc.StatusCode.NOT_FOUND.value[0]
