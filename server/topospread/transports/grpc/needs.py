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
from topospread.service.asks import DEFAULT_CLUSTER
from topospread_proto.v1 import cluster_state_pb2, frames_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from topospread.access.certificates import Names
    from topospread.access.gate import Gate
    from topospread.transports.grpc.context import Context

ClusterOf = Callable[[bytes], str]
"""From a request's bytes to the name of its cluster; empty when it names none."""

_ROLES: Final[Mapping[str, Mapping[str, Role]]] = {
    "topospread.v1.SpreadEngine": {
        "PreFilter": Role.DECIDE,
        "Filter": Role.DECIDE,
        "Score": Role.DECIDE,
        "Evaluate": Role.DECIDE,
        "EvaluateStream": Role.DECIDE,
        "BatchEvaluate": Role.DECIDE,
        "Explain": Role.DECIDE,
    },
    "topospread.v1.Planner": {
        "Simulate": Role.DECIDE,
        "RankForDeletion": Role.DECIDE,
        "PlanRebalance": Role.DECIDE,
    },
    "grpcplugin.Expander": {"BestOptions": Role.DECIDE},
    # What is held is part of a decision; facts about the cluster stay the writers' own.
    "topospread.v1.Placement": {
        "Place": Role.DECIDE,
        "Reserve": Role.DECIDE,
        "Release": Role.DECIDE,
        "ListReservations": Role.READ,
    },
    "topospread.v1.ClusterState": {
        "Apply": Role.WRITE,
        "Delete": Role.WRITE,
        "Replace": Role.WRITE,
        "Get": Role.READ,
        "List": Role.READ,
        "Watch": Role.READ,
        "NodeTable": Role.READ,
        "ListClusters": Role.READ,
        "DropCluster": Role.ADMIN,
        "AcceptStore": Role.ADMIN,
    },
    "topospread.v1.Feed": {
        "Hold": Role.WRITE,
        "Leave": Role.WRITE,
    },
}


def _named(raw: bytes) -> str:
    check_repeats(frames_pb2.ClusterFrame, raw)
    return frames_pb2.ClusterFrame.FromString(raw).cluster


def _in_start(raw: bytes) -> str:
    check_repeats(cluster_state_pb2.ReplaceRequest, raw)
    return cluster_state_pb2.ReplaceRequest.FromString(raw).start.cluster


_ELSEWHERE: Final[Mapping[str, ClusterOf | None]] = {
    "/topospread.v1.ClusterState/Replace": _in_start,
    # Its answer leaves out what the caller may not see.
    "/topospread.v1.ClusterState/ListClusters": None,
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
