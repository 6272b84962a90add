"""The role that each method needs, and in which cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from topospread.access.callers import Role
from topospread.codec.parsing import check_repeats
from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread_proto.v1 import cluster_state_service_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.access.callers import Caller

ClusterOf = Callable[[bytes], str]
"""From a request's bytes to the name of its cluster; empty when it names none."""

_ROLES: Final[Mapping[str, Mapping[str, Role]]] = {
    "topospread.v1.DecisionService": {
        "PreFilter": Role.DECIDE,
        "Filter": Role.DECIDE,
        "Score": Role.DECIDE,
        "EvaluatePod": Role.DECIDE,
        "BatchEvaluatePods": Role.DECIDE,
        "ExplainPod": Role.DECIDE,
    },
    "topospread.v1.PlannerService": {
        "Simulate": Role.DECIDE,
        "RankDeletions": Role.DECIDE,
        "PlanRebalance": Role.DECIDE,
    },
    "topospread.v1.InspectorService": {
        "ListConstraints": Role.READ,
        "GetConstraint": Role.READ,
        "WatchConstraints": Role.READ,
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


def _first_field(raw: bytes) -> str:
    check_repeats(frames_pb2.ClusterFrame, raw)
    return frames_pb2.ClusterFrame.FromString(raw).cluster


def _start_message(raw: bytes) -> str:
    check_repeats(cluster_state_service_pb2.ReplaceObjectsRequest, raw)
    return cluster_state_service_pb2.ReplaceObjectsRequest.FromString(raw).start.cluster


_CLUSTER_READERS: Final[Mapping[str, ClusterOf | None]] = {
    "/topospread.v1.ClusterStateService/ReplaceObjects": _start_message,
    # Its answer leaves out what the caller may not see.
    "/topospread.v1.ClusterStateService/ListClusters": None,
    "/topospread.v1.ServerService/GetServerInfo": None,
    # Its cluster is configured, and checked where that is known.
    "/grpcplugin.Expander/BestOptions": None,
}
"""Readers of the cluster, for methods whose requests do not name it first; None: in any cluster."""


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


def permission_of(service: str, method: str) -> Permission:
    """The permission that a method requires; the admin role for one that is not listed here."""
    role = _ROLES.get(service, {}).get(method, Role.ADMIN)
    return Permission(role, _CLUSTER_READERS.get(f"/{service}/{method}", _first_field))
