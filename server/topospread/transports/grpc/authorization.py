"""Authentication and authorization of gRPC calls: which role a method needs, in which cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from topospread.access.audit import DENIED, DenialLog
from topospread.access.callers import ANONYMOUS, Caller, Role
from topospread.access.certificates import NO_NAMES, names_of_pem
from topospread.codec.parsing import check_repeats
from topospread.errors import InvalidRequest, PermissionDenied, Unauthenticated
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.servicers.status import status_of
from topospread.transports.grpc.transport import abort
from topospread_proto.v1 import cluster_state_service_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import grpc

    from topospread.access.authentication import Authenticator
    from topospread.access.certificates import CertificateNames
    from topospread.access.rate_limit import RateLimiter
    from topospread.errors import TopospreadError
    from topospread.transports.grpc.transport import Context

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
        role: that the caller must have.
        cluster_of: reads from a request the cluster in which; None: in any.
    """

    role: Role
    cluster_of: ClusterOf | None = _first_field

    def check(self, caller: Caller, raw: bytes) -> None:
        """Check that a caller may make the call with this request.

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


def permission_of(service: str, method: str) -> Permission:
    """The permission that a method requires; the admin role for one that is not listed here."""
    role = _ROLES.get(service, {}).get(method, Role.ADMIN)
    return Permission(role, _CLUSTER_READERS.get(f"/{service}/{method}", _first_field))


def authenticate(authenticator: Authenticator | None, context: Context) -> Caller:
    """The caller of a call; ANONYMOUS where no access file is configured.

    Raises:
        Unauthenticated: the credentials are missing or not known.
    """
    if authenticator is None:
        return ANONYMOUS
    shown = [value for key, value in context.invocation_metadata() if key == "authorization"]
    return authenticator.caller(
        [value if isinstance(value, str) else value.decode("latin-1") for value in shown],
        lambda: _names(context.auth_context()),
    )


def rate_limit_key(caller: Caller, context: Context) -> Hashable:
    """The key of a caller's rate limit: its credential or else its address."""
    return caller.credential or peer_address(context)


def peer_address(context: Context) -> str:
    """The client's address, without the port."""
    kind, _, address = context.peer().partition(":")
    # gRPC writes the brackets of IPv6 as a URI does.
    return address.rpartition(":")[0].replace("%5B", "[").replace("%5D", "]") or kind


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The checks of a server's callers: authentication, authorization, rate limit, audit.

    Attributes:
        authenticator: finds the caller; None: every caller may do everything.
        rate_limiter: bounds how often each caller may call; None: as often as it likes.
        denials: writes denied calls to the audit log.
    """

    authenticator: Authenticator | None = None
    rate_limiter: RateLimiter | None = None
    denials: DenialLog = field(default_factory=DenialLog)

    @property
    def enabled(self) -> bool:
        """Whether calls must be admitted."""
        return self.authenticator is not None or self.rate_limiter is not None

    def admit(self, permission: Permission, label: str, context: Context) -> Caller:
        """Authenticate a call, before its request is read.

        Args:
            permission: that the method requires.
            label: the method's name in the audit log.
            context: of the call.

        Raises:
            Unauthenticated, PermissionDenied, RateExceeded: the caller is not known, has the role
                nowhere, or calls too often.
        """
        caller = ANONYMOUS
        try:
            if self.authenticator is not None:
                caller = authenticate(self.authenticator, context)
                caller.clusters(permission.role)
            if self.rate_limiter is not None:
                self.rate_limiter.take(rate_limit_key(caller, context))
        except DENIED as refused:
            self.audit(label, caller, context, refused)
            raise
        return caller

    def admit_or_abort(self, label: str, role: Role | None, context: grpc.ServicerContext) -> None:
        """Abort a call of a standard service unless its caller is known and has a role somewhere.

        Args:
            label: the method's name in the audit log.
            role: None: any caller that is known.
            context: of the call.
        """
        caller: Caller | None = None
        try:
            caller = authenticate(self.authenticator, context)
            if role is not None:
                caller.clusters(role)
        except (Unauthenticated, PermissionDenied) as refused:
            self.denials.log(label, caller, peer_address(context), refused)
            abort(context, status_of(refused))

    def check(
        self, permission: Permission, label: str, caller: Caller, raw: bytes, context: Context
    ) -> None:
        """Authorize a request.

        Raises:
            PermissionDenied, InvalidRequest: see :meth:`Permission.check`.
        """
        if self.authenticator is not None:
            try:
                permission.check(caller, raw)
            except DENIED as refused:
                self.audit(label, caller, context, refused)
                raise

    def audit(self, label: str, caller: Caller, context: Context, refused: TopospreadError) -> None:
        """Record a refused call in the audit log."""
        known = None if isinstance(refused, Unauthenticated) else caller
        self.denials.log(label, known, peer_address(context), refused)

    def is_valid(self, caller: Caller) -> bool:
        """Whether an admitted caller's credential is still valid."""
        return self.authenticator is None or self.authenticator.is_still_valid(caller)


def _names(certificate: Mapping[str, Any]) -> CertificateNames:
    """The names in a certificate that gRPC has verified.

    Its own texts of them end at a NUL and hold the first common name only.
    """
    shown = certificate.get("x509_pem_cert", ())
    return names_of_pem(shown[0]) if len(shown) == 1 else NO_NAMES
