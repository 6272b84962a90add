"""The checks of a server's callers, and what the audit log records of calls."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from topospread.access.audit import DENIED, LOG, DenialLog
from topospread.access.audit import audit as write_line
from topospread.errors import Unauthenticated
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread_proto.v1 import cluster_state_service_pb2, common_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.access.authentication import Authenticator
    from topospread.access.rate_limit import RateLimiter
    from topospread.calls.call import Call, Describe, Interceptor, Payload, Proceed


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The checks of a server's callers.

    Attributes:
        authenticator: finds the caller; None: every caller may do everything.
        rate_limiter: bounds how often each caller may call; None: as often as it likes.
        denials: writes denied calls to the audit log.
    """

    authenticator: Authenticator | None = None
    rate_limiter: RateLimiter | None = None
    denials: DenialLog = field(default_factory=DenialLog)

    def authenticate(self, call: Call) -> None:
        """Find out who calls; before the request is read.

        Raises:
            Unauthenticated, PermissionDenied: the caller is not known, or has the role nowhere.
        """
        if self.authenticator is None:
            return
        shown = [value for key, value in call.context.metadata() if key == "authorization"]
        call.caller = self.authenticator.caller(
            [value if isinstance(value, str) else value.decode("latin-1") for value in shown],
            call.context.names,
        )
        if (role := call.method.permission.role) is not None:
            call.caller.clusters(role)

    def limit_rate(self, call: Call) -> None:
        """Count a call of a credential or else an address, or raise RateExceeded."""
        if self.rate_limiter is not None:
            self.rate_limiter.take(call.caller.credential or call.address())

    def authorize(self, call: Call) -> None:
        """Check that the caller may make the call with its request; raises as Permission.check."""
        if self.authenticator is not None:
            call.method.permission.check(call.caller, call.raw)

    def is_valid(self, call: Call) -> bool:
        """Whether the credential of an admitted caller is still valid."""
        return self.authenticator is None or self.authenticator.is_still_valid(call.caller)


# ------------------------------ the audit log


def _changed_objects(request: Any, answer: Any) -> dict[str, object]:
    fields: dict[str, object] = {"objects": len(request.objects)}
    if answer is not None:
        name = cluster_state_service_pb2.ObjectOutcome.Name
        outcomes = Counter(result.outcome for result in answer.results)
        fields["outcomes"] = {
            name(outcome).removeprefix("OBJECT_OUTCOME_").lower(): count
            for outcome, count in sorted(outcomes.items())
        }
    return fields


def _replaced_objects(request: Any, answer: Any) -> dict[str, object]:
    kind = request.start.kind
    known = kind in common_pb2.Kind.values()
    name = common_pb2.Kind.Name(kind) if known else str(kind)
    fields: dict[str, object] = {"kind": name.removeprefix("KIND_").lower()}
    if answer is not None:
        names = ("created", "updated", "unchanged", "ignored_stale", "deleted")
        fields["outcomes"] = {
            name: count for name in names if (count := getattr(answer, f"{name}_count"))
        }
    return fields


def _placement(request: Any, answer: Any) -> dict[str, object]:
    fields: dict[str, object] = {"pod": _requested_pod(request)}
    if answer is not None:
        fields["node"] = getattr(answer, "node", "") or getattr(request, "node", "")
        code = common_pb2.VerdictCode.Name(answer.verdict.code)
        fields["verdict"] = code.removeprefix("VERDICT_CODE_").title().replace("_", "")
        fields["already_bound"] = answer.already_bound
    return fields


def _released_reservation(request: Any, answer: Any) -> dict[str, object]:
    fields: dict[str, object] = {"pod": _pod_name(request.pod)}
    return fields if answer is None else fields | {"released": answer.released}


def _deleted_cluster(request: Any, answer: Any) -> dict[str, object]:
    del request
    return {} if answer is None else {"objects": answer.object_count}


FIELDS: Final[Mapping[str, Describe]] = {
    "ApplyObjects": _changed_objects,
    "DeleteObjects": _changed_objects,
    "ReplaceObjects": _replaced_objects,
    "DeleteCluster": _deleted_cluster,
    "PlacePod": _placement,
    "ReserveNode": _placement,
    "ReleaseReservation": _released_reservation,
}
"""The fields of a method's lines, beside those that all have."""


def audit(denials: DenialLog) -> Interceptor:
    """Record in the audit log what changes something, and what is denied."""

    def record(call: Call) -> None:
        error, describe = call.error, call.method.describe
        if isinstance(error, DENIED):
            caller = None if isinstance(error, Unauthenticated) else call.caller
            denials.log(call.method.label, caller, call.address(), error)
        elif describe is not None and LOG.isEnabledFor(logging.INFO):
            _record_change(call, describe)

    def recorded(call: Call, proceed: Proceed) -> Payload:
        call.ends.append(record)
        return proceed(call)

    return recorded


def _record_change(call: Call, describe: Describe) -> None:
    request, answer = call.request, call.response
    if request is None and not call.fields:
        return  # it was never read
    fields: dict[str, object] = {"cluster": _cluster(request) or DEFAULT_CLUSTER, **call.fields}
    if answer is not None and (revision := answer.meta.revision):
        fields["revision"] = revision
    if request is not None:
        fields |= describe(request, answer)
    write_line(call.method.label, call.caller, call.address(), call.code, fields)


def _cluster(request: Any) -> str:
    if request is None:
        return ""
    named: str = request.start.cluster if hasattr(request, "start") else request.cluster
    return named


def _requested_pod(request: Any) -> str:
    """Namespace and name of the pod that is to be placed, however it is given."""
    source = request.pod
    if source.HasField("ref"):
        return _pod_name(source.ref)
    raw = source.object_proto or source.object.SerializeToString()
    try:
        pod = frames_pb2.PodFrame.FromString(raw)
    except DecodeError:
        return ""
    return _pod_name(pod.metadata)


def _pod_name(pod: Any) -> str:
    return f"{pod.namespace or DEFAULT_NAMESPACE}/{pod.name}"
