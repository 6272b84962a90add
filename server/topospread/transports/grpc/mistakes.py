"""Everything that is wrong with a request at once, and not only what is found first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from topospread.checkpoints import checkpoint
from topospread.errors import InvalidPod, InvalidRequest
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.service.evaluate import check_top_k
from topospread.service.explain import check_limit
from topospread.store.checks import check_cluster
from topospread.transports.grpc.decode import (
    consistency_of,
    fit_of,
    in_pod,
    lifetime_of,
    moves_of,
    node_of,
    pod_of,
    request_id_of,
    settings_of,
    strict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from topospread.errors import FieldViolation
    from topospread.service.engine import Engine


def together(*parts: Callable[[], object]) -> None:
    """Read all parts of a request.

    Raises:
        InvalidRequest: with what is wrong in any of them.
    """
    refused = list(_refusals(parts))
    if len(refused) == 1:
        raise refused.pop()  # and no cycle of it, this frame and the list
    if refused:
        raise InvalidRequest.of([each for error in refused for each in error.violations])


def tell_everything(first: InvalidRequest, request: Any, engine: Engine) -> None:
    """Look for what else is wrong with a question about a pod, as far as its request can tell.

    Reading stops at the first mistake, which costs those nothing who make none; for who made one
    all is read once more. No error is raised that this function holds: with its traceback it would
    be a cycle, and the request be kept until the collector comes by.

    Args:
        first: why it was refused; the caller raises it again.
        request: a frame.
        engine: has the limits and the profiles.

    Raises:
        InvalidRequest: with more than the first tells, or with paths that begin at the request.
    """
    of_pod = isinstance(first, InvalidPod)
    own = in_pod(first, request.pod).violations if of_pod else first.violations
    known = {(each.field, each.description) for each in own}
    more: list[FieldViolation] = []
    for refused in _refusals(_parts(request, engine)):
        more += [each for each in refused.violations if (each.field, each.description) not in known]
    if more:
        raise InvalidRequest.of([*own, *more]) from first
    if of_pod:
        raise in_pod(first, request.pod) from first


def _refusals(parts: Iterable[Callable[[], object]]) -> Iterator[InvalidRequest]:
    for part in parts:
        checkpoint()
        try:
            part()
        except InvalidRequest as refused:
            yield refused


def _parts(request: Any, engine: Engine) -> Iterator[Callable[[], object]]:
    """What reads each of the fields that requests about pods have."""
    yield partial(check_cluster, request.cluster or DEFAULT_CLUSTER)
    readers: dict[str, Callable[[], object]] = {
        "pod": lambda: _read_pod(request, engine),
        "node": lambda: node_of(request),
        "top_k": lambda: check_top_k(engine, request.top_k),
        "domain_limit": lambda: check_limit(request.domain_limit),
        "fit": lambda: fit_of(request.fit),
        "reservation_ttl": lambda: lifetime_of(request),
        "request_id": lambda: request_id_of(request),
        "settings": lambda: engine.rules_for(settings_of(request.settings), ""),
        "consistency": lambda: consistency_of(request.consistency),
        "validation": lambda: strict(request.validation),
    }
    fields = request.DESCRIPTOR.fields_by_name
    yield from [read for name, read in readers.items() if name in fields]
    for name in ("add_pods", "remove_pods"):
        if name in fields:
            camel = fields[name].json_name
            for number, move in enumerate(getattr(request, name)):
                yield partial(moves_of, [move], camel, number)


def _read_pod(request: Any, engine: Engine) -> None:
    has_cycle = "cycle" in request.DESCRIPTOR.fields_by_name and request.cycle
    if has_cycle and not request.HasField("pod"):
        return  # the cycle has it
    pod = pod_of(request)
    if isinstance(pod, bytes):
        try:
            engine.read(pod)
        except InvalidPod as wrong:
            raise in_pod(wrong, request.pod) from wrong
