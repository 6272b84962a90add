"""Which role each call needs, and which cluster it concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from topospread.access.callers import ANYBODY, Caller, Role
from topospread.access.certificates import NO_NAMES, names_of_pem
from topospread.codec.bounds import check_repeats
from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.asks import DEFAULT_CLUSTER
from topospread_proto.v1 import cluster_state_service_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from topospread.access.certificates import Names
    from topospread.access.gate import Gate
    from topospread.transports.grpc.context import Context

ClusterOf = Callable[[bytes], str]
"""From a request's bytes to the name of its cluster; empty when it names none."""

_ROLES: Final[Mapping[str, Mapping[str, Role]]] = {
    "topospread.v1.DecisionService": {
        "PreFilter": Role.DECIDE,
        "Filter": Role.DECIDE,
        "Score": Role.DECIDE,
        "EvaluatePod": Role.DECIDE,
        "StreamEvaluatePods": Role.DECIDE,
        "BatchEvaluatePods": Role.DECIDE,
        "ExplainPod": Role.DECIDE,
    },
    "topospread.v1.PlannerService": {
        "Simulate": Role.DECIDE,
        "RankDeletions": Role.DECIDE,
        "PlanRebalance": Role.DECIDE,
    },
    "grpcplugin.Expander": {"BestOptions": Role.DECIDE},
    # What holds nodes; facts about the cluster stay the writers' own.
    "topospread.v1.PlacementService": {
        "PlacePod": Role.PLACE,
        "ReserveNode": Role.PLACE,
        "ReleaseReservation": Role.PLACE,
        "GetReservation": Role.READ,
        "ListReservations": Role.READ,
    },
    "topospread.v1.ClusterStateService": {
        "ApplyObjects": Role.WRITE,
        "DeleteObjects": Role.WRITE,
        "ReplaceObjects": Role.WRITE,
        "GetObject": Role.READ,
        "ListObjects": Role.READ,
        "WatchObjects": Role.READ,
        "GetNodeTable": Role.READ,
        "GetCluster": Role.READ,
        "ListClusters": Role.READ,
        "DeleteCluster": Role.ADMIN,
        "AcceptStore": Role.ADMIN,
    },
    "topospread.v1.LeaseService": {
        "AcquireLease": Role.WRITE,
        "RenewLease": Role.WRITE,
        "ReleaseLease": Role.WRITE,
        "GetLease": Role.READ,
    },
    "topospread.v1.ServerService": {"GetServerInfo": Role.READ},
}


def _named(raw: bytes) -> str:
    check_repeats(frames_pb2.ClusterFrame, raw)
    return frames_pb2.ClusterFrame.FromString(raw).cluster


def _in_start(raw: bytes) -> str:
    check_repeats(cluster_state_service_pb2.ReplaceObjectsRequest, raw)
    return cluster_state_service_pb2.ReplaceObjectsRequest.FromString(raw).start.cluster


_ELSEWHERE: Final[Mapping[str, ClusterOf | None]] = {
    "/topospread.v1.ClusterStateService/ReplaceObjects": _in_start,
    # Its answer leaves out what the caller may not see.
    "/topospread.v1.ClusterStateService/ListClusters": None,
    "/topospread.v1.ServerService/GetServerInfo": None,
    # Its cluster is configured, and checked where that is known.
    "/grpcplugin.Expander/BestOptions": None,
}
"""Calls whose requests do not say in their first field which cluster is meant."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a call needs.

    Attributes:
        role: that the caller must have.
        cluster_of: finds the cluster in which; None: in any.
    """

    role: Role
    cluster_of: ClusterOf | None = _named

    def check(self, caller: Caller, raw: bytes) -> None:
        """See whether a caller may make the call with this request.

        Raises:
            PermissionDenied: the role is missing, or missing for the cluster.
            InvalidRequest: the request does not parse.
        """
        if caller.clusters(self.role) is None or self.cluster_of is None:
            return
        try:
            cluster = self.cluster_of(raw)
        except DecodeError as cause:
            raise InvalidRequest("the request does not parse") from cause
        caller.check(self.role, cluster or DEFAULT_CLUSTER)


def need_of(service: str, method: str) -> Need:
    """What a call needs; one that is not listed here is the administrators' own."""
    role = _ROLES.get(service, {}).get(method, Role.ADMIN)
    return Need(role, _ELSEWHERE.get(f"/{service}/{method}", _named))


def caller_of(gate: Gate | None, context: Context) -> Caller:
    """Who makes a call; without a gate anybody may.

    Raises:
        Unauthenticated: nobody who is known.
    """
    if gate is None:
        return ANYBODY
    shown = [value for key, value in context.invocation_metadata() if key == "authorization"]
    return gate.caller(
        [value if isinstance(value, str) else value.decode("latin-1") for value in shown],
        lambda: _names(context.auth_context()),
    )


def known_as(caller: Caller, context: Context) -> Hashable:
    """What tells a caller from others: what it is known by, or else the machine it calls from."""
    return caller.proof or address_of(context)


def address_of(context: Context) -> str:
    """The address that a call comes from, without the port."""
    kind, _, address = context.peer().partition(":")
    # gRPC writes the brackets of IPv6 as a URI does.
    return address.rpartition(":")[0].replace("%5B", "[").replace("%5D", "]") or kind


def _names(certificate: Mapping[str, Any]) -> Names:
    """The names in a certificate that gRPC has verified.

    Its own texts of them end at a NUL and hold the first common name only.
    """
    shown = certificate.get("x509_pem_cert", ())
    return names_of_pem(shown[0]) if len(shown) == 1 else NO_NAMES
