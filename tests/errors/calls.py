"""Every method of the API, and how to call any of them."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc

import topospread_proto.v1
from tests.errors.error_status import ErrorStatus, error_status
from tests.errors.paths import resolve
from tests.waiting import PATIENCE
from topospread.generated.cluster_autoscaler import expander_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

FILES = [
    import_module(f"{topospread_proto.v1.__name__}.{each.name}")
    for each in pkgutil.iter_modules(topospread_proto.v1.__path__)
    if each.name.endswith("_service_pb2")
]
"""The files that declare a service."""

API: Mapping[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""The methods by path."""

NAMED = {path.rpartition("/")[2]: path for path in API}
"""Paths by the names of methods, which no two services share."""

EXPANDER = "/grpcplugin.Expander/BestOptions"

OF_EXPANDER = expander_pb2.DESCRIPTOR.services_by_name["Expander"].methods_by_name["BestOptions"]


def ask(
    channel: grpc.Channel,
    path: str,
    messages: Sequence[Message | bytes],
    token: Sequence[tuple[str, str]] = (),
    **more: Any,
) -> list[bytes]:
    """Call a method of whatever kind; its answers."""
    raws = [each if isinstance(each, bytes) else each.SerializeToString() for each in messages]
    call: Any = channel.stream_stream(path)
    return list(call(iter(raws), **{"timeout": PATIENCE, "metadata": tuple(token)} | more))


def refused(
    channel: grpc.Channel, path: str, messages: Sequence[Message | bytes], **more: Any
) -> ErrorStatus:
    """Why a method does not answer; where its request is wrong is a place that the request has."""
    try:
        ask(channel, path, messages, **more)
    except grpc.RpcError as failed:
        found = error_status(failed)
    else:
        raise AssertionError(f"{path} answers")
    found.path = path
    if path in API or path == EXPANDER:
        method = API.get(path, OF_EXPANDER)
        for field in found.paths:
            resolve(field, method.input_type)
    return found
