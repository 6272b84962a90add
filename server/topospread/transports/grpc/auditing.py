"""Which calls the audit log tells of, and what it says of each, read off request and answer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from topospread.access.audit import LOG, audit
from topospread.access.refusals import REFUSED
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.transports.grpc.calls import Call, Method, StreamIn, Unary
from topospread.transports.grpc.failures import code_of
from topospread_proto.v1 import cluster_state_service_pb2, common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

What = dict[str, object]
Says = Callable[[Any, Any], What]
"""What a request and its answer say; the answer is None when the call failed."""


def _applied(request: Any, answer: Any) -> What:
    what: What = {"objects": len(request.objects)}
    if answer is not None:
        name = cluster_state_service_pb2.ObjectOutcome.Name
        outcomes = Counter(result.outcome for result in answer.results)
        what["outcomes"] = {
            name(outcome).removeprefix("OBJECT_OUTCOME_").lower(): count
            for outcome, count in sorted(outcomes.items())
        }
    return what


def _replaced(request: Any, answer: Any) -> What:
    if request is None:
        return {}
    kind = request.start.kind
    known = kind in common_pb2.Kind.values()
    name = common_pb2.Kind.Name(kind) if known else str(kind)
    what: What = {"kind": name.removeprefix("KIND_").lower()}
    if answer is not None:
        names = ("created", "updated", "unchanged", "ignored_stale", "deleted")
        what["outcomes"] = {
            name: count for name in names if (count := getattr(answer, f"{name}_count"))
        }
    return what


def _held(request: Any, answer: Any) -> What:
    what: What = {"pod": _pod(request)}
    if answer is not None:
        what["node"] = getattr(answer, "node", "") or getattr(request, "node", "")
        code = common_pb2.VerdictCode.Name(answer.verdict.code)
        what["verdict"] = code.removeprefix("VERDICT_CODE_").title().replace("_", "")
        what["already_bound"] = answer.already_bound
    return what


def _released(request: Any, answer: Any) -> What:
    what: What = {"pod": _named(request.pod)}
    return what if answer is None else what | {"released": answer.released}


def _dropped(request: Any, answer: Any) -> What:
    del request
    return {} if answer is None else {"objects": answer.object_count}


def _accepted(request: Any, answer: Any) -> What:
    del answer
    return {"store_identity": request.store_identity}


def _leased(request: Any, answer: Any) -> What:
    what: What = {"holder": request.holder_identity}
    if answer is not None:
        what["acquired"] = getattr(answer, "acquired", True)
        if answer.lease.HasField("fencing_token"):
            what["fencing_token"] = answer.lease.fencing_token
    return what


def _left(request: Any, answer: Any) -> What:
    del answer
    return {"holder": request.holder_identity, "fencing_token": request.fencing_token}


AUDITED: Final[Mapping[str, Mapping[str, Says]]] = {
    "topospread.v1.ClusterStateService": {
        "ApplyObjects": _applied,
        "DeleteObjects": _applied,
        "ReplaceObjects": _replaced,
        "DeleteCluster": _dropped,
        "AcceptStore": _accepted,
    },
    "topospread.v1.LeaseService": {
        "AcquireLease": _leased,
        "RenewLease": _leased,
        "ReleaseLease": _left,
    },
    "topospread.v1.PlacementService": {
        "PlacePod": _held,
        "ReserveNode": _held,
        "ReleaseReservation": _released,
    },
}


def audited(
    services: Mapping[str, Mapping[str, tuple[Method, str]]],
) -> dict[str, dict[str, tuple[Method, str]]]:
    """The same methods; those that change something tell the audit log."""
    return {
        service: {
            name: (_told(service, name, method), pool) for name, (method, pool) in methods.items()
        }
        for service, methods in services.items()
    }


def _told(service: str, name: str, method: Method) -> Method:
    says = AUDITED.get(service, {}).get(name)
    if says is None:
        return method
    label = f"{service.rpartition('.')[2]}/{name}"
    if isinstance(method, Unary):
        return Unary(method.request, _telling(label, method.serve, says))
    assert isinstance(method, StreamIn), "what changes something has one answer"
    return StreamIn(method.request, _telling_of_first(label, method.serve, says))


def _telling(
    label: str, serve: Callable[[Any, Call], Any], says: Says
) -> Callable[[Any, Call], Any]:
    def told(request: Any, call: Call) -> Any:
        answer = None
        code = "OK"
        try:
            answer = serve(request, call)
        except Exception as error:
            code = code_of(error).name
            raise
        finally:
            _tell(label, request.cluster, call, code, (request, answer), says)
        return answer

    return told


def _telling_of_first(
    label: str, serve: Callable[[Iterator[Any], Call], Any], says: Says
) -> Callable[[Iterator[Any], Call], Any]:
    """For ReplaceObjects: the first message says what it is about, the last that it is whole."""

    def told(requests: Iterator[Any], call: Call) -> Any:
        seen: list[Any] = []
        objects = 0
        committed = False

        def noted() -> Iterator[Any]:
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
            answer = serve(noted(), call)
        except Exception as error:
            code = code_of(error).name
            refused = isinstance(error, REFUSED)
            raise
        finally:
            # The frame tells of who was not let in.
            if not refused:
                first = seen[0] if seen else None
                cluster = "" if first is None else first.start.cluster
                # A list without its commit was cut, and has changed nothing.
                what: What = {"objects": objects, "committed": committed}
                _tell(label, cluster, call, code, (first, answer), says, what)
        return answer

    return told


def _tell(
    label: str,
    cluster: str,
    call: Call,
    code: str,
    both: Sequence[Any],
    says: Says,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    if not LOG.isEnabledFor(logging.INFO):
        return
    what: What = {"cluster": cluster or DEFAULT_CLUSTER, **more}
    answer = both[1]
    if answer is not None and (revision := answer.meta.revision):
        what["revision"] = revision
    audit(label, call.caller, call.address(), code, what | says(*both))


def _pod(request: Any) -> str:
    """Namespace and name of the pod that is to be placed, however it is given."""
    source = request.pod
    if source.HasField("ref"):
        return _named(source.ref)
    raw = source.object_proto or source.object.SerializeToString()
    try:
        pod = frames_pb2.PodFrame.FromString(raw)
    except DecodeError:
        return ""
    return _named(pod.metadata)


def _named(pod: Any) -> str:
    return f"{pod.namespace or DEFAULT_NAMESPACE}/{pod.name}"
