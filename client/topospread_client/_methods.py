"""The methods of the API's services, by their names, as their descriptors tell them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message_factory import GetMessageClass

from topospread_client._errors import invalid

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor


class Method(NamedTuple):
    """One method of a service.

    Attributes:
        name: without its service; no two services have the same.
        kind: name of the channel's method that makes its stub.
        idempotent: whether a call may be repeated, whatever its request: it changes nothing on the
            server.
    """

    name: str
    path: str
    kind: str
    request: type[Any]
    response: type[Any]
    idempotent: bool
    takes_cluster: bool


def _method(method: MethodDescriptor) -> Method:
    sides = (method.client_streaming, method.server_streaming)
    return Method(
        name=method.name,
        path=f"/{method.containing_service.full_name}/{method.name}",
        kind="_".join("stream" if streams else "unary" for streams in sides),
        request=GetMessageClass(method.input_type),
        response=GetMessageClass(method.output_type),
        idempotent=bool(method.GetOptions().idempotency_level),  # 0 is IDEMPOTENCY_UNKNOWN
        takes_cluster="cluster" in method.input_type.fields_by_name,
    )


METHODS: Final = {
    method.name: _method(method)
    for of in ("decision", "cluster_state", "placement", "planner", "inspector", "server")
    for service in import_module(
        f"topospread_proto.v1.{of}_service_pb2"
    ).DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def method_of(name: str, *, streaming: bool = False) -> Method:
    """Find a method; InvalidRequest for an unknown one, or one that answers the other way."""
    method = METHODS.get(str(name))
    if method is None:
        raise invalid("method", f"{name!r} is no method", "FIELD_VALUE_NOT_SUPPORTED")
    if method.kind.endswith("stream") != streaming:
        text = f"{name} answers " + ("once: call it" if streaming else "in a stream")
        raise invalid("method", text, "FIELD_VALUE_NOT_SUPPORTED")
    return method
