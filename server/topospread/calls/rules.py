"""The rules of each method: the role it needs, and in which cluster; its threads; its audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError

from topospread.access.callers import Role
from topospread.codec.parsing import check_repeats
from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread_proto.options.v1 import options_pb2
from topospread_proto.v1 import cluster_state_service_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.access.callers import Caller

ClusterOf = Callable[[bytes], str]
"""From a request's bytes to the name of its cluster; empty when it names none."""


def _first_field(raw: bytes) -> str:
    check_repeats(frames_pb2.ClusterFrame, raw)
    return frames_pb2.ClusterFrame.FromString(raw).cluster


def _start_message(raw: bytes) -> str:
    check_repeats(cluster_state_service_pb2.ReplaceObjectsRequest, raw)
    return cluster_state_service_pb2.ReplaceObjectsRequest.FromString(raw).start.cluster


@dataclass(frozen=True, slots=True)
class Permission:
    """The permission that a method requires.

    Attributes:
        role: that the caller must have; None: it must be known.
        cluster_of: reads from a request the cluster in which; None: in any.
    """

    role: Role | None
    cluster_of: ClusterOf | None = _first_field

    def check(self, caller: Caller, raw: bytes) -> None:
        """Check that a caller may make the call with this request.

        Raises:
            PermissionDenied: the role is missing, or missing for the cluster.
            InvalidRequest: the request does not parse.
        """
        if self.role is None or self.cluster_of is None or caller.clusters(self.role) is None:
            return
        try:
            cluster = self.cluster_of(raw)
        except DecodeError as cause:
            raise InvalidRequest("the request does not parse") from cause
        caller.check(self.role, cluster or DEFAULT_CLUSTER)


@dataclass(frozen=True, slots=True)
class MethodRules:
    """The rules of a method; options.proto describes them.

    Attributes:
        permission: that callers need.
        executor: whose threads carry it out, by name.
        audited: each call has a line in the audit log.
    """

    permission: Permission
    executor: str
    audited: bool = False


_OF_OTHERS: Final[Mapping[str, MethodRules]] = {
    # Its cluster is configured, and checked where that is known.
    "grpcplugin.Expander.BestOptions": MethodRules(Permission(Role.DECIDE, None), "expander"),
    "grpc.health.v1.Health.Check": MethodRules(Permission(None), "other"),
    "grpc.health.v1.Health.Watch": MethodRules(Permission(None), "watches"),
}
"""By full name, of services whose files are not ours."""


@cache
def rules_of(service: str, method: str) -> MethodRules:
    """The rules of a method, of which at least the executor is stated."""
    name = f"{service}.{method}"
    if name in _OF_OTHERS:
        return _OF_OTHERS[name]
    found = descriptor_pool.Default().FindMethodByName(name)
    stated = found.GetOptions().Extensions[options_pb2.rules]
    # Without a role a method is the administrators' own.
    role = Role(_word(options_pb2.Role, stated.role)) if stated.role else Role.ADMIN
    executor = _word(options_pb2.Executor, stated.executor)
    return MethodRules(
        Permission(role, _cluster_reader(found.input_type)), executor, stated.audited
    )


def _word(kind: Any, number: int) -> str:
    """The name of an enum's value without its prefix: "read"."""
    name: str = kind.Name(number)
    return name.rpartition("_")[2].lower()


def _cluster_reader(request: Any) -> ClusterOf | None:
    """How a request names its cluster; None: it concerns any."""
    if "cluster" in request.fields_by_name:
        return _first_field
    # Lists leave out what the caller may not see.
    return _start_message if "start" in request.fields_by_name else None
