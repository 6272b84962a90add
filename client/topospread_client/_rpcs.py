"""The methods of the API's services, read from their descriptors.

Each is an attribute with the name of its method: ``EVALUATE_POD`` is EvaluatePod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message_factory import GetMessageClass

from topospread_proto.v1 import (
    cluster_state_service_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    lease_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor


@dataclass(frozen=True)
class Rpc:
    """One method of a service."""

    method: MethodDescriptor

    @cached_property
    def path(self) -> str:
        """HTTP/2 path of its calls."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @cached_property
    def request(self) -> type[Any]:
        """Type of the request message."""
        made: type[Any] = GetMessageClass(self.method.input_type)
        return made

    @cached_property
    def response(self) -> type[Any]:
        """Type of the response message."""
        made: type[Any] = GetMessageClass(self.method.output_type)
        return made

    @cached_property
    def idempotent(self) -> bool:
        """Whether a call may be repeated, whatever its request.

        Such calls change nothing on the server, or only what belongs to their caller, as a lease
        belongs to its holder; they are retried when the server was out of reach. Other calls may
        meet a write of another caller the second time. Where the request tells the server what the
        call follows, the operation retries them (`call_with_retry`); the others are not retried.
        """
        return bool(self.method.GetOptions().idempotency_level)  # 0 is IDEMPOTENCY_UNKNOWN


ALL: Final = tuple(
    Rpc(method)
    for file in (
        decision_service_pb2,
        cluster_state_service_pb2,
        placement_service_pb2,
        planner_service_pb2,
        inspector_service_pb2,
        lease_service_pb2,
        server_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)

_NAMED: Final = {re.sub(r"\B(?=[A-Z])", "_", rpc.method.name).upper(): rpc for rpc in ALL}


if TYPE_CHECKING:

    def __getattr__(name: str) -> Rpc: ...
else:
    globals().update(_NAMED)
