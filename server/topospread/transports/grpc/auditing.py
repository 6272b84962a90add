"""The calls that the audit log records, and the fields that it records of each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from topospread.access.audit import DENIED, LOG, audit
from topospread.codec.error_details import code_of
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.servicers.calls import Call, ClientStreaming, Method, Unary
from topospread_proto.v1 import cluster_state_service_pb2, common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

AuditFields = dict[str, object]
"""Fields of a line of the audit log."""

Describe = Callable[[Any, Any], AuditFields]
"""From a request and its response, which is None when the call failed."""


def _changed_objects(request: Any, answer: Any) -> AuditFields:
    fields: AuditFields = {"objects": len(request.objects)}
    if answer is not None:
        name = cluster_state_service_pb2.ObjectOutcome.Name
        outcomes = Counter(result.outcome for result in answer.results)
        fields["outcomes"] = {
            name(outcome).removeprefix("OBJECT_OUTCOME_").lower(): count
            for outcome, count in sorted(outcomes.items())
        }
    return fields


def _replaced_objects(request: Any, answer: Any) -> AuditFields:
    if request is None:
        return {}
    kind = request.start.kind
    known = kind in common_pb2.Kind.values()
    name = common_pb2.Kind.Name(kind) if known else str(kind)
    fields: AuditFields = {"kind": name.removeprefix("KIND_").lower()}
    if answer is not None:
        names = ("created", "updated", "unchanged", "ignored_stale", "deleted")
        fields["outcomes"] = {
            name: count for name in names if (count := getattr(answer, f"{name}_count"))
        }
    return fields


def _placement(request: Any, answer: Any) -> AuditFields:
    fields: AuditFields = {"pod": _requested_pod(request)}
    if answer is not None:
        fields["node"] = getattr(answer, "node", "") or getattr(request, "node", "")
        code = common_pb2.VerdictCode.Name(answer.verdict.code)
        fields["verdict"] = code.removeprefix("VERDICT_CODE_").title().replace("_", "")
        fields["already_bound"] = answer.already_bound
    return fields


def _released_reservation(request: Any, answer: Any) -> AuditFields:
    fields: AuditFields = {"pod": _pod_name(request.pod)}
    return fields if answer is None else fields | {"released": answer.released}


def _deleted_cluster(request: Any, answer: Any) -> AuditFields:
    del request
    return {} if answer is None else {"objects": answer.object_count}


def _accepted_store(request: Any, answer: Any) -> AuditFields:
    del answer
    return {"store_identity": request.store_identity}


def _lease(request: Any, answer: Any) -> AuditFields:
    fields: AuditFields = {"holder": request.holder_identity}
    if answer is not None:
        fields["acquired"] = getattr(answer, "acquired", True)
        if answer.lease.HasField("fencing_token"):
            fields["fencing_token"] = answer.lease.fencing_token
    return fields


def _released_lease(request: Any, answer: Any) -> AuditFields:
    del answer
    return {"holder": request.holder_identity, "fencing_token": request.fencing_token}


AUDITED: Final[Mapping[str, Mapping[str, Describe]]] = {
    "topospread.v1.ClusterStateService": {
        "ApplyObjects": _changed_objects,
        "DeleteObjects": _changed_objects,
        "ReplaceObjects": _replaced_objects,
        "DeleteCluster": _deleted_cluster,
        "AcceptStore": _accepted_store,
    },
    "topospread.v1.LeaseService": {
        "AcquireLease": _lease,
        "RenewLease": _lease,
        "ReleaseLease": _released_lease,
    },
    "topospread.v1.PlacementService": {
        "PlacePod": _placement,
        "ReserveNode": _placement,
        "ReleaseReservation": _released_reservation,
    },
}


def audited(
    services: Mapping[str, Mapping[str, tuple[Method, str]]],
) -> dict[str, dict[str, tuple[Method, str]]]:
    """The same methods; those that change something are recorded in the audit log."""
    return {
        service: {
            name: (_audited_method(service, name, method), pool)
            for name, (method, pool) in methods.items()
        }
        for service, methods in services.items()
    }


def _audited_method(service: str, name: str, method: Method) -> Method:
    describe = AUDITED.get(service, {}).get(name)
    if describe is None:
        return method
    label = f"{service.rpartition('.')[2]}/{name}"
    if isinstance(method, Unary):
        return Unary(method.request, _audited_unary(label, method.serve, describe))
    assert isinstance(method, ClientStreaming), "methods that change something have one response"
    return ClientStreaming(method.request, _audited_stream(label, method.serve, describe))


def _audited_unary(
    label: str, serve: Callable[[Any, Call], Any], describe: Describe
) -> Callable[[Any, Call], Any]:
    def recorded(request: Any, call: Call) -> Any:
        answer = None
        code = "OK"
        try:
            answer = serve(request, call)
        except Exception as error:
            code = code_of(error)
            raise
        finally:
            _record(label, request.cluster, call, code, (request, answer), describe)
        return answer

    return recorded


def _audited_stream(
    label: str, serve: Callable[[Iterator[Any], Call], Any], describe: Describe
) -> Callable[[Iterator[Any], Call], Any]:
    """Audit ReplaceObjects: its first message has cluster and kind, its last is the commit."""

    def recorded(requests: Iterator[Any], call: Call) -> Any:
        seen: list[Any] = []
        objects = 0
        committed = False

        def counted() -> Iterator[Any]:
            nonlocal objects, committed
            for request in requests:
                if not seen:
                    seen.append(request)
                objects += len(request.batch.objects)
                committed = request.HasField("commit")
                yield request

        answer = None
        code = "OK"
        refused = False
        try:
            answer = serve(counted(), call)
        except Exception as error:
            code = code_of(error)
            refused = isinstance(error, DENIED)
            raise
        finally:
            # Refused calls are recorded by the pipeline.
            if not refused:
                first = seen[0] if seen else None
                cluster = "" if first is None else first.start.cluster
                # A list without its commit was cut, and has changed nothing.
                fields: AuditFields = {"objects": objects, "committed": committed}
                _record(label, cluster, call, code, (first, answer), describe, fields)
        return answer

    return recorded


def _record(
    label: str,
    cluster: str,
    call: Call,
    code: str,
    both: Sequence[Any],
    describe: Describe,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    if not LOG.isEnabledFor(logging.INFO):
        return
    fields: AuditFields = {"cluster": cluster or DEFAULT_CLUSTER, **more}
    answer = both[1]
    if answer is not None and (revision := answer.meta.revision):
        fields["revision"] = revision
    audit(label, call.caller, call.address(), code, fields | describe(*both))


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
