"""The calls that this client makes, as the services' descriptors tell them.

Each has the name of its method: ``EVALUATE_POD`` is EvaluatePod.
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
    lease_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor


@dataclass(frozen=True)
class Rpc:
    """One RPC."""

    method: MethodDescriptor

    @cached_property
    def path(self) -> str:
        """The HTTP/2 path of the call."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @cached_property
    def request(self) -> type[Any]:
        """The type of the request message."""
        made: type[Any] = GetMessageClass(self.method.input_type)
        return made

    @cached_property
    def response(self) -> type[Any]:
        """The type of the response message."""
        made: type[Any] = GetMessageClass(self.method.output_type)
        return made

    @cached_property
    def safe(self) -> bool:
        """Whether a repetition does no harm, whatever is asked.

        Such calls change nothing on the server, or only what their caller alone has, as a lease is
        its holder's; the channel repeats them when the server was out of reach. Others may meet
        what somebody else wrote after the first time. Some of these name what they follow, so that
        the server can tell: those are repeated by the operation (`call_again`). The rest is its
        caller's to repeat.
        """
        return bool(self.method.GetOptions().idempotency_level)  # 0 is IDEMPOTENCY_UNKNOWN


ALL: Final = tuple(
    Rpc(method)
    for file in (
        decision_service_pb2,
        cluster_state_service_pb2,
        placement_service_pb2,
        planner_service_pb2,
        lease_service_pb2,
        server_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)

_NAMED: Final = {re.sub(r"\B(?=[A-Z])", "_", rpc.method.name).upper(): rpc for rpc in ALL}


def __getattr__(name: str) -> Rpc:
    try:
        return _NAMED[name]
    except KeyError:
        raise AttributeError(f"there is no RPC {name}") from None
