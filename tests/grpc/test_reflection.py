"""What callers that bring no .proto files are told of the services."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from topospread.access.refusals import Refusals
from topospread.transports.grpc.executor import StreamExecutor
from topospread.transports.grpc.reflection import reflection_handlers
from topospread.transports.grpc.standard import Door
from topospread_proto.v1 import spread_engine_pb2

SERVICE = spread_engine_pb2.DESCRIPTOR.services_by_name["SpreadEngine"].full_name


@pytest.fixture
def ask():
    server = grpc.server(ThreadPoolExecutor(2))
    streams = StreamExecutor("stream", 4)
    server.add_generic_rpc_handlers(
        (reflection_handlers([SERVICE], streams, Door(None, Refusals())),)
    )
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


def test_the_services_are_listed(ask):
    listed = ask(list_services="").list_services_response.service
    assert {each.name for each in listed} == {SERVICE, "grpc.reflection.v1alpha.ServerReflection"}


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        (SERVICE, "spread_engine.proto"),
        (f"{SERVICE}.Evaluate", "spread_engine.proto"),
        ("topospread.v1.EvaluateRequest", "spread_engine.proto"),
        ("topospread.v1.Code", "common.proto"),
    ],
)
def test_the_file_of_a_symbol_is_found_whatever_kind_it_is(ask, symbol, file):
    files = ask(file_containing_symbol=symbol).file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(files[0]).name == f"topospread_proto/v1/{file}"


@pytest.mark.parametrize("symbol", [f"{SERVICE}.Nothing", "topospread.v1.Nothing", ""])
def test_a_symbol_that_nobody_declares_is_not_found(ask, symbol):
    error = ask(file_containing_symbol=symbol).error_response
    assert error.error_code == grpc.StatusCode.NOT_FOUND.value[0]
